//! The progress of a call, on its way to the client that made it.
//!
//! The server may tell of it as often as it likes. What comes is kept in a short queue, whose oldest makes room, and goes out in
//! turns, at the pace at which the client reads: a flood costs neither memory nor the client's patience (G39).
use crate::connection::Context;
use crate::outbox::Outbox;
use mcpvisor_control::message::notification;
use mcpvisor_control::{Id, method, results};
use serde_json::value::RawValue;
use std::collections::VecDeque;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// The most that wait, and the most of their bytes.
const MOST: usize = 32;
const MOST_BYTES: usize = 64 << 10;
/// From one turn to the next: what is told moves faster than anybody reads.
pub(super) const TURN: Duration = Duration::from_millis(50);

/// What one call's server has told and its client has not heard.
#[derive(Debug, Default)]
pub(super) struct Progress {
    queue: Mutex<Queue>,
    came: Notify,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Box<RawValue>>,
    bytes: usize,
    /// Since the last that went out.
    dropped: u64,
}

impl Progress {
    /// What the supervisor tells.
    pub(super) fn ear(self: &Arc<Self>) -> mcpvisor_supervisor::Progress {
        let progress = Arc::clone(self);
        Arc::new(move |params| {
            progress.queue().push(params);
            progress.came.notify_one();
        })
    }

    /// Carries out the call, and tells its client meanwhile. What came before the answer is told before it.
    pub(super) async fn told_beside<T>(&self, context: &Context, call: impl Future<Output = T>) -> T {
        let (outbox, id) = (&context.outbox, &context.id);
        let answer = tokio::select! {
            biased;
            answer = call => answer,
            never = self.tell(outbox, id) => match never {},
        };
        if outbox.is_low() {
            self.queue().send(outbox, id);
        }
        answer
    }

    async fn tell(&self, outbox: &Outbox, id: &Id) -> std::convert::Infallible {
        loop {
            self.came.notified().await;
            if !outbox.low().await {
                // The connection is at its end, which cancels the call.
                return std::future::pending().await;
            }
            self.queue().send(outbox, id);
            tokio::time::sleep(TURN).await;
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    fn push(&mut self, params: &RawValue) {
        let bytes = params.get().len();
        if bytes > MOST_BYTES {
            self.dropped += 1;
            return;
        }
        while self.waiting.len() >= MOST || self.bytes + bytes > MOST_BYTES {
            let Some(oldest) = self.waiting.pop_front() else { break };
            self.bytes -= oldest.get().len();
            self.dropped += 1;
        }
        self.bytes += bytes;
        self.waiting.push_back(params.to_owned());
    }

    fn send(&mut self, outbox: &Outbox, id: &Id) {
        self.bytes = 0;
        for progress in std::mem::take(&mut self.waiting) {
            let dropped = std::mem::take(&mut self.dropped);
            let note = results::ProgressNotification { request_id: id.clone(), progress, dropped };
            if let Ok(line) = notification(method::PROGRESS, &note) {
                outbox.push(line);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn raw(value: &Value) -> Box<RawValue> {
        serde_json::value::to_raw_value(value).unwrap()
    }

    fn told(outbox: &Outbox) -> Vec<Value> {
        let lines = outbox.queued();
        lines.iter().map(|line| serde_json::from_slice::<Value>(line).unwrap()["params"].clone()).collect()
    }

    #[test]
    fn a_flood_is_thinned_and_counted_and_the_newest_is_told() {
        let mut queue = Queue::default();
        for at in 0..1000 {
            queue.push(&raw(&json!({"progress": at})));
        }
        let outbox = Outbox::new(1 << 20);
        queue.send(&outbox, &Id::Number(7));
        let told = told(&outbox);
        assert_eq!(told.len(), MOST);
        assert_eq!(told[0], json!({"requestId": 7, "progress": {"progress": 968}, "dropped": 968}));
        assert_eq!(told[MOST - 1], json!({"requestId": 7, "progress": {"progress": 999}}));
        assert_eq!((queue.bytes, queue.waiting.len()), (0, 0));
    }

    #[test]
    fn long_ones_are_bounded_by_their_bytes() {
        let mut queue = Queue::default();
        let long = |size: usize| raw(&json!({"message": "x".repeat(size)}));
        queue.push(&long(MOST_BYTES));
        assert_eq!((queue.waiting.len(), queue.dropped), (0, 1), "it is too long by itself");
        for _ in 0..5 {
            queue.push(&long(20 << 10));
        }
        assert_eq!((queue.waiting.len(), queue.dropped), (3, 3));
        assert!(queue.bytes <= MOST_BYTES);
    }

    #[tokio::test]
    async fn what_comes_is_told_at_once_and_the_rest_in_turns() {
        let progress = Arc::new(Progress::default());
        let (outbox, id) = (Outbox::new(1 << 20), Id::Number(1));
        let hear = progress.ear();
        let telling = {
            let (progress, outbox, id) = (Arc::clone(&progress), outbox.clone(), id.clone());
            tokio::spawn(async move { progress.tell(&outbox, &id).await })
        };
        let reaches = async |count: usize| {
            let until = async {
                while told(&outbox).len() < count {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            };
            tokio::time::timeout(Duration::from_secs(10), until).await.unwrap();
        };
        hear(&raw(&json!(1)));
        reaches(1).await;
        let begin = std::time::Instant::now();
        for at in 0..100 {
            hear(&raw(&json!(at)));
        }
        reaches(1 + MOST).await;
        assert!(begin.elapsed() >= TURN / 2, "they wait for their turn");
        assert_eq!(told(&outbox).len(), 1 + MOST);
        assert_eq!(told(&outbox)[1]["dropped"], 100 - MOST);
        telling.abort();
    }
}
