//! The data plane: the daemon's conversation with one server over its pipes.
//!
//! MCP frames never pass through an actor's mailbox. A [`Connection`] has one task that reads and one that writes, and whoever
//! makes a call talks to the conversation's machine ([`mcpvisor_mcp::Peer`]) under a lock that is never held across an await. A
//! call writes its line itself where the pipe has room, so that the writing task is only needed for a server that lags.
//!
//! Everything is bounded: the longest line, the calls that wait, the lines that are queued for a server that does not read. What
//! exceeds a bound is refused with [`CallError::Overloaded`], or dropped and counted.
pub(crate) mod attached;
pub(crate) mod exclusive;
pub(crate) mod hangup;
mod health;
mod outbox;
mod reader;
pub(crate) mod scratch;
mod shared;
pub(crate) mod turns;

use crate::api::Requester;
use crate::frames::FrameLog;
use attached::{Attached, Slot};
use exclusive::End;
use mcpvisor_mcp::endpoint::CallKey;
use mcpvisor_mcp::peer::turns::{CallLimits, Caller, Load, Overrun};
use mcpvisor_mcp::peer::{Forward, NotReady, Sent};
use mcpvisor_mcp::relay::Because;
use mcpvisor_mcp::{EraChoice, HandshakeError, Item, ListKind, Negotiated, Pages, Peer, RequestNumber};
use serde_json::value::RawValue;
use shared::{Shared, Told, Waiter, lock};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::unix::pipe;
use tokio::sync::oneshot;

/// The bounds of one connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ConnectionOptions {
    /// The longest line of the server, in bytes.
    pub(crate) max_line: usize,
    /// How the handshake begins.
    pub(crate) era: EraChoice,
    /// The limits of calls.
    pub(crate) calls: CallLimits,
    /// The most requests that are no calls and wait for an answer.
    pub(crate) max_pending: usize,
    /// The most lines that wait to be written.
    pub(crate) max_queued_lines: usize,
    /// The most bytes that wait to be written; a line that is alone may be longer.
    pub(crate) max_queued_bytes: usize,
}

impl Default for ConnectionOptions {
    fn default() -> Self {
        Self {
            max_line: 64 << 20,
            era: EraChoice::Auto,
            calls: crate::api::CallTerms::default().limits(),
            max_pending: 1024,
            max_queued_lines: 1024,
            max_queued_bytes: 4 << 20,
        }
    }
}

/// The way to one server; cheap to clone, all clones are one connection. It lives until [`Connection::end`].
#[derive(Clone)]
pub(crate) struct Connection {
    shared: Arc<Shared>,
}

/// The daemon itself, which makes no calls.
const OWN: Caller = Caller(0);
/// The session's client that is attached. Others are known by their processes, which are never 1.
const CLIENT: Caller = Caller(1);

/// On whose behalf a request is made.
pub(crate) struct Asker {
    caller: Caller,
    /// Who may give it up at any moment; None: whoever holds the future.
    requester: Option<Requester>,
}

impl From<Caller> for Asker {
    fn from(caller: Caller) -> Self {
        Self { caller, requester: None }
    }
}

impl From<&Requester> for Asker {
    fn from(requester: &Requester) -> Self {
        Self { caller: Caller(requester.process.into()), requester: Some(requester.clone()) }
    }
}

/// A server's last complete listings, by kind.
pub(crate) type LastItems = [Option<Arc<[Item]>>; ListKind::ALL.len()];

