//! D. Servers of a live session: adds, removes, restarts and replacements against closes, in every order.
use super::Seed;
use super::explore::{Outcomes, assert_told_apart, explore, word};
use super::process::{Handshake, IMMORTAL, Launch, POLITE, Program, STUBBORN};
use super::script::{Act, cancel, close, open};
use super::world::{Standing, World};
use mcpvisor_lifecycle::RequestId;

const MUTE: Program = Program { handshake: Handshake::Hangs, ..POLITE };
const BROKEN: Program = Program { handshake: Handshake::Fails, ..STUBBORN };
const HANGS: Program = Program { launch: Launch::Hangs, ..POLITE };

/// What a change came to, in one word.
fn change(world: &World, request: u64) -> String {
    let text = match world.changes.get(&RequestId(request)) {
        Some(Some(Ok(changed))) => format!("{changed:?}"),
        Some(Some(Err(refusal))) => format!("{refusal:?}"),
        _ => "cancelled".to_owned(),
    };
    text.split(' ').next().unwrap_or_default().to_owned()
}

/// Nothing of an add that failed is there, and of what was removed nothing is published.
fn settled(world: &World) -> Result<(), String> {
    for server in world.sessions.values().flat_map(|session| &session.servers) {
        if server.standing == Standing::Joining && server.process.is_some() {
            return Err("G26: a server is being added for ever".to_owned());
        }
    }
    Ok(())
}

fn run(
    client: Vec<Act>,
    other: Vec<Act>,
    programs: &[Program],
    seed: Seed,
    changes: &[u64],
) -> Result<Outcomes, String> {
    let world = World::new(2, vec![client, other], seed).with("k", programs).with_restarts();
    explore(&world, &|world| {
        settled(world)?;
        let told: Vec<_> = changes.iter().map(|request| change(world, *request)).collect();
        Ok(format!("{} {}", told.join(" "), word(world, 9)))
    })
}

fn opened(then: &[Act]) -> Vec<Act> {
    let mut all = vec![open(1, "k"), Act::Await(1)];
    all.extend(then.iter().cloned());
    all
}

/// D.1, G28: two sessions of one command: whatever the first one's end is, nothing is done to the other's process.
#[test]
fn d1_two_sessions_of_one_command() {
    for program in [POLITE, STUBBORN, IMMORTAL] {
        let client = vec![open(1, "a"), open(2, "b"), Act::Await(1), Act::Await(2), close(3, "a")];
        let world = World::new(2, vec![client], None).with("a", &[program]).with("b", &[program]);
        let outcomes = explore(&world, &|world| {
            let other = world.holder("b").ok_or("G28: the other session is gone")?.0;
            let process = world.sessions[&other].servers[0].process.as_ref();
            match process {
                Some(process) if process.lives() && process.signals.is_empty() => Ok(word(world, 3)),
                touched => Err(format!("G28: the other session's process is {touched:?}")),
            }
        });
        let expected = if program == IMMORTAL { "Quarantined" } else { "Closed" };
        assert_eq!(outcomes.unwrap().into_keys().collect::<Vec<_>>(), [expected]);
    }
}

/// D.3: an add against a close, from the launch to the publication.
pub(crate) fn add_against_close(program: Program, seed: Seed) -> Result<Outcomes, String> {
    let client = opened(&[Act::Add("k", 10, "new", program), Act::Let("k", true)]);
    run(client, vec![Act::Await(1), close(9, "k")], &[POLITE], seed, &[10])
}

#[test]
fn d3_an_add_that_meets_the_close_is_fenced() {
    for (program, least) in [(POLITE, 2), (MUTE, 1), (BROKEN, 2), (HANGS, 2), (STUBBORN, 2)] {
        let outcomes = add_against_close(program, None).unwrap();
        assert_told_apart(&outcomes, least);
        assert!(outcomes.keys().all(|told| told.ends_with("Closed")), "{program:?}: {outcomes:?}");
        assert!(outcomes.keys().any(|told| told.starts_with("Closed")), "{program:?}: {outcomes:?}");
    }
    let polite = add_against_close(POLITE, None).unwrap();
    assert!(polite.keys().any(|told| told.starts_with("Added")), "{polite:?}");
}

