//! G6, G32: one session makes room for another, and what comes while that is decided and done.
use super::Seed;
use super::a_creation::settle;
use super::explore::{Outcomes, assert_told_apart, explore, summary};
use super::process::{IMMORTAL, POLITE, Program, STUBBORN};
use super::script::{Act, asked, cancel, close, shutdown};
use super::world::World;
use mcpvisor_lifecycle::registry::{Lifetime, Open, Quota, RegistryEvent};
use std::time::Duration;

/// An open of a session that may be closed for others when nobody uses it.
fn open(request: u64, key: &str) -> Act {
    let lifetime = Lifetime { idle: Some(Duration::from_secs(100)), ..Lifetime::default() };
    let quota = Quota { lifetime, ..Quota::default() };
    Act::Send(RegistryEvent::Open(Open { quota, ..asked(request, key) }))
}

/// Room for one session, which is there; another one is opened, perhaps with more `then`, and something `other` happens at any moment.
pub(crate) fn evict_beside(
    then: Vec<Act>,
    other: Vec<Act>,
    program: Program,
    seed: Seed,
) -> Result<Outcomes, String> {
    let mut world = World::new(1, vec![], seed).with("a", &[program]).with_eviction();
    world.act(open(1, "a"))?;
    settle(&mut world);
    let opener = std::iter::once(open(2, "b")).chain(then);
    world.clients = vec![opener.collect(), other.into()];
    if program == IMMORTAL {
        world.clients.push(vec![Act::UntilKilled("a"), Act::Free("a")].into());
    }
    explore(&world.with_dawdling_clients(), &|world| {
        let call = world.calls.get(&1).copied().unwrap_or("no call");
        Ok(format!("{} {call}", summary(world, &[2, 3])))
    })
}

/// A call at any moment of the decision.
pub(crate) fn call_at_the_eviction(seed: Seed) -> Result<Outcomes, String> {
    evict_beside(vec![], vec![Act::Call("a", 1), Act::Finish(1)], POLITE, seed)
}

/// G32: a call that comes before the decision keeps its session, and the open is refused; one that comes after it is refused.
#[test]
fn g32_a_call_at_the_eviction_wins_or_is_refused() {
    let outcomes = call_at_the_eviction(None).unwrap();
    assert!(outcomes.contains_key("CapacityExhausted unsent result"), "{outcomes:?}");
    assert!(outcomes.contains_key("Opened unsent refused"), "{outcomes:?}");
    assert!(outcomes.contains_key("Opened unsent result"), "{outcomes:?}");
}

/// A reopen of the key that makes room.
pub(crate) fn reopen_at_the_eviction(seed: Seed) -> Result<Outcomes, String> {
    evict_beside(vec![], vec![open(3, "a")], STUBBORN, seed)
}

/// G1, G6: never more sessions than the limit: the slot is the evictor's, and a reopen of the key needs one of its own.
#[test]
fn g6_the_slot_of_an_evicted_session_is_the_evictors() {
    let outcomes = reopen_at_the_eviction(None).unwrap();
    assert_told_apart(&outcomes, 2);
    for outcome in outcomes.keys() {
        assert!(outcome.starts_with("Opened"), "the eviction stands, whoever comes behind it: {outcome}");
    }
}

/// Closes, cancels, a shutdown, and a session that can't be killed, in every order.
#[test]
fn g6_evictions_end_in_every_order() {
    for (then, other, program, wanted) in [
        (vec![], vec![close(3, "a")], STUBBORN, "Opened Closed"),
        (vec![cancel(2)], vec![close(3, "a")], STUBBORN, "cancelled"),
        (vec![], vec![shutdown()], POLITE, "Draining"),
        (vec![], vec![close(3, "a")], IMMORTAL, "CapacityExhausted Quarantined"),
    ] {
        let outcomes = evict_beside(then, other, program, None).unwrap();
        assert!(outcomes.keys().any(|told| told.starts_with(wanted)), "{wanted}: {outcomes:?}");
        assert_told_apart(&outcomes, 2);
    }
}