/// Why a request has no result.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum CallError {
    /// The JSON-RPC error object, as it came.
    #[error("the server answered with an error")]
    ServerError(Box<RawValue>),
    /// The server's output has ended, or it has closed its input. The call may have been carried out.
    #[error("the server has ended")]
    ServerExited,
    /// The connection is being given up, for this reason.
    #[error("{0}")]
    Settled(Arc<str>),
    /// The server is asked nothing more, for this reason. The call was certainly not written.
    #[error("the server {0}")]
    Leaving(Arc<str>),
    /// The server is being ended, for this reason, and the call was not answered in time. It may have been carried out.
    #[error("the server {0}, and had not answered")]
    LeftUnanswered(Arc<str>),
    /// The server is being ended, for this reason, and the call's turn has not come before. It was certainly not written.
    #[error("the server {0}, and the call did not reach it")]
    LeftUnwritten(Arc<str>),
    /// The answer is over the longest line.
    #[error("the answer has {bytes} bytes, more than the longest line of {cap}")]
    TooLong { bytes: u64, cap: usize },
    /// A bound is reached: too many requests wait, or the server reads too slowly. The call was certainly not written.
    #[error("too many requests wait for this server")]
    Overloaded,
    /// Too many calls wait for their turn. This one was certainly not written.
    #[error("{} calls wait for this server, of at most {}", .0.used, .0.limit)]
    QueueFull(Load),
    /// Its turn has not come in time. It was certainly not written.
    #[error("the call's turn has not come within {after:?}")]
    QueueTimeout { load: Load, after: Duration },
    /// The server has not answered in time; it was told that the call is cancelled.
    #[error("the server has not answered within {} ({:?})", .0.key, .0.after)]
    TimedOut(Overrun),
    /// The server has ended while the call waited for its turn: it was certainly not written.
    #[error("the server has ended before the call's turn came")]
    NotWritten,
    /// It has not answered what the daemon asked of it and others for a client.
    #[error("the server takes too long")]
    Slow,
    /// The session is being closed, and the call waited for its turn: it was certainly not written.
    #[error("the session is being closed")]
    Closing,
    /// Nobody waits for the call any more: it was certainly not written.
    #[error("the call was given up")]
    GivenUp,
    /// The server does not run, or not for this call, which did not reach it.
    #[error("{}", .0.message())]
    Unreached(Because),
    /// The handshake is not done.
    #[error("the server is not ready")]
    NotReady,
    /// The answer is not what the protocol says.
    #[error("{0}")]
    BadAnswer(String),
}

impl CallError {
    /// The same where the answer came from the daemon's own endpoint in front of a server that sessions share, and says what became of that.
    pub(crate) fn of_the_host(self) -> Self {
        let Self::ServerError(error) = &self else { return self };
        match attached::own_kind(error) {
            Some(kind) if kind == "server_exited" => Self::ServerExited,
            Some(kind) if kind == "overloaded" => Self::Overloaded,
            _ => self,
        }
    }

    /// The same of a call that was given up while it waited for its turn.
    fn unwritten(&self) -> Self {
        match self {
            Self::LeftUnanswered(reason) => Self::LeftUnwritten(Arc::clone(reason)),
            other => other.clone(),
        }
    }
}

/// What is known of a connection. Everything that was dropped is counted here.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct ConnectionStats {
    /// Requests that wait for an answer.
    pub(crate) in_flight: usize,
    /// Calls that wait for their turn.
    pub(crate) queued: usize,
    /// How many tools the last complete listing had.
    pub(crate) tools: Option<usize>,
    /// Lines that are no message, over the cap, late, or for no request of ours; what the server asked and told.
    pub(crate) passed_over: mcpvisor_mcp::peer::Counters,
    /// A line of noise, made printable and cut: the one that best explains a handshake without an answer.
    pub(crate) noise: Option<String>,
    /// Bytes of a line that the end of the stream cut off.
    pub(crate) torn_bytes: u64,
    /// Lines to the server that were dropped, because it did not read.
    pub(crate) unwritten_lines: u64,
    /// Tools without a name that the last listing left out.
    pub(crate) nameless_tools: u64,
}

impl Connection {
    /// Takes the daemon's ends of the server's pipes, which are non-blocking, and starts the tasks on the current runtime.
    /// `on_end` is called once when stdout has ended or can't be read any more, on a task of the runtime, after every pending call
    /// has been failed; not after [`Connection::end`]. What the server says that is no answer goes to the client in `slot`.
    ///
    /// # Errors
    /// If a pipe is not non-blocking, or can't be watched.
    pub(crate) fn start(
        stdin: OwnedFd,
        stdout: OwnedFd,
        options: ConnectionOptions,
        slot: Slot,
        frames: FrameLog,
        on_end: Box<dyn FnOnce() + Send>,
    ) -> io::Result<Self> {
        check_nonblocking(&stdin)?;
        let (stdin, stdout) = (End::writing(stdin)?, Arc::new(receiver(stdout)?));
        let shared = Arc::new_cyclic(|me| {
            Shared::new(me.clone(), stdin, stdout.clone(), options, slot, frames, on_end)
        });
        shared.slot.together.join(&shared);
        shared.hold(tokio::spawn(reader::run(shared.clone(), stdout)).abort_handle());
        shared.hold(tokio::spawn(outbox::run(shared.clone())).abort_handle());
        Ok(Self { shared })
    }

