//! A session's tools.
use super::progress::Progress;
use super::target;
use crate::connection::Context;
use crate::convert;
use mcpvisor_control::{ErrorKind, ErrorObject, params, results};
use mcpvisor_supervisor::Call;
use serde_json::value::RawValue;
use std::sync::Arc;

pub(super) async fn list(context: Context, params: params::ToolList) -> Result<results::Tools, ErrorObject> {
    let target = target(&context, params.user, &params.key, params.generation)?;
    let key = target.key.key.clone();
    let tools = context.daemon.supervisor.tools(target).await;
    let tools = tools.map_err(|failure| convert::error(failure, Some(&key)))?;
    Ok(results::Tools {
        tools: tools.tools.iter().map(convert::tool).collect(),
        down: tools.down.iter().map(convert::down).collect(),
    })
}

pub(super) async fn call(context: Context, params: params::ToolCall) -> Result<Box<RawValue>, ErrorObject> {
    let target = target(&context, params.user, &params.key, params.generation)?;
    let key = target.key.key.clone();
    if params.arguments.as_ref().is_some_and(|arguments| !arguments.get().starts_with('{')) {
        return Err(ErrorObject::new(ErrorKind::InvalidRequest, "the tool's arguments are not an object"));
    }
    let server = params.server.as_ref().map(convert::server_name);
    let deadline = context.deadline(params.deadline_ms);
    let supervisor = &context.daemon.supervisor;
    let caller = context.peer.pid;
    let call = |progress| {
        let (tool, arguments) = (params.tool, params.arguments);
        supervisor.call(target, Call { caller, server, tool, arguments, deadline, progress })
    };
    let result = if params.progress {
        let progress = Arc::new(Progress::default());
        progress.told_beside(&context, call(Some(progress.ear()))).await
    } else {
        call(None).await
    };
    result.map_err(|failure| convert::error(failure, Some(&key)))
}
