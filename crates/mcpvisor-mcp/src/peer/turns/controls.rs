//! Negative controls: with a guard taken out, calls don't take turns any more, and what plays every order must notice.
use super::TurnsBug;
use super::tests::{every_order, order_of_turns, step};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRng, TestRunner};

/// The same orders each time.
fn holds(bug: Option<TurnsBug>) -> bool {
    let config = Config { cases: 128, failure_persistence: None, max_shrink_iters: 0, ..Config::default() };
    let rng = TestRng::deterministic_rng(config.rng_algorithm);
    let orders = prop::collection::vec(step(), 1..120);
    let every = TestRunner::new_with_rng(config, rng).run(&orders, |steps| every_order(steps, bug));
    every.is_ok()
}

fn control(bug: TurnsBug) {
    assert!(holds(None), "it holds with the guard in place");
    // Whose turn it is shows in a scenario alone: what is random does not say what is fair.
    let fair = bug != TurnsBug::G11ClientKeepsItsTurn || order_of_turns(Some(bug)) == order_of_turns(None);
    assert!(!(fair && holds(Some(bug))), "{bug:?} is not noticed");
}

macro_rules! controls {
    ($($name:ident: $bug:ident,)*) => {
        $(#[test]
        fn $name() {
            control(TurnsBug::$bug);
        })*
    };
}

controls! {
    g11_client_keeps_its_turn: G11ClientKeepsItsTurn,
    g11_new_call_passes_the_queue: G11NewCallPassesTheQueue,
    g11_place_is_not_given_back: G11PlaceIsNotGivenBack,
    g31_cancelled_call_is_written: G31CancelledCallIsWritten,
    g19_waiting_call_is_forgotten: G19WaitingCallIsForgotten,
}
