//! Servers whose processes are not a session's own (G28, D.4): those that sessions share, and those that someone else runs. The shared one
//! is `38-many-lives` in a profile `p`.
mod external;
mod told;

use crate::restarts::{Lives, profile};
use crate::support::{assert_closed, close, kind, on_both, used};
use mcpvisor_testkit::{Daemon, SOON, Setup, Signal, eventually, procfs, send_signal};
use serde_json::{Value, json};
use std::time::Duration;

/// The server of a session.
fn server(lives: &Lives<'_>, key: &str) -> Value {
    lives.server(key, "main")
}

fn pid(lives: &Lives<'_>, key: &str) -> u32 {
    let server = server(lives, key);
    let pid = server["pid"].as_u64().unwrap_or_else(|| panic!("{key} has no process: {server:#}"));
    u32::try_from(pid).expect("process numbers are small")
}

/// The key under which the process itself is shown.
fn host(lives: &Lives<'_>, key: &str) -> String {
    server(lives, key)["host"].as_str().expect("it is shared").to_owned()
}

/// Closes a session, and asserts that the server was not ended by that.
#[track_caller]
fn detaches(lives: &Lives<'_>, key: &str, users: u64) {
    let certificate = close(&lives.daemon, key);
    assert_eq!((&certificate["outcome"], &certificate["proof"]), (&json!("closed"), &Value::Null));
    let told = &certificate["servers"][0];
    assert_eq!((&told["detached"], &told["scope"]), (&json!(true), &json!("daemon")), "{certificate:#}");
    assert_eq!((&told["stage"], &told["exit"], &told["processes"]), (&Value::Null, &Value::Null, &json!([])));
    assert_eq!(told["users"], json!(users), "{certificate:#}");
}

fn shared(lives: &Lives<'_>) -> u64 {
    lives.daemon.status()["shared_servers"]["used"].as_u64().expect("status counts them")
}

