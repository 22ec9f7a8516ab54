//! Closing, waiting, killing again.
use super::repeat::{self, Asked};
use super::target;
use crate::connection::Context;
use crate::convert;
use mcpvisor_control::{ErrorObject, SessionKey, params, results};
use mcpvisor_failpoints::{self as failpoints, Gate};
use mcpvisor_lifecycle::SessionId;
use mcpvisor_lifecycle::registry::{CloseOptions, Goal, Target};
use mcpvisor_supervisor::{Certificate, Failure};
use std::sync::Arc;
use std::time::Duration;

pub(super) async fn close(
    context: Context,
    params: params::SessionClose,
) -> Result<results::CloseResults, ErrorObject> {
    failpoints::pass(Gate::CloseDispatched).await;
    let target = target(&context, params.user, &params.key, params.generation)?;
    let options = CloseOptions { drain: params.drain_ms.map(Duration::from_millis), now: params.now };
    let (uid, pid) = (context.peer.uid, context.peer.pid);
    tracing::info!(session = %params.key, generation = params.generation, uid, pid, now = params.now, "close asked for");
    let deadline = context.deadline(params.deadline_ms);
    let supervisor = context.daemon.supervisor.clone();
    let (key, wait) = (params.key.clone(), params.wait);
    let Some(id) = params.request_id.clone() else {
        let closed = supervisor.close(target.clone(), options, wait, deadline).await;
        return report(closed, &key, &target);
    };
    // The work outlasts each requester's patience, as the teardown does.
    let asked = Asked { id, owner: target.key.uid, goes_on: true, deadline };
    let work = async move {
        let closed = supervisor.close(target.clone(), options, wait, None).await;
        (report(closed, &key, &target), None)
    };
    repeat::once(&context, asked, &params, work).await
}

pub(super) async fn kill(
    context: Context,
    params: params::SessionKill,
) -> Result<results::CloseResults, ErrorObject> {
    let target = target(&context, params.user, &params.key, params.generation)?;
    let (uid, pid) = (context.peer.uid, context.peer.pid);
    tracing::info!(session = %params.key, generation = params.generation, uid, pid, "kill asked for");
    let deadline = context.deadline(params.deadline_ms);
    let killed = context.daemon.supervisor.retry_kill(target.clone(), deadline).await;
    killed
        .map(|certificate| results::CloseResults { results: vec![convert::close_report(&certificate)] })
        .map_err(|failure| convert::error(failure, Some(&target.key.key)))
}

/// An unknown key is an outcome of a close, as of each of a batch, and not an error.
fn report(
    closed: Result<Arc<Certificate>, Failure>,
    key: &SessionKey,
    target: &Target,
) -> Result<results::CloseResults, ErrorObject> {
    let report = match closed {
        Ok(certificate) => convert::close_report(&certificate),
        Err(Failure::NotFound) => {
            let generation = target.generation.map(|generation| generation.0);
            results::CloseReport::without_end(key.clone(), generation, results::CloseOutcome::NotFound)
        }
        Err(failure) => return Err(convert::error(failure, Some(&target.key.key))),
    };
    Ok(results::CloseResults { results: vec![report] })
}

pub(super) async fn wait(
    context: Context,
    params: params::SessionWait,
) -> Result<results::Waited, ErrorObject> {
    let target = target(&context, params.user, &params.key, params.generation)?;
    let key = target.key.key.clone();
    let goal = match params.goal {
        params::Goal::Closed => Goal::Closed,
        params::Goal::Ready => Goal::Ready,
    };
    let deadline = context.deadline(params.deadline_ms);
    let uid = target.key.uid;
    let waited = context.daemon.supervisor.wait(target, goal, deadline).await;
    if let Ok(waited) = &waited
        && let session = (SessionId { uid, generation: waited.generation })
        && context.leases.holds(session)
    {
        // A shim leaves when its client has everything.
        context.daemon.supervisor.delivered(session).await;
    }
    waited.map(|waited| convert::waited(&waited)).map_err(|failure| convert::error(failure, Some(&key)))
}
