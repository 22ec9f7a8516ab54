//! Negative controls: with a guard taken out, the scenario that holds it must fail, and say which guarantee broke.
use super::Seed;
use super::a_creation::{HANGS, cancel_everywhere, shutdown_during_start};
use super::b_closing::{
    Other, close_during_start, close_in_backoff, detach_against, full_while_closing, late_notes, reopen,
    single_flight, two_closes,
};
use super::c_draining::{calls_race_a_close, ladder_of_a_parked_call};
use super::d_direct::{hang_up, shim_of_an_immortal};
use super::d_live::{add_against_close, cancelled_add, cancelled_late, restart_against};
use super::d_scopes::{given_up, users};
use super::e_evict::{call_at_the_eviction, reopen_at_the_eviction};
use super::e_idle::{call_at_the_decision, open_at_the_decision};
use super::e_park::calls_of_a_parked_session;
use super::e_trees::close_a_tree;
use super::f_health::busy_is_never_sick;
use super::histories::history;
use super::process::{POLITE, STUBBORN};
use super::script::close;
use mcpvisor_lifecycle::seeded::Bug;
use std::collections::BTreeSet;

/// What no scenario looks for: `mcpvisor-model` finds these, and all the others as well.
const HELD_BY_THE_MODEL: [Bug; 28] = [
    Bug::G7AnswerOnItsWayIsForgotten,
    Bug::G1EntryIsRemovedAtClose,
    Bug::G3OldExitCounts,
    Bug::G12EndIsToldAtMainExit,
    Bug::G16DrainEatsTheKill,
    Bug::G17LateLaunchIsForgotten,
    Bug::G19ParkedOpenIsLost,
    Bug::G29TreeIsLeftAtExit,
    Bug::G35ShutdownSkipsStarting,
    Bug::G36RecoveryForgetsTheBarrier,
    Bug::G2WokenTwice,
    Bug::G6OneSlotForTwo,
    Bug::G6FloodKeepsItsTurn,
    Bug::G7UseIsForgotten,
    Bug::G11CallsAreNotSettled,
    Bug::G15StopCommandRunsTwice,
    Bug::G15StopCommandIsLeft,
    Bug::G19QueuedOpenIsForgotten,
    Bug::G19HeldBehindTheClose,
    Bug::G19DecidedTwice,
    Bug::G26FailedAddStays,
    Bug::G26RemoveIsToldEarly,
    Bug::G29YieldIsToldEarly,
    Bug::G29ReplacementIsForgotten,
    Bug::G29TrialsAreMany,
    Bug::G29ParkedOpenPassesTheBreaker,
    Bug::G34HolderIsForgotten,
    Bug::G34ParkedOutlivesItsHolder,
];

/// Of what the histories have nothing, or too little (calls in the short while of a parking, cancels of an add under way).
const NOT_IN_HISTORIES: [Bug; 9] = [
    Bug::G29BusyIsSick,
    Bug::G19WakeIsForgotten,
    Bug::G26CancelIsForgotten,
    Bug::G26AnswerOnItsWayIsForgotten,
    Bug::G6EvictedSlotIsTakenAtOnce,
    Bug::G32EvictionDoesNotLook,
    Bug::G41RevocationLosesAgainstAClose,
    Bug::G22DyingServerIsJoined,
    Bug::G29GivenUpIsFollowed,
];

/// The scenario that holds the guard against this bug.
fn scenario(bug: Bug, seed: Seed) -> Result<(), String> {
    match bug {
        Bug::G1ReopenDoesNotWait => reopen(seed).map(drop),
        Bug::G2NoSingleFlight => single_flight(seed).map(drop),
        Bug::G19WakeIsForgotten => calls_of_a_parked_session(seed).map(drop),
        Bug::G3OldFactsCount => late_notes(seed).map(drop),
        Bug::G6SlotReturnedEarly => full_while_closing(seed).map(drop),
        Bug::G7CancelFreesAtOnce => cancel_everywhere(POLITE, seed).map(drop),
        Bug::G11GateStaysOpen => calls_race_a_close(seed).map(drop),
        Bug::G13JoinedCloseIsAnsweredEarly => two_closes(Other::Close, STUBBORN, seed).map(drop),
        Bug::G14CancelHurries => two_closes(Other::Cancelled, STUBBORN, seed).map(drop),
        Bug::G16RungsShareABudget => ladder_of_a_parked_call(seed).map(drop),
        Bug::G17LateLaunchIsPublished => shutdown_during_start(HANGS, seed).map(drop),
        Bug::G20WaitSaysClosedEarly => two_closes(Other::Close, STUBBORN, seed).map(drop),
        Bug::G21ChildrenAreForgotten | Bug::G21ParentDoesNotWait => close_a_tree(seed).map(drop),
        Bug::G22ReadyAfterClose => close_during_start(POLITE, seed).map(drop),
        Bug::G26AddOutlivesTheClose => add_against_close(POLITE, seed).map(drop),
        Bug::G26CancelIsForgotten => cancelled_add(POLITE, seed).map(drop),
        Bug::G26AnswerOnItsWayIsForgotten => cancelled_late(POLITE, seed).map(drop),
        Bug::G22DyingServerIsJoined => users(Vec::new(), seed).map(drop),
        Bug::G29GivenUpIsFollowed => given_up(seed),
        Bug::G29RestartLeavesTheTree => restart_against(close(9, "k"), STUBBORN, seed).map(drop),
        Bug::G29BusyIsSick => busy_is_never_sick(seed),
        Bug::G29BackoffBeatsStop => close_in_backoff(seed).map(drop),
        Bug::G32ClaimIsNotLookedAtAgain => {
            call_at_the_decision(seed).and(open_at_the_decision(seed)).map(drop)
        }
        Bug::G33IdleTimerIsLost => call_at_the_decision(seed).map(drop),
        Bug::G34ExitBeatsHangUp => hang_up(POLITE, seed).map(drop),
        Bug::G39WaitOutlastsQuarantine => shim_of_an_immortal(seed).map(drop),
        Bug::G6EvictedSlotIsTakenAtOnce => reopen_at_the_eviction(seed).map(drop),
        Bug::G32EvictionDoesNotLook => call_at_the_eviction(seed).map(drop),
        Bug::G41RevocationLosesAgainstAClose | Bug::G41TokenOutlivesItsGeneration => {
            detach_against(Other::Close, POLITE, seed).map(drop)
        }
        held => Err(format!("{held:?} has no scenario: the model holds it")),
    }
}

