//! The daemon itself.
use crate::connection::Context;
use crate::convert;
use crate::reload::{ReloadError, Reloaded};
use mcpvisor_control::{ErrorObject, params, results};
use mcpvisor_failpoints::{self as failpoints, Gate};
use mcpvisor_lifecycle::Uid;
use mcpvisor_lifecycle::registry::{Counts, Urgency};
use mcpvisor_lifecycle::session::SessionState;
use mcpvisor_supervisor::{SessionView, StatusView};

pub(super) async fn hello(context: Context, params: params::Hello) -> Result<results::Hello, ErrorObject> {
    let client = params.client.as_deref().map(|client| client.chars().take(200).collect::<String>());
    tracing::debug!(uid = context.peer.uid, pid = context.peer.pid, client, "hello");
    Ok(results::Hello {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        protocol: mcpvisor_control::PROTOCOL_VERSION,
        instance: context.daemon.rights().instance.clone(),
        pid: std::process::id(),
    })
}

pub(super) async fn status(context: Context, _: params::Status) -> Result<results::Status, ErrorObject> {
    let supervisor = &context.daemon.supervisor;
    let mut view = supervisor.status().await.map_err(|failure| convert::error(failure, None))?;
    #[cfg(feature = "count-allocations")]
    view.counters.insert("live_allocations", mcpvisor_process::live_allocations());
    let is_administrator = context.daemon.rights().is_administrator(&context.peer);
    let whose = (!is_administrator).then_some(Uid(context.peer.uid));
    let queued = supervisor.queued(whose).await.map_err(|failure| convert::error(failure, None))?;
    if !is_administrator {
        // Other users' sessions are nobody's business, not even their number (G40).
        let uid = Uid(context.peer.uid);
        let sessions = supervisor.list(Some(uid)).await;
        let processes =
            supervisor.processes(Some(uid), None).await.map_err(|failure| convert::error(failure, None))?;
        view = StatusView {
            counts: counts(&sessions, context.daemon.config().daemon.max_sessions_per_user),
            processes: processes.len(),
            counters: Default::default(),
            ..view
        };
    }
    Ok(convert::status(&view, queued.len(), &context.daemon.rights().instance))
}

fn counts(sessions: &[SessionView], limit: usize) -> Counts {
    let mut counts = Counts { limit, ..Counts::default() };
    for session in sessions {
        match session.state {
            SessionState::Starting => counts.starting += 1,
            SessionState::Ready | SessionState::Degraded => counts.live += 1,
            SessionState::Draining | SessionState::Stopping => counts.dying += 1,
            SessionState::Quarantined => counts.quarantined += 1,
            SessionState::Closed | SessionState::Failed => {}
        }
    }
    counts
}

pub(super) async fn drain(context: Context, _: params::Drain) -> Result<results::Drained, ErrorObject> {
    context.daemon.rights().administer(&context.peer)?;
    tracing::info!(uid = context.peer.uid, pid = context.peer.pid, "draining: no more sessions are opened");
    context.daemon.supervisor.fence();
    Ok(results::Drained { state: results::DaemonState::Draining })
}

pub(super) async fn reload(
    context: Context,
    params: params::Reload,
) -> Result<results::Reloaded, ErrorObject> {
    context.daemon.rights().administer(&context.peer)?;
    tracing::info!(uid = context.peer.uid, pid = context.peer.pid, "a reload was asked for");
    // It goes on without its requester.
    let reloaded = context.within(params.deadline_ms, context.daemon.reload()).await?;
    reloaded.map(Reloaded::into_wire).map_err(ReloadError::into_wire)
}

pub(super) async fn shutdown(
    context: Context,
    params: params::Shutdown,
) -> Result<results::Shutdown, ErrorObject> {
    failpoints::pass(Gate::ShutdownDispatched).await;
    context.daemon.rights().administer(&context.peer)?;
    let urgency = if params.now { Urgency::Hurry } else { Urgency::Drain };
    tracing::info!(
        uid = context.peer.uid,
        pid = context.peer.pid,
        now = params.now,
        "shutdown was asked for"
    );
    context.daemon.shut_down(urgency);
    let quarantined = if params.wait {
        Some(context.within(params.deadline_ms, context.daemon.ended()).await? as u64)
    } else {
        None
    };
    Ok(results::Shutdown { state: results::DaemonState::Draining, quarantined })
}
