//! B. Closing and reopening one key.
use super::Seed;
use super::a_creation::{HANGS, settle};
use super::explore::{Outcomes, assert_told_apart, explore, summary, word};
use super::process::{Handshake, IMMORTAL, Launch, POLITE, Program, STUBBORN};
use super::script::{
    Act, cancel, close, close_at, exactly, key, open, open_or_fail, open_until, retry_kill, shutdown, target,
    wait_closed,
};
use super::world::{KILL_WAIT, STDIN_GRACE, TERM_GRACE, World};
use mcpvisor_lifecycle::registry::{Answer, Phase, Refusal, RegistryEffect, RegistryEvent};
use mcpvisor_lifecycle::session::{CloseReason, Ended};
use mcpvisor_lifecycle::{Generation, Moment, SessionId, Uid};

fn generation(number: u64) -> SessionId {
    SessionId { uid: Uid(1000), generation: Generation(number) }
}

/// B.1: a reopen, patient and impatient, at every point of a teardown.
pub(crate) fn reopen(seed: Seed) -> Result<Outcomes, String> {
    let closer = vec![open(1, "a"), Act::Await(1), close(2, "a"), Act::Await(2)];
    let clients = vec![closer, vec![open(3, "a")], vec![open_or_fail(4, "a")]];
    let world = World::new(1, clients, seed).with("a", &[STUBBORN]);
    explore(&world, &|world| Ok(summary(world, &[1, 2, 3, 4])))
}

/// G1: a reopen waits for the old generation (or is refused), and never overlaps with it.
#[test]
fn g1_b1_reopen_waits_for_the_old_generation() {
    let outcomes = reopen(None).unwrap();
    assert!(outcomes.contains_key("Opened Closed Opened SessionClosing"), "{outcomes:?}");
    assert!(outcomes.contains_key("Opened Closed Opened Opened"), "{outcomes:?}");
    for outcome in outcomes.keys() {
        assert!(!outcome.contains("Exhausted"), "G6: the predecessor's slot passes on: {outcome}");
    }
    assert_told_apart(&outcomes, 2);
}

/// G1: a parked reopen keeps its own deadline and can be cancelled; the teardown does not mind.
#[test]
fn g1_b1_parked_reopens_keep_their_deadlines() {
    let mut world = World::new(1, vec![], None).with("a", &[STUBBORN]);
    world.act(open(1, "a")).unwrap();
    settle(&mut world);
    let soon = Moment(world.now.0 + 1_000_000);
    for act in [close(2, "a"), open_until(3, "a", soon), open(4, "a"), cancel(4)] {
        world.act(act).unwrap();
    }
    let outcomes = explore(&world, &|world| match world.registry.current(&key("a")) {
        None => Ok(summary(world, &[2, 3, 4])),
        held => Err(format!("nobody wants the key, and it is held: {held:?}")),
    });
    assert_eq!(outcomes.unwrap().into_keys().collect::<Vec<_>>(), ["Closed DeadlineExceeded cancelled"]);
}

/// The slot of a session that is torn down is still taken.
pub(crate) fn full_while_closing(seed: Seed) -> Result<Outcomes, String> {
    let mut world = World::new(1, vec![], seed).with("a", &[STUBBORN]);
    world.act(open(1, "a"))?;
    settle(&mut world);
    world.clients = vec![vec![close(2, "a")].into(), vec![open(3, "b")].into()];
    explore(&world.with_dawdling_clients(), &|world| Ok(summary(world, &[2, 3])))
}

/// G6: a slot is returned with the key, after the reap, and not before.
#[test]
fn g6_b1_a_dying_session_keeps_its_slot() {
    let outcomes = full_while_closing(None).unwrap();
    assert_eq!(outcomes.into_keys().collect::<Vec<_>>(), ["Closed CapacityExhausted", "Closed Opened"]);
}

/// Sixty-four opens of one key are one start.
pub(crate) fn single_flight(seed: Seed) -> Result<Outcomes, String> {
    let mut world = World::new(64, vec![], seed);
    for request in 1..=62 {
        world.act(open(request, "a"))?;
    }
    world.clients = vec![vec![open(63, "a")].into(), vec![open(64, "a")].into()];
    explore(&world, &|world| {
        let sessions = world.sessions.len();
        let all: Vec<_> = (1..=64).map(|request| word(world, request)).collect();
        let opened = all.iter().filter(|word| *word == "Opened").count();
        let created =
            world.replies.values().filter(|reply| matches!(reply, Ok(Answer::Opened { created: true, .. })));
        Ok(format!("{sessions} {opened} {}", created.count()))
    })
}

