//! Keepers that are killed, stopped, or outlive their daemon.
use crate::harness::Named;
use crate::world::{World, eventually, exists, file, guardian, numbers, program, record, sh};
use mcpvisor_process::ContainmentKind;
use rustix::process::{Pid, Signal, kill_process};
use std::io::Write as _;
use std::time::{Duration, Instant};

pub(crate) const TESTS: &[Named] = &[
    ("a_keeper_that_is_killed", killed),
    ("a_keeper_that_is_stopped", stopped),
    ("a_daemon_that_is_killed_leaves_nothing", a_daemon_that_is_killed_leaves_nothing),
    ("g36_a_keeper_that_its_server_stops_again_and_again", g36_a_keeper_that_its_server_stops),
    ("g36_a_keeper_that_is_killed_with_its_daemon", g36_a_keeper_that_is_killed_with_its_daemon),
    ("g36_a_guardian_is_replaced_and_is_nobodys_leftover", g36_a_guardian_is_replaced),
    ("a_keeper_can_not_be_started", no_keeper),
];

#[expect(clippy::disallowed_methods, reason = "the process lives: its parent is asked to kill it")]
pub(crate) fn signal(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), signal).unwrap();
}

fn parent(pid: u32) -> u32 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    crate::world::status(&text, "PPid").parse().unwrap()
}

pub(crate) const ESCAPEE: &str =
    "(setsid sh -c 'trap \"\" TERM; echo helper $$; while :; do sleep 1000; done' & ); cat > /dev/null";

/// A server whose escapee has no environment, and stops the keeper for ever; once it is told to, since a keeper that is stopped earlier
/// does not say that the server runs.
pub(crate) const STOPPER: &str = "read go; \
     setsid env -i sh -c 'echo helper $$; while :; do kill -STOP '$PPID'; done' & cat > /dev/null";

/// G12: the certificate says no more than is known.
fn killed(kind: ContainmentKind) {
    let world = World::start(kind);
    let bystander = world.launch(sh("exec sleep 1000"));
    let server = world.launch(sh(ESCAPEE));
    let helper = numbers(&server.read_until("helper"), "helper")[0];
    let keeper = parent(server.launched.pid);
    assert_eq!(parent(keeper), std::process::id());
    signal(keeper, Signal::KILL);
    let report = server.empty();
    assert!(!report.proven);
    assert!(!exists(helper) && !exists(server.launched.pid) && !exists(keeper));
    assert!(report.processes.iter().all(|record| record.pid != keeper));
    assert!(record(&report, helper).escaped);
    assert!(exists(bystander.launched.pid), "another keeper's server is left alone");
    world.end();
}

fn stopped(kind: ContainmentKind) {
    let world = World::start(kind);
    let server = world.launch(sh(ESCAPEE));
    let helper = numbers(&server.read_until("helper"), "helper")[0];
    signal(parent(server.launched.pid), Signal::STOP);
    world.containment.kill(&server.scope);
    let report = server.empty();
    assert!(report.proven, "it was woken");
    assert!(!exists(helper));
    world.end();
}

/// The daemon whose death the next test looks at.
pub(crate) fn play_daemon(script: &str) -> ! {
    let world = World::start(ContainmentKind::Keeper);
    let server = world.launch(sh(script));
    file(server.launched.stdin.as_ref().unwrap()).write_all(b"go\n").unwrap();
    let helper = numbers(&server.read_until("helper"), "helper")[0];
    eventually("the guardian", || guardian().is_some());
    println!("helper {helper}\nguardian {}", guardian().unwrap());
    println!("keeper {}", parent(server.launched.pid));
    println!("server {}\nup", server.launched.pid);
    loop {
        std::thread::park();
    }
}

/// G36, for keepers.
fn a_daemon_that_is_killed_leaves_nothing(kind: ContainmentKind) {
    leaves_nothing(kind, "daemon", |_| {});
}

/// Kills a daemon after something else was done, and waits for the end of all that it had.
fn leaves_nothing(kind: ContainmentKind, role: &str, before: impl FnOnce(&str)) {
    // The daemon itself is contained by another one, so that a failure of this test leaves nothing either.
    let world = World::start(kind);
    let me = std::env::current_exe().unwrap();
    let daemon = world.launch(program(me.to_str().unwrap(), &["role", role]));
    let text = daemon.read_until("up");
    let pids: Vec<u32> =
        ["helper", "keeper", "server", "guardian"].iter().flat_map(|word| numbers(&text, word)).collect();
    assert_eq!(pids.len(), 4);
    before(&text);
    let begin = Instant::now();
    signal(daemon.launched.pid, Signal::KILL);
    eventually("the end of what the daemon kept", || pids.iter().all(|pid| !exists(*pid)));
    assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
    let report = daemon.empty();
    assert!(report.processes.iter().all(|record| record.ended_by == Some(mcpvisor_process::Rung::Itself)));
    world.end();
}

/// Negative control: without a guardian the stopped keeper and all that it kept outlived the daemon.
fn g36_a_keeper_that_its_server_stops(kind: ContainmentKind) {
    leaves_nothing(kind, "stopping", |text| {
        let keeper = numbers(text, "keeper")[0];
        eventually("a stopped keeper", || {
            let status = std::fs::read_to_string(format!("/proc/{keeper}/status")).unwrap();
            crate::world::status(&status, "State").starts_with('T')
        });
    });
}

/// Negative control: without a guardian the helper outlived both.
fn g36_a_keeper_that_is_killed_with_its_daemon(kind: ContainmentKind) {
    leaves_nothing(kind, "daemon", |text| {
        let daemon = parent(numbers(text, "keeper")[0]);
        // So that it does not clean up after the keeper.
        signal(daemon, Signal::STOP);
        signal(numbers(text, "keeper")[0], Signal::KILL);
    });
}

/// A search for what a lost keeper has left spares it, too.
fn g36_a_guardian_is_replaced(kind: ContainmentKind) {
    let world = World::start(kind);
    eventually("a guardian", || guardian().is_some());
    let first = guardian().unwrap();
    signal(first, Signal::KILL);
    eventually("another guardian", || guardian().is_some_and(|pid| pid != first));
    let second = guardian();
    let server = world.launch(sh(ESCAPEE));
    server.read_until("helper");
    signal(parent(server.launched.pid), Signal::KILL);
    server.empty();
    assert_eq!(guardian(), second);
    world.end();
}

fn no_keeper(kind: ContainmentKind) {
    let options = mcpvisor_process::Options {
        instance: mcpvisor_process::InstanceId("no-keeper".into()),
        containment: Some(kind),
        private: false,
        keeper_command: vec!["/no/such/keeper".into()],
        state: None,
    };
    let (threads, containment) = mcpvisor_process::start(options).unwrap();
    let (told, answer) = std::sync::mpsc::channel();
    let scope = mcpvisor_process::ScopeId { session: "1-1".into(), leaf: "0-1".into() };
    let ignore = std::sync::Arc::new(|_| {});
    containment.launch(scope, sh("true"), ignore, Box::new(move |result| told.send(result).unwrap()));
    let error = answer.recv_timeout(crate::world::BUDGET).unwrap().unwrap_err();
    assert!(error.message.contains("keeper"), "{error}");
    threads.end();
}
