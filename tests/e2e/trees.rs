//! Sessions below sessions.
use crate::support::{assert_closed, kind, main_pid, on_both, open, open_params, polite, python, used};
use mcpvisor_testkit::{Daemon, SOON, Scene, Setup, procfs};
use serde_json::{Value, json};
use std::time::Instant;

/// Graces that are long enough to see an order in.
const GRACES: &str = "[timeouts]\nstdin_grace = \"300ms\"\nterm_grace = \"300ms\"";

fn below(daemon: &Daemon, scene: &Scene, key: &str, parent: &str, command: &[String]) -> Value {
    daemon.command(scene, &["open", key, "--parent", parent, "--"]).args(command).output().ok()
}

/// The certificate of a generation that has ended.
fn ended(daemon: &Daemon, session: &Value) -> Value {
    let named = format!("{}@{}", session["key"].as_str().unwrap_or_default(), session["generation"]);
    daemon.cli(&["close", &named]).ok()["results"][0].clone()
}

on_both! {
    /// A close of the first session of a tree ends what is below it first, each with a certificate of its own.
    g21_c6_a_tree_is_closed_from_its_leaves = |scene, containment| {
        let daemon = Daemon::start(scene, &Setup::on(containment).config(GRACES));
        let top = open(&daemon, scene, "top", &polite(), &[]);
        let middle = below(&daemon, scene, "middle", "top", &polite());
        let leaf = below(&daemon, scene, "leaf", "middle", &python("02-ignore-sigterm"));
        assert_eq!((&top["parent"], &leaf["parent"]), (&Value::Null, &json!("middle")));
        assert_eq!(used(&daemon), 3, "each takes a slot");
        let pids = [&top, &middle, &leaf].map(main_pid);
        let connection = daemon.connect();
        let closing = connection.send("session/close", &json!({"key": "top"}));
        let begun = Instant::now();
        let refused = daemon.connect().call("session/open", &{
            let mut params = open_params(scene, "late", &polite(), &[]);
            params["parent"] = json!("top");
            params
        });
        // What is seen first is the end of the parent: a child that lives after that has outlived it.
        while procfs::is_alive(pids[0]) && begun.elapsed() < SOON {
            let [_, middle_is_over, _] = pids.map(|pid| !procfs::is_alive(pid));
            assert!(!(middle_is_over && procfs::is_alive(pids[2])), "the leaf outlives the middle");
        }
        assert!(!procfs::exists(pids[1]) && !procfs::exists(pids[2]), "the top ends before what is below it");
        let certificate = closing.wait(SOON).expect("it is closed")["results"][0].clone();
        assert_closed(&certificate, containment);
        assert_eq!(certificate["reason"], "requested");
        for session in [&middle, &leaf] {
            let certificate = ended(&daemon, session);
            assert_closed(&certificate, containment);
            assert_eq!(certificate["reason"], "parent_closed", "{certificate:#}");
        }
        let refused = refused.expect_err("nothing is opened below a session that is closed");
        assert!(matches!(kind(&refused), "session_closing" | "not_found"), "{refused:#}");
        assert_eq!(used(&daemon), 0);
        drop(connection);
        daemon.finish();
    };

    /// What is below a session is closed by its name, and the session goes on; what can't be opened below says why.
    g21_close_by_parent = |scene, containment| {
        let daemon = Daemon::start(scene, &Setup::on(containment).quick());
        let top = open(&daemon, scene, "top", &polite(), &[]);
        let children = ["a", "b"].map(|key| below(&daemon, scene, key, "top", &polite()));
        let deep = below(&daemon, scene, "deep", "a", &polite());
        open(&daemon, scene, "other", &polite(), &[]);
        let closed = daemon.cli(&["close", "--parent", "top"]).ok();
        let results = closed["results"].as_array().expect("a close has results");
        assert_eq!(results.len(), 3, "{closed:#}");
        results.iter().for_each(|certificate| assert_closed(certificate, containment));
        assert!(children.iter().chain([&deep]).all(|session| !procfs::exists(main_pid(session))));
        assert!(procfs::is_alive(main_pid(&top)), "the parent goes on");
        assert_eq!(used(&daemon), 2);
        let words = ["open", "x", "--parent", "nobody", "--"];
        let unknown = daemon.command(scene, &words).args(polite()).output().fails(4);
        assert_eq!((&unknown["kind"], &unknown["data"]["parent"]), (&json!("not_found"), &json!("nobody")), "{unknown:#}");
        // A session that is open already is not moved below another one.
        let words = ["open", "other", "--parent", "top", "--"];
        let moved = daemon.command(scene, &words).args(polite()).output().fails(5);
        assert_eq!(moved["kind"], "session_exists");
        below(&daemon, scene, "last", "top", &polite());
        daemon.cli(&["close", "--all"]).ok();
        daemon.finish();
    };
}
