use super::*;
use std::path::PathBuf;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn errors(text: &str) -> Vec<(usize, usize, String)> {
    let problems = Config::parse("test.toml", text).unwrap_err();
    problems.iter().map(|(place, problem)| (place.line, place.column, problem.message.clone())).collect()
}

#[test]
fn nothing_gives_the_defaults() {
    assert_eq!(Config::parse("x", "").unwrap(), Config::default());
}

#[test]
fn every_key_is_read() {
    let text = r#"
[daemon]
max_sessions = 10
max_sessions_per_user = 9
max_sessions_per_tenant = 8
reserved_for_administrators = 4
max_processes = 70
max_processes_per_session = 6
max_queued_per_user = 50
when_full = "evict"
evict_after = "20s"
max_line = "1M"
max_input = "3M"
max_input_per_user = "2M"
containment = "keeper"
tombstones = 7
tombstone_age = "6m"
events = 5
event_bytes = "4K"
breaker = "all"
breaker_failures = 2
breaker_period = "1m"
breaker_wait = "5s"
request_ids = 6
request_id_age = "5m"
allow_commands = [1000, 1001]
socket_mode = "0666"
log_level = "debug"
[timeouts]
start = "1s"
drain = "2s"
stdin_grace = "3s"
term_grace = "4s"
kill_wait = "5s"
[profiles.p.timeouts]
drain = "20s"
[profiles.p.servers.s]
command = "a"
args = ["b", "${arg:c}"]
env = { D = "e" }
cwd = "/f"
mode = "shared"
scope = "session"
era = "auto"
required = false
significant = true
replace = "stop-first"
restart = "permanent"
restart_intensity = 3
restart_period = "30s"
health_interval = "1m"
health_misses = 2
stop_command = ["docker", "rm", "${arg:c}"]
stop_command_timeout = "9s"
timeouts = { start = "10s" }
[profiles.p.servers.s.limits]
memory = "1G"
processes = 64
[[hooks]]
name = "tell"
on = ["session.*", "server.failed"]
command = "/bin/tell"
args = ["$it"]
env = { A = "b" }
timeout = "7s"
[[hooks]]
on = ["*"]
command = "log"
"#;
    let config = Config::parse("x", text).unwrap();
    assert_eq!(
        config.daemon,
        Daemon {
            max_sessions: 10,
            max_sessions_per_user: 9,
            max_sessions_per_tenant: 8,
            reserved_for_administrators: 4,
            max_processes: 70,
            max_processes_per_session: 6,
            max_queued_per_user: 50,
            when_full: WhenFull::Evict,
            evict_after: Duration::from_secs(20),
            max_line: 1 << 20,
            max_input: 3 << 20,
            max_input_per_user: 2 << 20,
            containment: Containment::Keeper,
            tombstones: 7,
            tombstone_age: Duration::from_secs(360),
            events: 5,
            event_bytes: 4096,
            breaker: Breaker {
                of: BreakerOf::All,
                failures: 2,
                period: Duration::from_secs(60),
                wait: Duration::from_secs(5),
            },
            request_ids: 6,
            request_id_age: Duration::from_secs(300),
            allow_commands: vec![1000, 1001],
            socket_mode: 0o666,
            log_level: tracing::Level::DEBUG,
        }
    );
    let seconds = Duration::from_secs;
    let timeouts = Timeouts {
        start: seconds(1),
        drain: seconds(2),
        stdin_grace: seconds(3),
        term_grace: seconds(4),
        kill_wait: seconds(5),
        ..Timeouts::default()
    };
    assert_eq!(config.timeouts, timeouts);
    let text = |text: &str| std::ffi::CString::new(text).unwrap();
    assert_eq!(
        config.hooks,
        [
            Hook {
                name: "tell".into(),
                on: vec!["session.*".into(), "server.failed".into()],
                command: text("/bin/tell"),
                args: vec![text("$it")],
                env: [("A".to_owned(), text("b"))].into(),
                timeout: seconds(7),
            },
            Hook {
                name: "hooks[1]".into(),
                on: vec!["*".into()],
                command: text("log"),
                args: Vec::new(),
                env: [].into(),
                timeout: seconds(30),
            },
        ]
    );
    let profile = &config.profiles["p"];
    assert_eq!(profile.timeouts, Timeouts { drain: seconds(20), ..timeouts });
    assert_eq!(
        profile.servers,
        [Server {
            name: ServerName::new("s").unwrap(),
            scope: Scope::Session,
            command: Some(Template::literal("a")),
            args: vec![Template::literal("b"), Template::parse("${arg:c}").unwrap()],
            env: [("D".to_owned(), Template::literal("e"))].into(),
            cwd: Some(Template::literal("/f")),
            era: EraChoice::Auto,
            mode: Mode::Shared,
            required: false,
            significant: true,
            replace: Replace::StopFirst,
            restart: RestartPolicy { when: Restart::Permanent, intensity: 3, period: seconds(30) },
            health: Some(Health { interval: seconds(60), timeout: seconds(10), misses: 2 }),
            timeouts: Timeouts { start: seconds(10), drain: seconds(20), ..timeouts },
            stop_command: vec![
                Template::literal("docker"),
                Template::literal("rm"),
                Template::parse("${arg:c}").unwrap(),
            ],
            stop_command_timeout: seconds(9),
            memory: Some(1 << 30),
            processes: Some(64),
            max_in_flight: None,
            max_queued: None,
        }]
    );
    assert_eq!(profile.arguments().into_iter().collect::<Vec<_>>(), ["c"]);
}

