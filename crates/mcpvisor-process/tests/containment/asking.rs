//! Observers, reports, lists; the end of a session.
use crate::harness::Named;
use crate::world::{BUDGET, World, children, numbers, own_cgroup, program, sh};
use mcpvisor_process::{ContainmentKind, Exit, ScopeFact, ScopeId};
use std::sync::Arc;
use std::sync::mpsc::channel;

pub(crate) const TESTS: &[Named] = &[
    ("the_probe_tells_what_is_there_and_leaves_nothing", probe),
    ("into_the_background", detach),
    ("a_new_observer_is_told_what_holds", observe),
    ("g17_an_observer_that_comes_during_a_launch_hears_of_its_failure", heir),
    ("processes_and_scopes", processes),
    ("a_whole_session_is_killed", kill_session),
    ("an_observer_that_panics_harms_nobody", panics),
];

fn observe(kind: ContainmentKind) {
    let world = World::start(kind);
    let server = world.launch(sh("exit 4"));
    server.empty();
    let watch = |scope: &ScopeId| {
        let (told, facts) = channel();
        world.containment.observe(scope, Arc::new(move |fact| told.send(fact).unwrap()));
        facts
    };
    let facts = watch(&server.scope);
    assert!(matches!(facts.recv_timeout(BUDGET).unwrap(), ScopeFact::MainExited { exit: Exit::Code(4) }));
    assert!(
        matches!(facts.recv_timeout(BUDGET).unwrap(), ScopeFact::Empty { report } if report.processes.len() == 1)
    );
    world.containment.release(&server.scope);
    let facts = watch(&server.scope);
    assert!(
        matches!(facts.recv_timeout(BUDGET).unwrap(), ScopeFact::Empty { report } if report.processes.is_empty())
    );
    world.end();
}

/// Who asked for a launch may be gone when it fails: the one who took over hears that nothing is left, exactly once.
fn heir(kind: ContainmentKind) {
    let world = World::start(kind);
    for killed in [false, true] {
        let scope = world.new_scope();
        let spec = if killed { sh("exec sleep 1000") } else { program("/nowhere/at/all", &[]) };
        let launching = world.begin_in(scope.clone(), spec);
        let (told, facts) = channel();
        world.containment.observe(&scope, Arc::new(move |fact| told.send(fact).unwrap()));
        if killed {
            world.containment.kill(&scope);
        }
        let first = facts.recv_timeout(BUDGET).unwrap();
        // One that was born before the kill reached it is told to have exited first.
        let last = match first {
            ScopeFact::MainExited { .. } => facts.recv_timeout(BUDGET).unwrap(),
            ScopeFact::Empty { .. } => first,
        };
        assert!(matches!(last, ScopeFact::Empty { .. }), "{last:?}");
        assert!(launching.outcome().is_err() || killed);
        world.containment.release(&scope);
        assert!(facts.try_recv().is_err(), "told twice");
    }
    world.end();
}

fn processes(kind: ContainmentKind) {
    let world = World::start(kind);
    let server = world.launch(sh("setsid sleep 1000 & echo child $!; wait"));
    let other = world.launch(sh("exec sleep 2000"));
    let child = numbers(&server.read_until("child"), "child")[0];
    crate::world::eventually("exec of the child", || {
        std::fs::read_to_string(format!("/proc/{child}/cmdline")).unwrap().starts_with("sleep")
    });
    let ask = |session: Option<Arc<str>>| {
        let (told, answer) = channel();
        world.containment.processes(session, Box::new(move |all| told.send(all).unwrap()));
        let mut all = answer.recv_timeout(BUDGET).unwrap();
        all.sort_by_key(|process| process.pid);
        all
    };
    // The kernel counts the memory of a program that has only just begun a little late.
    crate::world::eventually("memory that is counted", || {
        ask(Some(server.scope.session.clone())).iter().all(|process| process.memory_bytes > 0)
    });
    let mine = ask(Some(server.scope.session.clone()));
    assert_eq!(mine.len(), 2, "{mine:?}");
    let child = mine.iter().find(|process| process.pid == child).unwrap();
    assert_eq!(
        (child.ppid, child.command.as_str(), child.escaped),
        (server.launched.pid, "sleep 1000", true)
    );
    assert_eq!(child.scope, server.scope);
    let main = mine.iter().find(|process| process.pid == server.launched.pid).unwrap();
    assert!(!main.escaped);
    assert_eq!(ask(None).len(), 3);
    let (told, answer) = channel();
    world.containment.scopes(Box::new(move |all| told.send(all).unwrap()));
    let scopes = answer.recv_timeout(BUDGET).unwrap();
    assert_eq!(scopes.len(), 2);
    assert!(scopes.iter().any(|s| s.scope == other.scope && s.main == Some(other.launched.pid) && !s.empty));
    world.end();
}

