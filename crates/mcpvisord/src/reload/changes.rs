//! What differs between two configurations, and which of it can change while the daemon runs.
use crate::config::{Config, Daemon, Timeouts};
use std::collections::BTreeSet;

/// The names of what has changed: first what holds at once, then what holds after a restart.
pub(super) fn between(old: &Config, new: &Config) -> (Vec<String>, Vec<String>) {
    let Config { daemon, timeouts, profiles, hooks } = old;
    // Every key is named here, so that a new one can't be forgotten.
    let Daemon {
        max_sessions,
        max_sessions_per_user,
        max_sessions_per_tenant,
        reserved_for_administrators,
        max_processes,
        max_processes_per_session,
        max_queued_per_user,
        when_full,
        evict_after,
        max_line,
        max_input,
        max_input_per_user,
        containment,
        tombstones,
        tombstone_age,
        events,
        event_bytes,
        breaker,
        request_ids,
        request_id_age,
        allow_commands,
        socket_mode,
        log_level,
    } = daemon;
    let Timeouts {
        start,
        drain,
        stdin_grace,
        term_grace,
        kill_wait,
        idle,
        pin,
        queue_timeout,
        call_timeout,
        call_timeout_max,
        approval_timeout,
    } = timeouts;
    let (to, at) = (&new.daemon, &new.timeouts);
    let live = [
        ("daemon.max_sessions", *max_sessions != to.max_sessions),
        ("daemon.max_sessions_per_user", *max_sessions_per_user != to.max_sessions_per_user),
        ("daemon.max_sessions_per_tenant", *max_sessions_per_tenant != to.max_sessions_per_tenant),
        (
            "daemon.reserved_for_administrators",
            *reserved_for_administrators != to.reserved_for_administrators,
        ),
        ("daemon.max_processes", *max_processes != to.max_processes),
        ("daemon.max_processes_per_session", *max_processes_per_session != to.max_processes_per_session),
        ("daemon.max_queued_per_user", *max_queued_per_user != to.max_queued_per_user),
        ("daemon.when_full", *when_full != to.when_full),
        ("daemon.evict_after", *evict_after != to.evict_after),
        ("daemon.max_line", *max_line != to.max_line),
        ("daemon.max_input", *max_input != to.max_input),
        ("daemon.max_input_per_user", *max_input_per_user != to.max_input_per_user),
        ("daemon.tombstones", *tombstones != to.tombstones),
        ("daemon.tombstone_age", *tombstone_age != to.tombstone_age),
        ("daemon.events", *events != to.events),
        ("daemon.event_bytes", *event_bytes != to.event_bytes),
        ("daemon.breaker", *breaker != to.breaker),
        ("daemon.request_ids", *request_ids != to.request_ids),
        ("daemon.request_id_age", *request_id_age != to.request_id_age),
        ("daemon.allow_commands", *allow_commands != to.allow_commands),
        ("daemon.log_level", *log_level != to.log_level),
        ("timeouts.start", *start != at.start),
        ("timeouts.drain", *drain != at.drain),
        ("timeouts.stdin_grace", *stdin_grace != at.stdin_grace),
        ("timeouts.term_grace", *term_grace != at.term_grace),
        ("timeouts.kill_wait", *kill_wait != at.kill_wait),
        ("hooks", *hooks != new.hooks),
        ("timeouts.idle", *idle != at.idle),
        ("timeouts.pin", *pin != at.pin),
        ("timeouts.queue_timeout", *queue_timeout != at.queue_timeout),
        ("timeouts.call_timeout", *call_timeout != at.call_timeout),
        ("timeouts.call_timeout_max", *call_timeout_max != at.call_timeout_max),
        ("timeouts.approval_timeout", *approval_timeout != at.approval_timeout),
    ];
    let fixed = [
        ("daemon.containment", *containment != to.containment),
        ("daemon.socket_mode", *socket_mode != to.socket_mode),
    ];
    let changed = |keys: &[(&str, bool)]| -> Vec<String> {
        keys.iter().filter(|(_, changed)| *changed).map(|(key, _)| (*key).to_owned()).collect()
    };
    let names: BTreeSet<&String> = profiles.keys().chain(new.profiles.keys()).collect();
    let differ = names.into_iter().filter(|name| profiles.get(*name) != new.profiles.get(*name));
    let mut applied = changed(&live);
    applied.extend(differ.map(|name| format!("profiles.{name}")));
    (applied, changed(&fixed))
}

/// The new configuration with the old values of what can't change, so that the next reload tells of it again.
pub(super) fn without_restart(old: &Config, mut new: Config) -> Config {
    new.daemon.containment = old.daemon.containment;
    new.daemon.socket_mode = old.daemon.socket_mode;
    new
}
