//! What waits to be written to a control connection: bounded in bytes, so that a client that does not read costs no more
//! than that, and blocks nobody (G39).
use mcpvisor_failpoints::{self as failpoints, Gate};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::sync::Notify;

/// Below this, in bytes, a stream of notifications goes on.
const LOW: usize = 256 << 10;

/// The way into the queue; cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Outbox {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Something is there to be written, or the end has come.
    filled: Notify,
    /// The queue is low, or the end has come.
    lowered: Notify,
    most: usize,
}

#[derive(Debug, Default)]
struct State {
    lines: VecDeque<Line>,
    bytes: usize,
    end: Option<End>,
}

#[derive(Debug)]
struct Line {
    text: Vec<u8>,
    /// Goes with the line's first byte.
    descriptor: Option<OwnedFd>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// What is queued is still written.
    Finish,
    /// Nothing is: the client does not read.
    Cut,
    /// Nothing is: the client has hung up.
    Gone,
}

impl Outbox {
    /// At most `most` bytes wait, but for one line, which may be longer.
    pub(crate) fn new(most: usize) -> Self {
        let shared = Shared { state: Mutex::default(), filled: Notify::new(), lowered: Notify::new(), most };
        Self { shared: Arc::new(shared) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a line, its newline included. Where the client has left too much unread, the connection is cut.
    pub(crate) fn push(&self, line: Vec<u8>) {
        self.push_with(line, None);
    }

    /// The same, with a descriptor that goes with the line.
    pub(crate) fn push_with(&self, line: Vec<u8>, descriptor: Option<OwnedFd>) {
        let mut state = self.state();
        if state.end.is_some() {
            return;
        }
        if !state.lines.is_empty() && state.bytes + line.len() > self.shared.most {
            *state = State { end: Some(End::Cut), ..State::default() };
            self.shared.lowered.notify_waiters();
        } else {
            state.bytes += line.len();
            state.lines.push_back(Line { text: line, descriptor });
        }
        drop(state);
        self.shared.filled.notify_one();
    }

    /// Resolves when little is queued, so that a stream of notifications goes at its reader's pace; false when the
    /// connection is at its end.
    pub(crate) async fn low(&self) -> bool {
        loop {
            let lowered = self.shared.lowered.notified();
            {
                let state = self.state();
                if state.end.is_some() {
                    return false;
                }
                if state.bytes < LOW {
                    return true;
                }
            }
            lowered.await;
        }
    }

    /// Resolves when the connection is at its end.
    pub(crate) async fn ended(&self) {
        loop {
            let lowered = self.shared.lowered.notified();
            if self.state().end.is_some() {
                return;
            }
            lowered.await;
        }
    }

    /// Little is queued.
    pub(crate) fn is_low(&self) -> bool {
        let state = self.state();
        state.end.is_none() && state.bytes < LOW
    }

    /// Nothing more is queued; what is gets written.
    pub(crate) fn finish(&self) {
        self.state().end.get_or_insert(End::Finish);
        self.shared.lowered.notify_waiters();
        self.shared.filled.notify_one();
    }

    #[cfg(test)]
    pub(crate) fn queued(&self) -> Vec<Vec<u8>> {
        self.state().lines.iter().map(|line| line.text.clone()).collect()
    }

    /// The client did not read what it was sent.
    pub(crate) fn is_cut(&self) -> bool {
        self.state().end == Some(End::Cut)
    }

    /// Writes what comes until the end. Returns when everything is written after `finish`, when the connection is cut, or broken.
    pub(crate) async fn write_to(&self, stream: &UnixStream) {
        loop {
            let filled = self.shared.filled.notified();
            let next = {
                let mut state = self.state();
                match (state.lines.pop_front(), state.end) {
                    (_, Some(End::Cut | End::Gone)) | (None, Some(End::Finish)) => return,
                    (next, _) => next,
                }
            };
            let Some(line) = next else {
                filled.await;
                continue;
            };
            let cut = async {
                // Woken for each new line, too: only the cut ends it.
                loop {
                    let filled = self.shared.filled.notified();
                    if self.is_cut() {
                        return;
                    }
                    filled.await;
                }
            };
            tokio::select! {
                biased;
                written = write_all(stream, &line) => if written.is_err() {
                    *self.state() = State { end: Some(End::Gone), ..State::default() };
                    self.shared.lowered.notify_waiters();
                    return;
                },
                () = cut => return,
            }
            let mut state = self.state();
            state.bytes = state.bytes.saturating_sub(line.text.len());
            if state.bytes < LOW {
                self.shared.lowered.notify_waiters();
            }
        }
    }
}

async fn write_all(stream: &UnixStream, line: &Line) -> io::Result<()> {
    failpoints::pass(Gate::AnswerWrite).await;
    let mut bytes = &line.text[..];
    let mut descriptor = line.descriptor.as_ref();
    while !bytes.is_empty() {
        stream.writable().await?;
        let written = match descriptor {
            None => stream.try_write(bytes),
            Some(fd) => stream.try_io(Interest::WRITABLE, || send_with(stream, bytes, fd)),
        };
        if written.is_ok() {
            descriptor = None;
        }
        match written {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn send_with(stream: &UnixStream, bytes: &[u8], descriptor: &OwnedFd) -> io::Result<usize> {
    let descriptors = [descriptor.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(io::Error::other("no room for a descriptor in a message"));
    }
    Ok(sendmsg(stream, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::io::AsyncReadExt;

    #[tokio::test]
    async fn everything_that_was_queued_is_written_before_the_end() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let outbox = Outbox::new(10 << 20);
        for at in 0..100 {
            outbox.push(vec![b'a' + u8::try_from(at % 26).unwrap(); 10_000]);
        }
        outbox.finish();
        outbox.push(b"too late".to_vec());
        let reader = tokio::spawn(async move {
            let mut all = Vec::new();
            theirs.read_to_end(&mut all).await.unwrap();
            all.len()
        });
        outbox.write_to(&ours).await;
        drop(ours);
        assert_eq!(reader.await.unwrap(), 1_000_000);
    }

    #[tokio::test]
    async fn a_client_that_has_hung_up_is_not_said_to_be_cut() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        drop(theirs);
        let outbox = Outbox::new(1 << 20);
        outbox.push(b"nobody reads this".to_vec());
        tokio::time::timeout(Duration::from_secs(5), outbox.write_to(&ours)).await.unwrap();
        assert!(!outbox.is_cut() && !outbox.low().await);
    }

    #[tokio::test]
    async fn a_client_that_does_not_read_is_cut() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let outbox = Outbox::new(1 << 20);
        let writer = tokio::spawn({
            let outbox = outbox.clone();
            async move { outbox.write_to(&ours).await }
        });
        let mut pushed = 0;
        while !outbox.is_cut() {
            outbox.push(vec![b'x'; 100_000]);
            pushed += 100_000;
            assert!(pushed < 3 << 20, "the queue is bounded");
            tokio::task::yield_now().await;
        }
        tokio::time::timeout(Duration::from_secs(5), writer).await.unwrap().unwrap();
        assert!(!outbox.low().await);
    }

    #[tokio::test]
    async fn one_line_may_be_longer_than_the_bound() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let outbox = Outbox::new(1000);
        outbox.push(vec![b'x'; 5_000_000]);
        assert!(!outbox.is_cut());
        let writer = tokio::spawn({
            let outbox = outbox.clone();
            async move { outbox.write_to(&ours).await }
        });
        let mut all = vec![0; 5_000_000];
        theirs.read_exact(&mut all).await.unwrap();
        assert!(outbox.low().await);
        outbox.finish();
        writer.await.unwrap();
    }
}
