//! What must hold, and what must be seen to have happened.
use std::sync::atomic::{AtomicU64, Ordering};

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
    /// What is below a session ends before it, and with it (G21).
    Trees,
    /// Who waits for a slot gets one in turn (G6).
    Turns,
    /// A session is ended or parked for idleness if it is idle, watches that by one timer, and wakes once (G2, G32, G33).
    Idleness,
    /// A lease that has ended holds nothing (G34).
    Leases,
    /// Each call has one answer, and a held one is decided once (G11, G19).
    Calls,
    /// A change of a live session's servers is made whole, or not at all (G26), and never leaves an old tree (G29).
    Changes,
    /// A stop command runs once for an incarnation, before that is over (G15).
    StopCommands,
    /// What fails again and again is not started (G29), and what is busy is not sick.
    Health,
    /// A token means its generation, until it is revoked or over (G41).
    Tokens,
    /// When only bad luck could still happen, nothing waits, and nothing is left.
    Rest,
}

impl Property {
    /// All of them.
    pub const ALL: [Self; 19] = [
        Self::TrueEnds,
        Self::OneGeneration,
        Self::Capacity,
        Self::Owned,
        Self::OneAnswer,
        Self::Quarantine,
        Self::OldFacts,
        Self::WholeBudgets,
        Self::Fences,
        Self::Trees,
        Self::Turns,
        Self::Idleness,
        Self::Leases,
        Self::Calls,
        Self::Changes,
        Self::StopCommands,
        Self::Health,
        Self::Tokens,
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
            Self::Trees => "children end before their parent",
            Self::Turns => "slots are given in turn",
            Self::Idleness => "who is not idle is not ended for it",
            Self::Leases => "a lease that has ended holds nothing",
            Self::Calls => "every call has one answer",
            Self::Changes => "a change is made whole or not at all",
            Self::StopCommands => "a stop command runs once",
            Self::Health => "who is well is not ended, who is not is not tried",
            Self::Tokens => "a token means its generation",
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
    /// A session that nobody used was closed for an open.
    MadeRoom,
    /// All that could have made room were called.
    NobodyMadeRoom,
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
    /// A child was closed with its parent.
    ChildClosed,
    /// A parent waited for the sessions below it.
    ParentWaited,
    /// An open below a session that was being closed was refused.
    ParentRefused,
    /// A parent went on while a session below it was quarantined.
    ChildQuarantined,
    /// The process that held a lease ended, and its session was closed.
    HolderEnded,
    /// It ended before its open was admitted.
    HolderEndedFirst,
    /// A time to live was over.
    TimeToLive,
    /// An open waited for a slot.
    Queued,
    /// It got one.
    Served,
    /// One was passed over for its own limits.
    PassedOver,
    /// Turns went round two users.
    UsersTookTurns,
    /// And round two tenants.
    TenantsTookTurns,
    /// A wait for a slot was over without one.
    QueueExpired,
    /// A call had its answer while its session drained.
    CallDrained,
    /// A call was cut off by the end of the drain.
    CallCut,
    /// A call was refused behind the gate.
    CallRefused,
    /// A session was closed for being idle.
    ClosedForIdleness,
    /// A claim to be idle came too late.
    StayedOpen,
    /// A session was parked.
    Parked,
    /// A session was woken.
    Woken,
    /// Two calls waited at one parked gate.
    WokenByTwo,
    /// A call that waited at the gate was told that the servers don't start.
    NotWoken,
    /// A server was added.
    Added,
    /// An add met the close, or failed, and nothing was left.
    AddUndone,
    /// An add was taken back whose answer was on its way.
    AddTakenBack,
    /// A token was revoked.
    Revoked,
    /// A server was put in the place of another.
    Replaced,
    /// One that had made room was replaced.
    StoppedFirst,
    /// One that had made room was started again, since the new one failed.
    StartedAgain,
    /// A server was removed.
    Removed,
    /// A server was started again on request.
    RestartedByHand,
    /// A change was refused, for whatever reason.
    ChangeRefused,
    /// A stop command ran and ended.
    CommandRan,
    /// A stop command was killed.
    CommandKilled,
    /// A held call was approved.
    Approved,
    /// Denied.
    Denied,
    /// Its time was over, or it was given up.
    HoldEnded,
    /// It was ended by the close.
    HeldAtClose,
    /// A call was to be held when the desk was closed already.
    NotHeld,
    /// It was decided again, and nothing changed.
    DecidedAgain,
    /// A breaker refused an open.
    BreakerRefused,
    /// A breaker let one try.
    BreakerTried,
    /// A server that was not heard of was ended.
    Unhealthy,
    /// A busy one was not.
    BusyIsWell,
    /// A server was asked in another era.
    OtherEra,
}

/// The witnesses that were seen, as bits.
#[derive(Debug, Default)]
pub(crate) struct Reached([AtomicU64; 2]);

impl Reached {
    pub(crate) fn note(&self, witness: Witness) {
        let (word, bit) = place(witness);
        if self.0[word].load(Ordering::Relaxed) & bit == 0 {
            self.0[word].fetch_or(bit, Ordering::Relaxed);
        }
    }

    pub(crate) fn all(&self) -> Vec<Witness> {
        let seen = |witness: &Witness| {
            let (word, bit) = place(*witness);
            self.0[word].load(Ordering::Relaxed) & bit != 0
        };
        Witness::ALL.iter().copied().filter(seen).collect()
    }
}

fn place(witness: Witness) -> (usize, u64) {
    let number = witness as u8;
    (usize::from(number / 64), 1 << (number % 64))
}
