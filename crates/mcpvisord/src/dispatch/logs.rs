//! What servers wrote to stderr.
use super::target;
use crate::connection::Context;
use crate::convert;
use mcpvisor_control::message::notification;
use mcpvisor_control::{ErrorObject, method, params, results};

/// With `follow`, the lines go out as notifications, at the pace at which the client reads them: what it is too slow for is dropped at
/// the source, and counted there (G39).
pub(super) async fn read(
    context: Context,
    params: params::LogRead,
) -> Result<results::LogLines, ErrorObject> {
    let target = target(&context, params.user, &params.key, params.generation)?;
    let key = target.key.key.clone();
    let server = params.server.as_ref().map(convert::server_name);
    let most = params.lines.map_or(usize::MAX, |lines| usize::try_from(lines).unwrap_or(usize::MAX));
    let lines = context.daemon.supervisor.logs(target, server, most, params.follow).await;
    let mut lines = lines.map_err(|failure| convert::error(failure, Some(&key)))?;
    let mut all = Vec::new();
    while let Some(line) = lines.recv().await {
        let line = convert::log_line(&line);
        if !params.follow {
            all.push(line);
            continue;
        }
        let note = results::LogNotification { request_id: context.id.clone(), line };
        if let Ok(bytes) = notification(method::LOG, &note) {
            context.outbox.push(bytes);
        }
        if !context.outbox.low().await {
            break;
        }
    }
    Ok(results::LogLines { lines: all })
}
