//! C.6: sessions below sessions.
use super::Seed;
use super::a_creation::settle;
use super::explore::{Outcomes, assert_told_apart, explore, summary, word};
use super::process::{IMMORTAL, POLITE, STUBBORN};
use super::script::{Act, cancel, close, open, open_below, shutdown, wait_closed};
use super::script::{key, target};
use super::world::World;
use mcpvisor_lifecycle::registry::Phase;

/// A parent is closed while a child is opened below it, and that one's child is there already or comes as well.
pub(crate) fn close_a_tree(seed: Seed) -> Result<Outcomes, String> {
    let clients = vec![
        vec![open_below(2, "b", "a"), Act::Await(2), open_below(3, "c", "b")],
        vec![close(4, "a")],
        vec![wait_closed(5, target("b"))],
    ];
    let mut world = World::new(3, vec![], seed).with("b", &[STUBBORN]);
    world.act(open(1, "a"))?;
    settle(&mut world);
    world.clients = clients.into_iter().map(Into::into).collect();
    explore(&world, &|world| Ok(summary(world, &[2, 3, 4])))
}

/// G21, C.6: what is below a session is closed with it and ends before it, in every order; what comes too late is refused.
#[test]
fn g21_c6_children_end_before_their_parent() {
    let outcomes = close_a_tree(None).unwrap();
    for told in ["Opened Opened Closed", "ParentClosing unsent Closed", "SessionClosed unsent Closed"] {
        let told = told.replace("unsent", "");
        let told: Vec<&str> = told.split_whitespace().collect();
        let told = |outcome: &String| told.iter().all(|word| outcome.contains(word));
        assert!(outcomes.keys().any(told), "{outcomes:?}");
    }
    assert_told_apart(&outcomes, 3);
}

/// G21, C.6: a child's open that is cancelled, or its own close, at the same time as its parent's close: one end each, and a call
/// that was admitted has one answer.
#[test]
fn g21_c6_a_child_that_is_cancelled_or_closed_by_itself() {
    let clients = vec![
        vec![open_below(2, "b", "a"), cancel(2)],
        vec![close(3, "b")],
        vec![close(4, "a")],
        vec![Act::Call("b", 1), Act::Finish(1)],
    ];
    let mut world = World::new(2, vec![], None).with("b", &[POLITE]);
    world.act(open(1, "a")).unwrap();
    settle(&mut world);
    world.clients = clients.into_iter().map(Into::into).collect();
    let outcomes = explore(&world, &|world| match world.registry.sessions(None).is_empty() {
        true => Ok(summary(world, &[2, 3, 4])),
        false => Err("G21: something is left".to_owned()),
    });
    assert_told_apart(&outcomes.unwrap(), 3);
}

/// G21: a child that can't be killed does not hold its parent: it stays quarantined, and is told so.
#[test]
fn g21_c6_a_quarantined_child_does_not_hold_its_parent() {
    let mut world = World::new(2, vec![], None).with("b", &[IMMORTAL]);
    for act in [open(1, "a"), open_below(2, "b", "a")] {
        world.act(act).unwrap();
        settle(&mut world);
    }
    world.clients = vec![vec![close(3, "a")].into(), vec![close(4, "b")].into()];
    let outcomes = explore(&world, &|world| match world.registry.current(&key("b")) {
        Some((_, Phase::Quarantined)) if world.registry.current(&key("a")).is_none() => {
            Ok(summary(world, &[3, 4]))
        }
        held => Err(format!("the child is {held:?}")),
    });
    assert_eq!(outcomes.unwrap().into_keys().collect::<Vec<_>>(), ["Closed Quarantined"]);
}

/// G21, G35: a shutdown ends a tree in its order, a parent that is lost closes what is below it all the same.
#[test]
fn g21_g35_shutdown_and_loss_of_a_tree() {
    let mut world = World::new(3, vec![], None).with("c", &[STUBBORN]);
    for act in [open(1, "a"), open_below(2, "b", "a"), open_below(3, "c", "b")] {
        world.act(act).unwrap();
        settle(&mut world);
    }
    world.clients = vec![vec![shutdown()].into(), vec![Act::LoseSession("b")].into()];
    let outcomes = explore(&world.with_dawdling_clients(), &|world| match (
        world.finished,
        world.registry.sessions(None).len(),
    ) {
        (Some(0), 0) => Ok(word(world, 3)),
        rest => Err(format!("G35: {rest:?}")),
    });
    assert_eq!(outcomes.unwrap().len(), 1);
}
