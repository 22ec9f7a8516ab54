//! What waits for something else before it goes on, at a gate: a call for its parked session, an open for its slot.
use super::stage::{KEY, Requester, Stage};
use crate::support::polite;
use mcpvisor_testkit::{SOON, eventually};
use serde_json::json;

/// A session is parked, and a call of it comes to the gate.
pub(crate) fn wake(stage: &mut Stage, gate: &str, process: bool) -> Requester {
    let mut params = stage.open_params(KEY, &polite());
    (params["idle_ms"], params["on_idle"]) = (json!(100), json!("park"));
    stage.other.call("session/open", &params).expect("a session opens");
    eventually("its parking", SOON, || {
        let sessions = stage.sessions();
        sessions.iter().any(|session| session["servers"][0]["state"] == "parked")
    });
    stage.gates.hold(gate);
    let call = json!({"key": KEY, "tool": "echo", "arguments": {"message": "good morning"}});
    stage.ask("tool/call", &call, process)
}

/// An open waits for the slot of its tenant; that is given back, and the open comes to the gate.
pub(crate) fn queue(stage: &mut Stage, gate: &str, process: bool) -> Requester {
    let of_tenant = |stage: &Stage, key: &str| {
        let mut params = stage.open_params(key, &polite());
        params["tenant"] = json!("one-at-a-time");
        params
    };
    stage.other.call("session/open", &of_tenant(stage, "before")).expect("a session opens");
    let mut params = of_tenant(stage, KEY);
    params["queue_ms"] = json!(60_000);
    let requester = stage.ask("session/open", &params, process);
    let other = &stage.other;
    eventually("an open that waits", SOON, || {
        let list = other.call("session/list", &json!({})).expect("a list is always given");
        list["queued"].as_array().is_some_and(|queued| queued.len() == 1)
    });
    stage.gates.hold(gate);
    drop(stage.close("before"));
    requester
}