/// G2: concurrent opens of one key are single-flight, and one of them created the session.
#[test]
fn g2_b1_sixty_four_opens_are_one_start() {
    assert_eq!(single_flight(None).unwrap().into_keys().collect::<Vec<_>>(), ["1 64 1"]);
}

/// The second way in which the same session is closed at the same time.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Other {
    Close,
    Shutdown,
    Lease,
    Idle,
    Cancelled,
}

/// B.2, B.3: two closes at once, and someone who waits.
pub(crate) fn two_closes(other: Other, program: Program, seed: Seed) -> Result<Outcomes, String> {
    let session = generation(1);
    let wanted = |reason| Act::Send(RegistryEvent::CloseWanted { session, reason });
    let second = match other {
        Other::Close => vec![close(3, "a")],
        Other::Shutdown => vec![shutdown()],
        Other::Lease => vec![wanted(CloseReason::LeaseEnded)],
        Other::Idle => vec![wanted(CloseReason::Idle)],
        Other::Cancelled => vec![close(3, "a"), cancel(3)],
    };
    let clients = vec![vec![close(2, "a")], second, vec![wait_closed(4, target("a"))]];
    let mut world = World::new(1, vec![], seed).with("a", &[program]);
    world.act(open(1, "a"))?;
    settle(&mut world);
    world.clients = clients.into_iter().map(Into::into).collect();
    world = world.with_early_timers(1).with_dawdling_clients();
    explore(&world, &|world| {
        let reports: Vec<_> = world
            .replies
            .values()
            .filter_map(|reply| match reply {
                Ok(Answer::Closed { session } | Answer::Quarantined { session }) => Some(*session),
                _ => None,
            })
            .collect();
        if reports.iter().any(|told| *told != session) {
            return Err(format!("G13: different reports: {reports:?}"));
        }
        Ok(summary(world, &[2, 3, 4]))
    })
}

/// G13: everyone who closes gets the same outcome, at the end; by whatever way the session is closed.
#[test]
fn g13_b2_two_closes_get_the_same_report_at_the_end() {
    for other in [Other::Close, Other::Shutdown, Other::Lease, Other::Idle] {
        let outcomes = two_closes(other, STUBBORN, None).unwrap();
        assert!(outcomes.keys().any(|outcome| outcome.starts_with("Closed")), "{other:?}: {outcomes:?}");
        // Who comes after the end finds nothing to close. A timer that overtakes the proof of the end quarantines.
        assert_told_apart(&outcomes, 2);
        for outcome in outcomes.keys().flat_map(|outcome| outcome.split(' ')) {
            assert!(
                matches!(outcome, "Closed" | "Quarantined" | "Reached" | "NotFound" | "unsent"),
                "{outcome}"
            );
        }
    }
}

/// G14: a closer that gives up changes nothing for the teardown, or for another closer and `wait`.
#[test]
fn g14_b3_the_first_closer_gives_up() {
    let outcomes = two_closes(Other::Cancelled, STUBBORN, None).unwrap();
    assert!(outcomes.contains_key("Closed cancelled Reached"), "{outcomes:?}");
    assert_told_apart(&outcomes, 2);
}

/// B.4: a teardown that outlasts its whole budget.
pub(crate) fn outlasting(seed: Seed) -> Result<Outcomes, String> {
    let script = vec![
        open(1, "a"),
        Act::Await(1),
        close(2, "a"),
        Act::Await(2),
        open(3, "a"),
        Act::Await(3),
        retry_kill(4, "a"),
        Act::Await(4),
        close(5, "a"),
        wait_closed(6, target("a")),
        Act::Free("a"),
        Act::Await(5),
        Act::Await(6),
        open(7, "a"),
        Act::Await(7),
        close_at(8, exactly("a", 1)),
    ];
    let world = World::new(1, vec![script, vec![open(9, "a")]], seed).with("a", &[IMMORTAL]);
    explore(&world, &|world| {
        if word(world, 7) == "Opened" && world.launches < 2 {
            return Err("the reopen started nothing".to_owned());
        }
        Ok(summary(world, &[2, 3, 4, 5, 6, 7, 8, 9]))
    })
}

