use super::*;
use crate::config::Config;

fn config(text: &str) -> Config {
    Config::parse("test.toml", text).unwrap()
}

const PROFILE: &str = "[profiles.p.servers.s]\ncommand = \"a\"\n";

#[test]
fn what_has_changed_is_named() {
    let old = config(&format!("[daemon]\nmax_sessions = 5\n[timeouts]\ndrain = \"1s\"\n{PROFILE}"));
    assert_eq!(changes::between(&old, &old), (vec![], vec![]));
    let new = config(
        "[daemon]\nmax_sessions = 6\nlog_level = \"debug\"\ncontainment = \"keeper\"\nsocket_mode = \"0666\"\n\
         allow_commands = [4]\n[profiles.q.servers.s]\ncommand = \"a\"\n",
    );
    let (applied, needs_restart) = changes::between(&old, &new);
    assert_eq!(
        applied,
        [
            "daemon.max_sessions",
            "daemon.allow_commands",
            "daemon.log_level",
            "timeouts.drain",
            "profiles.p",
            "profiles.q"
        ]
    );
    assert_eq!(needs_restart, ["daemon.containment", "daemon.socket_mode"]);
}

#[test]
fn what_needs_a_restart_stays_as_it_is_and_is_told_again() {
    let old = config("[daemon]\nmax_sessions = 5\n");
    let wanted = config("[daemon]\nmax_sessions = 6\nsocket_mode = \"0666\"\n");
    let next = changes::without_restart(&old, wanted.clone());
    assert_eq!((next.daemon.max_sessions, next.daemon.socket_mode), (6, 0o600));
    assert_eq!(changes::between(&next, &wanted), (vec![], vec!["daemon.socket_mode".to_owned()]));
}

#[test]
fn all_errors_are_told_with_their_places() {
    let problems = Config::parse("f.toml", "[daemon]\nmax_session = 5\ntombstones = \"x\"\n").unwrap_err();
    let lines: Vec<String> = problems.lines().collect();
    assert!(lines[0].starts_with("f.toml:2:1: unknown key `max_session`"), "{lines:?}");
    assert!(lines[1].starts_with("f.toml:3:14: "), "{lines:?}");
    let error = ReloadError::from(LoadError::Wrong(problems)).into_wire();
    assert_eq!(error.kind(), ErrorKind::InvalidConfiguration);
    assert_eq!(error.message, "2 errors in f.toml");
    let places: Vec<_> = error.detail("problems").unwrap().as_array().unwrap().clone();
    assert_eq!((places[0]["line"].as_u64(), places[0]["column"].as_u64()), (Some(2), Some(1)));
    assert_eq!((places[1]["line"].as_u64(), places[1]["column"].as_u64()), (Some(3), Some(14)));
    assert!(error.detail("report").unwrap().as_str().unwrap().contains("did you mean `max_sessions`?"));
}
