//! A server's stderr: always drained, the end of it kept, a copy passed on.
//!
//! What a server writes there is no failure and may be anything: a flood, binary, a line that never ends. It is read as it comes
//! by a task that never waits for anybody, so that the server is never held up by us; what does not fit is dropped and counted.
mod ring;
mod tee;

use crate::relay::scratch;
use ring::Ring;
pub(crate) use ring::{Follower, StderrLine};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;
use tee::Tee;
use tokio::net::unix::pipe;
use tokio::task::AbortHandle;

/// Bytes that are read before other tasks get their turn.
const TURN: usize = 1 << 20;

/// The log of one server; cheap to clone, all clones are one log.
#[derive(Clone)]
pub(crate) struct StderrLog(Arc<Shared>);

/// What was dropped so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct StderrStats {
    /// Bytes that were read.
    pub(crate) bytes: u64,
    /// Lines that made room for newer ones.
    pub(crate) dropped_lines: u64,
    /// Bytes that were not copied, because the client's end was full, gone or not fit for it.
    pub(crate) uncopied_bytes: u64,
}

struct Shared {
    /// Locked before `ring` where both are.
    source: Mutex<Source>,
    ring: Mutex<Ring>,
    task: Mutex<Option<AbortHandle>>,
    /// In which it was started: says whose it is.
    span: tracing::Span,
}

struct Source {
    /// None after the end.
    pipe: Option<Arc<pipe::Receiver>>,
    tee: Tee,
    bytes: u64,
}

enum Pumped {
    Empty,
    More,
    Ended,
}

impl StderrLog {
    /// Takes the read end of the server's stderr, a non-blocking pipe, and starts its task on the current runtime. `tee` is
    /// another's descriptor: what is read is copied to it as far as it has room, and its flags are not changed.
    ///
    /// # Errors
    /// If the pipe is not non-blocking, or can't be watched.
    pub(crate) fn start(stderr: OwnedFd, tee: Option<OwnedFd>) -> io::Result<Self> {
        let pipe = Arc::new(crate::relay::receiver(stderr)?);
        let log = Self(Arc::new(Shared {
            source: Mutex::new(Source { pipe: Some(pipe.clone()), tee: Tee::new(tee), bytes: 0 }),
            ring: Mutex::new(Ring::default()),
            task: Mutex::new(None),
            span: tracing::Span::current(),
        }));
        let task = tokio::spawn(log.clone().run(pipe));
        *lock(&log.0.task) = Some(task.abort_handle());
        Ok(log)
    }

    /// The end of what was written, in at most `max_bytes` bytes: lines are joined with `\n`, the last may be unfinished; what is
    /// not UTF-8 is replaced. Not escaped: whoever shows it does that.
    pub(crate) fn tail(&self, max_bytes: usize) -> String {
        lock(&self.0.ring).tail(max_bytes)
    }

    /// The last `count` lines, oldest first.
    pub(crate) fn lines(&self, count: usize) -> Vec<StderrLine> {
        lock(&self.0.ring).lines(count)
    }

    /// Lines that made room for newer ones.
    pub(crate) fn dropped_lines(&self) -> u64 {
        lock(&self.0.ring).dropped()
    }

    /// The last `count` lines and then what comes, without a gap or a repetition, until the log ends. One that is too slow loses
    /// lines, and so does one whose server writes more than a thousand a second; it is told how many. The last line of all is not lost.
    pub(crate) fn follow(&self, count: usize) -> Follower {
        lock(&self.0.ring).follow(count)
    }

    /// Reads everything that can be read right now, so that a message written just before an exit is in the tail. Never waits
    /// for the end of the stream, which an escaped process may hold open: a few reads, no more.
    pub(crate) fn drain(&self) {
        let mut source = lock(&self.0.source);
        let Some(pipe) = source.pipe.clone() else { return };
        // No more than is there now: a flood that goes on must not keep us.
        let there = rustix::io::ioctl_fionread(pipe.as_fd()).unwrap_or(0);
        let budget = usize::try_from(there).unwrap_or(usize::MAX);
        if budget > 0 {
            // Read past the runtime, which may not have heard of this data yet.
            self.pump(&mut source, budget, |pipe, buffer| {
                rustix::io::read(pipe, buffer).map_err(io::Error::from)
            });
        }
    }

    /// Reads what is there, closes the pipe and ends every follower's stream. The lines stay.
    pub(crate) fn close(&self) {
        self.drain();
        if let Some(task) = lock(&self.0.task).take() {
            task.abort();
        }
        self.end(&mut lock(&self.0.source));
    }

    #[cfg(test)]
    pub(crate) fn stats(&self) -> StderrStats {
        let source = lock(&self.0.source);
        self.count(&source)
    }

    fn count(&self, source: &Source) -> StderrStats {
        let dropped_lines = lock(&self.0.ring).dropped();
        StderrStats { bytes: source.bytes, dropped_lines, uncopied_bytes: source.tee.dropped() }
    }

    async fn run(self, pipe: Arc<pipe::Receiver>) {
        loop {
            let pumped = match pipe.readable().await {
                Ok(()) => self.take_turn(),
                Err(_) => Pumped::Ended,
            };
            match pumped {
                Pumped::Empty => {}
                Pumped::More => tokio::task::yield_now().await,
                Pumped::Ended => return self.end(&mut lock(&self.0.source)),
            }
        }
    }

    fn take_turn(&self) -> Pumped {
        self.pump(&mut lock(&self.0.source), TURN, |pipe, buffer| pipe.try_read(buffer))
    }

    fn pump(
        &self,
        source: &mut Source,
        mut budget: usize,
        read: impl Fn(&pipe::Receiver, &mut [u8]) -> io::Result<usize>,
    ) -> Pumped {
        let Some(pipe) = source.pipe.clone() else { return Pumped::Ended };
        scratch::with(|buffer| {
            while budget > 0 {
                match read(&pipe, buffer) {
                    Ok(0) => return Pumped::Ended,
                    Ok(count) => {
                        let chunk = &buffer[..count];
                        source.bytes += count as u64;
                        source.tee.write(chunk);
                        lock(&self.0.ring).push(chunk, SystemTime::now());
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

    fn end(&self, source: &mut Source) {
        if source.pipe.take().is_some() {
            source.tee.close();
            lock(&self.0.ring).end(SystemTime::now());
            let StderrStats { bytes, dropped_lines, uncopied_bytes } = self.count(source);
            let _entered = self.0.span.enter();
            tracing::debug!(bytes, dropped_lines, uncopied_bytes, "the server's stderr has ended");
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code that can panic halfway through a change runs under these locks, so a poisoned one is whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
