//! Idle sessions: what holds their end off, and what comes while it is decided.
use crate::support::{assert_closed, kind, main_pid, on_both, open, open_params, polite, python, used};
use mcpvisor_testkit::{Daemon, SOON, Setup, procfs};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Its `echo` takes as long as it is asked to.
fn slow() -> Vec<String> {
    python("34-out-of-order")
}

/// The end of a session for being idle, and how long that took.
#[track_caller]
fn ends_idle(daemon: &Daemon, key: &str, since: Instant) -> (Value, Duration) {
    let waited = daemon.cli(&["wait", key, "--timeout", "30s"]).ok();
    let certificate = waited["certificate"].clone();
    assert_eq!(certificate["reason"], "idle", "{certificate:#}");
    (certificate, since.elapsed())
}

on_both! {
    /// A call longer than the idle limit holds it off, and so does a client that is attached and says nothing; then the time counts anew.
    g32_e1_calls_and_clients_hold_it_off = |scene, containment| {
        let daemon = Daemon::start(scene, &Setup::on(containment).quick());
        let begun = Instant::now();
        let session = daemon.command(scene, &["open", "busy", "--idle", "500ms", "--"]).args(slow()).output().ok();
        assert_eq!(session["idle_limit_ms"], 500);
        daemon.cli(&["call", "busy", "echo", "text=x", "delay_ms=1500"]).ok();
        assert!(begun.elapsed() >= Duration::from_millis(1500));
        assert!(procfs::is_alive(main_pid(&session)), "a call held it off");
        let client = daemon.connect();
        let attached = client.call("session/attach", &json!({"key": "busy"})).expect("it can be attached to");
        assert_eq!(attached["key"], "busy");
        std::thread::sleep(Duration::from_millis(1200));
        let shown = daemon.cli(&["show", "busy"]).ok();
        assert_eq!((&shown["state"], &shown["attached"], &shown["idle_ms"]), (&json!("ready"), &json!(1), &Value::Null));
        let left = Instant::now();
        drop(client);
        let (certificate, took) = ends_idle(&daemon, "busy", left);
        assert_closed(&certificate, containment);
        assert!(took >= Duration::from_millis(450), "the time counts from when it left: {took:?}");
        assert!(took < Duration::from_secs(15), "{took:?}");
        assert_eq!(used(&daemon), 0);
        daemon.finish();
    };

    /// What works beyond the pin limit is ended, with an answer.
    g32_e1_work_beyond_the_pin_limit = |scene, containment| {
        let setup = Setup::on(containment).config("[timeouts]\nidle = \"200ms\"\npin = \"1s\"\ndrain = \"100ms\"\nstdin_grace = \"100ms\"");
        let daemon = Daemon::start(scene, &setup);
        open(&daemon, scene, "pinned", &slow(), &[]);
        let begun = Instant::now();
        let caller = daemon.connect();
        let arguments = json!({"text": "x", "delay_ms": 60_000});
        let call = caller.send("tool/call", &json!({"key": "pinned", "tool": "echo", "arguments": arguments}));
        let told = call.wait(SOON).expect_err("the drain is over before it is");
        assert_eq!(kind(&told), "session_closing", "{told:#}");
        assert!(begun.elapsed() >= Duration::from_millis(950), "{:?}", begun.elapsed());
        let (certificate, _) = ends_idle(&daemon, "pinned", begun);
        assert_eq!(certificate["drained"], json!({"finished": 0, "cancelled": 1}));
        assert_closed(&certificate, containment);
        drop(caller);
        daemon.finish();
    };

    /// Calls and opens that come just when it is decided: each call is answered or refused, and an open that was answered has a session.
    g32_g33_calls_and_opens_at_the_decision = |scene, containment| {
        let daemon = Daemon::start(scene, &Setup::on(containment).quick());
        let mut params = open_params(scene, "edge", &polite(), &[]);
        params["idle_ms"] = json!(60);
        let connection = daemon.connect();
        let (mut kept, mut ended) = (0, 0);
        for round in 0..60_u64 {
            let begun = Instant::now();
            let opened = connection.call("session/open", &params).expect("an open has a session, an old one or a new one");
            let echo = json!({"key": "edge", "tool": "echo", "arguments": {"message": "x"}});
            let answer = connection.call("tool/call", &echo);
            // On a busy machine the limit may have come before the call.
            let in_time = begun.elapsed() < Duration::from_millis(60);
            assert!(answer.is_ok() || !in_time, "round {round}: who was told of a session can use it: {answer:?}");
            std::thread::sleep(Duration::from_millis(48 + round % 24));
            match connection.call("tool/call", &echo) {
                Ok(_) => kept += 1,
                Err(error) => {
                    assert!(matches!(kind(&error), "session_closing" | "not_found"), "{error:#}");
                    ended += 1;
                }
            }
            assert!(opened["generation"].as_u64() <= Some(round + 1));
        }
        assert!(kept + ended == 60, "{kept}, {ended}");
        let waited = connection.call("session/wait", &json!({"key": "edge", "deadline_ms": 20_000}));
        assert!(waited.is_ok_and(|waited| waited["certificate"]["reason"] == "idle"), "what nobody uses ends");
        drop(connection);
        daemon.finish();
    };

    /// A session with others below it is not idle; no limit is none; a direct session has none.
    g32_what_has_no_idle_limit = |scene, containment| {
        let daemon = Daemon::start(scene, &Setup::on(containment).config("[timeouts]\nidle = \"300ms\""));
        let top = open(&daemon, scene, "top", &polite(), &[]);
        let words = ["open", "below", "--parent", "top", "--idle", "0s", "--"];
        let below = daemon.command(scene, &words).args(polite()).output().ok();
        assert_eq!(below.get("idle_limit_ms"), None, "{below:#}");
        let exclusive = daemon.command(scene, &["open", "alone", "--mode", "exclusive", "--"]).args(polite()).output().ok();
        assert_eq!(exclusive.get("idle_limit_ms"), None, "{exclusive:#}");
        std::thread::sleep(Duration::from_millis(1200));
        assert!([&top, &below, &exclusive].map(main_pid).into_iter().all(procfs::is_alive));
        let begun = Instant::now();
        daemon.cli(&["close", "below", "alone"]).ok();
        ends_idle(&daemon, "top", begun);
        let mut direct = open_params(scene, "direct", &polite(), &[]);
        direct["direct"] = json!({"descriptors": ["stdin", "stdout"]});
        direct["idle_ms"] = json!(1000);
        assert!(daemon.connect().call("session/open", &direct).is_err(), "it names descriptors and has none");
        daemon.finish();
    };
}