fn control(bug: Bug) {
    let name: &'static str = Box::leak(format!("{bug:?}").into_boxed_str());
    let guarantee: String =
        name.chars().take(1).chain(name.chars().skip(1).take_while(char::is_ascii_digit)).collect();
    assert_eq!(scenario(bug, None), Ok(()), "the scenario holds with the guard in place");
    let wrong = scenario(bug, Some(name)).expect_err("the scenario must notice that the guard is gone");
    assert!(wrong.starts_with(&format!("{guarantee}:")), "{name} breaks something else: {wrong}");
}

macro_rules! controls {
    ($($name:ident: $bug:ident,)*) => {
        $(#[test]
        fn $name() {
            control(Bug::$bug);
        })*

        #[test]
        fn control_every_bug_has_a_scenario() {
            let all = [$(Bug::$bug),*].into_iter().chain(HELD_BY_THE_MODEL);
            assert_eq!(all.collect::<BTreeSet<_>>(), BTreeSet::from(Bug::ALL));
        }
    };
}

controls! {
    control_g1: G1ReopenDoesNotWait,
    control_g2: G2NoSingleFlight,
    control_g19_wake: G19WakeIsForgotten,
    control_g3: G3OldFactsCount,
    control_g6: G6SlotReturnedEarly,
    control_g7: G7CancelFreesAtOnce,
    control_g11: G11GateStaysOpen,
    control_g13: G13JoinedCloseIsAnsweredEarly,
    control_g14: G14CancelHurries,
    control_g16: G16RungsShareABudget,
    control_g17: G17LateLaunchIsPublished,
    control_g20: G20WaitSaysClosedEarly,
    control_g21: G21ChildrenAreForgotten,
    control_g21_order: G21ParentDoesNotWait,
    control_g22: G22ReadyAfterClose,
    control_g26: G26AddOutlivesTheClose,
    control_g26_cancel: G26CancelIsForgotten,
    control_g26_late_cancel: G26AnswerOnItsWayIsForgotten,
    control_g22_shared: G22DyingServerIsJoined,
    control_g29_followed: G29GivenUpIsFollowed,
    control_g29_restart: G29RestartLeavesTheTree,
    control_g29: G29BackoffBeatsStop,
    control_g32: G32ClaimIsNotLookedAtAgain,
    control_g33: G33IdleTimerIsLost,
    control_g29_health: G29BusyIsSick,
    control_g34: G34ExitBeatsHangUp,
    control_g39: G39WaitOutlastsQuarantine,
    control_g6_eviction: G6EvictedSlotIsTakenAtOnce,
    control_g32_eviction: G32EvictionDoesNotLook,
    control_g41: G41RevocationLosesAgainstAClose,
    control_g41_generation: G41TokenOutlivesItsGeneration,
}

/// The random histories find every bug as well, without knowing where to look.
#[test]
fn control_random_histories_find_every_bug() {
    let left_out: Vec<Bug> = HELD_BY_THE_MODEL.into_iter().chain(NOT_IN_HISTORIES).collect();
    for bug in Bug::ALL.into_iter().filter(|bug| !left_out.contains(bug)) {
        let name: &'static str = Box::leak(format!("{bug:?}").into_boxed_str());
        let found = (1..=400).any(|seed| history(seed, 250, Some(name)).is_err());
        assert!(found, "no history notices {name}");
    }
}
