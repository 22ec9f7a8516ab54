//! An exclusive server: its one client's bytes pass to it and back as they are.
//!
//! ```text
//!   client ──► up ──► server            each direction is a task that reads a chunk, lets the conversation follow it,
//!   client ◄── down ◄── server          and writes it; what the other side does not take is waited for, and nothing more is read
//! ```
//!
//! What passes, and what is said in place of an answer, is decided by [`mcpvisor_mcp::relay::Conversation`] under a lock that is held
//! for one chunk and never across an await. A direction holds at most one chunk, so that a side that does not read stops the other
//! one and nobody else. `docs/relay.md` has the states.
mod down;
mod end;
mod up;

pub(crate) use end::End;
pub(in crate::relay) use end::Read;

use super::shared::lock;
use crate::frames::FrameLog;
use crate::gate::{Gate, Permit, Presence};
use down::Attached;
use mcpvisor_mcp::relay::{Because, Conversation, Counters, Ended};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{Notify, oneshot, watch};

/// A client that takes nothing for so long is given up.
const STALLED: Duration = Duration::from_secs(60);
/// How long a server may take to read what is queued when its input is being closed.
const PATIENCE: Duration = Duration::from_millis(100);
/// The most calls in flight, where the server's definition names no number.
const MOST_CALLS: usize = 4096;

/// The way to one exclusive server; cheap to clone, all clones are one relay. It lives until [`Relay::end`].
#[derive(Clone)]
pub(crate) struct Relay {
    shared: Arc<Shared>,
}

/// A client's two ends of the conversation.
pub(crate) struct Client {
    pub(crate) stdin: End,
    pub(crate) stdout: End,
    /// Both are one socket.
    pub(crate) one_socket: bool,
    /// What was read of it already.
    pub(crate) first: Vec<u8>,
    /// What it hears before the server.
    pub(crate) greeting: Vec<u8>,
}

/// Whom the end of the client is told, once.
pub(crate) enum OnLeave {
    /// At once: the session is the client's, and drains.
    Session(Box<dyn FnOnce() + Send>),
    /// When its calls are answered, or this time is over and they are settled: the server goes with its client.
    Server(Duration, Box<dyn FnOnce() + Send>),
}

/// What a relay is held to.
pub(crate) struct Terms {
    pub(crate) gate: Gate,
    /// The most calls of the client in flight.
    pub(crate) most_calls: Option<usize>,
    /// Where its frames are noted.
    pub(crate) frames: FrameLog,
}

/// How a client ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClientEnd {
    /// It said all that it has to say, and still hears.
    Said,
    /// It hears nothing any more.
    Lost,
}

/// Why a client can't be attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taken {
    /// The server has its one client, or has had it.
    HasClient,
    /// It is being stopped, or has ended.
    Stopping,
}

struct Shared {
    state: Mutex<State>,
    gate: Gate,
    frames: FrameLog,
    /// There is something to write to the server, or an end.
    wake_up: Notify,
    /// There is something to write to the client, or an end.
    wake_down: Notify,
    /// No call is in flight any more, or the client is lost.
    quiet: Notify,
    delivered: watch::Sender<bool>,
}

struct State {
    talk: Conversation<Permit>,
    /// The server's input until there is a client; none after it was closed.
    stdin: Option<End>,
    /// The way of the client to `down`.
    attach: Option<oneshot::Sender<Attached>>,
    /// The server's input is to be closed once what is queued is written.
    closing: bool,
    /// The server has closed its input, or its output has ended: it will answer nothing that it is asked from now on.
    deaf: bool,
    /// The server is gone: what it has still written is all there is.
    ending: bool,
    client: Option<ClientState>,
    /// The server's output ended before the client did.
    server_first: bool,
    on_leave: Option<OnLeave>,
}

struct ClientState {
    ended: bool,
    lost: bool,
    /// Until it ends.
    presence: Option<Presence>,
}

