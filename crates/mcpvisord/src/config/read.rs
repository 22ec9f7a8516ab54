//! From the parsed text to the typed configuration.
use super::hooks::hooks;
use super::keys;
use super::problem::{Problem, place};
use super::scope::scope;
use super::walk::{Item, Section, Walk};
use super::{
    Breaker, BreakerOf, Config, Containment, Daemon, HEALTH_MISSES, HEALTH_TIMEOUT, Profile, Replace,
    RestartPolicy, Scope, Server, Template, Timeouts, WhenFull,
};
use mcpvisor_lifecycle::ServerName;
use mcpvisor_lifecycle::server::{Health, Mode, Restart};
use mcpvisor_supervisor::{EraChoice, Pattern, Policy, Prefix};
use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;
use toml::de::DeTable;

/// More sessions than any machine has descriptors for.
const MOST_SESSIONS: usize = 1_000_000;

/// How long a stop command may take, where the configuration does not say.
pub(super) const STOP_COMMAND_TIMEOUT: Duration = Duration::from_secs(10);

/// Room for any one event.
const LEAST_EVENT_BYTES: u64 = 4096;
/// More events than anyone reads.
const MOST_EVENTS: usize = 10_000_000;

pub(crate) fn parse(text: &str) -> Result<Config, Vec<Problem>> {
    let (document, syntax) = DeTable::parse_recoverable(text);
    let walk = Walk::new(text);
    let config = config(&walk.root(document.get_ref()));
    let mut problems = walk.into_problems();
    let broken: Vec<Problem> = syntax
        .iter()
        .map(|error| Problem {
            span: error.span().unwrap_or(0..0),
            message: error.message().to_owned(),
            help: None,
            missing: false,
        })
        .collect();
    if !broken.is_empty() {
        // Where the text is broken, what was understood of it says nothing.
        let unclear: Vec<Range<usize>> = broken.iter().map(|problem| unclear(text, problem)).collect();
        let is_clear = |problem: &Problem| {
            let line = place(text, problem.span.start).line;
            !problem.missing && !unclear.iter().any(|lines| lines.contains(&line))
        };
        problems.retain(is_clear);
        problems.extend(broken);
    }
    if problems.is_empty() { Ok(config) } else { Err(problems) }
}

/// The lines that a syntax error makes unclear: its own, and after a broken heading all up to the next one, since what they
/// belong to is not known.
fn unclear(text: &str, problem: &Problem) -> Range<usize> {
    let line = place(text, problem.span.start).line;
    let is_heading = |text: &str| text.trim_start().starts_with('[');
    if !text.lines().nth(line - 1).is_some_and(is_heading) {
        return line..line + 1;
    }
    let next = text.lines().skip(line).position(is_heading);
    line..next.map_or(usize::MAX, |after| line + 1 + after)
}

fn config(root: &Section<'_>) -> Config {
    let daemon = root.section("daemon", &keys::DAEMON).map(|section| daemon(&section)).unwrap_or_default();
    let timeouts = timeouts(root, Timeouts::default(), Level::Daemon);
    let mut profiles = BTreeMap::new();
    for (name, item) in root.get("profiles").map(Item::entries).unwrap_or_default() {
        // A profile is named in requests and logs: it has the form of a server's name.
        if let Err(error) = ServerName::new(&name) {
            item.wrong_name(&format!("`{name}` is not a profile's name: {}", error.pattern));
        }
        if let Some(section) = item.section(&keys::PROFILE) {
            profiles.insert(name, profile(&section, timeouts));
        }
    }
    let hooks = root.get("hooks").as_ref().map(hooks).unwrap_or_default();
    Config { daemon, timeouts, profiles, hooks }
}

/// Puts a good value in the place of the default; a bad one has been told.
pub(super) fn set<T>(place: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *place = value;
    }
}

