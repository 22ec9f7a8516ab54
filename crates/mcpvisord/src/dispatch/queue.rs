//! An open that waits for a slot, and how its client hears of it.
use super::progress::TURN;
use crate::connection::Context;
use mcpvisor_control::message::notification;
use mcpvisor_control::{method, results};
use serde_json::json;
use std::future::Future;
use tokio::sync::watch;

/// Carries out the open, and tells its client meanwhile where it stands in the queue, at the pace at which it reads.
pub(super) async fn told_beside<T>(
    context: &Context,
    position: Option<watch::Receiver<usize>>,
    open: impl Future<Output = T>,
) -> T {
    let Some(position) = position else { return open.await };
    tokio::select! {
        biased;
        answer = open => answer,
        never = tell(context, position) => match never {},
    }
}

async fn tell(context: &Context, mut position: watch::Receiver<usize>) -> std::convert::Infallible {
    // The sender goes when the open leaves the queue; a connection that is at its end cancels the open.
    while position.changed().await.is_ok() && context.outbox.low().await {
        let told = json!({ "position": *position.borrow_and_update() });
        let note = serde_json::value::to_raw_value(&told).map(|progress| results::ProgressNotification {
            request_id: context.id.clone(),
            progress,
            dropped: 0,
        });
        if let Ok(note) = note
            && let Ok(line) = notification(method::PROGRESS, &note)
        {
            context.outbox.push(line);
        }
        tokio::time::sleep(TURN).await;
    }
    std::future::pending().await
}