/// D.3: a late add is refused.
#[test]
fn d3_a_late_add_is_refused() {
    let client = opened(&[close(9, "k"), Act::Await(9), Act::Add("k", 10, "new", POLITE)]);
    let outcomes = run(client, vec![], &[POLITE], None, &[10]).unwrap();
    assert_eq!(outcomes.into_keys().collect::<Vec<_>>(), ["Closed Closed"]);
    let other = vec![Act::Await(1), Act::Add("k", 10, "new", POLITE)];
    let outcomes = run(opened(&[close(9, "k")]), other, &[STUBBORN], None, &[10]).unwrap();
    assert!(outcomes.keys().any(|told| told == "Closing Closed"), "{outcomes:?}");
}

/// G26: an add that fails leaves nothing, and the session goes on; a second one of the name is refused while it is there.
#[test]
fn g26_a_failed_add_leaves_nothing() {
    let client =
        opened(&[Act::Add("k", 10, "new", BROKEN), Act::AwaitChange(10), Act::Add("k", 12, "new", POLITE)]);
    let other = vec![Act::Await(1), Act::Add("k", 11, "new", POLITE)];
    let outcomes = run(client, other, &[POLITE], None, &[10, 11, 12]).unwrap();
    assert!(outcomes.contains_key("Failed NameTaken Added unsent"), "{outcomes:?}");
    assert!(outcomes.contains_key("NameTaken Added NameTaken unsent"), "{outcomes:?}");
}

/// An add of which its requester goes, against a close.
pub(crate) fn cancelled_add(program: Program, seed: Seed) -> Result<Outcomes, String> {
    let client =
        opened(&[Act::Add("k", 10, "new", program), Act::CancelChange("k", 10), Act::Let("k", true)]);
    run(client, vec![Act::Await(1), close(9, "k")], &[POLITE], seed, &[10])
}

/// An add of which its requester goes while its answer may be on its way, in a session that nobody closes.
pub(crate) fn cancelled_late(program: Program, seed: Seed) -> Result<Outcomes, String> {
    let client =
        opened(&[Act::Add("k", 10, "new", program), Act::CancelChange("k", 10), Act::Let("k", true)]);
    let world = World::new(2, vec![client], seed).with("k", &[POLITE]).with_restarts();
    explore(&world, &|world| {
        settled(world)?;
        let servers = &world.sessions.values().next().ok_or("nothing was opened")?.servers;
        let standing = servers.last().map(|server| server.standing);
        match (change(world, 10).as_str(), standing) {
            ("cancelled", Some(Standing::Member)) if servers.len() > 1 => {
                Err("G26: an add that was given up has left its server".to_owned())
            }
            (told, standing) => Ok(format!("{told} {standing:?}")),
        }
    })
}

/// G26: a cancel that meets the answer of its add takes back what was done.
#[test]
fn g26_an_add_that_was_given_up_leaves_nothing() {
    for program in [POLITE, MUTE, HANGS, BROKEN, STUBBORN] {
        let outcomes = cancelled_late(program, None).unwrap();
        assert!(outcomes.keys().any(|told| told.starts_with("cancelled")), "{program:?}: {outcomes:?}");
    }
    let polite = cancelled_late(POLITE, None).unwrap();
    assert_told_apart(&polite, 2);
}

/// G26: who asks for an add and goes cancels it.
#[test]
fn g26_an_add_whose_requester_goes_is_undone_or_was_done() {
    for program in [POLITE, MUTE, HANGS, BROKEN] {
        let outcomes = cancelled_add(program, None).unwrap();
        assert!(outcomes.keys().any(|told| told.starts_with("cancelled")), "{program:?}: {outcomes:?}");
    }
}

