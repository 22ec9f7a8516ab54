//! C. Draining.
use super::Seed;
use super::a_creation::settle;
use super::explore::{Outcomes, assert_told_apart, explore, summary};
use super::process::{STUBBORN, Signal};
use super::script::{Act, close, open, target, wait_closed};
use super::world::{Choice, DRAIN, KILL_WAIT, STDIN_GRACE, TERM_GRACE, World};
use mcpvisor_lifecycle::Moment;
use std::time::Duration;

/// A live session, before anything else happens.
fn live(mut world: World, text: &'static str) -> World {
    world.act(open(1, text)).expect("an open is no mistake");
    settle(&mut world);
    world
}

/// C.1, C.2: calls race a close.
pub(crate) fn calls_race_a_close(seed: Seed) -> Result<Outcomes, String> {
    let mut world = live(World::new(1, vec![], seed), "a");
    let calls = [vec![Act::Call("a", 10), Act::Finish(10)], vec![Act::Call("a", 11)]];
    world.clients = [vec![close(2, "a")]].into_iter().chain(calls).map(Into::into).collect();
    explore(&world, &|world| {
        let told: Vec<_> = [10, 11].iter().map(|call| world.calls.get(call).copied()).collect();
        match told.as_slice() {
            [Some(one), Some(two)] => Ok(format!("{} {one} {two}", summary(world, &[2]))),
            other => Err(format!("G11: a call hangs: {other:?}")),
        }
    })
}

/// G11: a call is refused, or it gets its result, or one error; in any order with the close.
#[test]
fn g11_c1_an_admitted_call_is_answered_once() {
    let outcomes = calls_race_a_close(None).unwrap();
    for expected in ["Closed result error", "Closed refused refused", "Closed result refused"] {
        assert!(outcomes.contains_key(expected), "{expected} in {outcomes:?}");
    }
    assert_told_apart(&outcomes, 3);
}

/// When a stubborn session that is closed with a call in flight was sent what.
pub(crate) fn ladder_of_a_parked_call(seed: Seed) -> Result<[Option<Duration>; 4], String> {
    let mut world = live(World::new(1, vec![], seed).with("a", &[STUBBORN]), "a");
    world.act(Act::Call("a", 10))?;
    let begun = world.now;
    world.act(close(2, "a"))?;
    let mut times = [None; 4];
    while let Some(choice) = world.choices().first().copied() {
        world.step(choice)?;
        let since = |at: Moment| at.since(begun);
        for actor in world.sessions.values() {
            if let Some(process) = &actor.servers[0].process {
                for (index, signal) in [Signal::Stdin, Signal::Term, Signal::Kill].into_iter().enumerate() {
                    times[index] = process.at(signal).map(since).or(times[index]);
                }
            }
        }
    }
    times[3] = Some(world.now.since(begun));
    if world.calls.get(&10) != Some(&"error") {
        return Err(format!("G11: the call is answered with {:?}", world.calls.get(&10)));
    }
    Ok(times)
}

/// G16: a call that never ends is cancelled after the drain, and every rung behind it still has its whole budget.
#[test]
fn g16_c1_a_call_that_never_ends_leaves_the_ladder_whole() {
    let times = ladder_of_a_parked_call(None).unwrap();
    let term = DRAIN + STDIN_GRACE;
    assert_eq!(times[..3], [Some(DRAIN), Some(term), Some(term + TERM_GRACE)]);
}

/// G12, C.3: the total is bounded by the sum of the budgets, whatever the server ignores.
#[test]
fn g16_c3_the_total_is_bounded_by_the_sum_of_the_budgets() {
    let [.., total] = ladder_of_a_parked_call(None).unwrap();
    assert!(total.unwrap() <= DRAIN + STDIN_GRACE + TERM_GRACE + KILL_WAIT, "{total:?}");
}

/// G11: a thousand calls race a close: as many answers as calls, and each of those that were admitted has one.
#[test]
fn g11_c2_a_thousand_calls_race_a_close() {
    let mut told_apart = std::collections::BTreeSet::new();
    for seed in 1..=20 {
        let mut random = super::histories::Random::new(seed);
        let mut world = live(World::new(1, vec![], None), "a");
        let close_after = random.below(1_000);
        for call in 0..1_000 {
            if call == close_after {
                world.act(close(2, "a")).unwrap();
            }
            world.act(Act::Call("a", call)).unwrap();
            if random.below(2) == 0 {
                world.act(Act::Finish(random.below(1_000))).unwrap();
            }
            let choices = world.choices();
            let letter = choices.iter().find(|choice| matches!(choice, Choice::Letter(_)));
            if let Some(letter) = letter.filter(|_| random.below(3) == 0) {
                world.step(*letter).unwrap();
            }
        }
        while let Some(choice) = world.choices().first().copied() {
            world.step(choice).unwrap();
        }
        assert_eq!(world.calls.len(), 1_000, "none hangs");
        assert_eq!(summary(&world, &[2]), "Closed");
        told_apart.extend(world.calls.values().copied());
    }
    assert_eq!(told_apart.into_iter().collect::<Vec<_>>(), ["error", "refused", "result"]);
}

/// G20, G21: many are closed at once, and a wait on each never says closed before it is (`checks::reply` says so).
#[test]
fn g21_c4_wait_on_each_of_a_batch() {
    let mut world = World::new(2, vec![], None).with("b", &[STUBBORN]);
    for (request, text) in [(1, "a"), (2, "b")] {
        world.act(open(request, text)).unwrap();
    }
    settle(&mut world);
    let batch = vec![close(3, "a"), close(4, "b")];
    let waits = vec![wait_closed(5, target("a")), wait_closed(6, target("b"))];
    world.clients = vec![batch.into(), waits.into()];
    let outcomes = explore(&world, &|world| Ok(summary(world, &[3, 4, 5, 6])));
    assert_eq!(outcomes.unwrap().into_keys().collect::<Vec<_>>(), ["Closed Closed Reached Reached"]);
}