fn daemon(section: &Section<'_>) -> Daemon {
    let mut daemon = Daemon::default();
    let count = |key: &str| section.get(key).and_then(|item| item.count(1..=MOST_SESSIONS));
    set(&mut daemon.max_sessions, count("max_sessions"));
    set(&mut daemon.max_sessions_per_user, count("max_sessions_per_user"));
    set(&mut daemon.max_sessions_per_tenant, count("max_sessions_per_tenant"));
    // A daemon may have none of these.
    let reserved = section.get("reserved_for_administrators").and_then(|item| item.count(0..=MOST_SESSIONS));
    set(&mut daemon.reserved_for_administrators, reserved);
    let queued = section.get("max_queued_per_user").and_then(|item| item.count(0..=MOST_SESSIONS));
    set(&mut daemon.max_queued_per_user, queued);
    set(&mut daemon.when_full, section.get("when_full").and_then(|item| item.word(&WhenFull::WORDS)));
    set(&mut daemon.evict_after, section.get("evict_after").and_then(|item| item.duration()));
    set(&mut daemon.max_processes, count("max_processes"));
    set(&mut daemon.max_processes_per_session, count("max_processes_per_session"));
    let line = section.get("max_line").and_then(|item| item.size(4096..=1 << 30));
    set(&mut daemon.max_line, line.and_then(|size| usize::try_from(size).ok()));
    // A line of the longest length must find room: where there is no word of more, there is room for some.
    (daemon.max_input, daemon.max_input_per_user) = (4 * daemon.max_line, 2 * daemon.max_line);
    let least = u64::try_from(daemon.max_line).unwrap_or(u64::MAX);
    let input = |key: &str| section.get(key).and_then(|item| item.size(least..=1 << 40));
    set(&mut daemon.max_input, input("max_input").and_then(|size| usize::try_from(size).ok()));
    set(
        &mut daemon.max_input_per_user,
        input("max_input_per_user").and_then(|size| usize::try_from(size).ok()),
    );
    set(&mut daemon.containment, section.get("containment").and_then(|item| item.word(&Containment::WORDS)));
    set(&mut daemon.tombstones, section.get("tombstones").and_then(|item| item.count(0..=MOST_SESSIONS)));
    set(&mut daemon.tombstone_age, section.get("tombstone_age").and_then(|item| item.duration()));
    set(&mut daemon.events, section.get("events").and_then(|item| item.count(1..=MOST_EVENTS)));
    let bytes = section.get("event_bytes").and_then(|item| item.size(LEAST_EVENT_BYTES..=1 << 30));
    set(&mut daemon.event_bytes, bytes.and_then(|size| usize::try_from(size).ok()));
    breaker(section, &mut daemon.breaker);
    set(&mut daemon.request_ids, section.get("request_ids").and_then(|item| item.count(1..=MOST_SESSIONS)));
    set(&mut daemon.request_id_age, section.get("request_id_age").and_then(|item| item.duration()));
    if let Some(items) = section.get("allow_commands").and_then(|item| item.items()) {
        let uids = items.iter().filter_map(|item| item.number(0..=u64::from(u32::MAX - 1)));
        daemon.allow_commands = uids.filter_map(|uid| u32::try_from(uid).ok()).collect();
    }
    const MODES: [(&str, u32); 3] = [("0600", 0o600), ("0660", 0o660), ("0666", 0o666)];
    set(&mut daemon.socket_mode, section.get("socket_mode").and_then(|item| item.word(&MODES)));
    const LEVELS: [(&str, tracing::Level); 5] = [
        ("error", tracing::Level::ERROR),
        ("warn", tracing::Level::WARN),
        ("info", tracing::Level::INFO),
        ("debug", tracing::Level::DEBUG),
        ("trace", tracing::Level::TRACE),
    ];
    set(&mut daemon.log_level, section.get("log_level").and_then(|item| item.word(&LEVELS)));
    daemon
}

