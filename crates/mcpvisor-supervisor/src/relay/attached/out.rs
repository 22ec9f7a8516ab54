//! What the client has still to hear.
use super::super::exclusive::End;
use super::super::outbox::{Flush, Outbox};
use super::super::shared::lock;
use std::sync::Mutex;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// A client that takes nothing for so long is cut.
const STALLED: Duration = Duration::from_secs(60);
/// A client that has so much to read is not read itself.
const ENOUGH: usize = 1 << 20;
/// The most lines that wait for a client.
const MOST_LINES: usize = 64 << 10;

/// A client's queue. Whoever has a line for the client pushes and flushes; the writing task does what did not fit.
pub(super) struct Out {
    queue: Mutex<Queue>,
    /// There is something to write that did not fit.
    wake: Notify,
    /// There is room again.
    room: Notify,
    /// The client takes too little, or nobody reads any more.
    broken: Notify,
}

struct Queue {
    outbox: Outbox,
    /// Since when nothing was taken.
    stuck_since: Option<(Instant, u64)>,
    broken: bool,
}

impl Out {
    pub(super) fn new(end: End, most_line: usize) -> Self {
        let outbox = Outbox::new(end, MOST_LINES, most_line.saturating_add(4 << 20));
        Self {
            queue: Mutex::new(Queue { outbox, stuck_since: None, broken: false }),
            wake: Notify::new(),
            room: Notify::new(),
            broken: Notify::new(),
        }
    }

    /// Queues a line. A client for which there is no room is cut.
    pub(super) fn push(&self, line: Vec<u8>) {
        if line.is_empty() {
            return;
        }
        let mut queue = lock(&self.queue);
        if !queue.broken && !queue.outbox.push(line, None) && !queue.outbox.is_closed() {
            tracing::warn!("a client was cut: it does not read what it is told");
            queue.broken = true;
            queue.outbox.abandon();
            self.broken.notify_one();
        }
    }

    /// Writes what fits.
    pub(super) fn flush(&self) {
        let mut queue = lock(&self.queue);
        match queue.outbox.flush() {
            Flush::Idle => {}
            Flush::Blocked(_) => self.wake.notify_one(),
            Flush::Broken(_) => {
                queue.broken = true;
                self.broken.notify_one();
            }
        }
        if queue.outbox.bytes() < ENOUGH {
            self.room.notify_one();
        }
    }

    /// Resolves when the client may be read. For one task. Cancel safe.
    pub(super) async fn room(&self) {
        while lock(&self.queue).outbox.bytes() >= ENOUGH {
            self.room.notified().await;
        }
    }

    /// Resolves when the client can't be told anything any more. For one task. Cancel safe.
    pub(super) async fn broken(&self) {
        while !lock(&self.queue).broken {
            self.broken.notified().await;
        }
    }

    /// Writes what did not fit, as the client takes it; never ends. For one task.
    pub(super) async fn write(&self) {
        loop {
            self.wake.notified().await;
            while let Some(end) = self.blocked() {
                let stuck = lock(&self.queue).stuck_since.map_or_else(Instant::now, |(since, _)| since);
                tokio::select! {
                    () = end.writable() => {}
                    () = tokio::time::sleep_until(stuck + STALLED) => self.stalled(),
                }
            }
        }
    }

    /// Nothing was taken for long, unless it was just now.
    fn stalled(&self) {
        let mut queue = lock(&self.queue);
        let written = queue.outbox.written_total();
        if queue.stuck_since.is_some_and(|(_, before)| before == written) {
            tracing::warn!("a client was cut: it takes nothing");
            queue.broken = true;
            queue.outbox.abandon();
            self.broken.notify_one();
        }
    }

    /// What is written to, unless it is closed.
    pub(super) fn end(&self) -> Option<End> {
        lock(&self.queue).outbox.end()
    }

    /// Resolves when everything is written, or never will be. To be awaited beside [`Out::write`].
    pub(super) async fn written(&self) {
        loop {
            {
                let queue = lock(&self.queue);
                if queue.broken || !queue.outbox.has_lines() {
                    return;
                }
            }
            self.room.notified().await;
        }
    }

    /// Closes the way to the client.
    pub(super) fn close(&self) {
        lock(&self.queue).outbox.abandon();
    }

    /// Writes what fits: where the rest goes.
    fn blocked(&self) -> Option<End> {
        let mut queue = lock(&self.queue);
        let flushed = queue.outbox.flush();
        let left = queue.outbox.bytes();
        if left < ENOUGH {
            self.room.notify_one();
        }
        match flushed {
            Flush::Idle => {
                queue.stuck_since = None;
                None
            }
            Flush::Blocked(end) => {
                // Bytes that are queued meanwhile don't hide that some were taken: what is written is counted, not what is left.
                let written = queue.outbox.written_total();
                match queue.stuck_since {
                    Some((_, before)) if before == written => {}
                    _ => queue.stuck_since = Some((Instant::now(), written)),
                }
                Some(end)
            }
            Flush::Broken(_) => {
                queue.broken = true;
                self.broken.notify_one();
                None
            }
        }
    }
}
