//! Commands of a client's own: its environment, directory, umask and limits.
use super::invalid;
use crate::config::{BreakerOf, Config, HEALTH_MISSES, HEALTH_TIMEOUT, RestartPolicy};
use crate::peer::Peer;
use mcpvisor_control::params::{Mode as WireMode, Restart as WireRestart, ServerDefinition, SessionOpen};
use mcpvisor_control::{ErrorObject, Text};
use mcpvisor_lifecycle::server::{Health, Mode, Restart};
use mcpvisor_process::{Credentials, ResourceLimit};
use mcpvisor_supervisor::{EraChoice, Scope, ServerSpec};
use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Below the patience of the clients that start a server themselves: they send SIGTERM after two seconds.
const DIRECT_STDIN_GRACE: Duration = Duration::from_millis(1500);

/// What a client may ask for that the daemon could grant and the client could not take itself.
#[derive(Debug)]
pub(super) struct Bounds {
    /// None: the daemon has no more rights than the client.
    hard_limits: Option<Vec<(u32, Option<u64>)>>,
}

impl Bounds {
    /// A root daemon that starts something as another user gives it no more than the client's process has.
    pub(super) fn of(peer: &Peer, credentials: Option<&Credentials>) -> Self {
        let bounded = credentials.is_some() && !peer.is_root();
        Self { hard_limits: bounded.then(|| peer.hard_limits().unwrap_or_default()) }
    }

    fn limits(&self, open: &SessionOpen) -> Vec<ResourceLimit> {
        let wanted = open.resource_limits.iter().map(|limit| ResourceLimit {
            resource: limit.resource,
            soft: limit.soft.unwrap_or(u64::MAX),
            hard: limit.hard.unwrap_or(u64::MAX),
        });
        let Some(bounds) = &self.hard_limits else { return wanted.collect() };
        let bounded = |mut limit: ResourceLimit| {
            let (_, most) = bounds.iter().find(|(resource, _)| *resource == limit.resource)?;
            limit.hard = limit.hard.min(most.unwrap_or(u64::MAX));
            limit.soft = limit.soft.min(limit.hard);
            Some(limit)
        };
        // Of resources that the client names none the daemon's own must not be left to it either.
        let mut limits: Vec<_> = wanted.filter_map(bounded).collect();
        for (resource, hard) in bounds {
            if !limits.iter().any(|limit| limit.resource == *resource) {
                let hard = hard.unwrap_or(u64::MAX);
                limits.push(ResourceLimit { resource: *resource, soft: hard, hard });
            }
        }
        limits
    }

    fn nice(&self, open: &SessionOpen) -> Option<i32> {
        if self.hard_limits.is_some() { Some(open.nice.unwrap_or(0).max(0)) } else { open.nice }
    }
}

/// One server.
pub(super) fn spec(
    config: &Config,
    open: &SessionOpen,
    definition: &ServerDefinition,
    credentials: Option<Credentials>,
    bounds: &Bounds,
) -> Result<ServerSpec, ErrorObject> {
    let name = &definition.name;
    let program = match definition.command.first() {
        Some(program) if !program.as_bytes().is_empty() => program.to_c_string(),
        _ => return Err(invalid(format!("server {name} has no command"))),
    };
    check(open)?;
    let direct = open.direct.is_some();
    let relayed = open.relay.is_some();
    let exclusive = match definition.mode.or(open.mode) {
        None => relayed,
        Some(WireMode::Exclusive) if direct => {
            return Err(invalid(format!("server {name} is direct, and can't be exclusive")));
        }
        Some(WireMode::Exclusive) => true,
        Some(WireMode::Shared) if relayed => {
            return Err(invalid(format!("server {name} is relayed to one client, and can't be shared")));
        }
        Some(WireMode::Shared) => false,
    };
    let timeouts = config.timeouts;
    let span =
        |milliseconds: Option<u64>, default: Duration| milliseconds.map_or(default, Duration::from_millis);
    let start = span(definition.start_ms, timeouts.start);
    if start.is_zero() {
        return Err(invalid(format!("server {name} can't start in no time")));
    }
    // `run` has a client that starts the server itself.
    let of_run = direct || relayed;
    let stdin_grace =
        if of_run { timeouts.stdin_grace.min(DIRECT_STDIN_GRACE) } else { timeouts.stdin_grace };
    let policy = RestartPolicy::default();
    let period = span(definition.restart_period_ms, policy.period);
    if period.is_zero() {
        return Err(invalid(format!("server {name}: a restart period can't be zero")));
    }
    Ok(ServerSpec {
        name: crate::convert::server_name(name),
        scope: Scope::Session,
        program,
        args: definition.command.iter().map(Text::to_c_string).collect(),
        env: environment(open, definition)?.into(),
        cwd: directory(open, definition)?,
        umask: open.umask,
        limits: crate::limits::with_original(bounds.limits(open)),
        nice: bounds.nice(open),
        ignored_signals: open.ignored_signals.clone(),
        credentials,
        no_new_privs: false,
        memory_max: definition.limits.and_then(|limits| limits.memory_bytes),
        pids_max: definition.limits.and_then(|limits| limits.processes),
        max_in_flight: None,
        calls: timeouts.calls(None),
        era: EraChoice::Auto,
        mode: match (direct, exclusive) {
            (true, _) => Mode::Direct,
            (false, true) => Mode::Exclusive,
            (false, false) => Mode::Shared,
        },
        required: definition.required.unwrap_or(true),
        significant: definition.significant.unwrap_or(false),
        breaker: config.daemon.breaker.of == BreakerOf::All,
        restart: match definition.restart {
            None => policy.when,
            Some(WireRestart::Permanent) => Restart::Permanent,
            Some(WireRestart::Transient) => Restart::Transient,
            Some(WireRestart::Temporary) => Restart::Temporary,
        },
        restart_intensity: definition.restart_intensity.unwrap_or(policy.intensity),
        restart_period: period,
        health: health(definition, direct || exclusive)?,
        start,
        stdin_grace: span(definition.stdin_grace_ms, stdin_grace),
        term_grace: span(definition.term_grace_ms, timeouts.term_grace),
        stop_command: None,
        kill_wait: span(definition.kill_wait_ms, timeouts.kill_wait),
        max_line: config.daemon.max_line,
    })
}

