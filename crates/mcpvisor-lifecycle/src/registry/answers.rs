//! How requests are answered.
use super::types::Goal;
use crate::SessionId;
use crate::breaker::Broken;
use std::time::Duration;

/// Why an open, or another request, is refused. The kinds are those of the control protocol.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// The daemon admits nothing more.
    Draining,
    /// The key is open, or promised to a parked open, and can't be joined.
    SessionExists {
        /// The one that holds the key.
        session: SessionId,
    },
    /// The key is being torn down, and the open would not wait.
    SessionClosing {
        /// The one that is torn down.
        session: SessionId,
    },
    /// The session was closed before what was waited for could be.
    SessionClosed {
        /// The one that was closed.
        session: SessionId,
    },
    /// `session_failed` of a wait for ready; `start_failed` of an open. The driver has the details.
    SessionFailed {
        /// The one that failed.
        session: SessionId,
    },
    /// The session that this open waited for failed by itself before it was ready.
    StartFailed {
        /// The one that failed.
        session: SessionId,
    },
    /// The key is blocked by what could not be killed.
    Quarantined {
        /// The one that blocks it.
        session: SessionId,
    },
    /// A limit is reached.
    CapacityExhausted {
        /// Which limit.
        scope: CapacityScope,
        /// How many sessions count against it.
        used: usize,
        /// The limit.
        limit: usize,
        /// When it may be worth to try again: 100 ms to a minute.
        retry_after: Duration,
    },
    /// No session holds the key of the parent that the open names.
    ParentNotFound,
    /// The parent that the open names is being torn down, or is quarantined.
    ParentClosing {
        /// The parent.
        session: SessionId,
    },
    /// The parent is as deep in its tree as a session can be.
    TooDeep {
        /// How many sessions lie at most on the way from a tree's first one to its deepest, both included.
        limit: usize,
    },
    /// The breaker of one of its servers is open. The driver has what failed last.
    Broken(Broken),
    /// The process that was to hold the session's lease ended before the session was admitted.
    HolderEnded,
    /// The request named a generation that is over.
    StaleGeneration {
        /// The generation that was named.
        session: SessionId,
    },
    /// No session of that name is known.
    NotFound,
    /// `kill` of a session that is not quarantined.
    NotQuarantined {
        /// The one that was named.
        session: SessionId,
    },
    /// The requester's patience ended first.
    DeadlineExceeded {
        /// The session that it waited on, where there was one.
        session: Option<SessionId>,
    },
}

/// Which limit a refusal speaks of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CapacityScope {
    /// `max_sessions`.
    Total,
    /// `max_sessions_per_user`.
    User,
    /// `max_sessions_per_tenant`.
    Tenant,
    /// `max_sessions_per_profile`.
    Profile,
    /// `max_processes`.
    Processes,
    /// `max_processes_per_session`; `used` is what was asked for.
    SessionProcesses,
    /// `max_queued_per_user`.
    Queue,
}

impl CapacityScope {
    /// What it is called outside.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Total => "total",
            Self::User => "user",
            Self::Tenant => "tenant",
            Self::Profile => "profile",
            Self::Processes => "processes",
            Self::SessionProcesses => "session_processes",
            Self::Queue => "queue",
        }
    }
}

/// A good answer. The driver holds the certificates, by session.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Answer {
    /// The open's session is ready (or, with `wait: false`, admitted). `created` tells the one that started
    /// it from those that joined.
    Opened {
        /// The session.
        session: SessionId,
        /// Whether this open began it.
        created: bool,
    },
    /// Ended, by proof: the certificate of this session.
    Closed {
        /// The session.
        session: SessionId,
    },
    /// The teardown's budget ran out; the report lists what is left. A closer's, and a wait's for the end of a direct
    /// session, whose client must not wait for the kernel (G39).
    Quarantined {
        /// The session.
        session: SessionId,
    },
    /// `--no-wait`: the teardown has begun.
    Stopping {
        /// The session.
        session: SessionId,
    },
    /// A wait's goal is reached.
    Reached {
        /// The session.
        session: SessionId,
        /// What was waited for.
        goal: Goal,
    },
    /// A wait's deadline came first.
    NotYet {
        /// The session.
        session: SessionId,
    },
}
