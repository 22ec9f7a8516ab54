//! The client's side of the conversation with one server.
mod events;
pub mod turns;

use crate::envelope::Message;
use crate::framing::TooLong;
use crate::handshake::{HandshakeError, Negotiated, Step, discover_answered, initialize_answered};
use crate::id::Id;
use crate::key::Table;
use crate::listing::ListKind;
use crate::outgoing;
use crate::salvage::salvage;
use crate::splice::splice;
use crate::text::printable;
use crate::version::{Era, EraChoice, MODERN};
use serde::Deserialize;
use serde_json::value::RawValue;
use smallvec::{SmallVec, smallvec};
use std::fmt;
use turns::{CallLimits, Place, Turns};

pub use events::{
    Answer, Asked, Cancelled, Counters, Events, Forward, NotReady, PeerEvent, PlainAnswer, Sent, Told,
};

/// By this our ids are told from any that a server or a client makes up.
pub(crate) const PREFIX: &str = "mcpvisor-";
/// A server's id longer than this is not sent back.
const LONGEST_ID: usize = 1024;
/// How much of a line of noise is kept for showing, in characters.
const NOISE_SHOWN: usize = 300;
/// Tables that have grown beyond this many entries are given back when they are empty.
const KEEP_ENTRIES: usize = 64;

/// The number of a request of ours; its id is the string `mcpvisor-N`. Never used twice on one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestNumber(u64);

/// The machine for one server. `T` is whoever waits for an answer.
///
/// - commands: [`Peer::begin`], [`Peer::list`], [`Peer::call_tool`], [`Peer::request_with`], [`Peer::forward`], [`Peer::cancel`],
///   [`Peer::withdraw`], [`Peer::settle`], [`Peer::fail_all`]
/// - turns of calls: [`Peer::take_turn`], [`Peer::next_turn`], [`Peer::stop_waiting`], [`Peer::overdue`], [`Peer::next_timeout`]
/// - inputs: [`Peer::handle_message`], [`Peer::handle_too_long`]
/// - getters: [`Peer::negotiated`], [`Peer::in_flight`], [`Peer::counters`], [`Peer::noise`]
#[derive(Debug)]
pub struct Peer<T> {
    next: u64,
    phase: Phase,
    pending: Table<u64, Pending<T>>,
    turns: Turns,
    /// Cancelled requests whose answers may still come.
    owed: u64,
    counters: Counters,
    noise: Option<String>,
    noise_is_glued: bool,
}

/// A request that has no answer yet.
#[derive(Debug)]
struct Pending<T> {
    token: T,
    place: Place,
}

#[derive(Debug)]
enum Phase {
    New,
    /// Whether `server/discover` was refused before.
    Initializing(u64, EraChoice, bool),
    /// The error is what `initialize` was refused with, where it was tried.
    Discovering(u64, EraChoice, Option<HandshakeError>),
    Ready(Negotiated),
    Failed,
}

/// The token that a `notifications/progress` carries.
#[derive(Deserialize)]
struct Progress<'a> {
    #[serde(borrow, rename = "progressToken")]
    token: &'a RawValue,
}

/// The request that a modern notification belongs to.
#[derive(Deserialize)]
struct Subscribed<'a> {
    #[serde(borrow, rename = "_meta")]
    meta: SubscribedMeta<'a>,
}

#[derive(Deserialize)]
struct SubscribedMeta<'a> {
    #[serde(borrow, rename = "io.modelcontextprotocol/subscriptionId")]
    id: &'a RawValue,
}

/// The number in an id of ours, which is JSON text; whoever sends it back may have escaped it in another way.
pub(crate) fn numbered(id: &str) -> Option<u64> {
    let digits = |text: &str| {
        let digits = text.strip_prefix(PREFIX)?;
        // No sign, no zero in front: each number has one spelling.
        let plain = digits.bytes().all(|byte| byte.is_ascii_digit()) && !digits.starts_with('0');
        digits.parse().ok().filter(|_| plain)
    };
    let inner = id.strip_prefix('"')?.strip_suffix('"')?;
    if memchr::memchr(b'\\', inner.as_bytes()).is_none() {
        return digits(inner);
    }
    match Id::from_json(id)? {
        Id::String(text) => digits(&text),
        Id::Number(_) => None,
    }
}

