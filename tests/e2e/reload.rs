//! `reload` and SIGHUP: all of a new configuration that can change takes effect, or nothing of it does, and the caller hears why.
use crate::support::{close, open, polite};
use mcpvisor_testkit::{Daemon, SOON, Setup, Signal, eventually, scene};
use serde_json::{Value, json};
use std::fs;

fn limit(daemon: &Daemon) -> Value {
    daemon.status()["sessions"]["limit"].clone()
}

/// A configuration with a profile of the bundled server.
fn with_profile(daemon: &str, name: &str) -> String {
    let words = polite();
    format!(
        "[daemon]\n{daemon}\n[profiles.{name}.servers.main]\ncommand = {:?}\nargs = {:?}\n",
        words[0],
        &words[1..]
    )
}

#[test]
fn what_can_change_changes_and_what_can_not_is_named() {
    scene(|scene| {
        let daemon = Daemon::start(scene, &Setup::new().daemon("max_sessions = 5"));
        open(&daemon, scene, "stays", &polite(), &[]);
        let new = "max_sessions = 2\nlog_level = \"debug\"\nsocket_mode = \"0666\"";
        fs::write(daemon.config(), with_profile(new, "new")).expect("the configuration is ours");
        let told = daemon.cli(&["reload"]).ok();
        assert_eq!(
            told["applied"],
            json!(["daemon.max_sessions", "daemon.log_level", "profiles.new"]),
            "{told:#}"
        );
        assert_eq!(told["needs_restart"], json!(["daemon.socket_mode"]));
        assert_eq!(limit(&daemon), 2);
        eventually("a record of the new level", SOON, || daemon.log().contains("DEBUG"));
        // A new session may use the new profile, within the new limit; the old session goes on.
        daemon.cli(&["open", "of-profile", "--profile", "new"]).ok();
        let full = daemon.cli(&["open", "one-too-many", "--profile", "new"]).fails(5);
        assert_eq!((&full["kind"], &full["data"]["limit"]), (&json!("capacity_exhausted"), &json!(2)));
        assert_eq!(daemon.cli(&["show", "stays"]).ok()["state"], "ready");
        // What is not in force yet is told again.
        let again = daemon.cli(&["reload"]).ok();
        assert_eq!((&again["applied"], &again["needs_restart"]), (&json!([]), &told["needs_restart"]));
        eventually("the warning", SOON, || daemon.log().contains("keys=daemon.socket_mode"));
        close(&daemon, "stays");
        close(&daemon, "of-profile");
        daemon.finish();
    });
}

/// Nothing of a configuration with errors takes effect. All of them are told, with line and column, to the caller and to the log.
#[test]
fn a_wrong_configuration_changes_nothing() {
    scene(|scene| {
        let setup = Setup::new().daemon("max_sessions = 5").allow_error(".toml:").allow_error("not reloaded");
        let daemon = Daemon::start(scene, &setup);
        let wrong =
            "[daemon]\nmax_sessions = 6\nmax_session = 7\ntombstones = \"many\"\nlog_level = \"debug\"\n";
        fs::write(daemon.config(), wrong).expect("the configuration is ours");
        let refused = daemon.cli(&["reload"]).fails(1);
        assert_eq!(refused["kind"], "invalid_configuration", "{refused:#}");
        let problems = refused["data"]["problems"].as_array().expect("a list").clone();
        let places: Vec<_> = problems.iter().map(|problem| (&problem["line"], &problem["column"])).collect();
        assert_eq!(places, [(&json!(3), &json!(1)), (&json!(4), &json!(14))]);
        assert_eq!(limit(&daemon), 5);
        eventually("both in the log", SOON, || {
            let log = daemon.log();
            log.contains(".toml:3:1: unknown key `max_session`") && log.contains(".toml:4:14: ")
        });
        assert!(!daemon.log().contains("DEBUG"));
        // People get the report, too.
        let people = scene
            .command(mcpvisor_testkit::binary("mcpvisor"))
            .arg("--socket")
            .arg(daemon.socket())
            .arg("reload")
            .output();
        let text = people.stderr;
        assert!(
            text.contains(":3:1: unknown key") && text.contains("did you mean `max_sessions`?"),
            "{text}"
        );
        // A file that is gone is no reason to fall back to the defaults: it was named.
        fs::remove_file(daemon.config()).expect("it is there");
        assert_eq!(daemon.cli(&["reload"]).fails(1)["kind"], "invalid_configuration");
        assert_eq!(limit(&daemon), 5);
        daemon.finish();
    });
}

#[test]
fn sighup_reloads_and_never_ends_the_daemon() {
    scene(|scene| {
        let setup = Setup::new().daemon("max_sessions = 5").allow_error(".toml:").allow_error("not reloaded");
        let mut daemon = Daemon::start(scene, &setup);
        fs::write(daemon.config(), "nonsense").expect("the configuration is ours");
        daemon.process().signal(Signal::HUP);
        eventually("the refusal", SOON, || daemon.log().contains("was not reloaded"));
        assert_eq!(limit(&daemon), 5);
        fs::write(daemon.config(), "[daemon]\nmax_sessions = 6\n").expect("the configuration is ours");
        // The last of many finds the last configuration.
        (0..20).for_each(|_| daemon.process().signal(Signal::HUP));
        eventually("the new limit", SOON, || limit(&daemon) == 6);
        daemon.finish();
    });
}
