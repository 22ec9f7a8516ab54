//! Bugs on purpose: each takes one guard out of a machine, so that a test can show that it would notice.
//!
//! Only with the feature `seeded-bugs` can one be switched on, by `with_bug` of a machine; without it
//! every guard is constantly in place. The switch is part of the machine's value, so that clones, hashes and a
//! model checker's threads carry it along.

/// A guard that can be taken out, named by the guarantee that it serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(not(feature = "seeded-bugs"), expect(unreachable_pub, reason = "public with the feature only"))]
pub enum Bug {
    /// An open of a key that is being torn down is admitted at once.
    G1ReopenDoesNotWait,
    /// A key is free, and its slot, when the teardown begins: before the reap.
    G1EntryIsRemovedAtClose,
    /// An open of a key that is starting starts a second generation.
    G2NoSingleFlight,
    /// Whoever comes while a session is being parked is not heard.
    G19WakeIsForgotten,
    /// Facts of an ended generation are taken for the key's current one.
    G3OldFactsCount,
    /// The exit of an older incarnation is taken for the current one's.
    G3OldExitCounts,
    /// The slot is returned when the teardown begins.
    G6SlotReturnedEarly,
    /// The slot of a session that makes room is taken when its teardown begins.
    G6EvictedSlotIsTakenAtOnce,
    /// A cancelled open frees its slot and key at once.
    G7CancelFreesAtOnce,
    /// A cancel that meets the answer of its open does nothing.
    G7AnswerOnItsWayIsForgotten,
    /// The gate stays open while the session drains.
    G11GateStaysOpen,
    /// A server is told stopped when its main process has exited, whatever it left.
    G12EndIsToldAtMainExit,
    /// A close that joins is answered at once.
    G13JoinedCloseIsAnsweredEarly,
    /// A closer that goes away kills what it was waiting for.
    G14CancelHurries,
    /// A drain that used up its budget takes that of SIGTERM along.
    G16DrainEatsTheKill,
    /// The rungs of the ladder share one budget.
    G16RungsShareABudget,
    /// A stop does not wait for the launch that it meets.
    G17LateLaunchIsForgotten,
    /// A launch that succeeds after the stop is published instead of killed.
    G17LateLaunchIsPublished,
    /// A close of a key that somebody waits to reopen drops the parked open.
    G19ParkedOpenIsLost,
    /// A wait says closed of a session that is still being torn down.
    G20WaitSaysClosedEarly,
    /// A session's close leaves those below it alone.
    G21ChildrenAreForgotten,
    /// A session's servers are stopped while those below it still have theirs.
    G21ParentDoesNotWait,
    /// A session that is ready after its close is published.
    G22ReadyAfterClose,
    /// A server that is being added when the close comes goes on, and is published.
    G26AddOutlivesTheClose,
    /// An add whose requester has gone goes on.
    G26CancelIsForgotten,
    /// A cancel that meets the answer of its add does nothing.
    G26AnswerOnItsWayIsForgotten,
    /// Who needs a server that sessions share while that is being torn down gets the dying one.
    G22DyingServerIsJoined,
    /// A server that is busy with a call is taken for sick.
    G29BusyIsSick,
    /// A stop does not end a backoff.
    G29BackoffBeatsStop,
    /// A shared server that was given up is started anew by each session that used it.
    G29GivenUpIsFollowed,
    /// A restart that was asked for does not wait for the end of the old tree.
    G29RestartLeavesTheTree,
    /// A server whose main process exits is over, whatever that left.
    G29TreeIsLeftAtExit,
    /// A session that claims to be idle is closed without another look.
    G32ClaimIsNotLookedAtAgain,
    /// A session is closed to make room without a look at its gate.
    G32EvictionDoesNotLook,
    /// A session whose claim to be idle was not taken has no idle timer any more.
    G33IdleTimerIsLost,
    /// Of two ends at about the same time the server's own counts, and not its client's.
    G34ExitBeatsHangUp,
    /// A shutdown does not close what is starting.
    G35ShutdownSkipsStarting,
    /// Who waits for the end of a direct session waits for the kernel.
    G39WaitOutlastsQuarantine,
    /// A client whose end is its session's, and that goes while another close runs, leaves the token as it is.
    G41RevocationLosesAgainstAClose,
    /// A token of a generation that is over means the one that has its key now.
    G41TokenOutlivesItsGeneration,
    /// A registry that takes over leaves keys free of what is still there.
    G36RecoveryForgetsTheBarrier,
    /// A session that wakes is started once more for whoever comes meanwhile.
    G2WokenTwice,
    /// A slot that is free goes to two of those that wait for one.
    G6OneSlotForTwo,
    /// Who was given a slot keeps the turn.
    G6FloodKeepsItsTurn,
    /// Nobody notes that a session is in use, so that an opener that gives up late takes it away.
    G7UseIsForgotten,
    /// A drain that is over leaves calls without an answer.
    G11CallsAreNotSettled,
    /// A stop command runs again where its server had to be killed after it.
    G15StopCommandRunsTwice,
    /// A server is over while its stop command runs.
    G15StopCommandIsLeft,
    /// An open whose wait for a slot is over gets no answer.
    G19QueuedOpenIsForgotten,
    /// A call is held for a person although the session is being closed.
    G19HeldBehindTheClose,
    /// A held call can be decided again.
    G19DecidedTwice,
    /// A server that could not be started is added all the same.
    G26FailedAddStays,
    /// A remove is answered before anything was ended.
    G26RemoveIsToldEarly,
    /// A server is said to have made room when it is told to stop.
    G29YieldIsToldEarly,
    /// A server that had made room is started again beside what was put in its place and can't be killed.
    G29ReplacementIsForgotten,
    /// A breaker that lets one session try lets all of them.
    G29TrialsAreMany,
    /// An open that waited for its key is not stopped by a breaker.
    G29ParkedOpenPassesTheBreaker,
    /// A session goes on when the process that holds its lease has ended.
    G34HolderIsForgotten,
    /// An open that waits for its key goes on when the process that was to hold its lease has ended.
    G34ParkedOutlivesItsHolder,
}

