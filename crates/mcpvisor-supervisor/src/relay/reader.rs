//! Reading what the server writes.
use super::attached::Attached;
use super::scratch;
use super::shared::{Later, Shared, Waiter, lock};
use mcpvisor_mcp::peer::PlainAnswer;
use mcpvisor_mcp::{Answer, Frame, Framer, Message};
use smallvec::smallvec;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;
use tokio::net::unix::pipe;

/// Bytes that are read before other tasks get their turn.
const TURN: usize = 1 << 20;
/// The most that is read once the server is gone: no pipe holds more, unless an escaped process goes on writing.
const LAST_BYTES: usize = 1 << 20;

pub(super) struct Reader {
    /// None after the end.
    pipe: Option<Arc<pipe::Receiver>>,
    framer: Framer,
    on_end: Option<Box<dyn FnOnce() + Send>>,
}

enum Pumped {
    Empty,
    More,
    Ended,
}

impl Reader {
    pub(super) fn new(pipe: Arc<pipe::Receiver>, max_line: usize, on_end: Box<dyn FnOnce() + Send>) -> Self {
        Self { pipe: Some(pipe), framer: Framer::new(max_line), on_end: Some(on_end) }
    }

    #[cfg(test)]
    pub(super) fn buffered(&self) -> usize {
        self.framer.buffered()
    }
}

/// The reading task.
pub(super) async fn run(shared: Arc<Shared>, pipe: Arc<pipe::Receiver>) {
    loop {
        let pumped = match pipe.readable().await {
            Ok(()) => shared.take_turn(),
            Err(_) => Pumped::Ended,
        };
        match pumped {
            Pumped::Empty => {}
            Pumped::More => tokio::task::yield_now().await,
            Pumped::Ended => break,
        }
    }
    drop(pipe);
    if let Some(on_end) = shared.reading_ended() {
        on_end();
    }
}

impl Shared {
    fn take_turn(&self) -> Pumped {
        self.pump(&mut lock(&self.reader), TURN, |pipe, buffer| pipe.try_read(buffer))
    }

    /// Fails what is pending; whom to tell, the first time.
    fn reading_ended(&self) -> Option<Box<dyn FnOnce() + Send>> {
        let mut reader = lock(&self.reader);
        self.close_reader(&mut reader);
        let mut state = lock(&self.state);
        self.output_ended(&mut state);
        self.unlock(state);
        reader.on_end.take()
    }

    /// Delivers what the server has still written, and closes its output.
    pub(super) fn finish_reading(&self) {
        let mut reader = lock(&self.reader);
        reader.on_end = None;
        // Read past the runtime, which may not have heard of this data yet.
        self.pump(&mut reader, LAST_BYTES, |pipe, buffer| rustix::io::read(pipe, buffer).map_err(Into::into));
        self.close_reader(&mut reader);
    }

    fn close_reader(&self, reader: &mut Reader) {
        reader.pipe = None;
        lock(&self.state).torn_bytes += reader.framer.finish();
    }

    fn pump(
        &self,
        reader: &mut Reader,
        mut budget: usize,
        read: impl Fn(&pipe::Receiver, &mut [u8]) -> io::Result<usize>,
    ) -> Pumped {
        let Some(pipe) = reader.pipe.clone() else { return Pumped::Ended };
        scratch::with(|buffer| {
            while budget > 0 {
                match read(&pipe, buffer) {
                    Ok(0) => return Pumped::Ended,
                    Ok(count) => {
                        self.heard.store(true, Ordering::Relaxed);
                        self.feed(&mut reader.framer, &buffer[..count]);
                        budget = budget.saturating_sub(count);
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Pumped::Empty,
                    Err(_) => return Pumped::Ended,
                }
            }
            Pumped::More
        })
    }

    /// An answer to a client's call needs no more than its head to be passed on.
    fn pass_plainly(&self, now: Instant, line: &[u8], heard: &mut Option<Arc<Attached>>) -> bool {
        let Some(plain) = PlainAnswer::read(line) else { return false };
        let taken = lock(&self.state).peer.take_plain(&plain, |waiter| matches!(waiter, Waiter::Client(..)));
        let Some(Waiter::Client(client, call)) = taken else { return false };
        self.frames.answered(now, plain.raw_id, line.len() + 1);
        let answer = Answer::Unread { line, raw_id: plain.raw_id };
        let later = smallvec![Later::Answered(client, call, answer)];
        self.tell_client(later, heard);
        true
    }

    fn feed(&self, framer: &mut Framer, mut input: &[u8]) {
        let (mut heard, now) = (None, Instant::now());
        while let Some(frame) = framer.next_frame(&mut input) {
            // A line is parsed before the lock is taken, so that a big one keeps no caller from making its call; and what is for a client
            // is told after it, since its lock is never taken under this one.
            match frame {
                Frame::Line(line) => {
                    if self.pass_plainly(now, line, &mut heard) {
                        continue;
                    }
                    let message = Message::parse(line);
                    self.frames.heard(now, &message, line.len() + 1);
                    let mut state = lock(&self.state);
                    let events = state.peer.handle_message(&message, line);
                    let later = self.handle(&mut state, events);
                    self.unlock(state);
                    self.tell_client(later, &mut heard);
                }
                Frame::TooLong(over) => {
                    self.frames.too_long(over.bytes);
                    let mut state = lock(&self.state);
                    let events = state.peer.handle_too_long(&over, self.options.max_line);
                    let later = self.handle(&mut state, events);
                    self.unlock(state);
                    self.tell_client(later, &mut heard);
                }
            }
        }
        if let Some(client) = heard {
            client.flush();
        }
        let mut state = lock(&self.state);
        if state.outbox.has_lines() || state.peer.queued() > 0 {
            self.write(&mut state);
        }
        self.unlock(state);
    }
}
