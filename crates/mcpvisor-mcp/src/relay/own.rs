//! The lines that a relay says itself. There are few kinds, and none that a side could take for the other's own.

use crate::peer::turns::{Load, Overrun, millis};
use std::time::Duration;

/// Why a call has no answer of its server, or a server's request none of its client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Because {
    /// The server's output has ended. The call may have been carried out.
    ServerExited,
    /// The server has ended while the call waited for its turn: it did not reach the server.
    NotWritten,
    /// The session is being closed and the call did not end in time. It may have been carried out.
    Settled,
    /// The session was being closed already: the call did not reach the server.
    Closing,
    /// Too many calls are in flight: the call did not reach the server.
    Overloaded,
    /// Too many calls wait for the server: the call did not reach it.
    QueueFull(Load),
    /// The call waited for its turn for so long: it did not reach the server.
    QueueTimeout(Load, Duration),
    /// The server has not answered in time. The call may have been carried out.
    TimedOut(Overrun),
    /// The server takes too long for what the daemon asks of several for a client.
    Slow,
    /// The client is gone.
    ClientLost,
    /// The server is being removed from the session or started again, and the call did not end in time. It may have been carried out.
    ServerLeaves,
    /// The same, and it did not reach the server.
    ServerLeft,
    /// The server is being started again, or replaced: the call did not reach it.
    ServerRestarts,
}

impl Because {
    /// The error's kind, as in the control protocol, and its code there, which lies outside of the range that JSON-RPC keeps for
    /// itself.
    #[must_use]
    pub const fn kind(self) -> (&'static str, i64) {
        match self {
            Self::ServerExited
            | Self::ServerLeaves
            | Self::ServerLeft
            | Self::ServerRestarts
            | Self::NotWritten => ("server_exited", 1015),
            Self::Settled | Self::ClientLost => ("cancelled", 1013),
            Self::Closing => ("session_closing", 1004),
            Self::Overloaded | Self::QueueFull(_) | Self::QueueTimeout(..) => ("overloaded", 1009),
            Self::TimedOut(_) | Self::Slow => ("deadline_exceeded", 1014),
        }
    }

    /// For a person.
    #[must_use]
    pub const fn message(self) -> &'static str {
        match self {
            Self::ServerExited => "the server has ended before it answered",
            Self::NotWritten => "the server has ended, and the call did not reach it",
            Self::Settled => "the session is being closed, and the call was not answered in time",
            Self::Closing => "the session is being closed",
            Self::Overloaded => "too many calls are in flight",
            Self::QueueFull(_) => "too many calls wait for the server already",
            Self::QueueTimeout(..) => "the call waited too long for its turn, and did not reach the server",
            Self::TimedOut(_) => "the server has not answered in time, and the call was cancelled there",
            Self::Slow => "the server has not answered in time",
            Self::ClientLost => "the client is gone",
            Self::ServerLeaves => {
                "the server is being removed or started again, and the call was not answered in time"
            }
            Self::ServerRestarts => {
                "the server is being started again, and the call did not reach it: try it again in a moment"
            }
            Self::ServerLeft => "the server is being removed or started again, and the call did not reach it",
        }
    }

    /// What else is told of it: members of the error's data, as JSON, each behind a comma.
    fn details(self) -> String {
        match self {
            Self::QueueFull(load) => load.details(),
            Self::QueueTimeout(load, after) => {
                format!("{},\"queue_timeout_ms\":{}", load.details(), millis(after))
            }
            Self::TimedOut(Overrun { key, after }) => {
                format!(",\"timeout\":\"{key}\",\"timeout_ms\":{}", millis(after))
            }
            Self::ServerRestarts => ",\"retry_after_ms\":1000".to_owned(),
            _ => String::new(),
        }
    }
}

/// An error in place of an answer; `id` is JSON.
pub(crate) fn error(into: &mut Vec<u8>, id: &[u8], because: Because) {
    let (kind, code) = because.kind();
    into.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
    into.extend_from_slice(id);
    let rest = format!(
        ",\"error\":{{\"code\":{code},\"message\":\"{}\",\"data\":{{\"kind\":\"{kind}\",\"from\":\"mcpvisor\"{}}}}}}}\n",
        because.message(),
        because.details()
    );
    into.extend_from_slice(rest.as_bytes());
}

/// The client's call is not wanted any more; `id` is JSON.
pub(super) fn cancellation(into: &mut Vec<u8>, id: &[u8], because: Because) {
    into.extend_from_slice(
        b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":",
    );
    into.extend_from_slice(id);
    into.extend_from_slice(format!(",\"reason\":\"{}\"}}}}\n", because.message()).as_bytes());
}