/// A guard of the memory of request ids that can be taken out; all serve G24.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(not(feature = "seeded-bugs"), expect(unreachable_pub, reason = "public with the feature only"))]
pub enum RepeatsBug {
    /// Who vanishes without a word is taken for one that cancelled.
    VanishingCancels,
    /// A retry that comes in the grace does not end it.
    ARetryComesTooLate,
    /// A cancel gives the work up although others wait for it.
    ACancelIsEverybodys,
}

#[cfg(feature = "seeded-bugs")]
impl Bug {
    /// All of them.
    pub const ALL: [Self; 59] = [
        Self::G1ReopenDoesNotWait,
        Self::G1EntryIsRemovedAtClose,
        Self::G2NoSingleFlight,
        Self::G19WakeIsForgotten,
        Self::G3OldFactsCount,
        Self::G3OldExitCounts,
        Self::G6SlotReturnedEarly,
        Self::G6EvictedSlotIsTakenAtOnce,
        Self::G7CancelFreesAtOnce,
        Self::G7AnswerOnItsWayIsForgotten,
        Self::G11GateStaysOpen,
        Self::G12EndIsToldAtMainExit,
        Self::G13JoinedCloseIsAnsweredEarly,
        Self::G14CancelHurries,
        Self::G16DrainEatsTheKill,
        Self::G16RungsShareABudget,
        Self::G17LateLaunchIsForgotten,
        Self::G17LateLaunchIsPublished,
        Self::G19ParkedOpenIsLost,
        Self::G20WaitSaysClosedEarly,
        Self::G21ChildrenAreForgotten,
        Self::G21ParentDoesNotWait,
        Self::G22ReadyAfterClose,
        Self::G26AddOutlivesTheClose,
        Self::G26CancelIsForgotten,
        Self::G26AnswerOnItsWayIsForgotten,
        Self::G22DyingServerIsJoined,
        Self::G29BusyIsSick,
        Self::G29BackoffBeatsStop,
        Self::G29GivenUpIsFollowed,
        Self::G29RestartLeavesTheTree,
        Self::G29TreeIsLeftAtExit,
        Self::G32ClaimIsNotLookedAtAgain,
        Self::G32EvictionDoesNotLook,
        Self::G33IdleTimerIsLost,
        Self::G34ExitBeatsHangUp,
        Self::G35ShutdownSkipsStarting,
        Self::G39WaitOutlastsQuarantine,
        Self::G41RevocationLosesAgainstAClose,
        Self::G41TokenOutlivesItsGeneration,
        Self::G36RecoveryForgetsTheBarrier,
        Self::G2WokenTwice,
        Self::G6OneSlotForTwo,
        Self::G6FloodKeepsItsTurn,
        Self::G7UseIsForgotten,
        Self::G11CallsAreNotSettled,
        Self::G15StopCommandRunsTwice,
        Self::G15StopCommandIsLeft,
        Self::G19QueuedOpenIsForgotten,
        Self::G19HeldBehindTheClose,
        Self::G19DecidedTwice,
        Self::G26FailedAddStays,
        Self::G26RemoveIsToldEarly,
        Self::G29YieldIsToldEarly,
        Self::G29ReplacementIsForgotten,
        Self::G29TrialsAreMany,
        Self::G29ParkedOpenPassesTheBreaker,
        Self::G34HolderIsForgotten,
        Self::G34ParkedOutlivesItsHolder,
    ];
}

/// The bug that machines are made with which are not given one.
#[cfg(feature = "seeded-bugs")]
static USUAL: std::sync::OnceLock<Bug> = std::sync::OnceLock::new();

/// Gives this bug to every machine that is made in this process from now on: for a whole daemon with a bug. The first call
/// counts, later ones change nothing.
#[cfg(feature = "seeded-bugs")]
pub fn make_usual(bug: Bug) {
    let _ = USUAL.set(bug);
}

/// The bug that a machine carries, if any.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(not(feature = "seeded-bugs"), derive(Default))]
pub(crate) struct Seeded {
    #[cfg(feature = "seeded-bugs")]
    pub(crate) bug: Option<Bug>,
}

#[cfg(feature = "seeded-bugs")]
impl Default for Seeded {
    fn default() -> Self {
        Self { bug: USUAL.get().copied() }
    }
}

impl Seeded {
    #[cfg(feature = "seeded-bugs")]
    pub(crate) fn has(self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    #[cfg(not(feature = "seeded-bugs"))]
    pub(crate) fn has(self, bug: Bug) -> bool {
        let _ = bug;
        false
    }
}
