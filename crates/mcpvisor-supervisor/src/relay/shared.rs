//! What a connection's callers and tasks share.
mod ends;
mod heard;

use super::attached::{Attached, Slot};
use super::exclusive::End;
use super::outbox::{Flush, Outbox};
use super::reader::Reader;
use super::{CallError, ConnectionOptions, ConnectionStats, LastItems};
use crate::api::Requester;
use crate::frames::FrameLog;
use mcpvisor_mcp::endpoint::CallKey;
use mcpvisor_mcp::peer::turns::{Caller, Turn, is_call};
use mcpvisor_mcp::peer::{Asked, NotReady, Sent, Told as Notification};
use mcpvisor_mcp::splice::{Span, splice};
use mcpvisor_mcp::{Answer, Era, HandshakeError, Item, ListKind, Negotiated, Peer, RequestNumber, outgoing};
use serde_json::value::RawValue;
use smallvec::SmallVec;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;
use tokio::net::unix::pipe;
use tokio::sync::{Notify, SetOnce, oneshot};
use tokio::task::AbortHandle;

/// What a client asks to be told of changes.
pub(super) const LISTEN: &str = "subscriptions/listen";

/// Hears the parameters of each notification of a call's progress. Must not block.
pub(crate) type Told = Arc<dyn Fn(&RawValue) + Send + Sync>;

/// Who waits for an answer.
pub(super) enum Waiter {
    /// Somebody in the daemon, who may hear of the progress.
    Caller(oneshot::Sender<Result<Box<RawValue>, CallError>>, Option<Told>, Option<Requester>),
    /// The client that is attached.
    Client(Arc<Attached>, CallKey),
    /// Nobody: the daemon's own subscription to changed lists.
    Own,
    /// Nobody: whether the server is still there. Any byte of it is the answer.
    Health,
}

impl Waiter {
    /// Whether somebody waits still: one that gives up says so before its request is taken back.
    pub(super) fn is_wanted(&self) -> bool {
        match self {
            Self::Caller(_, _, Some(requester)) => requester.given_up().is_none(),
            _ => true,
        }
    }
}

