//! Processes of others, whose ends are told.
use crate::harness::Named;
use crate::world::{BUDGET, World, sh};
use mcpvisor_process::{ContainmentKind, Holder, HolderError};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

pub(crate) const TESTS: &[Named] = &[
    // The names are looked for in docs/guarantees.md.
    ("g34_the_end_of_a_holder_is_told_once", told),
    ("g34_a_process_that_has_ended_holds_nothing", dead),
];

fn told(kind: ContainmentKind) {
    let world = World::start(kind);
    let server = world.launch(sh("exec sleep 1000"));
    let holder = || Holder::open(server.launched.pid).unwrap();
    assert_eq!(holder().uid(), Some(rustix::process::getuid().as_raw()));
    let (tell, ends) = channel();
    let watch = |name: &'static str| {
        let tell = tell.clone();
        world.containment.watch_holder(holder(), Box::new(move || tell.send(name).unwrap()))
    };
    let (kept, dropped) = (watch("kept"), watch("dropped"));
    drop(dropped);
    assert_eq!(ends.recv_timeout(Duration::from_millis(50)), Err(RecvTimeoutError::Timeout), "it lives");
    world.containment.kill(&server.scope);
    assert_eq!(ends.recv_timeout(BUDGET), Ok("kept"));
    server.empty();
    assert_eq!(ends.try_recv().ok(), None);
    drop(kept);
    world.containment.release(&server.scope);
    world.end();
}

/// A number that was used again is that of another process: the one that was opened has ended, whoever has its number now.
fn dead(kind: ContainmentKind) {
    let world = World::start(kind);
    let server = world.launch(sh("exec sleep 1000"));
    let holder = Holder::open(server.launched.pid).unwrap();
    world.containment.kill(&server.scope);
    server.empty();
    assert_eq!(holder.uid(), None);
    assert!(matches!(Holder::open(server.launched.pid), Err(HolderError::NotFound(_))));
    assert!(matches!(Holder::open(0), Err(HolderError::NotFound(0))));
    assert!(matches!(Holder::open(u32::MAX), Err(HolderError::NotFound(_))));
    let (tell, ended) = channel();
    let _watch = world.containment.watch_holder(holder, Box::new(move || tell.send(()).unwrap()));
    ended.recv_timeout(BUDGET).unwrap();
    world.containment.release(&server.scope);
    world.end();
}
