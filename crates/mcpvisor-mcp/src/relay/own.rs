//! The lines that a relay says itself. There are few kinds, and none that a side could take for the other's own.

/// Why a call has no answer of its server, or a server's request none of its client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Because {
    /// The server's output has ended. The call may have been carried out.
    ServerExited,
    /// The session is being closed and the call did not end in time. It may have been carried out.
    Settled,
    /// The session was being closed already: the call did not reach the server.
    Closing,
    /// Too many calls are in flight: the call did not reach the server.
    Overloaded,
    /// The client is gone.
    ClientLost,
    /// The server is being removed from the session or started again, and the call did not end in time. It may have been carried out.
    ServerLeaves,
}

impl Because {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::ServerExited,
        Self::Settled,
        Self::Closing,
        Self::Overloaded,
        Self::ClientLost,
        Self::ServerLeaves,
    ];

    /// The error's kind, as in the control protocol, and its code there, which lies outside of the range that JSON-RPC keeps for
    /// itself.
    #[must_use]
    pub const fn kind(self) -> (&'static str, i64) {
        match self {
            Self::ServerExited | Self::ServerLeaves => ("server_exited", 1015),
            Self::Settled | Self::ClientLost => ("cancelled", 1013),
            Self::Closing => ("session_closing", 1004),
            Self::Overloaded => ("overloaded", 1009),
        }
    }

    /// For a person.
    #[must_use]
    pub const fn message(self) -> &'static str {
        match self {
            Self::ServerExited => "the server has ended before it answered",
            Self::Settled => "the session is being closed, and the call was not answered in time",
            Self::Closing => "the session is being closed",
            Self::Overloaded => "too many calls are in flight",
            Self::ClientLost => "the client is gone",
            Self::ServerLeaves => {
                "the server is being removed or started again, and the call was not answered in time"
            }
        }
    }
}

/// An error in place of an answer; `id` is JSON.
pub(crate) fn error(into: &mut Vec<u8>, id: &[u8], because: Because) {
    let (kind, code) = because.kind();
    into.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
    into.extend_from_slice(id);
    let rest = format!(
        ",\"error\":{{\"code\":{code},\"message\":\"{}\",\"data\":{{\"kind\":\"{kind}\",\"from\":\"mcpvisor\"}}}}}}\n",
        because.message()
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
