//! Parked sessions: their servers are gone until someone calls them.
use crate::support::{assert_closed, kind, main_pid, on_both, polite, python, used};
use mcpvisor_testkit::{Daemon, SOON, Scene, Setup, eventually, procfs};
use serde_json::{Value, json};
use std::time::Instant;

fn open_parking(daemon: &Daemon, scene: &Scene, command: &[String]) -> Value {
    let words = ["open", "nap", "--idle", "300ms", "--on-idle", "park", "--"];
    daemon.command(scene, &words).args(command).output().ok()
}

#[track_caller]
fn is_parked(daemon: &Daemon) {
    eventually("the parking", SOON, || daemon.cli(&["show", "nap"]).ok()["servers"][0]["state"] == "parked");
}

on_both! {
    /// An idle session ends its processes and keeps key and slot; calls that come together share one start, an attached client too.
    e1_parked_and_awake_again = |scene, containment| {
        let daemon = Daemon::start(scene, &Setup::on(containment).quick());
        let before = open_parking(&daemon, scene, &polite());
        is_parked(&daemon);
        assert!(!procfs::exists(main_pid(&before)), "its process is gone");
        let shown = daemon.cli(&["show", "nap"]).ok();
        assert_eq!((&shown["state"], &shown["generation"], used(&daemon)), (&json!("ready"), &before["generation"], 1));
        assert_eq!(shown["servers"][0]["pid"], Value::Null);
        let callers: Vec<_> = (0..8).map(|_| daemon.connect()).collect();
        let whoami = json!({"key": "nap", "tool": "whoami"});
        let calls: Vec<_> = callers.iter().map(|caller| caller.send("tool/call", &whoami)).collect();
        let mut pids: Vec<String> = calls.into_iter().map(|call| {
            let result = call.wait(SOON).expect("a call starts it again");
            result["content"][0]["text"].as_str().expect("it says who it is").to_owned()
        }).collect();
        pids.dedup();
        assert_eq!(pids.len(), 1, "one start: {pids:?}");
        drop(callers);
        is_parked(&daemon);
        let client = daemon.connect();
        client.call("session/attach", &json!({"key": "nap"})).expect("an attached client starts it again");
        let shown = daemon.cli(&["show", "nap"]).ok();
        assert_eq!((&shown["servers"][0]["state"], &shown["attached"]), (&json!("ready"), &json!(1)), "{shown:#}");
        drop(client);
        is_parked(&daemon);
        let begun = Instant::now();
        let certificate = crate::support::close(&daemon, "nap");
        assert_closed(&certificate, containment);
        assert_eq!(certificate["reason"], "requested");
        assert!(begun.elapsed().as_secs() < 5, "there is nothing to stop");
        assert_eq!(used(&daemon), 0);
        daemon.finish();
    };

    /// A server that does not start again is told to each who waits, and its session fails.
    g25_parked_and_not_to_be_started_again = |scene, containment| {
        let daemon = Daemon::start(scene, &Setup::on(containment).quick());
        let program = scene.path("server");
        let script = format!("#!/bin/sh\nexec {} demo-server polite\n", polite()[0]);
        std::fs::write(&program, script).expect("a script can be written");
        std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("and be made a program");
        open_parking(&daemon, scene, &[program.to_string_lossy().into_owned()]);
        is_parked(&daemon);
        std::fs::write(&program, "#!/bin/sh\necho no more >&2\nexit 3\n").expect("it can be changed");
        let callers = [daemon.connect(), daemon.connect()];
        let call = json!({"key": "nap", "tool": "whoami"});
        let calls: Vec<_> = callers.iter().map(|caller| caller.send("tool/call", &call)).collect();
        for call in calls {
            let error = call.wait(SOON).expect_err("it can not be started");
            assert!(matches!(kind(&error), "start_failed" | "session_closing"), "{error:#}");
            assert!(kind(&error) != "start_failed" || error["data"]["stderr_tail"] == "no more", "{error:#}");
        }
        let waited = daemon.cli(&["wait", "nap", "--timeout", "20s"]).ok();
        assert_eq!(waited["certificate"]["reason"], "servers_failed", "{waited:#}");
        drop(callers);
        assert_eq!(used(&daemon), 0);
        daemon.finish();
    };

    /// A call's patience includes the start of a parked session, also where the tools are asked for first; and it was certainly not done.
    a_call_does_not_wait_for_a_slow_start = |scene: &std::sync::Arc<Scene>, containment| {
        let daemon = Daemon::start(scene, &Setup::on(containment).quick());
        let (program, stop) = (scene.path("server"), scene.path("stop"));
        let script = format!(
            "#!/bin/sh\nwhile [ -e {} ]; do sleep 0.05; done\nexec {} demo-server polite\n", stop.display(), polite()[0]
        );
        std::fs::write(&program, script).expect("a script can be written");
        std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("and be made a program");
        open_parking(&daemon, scene, &[program.to_string_lossy().into_owned()]);
        is_parked(&daemon);
        std::fs::write(&stop, "").expect("the scene is ours");
        for words in [["whoami", "{}"], ["whoami", "a=b"]] {
            let error = daemon.cli(&[&["--timeout", "300ms", "call", "nap"], &words[..]].concat()).fails(3);
            // The daemon's own word: its answer came in time.
            assert_eq!(error["message"], "the deadline has passed; the call did not reach its server", "{error:#}");
            assert_eq!((&error["kind"], &error["data"]["reached_server"]), (&json!("deadline_exceeded"), &json!(false)), "{error:#}");
        }
        // Who waits is seen.
        let waits = daemon.connect();
        let waiting = waits.send("tool/call", &json!({"key": "nap", "tool": "whoami"}));
        let shown = || daemon.cli(&["show", "nap"]).ok();
        eventually("the call that waits", SOON, || shown()["waiting"] == 1 && shown()["in_flight"] == 0);
        waits.cancel(&waiting);
        eventually("it does not wait any more", SOON, || shown().get("waiting").is_none());
        drop(waits);
        let error = daemon.cli(&["--timeout", "300ms", "tools", "nap"]).fails(3);
        assert_eq!(error["message"], "the deadline has passed", "{error:#}");
        let client = daemon.connect();
        let late = client.call("session/attach", &json!({"key": "nap", "deadline_ms": 100})).expect_err("it does not run");
        assert_eq!(kind(&late), "deadline_exceeded", "{late:#}");
        std::fs::remove_file(&stop).expect("it is there");
        daemon.cli(&["call", "nap", "whoami"]).ok();
        drop(client);
        assert_closed(&crate::support::close(&daemon, "nap"), containment);
        daemon.finish();
    };

    /// A restart of a parked session is its one start; it was woken, and its server then started once more.
    a_restart_of_a_parked_session_is_one_start = |scene: &std::sync::Arc<Scene>, containment| {
        let daemon = Daemon::start(scene, &Setup::on(containment).quick());
        let (program, launches) = (scene.path("server"), scene.path("launches"));
        let script = format!("#!/bin/sh\necho started >> {}\nexec {} demo-server polite\n", launches.display(), polite()[0]);
        std::fs::write(&program, script).expect("a script can be written");
        std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("and be made a program");
        let launched = || std::fs::read_to_string(&launches).unwrap_or_default().lines().count();
        let opened = open_parking(&daemon, scene, &[program.to_string_lossy().into_owned()]);
        let name = opened["servers"][0]["name"].as_str().expect("it has one").to_owned();
        is_parked(&daemon);
        assert_eq!(launched(), 1);
        let restarted = daemon.cli(&["server", "restart", "nap", &name]).ok();
        assert_eq!((&restarted["server"]["state"], launched()), (&json!("ready"), 2), "{restarted:#}");
        is_parked(&daemon);
        let unknown = daemon.cli(&["server", "restart", "nap", "none"]).fails(2);
        assert_eq!((&unknown["kind"], launched()), (&json!("invalid_request"), 2), "{unknown:#}");
        assert_closed(&crate::support::close(&daemon, "nap"), containment);
        daemon.finish();
    };

    /// A server that has to be killed is parked all the same, and a close that comes meanwhile joins.
    e1_parking_a_stubborn_server = |scene, containment| {
        let setup = Setup::on(containment).config("[timeouts]\nstdin_grace = \"200ms\"\nterm_grace = \"200ms\"");
        let daemon = Daemon::start(scene, &setup);
        open_parking(&daemon, scene, &python("02-ignore-sigterm"));
        is_parked(&daemon);
        daemon.cli(&["tools", "nap"]).ok();
        eventually("the next parking", SOON, || daemon.cli(&["show", "nap"]).ok()["servers"][0]["state"] == "stopping");
        assert_closed(&crate::support::close(&daemon, "nap"), containment);
        assert_eq!(used(&daemon), 0);
        daemon.finish();
    };
}
