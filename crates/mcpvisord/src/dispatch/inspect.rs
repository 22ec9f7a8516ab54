//! What there is: sessions, processes.
use super::target;
use crate::connection::Context;
use crate::convert;
use mcpvisor_control::{ErrorObject, params, results};
use mcpvisor_lifecycle::Uid;

/// Whose: one user's, or everyone's.
pub(super) fn whose(
    context: &Context,
    user: Option<u32>,
    all_users: bool,
) -> Result<Option<Uid>, ErrorObject> {
    if all_users {
        context.daemon.rights().everyone(&context.peer)?;
        return Ok(None);
    }
    context.daemon.rights().owner(&context.peer, user).map(Some)
}

pub(super) async fn list(
    context: Context,
    params: params::SessionList,
) -> Result<results::Sessions, ErrorObject> {
    let of = whose(&context, params.user, params.all_users)?;
    let mut views = context.daemon.supervisor.list(of).await;
    views.sort_by(|a, b| (&a.key, a.owner).cmp(&(&b.key, b.owner)));
    let queued =
        context.daemon.supervisor.queued(of).await.map_err(|failure| convert::error(failure, None))?;
    Ok(results::Sessions {
        sessions: views.iter().map(convert::session).collect(),
        queued: queued.iter().map(convert::queued).collect(),
    })
}

pub(super) async fn show(
    context: Context,
    params: params::SessionShow,
) -> Result<results::Session, ErrorObject> {
    let target = target(&context, params.user, &params.key, params.generation)?;
    let key = target.key.key.clone();
    let view = context.daemon.supervisor.show(target, params.frames).await;
    view.map(|view| convert::session(&view)).map_err(|failure| convert::error(failure, Some(&key)))
}

pub(super) async fn processes(
    context: Context,
    params: params::ProcessList,
) -> Result<results::Processes, ErrorObject> {
    let of = whose(&context, params.user, params.all_users)?;
    let target = match &params.key {
        Some(key) => Some(target(&context, params.user, key, params.generation)?),
        None => None,
    };
    let key = target.as_ref().map(|target| target.key.key.clone());
    let processes = context.daemon.supervisor.processes(of, target).await;
    let mut processes = processes.map_err(|failure| convert::error(failure, key.as_ref()))?;
    processes.sort_by(|a, b| {
        (&a.key, a.generation, &a.server, a.pid).cmp(&(&b.key, b.generation, &b.server, b.pid))
    });
    Ok(results::Processes { processes: processes.iter().map(convert::process).collect() })
}
