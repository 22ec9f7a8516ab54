//! What the registry is told and what it tells.
mod asked;

pub use super::answers::{Answer, CapacityScope, Refusal};
pub use asked::{
    CloseOptions, Goal, IfClosing, IfOpen, Left, Lifetime, Open, Quota, RegistryConfig, Target, Urgency,
};

use crate::breaker::SpecDigest;
use crate::session::{CloseReason, Ended};
use crate::{KeyRef, Moment, RequestId, SessionId, Tenant};
use std::time::Duration;

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
    /// The answer to `Evict`, in the same step of the driver: this one was idle, and admits nothing any more.
    Evicted {
        /// The open.
        request: RequestId,
        /// Which makes room for it.
        session: SessionId,
    },
    /// The other answer: none of them was idle for long enough.
    NobodyIdle {
        /// The open.
        request: RequestId,
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
    /// The open waits for no slot any more: once after `Queued`.
    LeftQueue {
        /// The open.
        request: RequestId,
        /// It was its turn, and there was room: what comes of it is told as of any other open. Else it was refused or cancelled.
        admitted: bool,
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
    /// Of these sessions, look at the gate of the one that is idle for longest, and close it in the same atomic step if nobody uses the session and
    /// that is so for at least this long; else look at the next. Then tell `Evicted`, or `NobodyIdle`, before any other event.
    Evict {
        /// The open that wants the place of one of them.
        request: RequestId,
        /// Those that may make room.
        among: Vec<SessionId>,
        /// For how long at least it was idle.
        idle: Duration,
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
    /// Servers that sessions share: in any phase but the next. They are in none of the numbers before.
    pub shared: usize,
    /// Those that were torn down with something left.
    pub shared_quarantined: usize,
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