    /// Agrees with the server on a revision. Has no timeout of its own. Cancel safe: a later call waits for the same handshake,
    /// and once it is done gets the same outcome.
    pub(crate) async fn handshake(&self) -> Result<Negotiated, HandshakeError> {
        self.shared.begin();
        self.shared.handshake.wait().await.clone()
    }

    /// The server's tools, prompts, resources or templates: kept until it says that they have changed, none if it says that it has
    /// none. Cancel safe.
    pub(crate) async fn items(&self, kind: ListKind) -> Result<Arc<[Item]>, CallError> {
        if let Some(items) = self.known_items(kind)? {
            return Ok(items);
        }
        // One listing at a time; who waited finds what the one before has brought.
        let _turn = self.shared.listing.lock().await;
        if let Some(items) = self.known_items(kind)? {
            return Ok(items);
        }
        let epoch = self.shared.epoch(kind);
        let (mut pages, mut cursor) = (Pages::new(kind), None);
        let mut number = 0;
        loop {
            number += 1;
            self.asks_page(Some((kind, number)));
            let page = self
                .request(OWN.into(), kind.method(), None, |peer, waiter| {
                    peer.list(waiter, kind, cursor.as_deref())
                })
                .await?;
            cursor = pages.add(&page).map_err(|error| CallError::BadAnswer(error.to_string()))?;
            if cursor.is_none() {
                self.asks_page(None);
                let (items, nameless) = pages.finish();
                return Ok(self.shared.keep_items(kind, items.into(), nameless, epoch));
            }
        }
    }

    /// The same where it is known without asking.
    pub(crate) fn known_items(&self, kind: ListKind) -> Result<Option<Arc<[Item]>>, CallError> {
        self.shared.known_items(kind)
    }

    /// What was last listed, also when the server is gone.
    pub(crate) fn last_items(&self) -> LastItems {
        self.shared.last_items()
    }

    /// Calls a tool, when its turn among the callers has come: its result as it came, unchecked. `arguments` stay where the error is
    /// `Leaving`. Dropping the future cancels the call at the server and frees its place; an answer that still comes is
    /// swallowed. One whose requester has given up does not begin.
    pub(crate) async fn call_tool(
        &self,
        asker: impl Into<Asker>,
        name: &str,
        arguments: &mut Option<Box<RawValue>>,
        progress: Option<Told>,
    ) -> Result<Box<RawValue>, CallError> {
        self.request(asker.into(), "tools/call", progress, move |peer, waiter| {
            // Not before the call is admitted: one that is refused may be another server's.
            let arguments = arguments.take();
            peer.call_tool(waiter, name, arguments.as_deref())
        })
        .await
    }

    /// Any request of ours. Dropping the future cancels it.
    pub(crate) async fn ask(
        &self,
        method: &'static str,
        params: &serde_json::Map<String, serde_json::Value>,
    ) -> Result<Box<RawValue>, CallError> {
        self.request(OWN.into(), method, None, move |peer, waiter| peer.request_with(waiter, method, params))
            .await
    }

    /// Passes a client's request on; its answer goes to the client. Queued, and written by [`Connection::flush`].
    pub(crate) fn forward(
        &self,
        client: &Arc<Attached>,
        call: CallKey,
        forward: &Forward<'_>,
    ) -> Result<RequestNumber, CallError> {
        let waiter = Waiter::Client(Arc::clone(client), call);
        self.shared.queue_request(client.caller(), waiter, &forward.method, |peer, waiter| {
            peer.forward(waiter, forward)
        })
    }

    /// Gives a client's request up: tells the server with the client's own words, unless it was never written.
    pub(crate) fn cancel(&self, number: RequestNumber, said: Option<(&[u8], mcpvisor_mcp::splice::Span)>) {
        self.shared.cancel(number, "the client has given up", said);
    }

