//! Descriptors, zombies and cgroups: how many, and what if there are none left.
use crate::harness::Named;
use crate::world::{World, children, eventually, sh, status};
use mcpvisor_process::{ContainmentKind, LaunchErrorKind, Rung, ScopeFact};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs::File;

pub(crate) const TESTS: &[Named] = &[
    ("nothing_wakes_up_at_rest", no_wake_ups),
    ("one_descriptor_for_each_scope_at_rest", at_rest),
    ("nothing_grows_over_300_cycles", cycles),
    ("a_kill_without_any_descriptor_left", exhausted),
];

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

fn at_rest(kind: ContainmentKind) {
    let world = World::start(kind);
    // The threads that look for programs, and whatever else is made at the first launch.
    world.launch(sh("true")).empty();
    eventually("rest", || children().is_empty());
    let before = open_descriptors();
    let servers: Vec<_> = (0..10).map(|_| world.launch(sh("exec sleep 1000"))).collect();
    // Three are the test's own ends of the pipes.
    assert_eq!(open_descriptors() - before, 10 * (3 + 1));
    for server in &servers {
        world.containment.kill(&server.scope);
    }
    for server in servers {
        server.empty();
    }
    assert_eq!(open_descriptors(), before);
    world.end();
}

/// G37.
fn cycles(kind: ContainmentKind) {
    let world = World::start(kind);
    let mut before = None;
    let times = if kind == ContainmentKind::Cgroup { 300 } else { 100 };
    for i in 0..times {
        let server = world.launch(sh("(setsid sleep 1000 &); echo up; cat >/dev/null"));
        server.read_until("up");
        world.containment.stdin_closed(&server.scope);
        world.containment.kill(&server.scope);
        server.empty();
        world.containment.release(&server.scope);
        world.containment.release_session(server.scope.session.clone());
        drop(server);
        if i == 20 {
            before = Some(open_descriptors());
        }
    }
    // A question is answered after all that was said before it.
    world.report(&world.new_scope());
    assert_eq!(Some(open_descriptors()), before);
    assert_eq!(children(), Vec::<u32>::new());
    if let Some(cgroup) = world.cgroup() {
        let left =
            std::fs::read_dir(cgroup).unwrap().filter(|e| e.as_ref().unwrap().file_type().unwrap().is_dir());
        assert_eq!(left.count(), 0);
    }
    world.end();
}

/// The kill path is independent of the number of descriptors. Negative control: with a reserve of none, the kill failed with
/// EMFILE again and again and the test timed out.
fn exhausted(kind: ContainmentKind) {
    let world = World::start(kind);
    // Their main processes are gone, so that nothing that could be closed is held of them. Two, since the second one is killed only
    // if the reserve was filled again after the first.
    let helper = "(setsid sh -c 'trap \"\" TERM; while :; do sleep 1000; done' >/dev/null 2>&1 &); exit 0";
    let servers = [world.launch(sh(helper)), world.launch(sh(helper))];
    servers.iter().for_each(|server| assert!(matches!(server.fact(), ScopeFact::MainExited { .. })));
    let hard = getrlimit(Resource::Nofile).maximum;
    let low = Rlimit { current: Some(open_descriptors() as u64 + 20), maximum: hard };
    setrlimit(Resource::Nofile, low).unwrap();
    let mut taken = Vec::new();
    let mut take_all = || {
        while let Ok(file) = File::open("/dev/null") {
            taken.push(file);
        }
    };
    take_all();
    let error = world.begin(sh("true")).outcome().unwrap_err();
    assert_eq!(error.kind, LaunchErrorKind::Resources, "{error}");
    for server in &servers {
        take_all();
        world.containment.stdin_closed(&server.scope);
        world.containment.terminate(&server.scope);
        world.containment.kill(&server.scope);
        assert!(server.empty().processes.last().unwrap().ended_by >= Some(Rung::Sigterm));
    }
    drop(taken);
    world.launch(sh("true")).empty();
    world.end();
}

/// How often the threads of a process have gone to sleep of their own accord.
fn sleeps(pid: u32) -> Vec<(String, String)> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let texts = tasks.map(|task| std::fs::read_to_string(task.unwrap().path().join("status")).unwrap());
    let fields = |text: String| (status(&text, "Pid"), status(&text, "voluntary_ctxt_switches"));
    // The thread that asks does so by itself.
    let mut all: Vec<_> =
        texts.map(fields).filter(|(tid, _)| *tid != std::process::id().to_string()).collect();
    all.sort();
    all
}

fn no_wake_ups(kind: ContainmentKind) {
    let world = World::start(kind);
    let servers: Vec<_> =
        (0..3).map(|_| world.launch(sh("(setsid sleep 1000 &); exec sleep 1000"))).collect();
    // A server that has ended, with others left behind, is waited for without looking.
    let left = world.launch(sh("setsid sleep 1000 >/dev/null 2>&1 & exit 0"));
    left.fact();
    let watched = || {
        let mut all = sleeps(std::process::id());
        if kind == ContainmentKind::Keeper {
            children().into_iter().for_each(|keeper| all.extend(sleeps(keeper)));
        }
        all
    };
    let mut before = watched();
    eventually("rest", || {
        std::thread::sleep(std::time::Duration::from_millis(500));
        std::mem::replace(&mut before, watched()) == before
    });
    for server in servers.iter().chain([&left]) {
        world.containment.kill(&server.scope);
    }
    world.end();
}
