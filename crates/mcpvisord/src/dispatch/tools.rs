//! A session's tools.
use super::access::Access;
use super::progress::Progress;
use crate::connection::Context;
use crate::convert;
use mcpvisor_control::{ErrorKind, ErrorObject, params, results};
use mcpvisor_supervisor::Call;
use serde_json::value::RawValue;
use std::sync::Arc;

pub(super) async fn list(context: Context, params: params::ToolList) -> Result<results::Tools, ErrorObject> {
    let access = Access::of(&context, params.user, &params.key, params.generation, params.token.as_ref())?;
    let tools =
        context.within(params.deadline_ms, context.daemon.supervisor.tools(access.meant.clone())).await?;
    let tools = tools.map_err(|failure| access.error(failure))?;
    Ok(results::Tools {
        tools: tools.tools.iter().map(convert::tool).collect(),
        down: tools.down.iter().map(convert::down).collect(),
    })
}

pub(super) async fn call(context: Context, params: params::ToolCall) -> Result<Box<RawValue>, ErrorObject> {
    let access = Access::of(&context, params.user, &params.key, params.generation, params.token.as_ref())?;
    if params.arguments.as_ref().is_some_and(|arguments| !arguments.get().starts_with('{')) {
        return Err(ErrorObject::new(ErrorKind::InvalidRequest, "the tool's arguments are not an object"));
    }
    let server = params.server.as_ref().map(convert::server_name);
    let requester = context.requester(params.deadline_ms);
    let supervisor = &context.daemon.supervisor;
    let call = |progress| {
        let (tool, arguments) = (params.tool, params.arguments);
        supervisor.call(access.meant.clone(), Call { requester, server, tool, arguments, progress })
    };
    let result = if params.progress {
        let progress = Arc::new(Progress::default());
        progress.told_beside(&context, call(Some(progress.ear()))).await
    } else {
        call(None).await
    };
    result.map_err(|failure| access.error(failure))
}