    /// A line for the server that wants no answer, or a shorter one where there is no room for it. Queued, and written by
    /// [`Connection::flush`].
    pub(crate) fn tell(&self, line: Vec<u8>, instead: Option<Vec<u8>>) {
        self.shared.queue_line(line, instead);
    }

    /// Writes what is queued as far as the server takes it; the rest follows by itself.
    pub(crate) fn flush(&self) {
        self.shared.flush();
    }

    /// What was agreed; none before the handshake is done.
    pub(crate) fn negotiated(&self) -> Option<Negotiated> {
        lock(&self.shared.state).peer.negotiated().cloned()
    }

    /// The session drains: calls that wait for their turn are refused, now and later.
    pub(crate) fn stop_waiting(&self) {
        self.shared.stop_waiting();
    }

    /// Closes the server's input. What is queued is written as far as the server takes it within a tenth of a second; it is not
    /// waited for here. What is pending may still be answered; new calls are refused.
    pub(crate) fn close_stdin(&self) {
        self.shared.close_stdin();
    }

    /// Gives up: cancels every pending call at the server and fails it, and a handshake, with `reason`; later calls fail with it
    /// too. Returns how many calls were pending.
    pub(crate) fn settle(&self, reason: impl Into<Arc<str>>) -> usize {
        self.shared.settle(&CallError::Settled(reason.into()))
    }

    /// From now on the server is asked nothing more; what is pending may still be answered. `on_quiet` is called once when nothing is,
    /// perhaps at once on this thread; it must not block. A second time it changes nothing and is never called.
    pub(crate) fn retire(&self, reason: impl Into<Arc<str>>, on_quiet: Box<dyn FnOnce() + Send>) {
        self.shared.retire(CallError::Leaving(reason.into()), on_quiet);
    }

    /// The time of what is pending at a server that was retired is over: as [`Connection::settle`].
    pub(crate) fn settle_retired(&self, reason: impl Into<Arc<str>>) -> usize {
        self.shared.settle(&CallError::LeftUnanswered(reason.into()))
    }

    /// Whether both are the same connection.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// What is known now.
    pub(crate) fn stats(&self) -> ConnectionStats {
        self.shared.stats()
    }

    /// The server is gone: delivers the answers that it has still written, fails everything else that is pending, closes both
    /// pipes and ends the tasks. May be repeated. Does not wait.
    pub(crate) fn end(&self) {
        self.shared.end();
    }

    async fn request(
        &self,
        asker: Asker,
        method: &str,
        progress: Option<Told>,
        make: impl FnOnce(&mut Peer<Waiter>, Waiter) -> Result<Sent, NotReady<Waiter>>,
    ) -> Result<Box<RawValue>, CallError> {
        let (waiter, answer) = oneshot::channel();
        let Asker { caller, requester } = asker;
        let waiter = Waiter::Caller(waiter, progress, requester.clone());
        let number = self.shared.send_request(caller, waiter, method, make)?;
        let mut pending = Pending { shared: &self.shared, number: Some(number), requester };
        let answer = answer.await;
        pending.number = None;
        // A waiter is only dropped unanswered with the whole connection.
        answer.unwrap_or(Err(CallError::ServerExited))
    }
}

/// Cancels the request if it is dropped before its answer has come.
struct Pending<'a> {
    shared: &'a Shared,
    number: Option<RequestNumber>,
    requester: Option<Requester>,
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number
            && self.shared.cancel(number, "the caller has given up", None)
            && let Some(requester) = &self.requester
        {
            requester.note_reached();
        }
    }
}

/// Wraps the read end of a pipe of ours. Its flags are checked and not changed.
pub(crate) fn receiver(fd: OwnedFd) -> io::Result<pipe::Receiver> {
    check_nonblocking(&fd)?;
    pipe::Receiver::from_owned_fd_unchecked(fd)
}

fn check_nonblocking(fd: &OwnedFd) -> io::Result<()> {
    match rustix::fs::fcntl_getfl(fd)?.contains(rustix::fs::OFlags::NONBLOCK) {
        true => Ok(()),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "the pipe would block")),
    }
}

#[cfg(test)]
mod tests;