on_both! {
    /// Two sessions have one process; closing one leaves the other's call in flight; the last one and the linger end it.
    g28_d4_one_server_for_two_sessions = |scene, containment| {
        let lives = Lives::new(scene, containment, &[("main", "scope = \"daemon\"\nlinger = \"400ms\"")], &[]);
        lives.open("a").ok();
        lives.open("b").ok();
        let main = pid(&lives, "a");
        assert_eq!(main, pid(&lives, "b"), "one process for both");
        assert_eq!((&server(&lives, "b")["scope"], &server(&lives, "b")["users"]), (&json!("daemon"), &json!(2)));
        assert_eq!((used(&lives.daemon), shared(&lives)), (2, 1), "it takes no slot");
        let listed = lives.daemon.cli(&["list"]).ok();
        assert_eq!(listed["sessions"].as_array().map(Vec::len), Some(2), "{listed:#}");
        for key in ["a", "b"] {
            let rows = lives.daemon.cli(&["ps", key]).ok()["processes"].clone();
            assert!(rows.as_array().is_some_and(|rows| rows.iter().any(|row| {
                (&row["pid"], &row["session"], &row["server"], &row["scope"])
                    == (&json!(main), &json!(key), &json!("main"), &json!("daemon"))
            })), "{rows:#}");
        }
        let host = host(&lives, "a");
        let params = json!({"key": "b", "tool": "busy", "arguments": {"ms": 700}});
        let connection = lives.daemon.connect();
        let call = connection.send("tool/call", &params);
        eventually("the call is in flight", SOON, || server(&lives, "b")["in_flight"] == 1);
        detaches(&lives, "a", 1);
        assert!(procfs::is_alive(main), "another session uses it");
        let answer = call.wait(SOON).expect("the call goes on");
        drop(connection);
        assert!(answer["content"].is_array(), "{answer:#}");
        detaches(&lives, "b", 0);
        eventually("the linger is over", SOON, || !procfs::exists(main) && shared(&lives) == 0);
        let waited = lives.daemon.cli(&["wait", &format!("{host}@2")]).ok();
        assert_closed(&waited["certificate"], containment);
        assert_eq!(waited["certificate"]["reason"], "idle", "{waited:#}");
        let told = lives.daemon.cli(&["events", &host]).text();
        assert!(told.contains("session.closed"), "an event says how it ended: {told}");
        assert_eq!(lives.daemon.cli(&["show", "a"]).ok()["state"], "closed");
        lives.daemon.finish();
    };

    /// One that comes during the linger takes it over; one that comes while it is being ended has it anew (G1).
    g28_g1_the_linger = |scene, containment| {
        let lives = Lives::new(scene, containment, &[("main", "scope = \"daemon\"\nlinger = \"20s\"")], &[]);
        lives.open("a").ok();
        let (main, host) = (pid(&lives, "a"), host(&lives, "a"));
        detaches(&lives, "a", 0);
        assert_eq!((used(&lives.daemon), shared(&lives)), (0, 1));
        lives.open("b").ok();
        assert_eq!(pid(&lives, "b"), main, "it was still there");
        detaches(&lives, "b", 0);
        // Whoever may not wait for the rest of the linger ends it by its own key.
        let connection = lives.daemon.connect();
        let stopping = connection.send("session/close", &json!({"key": host}));
        lives.open("c").ok();
        let next = pid(&lives, "c");
        assert!(next != main && !procfs::exists(main), "G1: {main} and {next}");
        stopping.wait(SOON).expect("it was closed");
        drop(connection);
        detaches(&lives, "c", 0);
        assert_closed(&close(&lives.daemon, &host), containment);
        lives.daemon.finish();
    };

    /// Without a linger it ends with its last session, and the next one starts it anew, over and over.
    g28_no_linger = |scene, containment| {
        let lives = Lives::new(scene, containment, &[("main", "scope = \"daemon\"\nlinger = \"0s\"")], &[]);
        let mut before = 0;
        for _ in 0..8 {
            lives.open("a").ok();
            let main = pid(&lives, "a");
            assert!(main != before, "G1");
            assert_eq!(lives.call("a", "echo", "{\"text\":\"x\"}").status, 0);
            detaches(&lives, "a", 0);
            before = main;
        }
        // Many at once begin one process, and the last of them ends it.
        let opens: Vec<_> = (0..16).map(|n| {
            let params = json!({"key": format!("k{n}"), "profile": "p"});
            let connection = lives.daemon.connect();
            (connection.send("session/open", &params), connection)
        }).collect();
        for (open, _) in opens {
            open.wait(SOON).expect("each is opened");
        }
        assert!((1..16).all(|n| pid(&lives, &format!("k{n}")) == pid(&lives, "k0")), "G2: one process");
        lives.daemon.cli(&["close", "--all"]).ok();
        eventually("it is ended", SOON, || shared(&lives) == 0);
        lives.daemon.finish();
    };

    /// Its death is told to each session that uses it, and its restart is one.
    g28_g29_its_death_is_told_to_each = |scene, containment| {
        let lives = Lives::new(scene, containment, &[("main", "scope = \"daemon\"\nlinger = \"100ms\"")], &[]);
        lives.open("a").ok();
        lives.open("b").ok();
        let main = pid(&lives, "a");
        let connection = lives.daemon.connect();
        let call = connection.send("tool/call", &json!({"key": "b", "tool": "busy", "arguments": {"ms": 60_000}}));
        eventually("the call is in flight", SOON, || server(&lives, "b")["in_flight"] == 1);
        send_signal(main, Signal::KILL);
        let error = call.wait(SOON).expect_err("its server has ended");
        drop(connection);
        assert_eq!(kind(&error), "server_exited", "{error:#}");
        for key in ["a", "b"] {
            lives.runs_again(key, "main", 1);
            let told = lives.daemon.cli(&["events", key]).text();
            assert!(told.contains("server.backoff"), "{key} was told: {told}");
            assert_eq!(lives.call(key, "echo", "{\"text\":\"x\"}").status, 0);
        }
        let next = pid(&lives, "a");
        assert!(next == pid(&lives, "b") && next != main, "one restart for both");
        assert_eq!(lives.told("main").len(), 2, "it was born twice");
        // By hand: for both too.
        let again = lives.daemon.cli(&["server", "restart", "a", "main"]).ok();
        assert_eq!(again["server"]["state"], "ready", "{again:#}");
        lives.runs_again("b", "main", 2);
        assert!(pid(&lives, "a") == pid(&lives, "b") && pid(&lives, "a") != next);
        assert_eq!(again["server"]["pid"], json!(pid(&lives, "a")), "{again:#}");
        // Removed from one, it is the other's still.
        let removed = lives.daemon.cli(&["server", "remove", "a", "main"]).ok();
        assert_eq!((&removed["server"]["detached"], &removed["proof"]), (&json!(true), &Value::Null), "{removed:#}");
        assert_eq!(lives.call("b", "echo", "{\"text\":\"x\"}").status, 0);
        lives.daemon.cli(&["close", "--all"]).ok();
        eventually("the linger is over", SOON, || shared(&lives) == 0);
        lives.daemon.finish();
    };

    /// One that is not started again fails each session that requires it, and none of them starts it anew.
    g28_g29_given_up = |scene, containment| {
        let lines = "scope = \"daemon\"\nrestart = \"temporary\"";
        let lives = Lives::new(scene, containment, &[("main", lines)], &[]);
        lives.open("a").ok();
        lives.open("b").ok();
        send_signal(pid(&lives, "a"), Signal::KILL);
        for key in ["a", "b"] {
            eventually("the session has failed", SOON, || {
                let shown = lives.daemon.cli(&["show", key]);
                shown.status == 0 && shown.ok()["state"] == "failed"
            });
            let shown = lives.daemon.cli(&["show", key]).ok();
            assert_eq!(shown["failure"]["exit"], json!({"signal": "KILL"}), "{shown:#}");
        }
        eventually("its own session is over", SOON, || shared(&lives) == 0);
        assert_eq!(lives.told("main").len(), 1, "it was born once");
        // The next one is another matter.
        lives.open("a").ok();
        close(&lives.daemon, "a");
        let hosts = lives.daemon.cli(&["list"]).ok();
        assert_eq!(hosts["sessions"], json!([]), "{hosts:#}");
        lives.daemon.cli(&["reload"]).ok();
        let (key, _) = lingering(&lives);
        close(&lives.daemon, &key);
        lives.daemon.finish();
    };

    /// G25: how its start failed is told to the session that wanted it, and nothing is left.
    g28_g25_a_start_that_fails = |scene, containment| {
        let config = profile(scene, &[("main", "scope = \"daemon\"")]) + "BUG_NEEDS = \"/nowhere\"\n";
        let lives = Lives::with(scene, containment, &config, &[]);
        let error = lives.open("a").fails(1);
        assert_eq!((&error["kind"], &error["data"]["reason"]), (&json!("start_failed"), &json!("exited")), "{error:#}");
        assert_eq!(error["data"]["exit"], json!({"code": 3}), "{error:#}");
        assert!(error["data"]["stderr_tail"].as_str().is_some_and(|tail| tail.contains("is missing")), "{error:#}");
        assert_eq!(shared(&lives), 0);
        lives.daemon.finish();
    };

    /// What is the daemon's own is no session that anybody could open or call: no approval is gone around.
    g28_its_own_session_is_nobodys = |scene, containment| {
        let lives = Lives::new(scene, containment, &[("main", "scope = \"daemon\"\nlinger = \"0s\"")], &[]);
        lives.open("a").ok();
        let host = host(&lives, "a");
        assert_eq!(lives.daemon.cli(&["open", &host, "--", "true"]).fails(2)["kind"], "invalid_request");
        assert_eq!(lives.daemon.cli(&["open", "x", "--parent", &host, "--", "true"]).fails(2)["kind"], "invalid_request");
        for words in [&["tools", &*host][..], &["call", &host, "echo"], &["server", "remove", &host, "main"]] {
            assert_eq!(lives.daemon.cli(words).fails(1)["kind"], "unsupported", "{words:?}");
        }
        assert_eq!(lives.daemon.cli(&["show", &host]).ok()["servers"][0]["state"], "ready");
        close(&lives.daemon, "a");
        eventually("it is ended", SOON, || shared(&lives) == 0);
        lives.daemon.finish();
    };

    /// G36: with the daemon killed, nothing of it is left.
    g36_g28_the_daemon_is_killed = |scene, containment| {
        let mut lives = Lives::new(scene, containment, &[("main", "scope = \"daemon\"")], &[]);
        lives.open("a").ok();
        lives.open("b").ok();
        let main = pid(&lives, "a");
        lives.daemon.process().signal(Signal::KILL);
        lives.daemon.process().wait(SOON);
        assert!(mcpvisor_testkit::ends_within(main, Duration::from_secs(2)), "it outlives the daemon");
        let setup = Setup::on(containment).config(&profile(scene, &[("main", "scope = \"daemon\"\nlinger = \"0s\"")]));
        let next = Daemon::start_in(scene, &setup, lives.daemon.socket(), "next");
        next.cli(&["open", "a", "--profile", "p"]).ok();
        close(&next, "a");
        eventually("it is ended", SOON, || next.status()["shared_servers"]["used"] == 0);
        next.finish();
    };

    /// G35: a shutdown ends it with the sessions that use it, and one that lingers.
    g35_g28_shutdown = |scene, containment| {
        let mut lives = Lives::new(scene, containment, &[("main", "scope = \"daemon\""), ("other", "scope = \"daemon\"\nrequired = false")], &[]);
        lives.open("a").ok();
        let main = pid(&lives, "a");
        close(&lives.daemon, "a");
        lives.open("b").ok();
        assert_eq!(pid(&lives, "b"), main);
        lives.daemon.process().signal(Signal::TERM);
        assert_eq!(lives.daemon.process().wait(SOON).code(), Some(0));
        assert!(!procfs::exists(main));
        assert_eq!(lives.daemon.complaints(), Vec::<String>::new());
    };

    /// A reload that changes it gives each session the new one; the old one goes when none of them uses it.
    g28_a_reload_that_changes_it = |scene, containment| {
        let lives = Lives::new(scene, containment, &[("main", "scope = \"daemon\"\nlinger = \"0s\"")], &[]);
        lives.open("a").ok();
        lives.open("b").ok();
        let main = pid(&lives, "a");
        let changed = profile(scene, &[("main", "scope = \"daemon\"\nlinger = \"0s\"\nmax_in_flight = 3")]);
        let text = format!("[daemon]\ncontainment = \"{containment}\"\n{changed}");
        std::fs::write(lives.daemon.config(), text).expect("the configuration is ours");
        lives.daemon.cli(&["reload"]).ok();
        let next = pid(&lives, "a");
        assert!(next != main && next == pid(&lives, "b"), "{main}, {next}");
        eventually("the old one is gone", SOON, || !procfs::exists(main) && shared(&lives) == 1);
        lives.daemon.cli(&["close", "--all"]).ok();
        eventually("the new one is gone", SOON, || shared(&lives) == 0);
        lives.daemon.finish();
    };
}

/// The key and the process of the one that nobody uses.
fn lingering(lives: &Lives<'_>) -> (String, u32) {
    let rows = lives.daemon.cli(&["ps"]).ok()["processes"].clone();
    let row = rows.as_array().and_then(|rows| rows.first()).unwrap_or_else(|| panic!("nothing lingers"));
    let pid = row["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok());
    (row["session"].as_str().expect("a key").to_owned(), pid.expect("a process"))
}
