//! Parked sessions: the servers of one that is idle are stopped, and started again for whoever calls it.
use super::Seed;
use super::explore::{Outcomes, assert_told_apart, explore, summary};
use super::process::{Handshake, IMMORTAL, POLITE, Program, STUBBORN};
use super::script::{Act, close, key, open};
use super::world::{Choice, World};
use mcpvisor_lifecycle::registry::Phase;
use mcpvisor_lifecycle::session::SessionState;
use std::time::Duration;

const IDLE: Duration = Duration::from_secs(100);

/// One open session that is parked when it is idle, and clients that come at any time.
fn parking(program: Program, clients: Vec<Vec<Act>>, seed: Seed) -> Result<World, String> {
    let mut world = World::new(1, vec![], seed).with_parking(IDLE).with("a", &[program]);
    world.act(open(1, "a"))?;
    run(&mut world, false)?;
    world.clients = clients.into_iter().map(Into::into).collect();
    Ok(world.with_dawdling_clients().with_early_timers(1))
}

/// Until nothing is under way, or nothing will ever be.
fn run(world: &mut World, with_time: bool) -> Result<(), String> {
    while let Some(choice) = world.choices().into_iter().find(|choice| with_time || *choice != Choice::Time) {
        world.step(choice)?;
    }
    Ok(())
}

/// Two calls at any moment: before, while and after the session is parked, and while it is started for the other one.
pub(crate) fn calls_of_a_parked_session(seed: Seed) -> Result<Outcomes, String> {
    let call = |number| vec![Act::Call("a", number), Act::Finish(number)];
    let world = parking(POLITE, vec![call(1), call(2)], seed)?;
    explore(&world, &|world| {
        if world.launches > 3 {
            return Err(format!("G2: {} launches for two calls", world.launches));
        }
        let [one, two] = [1, 2].map(|call| world.calls.get(&call).copied().unwrap_or("unanswered"));
        // One whose call outlasts the pin limit is closed.
        let end = match world.registry.current(&key("a")) {
            Some((_, Phase::Live)) => "live",
            _ => "over",
        };
        Ok(format!("{one} {two} {end} {}", world.launches))
    })
}

/// G2, G11: every call is answered, those that come together share one start, and the session is parked again in the end.
#[test]
fn g2_e1_calls_of_a_parked_session_share_one_start() {
    let outcomes = calls_of_a_parked_session(None).unwrap();
    let live: Vec<&String> = outcomes.keys().filter(|outcome| outcome.contains("live")).collect();
    assert_eq!(live, ["result result live 1", "result result live 2", "result result live 3"]);
    assert!(outcomes.keys().all(|outcome| !outcome.contains("unanswered")), "{outcomes:?}");
}

/// G13, G22: a close at any moment of the parking and the start: one end, and a call that waits is told.
#[test]
fn g13_g22_a_close_of_a_parked_session() {
    for program in [POLITE, STUBBORN] {
        let clients = vec![vec![Act::Call("a", 1)], vec![close(2, "a")]];
        let world = parking(program, clients, None).unwrap();
        let outcomes = explore(&world, &|world| {
            if !world.registry.sessions(None).is_empty() {
                return Err("it is closed, and something is left".to_owned());
            }
            Ok(format!("{} {}", world.calls.get(&1).copied().unwrap_or("unanswered"), summary(world, &[2])))
        })
        .unwrap();
        assert!(
            outcomes.keys().all(|outcome| {
                ["Closed", "Quarantined", "NotFound"].iter().any(|told| outcome.ends_with(told))
            }),
            "{outcomes:?}"
        );
        assert!(!outcomes.keys().any(|outcome| outcome.starts_with("unanswered")), "G19: {outcomes:?}");
        assert_told_apart(&outcomes, 2);
    }
}

/// A close of a session that is parked waits for nothing: there is nothing to stop.
#[test]
fn a_parked_session_closes_at_once() {
    let mut world = parking(STUBBORN, vec![], None).unwrap();
    run(&mut world, true).unwrap();
    let (id, _) = world.holder("a").unwrap();
    assert_eq!(world.sessions[&id].machine.fine_state(), "parked");
    assert_eq!(world.sessions[&id].machine.state(), SessionState::Ready);
    assert!(!world.sessions[&id].lives(), "its processes are gone");
    let parked_at = world.now;
    world.act(close(2, "a")).unwrap();
    run(&mut world, false).unwrap();
    assert_eq!((summary(&world, &[2]).as_str(), world.now), ("Closed", parked_at));
}

/// G25: a start that fails is told to everyone who waits for it, and fails the session; so do servers that can't be stopped.
#[test]
fn g25_a_parked_session_that_can_not_be_started_again() {
    let mut world = parking(POLITE, vec![], None).unwrap();
    run(&mut world, true).unwrap();
    let (id, _) = world.holder("a").unwrap();
    world.actor(id).servers[0].program = Program { handshake: Handshake::Fails, ..POLITE };
    for call in [1, 2] {
        world.act(Act::Call("a", call)).unwrap();
    }
    run(&mut world, true).unwrap();
    assert_eq!([1, 2].map(|call| world.calls[&call]), ["failed", "failed"]);
    assert_eq!(world.holder("a"), None);
    let mut world = parking(IMMORTAL, vec![], None).unwrap();
    run(&mut world, true).unwrap();
    assert!(matches!(world.holder("a"), Some((_, Phase::Quarantined))), "{:?}", world.holder("a"));
}