impl Relay {
    /// Takes the daemon's ends of the server's pipes, which are non-blocking, and starts on the current runtime. A `client` that is there already hears the server's first byte. `on_end` is called once when stdout has ended or can't be read any more, after every pending call has
    /// been answered; not after [`Relay::end`].
    ///
    /// # Errors
    /// If a pipe can't be watched.
    pub(crate) fn start(
        stdin: OwnedFd,
        stdout: OwnedFd,
        terms: Terms,
        client: Option<Client>,
        on_leave: OnLeave,
        on_end: Box<dyn FnOnce() + Send>,
    ) -> io::Result<Self> {
        let Terms { gate, most_calls, frames } = terms;
        let (attach, attached) = oneshot::channel();
        let stdout = End::reading(stdout)?;
        let state = State {
            talk: Conversation::new(most_calls.unwrap_or(MOST_CALLS)),
            stdin: Some(End::writing(stdin)?),
            attach: Some(attach),
            closing: false,
            deaf: false,
            ending: false,
            client: None,
            server_first: false,
            on_leave: Some(on_leave),
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            gate,
            frames,
            wake_up: Notify::new(),
            wake_down: Notify::new(),
            quiet: Notify::new(),
            delivered: watch::Sender::new(false),
        });
        let relay = Self { shared: Arc::clone(&shared) };
        if let Some(client) = client {
            // Nobody else has it yet, so that nobody can have been first.
            let _ = relay.attach(client);
        }
        tokio::spawn(down::run(shared, stdout, attached, on_end));
        Ok(relay)
    }

    /// Gives the server its one client.
    ///
    /// # Errors
    /// Where it has or had one, or is being stopped; the client's ends are closed then.
    pub(crate) fn attach(&self, client: Client) -> Result<(), Taken> {
        let mut state = lock(&self.shared.state);
        if state.client.is_some() {
            return Err(Taken::HasClient);
        }
        let presence = self.shared.gate.enter().map_err(|_| Taken::Stopping)?;
        let (Some(stdin), Some(attach)) = (state.stdin.take(), state.attach.take()) else {
            return Err(Taken::Stopping);
        };
        let Client { stdin: source, stdout, one_socket, first, greeting } = client;
        if attach.send(Attached { stdout, greeting }).is_err() {
            return Err(Taken::Stopping);
        }
        state.client = Some(ClientState { ended: false, lost: false, presence: Some(presence) });
        tokio::spawn(up::run(Arc::clone(&self.shared), source, one_socket, first, stdin));
        Ok(())
    }

    /// Closes the server's input. What is queued is written as far as the server takes it within a tenth of a second; it is not
    /// waited for here.
    pub(crate) fn close_stdin(&self) {
        let mut state = lock(&self.shared.state);
        state.closing = true;
        state.stdin = None;
        self.shared.wake_up.notify_one();
    }

    /// Gives up what is in flight: it is cancelled at the server and answered with one error. What the server still asks is refused.
    pub(crate) fn settle(&self) {
        self.shared.settle();
    }

    /// The client is gone, however that was learned.
    pub(crate) fn client_lost(&self) {
        self.shared.client_ended(ClientEnd::Lost);
    }

    /// Calls that are not answered.
    pub(crate) fn in_flight(&self) -> usize {
        lock(&self.shared.state).talk.in_flight()
    }

    /// Its client ended its stream while the server's still went on.
    pub(crate) fn client_left_first(&self) -> bool {
        let state = lock(&self.shared.state);
        state.client.as_ref().is_some_and(|client| client.ended) && !state.server_first
    }

    /// It has a client, or has had one. After [`Relay::end`] this does not change any more.
    pub(crate) fn has_had_client(&self) -> bool {
        lock(&self.shared.state).client.is_some()
    }

    /// It has a client now.
    pub(crate) fn is_attached(&self) -> bool {
        lock(&self.shared.state).client.as_ref().is_some_and(|client| !client.ended)
    }

    /// What did not pass, and the first line of noise.
    pub(crate) fn stats(&self) -> (Counters, Option<String>) {
        let state = lock(&self.shared.state);
        (state.talk.counters(), state.talk.noise().map(str::to_owned))
    }

    /// The server is gone: delivers what it has still written, answers everything that is pending, closes all. May be repeated.
    /// Does not wait.
    pub(crate) fn end(&self) {
        let mut state = lock(&self.shared.state);
        (state.ending, state.closing) = (true, true);
        state.stdin = None;
        // Without a client there is nobody to deliver to.
        state.attach = None;
        let presence = state.client.as_mut().and_then(|client| client.presence.take());
        drop(state);
        drop(presence);
        self.shared.wake_up.notify_one();
        self.shared.wake_down.notify_one();
    }

    /// Resolves when the client has everything that there was for it, or is lost. To be asked after [`Relay::end`]. Cancel safe.
    pub(crate) async fn delivered(&self) {
        // The sender lives in what `self` holds.
        let _ = self.shared.delivered.subscribe().wait_for(|delivered| *delivered).await;
    }
}

impl Shared {
    /// Gives back what ended calls held, but for those that are answered: they end when their answer is written.
    fn told(&self, state: &mut State) {
        for ended in state.talk.take_ended() {
            match ended {
                Ended::Answered(permit) => permit.finish(),
                Ended::Cancelled(permit) => permit.cancel(),
                Ended::NoCall(permit) => permit.withdraw(),
            }
        }
        self.tell_if_quiet(state);
    }

    fn tell_if_quiet(&self, state: &State) {
        if state.client.as_ref().is_some_and(|client| client.ended) && state.talk.in_flight() == 0 {
            self.quiet.notify_one();
        }
    }

    /// Resolves when no call is in flight. To be awaited by one task, after the client's end.
    async fn quiet(&self) {
        while lock(&self.state).talk.in_flight() > 0 {
            self.quiet.notified().await;
        }
    }

    fn settle(&self) {
        let mut state = lock(&self.state);
        state.talk.settle(Because::Settled);
        self.told(&mut state);
        drop(state);
        self.wake_up.notify_one();
        self.wake_down.notify_one();
    }

    /// The client has ended its stream, and what it asked is still answered; or it is lost, and its calls are cancelled.
    fn client_ended(self: &Arc<Self>, end: ClientEnd) {
        let mut state = lock(&self.state);
        let Some(client) = &mut state.client else { return };
        client.ended = true;
        let presence = client.presence.take();
        client.lost |= end == ClientEnd::Lost;
        match end {
            ClientEnd::Said => state.talk.client_ended(),
            ClientEnd::Lost => state.talk.client_lost(),
        }
        self.told(&mut state);
        let on_leave = state.on_leave.take();
        drop(state);
        drop(presence);
        self.wake_up.notify_one();
        self.wake_down.notify_one();
        match on_leave {
            None => {}
            Some(OnLeave::Session(tell)) => tell(),
            Some(OnLeave::Server(drain, tell)) => {
                let shared = Arc::clone(self);
                tokio::spawn(async move {
                    // What is in flight then is settled.
                    let _ = tokio::time::timeout(drain, shared.quiet()).await;
                    shared.settle();
                    tell();
                });
            }
        }
    }
}

#[cfg(test)]
mod tests;
