//! The daemon as a whole.
use super::session::containment;
use super::{count, milliseconds, names};
use mcpvisor_control::results;
use mcpvisor_lifecycle::registry::Queued;
use mcpvisor_supervisor::StatusView;

/// The answer of `status`.
pub(crate) fn status(view: &StatusView, queued: usize, instance: &str) -> results::Status {
    let counts = &view.counts;
    results::Status {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        instance: instance.to_owned(),
        state: if view.draining { results::DaemonState::Draining } else { results::DaemonState::Running },
        sessions: results::SessionCounts {
            used: count(counts.starting + counts.live + counts.dying + counts.quarantined),
            starting: count(counts.starting),
            live: count(counts.live),
            dying: count(counts.dying),
            quarantined: count(counts.quarantined),
            limit: count(counts.limit),
            queued: count(queued),
        },
        shared_servers: results::SharedCounts {
            used: count(counts.shared),
            quarantined: count(counts.shared_quarantined),
        },
        processes: Some(count(view.processes)),
        containment: containment(view.containment),
        uptime_ms: milliseconds(view.uptime),
        counters: view.counters.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
        pid: Some(std::process::id()),
    }
}

/// An open that waits for a slot.
pub(crate) fn queued(open: &Queued) -> results::QueuedOpen {
    results::QueuedOpen {
        key: names::key(&open.key.key),
        owner: results::Owner { uid: open.key.uid.0 },
        tenant: open.tenant.as_ref().map(names::tenant),
        position: count(open.position),
    }
}
