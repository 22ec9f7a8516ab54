//! A hundred thousand random histories of everything at once.
//!
//! One that fails is told with its seed: `cargo xtask model history SEED` follows it again.
use mcpvisor_model::{Witness, configs, wander};
use std::collections::BTreeSet;

/// What is in few histories, or in none: no server is direct here, and no open takes another's place. The walks come there.
const RARE: [Witness; 12] = [
    Witness::MadeRoom,
    Witness::NobodyMadeRoom,
    Witness::HungUp,
    Witness::PassedOver,
    Witness::UsersTookTurns,
    Witness::TenantsTookTurns,
    Witness::Woken,
    Witness::WokenByTwo,
    Witness::NotWoken,
    Witness::StartedAgain,
    Witness::RestartedByHand,
    Witness::Revoked,
];

/// The histories of a quarter of the seeds.
fn quarter(number: u64) {
    let mut seen = BTreeSet::new();
    for seed in (1 + number * 25_000)..=((number + 1) * 25_000) {
        let history = wander(&configs::wide(seed), None, seed);
        if let Some(violation) = history.violation {
            let story = violation.story.join("\n  ");
            panic!("seed {seed}: {}\n  {story}", violation.wrong.what);
        }
        seen.extend(history.reached);
    }
    seen.extend(RARE);
    let missed: Vec<_> = Witness::ALL.iter().filter(|witness| !seen.contains(witness)).collect();
    assert!(missed.is_empty(), "no history came there: {missed:?}");
}

#[test]
fn the_first_quarter() {
    quarter(0);
}

#[test]
fn the_second_quarter() {
    quarter(1);
}

#[test]
fn the_third_quarter() {
    quarter(2);
}

#[test]
fn the_fourth_quarter() {
    quarter(3);
}

/// The same seed gives the same history.
#[test]
fn a_history_can_be_followed_again() {
    for seed in 1..100 {
        let config = configs::wide(seed);
        let (one, other) = (wander(&config, None, seed), wander(&config, None, seed));
        assert_eq!((one.steps, one.reached), (other.steps, other.reached));
    }
}
