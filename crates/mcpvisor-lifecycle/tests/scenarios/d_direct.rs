//! D. Direct mode: the client holds the other ends of its server's stdin and stdout.
use super::Seed;
use super::explore::{Outcomes, explore, summary};
use super::process::{IMMORTAL, POLITE, Program, STUBBORN};
use super::script::{Act, close, open, target, wait_closed};
use super::world::World;

/// D.1: the client goes, at every point of a session, and its server with it, with a status.
pub(crate) fn hang_up(program: Program, seed: Seed) -> Result<Outcomes, String> {
    let clients = vec![
        vec![open(1, "a"), Act::Await(1), wait_closed(2, target("a"))],
        vec![Act::HangUp("a"), Act::Exit("a", false)],
    ];
    let world = World::new(1, clients, seed).with_direct("a", program).with_dawdling_clients();
    explore(&world, &|world| Ok(summary(world, &[1, 2])))
}

/// G34: of two ends at about the same time the client's counts as the first, in whatever order they are told; a session whose
/// client went has not failed.
#[test]
fn g34_d1_a_server_that_leaves_with_its_client_has_not_failed() {
    for program in [POLITE, STUBBORN] {
        let outcomes = hang_up(program, None).unwrap();
        assert!(outcomes.contains_key("Opened Reached"), "{outcomes:?}");
    }
}

/// D.2: someone waits for the end of a session whose server nothing ends; fate ends it later.
pub(crate) fn shim_of_an_immortal(seed: Seed) -> Result<Outcomes, String> {
    let clients = vec![
        vec![open(1, "a"), Act::Await(1), Act::HangUp("a"), wait_closed(2, target("a")), Act::Await(2)],
        vec![Act::Await(1), close(3, "a"), Act::Await(3), wait_closed(4, target("a")), Act::Free("a")],
    ];
    let world = World::new(1, clients, seed).with_direct("a", IMMORTAL);
    explore(&world, &|world| Ok(summary(world, &[1, 2, 3, 4])))
}

/// G39: who waits for the end of a direct session is told of its quarantine, and does not wait for the kernel, whether it
/// waits before that or comes after it.
#[test]
fn g39_d2_a_wait_for_a_direct_session_does_not_wait_for_the_kernel() {
    let outcomes = shim_of_an_immortal(None).unwrap();
    assert!(outcomes.contains_key("Opened Quarantined Quarantined Quarantined"), "{outcomes:?}");
}
