//! The client's side of the conversation with one server.
mod events;

use crate::envelope::Message;
use crate::framing::TooLong;
use crate::handshake::{HandshakeError, Negotiated, Step, discover_answered, initialize_answered};
use crate::id::Id;
use crate::outgoing;
use crate::salvage::salvage;
use crate::text::printable;
use crate::version::Era;
use serde_json::value::RawValue;
use std::collections::HashMap;
use std::fmt;

pub use events::{Answer, Cancelled, Counters, NotReady, PeerEvent, Sent};

/// By this our ids are told from any that a server or a client makes up.
const PREFIX: &str = "mcpvisor-";
/// A server's id longer than this is not sent back.
const LONGEST_ID: usize = 1024;
/// How much of a line of noise is kept for showing, in characters.
const NOISE_SHOWN: usize = 300;
/// Tables that have grown beyond this many entries are given back when they are empty.
const KEEP_ENTRIES: usize = 32;

/// The number of a request of ours; its id is the string `mcpvisor-N`. Never used twice on one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestNumber(u64);

/// The machine for one server. `T` is whoever waits for an answer.
///
/// - commands: [`Peer::begin`], [`Peer::list_tools`], [`Peer::call_tool`], [`Peer::cancel`], [`Peer::withdraw`], [`Peer::settle`],
///   [`Peer::fail_all`]
/// - inputs: [`Peer::handle_line`], [`Peer::handle_message`], [`Peer::handle_too_long`]
/// - getters: [`Peer::negotiated`], [`Peer::in_flight`], [`Peer::counters`], [`Peer::noise`]
#[derive(Debug)]
pub struct Peer<T> {
    next: u64,
    phase: Phase,
    pending: HashMap<u64, T>,
    /// Cancelled requests whose answers may still come.
    owed: u64,
    counters: Counters,
    noise: Option<String>,
    noise_is_glued: bool,
}

#[derive(Debug)]
enum Phase {
    New,
    Initializing(u64),
    /// The error is what `initialize` was refused with.
    Discovering(u64, HandshakeError),
    Ready(Negotiated),
    Failed,
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
            pending: HashMap::new(),
            owed: 0,
            counters: Counters::default(),
            noise: None,
            noise_is_glued: false,
        }
    }
}

impl<T> Peer<T> {
    /// Begins the handshake: the line to write, or `None` if it was begun before.
    pub fn begin(&mut self) -> Option<Vec<u8>> {
        if !matches!(self.phase, Phase::New) {
            return None;
        }
        let number = self.number();
        self.phase = Phase::Initializing(number.0);
        Some(outgoing::initialize(&number.to_string()))
    }

    /// Asks for a page of the tools.
    ///
    /// # Errors
    /// Before the handshake is done.
    pub fn list_tools(&mut self, token: T, cursor: Option<&str>) -> Result<Sent, NotReady<T>> {
        self.request(token, |id, modern| outgoing::tools_list(id, cursor, modern))
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
        let mut pending: Vec<(u64, T)> = std::mem::take(&mut self.pending).into_iter().collect();
        pending.sort_unstable_by_key(|(number, _)| *number);
        if !matches!(self.phase, Phase::Ready(_)) {
            self.phase = Phase::Failed;
        }
        pending.into_iter().map(|(_, token)| token).collect()
    }

    /// A line of the server, as the framer gives it.
    pub fn handle_line(&mut self, line: &[u8]) -> Vec<PeerEvent<T>> {
        self.handle_message(&Message::parse(line), line)
    }

    /// A message of the server that is parsed already, and the line that it was.
    pub fn handle_message(&mut self, message: &Message<'_>, line: &[u8]) -> Vec<PeerEvent<T>> {
        match message {
            Message::Response { id, outcome } => self.response(id.as_ref(), *outcome),
            Message::Notification { method, .. } => {
                self.counters.notifications += 1;
                match &**method {
                    "notifications/tools/list_changed" => vec![PeerEvent::ToolsChanged],
                    _ => Vec::new(),
                }
            }
            Message::Request { raw_id, method, .. } => self.server_request(raw_id, method),
            Message::Noise(_) => {
                self.keep_noise(line);
                Vec::new()
            }
        }
    }

