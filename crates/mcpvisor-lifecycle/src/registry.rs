//! Admission, capacity, the key barrier, joined closes, the shutdown fence, quarantine and tombstones.
use crate::session::{CloseReason, Ended};
use crate::{Generation, KeyRef, Moment, RequestId, SessionId, SessionKey, Tenant, Uid};
use std::time::Duration;

/// Limits and retention. All counts are of sessions that are starting, live, dying or quarantined (G6).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RegistryConfig {
    /// Most sessions in total.
    pub max_sessions: usize,
    /// Most sessions of one uid.
    pub max_sessions_per_user: usize,
    /// Most sessions of one tenant of one uid.
    pub max_sessions_per_tenant: usize,
    /// How many ended sessions are remembered for `wait` and `close KEY@GEN`, in total.
    pub tombstones: usize,
    /// For how long they are.
    pub tombstone_age: Duration,
}

/// What to do where the key is being torn down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IfClosing { /// Park until the key is free. 
    Wait, /// Refuse with `session_closing`.
    Fail }

/// What to do where the key is open with the same definition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IfOpen { /// Join it.
    Join, /// Refuse with `session_exists`.
    Fail }

/// An open, as far as the registry must know of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Open {
    pub request: RequestId,
    pub key: KeyRef,
    pub tenant: Option<Tenant>,
    /// A digest of the whole definition: two opens are the same session if and only if it is equal.
    pub definition: u64,
    pub if_closing: IfClosing,
    pub if_open: IfOpen,
    /// False: answered as soon as it is admitted, and not cancelled when its requester goes.
    pub wait: bool,
    /// When the requester's patience ends.
    pub deadline: Option<Moment>,
}

/// Which session a request means.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Target { pub key: KeyRef, pub generation: Option<Generation> }

/// How a close goes about it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CloseOptions {
    /// The drain budget; none takes the session's own.
    pub drain: Option<Duration>,
    /// Skips the drain.
    pub now: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Goal { Closed, Ready }

/// How far a shutdown goes at once: a first, second, third signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Urgency { Drain, Hurry, Kill }

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum RegistryEvent {
    // Commands.
    Open(Open),
    /// Answered after the teardown; with `wait: false` at once with `Stopping`.
    Close { request: RequestId, target: Target, options: CloseOptions, wait: bool, deadline: Option<Moment> },
    Wait { request: RequestId, target: Target, goal: Goal, deadline: Option<Moment> },
    /// `kill KEY`: retries the kill of a quarantined session; answered like a close.
    RetryKill { request: RequestId, target: Target, deadline: Option<Moment> },
    /// The requester went away or cancelled. Unknown ids are ignored.
    Cancel { request: RequestId },
    /// Admits nothing more; sessions that exist go on.
    Fence,
    /// Fence, and all sessions are torn down. A later one only raises the urgency.
    Shutdown { urgency: Urgency },
    /// New limits from a reload: they bind what is admitted from now on.
    Reconfigure(RegistryConfig),
    // Facts.
    /// Every required server is ready.
    SessionReady { session: SessionId },
    /// The session itself, or its lease, wants to be closed.
    CloseWanted { session: SessionId, reason: CloseReason },
    /// Nothing of it is left, by proof. The last thing that a session says.
    SessionEnded { session: SessionId, ended: Ended },
    /// The kill's budget ran out with something left. May be followed by `SessionEnded`, or by another
    /// `SessionQuarantined` after a retry that failed.
    SessionQuarantined { session: SessionId },
    /// The session's actor is gone without its end note: the driver must reap its scope itself.
    SessionLost { session: SessionId },
    /// The clock has reached `next_timeout()`.
    Timeout,
}

/// Why an open, or another request, is refused. The kinds are those of the control protocol.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Refusal {
    Draining,
    SessionExists { session: SessionId },
    SessionClosing { session: SessionId },
    SessionClosed { session: SessionId },
    /// `session_failed` of a wait for ready; `start_failed` of an open. The driver has the details.
    SessionFailed { session: SessionId },
    StartFailed { session: SessionId },
    Quarantined { session: SessionId },
    /// The retry hint is in whole milliseconds.
    CapacityExhausted { scope: CapacityScope, used: usize, limit: usize },
    StaleGeneration { session: SessionId },
    NotFound,
    /// `kill` of a session that is not quarantined.
    NotQuarantined { session: SessionId },
    DeadlineExceeded { session: Option<SessionId> },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CapacityScope { Total, User, Tenant }

/// A good answer. The driver holds the certificates, by session.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Answer {
    /// The open's session is ready (or, with `wait: false`, admitted). `created` tells the one that started
    /// it from those that joined.
    Opened { session: SessionId, created: bool },
    /// Ended, by proof: the certificate of this session.
    Closed { session: SessionId },
    /// The teardown's budget ran out; the report lists what is left.
    Quarantined { session: SessionId },
    /// `--no-wait`: the teardown has begun.
    Stopping { session: SessionId },
    /// A wait's goal is reached.
    Reached { session: SessionId, goal: Goal },
    /// A wait's deadline came first.
    NotYet { session: SessionId },
}

/// What the driver must do.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum RegistryEffect {
    /// Create the session's actor with the definition of `request`'s open.
    Start { session: SessionId, key: KeyRef, request: RequestId },
    /// Tear the session down.
    Close { session: SessionId, reason: CloseReason, options: CloseOptions },
    /// Raise the urgency of a teardown that runs.
    Urge { session: SessionId, urgency: Urgency },
    /// Try the kill again.
    RetryKill { session: SessionId },
    /// The session's actor is gone: kill and reap its scope without it, then report the end.
    ReapLost { session: SessionId },
    /// Exactly one per request, but for those that were cancelled.
    Reply { request: RequestId, result: Result<Answer, Refusal> },
    /// A tombstone is gone: the certificate can go.
    Forget { session: SessionId },
    /// Shutdown is complete; `leftovers` sessions are quarantined. At most once.
    Finished { leftovers: usize },
}

/// A session's place in the registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase { Starting, Live, Dying, Quarantined }

/// How many sessions there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Counts { pub starting: usize, pub live: usize, pub dying: usize, pub quarantined: usize, pub limit: usize }

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Registry {
    config: RegistryConfig,
}

impl Registry {
    /// An empty registry.
    pub fn new(config: RegistryConfig) -> Self { Self { config } }
    /// A registry that takes over what a lost one, or a former daemon, left: each key is blocked (`Dying`) until
    /// `SessionEnded`; `last` is the highest generation that was ever given per user.
    pub fn recover(config: RegistryConfig, left: Vec<(SessionId, KeyRef, Option<Tenant>)>, last: Vec<(Uid, Generation)>) -> Self { let _ = (left, last); Self { config } }
    /// Advances the machine by one event.
    pub fn step(&mut self, now: Moment, event: RegistryEvent) -> Vec<RegistryEffect> { let _ = (now, event); Vec::new() }
    /// When `Timeout` is due.
    pub fn next_timeout(&self) -> Option<Moment> { None }
    pub fn counts(&self) -> Counts { Counts::default() }
    pub fn is_fenced(&self) -> bool { false }
    /// The session that holds the key now, with its phase.
    pub fn current(&self, key: &KeyRef) -> Option<(SessionId, Phase)> { let _ = key; None }
    /// The session of a target: the current one, or an ended one that is remembered.
    pub fn find(&self, target: &Target) -> Option<SessionId> { let _ = target; None }
    /// All that hold a key, in order of key; of one user or of all.
    pub fn sessions(&self, of: Option<Uid>) -> Vec<(SessionId, SessionKey, Phase)> { let _ = of; Vec::new() }
}