fn breaker(section: &Section<'_>, breaker: &mut Breaker) {
    set(&mut breaker.of, section.get("breaker").and_then(|item| item.word(&BreakerOf::WORDS)));
    let failures = section.get("breaker_failures").and_then(|item| item.number(1..=1000));
    set(&mut breaker.failures, failures.and_then(|number| u32::try_from(number).ok()));
    for (key, place) in [("breaker_period", &mut breaker.period), ("breaker_wait", &mut breaker.wait)] {
        if let Some(item) = section.get(key) {
            match item.duration() {
                Some(Duration::ZERO) => item.wrong("a breaker's time can't be zero", None),
                span => set(place, span),
            }
        }
    }
}

/// Whose timeouts they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    Daemon,
    Profile,
    Server,
}

fn timeouts(parent: &Section<'_>, inherited: Timeouts, level: Level) -> Timeouts {
    let mut timeouts = inherited;
    let Some(section) = parent.section("timeouts", &keys::TIMEOUTS) else { return timeouts };
    let span = |key: &str| section.get(key).and_then(|item| item.duration());
    if let Some(item) = section.get("start") {
        match item.duration() {
            Some(Duration::ZERO) => item.wrong("a server can't start in no time", None),
            start => set(&mut timeouts.start, start),
        }
    }
    for (key, place) in
        [("drain", &mut timeouts.drain), ("idle", &mut timeouts.idle), ("pin", &mut timeouts.pin)]
    {
        let Some(item) = section.get(key) else { continue };
        let span = item.duration();
        if level == Level::Server && span.is_some() {
            item.of_the_session(key);
        }
        set(place, span);
    }
    set(&mut timeouts.stdin_grace, span("stdin_grace"));
    set(&mut timeouts.term_grace, span("term_grace"));
    set(&mut timeouts.kill_wait, span("kill_wait"));
    if let Some(item) = section.get("approval_timeout") {
        let timeout = item.duration();
        if level == Level::Server && timeout.is_some() {
            item.of_the_session("approval_timeout");
        }
        set(&mut timeouts.approval_timeout, timeout);
    }
    set(&mut timeouts.queue_timeout, span("queue_timeout"));
    let mut item = section.get("call_timeout");
    if let Some(timeout) = item.as_ref().and_then(|item| item.duration()) {
        timeouts.call_timeout = Some(timeout);
    }
    if let Some(most) = section.get("call_timeout_max") {
        set(&mut timeouts.call_timeout_max, most.duration());
        item = item.or(Some(most));
    }
    match (item, timeouts.call_timeout) {
        (Some(item), Some(Duration::ZERO)) => item.wrong("a call can't be answered in no time", None),
        (Some(item), Some(timeout)) if timeout > timeouts.call_timeout_max => {
            let help = Some("make call_timeout_max at least as long");
            item.wrong("call_timeout is longer than call_timeout_max", help);
        }
        _ => {}
    }
    timeouts
}

fn profile(section: &Section<'_>, inherited: Timeouts) -> Profile {
    let timeouts = timeouts(section, inherited, Level::Profile);
    let entries = section.get("servers").map(Item::entries).unwrap_or_default();
    if entries.is_empty() {
        section.missing("servers", "a profile has at least one table [profiles.PROFILE.servers.SERVER]");
    }
    let mut servers = Vec::new();
    for (name, item) in entries {
        let name = ServerName::new(&name).map_err(|error| {
            item.wrong_name(&format!("`{name}` is not a server's name: {}", error.pattern));
        });
        if let Some(section) = item.section(&keys::SERVER)
            && let Some(server) = server(&section, name.ok(), timeouts)
        {
            servers.push(server);
        }
    }
    const PREFIXES: [(&str, Prefix); 3] =
        [("on-conflict", Prefix::OnConflict), ("always", Prefix::Always), ("never", Prefix::Never)];
    let mut prefix = Prefix::default();
    set(&mut prefix, section.get("prefix").and_then(|item| item.word(&PREFIXES)));
    let max_sessions = section.get("max_sessions").and_then(|item| item.count(1..=MOST_SESSIONS));
    let policy = Policy {
        max_in_flight: section.get("max_in_flight").and_then(|item| item.count(1..=100_000)),
        hold: section.get("hold").as_ref().map(patterns).unwrap_or_default(),
        approval_timeout: timeouts.approval_timeout,
    };
    if let Some(exclusive) = servers.iter().find(|server| server.mode == Mode::Exclusive)
        && let Some(item) = section.get("hold")
        && !policy.hold.is_empty()
    {
        let what = format!("calls of server {} can't be held: it is exclusive", exclusive.name);
        item.wrong(
            &what,
            Some("the daemon never speaks to it; make it shared, or give it a profile of its own"),
        );
    }
    Profile { max_sessions, timeouts, prefix, policy, servers }
}

