//! A session and its servers.
use super::certificate::{remaining, start_failure};
use super::frame::frames;
use super::{count, milliseconds, names, timestamp};
use mcpvisor_control::results;
use mcpvisor_lifecycle::server::{Mode, ServerState};
use mcpvisor_lifecycle::session::SessionState;
use mcpvisor_process::ContainmentKind;
use mcpvisor_supervisor::{ServerView, SessionView};

/// What `show` tells.
pub(crate) fn session(view: &SessionView) -> results::Session {
    results::Session {
        key: names::key(&view.key),
        generation: view.generation.0,
        state: state(view.state),
        owner: results::Owner { uid: view.owner.0 },
        tenant: view.tenant.as_ref().map(names::tenant),
        labels: view.labels.clone(),
        parent: view.parent.as_ref().map(names::key),
        created_at: timestamp(view.created_at),
        lease: view.lease.clone(),
        expires_at: view.expires_at.map(timestamp),
        attached: view.attached.map(count),
        in_flight: view.in_flight.map(count),
        idle_ms: view.idle_for.map(milliseconds),
        idle_limit_ms: view.idle.map(milliseconds),
        parks: view.parks,
        queued: view.queued.map(count),
        held: view.held.map(count),
        waiting: count(view.waiting),
        containment: containment(view.containment),
        servers: view.servers.iter().map(|one| or_parked(server(one), view.parked)).collect(),
        failure: view.certificate.as_ref().and_then(|report| report.failure.as_ref()).map(start_failure),
        remaining: view.certificate.as_ref().map_or_else(Vec::new, |report| remaining(&report.remaining)),
    }
}

/// A server's state.
pub(super) fn server_state(state: ServerState) -> results::ServerState {
    match state {
        ServerState::Starting => results::ServerState::Starting,
        ServerState::Ready => results::ServerState::Ready,
        ServerState::Backoff => results::ServerState::Backoff,
        ServerState::Stopping => results::ServerState::Stopping,
        ServerState::Stopped => results::ServerState::Stopped,
        ServerState::Failed => results::ServerState::Failed,
    }
}

/// A server that is stopped since its session is parked.
fn or_parked(mut server: results::Server, parked: bool) -> results::Server {
    if parked && server.state == results::ServerState::Stopped {
        server.state = results::ServerState::Parked;
    }
    server
}

/// A server.
pub(crate) fn server(view: &ServerView) -> results::Server {
    results::Server {
        name: names::server(&view.name),
        state: server_state(view.state),
        aside: !view.member,
        mode: match view.mode {
            Mode::Shared => results::ServerMode::Shared,
            Mode::Exclusive => results::ServerMode::Exclusive,
            Mode::Direct => results::ServerMode::Direct,
        },
        scope: (view.scope != "session").then(|| view.scope.to_owned()),
        host: view.host.as_ref().map(names::key),
        users: view.users.map(count),
        pid: view.pid,
        restarts: view.restarts,
        era: view.era.map(str::to_owned),
        protocol: view.protocol.clone(),
        tools: view.tools.map(count),
        in_flight: view.in_flight.map(count),
        queued: view.queued.map(count),
        last_error: view.last_error.clone(),
        waits_for: view.waits_for.as_ref().map(|waits| results::WaitsFor {
            what: waits.what.clone().into_owned(),
            since_ms: milliseconds(waits.since),
            left_ms: waits.left.map(milliseconds),
        }),
        stderr_dropped: view.stderr_dropped,
        last_failure: view.failure.as_ref().map(start_failure),
        frames: view.frames.as_deref().map(frames),
    }
}

/// A session's state.
pub(crate) fn state(state: SessionState) -> results::SessionState {
    match state {
        SessionState::Starting => results::SessionState::Starting,
        SessionState::Ready => results::SessionState::Ready,
        SessionState::Degraded => results::SessionState::Degraded,
        SessionState::Draining => results::SessionState::Draining,
        SessionState::Stopping => results::SessionState::Stopping,
        SessionState::Closed => results::SessionState::Closed,
        SessionState::Failed => results::SessionState::Failed,
        SessionState::Quarantined => results::SessionState::Quarantined,
    }
}

pub(super) fn containment(kind: ContainmentKind) -> results::Containment {
    match kind {
        ContainmentKind::Cgroup => results::Containment::Cgroup,
        ContainmentKind::Keeper => results::Containment::Keeper,
    }
}