impl fmt::Display for RequestNumber {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{PREFIX}{}", self.0)
    }
}

impl<T> Default for Peer<T> {
    fn default() -> Self {
        Self {
            next: 1,
            phase: Phase::New,
            pending: Table::default(),
            turns: Turns::new(CallLimits::NONE),
            owed: 0,
            counters: Counters::default(),
            noise: None,
            noise_is_glued: false,
        }
    }
}

impl<T> Peer<T> {
    /// Begins the handshake: the line to write, or `None` if it was begun before.
    pub fn begin(&mut self, era: EraChoice) -> Option<Vec<u8>> {
        if !matches!(self.phase, Phase::New) {
            return None;
        }
        let number = self.number();
        if matches!(era, EraChoice::Modern | EraChoice::ModernFirst) {
            self.phase = Phase::Discovering(number.0, era, None);
            return Some(outgoing::discover(&number.to_string(), MODERN[MODERN.len() - 1]));
        }
        self.phase = Phase::Initializing(number.0, era, false);
        Some(outgoing::initialize(&number.to_string()))
    }

    /// Asks for a page of a list.
    ///
    /// # Errors
    /// Before the handshake is done.
    pub fn list(&mut self, token: T, kind: ListKind, cursor: Option<&str>) -> Result<Sent, NotReady<T>> {
        self.request(token, |id, modern| outgoing::list(id, kind.method(), cursor, modern))
    }

    /// A request of ours with parameters that are an object. The revision of a modern server, which every request names, is added.
    ///
    /// # Errors
    /// Before the handshake is done.
    pub fn request_with(
        &mut self,
        token: T,
        method: &'static str,
        params: &serde_json::Map<String, serde_json::Value>,
    ) -> Result<Sent, NotReady<T>> {
        self.request(token, |id, modern| outgoing::request_with(id, method, params, modern))
    }

    /// Passes a client's request on: its id, and its progress token where it has one, become ours; all else is left as it is.
    ///
    /// # Errors
    /// Before the handshake is done.
    pub fn forward(&mut self, token: T, forward: &Forward<'_>) -> Result<Sent, NotReady<T>> {
        if self.negotiated().is_none() {
            return Err(NotReady(token));
        }
        let number = self.number();
        self.add(number, token);
        let id = format!("\"{number}\"");
        let mut parts = SmallVec::<[_; 3]>::new();
        parts.push((forward.id.clone(), id.as_bytes()));
        parts.extend(forward.progress.clone().map(|span| (span, id.as_bytes())));
        parts.extend(forward.rename.as_ref().map(|(span, with)| (span.clone(), &**with)));
        Ok(Sent { number, line: splice(&forward.line, &mut parts) })
    }

    /// Calls a tool.
    ///
    /// # Errors
    /// Before the handshake is done.
    pub fn call_tool(
        &mut self,
        token: T,
        name: &str,
        arguments: Option<&RawValue>,
    ) -> Result<Sent, NotReady<T>> {
        self.request(token, |id, modern| outgoing::tools_call(id, name, arguments, modern))
    }

    /// Gives a request up: its answer, if it still comes, is swallowed and counted. `None` if it is not pending.
    pub fn cancel(&mut self, number: RequestNumber, reason: &str) -> Option<Cancelled<T>> {
        let token = self.take(number.0)?;
        self.owed += 1;
        Some(Cancelled { number, token, line: outgoing::cancelled(&number.to_string(), reason) })
    }

    /// Forgets a request that was never written to the server. `None` if it is not pending.
    pub fn withdraw(&mut self, number: RequestNumber) -> Option<T> {
        self.take(number.0)
    }