/// The most patterns of one profile.
const MOST_PATTERNS: usize = 256;

fn patterns(item: &Item<'_>) -> Vec<Pattern> {
    let items = item.items().unwrap_or_default();
    if items.len() > MOST_PATTERNS {
        item.wrong(&format!("there are {} patterns, more than {MOST_PATTERNS}", items.len()), None);
    }
    let pattern = |item: &Item<'_>| match Pattern::new(item.text()?) {
        Ok(pattern) => Some(pattern),
        Err(error) => {
            item.wrong(&error.to_string(), None);
            None
        }
    };
    items.iter().filter_map(pattern).collect()
}

/// None where something of it is wrong, which has been told then.
fn server(section: &Section<'_>, name: Option<ServerName>, inherited: Timeouts) -> Option<Server> {
    let scope = scope(section);
    let command = match section.get("command") {
        None if matches!(scope, Some(Scope::External { .. })) => Some(None),
        None => {
            section.missing("command", "name the program: command = \"npx\"");
            None
        }
        Some(item) => item
            .template()
            .filter(|command| {
                let empty = command.as_literal() == Some("");
                if empty {
                    item.wrong("a program's name can't be empty", None);
                }
                !empty
            })
            .map(Some),
    };
    let args = section.get("args").and_then(|item| item.items()).unwrap_or_default();
    let args = args.iter().filter_map(Item::template).collect();
    let env = section.get("env").map(environment).unwrap_or_default();
    let cwd = section.get("cwd").and_then(|item| {
        let cwd = item.template()?;
        if cwd.as_literal().is_some_and(|path| !path.starts_with('/')) {
            item.wrong("a working directory is an absolute path", None);
        }
        Some(cwd)
    });
    const MODES: [(&str, Mode); 2] = [("shared", Mode::Shared), ("exclusive", Mode::Exclusive)];
    const ERAS: [(&str, EraChoice); 3] =
        [("auto", EraChoice::Auto), ("legacy", EraChoice::Legacy), ("modern", EraChoice::Modern)];
    let (mut mode, mut era) = (Mode::Shared, EraChoice::default());
    set(&mut mode, section.get("mode").and_then(|item| item.word(&MODES)));
    set(&mut era, section.get("era").and_then(|item| item.word(&ERAS)));
    let mut required = true;
    set(&mut required, section.get("required").and_then(|item| item.boolean()));
    let mut significant = false;
    set(&mut significant, section.get("significant").and_then(|item| item.boolean()));
    const REPLACES: [(&str, Replace); 2] =
        [("start-first", Replace::StartFirst), ("stop-first", Replace::StopFirst)];
    let mut replace = Replace::default();
    set(&mut replace, section.get("replace").and_then(|item| item.word(&REPLACES)));
    let restart = restart(section);
    let health = health(section, mode);
    let (stop_command, stop_command_timeout) = stop_command(section);
    let timeouts = timeouts(section, inherited, Level::Server);
    let limits = section.section("limits", &keys::LIMITS);
    let limit = |key: &str| limits.as_ref().and_then(|limits| limits.get(key));
    Some(Server {
        name: name?,
        scope: scope?,
        command: command?,
        args,
        env,
        cwd,
        mode,
        era,
        required,
        significant,
        replace,
        restart,
        health,
        timeouts,
        stop_command,
        stop_command_timeout,
        memory: limit("memory").and_then(|item| item.size(1 << 20..=1 << 50)),
        processes: limit("processes").and_then(|item| item.number(1..=4_194_304)),
        max_in_flight: section.get("max_in_flight").and_then(|item| item.count(1..=100_000)),
        max_queued: section.get("max_queued").and_then(|item| item.count(0..=100_000)),
    })
}

