//! What the conversation's machine takes and gives.
use super::RequestNumber;
use crate::handshake::{HandshakeError, Negotiated};
use crate::listing::ListKind;
use crate::splice::Span;
use serde_json::value::RawValue;
use smallvec::SmallVec;
use std::borrow::Cow;

/// What follows from a line of the server, in this order; most lines have one event.
pub type Events<'a, T> = SmallVec<[PeerEvent<'a, T>; 1]>;

/// What follows from a line of the server; borrows from that line.
#[derive(Debug)]
pub enum PeerEvent<'a, T> {
    /// To be written to the server.
    Send(Vec<u8>),
    /// The handshake is done; the lines before this event belong to it.
    Ready(Negotiated),
    /// The server can't be spoken to.
    HandshakeFailed(HandshakeError),
    /// A request's answer.
    Answered {
        /// Who waits for it.
        token: T,
        /// What the server said.
        answer: Answer<'a>,
    },
    /// The server's tools, prompts or resources are others now. A [`PeerEvent::Told`] with the same words follows.
    Changed(ListKind),
    /// A notification.
    Told(Told<'a>),
    /// A request of the server that is no ping: to be answered with its id.
    Asked(Asked<'a>),
}

/// A server's answer, as it came.
#[derive(Debug, Clone, Copy)]
pub enum Answer<'a> {
    /// A message.
    Line {
        /// All of it, without its LF.
        line: &'a [u8],
        /// Its id as it stands in the line. None where an answer without an id could only mean this request.
        raw_id: Option<&'a RawValue>,
        /// The result, or the JSON-RPC error object.
        outcome: Result<&'a RawValue, &'a RawValue>,
    },
    /// A message of which only the head was read, by [`PlainAnswer`].
    Unread {
        /// All of it, without its LF.
        line: &'a [u8],
        /// Its id as it stands in the line.
        raw_id: &'a str,
    },
    /// A line over the cap, in bytes.
    TooLong(u64),
}

/// An answer of which only the head was read: enough to pass it on. Whether the rest is JSON is for whoever reads it.
#[derive(Debug, Clone, Copy)]
pub struct PlainAnswer<'a> {
    pub(super) number: u64,
    /// Its id as it stands in the line.
    pub raw_id: &'a str,
}

impl<'a> PlainAnswer<'a> {
    /// Reads the head of a line, if it is a plain one and that of an answer to a request of ours.
    #[must_use]
    pub fn read(line: &'a [u8]) -> Option<Self> {
        if line.first() != Some(&b'{') {
            return None;
        }
        let head = crate::relay::scan::head::read(line)?;
        let raw_id = std::str::from_utf8(head.id).ok().filter(|_| head.method.is_none() && head.outcome)?;
        Some(Self { number: super::numbered(raw_id)?, raw_id })
    }
}

/// A notification of the server.
#[derive(Debug, Clone, Copy)]
pub struct Told<'a> {
    /// All of it, without its LF.
    pub line: &'a [u8],
    /// For instance `notifications/message`.
    pub method: &'a str,
    /// Absent where the server left it out.
    pub params: Option<&'a RawValue>,
    /// The request of ours that it names as its progress token or its subscription, and where in the line.
    pub about: Option<(RequestNumber, &'a RawValue)>,
}

/// A request of the server.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// All of it, without its LF.
    pub line: &'a [u8],
    /// The server's id, as it stands in the line.
    pub raw_id: &'a RawValue,
    /// For instance `sampling/createMessage`.
    pub method: &'a str,
    /// Absent where the server left it out.
    pub params: Option<&'a RawValue>,
}

/// A client's request that is passed on: its line, and what of it is replaced.
#[derive(Debug, Clone)]
pub struct Forward<'a> {
    /// All of it, without its LF.
    pub line: Cow<'a, [u8]>,
    /// What is asked for, for instance `tools/call`.
    pub method: Cow<'a, str>,
    /// Where the id stands.
    pub id: Span,
    /// Where the progress token stands; it becomes the id, so that none of two clients can meet the other's.
    pub progress: Option<Span>,
    /// What else is replaced, for instance a published name by the server's own.
    pub rename: Option<(Span, Box<[u8]>)>,
}

impl Forward<'_> {
    /// The same with a line of its own.
    #[must_use]
    pub fn into_owned(self) -> Forward<'static> {
        let Self { line, method, id, progress, rename } = self;
        let (line, method) = (Cow::Owned(line.into_owned()), Cow::Owned(method.into_owned()));
        Forward { line, method, id, progress, rename }
    }
}

/// A request that was made.
#[derive(Debug)]
pub struct Sent {
    /// Its number, for cancelling it.
    pub number: RequestNumber,
    /// To be written to the server.
    pub line: Vec<u8>,
}

/// A request that was given up.
#[derive(Debug)]
pub struct Cancelled<T> {
    /// Its number.
    pub number: RequestNumber,
    /// Who waited for it.
    pub token: T,
    /// Tells the server; to be written to it.
    pub line: Vec<u8>,
}

/// The handshake is not done; the token is given back.
#[derive(Debug)]
pub struct NotReady<T>(pub T);

/// What was passed over. Nothing is dropped without being counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Lines that are no JSON-RPC message.
    pub noise: u64,
    /// Lines over the cap.
    pub too_long: u64,
    /// Answers to requests that had been cancelled or answered before.
    pub late: u64,
    /// Answers that name no request of ours.
    pub unmatched: u64,
    /// Notifications.
    pub notifications: u64,
    /// Requests of the server.
    pub server_requests: u64,
    /// Requests of the server that its era forbids, or whose id is too long to be sent back: not answered.
    pub violations: u64,
}
