//! Closing, waiting, killing again.
use super::repeat::{self, Asked};
use super::target;
use crate::connection::{Context, Turn};
use crate::convert;
use mcpvisor_control::{ErrorObject, SessionKey, params, results};
use mcpvisor_failpoints::{self as failpoints, Gate};
use mcpvisor_lifecycle::registry::{CloseOptions, Goal, Target};
use mcpvisor_lifecycle::{Generation, SessionId, SessionKey as SessionName};
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
        let close = supervisor.close(target.clone(), options, wait, deadline);
        let closed = Turn::in_turn(context.turn().await, close).await;
        return report(closed, &key, &target);
    };
    // The work outlasts each requester's patience, as the teardown does.
    let asked = Asked { id, owner: target.key.uid, goes_on: true, deadline };
    let worker = context.clone();
    let work = async move {
        let close = supervisor.close(target.clone(), options, wait, None);
        let closed = Turn::in_turn(worker.turn().await, close).await;
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
    let kill = context.daemon.supervisor.retry_kill(target.clone(), deadline);
    let killed = Turn::in_turn(context.turn().await, kill).await;
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
    let supervisor = &context.daemon.supervisor;
    let named = target.generation;
    let mut waited = supervisor.wait(target, goal, deadline).await;
    let meant = waited.as_ref().ok().map(|waited| waited.generation).or(named);
    if let Some(kept) = meant.and_then(|generation| context.leases.kept(SessionId { uid, generation })) {
        // A shim learns of its server's end also where others ended since and that is not remembered any more.
        if waited.is_err()
            && goal == Goal::Closed
            && let Some(ended) = supervisor.ended(&kept)
        {
            waited = Ok(ended);
        }
        // It leaves when its client has everything.
        if waited.is_ok() {
            supervisor.delivered(&kept).await;
        }
    }
    waited.map(|waited| convert::waited(&waited)).map_err(|failure| not_waited(failure, &key, named))
}

/// A generation that is not known may be one that has ended and is not remembered any more, while another one holds the key.
fn not_waited(failure: Failure, key: &SessionName, named: Option<Generation>) -> ErrorObject {
    let unknown = matches!(failure, Failure::NotFound);
    let mut error = convert::error(failure, Some(key));
    if let Some(Generation(generation)) = named.filter(|_| unknown) {
        error.message =
            format!("generation {generation} of session {key} is not known, or not remembered any more");
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generation_that_is_not_remembered_is_named() {
        let key = SessionName::new("a").unwrap();
        let told = |named| not_waited(Failure::NotFound, &key, named);
        assert_eq!(told(None).message, "there is no session a");
        let forgotten = told(Some(Generation(1)));
        assert!(forgotten.message.starts_with("generation 1 of session a is not known"), "{forgotten:?}");
        assert_eq!(forgotten.kind(), mcpvisor_control::ErrorKind::NotFound);
    }
}
