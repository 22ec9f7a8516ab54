//! The words of answers.
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! words {
    ($($(#[$doc:meta])* $name:ident { $($(#[$word_doc:meta])* $word:ident = $text:literal,)* })*) => {
        $(
            $(#[$doc])*
            #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
            pub enum $name {
                $($(#[$word_doc])* #[serde(rename = $text)] $word,)*
                /// A word of a newer daemon. Never sent.
                #[serde(other, rename = "unknown")]
                #[schemars(skip)]
                Unknown,
            }

            impl $name {
                /// The word on the wire.
                #[must_use]
                pub const fn as_str(self) -> &'static str {
                    match self { $(Self::$word => $text,)* Self::Unknown => "unknown" }
                }
            }

            impl fmt::Display for $name {
                fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.pad(self.as_str())
                }
            }
        )*
    };
}

words! {
    /// Whether the daemon admits sessions.
    DaemonState {
        /// It does.
        Running = "running",
        /// It does not any more.
        Draining = "draining",
    }

    /// The state of a session. `closed` and `failed` are final: everything is reaped, and the key is free.
    SessionState {
        /// Its required servers are not all ready yet.
        Starting = "starting",
        /// They are.
        Ready = "ready",
        /// They are; another server is not.
        Degraded = "degraded",
        /// It is being closed; calls in flight may finish.
        Draining = "draining",
        /// Its processes are being ended.
        Stopping = "stopping",
        /// Nothing of it is left.
        Closed = "closed",
        /// It could not be started or kept up; nothing of it is left.
        Failed = "failed",
        /// Something of it could not be killed.
        Quarantined = "quarantined",
    }

    /// The state of a server.
    ServerState {
        /// Launched, or about to be; not ready.
        Starting = "starting",
        /// Ready.
        Ready = "ready",
        /// Waits for its next start.
        Backoff = "backoff",
        /// Being ended.
        Stopping = "stopping",
        /// Ended.
        Stopped = "stopped",
        /// Ended, since its session was idle; started again when someone calls that.
        Parked = "parked",
        /// Ended, and won't be started again.
        Failed = "failed",
    }

    /// How a server is spoken to.
    ServerMode {
        /// By the daemon, for any number of clients.
        Shared = "shared",
        /// By one client, relayed.
        Exclusive = "exclusive",
        /// By its client, over the client's own descriptors.
        Direct = "direct",
    }

    /// What holds the processes.
    Containment {
        /// A control group for each server.
        Cgroup = "cgroup",
        /// A keeper process for each server.
        Keeper = "keeper",
    }

    /// How a close ended.
    CloseOutcome {
        /// No process of it exists.
        Closed = "closed",
        /// Something of it could not be killed; see `remaining`.
        Quarantined = "quarantined",
        /// No session has this key.
        NotFound = "not_found",
        /// The teardown has begun and was not waited for.
        Stopping = "stopping",
    }

    /// By what it is known that nothing remains.
    Proof {
        /// The control group was empty.
        Cgroup = "cgroup",
        /// The keeper had no child any more.
        Keeper = "keeper",
        /// It is not proven.
        None = "none",
    }

    /// Why a session was torn down.
    CloseReason {
        /// A client asked for it.
        Requested = "requested",
        /// The daemon was told to end.
        Shutdown = "shutdown",
        /// The client, connection or process that held it is gone.
        LeaseEnded = "lease_ended",
        /// Nobody used it.
        Idle = "idle",
        /// Nobody used it, and another session of its user needed its slot.
        Evicted = "evicted",
        /// Its time was up.
        Ttl = "ttl",
        /// Its parent was closed.
        ParentClosed = "parent_closed",
        /// A required server could not be started.
        StartFailed = "start_failed",
        /// Its open was cancelled.
        StartCancelled = "start_cancelled",
        /// A required server failed for good.
        ServersFailed = "servers_failed",
        /// The servers ended by themselves, normally.
        ServersEnded = "servers_ended",
        /// A defect of the daemon; its processes were ended all the same.
        Internal = "internal",
        /// The daemon that had it was killed, and the next one has ended what was left of it.
        DaemonLost = "daemon_lost",
    }

    /// What a reload did with a server of a session.
    ReloadOutcome {
        /// Its definition is the same: it was not touched.
        Unchanged = "unchanged",
        /// The new one stands in its place.
        Replaced = "replaced",
        /// It is new.
        Added = "added",
        /// It is gone.
        Removed = "removed",
        /// It was removed by hand, and its definition has not changed since: it stays away.
        RemovedByHand = "removed_by_hand",
        /// It could not be changed.
        Failed = "failed",
    }

    /// Where a frame went.
    FrameDirection {
        /// To the server.
        ToServer = "to_server",
        /// From the server.
        FromServer = "from_server",
    }

    /// What a frame was.
    FrameKind {
        /// It wants an answer.
        Request = "request",
        /// It wants none.
        Notification = "notification",
        /// An answer.
        Response = "response",
        /// An array of messages.
        Batch = "batch",
        /// No message.
        Noise = "noise",
        /// Longer than the longest line.
        TooLong = "too_long",
        /// A message of none of these kinds.
        Other = "other",
    }

    /// The rung of the ladder on which something ended.
    Stage {
        /// By itself, before a rung was reached.
        Itself = "itself",
        /// At the end of its stdin.
        Stdin = "stdin",
        /// At SIGTERM.
        Sigterm = "sigterm",
        /// At the kill.
        Sigkill = "sigkill",
    }
}

impl SessionState {
    /// Everything is reaped and the key is free.
    #[must_use]
    pub fn is_final(self) -> bool {
        matches!(self, Self::Closed | Self::Failed)
    }
}
