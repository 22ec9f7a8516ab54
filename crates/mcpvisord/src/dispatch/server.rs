//! Changes of a live session's servers.
use super::repeat::{self, Asked, Worked};
use super::target;
use crate::connection::Context;
use crate::convert;
use crate::resolve;
use mcpvisor_control::params::{ServerAdd, ServerRemove, ServerRestart, SessionOpen};
use mcpvisor_control::results::{ServerChanged, ServerRemoved};
use mcpvisor_control::{ErrorKind, ErrorObject, ServerName, SessionKey};
use mcpvisor_failpoints::{self as failpoints, Gate};
use mcpvisor_lifecycle::Uid;
use mcpvisor_lifecycle::registry::Target;
use mcpvisor_supervisor::{Changed, Failure, ServerSpec, Undo};
use std::time::{Duration, Instant};

pub(super) async fn add(context: Context, params: ServerAdd) -> Result<ServerChanged, ErrorObject> {
    failpoints::pass(Gate::ChangeDispatched).await;
    let target = target(&context, params.user, &params.key, params.generation)?;
    let deadline = context.deadline(params.deadline_ms);
    let Some(id) = params.request_id.clone() else {
        return add_once(context, target, params, deadline).await.0;
    };
    // Each requester has a patience of its own.
    let asked = Asked { id, owner: target.key.uid, goes_on: false, deadline };
    let (worker, asks) = (context.clone(), params.clone());
    repeat::once(&context, asked, &params, add_once(worker, target, asks, None)).await
}

async fn add_once(
    context: Context,
    target: Target,
    params: ServerAdd,
    deadline: Option<Instant>,
) -> Worked<ServerChanged> {
    let (key, name) = (params.key.clone(), params.server.name.clone());
    let spec = match defined(&context, target.key.uid, params).await {
        Ok(spec) => spec,
        Err(error) => return (Err(error), None),
    };
    failpoints::pass(Gate::AddResolved).await;
    // Dropping this future, when the requester gives up or goes away, undoes the add.
    let supervisor = context.daemon.supervisor.clone();
    let added = supervisor.add_server(target, spec, deadline, context.turn().await).await;
    let done = added.as_ref().ok().cloned();
    let undo = done.map(|done| -> Undo { Box::new(move || supervisor.unheard_add(&done)) });
    (changed(&context, "add", &key, &name, added), undo)
}

/// The server of an add, whole.
async fn defined(context: &Context, owner: Uid, params: ServerAdd) -> Result<ServerSpec, ErrorObject> {
    let (daemon, open) = (&context.daemon, as_open(params));
    let resolved = resolve::servers(&daemon.config(), &daemon.rights(), &context.peer, owner, &open).await?;
    let [spec] = <[_; 1]>::try_from(resolved.servers).map_err(|_| {
        ErrorObject::new(ErrorKind::Internal, "the definition of one server gave another number of them")
    })?;
    Ok(spec)
}

/// Who may run what, and as whom, is the same as for an open.
fn as_open(params: ServerAdd) -> SessionOpen {
    let mut server = params.server;
    server.required.get_or_insert(false);
    SessionOpen {
        user: params.user,
        servers: vec![server],
        environment: params.environment,
        cwd: params.cwd,
        umask: params.umask,
        resource_limits: params.resource_limits,
        nice: params.nice,
        ignored_signals: params.ignored_signals,
        ..SessionOpen::default()
    }
}

pub(super) async fn remove(context: Context, params: ServerRemove) -> Result<ServerRemoved, ErrorObject> {
    failpoints::pass(Gate::ChangeDispatched).await;
    let target = target(&context, params.user, &params.key, params.generation)?;
    let (drain, deadline) =
        (params.drain_ms.map(Duration::from_millis), context.deadline(params.deadline_ms));
    let name = convert::server_name(&params.name);
    let removed =
        context.daemon.supervisor.remove_server(target, name, drain, deadline, context.turn().await).await;
    audit(&context, "remove", &params.key, &params.name, removed.as_ref().err());
    let removed = told(&params.key, removed)?;
    let server = removed.certificate.as_ref().map(convert::ended_server);
    Ok(ServerRemoved {
        key: params.key,
        generation: removed.session.generation.0,
        state: convert::session_state(removed.session.state),
        proof: removed.proof.map(convert::proof),
        server: server.ok_or_else(unknown)?,
    })
}

pub(super) async fn restart(context: Context, params: ServerRestart) -> Result<ServerChanged, ErrorObject> {
    failpoints::pass(Gate::ChangeDispatched).await;
    let target = target(&context, params.user, &params.key, params.generation)?;
    let (drain, deadline) =
        (params.drain_ms.map(Duration::from_millis), context.deadline(params.deadline_ms));
    let name = convert::server_name(&params.name);
    let restarted =
        context.daemon.supervisor.restart_server(target, name, drain, deadline, context.turn().await).await;
    changed(&context, "restart", &params.key, &params.name, restarted)
}

fn changed(
    context: &Context,
    what: &str,
    key: &SessionKey,
    name: &ServerName,
    changed: Result<Changed, Failure>,
) -> Result<ServerChanged, ErrorObject> {
    audit(context, what, key, name, changed.as_ref().err());
    let changed = told(key, changed)?;
    Ok(ServerChanged {
        key: key.clone(),
        generation: changed.session.generation.0,
        state: convert::session_state(changed.session.state),
        server: changed.server.as_ref().map(convert::server).ok_or_else(unknown)?,
    })
}

fn told(key: &SessionKey, changed: Result<Changed, Failure>) -> Result<Changed, ErrorObject> {
    changed.map_err(|failure| convert::error(failure, Some(&convert::key_name(key))))
}

fn unknown() -> ErrorObject {
    ErrorObject::new(ErrorKind::Internal, "a server was changed, and is not known")
}

fn audit(context: &Context, what: &str, key: &SessionKey, name: &ServerName, failure: Option<&Failure>) {
    let (uid, pid) = (context.peer.uid, context.peer.pid);
    let cause = failure.map(tracing::field::display);
    tracing::info!(session = %key, server = %name, uid, pid, cause, "server {what} asked for");
}
