//! `reload` and sessions that are open: what a changed profile does to them.
use super::{TIMEOUTS, call, kind, names, pid, server, tools};
use crate::support::{assert_closed, close, on_both};
use mcpvisor_testkit::{Containment, Daemon, Rpc, SOON, Scene, Setup, Signal, eventually, procfs};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A configuration with servers of profile `p`: name, tool, what it answers, further lines.
pub(super) fn config(servers: &[(&str, &str, &str, &str)]) -> String {
    let mut text = format!("{TIMEOUTS}\n");
    for (name, tool, mark, more) in servers {
        let words = server(&[tool]);
        text += &format!(
            "[profiles.p.servers.{name}]\ncommand = {:?}\nargs = {:?}\nenv = {{ MARK = {mark:?} }}\n{more}\n",
            words[0],
            &words[1..]
        );
    }
    text
}

pub(super) fn start(
    scene: &Arc<Scene>,
    containment: Containment,
    servers: &[(&str, &str, &str, &str)],
) -> Daemon {
    let daemon = Daemon::start(scene, &Setup::on(containment).config(&config(servers)));
    daemon.cli(&["open", "k", "--profile", "p"]).ok();
    daemon
}

pub(super) fn change(daemon: &Daemon, servers: &[(&str, &str, &str, &str)]) {
    let mut text = fs::read_to_string(daemon.config()).expect("the configuration is ours");
    let daemon_part = text.find("[timeouts]").expect("it begins with the daemon's own keys");
    text.truncate(daemon_part);
    fs::write(daemon.config(), text + &config(servers)).expect("the configuration is ours");
}

/// What was done with each server of the one session.
pub(super) fn outcomes(told: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().expect("a word").to_owned();
    let sessions = told["sessions"].as_array().unwrap_or_else(|| panic!("no sessions: {told:#}"));
    assert_eq!((sessions.len(), &sessions[0]["key"]), (1, &json!("k")), "{told:#}");
    let servers = sessions[0]["servers"].as_array().expect("a list").iter();
    servers.map(|server| (text(&server["name"]), text(&server["outcome"]))).collect()
}

pub(super) fn pairs(all: &[(&str, &str)]) -> Vec<(String, String)> {
    all.iter().map(|(name, outcome)| ((*name).to_owned(), (*outcome).to_owned())).collect()
}

