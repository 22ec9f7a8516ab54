//! What a connection's callers and tasks share.
use super::outbox::{Flush, Outbox};
use super::reader::Reader;
use super::{CallError, ConnectionOptions, ConnectionStats, Handshake};
use mcpvisor_mcp::peer::{NotReady, Sent};
use mcpvisor_mcp::{Answer, HandshakeError, Peer, PeerEvent, RequestNumber, Tool};
use serde_json::value::RawValue;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::net::unix::pipe;
use tokio::sync::{Notify, oneshot, watch};
use tokio::task::AbortHandle;

/// Who waits for an answer.
pub(super) type Waiter = oneshot::Sender<Result<Box<RawValue>, CallError>>;

/// Locks are taken in the order `reader`, `state`, and never held across an await.
pub(super) struct Shared {
    pub(super) options: ConnectionOptions,
    pub(super) reader: Mutex<Reader>,
    pub(super) state: Mutex<State>,
    /// There is something to write that did not fit into the pipe, or the input is being closed.
    pub(super) wake_writer: Notify,
    /// Held by whoever lists the tools.
    pub(super) listing: tokio::sync::Mutex<()>,
    /// None until the handshake is over.
    pub(super) handshake: watch::Sender<Option<Result<Handshake, HandshakeError>>>,
    tasks: Mutex<Vec<AbortHandle>>,
    /// In which it was started: says whose it is.
    span: tracing::Span,
}

pub(super) struct State {
    pub(super) peer: Peer<Waiter>,
    pub(super) outbox: Outbox,
    /// Why no request is taken any more.
    over: Option<CallError>,
    tools: Option<Arc<[Tool]>>,
    /// How often the server has said that its tools have changed.
    pub(super) tools_epoch: u64,
    tool_count: Option<usize>,
    nameless_tools: u64,
    pub(super) torn_bytes: u64,
}

impl Shared {
    pub(super) fn new(
        stdin: Arc<pipe::Sender>,
        stdout: Arc<pipe::Receiver>,
        options: ConnectionOptions,
        on_end: Box<dyn FnOnce() + Send>,
    ) -> Self {
        Self {
            options,
            reader: Mutex::new(Reader::new(stdout, options.max_line, on_end)),
            state: Mutex::new(State {
                peer: Peer::default(),
                outbox: Outbox::new(stdin, options.max_queued_lines, options.max_queued_bytes),
                over: None,
                tools: None,
                tools_epoch: 0,
                tool_count: None,
                nameless_tools: 0,
                torn_bytes: 0,
            }),
            wake_writer: Notify::new(),
            listing: tokio::sync::Mutex::new(()),
            handshake: watch::Sender::new(None),
            tasks: Mutex::new(Vec::new()),
            span: tracing::Span::current(),
        }
    }

    /// A task that ends with the connection.
    pub(super) fn hold(&self, task: AbortHandle) {
        lock(&self.tasks).push(task);
    }

    pub(super) fn begin(&self) {
        let mut state = lock(&self.state);
        if state.over.is_none()
            && let Some(line) = state.peer.begin()
        {
            state.outbox.push(line, None);
            self.write(&mut state);
        }
    }

    pub(super) fn send_request(
        &self,
        waiter: Waiter,
        make: impl FnOnce(&mut Peer<Waiter>, Waiter) -> Result<Sent, NotReady<Waiter>>,
    ) -> Result<RequestNumber, CallError> {
        let mut state = lock(&self.state);
        if let Some(over) = &state.over {
            return Err(over.clone());
        }
        if state.peer.in_flight() >= self.options.max_pending {
            return Err(CallError::Overloaded);
        }
        let Sent { number, line } =
            make(&mut state.peer, waiter).map_err(|NotReady(_)| CallError::NotReady)?;
        if !state.outbox.push(line, Some(number)) {
            state.peer.withdraw(number);
            return Err(CallError::Overloaded);
        }
        self.write(&mut state);
        Ok(number)
    }

    /// Nobody waits for the answer any more.
    pub(super) fn cancel(&self, number: RequestNumber, reason: &str) {
        let mut state = lock(&self.state);
        if state.outbox.withdraw(number) {
            state.peer.withdraw(number);
        } else if let Some(cancelled) = state.peer.cancel(number, reason) {
            state.outbox.push(cancelled.line, None);
            self.write(&mut state);
        }
    }

    /// Writes what fits; the writing task does the rest.
    pub(super) fn write(&self, state: &mut State) {
        if let Some(pipe) = state.flush() {
            drop(pipe);
            self.wake_writer.notify_one();
        }
    }