/// G4, G23: the key stays blocked and counted until nothing is left, and then its outcome is closed.
#[test]
fn g4_b4_a_quarantined_key_stays_blocked_until_it_is_empty() {
    let outcomes = outlasting(None).unwrap();
    assert_told_apart(&outcomes, 2);
    for outcome in outcomes.keys() {
        let rest = outcome.strip_prefix("Quarantined Quarantined Quarantined Closed Reached Opened Closed ");
        assert!(matches!(rest, Some("Opened" | "Quarantined")), "{outcome}");
    }
}

/// G23: a start fails and what it has begun can't be killed: the opener is told that it failed, and the key stays blocked until nothing is left.
#[test]
fn g23_a_failed_start_that_can_not_be_killed_blocks_its_key() {
    for handshake in [Handshake::Fails, Handshake::Hangs] {
        let script = vec![
            open(1, "a"),
            Act::Await(1),
            open(2, "a"),
            Act::Await(2),
            retry_kill(3, "a"),
            Act::Await(3),
            Act::Free("a"),
            close(4, "a"),
            Act::Await(4),
        ];
        let world = World::new(1, vec![script, vec![Act::Await(4), open(5, "b")]], None)
            .with("a", &[Program { handshake, ..IMMORTAL }])
            .with("b", &[POLITE]);
        let outcomes = explore(&world, &|world| Ok(summary(world, &[1, 2, 3, 4, 5]))).unwrap();
        for outcome in outcomes.keys() {
            assert!(outcome.starts_with("StartFailed Quarantined Quarantined "), "{outcomes:?}");
            assert!(outcome.ends_with(" Opened"), "the slot is free then: {outcomes:?}");
        }
    }
}

/// B.5: whatever speaks of an ended generation changes nothing, and its replacement is untouched.
#[test]
fn g3_b5_handles_of_an_old_generation_change_nothing() {
    let mut world = World::new(1, vec![], None);
    for act in [open(1, "a"), close(2, "a"), open(3, "a")] {
        world.act(act).unwrap();
        settle(&mut world);
    }
    let (old, new) = (generation(1), generation(2));
    assert_eq!(world.registry.current(&key("a")), Some((new, Phase::Live)));
    let before = world.registry.clone();
    for fact in [
        RegistryEvent::SessionReady { session: old },
        RegistryEvent::CloseWanted { session: old, reason: CloseReason::Idle },
        RegistryEvent::CloseWanted { session: old, reason: CloseReason::LeaseEnded },
        RegistryEvent::Detached { session: old },
        RegistryEvent::SessionEnded { session: old, ended: Ended::Failed },
        RegistryEvent::SessionQuarantined { session: old },
        RegistryEvent::SessionLost { session: old },
    ] {
        let dropped = world.registry.dropped_facts();
        assert_eq!(world.registry.step(world.now, fact.clone()), [], "{fact:?}");
        assert_eq!(world.registry.dropped_facts(), dropped + 1, "{fact:?} is counted");
    }
    assert_eq!(world.registry.sessions(None), before.sessions(None));
    assert_eq!(world.registry.next_timeout(), before.next_timeout());
    let stale = Refusal::StaleGeneration { session: old };
    assert_eq!(world.registry.resolve(&exactly("a", 1)), Err(stale.clone()));
    assert_eq!(world.registry.presented(&key("a"), old), Err(stale.clone()));
    assert_eq!(world.registry.presented(&key("a"), new), Ok(new));
    assert_eq!(world.registry.presented(&key("b"), new), Err(Refusal::NotFound));
    assert_eq!(world.registry.resolve(&exactly("a", 2)), Ok(new));
    assert_eq!(world.registry.resolve(&exactly("a", 3)), Err(Refusal::NotFound));
    for (act, request, expected) in [
        (retry_kill(10, "a"), 10, Err(Refusal::NotQuarantined { session: new })),
        (close_at(11, exactly("a", 1)), 11, Ok(Answer::Closed { session: old })),
        (close_at(12, exactly("a", 3)), 12, Err(Refusal::NotFound)),
    ] {
        world.act(act).unwrap();
        assert_eq!(world.replies[&mcpvisor_lifecycle::RequestId(request)], expected);
    }
    let kill = RegistryEvent::RetryKill {
        request: mcpvisor_lifecycle::RequestId(13),
        target: exactly("a", 1),
        deadline: None,
    };
    let effects = world.registry.step(world.now, kill);
    assert!(matches!(&effects[..], [RegistryEffect::Reply { result: Err(told), .. }] if *told == stale));
    assert_eq!(world.registry.current(&key("a")), Some((new, Phase::Live)));
}

