//! An open looks at its key again after each await on its way: what it saw before counts for nothing.
use super::gates::Gates;
use crate::support::{assert_closed, close, kind, main_pid, on_both, open_params, polite, python};
use mcpvisor_testkit::{Containment, Daemon, Rpc, SOON, Scene, Setup, eventually, procfs};
use serde_json::{Value, json};
use std::sync::Arc;

/// The last await of an open before the registry: its servers are resolved.
const GATE: &str = "open.resolved";

fn stage(scene: &Arc<Scene>, containment: Containment) -> (Daemon, Gates, Rpc, Rpc) {
    let orders = scene.path("gates");
    let setup = Setup::on(containment).gated(&orders).config(
        "[timeouts]\nstdin_grace = \"500ms\"\nterm_grace = \"200ms\"\nkill_wait = \"20s\"\nstart = \"20s\"",
    );
    let daemon = Daemon::start(scene, &setup);
    let gates = Gates::connect(&orders);
    let (one, two) = (daemon.connect(), daemon.connect());
    (daemon, gates, one, two)
}

fn with(mut params: Value, name: &str, value: &str) -> Value {
    params[name] = json!(value);
    params
}

on_both! {
    /// B.1: a key that was free when the open came and is open when it gets there is not opened again.
    b1_if_open_is_looked_at_again = |scene, containment| {
        let (daemon, mut gates, one, two) = stage(scene, containment);
        let params = open_params(scene, "k", &polite(), &[]);
        for (if_open, expected) in [("fail", "session_exists"), ("join", "joined")] {
            gates.hold(GATE);
            let held = one.send("session/open", &with(params.clone(), "if_open", if_open));
            gates.reached(GATE);
            let opened = two.call("session/open", &params).expect("the key is free");
            gates.release(GATE);
            match held.wait(SOON) {
                Ok(joined) => {
                    assert_eq!((expected, &joined["generation"]), ("joined", &opened["generation"]));
                    assert_eq!(joined["created"], false);
                }
                Err(error) => assert_eq!(kind(&error), expected),
            }
            assert_closed(&close(&daemon, "k"), containment);
        }
        drop((gates, one, two));
        daemon.finish();
    };

    /// B.1: a key that was open when the open came and is being closed when it gets there is refused, or waited for.
    b1_if_closing_is_looked_at_again = |scene, containment| {
        let (daemon, mut gates, one, two) = stage(scene, containment);
        let params = open_params(scene, "k", &python("01-ignore-eof"), &[]);
        for if_closing in ["fail", "wait"] {
            let before = two.call("session/open", &params).expect("it opens");
            gates.hold(GATE);
            let held = one.send("session/open", &with(params.clone(), "if_closing", if_closing));
            gates.reached(GATE);
            let closing = two.send("session/close", &json!({"key": "k"}));
            eventually("the teardown", SOON, || daemon.cli(&["show", "k"]).json()["state"] == "stopping");
            gates.release(GATE);
            let answer = held.wait(SOON);
            match if_closing {
                "fail" => assert_eq!(kind(&answer.expect_err("it is refused")), "session_closing"),
                _ => {
                    let after = answer.expect("it opens when the key is free");
                    assert_ne!(after["generation"], before["generation"]);
                    assert!(!procfs::exists(main_pid(&before)), "the old generation is gone by then");
                }
            }
            assert_eq!(closing.wait(SOON).expect("a certificate")["results"][0]["outcome"], "closed");
        }
        assert_closed(&close(&daemon, "k"), containment);
        drop((gates, one, two));
        daemon.finish();
    };
}