/// What is for a client, and is told to it after the lock is given back.
pub(super) enum Later<'a> {
    Answered(Arc<Attached>, CallKey, Answer<'a>),
    Told(Notification<'a>, Option<(Arc<Attached>, CallKey)>),
    Asked(Asked<'a>),
}

/// Mostly one.
pub(super) type Laters<'a> = SmallVec<[Later<'a>; 1]>;

/// Locks are taken in the order `reader`, `state`, and never held across an await. A client's locks are never taken under them.
pub(super) struct Shared {
    pub(super) me: Weak<Shared>,
    pub(super) options: ConnectionOptions,
    pub(super) reader: Mutex<Reader>,
    pub(super) state: Mutex<State>,
    /// There is something to write that did not fit into the pipe, or the input is being closed.
    pub(super) wake_writer: Notify,
    /// A byte has come since it was last looked.
    pub(super) heard: AtomicBool,
    /// The clock is to look at another time.
    pub(super) rewound: Notify,
    /// Held by whoever lists.
    pub(super) listing: tokio::sync::Mutex<()>,
    /// How the handshake went, once it is over.
    pub(super) handshake: SetOnce<Result<Negotiated, HandshakeError>>,
    /// Where the session's client is, if one is attached, and what its servers have together.
    pub(super) slot: Slot,
    /// Its lock is taken under any other.
    pub(super) frames: FrameLog,
    tasks: Mutex<Vec<AbortHandle>>,
    /// In which it was started: says whose it is.
    span: tracing::Span,
}

pub(super) struct State {
    pub(super) peer: Peer<Waiter>,
    pub(super) outbox: Outbox,
    /// Why no request is taken any more.
    over: Option<CallError>,
    /// Told once nothing is pending any more.
    on_quiet: Option<Box<dyn FnOnce() + Send>>,
    lists: [List; ListKind::ALL.len()],
    /// The server says when its lists change.
    tells_changes: bool,
    /// The daemon's own subscription, while it lasts.
    own: Option<RequestNumber>,
    /// The question whether the server is still there, while it has no answer.
    pub(super) health: Option<RequestNumber>,
    /// Streams of changes that clients listen to: they last as long as the client likes, and make no server busy.
    pub(super) listens: Vec<RequestNumber>,
    /// The page of a list that is being asked for.
    pub(super) page: Option<(ListKind, u32)>,
    /// Whose requests have failed, to be told when the lock is given back.
    pub(super) failed: Vec<(Waiter, CallError)>,
    /// Other servers of the session may begin calls that wait, once the lock is given back.
    pub(super) wake: bool,
    /// When the clock looks next; none while it does not run.
    pub(super) clock: Option<Instant>,
    nameless_tools: u64,
    pub(super) torn_bytes: u64,
}

/// What is known of a list.
#[derive(Default)]
struct List {
    items: Option<Arc<[Item]>>,
    /// How often the server has said that it has changed.
    epoch: u64,
    /// How many the last complete listing had.
    count: Option<usize>,
    /// The last complete listing, though it may have changed since.
    last: Option<Arc<[Item]>>,
}

impl Shared {
    pub(super) fn new(
        me: Weak<Shared>,
        stdin: End,
        stdout: Arc<pipe::Receiver>,
        options: ConnectionOptions,
        slot: Slot,
        frames: FrameLog,
        on_end: Box<dyn FnOnce() + Send>,
    ) -> Self {
        let mut peer = Peer::default();
        peer.limit_calls(options.calls);
        Self {
            me,
            options,
            reader: Mutex::new(Reader::new(stdout, options.max_line, on_end)),
            state: Mutex::new(State {
                peer,
                outbox: Outbox::new(stdin, options.max_queued_lines, options.max_queued_bytes)
                    .noting(frames.clone()),
                over: None,
                on_quiet: None,
                lists: Default::default(),
                tells_changes: false,
                own: None,
                health: None,
                listens: Vec::new(),
                page: None,
                failed: Vec::new(),
                wake: false,
                clock: None,
                nameless_tools: 0,
                torn_bytes: 0,
            }),
            wake_writer: Notify::new(),
            heard: AtomicBool::new(false),
            rewound: Notify::new(),
            listing: tokio::sync::Mutex::new(()),
            handshake: SetOnce::new(),
            slot,
            frames,
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
            && let Some(line) = state.peer.begin(self.options.era)
        {
            state.outbox.push(line, None);
            self.write(&mut state);
        }
        self.unlock(state);
    }

    pub(super) fn send_request(
        &self,
        caller: Caller,
        waiter: Waiter,
        method: &str,
        make: impl FnOnce(&mut Peer<Waiter>, Waiter) -> Result<Sent, NotReady<Waiter>>,
    ) -> Result<RequestNumber, CallError> {
        let number = self.queue_request(caller, waiter, method, make)?;
        self.flush();
        Ok(number)
    }

    /// Queues a request, a call when its turn comes; [`Shared::flush`] writes it.
    pub(super) fn queue_request(
        &self,
        caller: Caller,
        waiter: Waiter,
        method: &str,
        make: impl FnOnce(&mut Peer<Waiter>, Waiter) -> Result<Sent, NotReady<Waiter>>,
    ) -> Result<RequestNumber, CallError> {
        let mut guard = lock(&self.state);
        let state = &mut *guard;
        if let Some(over) = &state.over {
            return Err(over.clone());
        }
        if !waiter.is_wanted() {
            return Err(CallError::GivenUp);
        }
        let is_call = is_call(method);
        let free = state.peer.in_flight() - state.peer.running() - state.peer.queued();
        if !is_call && free >= self.options.max_pending {
            return Err(CallError::Overloaded);
        }
        let sent = make(&mut state.peer, waiter).map_err(|NotReady(_)| CallError::NotReady)?;
        let number = sent.number;
        let line = if is_call {
            state.give_back(&self.slot.together);
            let room = || self.slot.together.take();
            let turn = state.peer.take_turn(Instant::now, caller, method, sent, room);
            if self.options.calls.call_timeout.is_some() || turn == Turn::Waits {
                self.wind(state);
            }
            match turn {
                Turn::Now(line) => line,
                Turn::Waits => return Ok(number),
                Turn::Full(load) => return Err(CallError::QueueFull(load)),
                Turn::Closed => return Err(CallError::Closing),
            }
        } else {
            sent.line
        };
        if !state.outbox.push(line, Some((number, method))) {
            state.peer.withdraw(number);
            self.unlock(guard);
            return Err(CallError::Overloaded);
        }
        if method == LISTEN {
            state.note_listen(number);
        }
        Ok(number)
    }

    /// Queues a line that wants no answer.
    pub(super) fn queue_line(&self, line: Vec<u8>, instead: Option<Vec<u8>>) {
        let mut state = lock(&self.state);
        if !state.outbox.push(line, None)
            && let Some(line) = instead
        {
            state.outbox.push(line, None);
        }
    }

    /// Nobody waits for the answer any more. The server is told in the client's words, where there are any. Whether it may have had the
    /// request.
    pub(super) fn cancel(&self, number: RequestNumber, reason: &str, said: Option<(&[u8], Span)>) -> bool {
        let mut state = lock(&self.state);
        let unwritten = state.peer.is_waiting(number) || state.outbox.withdraw(number);
        if unwritten {
            state.peer.withdraw(number);
            self.write(&mut state);
        } else if let Some(cancelled) = state.peer.cancel(number, reason) {
            let said =
                said.map(|(line, span)| splice(line, &mut [(span, &outgoing::quoted(&number.to_string()))]));
            // Words for which there is no room are not the reason that a server goes on.
            if !said.is_some_and(|line| state.outbox.push(line, None)) {
                state.outbox.push(cancelled.line, None);
            }
            self.write(&mut state);
        }
        self.unlock(state);
        !unwritten
    }

    pub(super) fn flush(&self) {
        let mut state = lock(&self.state);
        self.write(&mut state);
        self.unlock(state);
    }

    /// Writes what fits; the writing task does the rest.
    pub(super) fn write(&self, state: &mut State) {
        if let Some(pipe) = self.push_out(state) {
            drop(pipe);
            self.wake_writer.notify_one();
        }
    }

    /// Gives the lock back, and tells those whose requests have failed under it, and those who may begin calls now.
    pub(super) fn unlock(&self, mut state: MutexGuard<'_, State>) {
        state.give_back(&self.slot.together);
        let quiet = if state.is_quiet() { state.on_quiet.take() } else { None };
        if state.failed.is_empty() && !state.wake && quiet.is_none() {
            return;
        }
        let failed = std::mem::take(&mut state.failed);
        let wake = std::mem::take(&mut state.wake);
        drop(state);
        if let Some(quiet) = quiet {
            quiet();
        }
        if wake {
            self.slot.together.wake();
        }
        for (waiter, error) in failed {
            match waiter {
                Waiter::Caller(waiter, ..) => drop(waiter.send(Err(error))),
                Waiter::Client(client, call) => client.unanswered(self.slot.server(), call, &error),
                Waiter::Own | Waiter::Health => {}
            }
        }
    }

    pub(super) fn known_items(&self, kind: ListKind) -> Result<Option<Arc<[Item]>>, CallError> {
        let state = lock(&self.state);
        if let Some(over) = &state.over {
            return Err(over.clone());
        }
        match state.peer.negotiated() {
            None => Err(CallError::NotReady),
            Some(negotiated) if !negotiated.offers.lists(kind) => Ok(Some(Arc::new([]))),
            Some(_) => Ok(state.lists[kind as usize].items.clone()),
        }
    }

    /// The last complete listings, by kind.
    pub(super) fn last_items(&self) -> LastItems {
        let state = lock(&self.state);
        state.lists.each_ref().map(|list| list.last.clone())
    }

    /// How often a list has changed.
    pub(super) fn epoch(&self, kind: ListKind) -> u64 {
        lock(&self.state).lists[kind as usize].epoch
    }

    /// A listing during which the list changed is given to who asked and not kept; nor is one of a server that does not say when
    /// its lists change.
    pub(super) fn keep_items(
        &self,
        kind: ListKind,
        items: Arc<[Item]>,
        nameless: u64,
        epoch: u64,
    ) -> Arc<[Item]> {
        let mut state = lock(&self.state);
        let tells_changes = state.tells_changes;
        if kind == ListKind::Tools {
            state.nameless_tools = nameless;
        }
        let list = &mut state.lists[kind as usize];
        list.count = Some(items.len());
        list.last = Some(Arc::clone(&items));
        if list.epoch == epoch && tells_changes {
            list.items = Some(Arc::clone(&items));
        }
        items
    }

    pub(super) fn stats(&self) -> ConnectionStats {
        let state = lock(&self.state);
        ConnectionStats {
            in_flight: state.in_flight() - state.peer.queued(),
            queued: state.peer.queued(),
            tools: state.lists[ListKind::Tools as usize].count,
            passed_over: state.peer.counters(),
            noise: state.peer.noise().map(str::to_owned),
            torn_bytes: state.torn_bytes,
            unwritten_lines: state.outbox.dropped(),
            nameless_tools: state.nameless_tools,
        }
    }

    fn handshake_over(&self, outcome: Result<Negotiated, HandshakeError>) {
        // The first outcome is it.
        let _ = self.handshake.set(outcome);
    }
}

impl State {
    /// Nothing is pending but the daemon's own subscription.
    fn is_quiet(&self) -> bool {
        self.peer.in_flight() == usize::from(self.own.is_some())
    }

    /// Writes what fits. The pipe, if it is full.
    pub(super) fn flush(&mut self) -> Option<End> {
        match self.outbox.flush() {
            Flush::Idle => None,
            Flush::Blocked(pipe) => Some(pipe),
            Flush::Broken(unwritten) => {
                // The server has closed its input, so that nothing more can be asked; what it has read it may still answer.
                self.over.get_or_insert(CallError::ServerExited);
                for number in unwritten {
                    if let Some(waiter) = self.peer.withdraw(number) {
                        self.failed.push((waiter, CallError::ServerExited));
                    }
                }
                None
            }
        }
    }

    /// The handshake is done. A modern server says that its lists change to those only that have asked for it.
    fn ready(&mut self, negotiated: &Negotiated) {
        for kind in ListKind::ALL {
            if !negotiated.offers.lists(kind) {
                self.lists[kind as usize].count = Some(0);
            }
        }
        self.tells_changes = negotiated.era == Era::Legacy;
        let offers = negotiated.offers;
        if negotiated.era == Era::Modern && (offers.tools || offers.prompts || offers.resources) {
            let filter = serde_json::json!({
                "toolsListChanged": offers.tools,
                "promptsListChanged": offers.prompts,
                "resourcesListChanged": offers.resources,
            });
            let params = serde_json::Map::from_iter([("notifications".to_owned(), filter)]);
            if let Ok(sent) = self.peer.request_with(Waiter::Own, LISTEN, &params) {
                self.own = Some(sent.number);
                self.outbox.push(sent.line, Some((sent.number, LISTEN)));
            }
        }
    }

    /// Requests that wait for an answer, without the daemon's own that nobody waits for.
    pub(super) fn in_flight(&self) -> usize {
        self.peer.in_flight() - usize::from(self.own.is_some()) - usize::from(self.health.is_some())
    }

    /// Those that are over are forgotten, so that there are no more than requests in flight.
    fn note_listen(&mut self, number: RequestNumber) {
        self.listens.retain(|known| self.peer.waiter(*known).is_some());
        self.listens.push(number);
    }

    fn changed(&mut self, kind: ListKind) {
        let templates = (kind == ListKind::Resources).then_some(ListKind::Templates);
        for kind in std::iter::once(kind).chain(templates) {
            let list = &mut self.lists[kind as usize];
            list.items = None;
            list.epoch += 1;
        }
    }

    /// The client whose call a notification names, and whether it is the daemon's own business.
    fn whom(&mut self, told: &Notification<'_>) -> (Option<(Arc<Attached>, CallKey)>, bool) {
        let Some((number, _)) = told.about else { return (None, false) };
        if told.method == "notifications/progress" {
            self.peer.progressed(number, Instant::now);
        }
        match self.peer.waiter(number) {
            Some(Waiter::Client(client, call)) => (Some((Arc::clone(client), *call)), false),
            Some(Waiter::Own) => {
                self.tells_changes |= told.method == "notifications/subscriptions/acknowledged";
                (None, true)
            }
            Some(Waiter::Caller(_, Some(hear), _)) => {
                if let Some(params) = told.params {
                    hear(params);
                }
                (None, true)
            }
            Some(Waiter::Caller(_, None, _) | Waiter::Health) => (None, true),
            None => (None, false),
        }
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code that can panic halfway through a change runs under these locks, so a poisoned one is whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