/// D.3: the remove of a server that won't die is done and reported, and a second one succeeds.
#[test]
fn d3_a_server_that_wont_die_is_removed_and_a_second_remove_succeeds() {
    let client = opened(&[
        Act::Remove("k", 10, "two"),
        Act::AwaitChange(10),
        Act::Add("k", 11, "two", POLITE),
        Act::AwaitChange(11),
        Act::Free("k"),
        Act::Remove("k", 12, "two"),
        Act::AwaitChange(12),
        Act::Add("k", 13, "two", POLITE),
    ]);
    let outcomes = run(client, vec![], &[POLITE, IMMORTAL], None, &[10, 11, 12, 13]).unwrap();
    assert!(outcomes.contains_key("Quarantined NameTaken Removed Added unsent"), "{outcomes:?}");
}

/// G26: a remove against a close, a second remove, and the server's own end.
#[test]
fn g26_removes_are_answered_when_nothing_is_left() {
    for program in [POLITE, STUBBORN, IMMORTAL] {
        let client = opened(&[Act::Remove("k", 10, "two"), Act::Remove("k", 11, "two")]);
        let other = vec![Act::Await(1), close(9, "k")];
        let outcomes = run(client, other, &[POLITE, program], None, &[10, 11]).unwrap();
        assert_told_apart(&outcomes, 2);
        let client = opened(&[Act::Remove("k", 10, "two"), Act::Remove("k", 11, "two")]);
        let outcomes = run(client, vec![Act::Exit("k", false)], &[POLITE, program], None, &[10, 11]);
        assert_told_apart(&outcomes.unwrap(), 1);
    }
}

/// G29: a restart by hand against a close, and against the server's own end.
pub(crate) fn restart_against(other: Act, program: Program, seed: Seed) -> Result<Outcomes, String> {
    let client = opened(&[Act::Restart("k", 10, "one")]);
    run(client, vec![Act::Await(1), other], &[program], seed, &[10])
}

#[test]
fn g29_a_restart_never_leaves_the_old_tree() {
    for program in [POLITE, STUBBORN, IMMORTAL] {
        let outcomes = restart_against(close(9, "k"), program, None).unwrap();
        assert!(outcomes.keys().any(|told| told.starts_with("Closed")), "{program:?}: {outcomes:?}");
        let outcomes = restart_against(Act::Exit("k", false), program, None).unwrap();
        let expected = if program == IMMORTAL { "Quarantined" } else { "Restarted" };
        assert!(outcomes.keys().any(|told| told.starts_with(expected)), "{program:?}: {outcomes:?}");
        let outcomes = restart_against(cancel(99), program, None).unwrap();
        assert!(outcomes.keys().all(|told| told.starts_with(expected)), "{program:?}: {outcomes:?}");
    }
}

/// D.5: the new one is ready before the old one goes; one that fails leaves the old one.
#[test]
fn d5_a_replacement_that_fails_leaves_the_old_one() {
    for (program, expected) in [(POLITE, "Replaced"), (BROKEN, "Failed"), (IMMORTAL, "Replaced")] {
        let client = opened(&[Act::Replace("k", 10, "one", program), Act::AwaitChange(10)]);
        let world = World::new(2, vec![client], None).with("k", &[POLITE]).with_restarts();
        let outcomes = explore(&world, &|world| {
            let servers = &world.sessions.values().next().expect("one was opened").servers;
            let standing: Vec<_> = servers.iter().map(|server| format!("{:?}", server.standing)).collect();
            Ok(format!("{} {}", change(world, 10), standing.join(" ")))
        });
        let outcomes = outcomes.unwrap();
        let standing = if expected == "Failed" { "Member Forgotten" } else { "Forgotten Member" };
        assert_eq!(outcomes.into_keys().collect::<Vec<_>>(), [format!("{expected} {standing}")]);
    }
    let client = opened(&[Act::Replace("k", 10, "one", POLITE), Act::Remove("k", 11, "one")]);
    let outcomes = run(client, vec![Act::Await(1), close(9, "k")], &[POLITE], None, &[10, 11]).unwrap();
    assert_told_apart(&outcomes, 3);
}