fn health(definition: &ServerDefinition, alone: bool) -> Result<Option<Health>, ErrorObject> {
    let wrong = |text: &str| Err(invalid(format!("server {}: {text}", definition.name)));
    let Some(interval) = definition.health_interval_ms else {
        let more = definition.health_timeout_ms.is_some() || definition.health_misses.is_some();
        return if more { wrong("nobody asks for its health: name health_interval_ms") } else { Ok(None) };
    };
    let timeout = definition.health_timeout_ms.map_or(HEALTH_TIMEOUT, Duration::from_millis);
    let misses = definition.health_misses.unwrap_or(HEALTH_MISSES);
    if interval == 0 || timeout.is_zero() || misses == 0 {
        return wrong("health_interval_ms, health_timeout_ms and health_misses can't be zero");
    }
    if alone {
        return wrong("its client alone speaks to it, so nobody can ask for its health");
    }
    Ok(Some(Health { interval: Duration::from_millis(interval), timeout, misses }))
}

fn check(open: &SessionOpen) -> Result<(), ErrorObject> {
    if open.umask.is_some_and(|umask| umask > 0o777) {
        return Err(invalid("umask is out of range: from 0 to 511"));
    }
    if open.nice.is_some_and(|nice| !(-20..=19).contains(&nice)) {
        return Err(invalid("nice is out of range: from -20 to 19"));
    }
    if open.ignored_signals.iter().any(|signal| !(1..=64).contains(signal)) {
        return Err(invalid("ignored_signals: a signal's number is from 1 to 64"));
    }
    if open.resource_limits.iter().any(|limit| limit.resource > 15) {
        return Err(invalid("resource_limits: a resource's number is from 0 to 15"));
    }
    Ok(())
}

/// The client's environment with the server's additions, and without names that are the daemon's.
fn environment(open: &SessionOpen, definition: &ServerDefinition) -> Result<Vec<CString>, ErrorObject> {
    let mut environment = Vec::with_capacity(open.environment.len() + definition.env.len());
    for entry in &open.environment {
        let bytes = entry.as_bytes();
        // A name begins with any byte, an equals sign even, as some programs of old write them.
        let Some(end) = bytes.iter().skip(1).position(|byte| *byte == b'=').map(|at| at + 1) else {
            return Err(invalid("environment: an entry is not of the form NAME=VALUE"));
        };
        let name = &bytes[..end];
        let replaced = std::str::from_utf8(name).is_ok_and(|name| definition.env.contains_key(name));
        if !replaced && !name.starts_with(b"MCPVISOR_") {
            environment.push(entry.to_c_string());
        }
    }
    for (name, value) in &definition.env {
        if name.is_empty() || name.contains(['=', '\0']) {
            return Err(invalid(format!("server {}: {name:?} is not a variable's name", definition.name)));
        }
        if name.starts_with("MCPVISOR_") {
            continue;
        }
        let entry = [name.as_bytes(), b"=", value.as_bytes()].concat();
        environment.push(CString::new(entry).expect("neither the name nor a Text has a NUL"));
    }
    Ok(environment)
}

/// None of `run`, where the directory comes as a descriptor.
fn directory(open: &SessionOpen, definition: &ServerDefinition) -> Result<Option<PathBuf>, ErrorObject> {
    let path = |text: &Text| PathBuf::from(OsStr::from_bytes(text.as_bytes()));
    let base = open.cwd.as_ref().map(path);
    if base.as_ref().is_some_and(|base| !base.is_absolute()) {
        return Err(invalid("cwd is not an absolute path"));
    }
    match (base, definition.cwd.as_ref().map(path)) {
        (Some(base), Some(below)) => Ok(Some(base.join(below))),
        (None, Some(path)) if path.is_absolute() => Ok(Some(path)),
        (None, Some(path)) => Err(invalid(format!(
            "server {}: {} is relative, and the request has no `cwd`",
            definition.name,
            path.display()
        ))),
        (Some(base), None) => Ok(Some(base)),
        (None, None) if open.direct.is_some() || open.relay.is_some() => Ok(None),
        (None, None) => Ok(Some(Path::new("/").to_owned())),
    }
}
