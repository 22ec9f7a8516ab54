//! What the registry is told and what it tells.
mod asked;

pub use asked::{CloseOptions, Goal, IfClosing, IfOpen, Left, Open, Quota, RegistryConfig, Target, Urgency};

use crate::breaker::{Broken, SpecDigest};
use crate::session::{CloseReason, Ended};
use crate::{KeyRef, Moment, RequestId, SessionId, Tenant};

/// What the registry is told.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum RegistryEvent {
    // Commands.
    /// Opens, joins or parks.
    Open(Open),
    /// Answered after the teardown; with `wait: false` at once with `Stopping`.
    Close {
        /// Names the answer.
        request: RequestId,
        /// What to close.
        target: Target,
        /// How.
        options: CloseOptions,
        /// False: answered at once.
        wait: bool,
        /// When the requester's patience ends; the teardown goes on.
        deadline: Option<Moment>,
    },
    /// Answered when the goal is reached, or can't be any more; a wait for the end of a direct session also when it is
    /// quarantined.
    Wait {
        /// Names the answer.
        request: RequestId,
        /// What to wait on.
        target: Target,
        /// What for.
        goal: Goal,
        /// When the answer is `NotYet`.
        deadline: Option<Moment>,
    },
    /// `kill KEY`: retries the kill of a quarantined session; answered like a close.
    RetryKill {
        /// Names the answer.
        request: RequestId,
        /// The quarantined session.
        target: Target,
        /// When the requester's patience ends.
        deadline: Option<Moment>,
    },
    /// The requester went away or cancelled. Unknown ids are ignored.
    Cancel {
        /// The request that wants no answer any more.
        request: RequestId,
    },
    /// Admits nothing more; sessions that exist go on.
    Fence,
    /// Fence, and all sessions are torn down. A later one only raises the urgency.
    Shutdown {
        /// How far it goes at once.
        urgency: Urgency,
    },
    /// New limits from a reload: they bind what is admitted from now on. Breakers are closed, since what was wrong may be mended.
    Reconfigure(RegistryConfig),
    /// The servers of a session are others now: from now on an open of this definition joins it, and one of the former does not.
    Redefine {
        /// Which.
        session: SessionId,
        /// As of `Open`.
        definition: u64,
    },
    // Facts.
    /// Every required server is ready.
    SessionReady {
        /// Whose.
        session: SessionId,
    },
    /// The start of a server has failed, through its own fault; before the close that is wanted for it.
    StartFailed {
        /// Whose server.
        session: SessionId,
        /// Which.
        spec: SpecDigest,
    },
    /// The session itself, or its lease, wants to be closed.
    CloseWanted {
        /// Which.
        session: SessionId,
        /// Why.
        reason: CloseReason,
    },
    /// Somebody uses the session: who calls it, or is attached to it, knows of it. Once is enough.
    Used {
        /// Which.
        session: SessionId,
    },
    /// A client whose end is to be its session's has gone.
    Detached {
        /// Which session.
        session: SessionId,
    },
    /// The process that was to hold the lease of an open's session has ended.
    HolderEnded {
        /// The open.
        request: RequestId,
    },
    /// The session has been idle for too long, as far as it knows.
    IdleClaimed {
        /// Which.
        session: SessionId,
    },
    /// The answer to `RetireGate`, in the same step of the driver: the session was idle still, and admits nothing any more.
    GateRetired {
        /// Which.
        session: SessionId,
    },
    /// Nothing of it is left, by proof. The last thing that a session says.
    SessionEnded {
        /// Which.
        session: SessionId,
        /// Its final state.
        ended: Ended,
    },
    /// The kill's budget ran out with something left. May be followed by `SessionEnded`, or by another
    /// `SessionQuarantined` after a retry that failed.
    SessionQuarantined {
        /// Which.
        session: SessionId,
    },
    /// The session's actor is gone without its end note: the driver must reap its scope itself.
    SessionLost {
        /// Which.
        session: SessionId,
    },
    /// The clock has reached `next_timeout()`.
    Timeout,
}

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

/// What the driver must do.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum RegistryEffect {
    /// Create the session's actor with the definition of `request`'s open.
    Start {
        /// The new session.
        session: SessionId,
        /// Its key.
        key: KeyRef,
        /// The open whose definition it is.
        request: RequestId,
    },
    /// The open waits for a slot: told when it begins to, and whenever its position changes.
    Queued {
        /// The open.
        request: RequestId,
        /// Its place among all that wait, in the order of their turns; the first is 1.
        position: usize,
    },
    /// Tear the session down. At most once per session.
    Close {
        /// The session.
        session: SessionId,
        /// Why.
        reason: CloseReason,
        /// How.
        options: CloseOptions,
    },
    /// The session's servers are stopped once its children are gone: comes just before its `Close`, where it has any.
    AwaitChildren {
        /// The session.
        session: SessionId,
    },
    /// Every child of a session that awaits them is gone, or quarantined: its servers can be stopped. At most once per
    /// session.
    ChildrenGone {
        /// The session.
        session: SessionId,
    },
    /// The session's token means nothing any more: what it is compared with is to be forgotten. At most once per session.
    Revoke {
        /// The session.
        session: SessionId,
    },
    /// Look at the session's gate, and close it in the same atomic step if the session is still idle for too long. Then tell
    /// `GateRetired` before any other event; else tell the session `StayOpen`.
    RetireGate {
        /// The session.
        session: SessionId,
    },
    /// The session is not idle.
    StayOpen {
        /// The session.
        session: SessionId,
    },
    /// Raise the urgency of a teardown that runs.
    Urge {
        /// The session.
        session: SessionId,
        /// To what; never lower than before.
        urgency: Urgency,
    },
    /// Try the kill again. The session answers with `SessionEnded` or `SessionQuarantined`.
    RetryKill {
        /// The session.
        session: SessionId,
    },
    /// The session's actor is gone: kill and reap its scope without it, then report the end (or, after the kill's
    /// budget, the quarantine). Comes again, in place of `RetryKill`, when the kill of such a session is retried.
    ReapLost {
        /// The session.
        session: SessionId,
    },
    /// Exactly one per request, but for those that were cancelled.
    Reply {
        /// The request.
        request: RequestId,
        /// Its answer.
        result: Result<Answer, Refusal>,
    },
    /// A breaker has opened, or one or more of the session's have closed: for the log.
    Breaker {
        /// The session whose start failed, or is ready.
        session: SessionId,
        /// Whether it opened.
        open: bool,
    },
    /// A tombstone is gone: the certificate can go. Exactly once per session that ended, after every reply of its.
    Forget {
        /// The session.
        session: SessionId,
    },
    /// Shutdown is complete; `leftovers` sessions are quarantined. At most once.
    Finished {
        /// How many.
        leftovers: usize,
    },
}

/// A session's place in the registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Admitted, not yet ready.
    Starting,
    /// Ready once.
    Live,
    /// Being torn down.
    Dying,
    /// Torn down with something left.
    Quarantined,
}

/// How many sessions there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Counts {
    /// Admitted, not yet ready.
    pub starting: usize,
    /// Ready once.
    pub live: usize,
    /// Being torn down.
    pub dying: usize,
    /// Torn down with something left.
    pub quarantined: usize,
    /// `max_sessions`.
    pub limit: usize,
}

/// An open that waits for a slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Queued {
    /// Which.
    pub request: RequestId,
    /// The key that it is to open.
    pub key: KeyRef,
    /// Its quota group.
    pub tenant: Option<Tenant>,
    /// Its place among all that wait, in the order of their turns; the first is 1.
    pub position: usize,
}