fn kill_session(kind: ContainmentKind) {
    let world = World::start(kind);
    let scope = |leaf: &str| ScopeId { session: Arc::from("7-7"), leaf: Arc::from(leaf) };
    let servers: Vec<_> = ["0-1", "1-1", "2-1"]
        .map(|leaf| {
            world.begin_in(scope(leaf), sh("trap '' TERM; while :; do sleep 1000; done")).ready().unwrap()
        })
        .into();
    let bystander = world.launch(sh("exec sleep 1000"));
    let ended = world.begin_in(scope("3-1"), sh("exit 0")).ready().unwrap();
    ended.empty();
    let (told, answer) = channel();
    world.containment.kill_session(Arc::from("7-7"), Box::new(move |all| told.send(all).unwrap()));
    let reports = answer.recv_timeout(BUDGET).unwrap();
    assert_eq!(reports.len(), 4);
    for server in servers {
        assert!(!crate::world::exists(server.launched.pid));
    }
    assert!(crate::world::exists(bystander.launched.pid));
    let (told, answer) = channel();
    world.containment.kill_session(Arc::from("none"), Box::new(move |all| told.send(all).unwrap()));
    assert!(answer.recv_timeout(BUDGET).unwrap().is_empty());
    world.end();
}

fn panics(kind: ContainmentKind) {
    let world = World::start(kind);
    let server = world.launch(sh("exec sleep 1000"));
    world.containment.observe(&server.scope, Arc::new(|_| panic!("as the test wants it")));
    world.containment.kill(&server.scope);
    world.launch(sh("true")).empty();
    world.end();
}

fn probe(kind: ContainmentKind) {
    let found = mcpvisor_process::probe();
    let told = |name: &str| found.iter().find(|(other, _)| *other == name).unwrap().1.clone();
    if kind == ContainmentKind::Cgroup {
        told("cgroup containment").unwrap();
    }
    told("process creation").unwrap();
    assert!(
        found.iter().all(|(_, result)| result.as_ref().is_ok_and(|text| !text.is_empty()) || result.is_err())
    );
    assert!(!own_cgroup().join(format!("mcpvisor-probe-{}", std::process::id())).exists());
    assert_eq!(children(), Vec::<u32>::new());
}

/// The process that goes into the background in the next test.
pub(crate) fn play_detach() -> ! {
    let before = std::process::id();
    mcpvisor_process::detach().unwrap();
    let session = rustix::process::getsid(None).unwrap().as_raw_nonzero();
    println!("before {before}\nafter {}\nsession {session}\nup", std::process::id());
    loop {
        std::thread::park();
    }
}

fn detach(kind: ContainmentKind) {
    let world = World::start(kind);
    let me = std::env::current_exe().unwrap();
    let server = world.launch(program(me.to_str().unwrap(), &["role", "detach"]));
    let text = server.read_until("up");
    assert!(matches!(server.fact(), ScopeFact::MainExited { exit: Exit::Code(0) }));
    let [before, after, session] = ["before", "after", "session"].map(|word| numbers(&text, word)[0]);
    assert_eq!(before, server.launched.pid);
    assert!(after != before && session != before && session != after, "{text}");
    world.containment.kill(&server.scope);
    server.empty();
    assert!(mcpvisor_process::detach().is_err(), "not with threads");
    world.end();
}
