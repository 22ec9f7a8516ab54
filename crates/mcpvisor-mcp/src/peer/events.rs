//! What the conversation's machine takes and gives.
use super::RequestNumber;
use crate::handshake::{HandshakeError, Negotiated};
use serde_json::value::RawValue;

/// What follows from a line of the server.
#[derive(Debug)]
pub enum PeerEvent<T> {
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
        answer: Answer,
    },
    /// The server's tools are others now.
    ToolsChanged,
}

/// A server's answer, as it came.
#[derive(Debug, Clone)]
pub enum Answer {
    /// The result.
    Result(Box<RawValue>),
    /// The JSON-RPC error object.
    Error(Box<RawValue>),
    /// A line over the cap, in bytes.
    TooLong(u64),
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
    /// Requests of the server, which were answered at once.
    pub server_requests: u64,
    /// Requests of the server that its era forbids, or whose id is too long to be sent back: not answered.
    pub violations: u64,
}
