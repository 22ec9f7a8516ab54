//! A. Creation that is cancelled.
use super::Seed;
use super::explore::{Outcomes, assert_told_apart, explore, summary, word};
use super::process::{Handshake, Launch, POLITE, Program};
use super::script::{Act, cancel, close, open, shutdown, target, wait_closed};
use super::world::{Choice, World};

pub(crate) const HANGS: Program = Program { launch: Launch::HangsForGood, ..POLITE };

/// Nothing is left, and every launch was released once.
fn nothing_is_left(world: &World) -> Result<(), String> {
    if !world.registry.sessions(None).is_empty() || world.registry.waiting_requests() != 0 {
        return Err(format!("something is left: {:?}", world.registry));
    }
    if world.launches != world.releases {
        return Err(format!("G15: {} launches and {} releases", world.launches, world.releases));
    }
    Ok(())
}

/// Delivers what is under way, and lets no time pass.
pub(crate) fn settle(world: &mut World) {
    while let Some(choice) = world.choices().into_iter().find(|choice| matches!(choice, Choice::Letter(_))) {
        world.step(choice).expect("nothing goes wrong in the straight order");
    }
}

/// G15, G7: the requester cancels, waits until the cleanup has begun, and cancels again.
#[test]
fn g15_a1_a_second_cancel_does_not_stop_the_cleanup() {
    for works in [true, false] {
        let script = vec![open(1, "a"), cancel(1), Act::UntilKilled("a"), cancel(1), Act::Let("a", works)];
        let world = World::new(1, vec![script], None).with("a", &[HANGS]);
        let outcomes = explore(&world, &|world| {
            nothing_is_left(world)?;
            match world.launches {
                1 => Ok(word(world, 1)),
                other => Err(format!("{other} launches")),
            }
        });
        assert_eq!(outcomes.unwrap().into_keys().collect::<Vec<_>>(), ["cancelled"]);
    }
}

/// The whole of A.2; with `works` the start succeeds late.
pub(crate) fn cancelled_five_times(works: bool, seed: Seed) -> Result<Outcomes, String> {
    let mut script = vec![open(1, "a")];
    script.extend((0..5).map(|_| cancel(1)));
    script.extend([open(2, "b"), Act::Await(2), Act::UntilKilled("a"), Act::Let("a", works)]);
    script.extend([Act::UntilFree("a"), open(3, "b"), Act::Await(3), close(4, "nobody"), close(5, "nobody")]);
    script.extend([close(6, "b"), Act::Await(6)]);
    let world = World::new(1, vec![script], seed).with("a", &[HANGS]);
    explore(&world, &|world| {
        nothing_is_left(world)?;
        Ok(summary(world, &[1, 2, 3, 4, 5, 6]))
    })
}

/// G6, G7: a cancelled open keeps its one slot until its late process is gone, and frees it once.
#[test]
fn g7_a2_a_stuck_start_that_is_cancelled_keeps_its_slot() {
    for works in [true, false] {
        let outcomes = cancelled_five_times(works, None).unwrap();
        let expected = "cancelled CapacityExhausted Opened NotFound NotFound Closed";
        assert_eq!(outcomes.into_keys().collect::<Vec<_>>(), [expected]);
    }
}

/// G6, G8: twenty opens come and go beside a stuck one, and none of them is held up by it.
#[test]
fn g6_a3_opens_come_and_go_beside_a_stuck_start() {
    let used = |world: &World| {
        let counts = world.registry.counts();
        counts.starting + counts.live + counts.dying
    };
    let mut world = World::new(2, vec![], None).with("a", &[HANGS]).with("b", &[POLITE]);
    for act in [open(1, "a"), cancel(1)] {
        world.act(act).unwrap();
    }
    settle(&mut world);
    for round in 0..20 {
        world.act(open(100 + round, "b")).unwrap();
        assert_eq!(used(&world), 2);
        world.act(cancel(100 + round)).unwrap();
        settle(&mut world);
        assert_eq!(used(&world), 1, "the cancelled one is gone at once");
        // Behind the stuck one itself nothing is started, and no slot is taken.
        let launches = world.launches;
        world.act(open(200 + round, "a")).unwrap();
        assert!(world.registry.is_parked(&super::script::key("a")));
        assert_eq!(used(&world), 1);
        world.act(cancel(200 + round)).unwrap();
        settle(&mut world);
        assert_eq!((world.launches, used(&world)), (launches, 1));
    }
    world.act(Act::Let("a", true)).unwrap();
    settle(&mut world);
    nothing_is_left(&world).unwrap();
}

