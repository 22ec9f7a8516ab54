//! Leases and times to live: what ends a session that nobody closes.
use crate::support::{
    assert_closed, close, kind, main_pid, on_both, open, open_params, polite, python, used,
};
use mcpvisor_testkit::{Daemon, SOON, Setup, Signal, eventually, procfs};
use serde_json::json;
use std::time::{Duration, Instant};

on_both! {
    /// The process that holds a lease ends: the session is closed like any other.
    g34_e2_the_process_of_a_lease_is_killed = |scene, containment| {
        let daemon = Daemon::start(scene, &Setup::on(containment).quick());
        let mut host = scene.command("sleep").arg("1000").spawn();
        let lease = format!("pid:{}", host.pid());
        let mut sessions = Vec::new();
        for key in ["one", "two"] {
            let words = ["open", key, "--lease", &lease, "--"];
            sessions.push(daemon.command(scene, &words).args(python("02-ignore-sigterm")).output().ok());
        }
        let other = open(&daemon, scene, "other", &polite(), &[]);
        assert_eq!(daemon.cli(&["show", "one"]).ok()["lease"], lease);
        host.signal(Signal::KILL);
        for session in &sessions {
            let key = session["key"].as_str().expect("a session has a key");
            daemon.cli(&["wait", key, "--timeout", "20s"]).ok();
            assert!(!procfs::exists(main_pid(session)));
            let named = format!("{key}@{}", session["generation"]);
            let certificate = daemon.cli(&["close", &named]).ok()["results"][0].clone();
            assert_closed(&certificate, containment);
            assert_eq!(certificate["reason"], "lease_ended", "{certificate:#}");
        }
        assert!(procfs::is_alive(main_pid(&other)), "the other session has no part in that");
        close(&daemon, "other");
        daemon.finish();
    };

    /// A process that is dead holds nothing, one that dies while its session starts ends it.
    g34_a_dead_process_holds_no_lease = |scene, containment| {
        let daemon = Daemon::start(scene, &Setup::on(containment).quick());
        let mut gone = scene.command("true").spawn();
        let lease = format!("pid:{}", gone.pid());
        let _ = gone.wait(SOON);
        let words = ["open", "late", "--lease", &lease, "--"];
        let refused = daemon.command(scene, &words).args(polite()).output().fails(2);
        assert_eq!(refused["kind"], "invalid_request", "{refused:#}");
        assert_eq!((used(&daemon), scene.noted().len()), (0, 0), "G9: nothing was begun");
        let mut host = scene.command("sleep").arg("1000").spawn();
        let lease = format!("pid:{}", host.pid());
        let mut params = open_params(scene, "slow", &python("09-init-slow"), &[("BUG_DELAY", "30")]);
        params["lease"] = json!(lease);
        let connection = daemon.connect();
        let opening = connection.send("session/open", &params);
        eventually("the start", SOON, || !scene.noted().is_empty());
        host.signal(Signal::KILL);
        let told = opening.wait(SOON).expect_err("its lease has ended");
        assert_eq!(kind(&told), "session_closed", "{told:#}");
        drop(connection);
        assert_eq!(used(&daemon), 0);
        daemon.finish();
    };

    /// One that dies while its open waits for a slot ends the wait: nothing is admitted for it.
    g34_a_holder_that_ends_takes_its_open_along = |scene, containment| {
        let daemon = Daemon::start(scene, &Setup::on(containment).quick().daemon("max_sessions = 1"));
        open(&daemon, scene, "full", &polite(), &[]);
        let mut host = scene.command("sleep").arg("1000").spawn();
        let mut params = open_params(scene, "late", &polite(), &[]);
        params["lease"] = json!(format!("pid:{}", host.pid()));
        params["queue_ms"] = json!(600_000);
        let connection = daemon.connect();
        let opening = connection.send("session/open", &params);
        eventually("the wait", SOON, || daemon.cli(&["list"]).ok()["queued"].as_array().is_some_and(|all| all.len() == 1));
        host.signal(Signal::KILL);
        let told = opening.wait(SOON).expect_err("its lease has ended");
        assert_eq!(kind(&told), "invalid_request", "{told:#}");
        close(&daemon, "full");
        assert_eq!(used(&daemon), 0);
        drop(connection);
        daemon.finish();
    };

    /// A time to live is over when it is, whatever is in flight.
    g34_a_time_to_live = |scene, containment| {
        let daemon = Daemon::start(scene, &Setup::on(containment).quick());
        let begun = Instant::now();
        let words = ["open", "short", "--ttl", "700ms", "--"];
        let session = daemon.command(scene, &words).args(polite()).output().ok();
        assert!(session["expires_at"].is_string(), "{session:#}");
        let waited = daemon.cli(&["wait", "short", "--timeout", "20s"]).ok();
        assert!(begun.elapsed() >= Duration::from_millis(700));
        assert_closed(&waited["certificate"], containment);
        assert_eq!(waited["certificate"]["reason"], "ttl");
        assert!(!procfs::exists(main_pid(&session)));
        let connection = daemon.connect();
        for ttl in [3_162_240_000_001_u64, u64::MAX] {
            let mut params = open_params(scene, "endless", &polite(), &[]);
            params["ttl_ms"] = json!(ttl);
            let refused = connection.call("session/open", &params).expect_err("that is no date");
            assert_eq!(kind(&refused), "invalid_request", "{refused:#}");
            params["ttl_ms"] = json!(3_162_240_000_000_u64);
            let opened = connection.call("session/open", &params).expect("it opens");
            assert!(opened["expires_at"].as_str().is_some_and(|at| at.starts_with("21")), "{opened:#}");
            close(&daemon, "endless");
        }
        drop(connection);
        let words = ["open", "never", "--ttl", "0s", "--"];
        assert_eq!(daemon.command(scene, &words).args(polite()).output().fails(2)["kind"], json!("invalid_request"));
        daemon.finish();
    };
}
