//! What must hold, and what must be seen to have happened.

/// A property, as stateright knows it. A broken rule names the property that it belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Property {
    /// No acknowledgement of an end while something lives or may still be born (G12, G13, G20).
    TrueEnds,
    /// No two generations of a key (G1, G2).
    OneGeneration,
    /// Never more sessions than slots (G6, G7).
    Capacity,
    /// Whatever lives or may be born has an owner who knows of it (G15, G17, G24).
    Owned,
    /// One answer for each request (G13, G19).
    OneAnswer,
    /// Quarantine is left by an empty scope alone (G4).
    Quarantine,
    /// What an older generation tells changes nothing (G3).
    OldFacts,
    /// A teardown is not hurried but by who may (G14), and each rung has its own time (G16).
    WholeBudgets,
    /// Nothing is admitted, published or started behind a close, a stop or the fence (G11, G17, G22, G29, G35).
    Fences,
    /// When only bad luck could still happen, nothing waits, and nothing is left.
    Rest,
}

impl Property {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::TrueEnds,
        Self::OneGeneration,
        Self::Capacity,
        Self::Owned,
        Self::OneAnswer,
        Self::Quarantine,
        Self::OldFacts,
        Self::WholeBudgets,
        Self::Fences,
        Self::Rest,
    ];

    /// In words.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::TrueEnds => "an end is told when it is true",
            Self::OneGeneration => "a key has one generation",
            Self::Capacity => "never more sessions than slots",
            Self::Owned => "every process has an owner",
            Self::OneAnswer => "every request has one answer",
            Self::Quarantine => "quarantine is left by an empty scope",
            Self::OldFacts => "old facts change nothing",
            Self::WholeBudgets => "every teardown has its time",
            Self::Fences => "nothing passes a fence",
            Self::Rest => "at rest nothing waits",
        }
    }

    pub(crate) fn broken(self, what: &'static str) -> Wrong {
        Wrong { property: self, what }
    }
}

/// A rule that was broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Wrong {
    /// The property that it belongs to.
    pub property: Property,
    /// What happened.
    pub what: &'static str,
}

/// The outcome of a check.
pub(crate) type Checked = Result<(), Wrong>;

macro_rules! witnesses {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Something that must have happened somewhere, so that a property which holds does not hold because nothing tried it.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Witness { $($(#[$doc])* $name,)* }
        impl Witness {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name,)*];
        }
    };
}

witnesses! {
    /// A close was answered with the end of a session that had lived.
    Closed,
    /// Two closes of one session were answered in one step.
    ClosedTogether,
    /// A wait for the end reached it.
    WaitReached,
    /// A close of an ended generation was answered from memory.
    ClosedFromMemory,
    /// An open joined a start.
    Joined,
    /// A parked open got the key.
    Promoted,
    /// A parked open was refused.
    ParkedRefused,
    /// An open was refused for want of a slot.
    Full,
    /// The last slot was in use by a session that was dying when an open was refused.
    FullWhileDying,
    /// A start was cancelled because everyone had gone.
    StartCancelled,
    /// A caller went away, and its retry joined what it had begun.
    Vanished,
    /// An opener went away while its answer was on the way.
    GaveUpLate,
    /// A deadline passed.
    Expired,
    /// A launch succeeded after it had been killed.
    BornLate,
    /// A launch failed.
    LaunchFailed,
    /// A handshake failed.
    HandshakeFailed,
    /// The main process ended and its helper lived on.
    HelperLeft,
    /// A server was started again.
    Restarted,
    /// A stop met a backoff.
    StoppedInBackoff,
    /// A server came to the rung of the kill because its budgets were used up.
    KilledInTime,
    /// A session was quarantined.
    Quarantined,
    /// A quarantined session ended.
    Released,
    /// An open was refused because of quarantine.
    RefusedQuarantined,
    /// The kill of a quarantined session was tried again.
    Retried,
    /// A quarantine was told of a session that had ended.
    LateQuarantine,
    /// A fact of an older incarnation or session came, and was dropped.
    Stale,
    /// A session was reaped without its actor.
    SessionReaped,
    /// A server was reaped without its actor.
    ServerReaped,
    /// The drain ran out of time.
    DrainExpired,
    /// A session was ready after its close had begun.
    ReadyTooLate,
    /// A shutdown met a starting session.
    ShutdownWhileStarting,
    /// A shutdown finished.
    Finished,
    /// A shutdown finished with something quarantined.
    FinishedWithLeftovers,
    /// A shutdown went straight to the kill.
    Urged,
    /// The registry's actor was lost while something lived.
    RegistryLost,
    /// A request was asked again of the registry's successor.
    AskedAgain,
    /// The daemon died while something lived.
    DaemonDied,
    /// A key that a former daemon left blocked was opened again.
    RecoveredKeyOpened,
    /// An open waited for a key that a former daemon left blocked.
    WaitedForRecovered,
    /// A direct server's client hung up.
    HungUp,
    /// A limit of a user, or a tenant, refused an open.
    FullForUser,
    /// An ended session was forgotten.
    Forgotten,
    /// A session with two servers ended because one of them failed.
    FailedTogether,
}

impl Witness {
    pub(crate) fn bit(self) -> u64 {
        1 << (self as u8)
    }
}