/// The same in every order, with one round.
#[test]
fn g6_a3_in_every_order() {
    let rounds = vec![open(2, "b"), cancel(2), close(4, "b"), Act::Await(4)];
    let stuck = vec![open(1, "a"), cancel(1), Act::UntilKilled("a"), Act::Let("a", true)];
    let world = World::new(2, vec![stuck, rounds], None).with("a", &[HANGS]);
    let outcomes = explore(&world, &|world| {
        nothing_is_left(world)?;
        Ok(summary(world, &[1, 2, 4]))
    });
    assert_told_apart(&outcomes.unwrap(), 2);
}

/// G8: a handshake that hangs delays its own session only.
#[test]
fn g8_a4_a_hanging_handshake_delays_no_other_session() {
    let hangs = Program { handshake: Handshake::Hangs, ..POLITE };
    let clients = vec![vec![open(1, "a")], vec![open(2, "b")]];
    let mut world = World::new(2, clients, None).with("a", &[hangs]);
    let outcomes = explore(&world, &|world| Ok(summary(world, &[1, 2])));
    assert_eq!(outcomes.unwrap().into_keys().collect::<Vec<_>>(), ["StartFailed Opened"]);
    let before = world.now;
    for act in [open(1, "a"), open(2, "b")] {
        world.act(act).unwrap();
    }
    settle(&mut world);
    assert_eq!((word(&world, 2).as_str(), word(&world, 1).as_str()), ("Opened", "unsent"));
    assert_eq!(world.now, before, "and no time has passed");
}

/// G15: the handshake fails, and while the server is being ended, or before, or after, the requester cancels.
#[test]
fn g15_a5_a_cancel_during_the_end_of_a_failed_server() {
    let fails = Program { handshake: Handshake::Fails, obeys_term: false, obeys_stdin: false, ..POLITE };
    let world =
        World::new(1, vec![vec![open(1, "a"), cancel(1)]], None).with("a", &[fails]).with_early_timers(1);
    let outcomes = explore(&world, &|world| {
        nothing_is_left(world)?;
        Ok(format!("{} after {} launch", word(world, 1), world.launches))
    });
    let outcomes = outcomes.unwrap();
    let expected = ["StartFailed after 1 launch", "cancelled after 1 launch"];
    assert_eq!(outcomes.into_keys().collect::<Vec<_>>(), expected);
}

/// G22, G35: a shutdown during a start that would succeed.
pub(crate) fn shutdown_during_start(program: Program, seed: Seed) -> Result<Outcomes, String> {
    let clients = vec![vec![open(1, "a")], vec![shutdown()], vec![Act::Let("a", true)]];
    let world = World::new(1, clients, seed).with("a", &[program]);
    explore(&world, &|world| {
        nothing_is_left(world)?;
        match world.finished {
            Some(0) => Ok(word(world, 1)),
            other => Err(format!("G35: the shutdown has finished with {other:?}")),
        }
    })
}

#[test]
fn g22_a6_shutdown_fences_a_start_in_flight() {
    let stuck = shutdown_during_start(HANGS, None).unwrap();
    assert_told_apart(&stuck, 2);
    let polite = shutdown_during_start(POLITE, None).unwrap();
    assert_eq!(polite.into_keys().collect::<Vec<_>>(), ["Draining", "Opened", "SessionClosed"]);
}

/// A cancel at every gate of a start.
pub(crate) fn cancel_everywhere(program: Program, seed: Seed) -> Result<Outcomes, String> {
    let requester = vec![open(1, "a"), cancel(1)];
    let script = [requester, vec![close(2, "a"), Act::Await(2), open(3, "a"), Act::Await(3)]].concat();
    let last = vec![close(4, "a"), Act::Await(4), wait_closed(5, target("a")), Act::Await(5)];
    let clients = vec![[script, last].concat(), vec![Act::Let("a", true)], vec![Act::Let("a", true)]];
    let world = World::new(1, clients, seed).with("a", &[program]);
    explore(&world, &|world| {
        nothing_is_left(world)?;
        Ok(summary(world, &[1, 2, 3, 4, 5]))
    })
}

/// G7, G22: wherever the open is cancelled, a close of the key settles and an open of it works.
#[test]
fn g7_a7_cancel_at_every_gate() {
    let mut all = Outcomes::new();
    for program in [POLITE, HANGS, Program { launch: Launch::Hangs, ..POLITE }] {
        all.extend(cancel_everywhere(program, None).unwrap());
    }
    assert_told_apart(&all, 2);
    for outcome in all.keys() {
        let words: Vec<_> = outcome.split(' ').collect();
        assert!(matches!(words[0], "cancelled" | "Opened"), "{outcome}");
        assert!(matches!(words[1], "Closed" | "NotFound"), "{outcome}");
        assert_eq!(words[2..], ["Opened", "Closed", "Reached"], "{outcome}");
    }
}