    pub(super) fn handle(&self, state: &mut State, events: Vec<PeerEvent<Waiter>>) {
        for event in events {
            match event {
                PeerEvent::Send(line) => {
                    state.outbox.push(line, None);
                }
                PeerEvent::Ready(negotiated) => {
                    if !negotiated.tools {
                        state.tool_count = Some(0);
                    }
                    self.handshake_over(Ok(negotiated.into()));
                }
                PeerEvent::HandshakeFailed(error) => self.handshake_over(Err(error)),
                PeerEvent::ToolsChanged => {
                    state.tools = None;
                    state.tools_epoch += 1;
                }
                PeerEvent::Answered { token, answer } => {
                    let answer = match answer {
                        Answer::Result(result) => Ok(result),
                        Answer::Error(error) => Err(CallError::ServerError(error)),
                        Answer::TooLong(bytes) => {
                            Err(CallError::TooLong { bytes, cap: self.options.max_line })
                        }
                    };
                    // One that gave up just now has cancelled, or is about to and finds nothing pending.
                    let _ = token.send(answer);
                }
            }
        }
    }

    pub(super) fn known_tools(&self) -> Result<Option<Arc<[Tool]>>, CallError> {
        let state = lock(&self.state);
        if let Some(over) = &state.over {
            return Err(over.clone());
        }
        match state.peer.negotiated() {
            None => Err(CallError::NotReady),
            Some(negotiated) if !negotiated.tools => Ok(Some(Arc::new([]))),
            Some(_) => Ok(state.tools.clone()),
        }
    }

    /// A listing during which the tools changed is given to who asked and not kept.
    pub(super) fn keep_tools(&self, tools: Arc<[Tool]>, nameless: u64, epoch: u64) -> Arc<[Tool]> {
        let mut state = lock(&self.state);
        state.tool_count = Some(tools.len());
        state.nameless_tools = nameless;
        if state.tools_epoch == epoch {
            state.tools = Some(tools.clone());
        }
        tools
    }

    pub(super) fn close_stdin(&self) {
        let mut state = lock(&self.state);
        state.over.get_or_insert_with(|| CallError::Settled("the server is being stopped".into()));
        state.outbox.close();
        self.write(&mut state);
    }

    pub(super) fn settle(&self, reason: &Arc<str>) -> usize {
        let mut state = lock(&self.state);
        state.over.get_or_insert_with(|| CallError::Settled(reason.clone()));
        let settled = state.peer.settle(reason);
        let count = settled.len();
        for cancelled in settled {
            if !state.outbox.withdraw(cancelled.number) {
                state.outbox.push(cancelled.line, None);
            }
            let _ = cancelled.token.send(Err(CallError::Settled(reason.clone())));
        }
        self.handshake_over(Err(HandshakeError::Settled(reason.clone())));
        self.write(&mut state);
        count
    }

    pub(super) fn stats(&self) -> ConnectionStats {
        let state = lock(&self.state);
        ConnectionStats {
            in_flight: state.peer.in_flight(),
            tools: state.tool_count,
            passed_over: state.peer.counters(),
            noise: state.peer.noise().map(str::to_owned),
            torn_bytes: state.torn_bytes,
            unwritten_lines: state.outbox.dropped(),
            nameless_tools: state.nameless_tools,
        }
    }

    /// The server's output has ended: nothing will be answered any more.
    pub(super) fn output_ended(&self, state: &mut State) {
        // A reason that was given before is the better one.
        state.over.get_or_insert(CallError::ServerExited);
        for waiter in state.peer.fail_all() {
            let _ = waiter.send(Err(CallError::ServerExited));
        }
        self.handshake_over(Err(HandshakeError::ServerExited));
    }

    pub(super) fn end(&self) {
        self.finish_reading();
        let mut state = lock(&self.state);
        self.output_ended(&mut state);
        state.outbox.abandon();
        drop(state);
        let tasks = std::mem::take(&mut *lock(&self.tasks));
        if !tasks.is_empty() {
            let ConnectionStats { passed_over, torn_bytes, unwritten_lines, .. } = self.stats();
            let _entered = self.span.enter();
            tracing::debug!(?passed_over, torn_bytes, unwritten_lines, "the connection has ended");
        }
        for task in tasks {
            task.abort();
        }
    }

    fn handshake_over(&self, outcome: Result<Handshake, HandshakeError>) {
        self.handshake.send_if_modified(|known| {
            let first = known.is_none();
            if first {
                *known = Some(outcome);
            }
            first
        });
    }
}

impl State {
    /// Writes what fits. The pipe, if it is full.
    pub(super) fn flush(&mut self) -> Option<Arc<pipe::Sender>> {
        match self.outbox.flush() {
            Flush::Idle => None,
            Flush::Blocked(pipe) => Some(pipe),
            Flush::Broken(unwritten) => {
                // The server has closed its input, so that nothing more can be asked; what it has read it may still answer.
                self.over.get_or_insert(CallError::ServerExited);
                for number in unwritten {
                    if let Some(waiter) = self.peer.withdraw(number) {
                        let _ = waiter.send(Err(CallError::ServerExited));
                    }
                }
                None
            }
        }
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code that can panic halfway through a change runs under these locks, so a poisoned one is whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
