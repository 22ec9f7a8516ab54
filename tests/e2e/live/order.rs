//! The order of one connection's requests holds up to the session.
use super::{TIMEOUTS, attach, closes, open, server, start};
use crate::support::on_both;
use mcpvisor_testkit::{Daemon, SOON, Setup, eventually};
use serde_json::{Value, json};

on_both! {
    /// G26: a change and a close in one write: the change came first, so it is done, or fenced by the close, and never refused as if it came later.
    g26_a_close_does_not_overtake_a_change = |scene, containment| {
        let daemon = Daemon::start(scene, &Setup::on(containment).config(TIMEOUTS));
        for round in 0..10 {
            let line = |name: &str| format!("{name}={}", server(&[name]).join(" "));
            daemon.command(scene, &["open", "k", "--server", &line("a"), "--server", &line("b")]).output().ok();
            let rpc = daemon.connect();
            let method = ["server/remove", "server/restart"][round % 2];
            let request = |id: &str, method: &str, params: Value| json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
            let change = request("change", method, json!({"key": "k", "name": "b"}));
            let close = request("close", "session/close", json!({"key": "k"}));
            rpc.send_line(&format!("{change}\n{close}"));
            for _ in 0..2 {
                let answer = rpc.next_other(SOON).expect("both are answered");
                let refusal = answer["error"]["data"]["kind"].as_str();
                match (answer["id"].as_str(), refusal) {
                    (Some("close"), None) | (Some("change"), None | Some("session_closed")) => {}
                    _ => panic!("round {round}: {answer:#}"),
                }
            }
        }
        daemon.finish();
    };

    /// While a server waits for its last calls, to be started again then, a new call of the attached client hears that it did not reach it.
    g29_a_call_while_a_server_is_held = |scene, containment| {
        let daemon = start(scene, containment);
        open(&daemon, scene, &[], &["x", "slow"]);
        let mut client = attach(&daemon, scene);
        let slow = client.request("tools/call", json!({"name": "slow", "arguments": {"seconds": 2}}));
        eventually("the call", SOON, || daemon.cli(&["show", "k"]).ok()["in_flight"] == json!(1));
        let mut restarting = daemon.command(scene, &["server", "restart", "k", "a"]).spawn();
        let mut refused = None;
        eventually("it is held", SOON, || {
            let answer = client.call_tool("x", &json!({}));
            refused = Some(answer["error"].clone()).filter(|error| !error.is_null());
            refused.is_some()
        });
        let refused = refused.expect("it was refused");
        assert_eq!(refused["data"]["kind"], "server_exited", "{refused:#}");
        assert!(refused["message"].as_str().is_some_and(|text| text.contains("did not reach it")), "{refused:#}");
        assert!(client.answer(slow, SOON).expect("within the drain")["error"].is_null());
        assert!(restarting.wait(SOON).success());
        client.close_stdin();
        client.wait(SOON);
        closes(daemon, containment);
    };
}
