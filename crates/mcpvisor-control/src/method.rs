//! The methods and notifications of the protocol.
use std::fmt;

macro_rules! methods {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// What can be asked of the daemon. A daemon that knows a method and can't do it answers `unsupported`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Method { $($(#[$doc])* $variant,)* }

        impl Method {
            /// All of them, in the order of the documentation.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The method's name on the wire.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// The method of this name.
            #[must_use]
            pub fn from_name(name: &str) -> Option<Self> {
                match name { $($name => Some(Self::$variant),)* _ => None }
            }
        }
    };
}

methods! {
    /// Versions. May be asked at any time, and need not be.
    DaemonHello = "daemon/hello",
    /// The daemon's state and counts.
    DaemonStatus = "daemon/status",
    /// Admit nothing more; sessions that exist go on.
    DaemonDrain = "daemon/drain",
    /// Read the configuration again.
    DaemonReload = "daemon/reload",
    /// Tear down every session and end.
    DaemonShutdown = "daemon/shutdown",
    /// Open a session.
    SessionOpen = "session/open",
    /// Close a session; answered when everything of it is reaped.
    SessionClose = "session/close",
    /// Wait until a session is ready or closed.
    SessionWait = "session/wait",
    /// The sessions that there are.
    SessionList = "session/list",
    /// One session in full.
    SessionShow = "session/show",
    /// Speak MCP with a session's servers over this connection.
    SessionAttach = "session/attach",
    /// Try the kill of a quarantined session again.
    SessionKill = "session/kill",
    /// Add a server to a live session.
    ServerAdd = "server/add",
    /// Remove a server from a live session.
    ServerRemove = "server/remove",
    /// Restart a server of a live session.
    ServerRestart = "server/restart",
    /// A session's tools.
    ToolList = "tool/list",
    /// Call a tool.
    ToolCall = "tool/call",
    /// The processes of sessions.
    ProcessList = "process/list",
    /// What servers wrote to stderr.
    LogRead = "log/read",
    /// Events from now on, or from a number on.
    EventSubscribe = "event/subscribe",
    /// Calls that a policy holds for a person.
    ApprovalList = "approval/list",
    /// Decide on one of them.
    ApprovalDecide = "approval/decide",
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The client's notification that it no longer wants the answer of a request; see [`crate::params::Cancelled`].
pub const CANCELLED: &str = "notifications/cancelled";

/// The daemon's notification of one line of a `log/read` that follows; see [`crate::results::LogNotification`].
pub const LOG: &str = "log";

/// The daemon's notification of an event; see [`crate::results::EventNotification`].
pub const EVENT: &str = "event";

/// The daemon's notification that an `event/subscribe` is over; see [`crate::results::EventsEnded`].
pub const EVENTS_ENDED: &str = "event/ended";

/// The daemon's notification of the progress of a `tool/call`; see [`crate::results::ProgressNotification`].
pub const PROGRESS: &str = "notifications/progress";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_found_again() {
        for method in Method::ALL {
            assert_eq!(Method::from_name(method.as_str()), Some(*method));
        }
        assert_eq!(Method::from_name("session/nonsense"), None);
    }
}