#[test]
fn every_error_is_told_at_once_with_its_place() {
    let text = "\
[daemon]
max_session = 5
max_sessions = 0
  max_line = true
log_level = \"inof\"
[timeouts]
start = 30
drain = \"5 s\"
[profiles.\"a b\".servers.x]
command = \"${env:1}\"
[profiles.p.servers.y]
args = [\"ok\", 3]
restart = \"never\"
colour = \"red\"
memory = \"1G\"
[profiles.q]
[server]
";
    assert_eq!(
        errors(text),
        [
            (2, 1, "unknown key `max_session` in [daemon]".to_owned()),
            (3, 16, "daemon.max_sessions: 0 is out of range: from 1 to 1000000".into()),
            (4, 14, "daemon.max_line: this is true or false; it must be a size such as \"64M\"".into()),
            (5, 13, "daemon.log_level: `inof` is not one of error, warn, info, debug, trace".into()),
            (7, 9, "timeouts.start: 30 has no unit".into()),
            (
                8,
                9,
                "timeouts.drain: `5 s` is not a duration: write a whole number and a unit, such as 500ms, 30s, \
                 5m, 4h or 7d"
                    .into()
            ),
            (9, 11, "`a b` is not a profile's name: [A-Za-z0-9][A-Za-z0-9_-]{0,63}".into()),
            (10, 12, "profiles.a b.servers.x.command: `1` is not a name of the kind `env`".into()),
            (11, 1, "`command` is missing in [profiles.p.servers.y]".into()),
            (12, 15, "profiles.p.servers.y.args[1]: this is a whole number; it must be a string".into()),
            (13, 11, "profiles.p.servers.y.restart: `never` is not one of transient, permanent, temporary".into()),
            (14, 1, "unknown key `colour` in [profiles.p.servers.y]".into()),
            (15, 1, "unknown key `memory` in [profiles.p.servers.y]".into()),
            (16, 1, "`servers` is missing in [profiles.q]".into()),
            (17, 2, "unknown key `server` in the file".into()),
        ]
    );
}

#[test]
fn syntax_errors_are_told_with_the_others() {
    let told = errors(
        "[daemon]\nmax_sessions = \nmax_sessionz = 4\ntombstones = 99999999999\n[timeouts\nstart = \"1s\"\n",
    );
    let lines: Vec<usize> = told.iter().map(|(line, ..)| *line).collect();
    assert_eq!(lines, [2, 3, 4, 5], "{told:?}");
    assert!(
        errors("a = 1\na = 2\n").iter().any(|(line, _, message)| *line == 2 && message.contains("duplicate"))
    );
}

#[test]
fn what_can_not_hold_where_it_stands_is_an_error_that_says_so() {
    for key in ["drain", "idle", "pin", "approval_timeout"] {
        let line = format!("timeouts = {{ {key} = \"1s\" }}");
        let told = errors(&format!("[profiles.p.servers.s]\ncommand = \"a\"\n{line}\n"));
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].2.contains(&format!("`{key}` holds for the whole session")), "{told:?}");
        assert_eq!(told[0].0, 3);
    }
    let told = errors(
        "[profiles.p]\nhold = [\"*\"]\n[profiles.p.servers.s]\ncommand = \"a\"\nmode = \"exclusive\"\n",
    );
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!((told[0].0, told[0].2.contains("server s can't be held")), (2, true), "{told:?}");
}

