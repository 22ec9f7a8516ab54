//! From a method's name to its handler, with an audit record of each request.
mod access;
mod approvals;
mod attach;
mod daemon;
mod events;
mod inspect;
mod logs;
mod open;
mod progress;
mod queue;
mod repeat;
mod server;
mod session;
mod tools;

pub(crate) use attach::{Attaching, begin as begin_attach};
pub(crate) use repeat::Answers;

use crate::connection::Context;
use crate::convert;
use crate::wire::Descriptors;
use mcpvisor_control::{Call, ErrorKind, ErrorObject, Method, SessionKey, parse_params};
use mcpvisor_lifecycle::registry::Target;
use mcpvisor_lifecycle::{Generation, KeyRef};
use serde_json::value::RawValue;
use std::future::Future;

/// Does what a request asks for. `descriptors` are for the one method that takes any; else they are closed.
///
/// Dropping the future gives the request up: an open that waits is cancelled, a call too; anything else goes on without its
/// requester (G14).
pub(crate) async fn handle(
    context: Context,
    name: &str,
    params: Option<&RawValue>,
    descriptors: Descriptors,
) -> Result<Box<RawValue>, ErrorObject> {
    let audit = context.clone();
    let result = match Method::from_name(name) {
        Some(method) => dispatch(context, method, params, descriptors).await,
        None => Err(ErrorObject::new(ErrorKind::InvalidRequest, format!("there is no method {name:?}"))
            .with("help", "docs/control-protocol.md lists the methods")),
    };
    record(&audit, name, result.as_ref().err());
    result
}

async fn dispatch(
    context: Context,
    method: Method,
    params: Option<&RawValue>,
    descriptors: Descriptors,
) -> Result<Box<RawValue>, ErrorObject> {
    let c = context;
    match method {
        Method::DaemonHello => call(params, |p| daemon::hello(c, p)).await,
        Method::DaemonStatus => call(params, |p| daemon::status(c, p)).await,
        Method::DaemonDrain => call(params, |p| daemon::drain(c, p)).await,
        Method::DaemonReload => call(params, |p| daemon::reload(c, p)).await,
        Method::DaemonShutdown => call(params, |p| daemon::shutdown(c, p)).await,
        Method::SessionOpen => call(params, |p| open::open(c, p, descriptors)).await,
        Method::SessionClose => call(params, |p| session::close(c, p)).await,
        Method::SessionWait => call(params, |p| session::wait(c, p)).await,
        Method::SessionList => call(params, |p| inspect::list(c, p)).await,
        Method::SessionShow => call(params, |p| inspect::show(c, p)).await,
        Method::SessionKill => call(params, |p| session::kill(c, p)).await,
        Method::ToolList => call(params, |p| tools::list(c, p)).await,
        Method::ToolCall => call(params, |p| tools::call(c, p)).await,
        Method::ProcessList => call(params, |p| inspect::processes(c, p)).await,
        Method::LogRead => call(params, |p| logs::read(c, p)).await,
        Method::EventSubscribe => call(params, |p| events::subscribe(c, p)).await,
        Method::ApprovalList => call(params, |p| approvals::list(c, p)).await,
        Method::ApprovalDecide => call(params, |p| approvals::decide(c, p)).await,
        Method::SessionAttach => call(params, |p| attach::attach(c, p, descriptors)).await,
        Method::ServerAdd => call(params, |p| server::add(c, p)).await,
        Method::ServerRemove => call(params, |p| server::remove(c, p)).await,
        Method::ServerRestart => call(params, |p| server::restart(c, p)).await,
    }
}

/// Understands the parameters, runs the handler, tells its answer in JSON.
async fn call<P, F>(
    params: Option<&RawValue>,
    handler: impl FnOnce(P) -> F,
) -> Result<Box<RawValue>, ErrorObject>
where
    P: Call,
    F: Future<Output = Result<P::Answer, ErrorObject>>,
{
    let answer = handler(parse_params::<P>(params)?).await?;
    serde_json::value::to_raw_value(&answer)
        .map_err(|error| ErrorObject::new(ErrorKind::Internal, format!("the answer can't be told: {error}")))
}

/// One line per request: who asked for what, and what came of it.
fn record(context: &Context, method: &str, error: Option<&ErrorObject>) {
    let (uid, pid) = (context.peer.uid, context.peer.pid);
    let result = error.map_or("ok", |error| error.kind().as_str());
    let ms = u64::try_from(context.read_at.elapsed().as_millis()).unwrap_or(u64::MAX);
    let cause = error.map(|error| error.message.as_str());
    tracing::debug!(uid, pid, method, result, cause, ms, "request");
}

/// The session that a request means.
fn target(
    context: &Context,
    user: Option<u32>,
    key: &SessionKey,
    generation: Option<u64>,
) -> Result<Target, ErrorObject> {
    let uid = context.daemon.rights().owner(&context.peer, user)?;
    let key = KeyRef { uid, key: convert::key_name(key) };
    Ok(Target { key, generation: generation.map(Generation) })
}
