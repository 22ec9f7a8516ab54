//! What is asked of the registry: its limits, an open, and how it is meant.
use crate::breaker::{BreakerConfig, SpecDigest};
use crate::{KeyRef, Moment, ProfileName, RequestId, SessionId, SessionKey, Tenant};
use std::collections::BTreeMap;
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
    /// Most sessions of a profile, of all users together; one that is not here has no limit of its own.
    pub max_sessions_per_profile: BTreeMap<ProfileName, usize>,
    /// So many of `max_sessions` are for administrators alone.
    pub reserved_for_administrators: usize,
    /// Most processes that servers are started as, one for each server of each session.
    pub max_processes: usize,
    /// The same of one session.
    pub max_processes_per_session: usize,
    /// Most opens of one uid that wait for a slot.
    pub max_queued_per_user: usize,
    /// Where there is no room, an open may take the place of a session of its own user that was idle for so long, the one that was longest;
    /// none: it may not.
    pub evict_after: Option<Duration>,
    /// How many ended sessions are remembered for `wait` and `close KEY@GEN`, in total.
    pub tombstones: usize,
    /// For how long they are.
    pub tombstone_age: Duration,
    /// When servers whose starts fail are not started for a while.
    pub breaker: BreakerConfig,
}

impl Default for RegistryConfig {
    fn default() -> Self {
        Self {
            max_sessions: 1000,
            max_sessions_per_user: 200,
            max_sessions_per_tenant: 200,
            max_sessions_per_profile: BTreeMap::new(),
            reserved_for_administrators: 0,
            max_processes: 10_000,
            max_processes_per_session: 100,
            max_queued_per_user: 100,
            evict_after: None,
            tombstones: 1000,
            tombstone_age: Duration::from_secs(3600),
            breaker: crate::BreakerConfig::default(),
        }
    }
}

/// What a session takes from the limits besides a slot in total, of its user and of its tenant.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Quota {
    /// The profile that it counts in.
    pub profile: Option<ProfileName>,
    /// The processes that its servers are started as: one each. What these start themselves is not known here.
    pub processes: usize,
    /// An administrator opens it.
    pub administrator: bool,
    /// It is a server that sessions share: it takes its processes, and no slot. It is opened for a session that was admitted before, so
    /// that only a shutdown refuses it, and no fence.
    pub shared: bool,
    /// How long it holds all that.
    pub lifetime: Lifetime,
}

/// What is known from the first on of how long a session lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Lifetime {
    /// It is closed when it was idle for so long; none: never, and it makes room for nobody either.
    pub idle: Option<Duration>,
    /// It is closed so long after its admission.
    pub ttl: Option<Duration>,
    /// How long its teardown takes at most, before it is quarantined; zero: not known.
    pub teardown: Duration,
}

/// What to do where the key is being torn down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IfClosing {
    /// Park until the key is free.
    Wait,
    /// Refuse with `session_closing`.
    Fail,
}

/// What to do where the key is open with the same definition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IfOpen {
    /// Join it.
    Join,
    /// Refuse with `session_exists`.
    Fail,
}

/// An open, as far as the registry must know of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Open {
    /// Names the answer.
    pub request: RequestId,
    /// The key, below its owner.
    pub key: KeyRef,
    /// The quota group that the session counts in. A joined session stays in that of the open that began it.
    pub tenant: Option<Tenant>,
    /// The key of the session, of the same owner, that this one is closed before. The definition covers it.
    pub parent: Option<SessionKey>,
    /// What else it takes from the limits. As of the tenant, that of the open that begins the session counts.
    pub quota: Quota,
    /// Until when it waits for a slot, where there is none; none: it is refused.
    pub queue: Option<Moment>,
    /// A digest of the whole definition: two opens are the same session if and only if it is equal.
    pub definition: u64,
    /// Park or refuse, where the key is being torn down.
    pub if_closing: IfClosing,
    /// Join or refuse, where the key is open.
    pub if_open: IfOpen,
    /// The session's one server is spoken to by its client alone, so whoever waits for its end is that client's.
    pub direct: bool,
    /// False: answered as soon as it is admitted, and not cancelled when its requester goes.
    pub wait: bool,
    /// When the requester's patience ends.
    pub deadline: Option<Moment>,
    /// The servers that have breakers, of those that must be ready.
    pub specs: Vec<SpecDigest>,
}

/// A session that a lost registry, or a former daemon, left.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Left {
    /// Which.
    pub session: SessionId,
    /// The key that it holds.
    pub key: KeyRef,
    /// See [`Open::tenant`].
    pub tenant: Option<Tenant>,
    /// See [`Open::quota`].
    pub quota: Quota,
    /// See [`Open::direct`].
    pub direct: bool,
}

/// Which session a request means.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Target {
    /// The key, below its owner.
    pub key: KeyRef,
    /// None: the one that holds the key.
    pub generation: Option<crate::Generation>,
}

/// How a close goes about it. The default takes the session's own drain budget.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct CloseOptions {
    /// The drain budget; none takes the session's own.
    pub drain: Option<Duration>,
    /// Skips the drain.
    pub now: bool,
}

/// What a wait waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Goal {
    /// The session is over, by proof.
    Closed,
    /// Its required servers are ready.
    Ready,
}

/// How far a shutdown goes at once: a first, second, third signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Urgency {
    /// Everything in turn: drain, then the ladder.
    Drain,
    /// No drain.
    Hurry,
    /// No drain, and straight to the kill.
    Kill,
}