#[test]
fn whose_process_a_server_is() {
    let read = |lines: &str| {
        let text = format!("[profiles.p.servers.s]\n{lines}\n");
        Config::parse("m.toml", &text).map(|config| config.profiles["p"].servers[0].clone())
    };
    let shared = read("command = \"a\"\nscope = \"daemon\"").unwrap();
    assert_eq!(shared.scope, Scope::Daemon { linger: Duration::from_secs(30) });
    let shared = read("command = \"a\"\nscope = \"daemon\"\nlinger = \"0s\"").unwrap();
    assert_eq!(shared.scope, Scope::Daemon { linger: Duration::ZERO });
    let external = read("scope = \"external\"\nsocket = \"/run/${arg:x}.sock\"").unwrap();
    assert_eq!((&external.command, external.args.len()), (&None, 0));
    assert_eq!(external.scope, Scope::External { socket: Template::parse("/run/${arg:x}.sock").unwrap() });
    for (lines, told) in [
        ("command = \"a\"\nlinger = \"1s\"", "ends with its session"),
        ("command = \"a\"\nsocket = \"/s\"", "started by the daemon"),
        ("command = \"a\"\nscope = \"daemon\"\nmode = \"exclusive\"", "one session's alone"),
        ("command = \"a\"\nscope = \"external\"\nsocket = \"/s\"", "does not start"),
        ("scope = \"external\"", "`socket` is missing"),
        ("scope = \"external\"\nsocket = \"s\"", "absolute path"),
        ("scope = \"daemon\"", "`command` is missing"),
        ("command = \"a\"\nscope = \"world\"", "is not one of"),
    ] {
        let report = read(lines).unwrap_err().to_string();
        assert!(report.contains(told), "{lines}: {report}");
    }
}

#[test]
fn the_report_shows_the_line_and_the_mend() {
    let text = "[daemon]\nmax_session = 5\n# größe\nlog_level = \"größe\"\n";
    let report = Config::parse("/etc/m.toml", text).unwrap_err().to_string();
    assert_eq!(
        report,
        "\
/etc/m.toml:2:1: unknown key `max_session` in [daemon]
  |
2 | max_session = 5
  | ^^^^^^^^^^^
  = help: did you mean `max_sessions`?
/etc/m.toml:4:13: daemon.log_level: `größe` is not one of error, warn, info, debug, trace
  |
4 | log_level = \"größe\"
  |             ^^^^^^^
2 errors in /etc/m.toml"
    );
}

#[test]
fn a_hostile_file_makes_a_harmless_report() {
    let long = "x".repeat(100_000);
    for text in [
        format!("[daemon]\n{long} = 1\n"),
        "\u{1b}[2J = 1".to_owned(),
        "\"\\u001b[2J\" = 1".to_owned(),
        "a = \"\"\"\n\n".to_owned(),
        "[profiles.p.servers.s]\ncommand = '''\n${env:}'''\n".to_owned(),
        "a".to_owned() + &"[".repeat(5000),
        "é = é".to_owned(),
    ] {
        let report = Config::parse("x", &text).unwrap_err().to_string();
        assert!(report.lines().all(|line| line.chars().all(|c| !c.is_control())), "{report:?}");
        assert!(report.contains("error"), "{report}");
    }
}

#[test]
fn the_configurations_that_come_along_are_good() {
    let mut seen = 0;
    for entry in std::fs::read_dir(root().join("configs")).unwrap() {
        let path = entry.unwrap().path();
        if let Err(error) = Config::load(&path) {
            panic!("{error}");
        }
        seen += 1;
    }
    assert!(seen >= 3, "an annotated default and two examples");
}

#[test]
fn the_annotated_default_says_what_the_defaults_are() {
    let path = root().join("configs/mcpvisord.toml");
    assert_eq!(Config::load(&path).unwrap(), Config::default());
    // What is commented out is right too: with the comment signs of its assignments gone it loads, and the sections
    // that have defaults are still the defaults.
    let text = std::fs::read_to_string(&path).unwrap();
    let whole: String =
        text.lines().map(|line| line.strip_prefix("#: ").unwrap_or(line).to_owned() + "\n").collect();
    let config = Config::parse("uncommented", &whole).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(config.daemon, Daemon::default());
    assert_eq!(config.timeouts, Timeouts::default());
    assert_eq!(config.profiles.len(), 1);
    for kind in keys::ALL {
        for key in kind.keys.iter() {
            let forms = [format!("{key} ="), format!("[{key}]"), format!("[{key}."), format!(".{key}.")];
            assert!(forms.iter().any(|form| text.contains(form)), "{key} is not in the annotated default");
        }
    }
}

#[test]
fn every_key_is_documented_below_its_section() {
    let text = std::fs::read_to_string(root().join("docs/configuration.md")).unwrap();
    for kind in keys::ALL {
        let heading = format!("## `{}`", kind.heading);
        let heading = if text.contains(&heading) { heading } else { format!("## {}", kind.heading) };
        let at = text.find(&heading).unwrap_or_else(|| panic!("{heading} is missing"));
        let section = &text[at + heading.len()..];
        let section = &section[..section.find("\n## ").unwrap_or(section.len())];
        for key in kind.keys {
            assert!(section.contains(&format!("| `{key}` |")), "`{key}` is not in the table below {heading}");
        }
    }
}