/// Its words, and how long it may take.
fn stop_command(section: &Section<'_>) -> (Vec<Template>, Duration) {
    let words = section.get("stop_command").and_then(|item| {
        let words: Vec<Template> = item.items()?.iter().filter_map(Item::template).collect();
        if words.first().is_some_and(|program| program.as_literal() == Some("")) {
            item.wrong("a program's name can't be empty", None);
        }
        Some(words)
    });
    let mut timeout = STOP_COMMAND_TIMEOUT;
    if let Some(item) = section.get("stop_command_timeout") {
        match item.duration() {
            Some(Duration::ZERO) => item.wrong("a command can't run in no time", None),
            span => set(&mut timeout, span),
        }
    }
    (words.unwrap_or_default(), timeout)
}

fn environment(item: Item<'_>) -> BTreeMap<String, Template> {
    let mut env = BTreeMap::new();
    for (name, item) in item.entries() {
        if name.is_empty() || name.contains(['=', '\0']) {
            item.wrong_name(&format!("`{name}` is not an environment variable's name"));
        } else if name.starts_with("MCPVISOR_") {
            item.wrong_name(&format!("`{name}`: names that begin with MCPVISOR_ are the daemon's own"));
        }
        if let Some(value) = item.template() {
            env.insert(name, value);
        }
    }
    env
}

fn restart(section: &Section<'_>) -> RestartPolicy {
    const WORDS: [(&str, Restart); 3] = [
        ("transient", Restart::Transient),
        ("permanent", Restart::Permanent),
        ("temporary", Restart::Temporary),
    ];
    let mut policy = RestartPolicy::default();
    set(&mut policy.when, section.get("restart").and_then(|item| item.word(&WORDS)));
    let intensity = section.get("restart_intensity").and_then(|item| item.number(0..=1000));
    set(&mut policy.intensity, intensity.and_then(|number| u32::try_from(number).ok()));
    if let Some(item) = section.get("restart_period") {
        match item.duration() {
            Some(Duration::ZERO) => item.wrong("a period can't be zero", None),
            period => set(&mut policy.period, period),
        }
    }
    policy
}

fn health(section: &Section<'_>, mode: Mode) -> Option<Health> {
    let span = |key: &str| {
        let item = section.get(key)?;
        match item.duration() {
            Some(Duration::ZERO) => {
                item.wrong("it can't be zero", None);
                None
            }
            span => span,
        }
    };
    let (interval, timeout) = (span("health_interval"), span("health_timeout"));
    let misses = section.get("health_misses").and_then(|item| item.number(1..=100));
    let given = ["health_interval", "health_timeout", "health_misses"].map(|key| section.get(key));
    if let Some(item) = given.iter().flatten().next().filter(|_| mode != Mode::Shared) {
        item.wrong("an exclusive server is its client's alone to speak to", Some("leave its health out"));
    }
    if let [None, Some(item), _] | [None, None, Some(item)] = &given {
        item.wrong("nobody asks for its health", Some("say how often: health_interval = \"1m\""));
    }
    Some(Health {
        interval: interval?,
        timeout: timeout.unwrap_or(HEALTH_TIMEOUT),
        misses: misses.and_then(|number| u32::try_from(number).ok()).unwrap_or(HEALTH_MISSES),
    })
}