on_both! {
    /// Servers that are the same keep their process; others are replaced, added and removed; the session can be joined as what it is now.
    d5_a_changed_profile_changes_its_sessions = |scene, containment| {
        let former = [("same", "s", "1", ""), ("changed", "c", "old", ""), ("gone", "g", "1", "")];
        let daemon = start(scene, containment, &former);
        let (same, old, gone) = (pid(&daemon, "same"), pid(&daemon, "changed"), pid(&daemon, "gone"));
        let wanted = [("same", "s", "1", ""), ("changed", "c", "new", ""), ("more", "m", "1", "")];
        change(&daemon, &wanted);
        let told = daemon.cli(&["reload"]).ok();
        let expected = [("changed", "replaced"), ("more", "added"), ("same", "unchanged"), ("gone", "removed")];
        assert_eq!(outcomes(&told).into_iter().collect::<BTreeSet<_>>(), pairs(&expected).into_iter().collect());
        assert_eq!(pid(&daemon, "same"), same, "it was not touched");
        assert_eq!((call(&daemon, "c").as_str(), call(&daemon, "m").as_str()), ("new", "1"));
        assert!(!tools(&daemon).iter().any(|(tool, _)| tool == "g"));
        for old in [old, gone] {
            eventually("the end of the former ones", SOON, || old.is_some_and(|pid| !procfs::exists(pid)));
        }
        eventually("only what the profile has", SOON, || names(&daemon).iter().collect::<BTreeSet<_>>() == ["changed".to_owned(), "more".to_owned(), "same".to_owned()].iter().collect());
        let joined = daemon.cli(&["open", "k", "--profile", "p"]).ok();
        assert_eq!(joined["created"], false, "{joined:#}");
        let again = daemon.cli(&["reload"]).ok();
        assert_eq!(again["sessions"], json!([]), "nothing has changed");
        assert_closed(&close(&daemon, "k"), containment);
        daemon.finish();
    };

    /// D.5: a new server that does not start leaves the old one untouched, and is reported; SIGHUP does the same.
    d5_a_failure_leaves_the_old_one = |scene, containment| {
        let daemon = start(scene, containment, &[("a", "x", "old", ""), ("b", "y", "old", "")]);
        let before = (pid(&daemon, "a"), pid(&daemon, "b"));
        let broken = "timeouts = { start = \"19s\" }\n[profiles.p.servers.a.limits]\nprocesses = 64";
        change(&daemon, &[("a", "x", "new", broken), ("b", "y", "old", "")]);
        // It can't be run any more.
        let text = fs::read_to_string(daemon.config()).expect("ours");
        fs::write(daemon.config(), text.replacen("command = \"python3\"", "command = \"/no/such/program\"", 1)).expect("ours");
        let failed = daemon.cli(&["reload"]);
        assert_eq!(failed.status, 1, "{failed:?}");
        let told = failed.json();
        assert_eq!(outcomes(&told), pairs(&[("a", "failed"), ("b", "unchanged")]), "{told:#}");
        let error = &told["sessions"][0]["servers"][0]["error"];
        assert_eq!((&error["data"]["kind"], &error["data"]["reason"]), (&json!("start_failed"), &json!("not_found")), "{told:#}");
        assert_eq!((pid(&daemon, "a"), pid(&daemon, "b")), before, "neither was touched");
        assert_eq!(call(&daemon, "x"), "old");
        let mut daemon = daemon;
        change(&daemon, &[("a", "x", "mended", ""), ("b", "y", "old", "")]);
        daemon.process().signal(Signal::HUP);
        eventually("SIGHUP brings the mended one", SOON, || call(&daemon, "x") == "mended");
        assert_eq!(pid(&daemon, "b"), before.1);
        assert_closed(&close(&daemon, "k"), containment);
        daemon.finish();
    };

    /// G11, G31: while servers are replaced, each call is answered by the old one or the new one, and none is lost.
    g11_the_swap_is_atomic_for_callers = |scene, containment| {
        let daemon = start(scene, containment, &[("a", "x", "0", "")]);
        let stop = Arc::new(AtomicBool::new(false));
        let callers: Vec<_> = (0..4)
            .map(|caller| {
                let (connection, stop): (Rpc, _) = (daemon.connect(), Arc::clone(&stop));
                std::thread::spawn(move || {
                    let mut heard = BTreeSet::new();
                    while !stop.load(Ordering::Relaxed) {
                        let seconds = if caller == 0 { 0.3 } else { 0.0 };
                        let params = json!({"key": "k", "tool": "x", "arguments": {"seconds": seconds}});
                        let answer = connection.call("tool/call", &params);
                        let answer = answer.unwrap_or_else(|error| panic!("a call was lost: {error:#}"));
                        heard.insert(answer["content"][0]["text"].as_str().expect("a mark").to_owned());
                    }
                    heard
                })
            })
            .collect();
        for round in 1..=5 {
            change(&daemon, &[("a", "x", &round.to_string(), "")]);
            let told = daemon.cli(&["reload"]).ok();
            assert_eq!(outcomes(&told), pairs(&[("a", "replaced")]));
            assert_eq!(call(&daemon, "x"), round.to_string(), "from the answer on it is the new one");
        }
        std::thread::sleep(Duration::from_millis(100));
        stop.store(true, Ordering::Relaxed);
        let heard: BTreeSet<String> = callers.into_iter().flat_map(|caller| caller.join().expect("no call was lost")).collect();
        assert!(heard.len() > 2, "the calls met no swap: {heard:?}");
        assert_closed(&close(&daemon, "k"), containment);
        daemon.finish();
    };

    /// A server that is to be stopped first is gone before its successor starts; where that fails the former is started again.
    d5_stop_first = |scene, containment| {
        let stop = "replace = \"stop-first\"";
        let daemon = start(scene, containment, &[("a", "x", "old", stop)]);
        let old = pid(&daemon, "a").expect("it runs");
        change(&daemon, &[("a", "x", "new", stop)]);
        assert_eq!(outcomes(&daemon.cli(&["reload"]).ok()), pairs(&[("a", "replaced")]));
        assert!(!procfs::exists(old));
        assert_eq!(call(&daemon, "x"), "new");
        change(&daemon, &[("a", "x", "bad", &format!("{stop}\ncwd = \"/no/such/place\""))]);
        let failed = daemon.cli(&["reload"]);
        assert_eq!(failed.status, 1, "{failed:?}");
        let told = failed.json();
        assert_eq!(outcomes(&told), pairs(&[("a", "failed")]), "{told:#}");
        let message = told["sessions"][0]["servers"][0]["error"]["message"].as_str().expect("text");
        assert!(message.ends_with("the former server was started again"), "{message}");
        assert_eq!(call(&daemon, "x"), "new");
        let unknown = daemon.cli(&["call", "k", "nothing"]).fails(2);
        assert_eq!(kind(&unknown), "invalid_request");
        assert_closed(&close(&daemon, "k"), containment);
        daemon.finish();
    };
}
