//! Process trees that do not want to end.
use crate::harness::Named;
use crate::world::{World, numbers, record, sh};
use mcpvisor_process::{ContainmentKind, Exit, Rung};

pub(crate) const TESTS: &[Named] = &[
    ("a_double_forked_grandchild_that_ignores_sigterm", double_fork),
    ("twenty_escapees", twenty),
    ("a_fork_bomb", fork_bomb),
    ("orphans_come_and_go_while_the_server_lives", orphans),
    ("processes_that_exec_others", exec_chain),
];

/// G12.
fn double_fork(kind: ContainmentKind) {
    let world = World::start(kind);
    let server = world.launch(sh(
        "( ( trap '' TERM HUP; setsid sh -c 'trap \"\" TERM; echo helper $$; while :; do sleep 1000; done' \
         </dev/null & ) & ) ; cat >/dev/null",
    ));
    let helper = numbers(&server.read_until("helper"), "helper")[0];
    world.containment.stdin_closed(&server.scope);
    world.containment.terminate(&server.scope);
    world.containment.kill(&server.scope);
    let report = server.empty();
    let record = record(&report, helper);
    assert!(record.escaped);
    assert_eq!((record.ended_by, record.exit), (Some(Rung::Sigkill), Some(Exit::Signal(9))));
    assert!(record.command.contains("echo helper"), "{record:?}");
    world.end();
}

/// G12.
fn twenty(kind: ContainmentKind) {
    let world = World::start(kind);
    let server = world.launch(sh("for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do \
         setsid sh -c 'trap \"\" TERM; echo helper $$; while :; do sleep 1000; done' & done; wait"));
    let mut text = String::new();
    while numbers(&text, "helper").len() < 20 {
        text.push_str(&server.read_until("\n"));
    }
    world.containment.kill(&server.scope);
    let report = server.empty();
    for helper in numbers(&text, "helper") {
        let record = record(&report, helper);
        assert!(record.escaped && record.ended_by == Some(Rung::Sigkill), "{record:?}");
    }
    world.end();
}

fn fork_bomb(kind: ContainmentKind) {
    let world = World::start(kind);
    // Four processes that fork as fast as they can, up to a bound that the test does not wait for.
    let server = world.launch(sh(
        "echo up; for i in 1 2 3 4; do \
         setsid sh -c 'trap \"\" TERM; n=0; while [ $n -lt 60 ]; do sleep 1000 & n=$((n+1)); done; wait' & done; wait",
    ));
    server.read_until("up");
    std::thread::sleep(std::time::Duration::from_millis(20));
    world.containment.kill(&server.scope);
    let report = server.empty();
    assert!(report.processes.iter().all(|record| record.ended_by.is_some()));
    assert!(report.proven);
    world.end();
}

/// Exit statuses of orphans reach the report though nobody has asked for a stop yet.
fn orphans(kind: ContainmentKind) {
    let world = World::start(kind);
    let server = world.launch(sh(
        "for i in 1 2 3 4 5; do (setsid sh -c 'echo orphan $$; exit 7' & ); done; sleep 0.3; echo up; exec sleep 1000",
    ));
    let text = server.read_until("up");
    let orphans = numbers(&text, "orphan");
    assert_eq!(orphans.len(), 5);
    crate::world::eventually("no zombie", || orphans.iter().all(|pid| !crate::world::exists(*pid)));
    world.containment.kill(&server.scope);
    let report = server.empty();
    for orphan in orphans {
        let record = record(&report, orphan);
        assert_eq!((record.ended_by, record.exit), (Some(Rung::Itself), Some(Exit::Code(7))), "{record:?}");
    }
    world.end();
}

fn exec_chain(kind: ContainmentKind) {
    let world = World::start(kind);
    let server = world.launch(sh("exec sh -c 'exec sh -c \"echo up; sleep 1000\"'"));
    server.read_until("up");
    world.containment.kill(&server.scope);
    let report = server.empty();
    assert_eq!(record(&report, server.launched.pid).exit, Some(Exit::Signal(9)));
    world.end();
}