    /// Gives every request up, oldest first. The handshake is not a request: it must not be cancelled.
    pub fn settle(&mut self, reason: &str) -> Vec<Cancelled<T>> {
        let mut numbers: Vec<u64> = self.pending.keys().copied().collect();
        numbers.sort_unstable();
        numbers.into_iter().filter_map(|number| self.cancel(RequestNumber(number), reason)).collect()
    }

    /// The server is gone: forgets every request. Its waiters, oldest first.
    pub fn fail_all(&mut self) -> Vec<T> {
        let mut numbers: Vec<u64> = self.pending.keys().copied().collect();
        numbers.sort_unstable();
        if !matches!(self.phase, Phase::Ready(_)) {
            self.phase = Phase::Failed;
        }
        numbers.into_iter().filter_map(|number| self.take(number)).collect()
    }

    #[cfg(test)]
    pub(crate) fn handle_line<'a>(&mut self, line: &'a [u8]) -> Events<'a, T> {
        // Messages of tests live as long as the test does.
        self.handle_message(Box::leak(Box::new(Message::parse(line))), line)
    }

    /// A message of the server, and the line that it was.
    pub fn handle_message<'a>(&mut self, message: &'a Message<'a>, line: &'a [u8]) -> Events<'a, T> {
        match message {
            Message::Response { raw_id, outcome } => {
                let answer = Answer::Line { line, raw_id: *raw_id, outcome: *outcome };
                self.response(*raw_id, *outcome, answer)
            }
            Message::Notification { method, params } => {
                self.counters.notifications += 1;
                let about = params.and_then(|params| self.named(method, params));
                let told = PeerEvent::Told(Told { line, method, params: *params, about });
                match ListKind::of_change(method) {
                    Some(kind) => smallvec![PeerEvent::Changed(kind), told],
                    None => smallvec![told],
                }
            }
            Message::Request { raw_id, method, params } => {
                self.server_request(Asked { line, raw_id, method, params: *params })
            }
            Message::Noise(_) => {
                self.keep_noise(line);
                // Its head promised an answer, and the rest breaks that: whoever waits hears so, and not nothing.
                if let Some(plain) = PlainAnswer::read(line)
                    && let Some(token) = self.take(plain.number)
                {
                    let answer = Answer::Unread { line, raw_id: plain.raw_id };
                    return smallvec![PeerEvent::Answered { token, answer }];
                }
                SmallVec::new()
            }
        }
    }

    /// A line of the server over `cap` bytes: fails the request that it answers, where that can be told.
    pub fn handle_too_long(&mut self, line: &TooLong, cap: usize) -> Events<'static, T> {
        self.counters.too_long += 1;
        let found = salvage(line);
        if found.method {
            let raw_id = found.id.and_then(|id| RawValue::from_string(id.to_json()).ok());
            return match raw_id {
                Some(id) if self.may_request(&id) => {
                    self.counters.server_requests += 1;
                    let text =
                        format!("the request has {} bytes, more than the longest line of {cap}", line.bytes);
                    smallvec![PeerEvent::Send(outgoing::error(&id, outgoing::INVALID_REQUEST, &text))]
                }
                _ => SmallVec::new(),
            };
        }
        if !found.object {
            self.keep_noise(&line.head);
            return SmallVec::new();
        }
        let number =
            found.id.as_ref().and_then(|id| self.number_of(&id.to_json())).or_else(|| match found.id {
                None => self.only_pending(),
                Some(_) => None,
            });
        let Some(number) = number else {
            self.counters.unmatched += 1;
            return SmallVec::new();
        };
        if self.is_handshake(number) {
            let error = HandshakeError::TooLong { bytes: line.bytes, cap: cap as u64 };
            return self.advance(Step::Failed(error));
        }
        match self.take(number) {
            Some(token) => smallvec![PeerEvent::Answered { token, answer: Answer::TooLong(line.bytes) }],
            None => self.late(),
        }
    }

    /// What was agreed; `None` before the handshake is done.
    pub fn negotiated(&self) -> Option<&Negotiated> {
        match &self.phase {
            Phase::Ready(negotiated) => Some(negotiated),
            _ => None,
        }
    }

    /// The request of the handshake that waits for its answer.
    pub fn handshake_step(&self) -> Option<&'static str> {
        match self.phase {
            Phase::Initializing(..) => Some("initialize"),
            Phase::Discovering(..) => Some("server/discover"),
            Phase::New | Phase::Ready(_) | Phase::Failed => None,
        }
    }

    /// Takes the waiter of an answer whose head was read, if `wants` says that this is enough for it.
    pub fn take_plain(&mut self, answer: &PlainAnswer<'_>, wants: impl FnOnce(&T) -> bool) -> Option<T> {
        self.pending.get(&answer.number).filter(|pending| wants(&pending.token))?;
        self.take(answer.number)
    }

    /// Who waits for a request's answer.
    pub fn waiter(&self, number: RequestNumber) -> Option<&T> {
        self.pending.get(&number.0).map(|pending| &pending.token)
    }

    /// Requests that wait for their answers, the handshake's not counted.
    pub fn in_flight(&self) -> usize {
        self.pending.len()
    }

    /// What was passed over so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// The first line of noise, made printable and cut; a line that has a message glued to something else is preferred, since it
    /// explains a handshake that got no answer.
    pub fn noise(&self) -> Option<&str> {
        self.noise.as_deref()
    }

    fn number(&mut self) -> RequestNumber {
        let number = self.next;
        self.next += 1;
        RequestNumber(number)
    }

    fn request(
        &mut self,
        token: T,
        line: impl FnOnce(&str, Option<&str>) -> Vec<u8>,
    ) -> Result<Sent, NotReady<T>> {
        let modern = match &self.phase {
            Phase::Ready(Negotiated { era: Era::Modern, protocol, .. }) => Some(protocol.clone()),
            Phase::Ready(_) => None,
            _ => return Err(NotReady(token)),
        };
        let number = self.number();
        self.add(number, token);
        Ok(Sent { number, line: line(&number.to_string(), modern.as_deref()) })
    }

    fn take(&mut self, number: u64) -> Option<T> {
        let Pending { token, place } = self.pending.remove(&number)?;
        self.turns.left(number, place);
        if self.pending.is_empty() && self.pending.capacity() > KEEP_ENTRIES {
            self.pending = Table::default();
        }
        Some(token)
    }

    /// A new request, which is no call until it takes its turn.
    fn add(&mut self, number: RequestNumber, token: T) {
        self.pending.insert(number.0, Pending { token, place: Place::Free });
    }

    fn is_handshake(&self, number: u64) -> bool {
        matches!(self.phase, Phase::Initializing(current, ..) | Phase::Discovering(current, ..) if current == number)
    }

    /// The number of an id of ours, whether it is pending or not. A server that turns strings into numbers where it can leaves
    /// ours alone, because of the prefix; so the type is part of the match and `1` is never taken for `mcpvisor-1`.
    fn number_of(&self, id: &str) -> Option<u64> {
        numbered(id).filter(|number| *number < self.next)
    }

    /// The only request that an answer without an id can mean.
    fn only_pending(&self) -> Option<u64> {
        let handshake = match self.phase {
            Phase::Initializing(number, ..) | Phase::Discovering(number, ..) => Some(number),
            _ => None,
        };
        let written = |(number, pending): (&u64, &Pending<T>)| {
            (!matches!(pending.place, Place::Waiting)).then_some(*number)
        };
        let mut candidates = self.pending.iter().filter_map(written).chain(handshake);
        match (self.owed, candidates.next(), candidates.next()) {
            (0, Some(only), None) => Some(only),
            _ => None,
        }
    }

    fn response<'a>(
        &mut self,
        raw_id: Option<&RawValue>,
        outcome: Result<&RawValue, &RawValue>,
        answer: Answer<'a>,
    ) -> Events<'a, T> {
        let number = match raw_id {
            Some(id) => self.number_of(id.get()),
            None => self.only_pending(),
        };
        let Some(number) = number else {
            self.counters.unmatched += 1;
            return SmallVec::new();
        };
        if let Some(token) = self.take(number) {
            return smallvec![PeerEvent::Answered { token, answer }];
        }
        match std::mem::replace(&mut self.phase, Phase::Failed) {
            Phase::Initializing(current, era, second) if current == number => {
                self.advance(initialize_answered(outcome, era, second))
            }
            Phase::Discovering(current, era, refusal) if current == number => {
                self.advance(discover_answered(outcome, era, refusal))
            }
            phase => {
                self.phase = phase;
                self.late()
            }
        }
    }

    fn late<'a>(&mut self) -> Events<'a, T> {
        self.counters.late += 1;
        self.owed = self.owed.saturating_sub(1);
        SmallVec::new()
    }

    fn advance<'a>(&mut self, step: Step) -> Events<'a, T> {
        match step {
            Step::Done(negotiated) => {
                self.phase = Phase::Ready(negotiated.clone());
                match negotiated.era {
                    Era::Legacy => {
                        smallvec![PeerEvent::Send(outgoing::initialized()), PeerEvent::Ready(negotiated)]
                    }
                    Era::Modern => smallvec![PeerEvent::Ready(negotiated)],
                }
            }
            Step::Failed(error) => {
                self.phase = Phase::Failed;
                smallvec![PeerEvent::HandshakeFailed(error)]
            }
            Step::Discover(version, refusal) => {
                let number = self.number();
                self.phase = Phase::Discovering(number.0, EraChoice::Auto, Some(refusal));
                smallvec![PeerEvent::Send(outgoing::discover(&number.to_string(), version))]
            }
            Step::Initialize => {
                let number = self.number();
                self.phase = Phase::Initializing(number.0, EraChoice::ModernFirst, true);
                smallvec![PeerEvent::Send(outgoing::initialize(&number.to_string()))]
            }
        }
    }

    /// Servers of the modern era send no requests.
    fn may_request(&mut self, raw_id: &RawValue) -> bool {
        let modern = self.negotiated().is_some_and(|negotiated| negotiated.era == Era::Modern);
        let allowed = !modern && raw_id.get().len() <= LONGEST_ID;
        self.counters.violations += u64::from(!allowed);
        allowed
    }

    fn server_request<'a>(&mut self, asked: Asked<'a>) -> Events<'a, T> {
        if !self.may_request(asked.raw_id) {
            return SmallVec::new();
        }
        self.counters.server_requests += 1;
        match asked.method {
            "ping" => smallvec![PeerEvent::Send(outgoing::empty_result(asked.raw_id))],
            _ => smallvec![PeerEvent::Asked(asked)],
        }
    }

    /// The request of ours, still unanswered, that a notification names.
    fn named<'a>(&self, method: &str, params: &'a RawValue) -> Option<(RequestNumber, &'a RawValue)> {
        let raw = if method == "notifications/progress" {
            let Progress { token } = serde_json::from_str(params.get()).ok()?;
            token
        } else if self.negotiated().is_some_and(|negotiated| negotiated.era == Era::Modern) {
            let Subscribed { meta: SubscribedMeta { id } } = serde_json::from_str(params.get()).ok()?;
            id
        } else {
            return None;
        };
        let number = self.number_of(raw.get())?;
        self.pending.contains_key(&number).then_some((RequestNumber(number), raw))
    }

    fn keep_noise(&mut self, line: &[u8]) {
        self.counters.noise += 1;
        if self.noise_is_glued {
            return;
        }
        let glued = memchr::memmem::find(line, b"\"jsonrpc\"").is_some();
        if glued || self.noise.is_none() {
            self.noise = Some(printable(line, NOISE_SHOWN));
            self.noise_is_glued = glued;
        }
    }
}

#[cfg(test)]
mod tests;
