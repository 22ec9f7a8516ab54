//! Which configuration finds which bug.
use super::calls::{calls, evictions, health, held_calls, idle, parking};
use super::changes::{adds, cancelled_adds, removes, restarts, stop_commands, stop_first};
use super::tenants::{breaker, detach, leases, open_breaker, queue, tree};
use super::{direct, full, handshake, ladder, limits, memory, recovery, reopen, restart, shutdown};
use crate::config::Config;
use crate::rules::Property;
use mcpvisor_lifecycle::seeded::Bug;

/// The configuration that finds a bug, and the property that it breaks there first; none for those of servers that sessions share, which
/// are not played here: the scenarios of the machines find them.
#[must_use]
pub fn finder(bug: Bug) -> Option<(Config, Property)> {
    let (config, property): (fn(bool) -> Config, Property) = match bug {
        Bug::G1ReopenDoesNotWait => (limits, Property::OneGeneration),
        Bug::G1EntryIsRemovedAtClose => (reopen, Property::Capacity),
        Bug::G2NoSingleFlight => (reopen, Property::OneGeneration),
        Bug::G3OldFactsCount => (limits, Property::OldFacts),
        Bug::G3OldExitCounts => (restart, Property::OldFacts),
        Bug::G6SlotReturnedEarly => (full, Property::Capacity),
        Bug::G6EvictedSlotIsTakenAtOnce => (evictions, Property::Capacity),
        Bug::G7CancelFreesAtOnce => (full, Property::Capacity),
        Bug::G7AnswerOnItsWayIsForgotten => (reopen, Property::Rest),
        Bug::G11GateStaysOpen => (ladder, Property::Fences),
        Bug::G12EndIsToldAtMainExit => (reopen, Property::TrueEnds),
        Bug::G13JoinedCloseIsAnsweredEarly => (reopen, Property::TrueEnds),
        Bug::G14CancelHurries => (reopen, Property::WholeBudgets),
        Bug::G16DrainEatsTheKill => (ladder, Property::WholeBudgets),
        Bug::G16RungsShareABudget => (ladder, Property::WholeBudgets),
        Bug::G17LateLaunchIsForgotten => (shutdown, Property::Owned),
        Bug::G17LateLaunchIsPublished => (handshake, Property::Fences),
        Bug::G19ParkedOpenIsLost => (reopen, Property::Rest),
        Bug::G20WaitSaysClosedEarly => (|_| memory(), Property::TrueEnds),
        Bug::G21ChildrenAreForgotten | Bug::G21ParentDoesNotWait => (tree, Property::Trees),
        Bug::G22ReadyAfterClose => (reopen, Property::Fences),
        Bug::G26AddOutlivesTheClose => (adds, Property::Changes),
        Bug::G26CancelIsForgotten => (cancelled_adds, Property::OneAnswer),
        Bug::G26AnswerOnItsWayIsForgotten => (cancelled_adds, Property::Changes),
        Bug::G41RevocationLosesAgainstAClose | Bug::G41TokenOutlivesItsGeneration => {
            (detach, Property::Tokens)
        }
        Bug::G26FailedAddStays => (adds, Property::Changes),
        Bug::G26RemoveIsToldEarly => (removes, Property::Changes),
        Bug::G29YieldIsToldEarly => (stop_first, Property::Changes),
        Bug::G29ReplacementIsForgotten => (stop_first, Property::Changes),
        Bug::G29RestartLeavesTheTree => (restarts, Property::Owned),
        Bug::G2WokenTwice => (parking, Property::Idleness),
        Bug::G6OneSlotForTwo => (queue, Property::Capacity),
        Bug::G6FloodKeepsItsTurn => (queue, Property::Turns),
        Bug::G7UseIsForgotten => (calls, Property::Calls),
        Bug::G11CallsAreNotSettled => (calls, Property::Calls),
        Bug::G15StopCommandRunsTwice => (stop_commands, Property::StopCommands),
        Bug::G15StopCommandIsLeft => (stop_commands, Property::TrueEnds),
        Bug::G19QueuedOpenIsForgotten => (queue, Property::Rest),
        Bug::G19WakeIsForgotten => (parking, Property::Rest),
        Bug::G19HeldBehindTheClose => (held_calls, Property::Calls),
        Bug::G19DecidedTwice => (held_calls, Property::Calls),
        Bug::G29TrialsAreMany => (breaker, Property::Health),
        Bug::G29ParkedOpenPassesTheBreaker => (open_breaker, Property::Health),
        Bug::G29BusyIsSick => (health, Property::Health),
        Bug::G32ClaimIsNotLookedAtAgain => (idle, Property::Idleness),
        Bug::G32EvictionDoesNotLook => (evictions, Property::Idleness),
        Bug::G33IdleTimerIsLost => (idle, Property::Idleness),
        Bug::G34HolderIsForgotten => (leases, Property::Leases),
        Bug::G34ParkedOutlivesItsHolder => (leases, Property::Leases),
        Bug::G29BackoffBeatsStop => (restart, Property::Fences),
        Bug::G29TreeIsLeftAtExit => (restart, Property::TrueEnds),
        Bug::G34ExitBeatsHangUp => (direct, Property::TrueEnds),
        Bug::G35ShutdownSkipsStarting => (shutdown, Property::Rest),
        Bug::G36RecoveryForgetsTheBarrier => (recovery, Property::OneGeneration),
        Bug::G22DyingServerIsJoined | Bug::G29GivenUpIsFollowed => return None,
        Bug::G39WaitOutlastsQuarantine => (direct, Property::OneAnswer),
    };
    Some((config(false), property))
}
