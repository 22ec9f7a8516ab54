//! What can happen, by name. `docs/events.md` tells of each; a test holds the two together.
use std::fmt;

macro_rules! kinds {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// What has happened. More kinds may come: readers pass over those that they don't know.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum EventKind { $($(#[$doc])* $variant,)* }

        impl EventKind {
            /// All of them, in the order of the documentation.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// Its name outside.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }
    };
}

kinds! {
    /// Admitted; its servers are about to be started.
    SessionStarting = "session.starting",
    /// All its servers are ready.
    SessionReady = "session.ready",
    /// Its required servers are ready, or were; another is not.
    SessionDegraded = "session.degraded",
    /// It is being closed, and calls in flight may finish.
    SessionDraining = "session.draining",
    /// Its servers are being ended.
    SessionStopping = "session.stopping",
    /// The kill's budget ran out with something left; again after each retry that failed.
    SessionQuarantined = "session.quarantined",
    /// Nothing of it is left. The last event of its generation.
    SessionClosed = "session.closed",
    /// It failed, and nothing of it is left. The last event of its generation.
    SessionFailed = "session.failed",
    /// An open was refused, and left no trace but this.
    SessionRefused = "session.refused",
    /// An open for which there is no room has begun to wait for a slot.
    CapacityQueued = "capacity.queued",
    /// One that waited has its turn, and there is room.
    CapacityAdmitted = "capacity.admitted",
    /// One that waited does so no more, and got no slot.
    CapacityLeft = "capacity.left",
    /// A server is being launched.
    ServerStarting = "server.starting",
    /// A server can be used.
    ServerReady = "server.ready",
    /// A server has ended, and waits for its next start.
    ServerBackoff = "server.backoff",
    /// A server is being ended.
    ServerStopping = "server.stopping",
    /// A server has ended.
    ServerStopped = "server.stopped",
    /// A server has failed, and is not started again.
    ServerFailed = "server.failed",
    /// The starts of one of its servers fail again and again: none of the kind is started for a while.
    BreakerOpened = "breaker.opened",
    /// One or more that were not started for a while are again.
    BreakerClosed = "breaker.closed",
    /// A hook has ended, one way or another.
    HookEnded = "hook.ended",
    /// A server that was added to a live session is ready, and its tools are the session's.
    ServerAdded = "server.added",
    /// A server's tools are not the session's any more; its end is told as of any other.
    ServerRemoved = "server.removed",
    /// A tool call is held for a person.
    ApprovalHeld = "approval.held",
    /// A held call was approved or denied, or its time, its caller or its session has ended.
    ApprovalDecided = "approval.decided",
    /// The daemon admits nothing more.
    DaemonDraining = "daemon.draining",
    /// The daemon tears everything down; again where it is urged on.
    DaemonShutdown = "daemon.shutdown",
    /// The configuration was read again, and holds.
    DaemonReloaded = "daemon.reloaded",
}

impl EventKind {
    /// It is the last event of its generation.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::SessionClosed | Self::SessionFailed)
    }
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn docs_tell_of_each_kind() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/events.md");
        let text = std::fs::read_to_string(path).unwrap();
        let (_, table) = text.split_once("<!-- kinds: begin -->").expect("the document marks its table");
        let (table, _) = table.split_once("<!-- kinds: end -->").expect("the document marks its table");
        let told: Vec<&str> =
            table.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
        let known: Vec<&str> = EventKind::ALL.iter().map(|kind| kind.as_str()).collect();
        assert_eq!(told, known, "docs/events.md has one row for each kind, in this order");
    }
}
