//! `reload` and sessions that are not what their profile is: what failed is tried again, what was removed by hand stays away.
use super::profiles::{change, config, outcomes, pairs, start};
use super::{call, kind, names, pid, remove};
use crate::support::{assert_closed, close, on_both};
use mcpvisor_testkit::{Daemon, SOON, Setup, eventually};
use serde_json::{Value, json};
use std::fs;

/// A second reload of the same file.
fn again(daemon: &Daemon, status: i32) -> Value {
    let told = daemon.cli(&["reload"]);
    assert_eq!(told.status, status, "{told:?}");
    told.json()
}

on_both! {
    /// D.5: what could not be changed is not told as unchanged, no open of the profile joins meanwhile, and the next reload tries it again.
    d5_a_reload_that_failed_is_tried_again = |scene, containment| {
        let daemon = start(scene, containment, &[("a", "x", "old", "")]);
        let place = daemon.config().with_file_name("place");
        let there = format!("cwd = {:?}", place.display().to_string());
        change(&daemon, &[("a", "x", "new", &there), ("b", "y", "new", &there)]);
        for _ in 0..2 {
            assert_eq!(outcomes(&again(&daemon, 1)), pairs(&[("a", "failed"), ("b", "failed")]));
            assert_eq!(call(&daemon, "x"), "old");
            let other = daemon.cli(&["open", "k", "--profile", "p"]).fails(5);
            assert_eq!(kind(&other), "session_exists", "it is not what the profile is");
        }
        fs::create_dir(&place).expect("the place is ours");
        assert_eq!(outcomes(&again(&daemon, 0)), pairs(&[("a", "replaced"), ("b", "added")]));
        assert_eq!((call(&daemon, "x").as_str(), call(&daemon, "y").as_str()), ("new", "new"));
        assert_eq!(daemon.cli(&["open", "k", "--profile", "p"]).ok()["created"], false);
        assert_eq!(again(&daemon, 0)["sessions"], json!([]));
        assert_closed(&close(&daemon, "k"), containment);
        daemon.finish();
    };

    /// A profile that goes is told once; when it is back its sessions are brought to what it is then.
    d5_a_profile_goes_and_comes_back = |scene, containment| {
        let daemon = start(scene, containment, &[("a", "x", "old", ""), ("b", "y", "1", "")]);
        change(&daemon, &[]);
        let told = again(&daemon, 1);
        assert_eq!(told["sessions"][0]["error"]["data"]["kind"], "invalid_request", "{told:#}");
        assert_eq!(again(&daemon, 0)["sessions"], json!([]));
        let untouched = pid(&daemon, "b");
        change(&daemon, &[("a", "x", "new", ""), ("b", "y", "1", "")]);
        assert_eq!(outcomes(&again(&daemon, 0)), pairs(&[("a", "replaced"), ("b", "unchanged")]));
        assert_eq!((call(&daemon, "x").as_str(), pid(&daemon, "b")), ("new", untouched));
        assert_closed(&close(&daemon, "k"), containment);
        daemon.finish();
    };

    /// Whoever removes a server by hand means its definition as it is: it comes again when that changes.
    d5_a_server_removed_by_hand_stays_away = |scene, containment| {
        let daemon = start(scene, containment, &[("a", "x", "1", ""), ("b", "y", "1", "")]);
        remove(&daemon, "b").ok();
        assert_eq!(again(&daemon, 0)["sessions"], json!([]), "nothing is to be done");
        change(&daemon, &[("a", "x", "2", ""), ("b", "y", "1", "")]);
        assert_eq!(outcomes(&again(&daemon, 0)), pairs(&[("a", "replaced"), ("b", "removed_by_hand")]));
        assert_eq!(daemon.cli(&["open", "k", "--profile", "p"]).ok()["created"], false);
        change(&daemon, &[("a", "x", "2", ""), ("b", "y", "2", "")]);
        assert_eq!(outcomes(&again(&daemon, 0)), pairs(&[("a", "unchanged"), ("b", "added")]));
        remove(&daemon, "b").ok();
        change(&daemon, &[("a", "x", "2", "")]);
        assert_eq!(outcomes(&again(&daemon, 0)), pairs(&[("a", "unchanged")]));
        assert_eq!(names(&daemon), ["a"]);
        assert_closed(&close(&daemon, "k"), containment);
        daemon.finish();
    };

    /// An open that waited in the queue while its profile was changed is brought to what that is now.
    d5_an_open_that_was_queued_meanwhile = |scene, containment| {
        let text = config(&[("a", "x", "old", "")]);
        let daemon = Daemon::start(scene, &Setup::on(containment).daemon("max_sessions = 1").config(&text));
        daemon.cli(&["open", "first", "--profile", "p"]).ok();
        let rpc = daemon.connect();
        let late = rpc.send("session/open", &json!({"key": "k", "profile": "p", "queue_ms": 60_000}));
        eventually("the queue", SOON, || daemon.status()["sessions"]["queued"] == 1);
        change(&daemon, &[("a", "x", "new", "")]);
        daemon.cli(&["reload"]).ok();
        close(&daemon, "first");
        late.wait(SOON).expect("there is room now");
        drop(rpc);
        eventually("what the profile is now", SOON, || call(&daemon, "x") == "new");
        eventually("an open joins", SOON, || daemon.cli(&["open", "k", "--profile", "p"]).status == 0);
        assert_closed(&close(&daemon, "k"), containment);
        daemon.finish();
    };

    /// A required server whose successor fails, and which does not start again, fails its session.
    d5_a_required_server_that_is_lost_fails_the_session = |scene, containment| {
        let place = scene.path("place");
        fs::create_dir(&place).expect("the place is ours");
        let there = format!("replace = \"stop-first\"\ncwd = {:?}", place.display().to_string());
        let daemon = start(scene, containment, &[("a", "x", "old", &there)]);
        fs::remove_dir(&place).expect("nothing is in it");
        change(&daemon, &[("a", "x", "new", &there)]);
        assert_eq!(outcomes(&again(&daemon, 1)), pairs(&[("a", "failed")]));
        let ended = daemon.cli(&["wait", "k"]);
        let ended = ended.json();
        assert!(ended.to_string().contains("servers_failed"), "{ended:#}");
        daemon.finish();
    };

    /// Between the end of the old one and the start of the new one the tools are down, and say when to ask again; where the new one fails the old one is back.
    d5_the_gap_of_a_stop_first_replacement = |scene, containment| {
        let stop = "replace = \"stop-first\"";
        let daemon = start(scene, containment, &[("a", "x", "old", stop)]);
        change(&daemon, &[("a", "x", "new", &format!("{stop}\ntimeouts = {{ start = \"4s\" }}"))]);
        let text = fs::read_to_string(daemon.config()).expect("ours");
        fs::write(daemon.config(), text.replace("MARK = \"new\"", "MARK = \"new\", MUTE = \"1\"")).expect("ours");
        let rpc = daemon.connect();
        let reloading = rpc.send("daemon/reload", &json!({}));
        let ask = daemon.connect();
        let mut refused = None;
        eventually("the gap", SOON, || {
            refused = ask.call("tool/call", &json!({"key": "k", "tool": "x"})).err();
            refused.is_some()
        });
        let refused = refused.expect("it was refused");
        assert_eq!(refused["data"]["kind"], "server_exited", "{refused:#}");
        assert!(refused["data"]["retry_after_ms"].as_u64().is_some_and(|ms| ms > 0), "{refused:#}");
        eventually("the session is told as degraded", SOON, || daemon.cli(&["show", "k"]).ok()["state"] == "degraded");
        let told = reloading.wait(SOON).expect("the reload is answered");
        assert_eq!(outcomes(&told), pairs(&[("a", "failed")]), "{told:#}");
        assert_eq!(call(&daemon, "x"), "old");
        drop((rpc, ask));
        assert_closed(&close(&daemon, "k"), containment);
        daemon.finish();
    };
}
