//! What is told of servers that a session leaves, and that are not its own to end.
use super::{Lives, close, host, pid, profile, shared};
use crate::support::on_both;
use mcpvisor_testkit::{Daemon, SOON, eventually, procfs};
use serde_json::{Value, json};

/// The events of a session say of its server what its certificate does: it is left, and did not end.
#[track_caller]
pub(super) fn is_told_as_detached(daemon: &Daemon, key: &str, scope: &str) {
    let text = daemon.cli(&["events", key]).text();
    let events: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let of = |kind: &str| {
        let newest = events.iter().rev().find(|event| event["kind"] == kind);
        newest.unwrap_or_else(|| panic!("no {kind}: {text}"))["data"].clone()
    };
    for data in [of("server.stopping"), of("server.stopped")] {
        assert_eq!((&data["detached"], &data["scope"]), (&json!(true), &json!(scope)), "{data:#}");
    }
    let stopped = of("server.stopped");
    assert_eq!(
        (stopped.get("stage"), stopped.get("exit")),
        (Some(&Value::Null), Some(&Value::Null)),
        "{stopped:#}"
    );
    let closed = of("session.closed");
    assert_eq!(
        (closed.get("proof"), &closed["servers"][0]["detached"]),
        (Some(&Value::Null), &json!(true)),
        "{closed:#}"
    );
}

/// What a person reads.
fn in_words(lives: &Lives<'_>, words: &[&str]) -> String {
    let socket = lives.daemon.socket().to_string_lossy().into_owned();
    lives.scene.mcpvisor(&[&["--socket", &*socket], words].concat()).output().text()
}

/// Writes another configuration of the server, and reads it.
fn reload(lives: &Lives<'_>, lines: &str) {
    let text = format!(
        "[daemon]\ncontainment = \"{}\"\n{}",
        lives.containment,
        profile(lives.scene, &[("main", lines)])
    );
    std::fs::write(lives.daemon.config(), text).expect("the configuration is ours");
    lives.daemon.cli(&["reload"]).ok();
}

on_both! {
    /// Events, certificate and headline say that it was left, and never that it has ended.
    g28_g12_what_is_left_is_not_told_as_ended = |scene, containment| {
        let lives = Lives::new(scene, containment, &[("main", "scope = \"daemon\"\nlinger = \"100ms\"")], &[]);
        lives.open("a").ok();
        lives.open("b").ok();
        let (main, host) = (pid(&lives, "a"), host(&lives, "a"));
        let text = in_words(&lives, &["close", "a"]);
        assert!(text.contains("detached; no process was its own") && !text.contains("nothing is left"), "{text}");
        assert!(text.contains(&format!("as {host}, and another one used it then")), "{text}");
        is_told_as_detached(&lives.daemon, "a", "daemon");
        let text = in_words(&lives, &["server", "remove", "b", "main"]);
        assert!(text.contains("removed: detached;") && !text.contains("nothing is left"), "{text}");
        eventually("the linger is over", SOON, || !procfs::exists(main) && shared(&lives) == 0);
        // Where its process is, it has ended.
        let told = lives.daemon.cli(&["events", &host]).text();
        assert!(told.contains("server.stopped") && !told.contains("detached"), "{told}");
        close(&lives.daemon, "b");
        lives.daemon.finish();
    };

    /// The linger is no part of what a server is: a reload that changes it alone ends nothing, and the process keeps the one it began with.
    g28_a_reload_of_the_linger_alone = |scene, containment| {
        let lives = Lives::new(scene, containment, &[("main", "scope = \"daemon\"\nlinger = \"100ms\"")], &[]);
        lives.open("a").ok();
        let (main, host_of_a) = (pid(&lives, "a"), host(&lives, "a"));
        reload(&lives, "scope = \"daemon\"\nlinger = \"1h\"");
        lives.open("b").ok();
        assert_eq!((pid(&lives, "a"), pid(&lives, "b")), (main, main), "the same process");
        assert_eq!(host(&lives, "b"), host_of_a);
        lives.daemon.cli(&["close", "a", "b"]).ok();
        eventually("its own linger is over", SOON, || !procfs::exists(main) && shared(&lives) == 0);
        // The next one has the new one.
        lives.open("c").ok();
        let shown = lives.daemon.cli(&["show", &host(&lives, "c")]).ok();
        assert_eq!(shown["idle_limit_ms"], json!(3_600_000), "{shown:#}");
        let host = host(&lives, "c");
        close(&lives.daemon, "c");
        close(&lives.daemon, &host);
        lives.daemon.finish();
    };

    /// One that is ended for all by hand is not promised again: each session that requires it fails at once, and says why.
    g28_g29_closed_for_all = |scene, containment| {
        let lines = "scope = \"daemon\"\nrestart = \"transient\"";
        let lives = Lives::new(scene, containment, &[("main", lines)], &[]);
        lives.open("a").ok();
        lives.open("b").ok();
        let (main, host) = (pid(&lives, "a"), host(&lives, "a"));
        close(&lives.daemon, &host);
        assert!(!procfs::exists(main));
        for key in ["a", "b"] {
            let waited = lives.daemon.cli(&["wait", key]).ok();
            assert_eq!((&waited["state"], &waited["certificate"]["reason"]), (&json!("failed"), &json!("servers_failed")), "{waited:#}");
            let failure = &waited["certificate"]["failure"];
            assert_eq!(failure["reason"], json!("closed"), "{waited:#}");
            assert!(failure["message"].as_str().is_some_and(|text| text.contains(&host)), "{waited:#}");
            let told = lives.daemon.cli(&["events", key]).text();
            assert!(!told.contains("server.backoff"), "no restart is promised: {told}");
        }
        assert_eq!(lives.told("main").len(), 1, "it was born once");
        lives.daemon.finish();
    };

    /// Two that had one name, one after the other, are told apart.
    g28_two_of_one_name_are_told_apart = |scene, containment| {
        let lives = Lives::new(scene, containment, &[("main", "scope = \"daemon\"\nlinger = \"0s\"")], &[]);
        lives.open("a").ok();
        let old = host(&lives, "a");
        reload(&lives, "scope = \"daemon\"\nlinger = \"0s\"\nmax_in_flight = 3");
        let new = host(&lives, "a");
        assert_ne!(old, new);
        let certificate = close(&lives.daemon, "a");
        let told = |at: usize| {
            let server = &certificate["servers"][at];
            (server["host"].clone(), server["users"].clone())
        };
        assert_eq!((told(0), told(1)), ((json!(old), json!(0)), (json!(new), json!(0))), "{certificate:#}");
        eventually("both are ended", SOON, || shared(&lives) == 0);
        assert!(server_is_gone(&lives, &old) && server_is_gone(&lives, &new));
        lives.daemon.finish();
    };
}

fn server_is_gone(lives: &Lives<'_>, host: &str) -> bool {
    lives.daemon.cli(&["show", host]).ok()["state"] == "closed"
}