    /// A line of the server over `cap` bytes: fails the request that it answers, where that can be told.
    pub fn handle_too_long(&mut self, line: &TooLong, cap: usize) -> Vec<PeerEvent<T>> {
        self.counters.too_long += 1;
        let found = salvage(line);
        if found.method {
            let raw_id = found.id.and_then(|id| RawValue::from_string(id.to_json()).ok());
            return match raw_id {
                Some(id) if self.may_request(&id) => {
                    self.counters.server_requests += 1;
                    let text =
                        format!("the request has {} bytes, more than the longest line of {cap}", line.bytes);
                    vec![PeerEvent::Send(outgoing::error(&id, outgoing::INVALID_REQUEST, &text))]
                }
                _ => Vec::new(),
            };
        }
        if !found.object {
            self.keep_noise(&line.head);
            return Vec::new();
        }
        let number = found.id.as_ref().and_then(|id| self.number_of(id)).or_else(|| match found.id {
            None => self.only_pending(),
            Some(_) => None,
        });
        let Some(number) = number else {
            self.counters.unmatched += 1;
            return Vec::new();
        };
        if self.is_handshake(number) {
            let error = HandshakeError::TooLong { bytes: line.bytes, cap: cap as u64 };
            return self.advance(Step::Failed(error));
        }
        match self.take(number) {
            Some(token) => vec![PeerEvent::Answered { token, answer: Answer::TooLong(line.bytes) }],
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
        self.pending.insert(number.0, token);
        Ok(Sent { number, line: line(&number.to_string(), modern.as_deref()) })
    }

    fn take(&mut self, number: u64) -> Option<T> {
        let token = self.pending.remove(&number);
        if self.pending.is_empty() && self.pending.capacity() > KEEP_ENTRIES {
            self.pending = HashMap::new();
        }
        token
    }

    fn is_handshake(&self, number: u64) -> bool {
        matches!(self.phase, Phase::Initializing(current) | Phase::Discovering(current, _) if current == number)
    }

    /// The number of an id of ours, whether it is pending or not. A server that turns strings into numbers where it can leaves
    /// ours alone, because of the prefix; so the type is part of the match and `1` is never taken for `mcpvisor-1`.
    fn number_of(&self, id: &Id) -> Option<u64> {
        let Id::String(text) = id else { return None };
        let digits = text.strip_prefix(PREFIX)?;
        let number: u64 = digits.parse().ok()?;
        (number < self.next && number.to_string() == digits).then_some(number)
    }

    /// The only request that an answer without an id can mean.
    fn only_pending(&self) -> Option<u64> {
        let handshake = match self.phase {
            Phase::Initializing(number) | Phase::Discovering(number, _) => Some(number),
            _ => None,
        };
        let mut candidates = self.pending.keys().copied().chain(handshake);
        match (self.owed, candidates.next(), candidates.next()) {
            (0, Some(only), None) => Some(only),
            _ => None,
        }
    }

    fn response(&mut self, id: Option<&Id>, outcome: Result<&RawValue, &RawValue>) -> Vec<PeerEvent<T>> {
        let number = match id {
            Some(id) => self.number_of(id),
            None => self.only_pending(),
        };
        let Some(number) = number else {
            self.counters.unmatched += 1;
            return Vec::new();
        };
        if let Some(token) = self.take(number) {
            let answer = match outcome {
                Ok(result) => Answer::Result(result.to_owned()),
                Err(error) => Answer::Error(error.to_owned()),
            };
            return vec![PeerEvent::Answered { token, answer }];
        }
        match std::mem::replace(&mut self.phase, Phase::Failed) {
            Phase::Initializing(current) if current == number => self.advance(initialize_answered(outcome)),
            Phase::Discovering(current, refusal) if current == number => {
                self.advance(discover_answered(outcome, refusal))
            }
            phase => {
                self.phase = phase;
                self.late()
            }
        }
    }

    fn late(&mut self) -> Vec<PeerEvent<T>> {
        self.counters.late += 1;
        self.owed = self.owed.saturating_sub(1);
        Vec::new()
    }

    fn advance(&mut self, step: Step) -> Vec<PeerEvent<T>> {
        match step {
            Step::Done(negotiated) => {
                self.phase = Phase::Ready(negotiated.clone());
                match negotiated.era {
                    Era::Legacy => {
                        vec![PeerEvent::Send(outgoing::initialized()), PeerEvent::Ready(negotiated)]
                    }
                    Era::Modern => vec![PeerEvent::Ready(negotiated)],
                }
            }
            Step::Failed(error) => {
                self.phase = Phase::Failed;
                vec![PeerEvent::HandshakeFailed(error)]
            }
            Step::Discover(version, refusal) => {
                let number = self.number();
                self.phase = Phase::Discovering(number.0, refusal);
                vec![PeerEvent::Send(outgoing::discover(&number.to_string(), version))]
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

    fn server_request(&mut self, raw_id: &RawValue, method: &str) -> Vec<PeerEvent<T>> {
        if !self.may_request(raw_id) {
            return Vec::new();
        }
        self.counters.server_requests += 1;
        // No capability was declared, so anything but a ping is answered at once: a server that waits for `roots/list` would
        // stay alive for seconds after its input has ended.
        vec![PeerEvent::Send(match method {
            "ping" => outgoing::empty_result(raw_id),
            _ => outgoing::error(raw_id, outgoing::METHOD_NOT_FOUND, "mcpvisor offers no client feature"),
        })]
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
