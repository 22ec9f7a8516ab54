//! Negative controls: each guard that can be taken out of the machines is missed, by the walk that holds with it in place.
use mcpvisor_lifecycle::seeded::Bug;
use mcpvisor_model::{configs, find, wander};
use std::collections::BTreeSet;

fn is_found(bug: Bug) {
    let (config, property) = configs::finder(bug).expect("played");
    assert!(configs::suite().iter().any(|other| other.name == config.name), "not a walk of the suite");
    let violation = find(&config, bug, property).0.unwrap_or_else(|| panic!("{bug:?} is not found"));
    assert_eq!(violation.wrong.property, property, "{bug:?}: {}", violation.wrong.what);
    assert!(!violation.story.is_empty(), "the way there is told");
}

macro_rules! bugs {
    ($($test:ident: $bug:ident,)*) => {
        $(#[test]
        fn $test() {
            is_found(Bug::$bug);
        })*

        #[test]
        fn every_bug_is_looked_for() {
            let all: BTreeSet<_> = [$(Bug::$bug),*].into();
            let played = Bug::ALL.into_iter().filter(|bug| configs::finder(*bug).is_some());
            assert_eq!(all, played.collect());
        }
    };
}

bugs! {
    g1_entry_is_removed_at_close: G1EntryIsRemovedAtClose,
    g1_reopen_does_not_wait: G1ReopenDoesNotWait,
    g2_no_single_flight: G2NoSingleFlight,
    g2_woken_twice: G2WokenTwice,
    g3_old_exit_counts: G3OldExitCounts,
    g3_old_facts_count: G3OldFactsCount,
    g6_evicted_slot_is_taken_at_once: G6EvictedSlotIsTakenAtOnce,
    g6_flood_keeps_its_turn: G6FloodKeepsItsTurn,
    g6_one_slot_for_two: G6OneSlotForTwo,
    g6_slot_returned_early: G6SlotReturnedEarly,
    g7_answer_on_its_way_is_forgotten: G7AnswerOnItsWayIsForgotten,
    g7_cancel_frees_at_once: G7CancelFreesAtOnce,
    g7_use_is_forgotten: G7UseIsForgotten,
    g11_calls_are_not_settled: G11CallsAreNotSettled,
    g11_gate_stays_open: G11GateStaysOpen,
    g12_end_is_told_at_main_exit: G12EndIsToldAtMainExit,
    g13_joined_close_is_answered_early: G13JoinedCloseIsAnsweredEarly,
    g14_cancel_hurries: G14CancelHurries,
    g15_stop_command_is_left: G15StopCommandIsLeft,
    g15_stop_command_runs_twice: G15StopCommandRunsTwice,
    g16_drain_eats_the_kill: G16DrainEatsTheKill,
    g16_rungs_share_a_budget: G16RungsShareABudget,
    g17_late_launch_is_forgotten: G17LateLaunchIsForgotten,
    g17_late_launch_is_published: G17LateLaunchIsPublished,
    g19_decided_twice: G19DecidedTwice,
    g19_held_behind_the_close: G19HeldBehindTheClose,
    g19_parked_open_is_lost: G19ParkedOpenIsLost,
    g19_queued_open_is_forgotten: G19QueuedOpenIsForgotten,
    g19_wake_is_forgotten: G19WakeIsForgotten,
    g20_wait_says_closed_early: G20WaitSaysClosedEarly,
    g21_children_are_forgotten: G21ChildrenAreForgotten,
    g21_parent_does_not_wait: G21ParentDoesNotWait,
    g22_ready_after_close: G22ReadyAfterClose,
    g26_add_outlives_the_close: G26AddOutlivesTheClose,
    g26_answer_on_its_way_is_forgotten: G26AnswerOnItsWayIsForgotten,
    g26_cancel_is_forgotten: G26CancelIsForgotten,
    g26_failed_add_stays: G26FailedAddStays,
    g26_remove_is_told_early: G26RemoveIsToldEarly,
    g29_backoff_beats_stop: G29BackoffBeatsStop,
    g29_busy_is_sick: G29BusyIsSick,
    g29_parked_open_passes_the_breaker: G29ParkedOpenPassesTheBreaker,
    g29_replacement_is_forgotten: G29ReplacementIsForgotten,
    g29_restart_leaves_the_tree: G29RestartLeavesTheTree,
    g29_tree_is_left_at_exit: G29TreeIsLeftAtExit,
    g29_trials_are_many: G29TrialsAreMany,
    g29_yield_is_told_early: G29YieldIsToldEarly,
    g32_claim_is_not_looked_at_again: G32ClaimIsNotLookedAtAgain,
    g32_eviction_does_not_look: G32EvictionDoesNotLook,
    g33_idle_timer_is_lost: G33IdleTimerIsLost,
    g34_exit_beats_hang_up: G34ExitBeatsHangUp,
    g34_holder_is_forgotten: G34HolderIsForgotten,
    g34_parked_outlives_its_holder: G34ParkedOutlivesItsHolder,
    g35_shutdown_skips_starting: G35ShutdownSkipsStarting,
    g36_recovery_forgets_the_barrier: G36RecoveryForgetsTheBarrier,
    g41_revocation_loses_against_a_close: G41RevocationLosesAgainstAClose,
    g41_token_outlives_its_generation: G41TokenOutlivesItsGeneration,
    g39_wait_outlasts_quarantine: G39WaitOutlastsQuarantine,
}

/// What the histories have nothing of (direct servers), or too little: the walks find these.
const NOT_IN_HISTORIES: [Bug; 11] = [
    Bug::G2WokenTwice,
    Bug::G6EvictedSlotIsTakenAtOnce,
    Bug::G6FloodKeepsItsTurn,
    Bug::G7UseIsForgotten,
    Bug::G19WakeIsForgotten,
    Bug::G26AnswerOnItsWayIsForgotten,
    Bug::G29ReplacementIsForgotten,
    Bug::G32EvictionDoesNotLook,
    Bug::G34ExitBeatsHangUp,
    Bug::G34HolderIsForgotten,
    Bug::G39WaitOutlastsQuarantine,
];

/// The random histories find the other bugs as well, without knowing where to look.
#[test]
fn random_histories_find_every_bug() {
    let played = Bug::ALL.into_iter().filter(|bug| configs::finder(*bug).is_some());
    for bug in played.filter(|bug| !NOT_IN_HISTORIES.contains(bug)) {
        let finds = |seed| wander(&configs::wide(seed), Some(bug), seed).violation.is_some();
        assert!((1..=5_000).any(finds), "{bug:?}");
    }
}
