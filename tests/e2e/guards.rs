//! Guards whose absence few other tests would notice, since it shows at one moment only.
//!
//! `cargo xtask negative-controls` takes each out of the daemon, and these fail.
use crate::support::{close, kind, on_both, open, open_params, polite, python};
use mcpvisor_testkit::{Daemon, SOON, Setup, eventually, until};
use serde_json::json;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;

on_both! {
    /// While calls in flight are drained no other call is admitted.
    g11_nothing_is_admitted_once_draining = |scene, containment| {
        let daemon = Daemon::start(scene, &Setup::on(containment).config("[timeouts]\ndrain = \"20s\""));
        open(&daemon, scene, "k", &python("34-out-of-order"), &[]);
        let (caller, closer) = (daemon.connect(), daemon.connect());
        let call = |delay: u64| {
            let arguments = json!({"text": "x", "delay_ms": delay});
            caller.send("tool/call", &json!({"key": "k", "tool": "echo", "arguments": arguments}))
        };
        let slow = call(1500);
        eventually("the call in flight", SOON, || daemon.cli(&["show", "k"]).ok()["in_flight"] == 1);
        let closing = closer.send("session/close", &json!({"key": "k"}));
        eventually("the drain", SOON, || daemon.cli(&["show", "k"]).json()["state"] == "draining");
        let late = call(0).wait(SOON).expect_err("nothing is admitted any more");
        assert_eq!(kind(&late), "session_closing", "{late:#}");
        slow.wait(SOON).expect("what was admitted is answered");
        let told = closing.wait(SOON).expect("it closes");
        assert_eq!(told["results"][0]["drained"], json!({"finished": 1, "cancelled": 0}), "{told:#}");
        drop((caller, closer));
        daemon.finish();
    };
}

/// A session that becomes ready when its close has been told already is not published: its opener hears that it was closed.
/// The word that its server is ready is held, so that it comes late.
#[test]
#[ignore = "needs a daemon with gates: cargo xtask negative-controls plays it"]
fn g22_a_session_that_is_ready_after_its_close() {
    mcpvisor_testkit::scene(|scene| {
        let gates = scene.path("gates");
        let daemon =
            Daemon::start(scene, &Setup::new().quick().env("MCPVISOR_FAILPOINTS", &gates.to_string_lossy()));
        let driver = until(SOON, || UnixStream::connect(&gates).ok()).expect("a daemon with gates listens");
        let mut lines = BufReader::new(driver.try_clone().expect("a descriptor can be copied")).lines();
        let mut say = |order: &str, until: &str| {
            (&driver).write_all(format!("{order}\n").as_bytes()).expect("the daemon reads its orders");
            let found = lines.by_ref().any(|line| line.expect("the daemon answers its orders") == until);
            assert!(found, "{until} was not told");
        };
        say("hold session.ready", "holding session.ready");
        let connection = daemon.connect();
        let opening = connection.send("session/open", &open_params(scene, "k", &polite(), &[]));
        say("count session.begin", "reached session.ready");
        let told = connection.call("session/close", &json!({"key": "k", "wait": false})).expect("it begins");
        assert_eq!(told["results"][0]["outcome"], "stopping", "{told:#}");
        say("release session.ready", "released session.ready");
        let error = opening.wait(SOON).expect_err("it was closed before it was ready");
        assert_eq!(kind(&error), "session_closed", "{error:#}");
        open(&daemon, scene, "k", &polite(), &[]);
        close(&daemon, "k");
        drop((connection, lines, driver));
        std::fs::remove_file(&gates).expect("the daemon leaves the socket of its gates to us");
        daemon.finish();
    });
}
