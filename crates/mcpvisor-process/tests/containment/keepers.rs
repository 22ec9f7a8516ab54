//! Keepers that are killed, stopped, or outlive their daemon.
use crate::harness::Named;
use crate::world::{World, eventually, exists, numbers, program, record, sh};
use mcpvisor_process::ContainmentKind;
use rustix::process::{Pid, Signal, kill_process};

pub(crate) const TESTS: &[Named] = &[
    ("a_keeper_that_is_killed", killed),
    ("a_keeper_that_is_stopped", stopped),
    ("a_daemon_that_is_killed_leaves_nothing", a_daemon_that_is_killed_leaves_nothing),
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
pub(crate) fn play_daemon() -> ! {
    let world = World::start(ContainmentKind::Keeper);
    let server = world.launch(sh(ESCAPEE));
    let helper = numbers(&server.read_until("helper"), "helper")[0];
    println!("helper {helper}");
    println!("keeper {}", parent(server.launched.pid));
    println!("server {}\nup", server.launched.pid);
    loop {
        std::thread::park();
    }
}

/// G36, for keepers.
fn a_daemon_that_is_killed_leaves_nothing(kind: ContainmentKind) {
    // The daemon itself is contained by another one, so that a failure of this test leaves nothing either.
    let world = World::start(kind);
    let me = std::env::current_exe().unwrap();
    let daemon = world.launch(program(me.to_str().unwrap(), &["role", "daemon"]));
    let text = daemon.read_until("up");
    let pids: Vec<u32> =
        ["helper", "keeper", "server"].iter().flat_map(|word| numbers(&text, word)).collect();
    assert_eq!(pids.len(), 3);
    signal(daemon.launched.pid, Signal::KILL);
    eventually("the end of what the daemon kept", || pids.iter().all(|pid| !exists(*pid)));
    let report = daemon.empty();
    assert!(report.processes.iter().all(|record| record.ended_by == Some(mcpvisor_process::Rung::Itself)));
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
