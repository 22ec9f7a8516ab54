//! Hooks: each runs once, is contained, killed and reaped, and holds nothing up.
use crate::support::{close, kind, on_both, open, open_params, polite};
use mcpvisor_testkit::{Daemon, SOON, Scene, Setup, eventually, procfs};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// A hook of the shell's.
fn hook(name: &str, on: &str, script: &str, more: &str) -> String {
    format!(
        "[[hooks]]\nname = \"{name}\"\non = [\"{on}\"]\ncommand = \"/bin/sh\"\nargs = [\"-c\", '''{script}''']\n{more}\n"
    )
}

fn lines(scene: &Scene, name: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(scene.path(name)).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).expect("a hook is told JSON")).collect()
}

fn events(daemon: &Daemon, args: &[&str]) -> Vec<Value> {
    let text = daemon.cli(&[&["events"], args].concat()).text();
    text.lines().map(|line| serde_json::from_str(line).expect("it is JSON")).collect()
}

fn ended(daemon: &Daemon) -> Vec<Value> {
    events(daemon, &[]).into_iter().filter(|event| event["kind"] == "hook.ended").collect()
}

fn counter(daemon: &Daemon, name: &str) -> u64 {
    daemon.status()["counters"][name].as_u64().expect("it is counted")
}

on_both! {
    /// G15: a hook runs once for each event that it is for, with the event on its stdin and the environment that was named; its
    /// end is told, and nobody's hook runs on that.
    g15_a_hook_runs_once_for_each_event = |scene, containment| {
        let heard = scene.path("heard");
        let script = format!("cat >> {}; printf '%s' \"$SECRET\" >&2", heard.display());
        let setup = Setup::on(containment)
            .quick()
            .config(&hook("log", "session.*", &script, "env = { SECRET = \"$x\" }"))
            .config(&hook("never", "*", "exit 7", ""));
        let daemon = Daemon::start(scene, &setup);
        open(&daemon, scene, "k", &polite(), &[]);
        close(&daemon, "k");
        eventually("the hooks", SOON, || ended(&daemon).len() == 14);
        let mut told = lines(scene, "heard");
        told.sort_by_key(|event| event["seq"].as_u64());
        let kinds: Vec<_> = told.iter().filter_map(|event| event["kind"].as_str()).collect();
        assert_eq!(
            kinds,
            ["session.starting", "session.ready", "session.draining", "session.stopping", "session.closed"]
        );
        let last = told.pop().expect("there are some");
        let event = events(&daemon, &["--since", &last["seq"].to_string()])[0].clone();
        for field in ["seq", "instance", "at", "kind", "key", "generation", "data"] {
            assert_eq!(last[field], event[field], "{field}");
        }
        assert!(last["owner"]["uid"].is_u64(), "{last:#}");
        for event in ended(&daemon) {
            let data = &event["data"];
            let good = data["hook"] == "log";
            assert_eq!((&data["ok"], &data["killed"]), (&json!(good), &json!(false)), "{event:#}");
            assert_eq!(data["exit"], json!({"code": if good { 0 } else { 7 }}), "{event:#}");
            assert_eq!(data["stderr_tail"], if good { "$x" } else { "" }, "{event:#}");
            assert_eq!((&event["key"], &data["owner"]), (&json!("k"), &last["owner"]));
        }
        let counted = ["hooks_run", "hooks_failed", "hooks_dropped"].map(|name| counter(&daemon, name));
        assert_eq!(counted, [14, 9, 0]);
        daemon.finish();
    };

    /// G39, G15: hooks that hang, that ignore every signal and leave children that do, delay neither an open nor a close; they are
    /// killed when their time is up, whole. One that can't be started has failed.
    g39_g15_a_hook_that_hangs = |scene, containment| {
        let (pids, left) = (scene.path("pids"), scene.path("left"));
        let hangs = format!(
            "trap '' TERM; echo $$ >> {0}; setsid sh -c 'trap \"\" TERM; echo $$ >> {0}; sleep 300' & sleep 300",
            pids.display()
        );
        let leaves = format!(
            "setsid sh -c 'echo $$ >> {0}; sleep 300' & while ! [ -s {0} ]; do sleep 0.01; done",
            left.display()
        );
        let setup = Setup::on(containment)
            .quick()
            .config(&hook("hangs", "session.ready", &hangs, "timeout = \"3s\""))
            .config(&hook("leaves", "session.ready", &leaves, ""))
            .config("[[hooks]]\nname = \"none\"\non = [\"session.ready\"]\ncommand = \"/nonexistent\"\n");
        let daemon = Daemon::start(scene, &setup);
        open(&daemon, scene, "k", &polite(), &[]);
        let noted = |name: &str| -> Vec<u32> {
            let text = std::fs::read_to_string(scene.path(name)).unwrap_or_default();
            text.lines().filter_map(|line| line.parse().ok()).collect()
        };
        eventually("the hooks", SOON, || noted("pids").len() == 2 && noted("left").len() == 1);
        let hanging = noted("pids");
        let certificate = close(&daemon, "k");
        assert_eq!(certificate["outcome"], "closed");
        assert!(hanging.iter().any(|pid| procfs::is_alive(*pid)), "the close did not wait for the hook");
        eventually("their ends", SOON, || ended(&daemon).len() == 3);
        for pid in noted("pids").into_iter().chain(noted("left")) {
            assert!(!procfs::exists(pid), "{pid} is left");
        }
        let of = |name: &str| {
            let found = ended(&daemon).into_iter().find(|event| event["data"]["hook"] == name);
            found.expect("it ended")["data"].clone()
        };
        let (hung, left, none) = (of("hangs"), of("leaves"), of("none"));
        assert_eq!((&hung["killed"], &hung["exit"]), (&json!(true), &json!({"signal": "KILL"})), "{hung:#}");
        assert_eq!((&left["ok"], &left["killed"]), (&json!(true), &json!(false)), "{left:#}");
        assert!(none["message"].as_str().is_some_and(|text| text.contains("no such")), "{none:#}");
        daemon.finish();
    };

    /// G39: a flood of events fills the queue, and nothing else: what finds no room is dropped and counted. The daemon's end gives
    /// what runs a bounded time, and kills it then.
    g39_more_events_than_hooks_can_run = |scene, containment| {
        let slow = hook("slow", "session.refused", "sleep 300", "timeout = \"5m\"");
        let mut daemon = Daemon::start(scene, &Setup::on(containment).quick().config(&slow));
        open(&daemon, scene, "k", &polite(), &[]);
        let connection = daemon.connect();
        let mut params = open_params(scene, "k", &polite(), &[]);
        params["if_open"] = json!("fail");
        for _ in 0..10 {
            let asked: Vec<_> = (0..150).map(|_| connection.send("session/open", &params)).collect();
            for pending in asked {
                assert_eq!(kind(&pending.wait(SOON).expect_err("it is open")), "session_exists");
            }
        }
        drop(connection);
        assert!(counter(&daemon, "hooks_dropped") >= 1500 - 1024 - 16, "{:#}", daemon.status());
        eventually("the first hooks", SOON, || counter(&daemon, "hooks_run") == 8);
        let begun = Instant::now();
        assert_eq!(daemon.cli(&["shutdown"]).status, 0);
        let took = begun.elapsed();
        assert!(took < Duration::from_secs(4), "its answer does not wait for hooks: {took:?}");
        assert_eq!(daemon.process().wait(SOON).code(), Some(0));
        assert!(daemon.log().contains("hooks are killed"), "{}", daemon.log());
    };
}
