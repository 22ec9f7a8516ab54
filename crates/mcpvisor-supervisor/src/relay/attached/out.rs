//! What the client has still to hear.
use super::super::exclusive::End;
use super::super::outbox::{Flush, Outbox};
use super::super::shared::lock;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// A client that takes nothing for so long is cut.
const STALLED: Duration = Duration::from_secs(60);
/// A client that has so much to read is not read itself.
const ENOUGH: usize = 1 << 20;
/// The most lines that wait for a client.
const MOST_LINES: usize = 64 << 10;

/// What all clients together may have queued, in bytes, beyond the first 64 KiB of each. A client that takes nothing, and for which more is
/// queued, is cut.
const MOST_TOGETHER: usize = if cfg!(test) { 32 << 20 } else { 512 << 20 };
const FREE: usize = 64 << 10;

/// What is queued for all clients beyond what is free.
static TOGETHER: AtomicUsize = AtomicUsize::new(0);

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
    /// It takes too little, and was cut for it.
    cut: bool,
    /// Its part of what all have queued.
    counted: usize,
}

impl Queue {
    /// Counts what is queued now among that of all clients; whether there is room for it.
    fn count(&mut self) -> bool {
        let now = self.outbox.bytes().saturating_sub(FREE);
        let before = std::mem::replace(&mut self.counted, now);
        match now.checked_sub(before) {
            Some(0) => true,
            Some(more) => TOGETHER.fetch_add(more, Relaxed) + more <= MOST_TOGETHER,
            None => {
                TOGETHER.fetch_sub(before - now, Relaxed);
                true
            }
        }
    }

    fn cut(&mut self, why: &str) {
        tracing::warn!("a client was cut: {why}");
        (self.broken, self.cut) = (true, true);
        self.outbox.abandon();
        self.count();
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.outbox.abandon();
        self.count();
    }
}

impl Out {
    pub(super) fn new(end: End, most_line: usize) -> Self {
        let outbox = Outbox::new(end, MOST_LINES, most_line.saturating_add(4 << 20));
        Self {
            queue: Mutex::new(Queue { outbox, stuck_since: None, broken: false, cut: false, counted: 0 }),
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
        if queue.broken || queue.outbox.is_closed() {
            return;
        }
        if !queue.outbox.push(line, None) {
            queue.cut("it does not read what it is told");
            self.broken.notify_one();
        } else if !queue.count() && queue.stuck_since.is_some() {
            queue.cut("it does not read what it is told, and too much is kept for all such clients");
            self.broken.notify_one();
        }
    }

    /// It was cut because it took too little.
    pub(super) fn was_cut(&self) -> bool {
        lock(&self.queue).cut
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
        queue.count();
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
            // Boxed, since mostly there is nothing that did not fit.
            Box::pin(self.write_rest()).await;
        }
    }

    async fn write_rest(&self) {
        while let Some(end) = self.blocked() {
            let stuck = lock(&self.queue).stuck_since.map_or_else(Instant::now, |(since, _)| since);
            tokio::select! {
                () = end.writable() => {}
                () = tokio::time::sleep_until(stuck + STALLED) => self.stalled(),
            }
        }
    }

    /// Nothing was taken for long, unless it was just now.
    fn stalled(&self) {
        let mut queue = lock(&self.queue);
        let written = queue.outbox.written_total();
        if queue.stuck_since.is_some_and(|(_, before)| before == written) {
            queue.cut("it takes nothing");
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
        let mut queue = lock(&self.queue);
        queue.outbox.abandon();
        queue.count();
    }

    /// Writes what fits: where the rest goes.
    fn blocked(&self) -> Option<End> {
        let mut queue = lock(&self.queue);
        let flushed = queue.outbox.flush();
        queue.count();
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

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::pipe::{PipeFlags, pipe_with};
    use std::sync::Arc;

    /// G39, G43: clients that do not read are cut as soon as too much is queued for all of them, one that reads is not, and what was queued is
    /// given back.
    #[tokio::test]
    async fn g39_what_all_stalled_clients_hold_is_bounded() {
        let client = || {
            let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).unwrap();
            (read, Arc::new(Out::new(End::writing(write).unwrap(), 1 << 20)))
        };
        let mut clients = Vec::new();
        for _ in 0..16 {
            let (read, out) = client();
            let writing = Arc::clone(&out);
            let task = tokio::spawn(async move { writing.write().await });
            out.push(vec![b'x'; 1 << 20]);
            out.flush();
            while lock(&out.queue).stuck_since.is_none() {
                tokio::task::yield_now().await;
            }
            out.push(vec![b'x'; 2 << 20]);
            clients.push((read, out, task));
        }
        let cut = clients.iter().filter(|(_, out, _)| out.was_cut()).count();
        assert!((4..=8).contains(&cut), "{cut} of 16, with 3 MiB each and 32 MiB for all");
        assert!(TOGETHER.load(Relaxed) <= MOST_TOGETHER);
        let (_read, reads) = client();
        reads.push(vec![b'x'; 1 << 20]);
        assert!(!reads.was_cut(), "nobody knows yet that it does not read");
        for (_, out, task) in clients {
            task.abort();
            out.close();
        }
        drop(reads);
        assert_eq!(TOGETHER.load(Relaxed), 0);
    }
}