/// B.5 in every order: an actor that was lost is reaped, and what it said before it was lost arrives late.
pub(crate) fn late_notes(seed: Seed) -> Result<Outcomes, String> {
    let clients = vec![vec![open(1, "a")], vec![Act::LoseSession("a")], vec![open(2, "a")]];
    let world = World::new(1, clients, seed).with("a", &[POLITE]);
    explore(&world, &|world| {
        let held = world.registry.current(&key("a")).map(|(_, phase)| phase);
        Ok(format!("{} {held:?}", summary(world, &[1, 2])))
    })
}

#[test]
fn g3_b5_late_notes_of_a_lost_actor() {
    let outcomes = late_notes(None).unwrap();
    assert_told_apart(&outcomes, 2);
}

/// B.5: a client whose end is its session's goes, against another way to close it, and the key is opened again.
pub(crate) fn detach_against(other: Other, program: Program, seed: Seed) -> Result<Outcomes, String> {
    let session = generation(1);
    let detached = || Act::Send(RegistryEvent::Detached { session });
    let second = match other {
        Other::Close => vec![close(3, "a")],
        Other::Shutdown => vec![shutdown()],
        Other::Lease => vec![detached()],
        Other::Idle => vec![Act::Send(RegistryEvent::CloseWanted { session, reason: CloseReason::Idle })],
        Other::Cancelled => vec![close(3, "a"), cancel(3)],
    };
    let reopen = vec![open(4, "a"), wait_closed(5, exactly("a", 1))];
    let mut world = World::new(1, vec![], seed).with("a", &[program]);
    world.act(open(1, "a"))?;
    settle(&mut world);
    world.clients = vec![vec![detached()].into(), second.into(), reopen.into()];
    if program == IMMORTAL {
        world.clients.push(vec![Act::UntilKilled("a"), Act::Free("a")].into());
    }
    explore(&world.with_dawdling_clients(), &|world| {
        let revoked = if world.revoked.contains(&session) { "revoked" } else { "over before" };
        Ok(format!("{} {revoked}", summary(world, &[4, 5])))
    })
}

/// G41: whatever else closes the session, its client's end revokes the token as long as anything is left of it; nothing of it is valid
/// afterwards, and the next generation's token is untouched by either.
#[test]
fn g41_b5_a_detach_revokes_in_every_order() {
    for program in [POLITE, IMMORTAL] {
        for other in [Other::Close, Other::Shutdown, Other::Lease, Other::Idle, Other::Cancelled] {
            let outcomes = detach_against(other, program, None).unwrap();
            assert!(outcomes.keys().any(|told| told.ends_with(" revoked")), "{other:?}: {outcomes:?}");
            // Beside the close of an immortal, and beside another detach, it never comes too late.
            if program == POLITE && !matches!(other, Other::Lease) {
                assert_told_apart(&outcomes, 2);
            }
        }
    }
}

/// B.6: a close during the start.
pub(crate) fn close_during_start(program: Program, seed: Seed) -> Result<Outcomes, String> {
    let closer = vec![close(2, "a"), Act::Await(2), open(3, "a"), Act::Await(3)];
    let clients = vec![vec![open(1, "a")], closer, vec![Act::Let("a", true)], vec![Act::Let("a", true)]];
    let world = World::new(1, clients, seed).with("a", &[program]).with_early_timers(1);
    explore(&world, &|world| {
        if let Some(process) = world.sessions.values().find(|actor| actor.ended && actor.lives()) {
            return Err(format!("a process outlives its session: {process:?}"));
        }
        Ok(summary(world, &[1, 2, 3]))
    })
}

/// G22: a close fences the start and joins its unwinding; then the key opens again.
#[test]
fn g22_b6_close_during_start() {
    let hangs = Program { launch: Launch::Hangs, ..POLITE };
    for program in [POLITE, hangs] {
        let outcomes = close_during_start(program, None).unwrap();
        assert!(outcomes.contains_key("SessionClosed Closed Opened"), "{outcomes:?}");
        assert!(outcomes.contains_key("Opened NotFound Opened"), "{outcomes:?}");
        assert_told_apart(&outcomes, 3);
    }
    let mut failing = Outcomes::new();
    for program in [
        Program { launch: Launch::Fails, ..POLITE },
        Program { handshake: Handshake::Fails, obeys_term: false, ..POLITE },
    ] {
        failing.extend(close_during_start(program, None).unwrap());
    }
    assert_told_apart(&failing, 2);
    assert!(failing.keys().all(|outcome| !outcome.contains("Opened")), "{failing:?}");
}