#[test]
fn idle_limits_are_of_the_daemon_and_of_profiles() {
    let text = "[timeouts]\nidle = \"20m\"\n[profiles.p]\ntimeouts = { pin = \"1h\" }\n\
                [profiles.p.servers.s]\ncommand = \"true\"\n";
    let config = Config::parse("c.toml", text).unwrap();
    let minutes = |count: u64| Duration::from_secs(60 * count);
    let told = |timeouts: Timeouts| (timeouts.idle, timeouts.pin);
    assert_eq!(told(config.timeouts), (minutes(20), minutes(240)));
    assert_eq!(told(config.profiles["p"].timeouts), (minutes(20), minutes(60)));
    let of_a_server = format!("{text}timeouts = {{ idle = \"1m\" }}\n");
    assert!(Config::parse("c.toml", &of_a_server).is_err(), "it is the session's");
}

/// A line of the longest length always has room where nobody else holds anything.
#[test]
fn the_room_for_input_is_at_least_one_longest_line() {
    let daemon = |text: &str| Config::parse("x", &format!("[daemon]\n{text}")).map(|config| config.daemon);
    let longer = daemon("max_line = \"100M\"").unwrap();
    assert_eq!((longer.max_input, longer.max_input_per_user), (400 << 20, 200 << 20));
    assert!(daemon("max_input = \"64M\"").is_ok());
    assert!(daemon("max_input = \"63M\"").is_err());
    assert!(daemon("max_line = \"8M\"\nmax_input_per_user = \"7M\"").is_err());
}

#[test]
fn a_file_without_an_end_is_refused() {
    let error = Config::load(Path::new("/dev/zero")).unwrap_err().to_string();
    assert_eq!(error, "failed to read /dev/zero: it has more than 16 MiB");
}

#[test]
fn a_hook_that_would_never_run_is_an_error() {
    let text = "[[hooks]]\non = [\"session.close\", \"hook.ended\", \"tool.*\"]\ncommand = \"\"\n[[hooks]]\ncommand = \"x\"\ntimeout = \"0s\"\n";
    let told: Vec<_> = errors(text).into_iter().map(|(line, _, message)| (line, message)).collect();
    assert_eq!(told.iter().map(|(line, _)| *line).collect::<Vec<_>>(), [2, 2, 2, 3, 4, 6], "{told:#?}");
    assert!(told[0].1.contains("`session.close` is no kind of event"), "{told:#?}");
    assert!(told[4].1.contains("`on` is missing"), "{told:#?}");
}

#[test]
fn limits_of_calls_are_inherited_and_checked() {
    let text = "\
[timeouts]
queue_timeout = \"1s\"
call_timeout = \"30s\"
[profiles.p]
max_in_flight = 8
[profiles.p.timeouts]
call_timeout_max = \"1m\"
[profiles.p.servers.s]
command = \"x\"
max_in_flight = 2
max_queued = 0
[profiles.p.servers.s.timeouts]
call_timeout = \"40s\"
";
    let config = Config::parse("x", text).unwrap();
    let profile = &config.profiles["p"];
    assert_eq!(profile.policy.max_in_flight, Some(8));
    let server = &profile.servers[0];
    assert_eq!((server.max_in_flight, server.max_queued), (Some(2), Some(0)));
    let calls = server.timeouts.calls(server.max_queued);
    let seconds = Duration::from_secs;
    assert_eq!((calls.max_queued, calls.queue_timeout), (0, seconds(1)));
    assert_eq!((calls.call_timeout, calls.call_timeout_max), (Some(seconds(40)), seconds(60)));
    assert_eq!(config.timeouts.call_timeout_max, seconds(4 * 3600));
    assert_eq!(
        errors("[timeouts]\ncall_timeout = \"5m\"\ncall_timeout_max = \"1m\"\n"),
        [(2, 16, "timeouts.call_timeout: call_timeout is longer than call_timeout_max".to_owned())]
    );
    assert_eq!(
        errors("[timeouts]\ncall_timeout = \"0s\"\n"),
        [(2, 16, "timeouts.call_timeout: a call can't be answered in no time".to_owned())]
    );
}

#[test]
fn a_daemon_that_keeps_no_events_is_refused() {
    for line in ["events = 0", "event_bytes = 0"] {
        let problems = Config::parse("f.toml", &format!("[daemon]\n{line}\n")).unwrap_err();
        assert_eq!(problems.lines().count(), 1, "{line}");
    }
}
