//! Negative controls: each guard that can be taken out of the machines is missed, by the walk that holds with it in place.
use mcpvisor_lifecycle::seeded::Bug;
use mcpvisor_model::{configs, find, wander};
use std::collections::BTreeSet;

fn is_found(bug: Bug) {
    let (config, property) = configs::finder(bug).expect("the model plays it");
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
    g1_reopen_does_not_wait: G1ReopenDoesNotWait,
    g1_entry_is_removed_at_close: G1EntryIsRemovedAtClose,
    g2_no_single_flight: G2NoSingleFlight,
    g3_old_facts_count: G3OldFactsCount,
    g3_old_exit_counts: G3OldExitCounts,
    g6_slot_returned_early: G6SlotReturnedEarly,
    g7_cancel_frees_at_once: G7CancelFreesAtOnce,
    g7_answer_on_its_way_is_forgotten: G7AnswerOnItsWayIsForgotten,
    g11_gate_stays_open: G11GateStaysOpen,
    g12_end_is_told_at_main_exit: G12EndIsToldAtMainExit,
    g13_joined_close_is_answered_early: G13JoinedCloseIsAnsweredEarly,
    g14_cancel_hurries: G14CancelHurries,
    g16_drain_eats_the_kill: G16DrainEatsTheKill,
    g16_rungs_share_a_budget: G16RungsShareABudget,
    g17_late_launch_is_forgotten: G17LateLaunchIsForgotten,
    g17_late_launch_is_published: G17LateLaunchIsPublished,
    g19_parked_open_is_lost: G19ParkedOpenIsLost,
    g20_wait_says_closed_early: G20WaitSaysClosedEarly,
    g22_ready_after_close: G22ReadyAfterClose,
    g29_backoff_beats_stop: G29BackoffBeatsStop,
    g29_tree_is_left_at_exit: G29TreeIsLeftAtExit,
    g34_exit_beats_hang_up: G34ExitBeatsHangUp,
    g35_shutdown_skips_starting: G35ShutdownSkipsStarting,
    g36_recovery_forgets_the_barrier: G36RecoveryForgetsTheBarrier,
    g39_wait_outlasts_quarantine: G39WaitOutlastsQuarantine,
}

/// The random histories find every bug as well, without knowing where to look; of direct servers there are none in them.
#[test]
fn random_histories_find_every_bug() {
    let config = configs::wide();
    for bug in Bug::ALL.into_iter().filter(|bug| configs::finder(*bug).is_some()) {
        let direct = matches!(bug, Bug::G34ExitBeatsHangUp | Bug::G39WaitOutlastsQuarantine);
        let found = (1..=5_000).any(|seed| wander(&config, Some(bug), seed).violation.is_some());
        assert!(found != direct, "{bug:?}");
    }
}