/// G35, G22: a shutdown is busy with A while B is starting: B is not published, both are gone, in one budget.
#[test]
fn g35_b7_shutdown_ends_a_live_and_a_starting_session_in_one_budget() {
    let clients = vec![vec![shutdown()], vec![open(2, "b")], vec![Act::Let("b", true)]];
    let mut world = World::new(2, vec![], None).with("a", &[STUBBORN]).with("b", &[HANGS]);
    world.act(open(1, "a")).unwrap();
    settle(&mut world);
    world.clients = clients.into_iter().map(Into::into).collect();
    let outcomes = explore(&world, &|world| {
        let (Some(begun), Some(done)) = (world.shut_down_at, world.finished_at) else {
            return Err("G35: the shutdown never finished".to_owned());
        };
        let took = done.since(begun);
        if took > STDIN_GRACE + TERM_GRACE + KILL_WAIT {
            return Err(format!("G35: the shutdown took {took:?}, more than one ladder"));
        }
        if !world.registry.sessions(None).is_empty() || world.sessions.values().any(|actor| actor.lives()) {
            return Err("G35: something is left".to_owned());
        }
        Ok(word(world, 2))
    });
    assert_eq!(outcomes.unwrap().into_keys().collect::<Vec<_>>(), ["Draining", "Opened", "SessionClosed"]);
}

/// B.8: the records of a session (`Changed`, `Forget`) are nothing that a machine waits for: the world above never
/// answers them, nor would it know how, and every teardown is complete and every key free all the same. What is
/// checked here is that no other effect is a record: the registry's step that ends a session frees its key at once.
#[test]
fn g5_b8_the_end_waits_for_no_record() {
    let mut world = World::new(1, vec![], None);
    for act in [open(1, "a"), close(2, "a")] {
        world.act(act).unwrap();
        settle(&mut world);
    }
    assert_eq!((world.registry.current(&key("a")), word(&world, 2).as_str()), (None, "Closed"));
    assert_eq!(world.registry.waiting_requests(), 0);
}

/// A close while the server waits to be started again, or is being started again.
pub(crate) fn close_in_backoff(seed: Seed) -> Result<Outcomes, String> {
    let mut world = World::new(1, vec![], seed).with_restarts();
    world.act(open(1, "a"))?;
    settle(&mut world);
    world.clients = vec![vec![Act::Exit("a", false)].into(), vec![close(2, "a")].into()];
    explore(&world.with_dawdling_clients(), &|world| {
        Ok(format!("{} after {} launches", summary(world, &[2]), world.launches))
    })
}

/// G29: a stop beats a backoff, and is beaten by none; a restart leaves nothing of the old tree.
#[test]
fn g29_b2_a_close_beats_a_backoff() {
    let outcomes = close_in_backoff(None).unwrap();
    assert!(outcomes.contains_key("Closed after 1 launches"), "{outcomes:?}");
    assert!(outcomes.contains_key("Closed after 2 launches"), "{outcomes:?}");
}

/// G20: closed, not yet and unknown are three answers.
#[test]
fn g20_b3_wait_tells_closed_still_closing_and_unknown_apart() {
    let mut world = World::new(1, vec![], None).with("a", &[STUBBORN]);
    world.act(open(1, "a")).unwrap();
    settle(&mut world);
    let soon = Moment(world.now.0 + 1_000_000);
    let patience = |request| {
        Act::Send(RegistryEvent::Wait {
            request: mcpvisor_lifecycle::RequestId(request),
            target: target("a"),
            goal: mcpvisor_lifecycle::registry::Goal::Closed,
            deadline: Some(soon),
        })
    };
    for act in [close(2, "a"), patience(3), wait_closed(4, target("a")), wait_closed(5, target("nobody"))] {
        world.act(act).unwrap();
    }
    let outcomes = explore(&world, &|world| Ok(summary(world, &[3, 4, 5])));
    assert_eq!(outcomes.unwrap().into_keys().collect::<Vec<_>>(), ["NotYet Reached NotFound"]);
}
