//! Lines on their way to a server or a client.
use super::exclusive::End;
use super::shared::{Shared, lock};
use crate::frames::FrameLog;
use mcpvisor_mcp::RequestNumber;
use std::collections::VecDeque;
use std::io::{ErrorKind, IoSlice};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How long a server may take to read what is queued when its input is being closed.
const PATIENCE: Duration = if cfg!(test) { SLOW } else { Duration::from_millis(100) };
/// The same in unit tests, whose server may get no processor for a while; what they look for is that it ends.
const SLOW: Duration = Duration::from_secs(3);
/// Cancellations and answers to the server may exceed the bounds of calls by this much, so that calls can't crowd them out.
const RESERVED_LINES: usize = 256;
const RESERVED_BYTES: usize = 256 << 10;
/// Lines that are written with one system call.
const AT_ONCE: usize = 64;
/// A queue that has grown beyond this many lines is given back when it is empty.
const KEEP: usize = 64;

/// A bounded queue in front of a pipe or a socket. Whoever does not read fills it, and nobody waits for that.
pub(super) struct Outbox {
    /// None once closed.
    pipe: Option<End>,
    lines: VecDeque<Line>,
    bytes: usize,
    /// Of the first line.
    written: usize,
    /// Of all lines, ever.
    total: u64,
    max_lines: usize,
    max_bytes: usize,
    closing: bool,
    dropped: u64,
    /// Where the lines are noted, if they are.
    frames: Option<FrameLog>,
}

struct Line {
    bytes: Vec<u8>,
    request: Option<RequestNumber>,
}

pub(super) enum Flush {
    /// Everything is written, or there is nothing to write to.
    Idle,
    Blocked(End),
    /// Nobody reads any more; these requests were not written.
    Broken(Vec<RequestNumber>),
}

impl Outbox {
    pub(super) fn new(pipe: End, max_lines: usize, max_bytes: usize) -> Self {
        Self {
            pipe: Some(pipe),
            lines: VecDeque::new(),
            bytes: 0,
            written: 0,
            total: 0,
            max_lines,
            max_bytes,
            closing: false,
            dropped: 0,
            frames: None,
        }
    }

    /// The same in front of a server, whose frames are noted as they are queued.
    pub(super) fn noting(mut self, frames: FrameLog) -> Self {
        self.frames = Some(frames);
        self
    }

    /// Queues a line: a request with its method, or with `None` a line of our own. False if there is no room: a request is then to be refused, and
    /// a line of our own is counted as dropped.
    pub(super) fn push(&mut self, bytes: Vec<u8>, request: Option<(RequestNumber, &str)>) -> bool {
        let (lines, room) = match request {
            Some(_) => (self.max_lines, self.max_bytes),
            None => (self.max_lines + RESERVED_LINES, self.max_bytes + RESERVED_BYTES),
        };
        let fits = self.lines.is_empty() || (self.lines.len() < lines && self.bytes + bytes.len() <= room);
        if !fits || self.pipe.is_none() || self.closing {
            self.dropped += u64::from(request.is_none());
            return false;
        }
        if let Some(frames) = &self.frames {
            match request {
                Some((number, method)) => frames.asked(method, number, bytes.len()),
                None => frames.said(&bytes),
            }
        }
        self.bytes += bytes.len();
        self.lines.push_back(Line { bytes, request: request.map(|(number, _)| number) });
        true
    }

    /// Whether a request of so many bytes would be taken.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        let open = self.pipe.is_some() && !self.closing;
        open && (self.lines.is_empty()
            || (self.lines.len() < self.max_lines && self.bytes + bytes <= self.max_bytes))
    }

    /// Takes a request back that was certainly not written, not even in part.
    pub(super) fn withdraw(&mut self, number: RequestNumber) -> bool {
        let started = usize::from(self.written > 0);
        let found = self.lines.iter().skip(started).position(|line| line.request == Some(number));
        let taken = found.and_then(|at| self.lines.remove(at + started));
        self.bytes -= taken.as_ref().map_or(0, |line| line.bytes.len());
        taken.is_some()
    }

    /// What waits to be written, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn has_lines(&self) -> bool {
        !self.lines.is_empty()
    }

    /// Writes what the pipe takes now.
    pub(super) fn flush(&mut self) -> Flush {
        let Some(pipe) = self.pipe.clone() else { return Flush::Idle };
        while let Some(first) = self.lines.front() {
            let mut slices = [IoSlice::new(&[]); AT_ONCE];
            slices[0] = IoSlice::new(&first.bytes[self.written..]);
            for (slice, line) in slices[1..].iter_mut().zip(self.lines.iter().skip(1)) {
                *slice = IoSlice::new(&line.bytes);
            }
            let count = self.lines.len().min(AT_ONCE);
            match pipe.write_vectored(&slices[..count]) {
                Ok(written) => self.advance(written),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Flush::Blocked(pipe),
                Err(_) => return Flush::Broken(self.abandon()),
            }
        }
        if self.closing {
            self.pipe = None;
        }
        Flush::Idle
    }

    /// No more lines are taken; the pipe is closed as soon as those that are queued are written.
    pub(super) fn close(&mut self) {
        self.closing = true;
    }

    /// Closes the pipe and drops what is queued: the requests among it.
    pub(super) fn abandon(&mut self) -> Vec<RequestNumber> {
        self.pipe = None;
        self.closing = true;
        self.dropped += self.lines.len() as u64;
        (self.bytes, self.written) = (0, 0);
        std::mem::take(&mut self.lines).into_iter().filter_map(|line| line.request).collect()
    }

    pub(super) fn end(&self) -> Option<End> {
        self.pipe.clone()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.pipe.is_none()
    }

    /// Lines that were given up, requests not counted that were refused or withdrawn.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped
    }

    /// What was ever written, in bytes.
    pub(super) fn written_total(&self) -> u64 {
        self.total
    }

    fn advance(&mut self, mut written: usize) {
        self.total += written as u64;
        while let Some(first) = self.lines.front() {
            let left = first.bytes.len() - self.written;
            if written < left {
                self.written += written;
                return;
            }
            written -= left;
            self.bytes -= first.bytes.len();
            self.written = 0;
            self.lines.pop_front();
        }
        if self.lines.capacity() > KEEP {
            self.lines = VecDeque::new();
        }
    }
}

/// The writing task: sleeps but for a server that lags, or whose input is being closed.
pub(super) async fn run(shared: Arc<Shared>) {
    loop {
        shared.wake_writer.notified().await;
        // Boxed, so that a task that sleeps is small.
        Box::pin(write(&shared)).await;
        if lock(&shared.state).outbox.is_closed() {
            return;
        }
    }
}

/// Writes until everything is written, or given up.
async fn write(shared: &Shared) {
    let mut give_up_at = None;
    loop {
        let (pipe, closing) = {
            let mut state = lock(&shared.state);
            let flushed = shared.push_out(&mut state);
            let closing = state.outbox.closing;
            shared.unlock(state);
            let Some(pipe) = flushed else { return };
            (pipe, closing)
        };
        if closing {
            give_up_at.get_or_insert_with(|| Instant::now() + PATIENCE);
        }
        let patience = async {
            match give_up_at {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = pipe.writable() => {}
            () = shared.wake_writer.notified() => {}
            () = patience => {
                lock(&shared.state).outbox.abandon();
                return;
            }
        }
    }
}
