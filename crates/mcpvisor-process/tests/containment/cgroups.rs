//! What a server that runs as root may do to cgroups.
use crate::harness::Named;
use crate::world::{World, cgroup_mount, eventually, exists, is_root, numbers, own_cgroup, sh};
use mcpvisor_process::{ContainmentKind, Rung};

pub(crate) const TESTS: &[Named] = &[
    ("cgroups_that_the_server_makes", nested),
    ("a_process_that_leaves_its_cgroup", strays),
    ("g12_a_process_that_leaves_its_cgroup_and_its_environment", unmarked_strays),
    ("children_that_the_daemon_was_born_with", inherited),
    ("the_file_that_kills_a_scope", kill_file),
    ("two_scopes_of_a_session_share_its_cgroup", shared_session),
];

fn nested(kind: ContainmentKind) {
    if !is_root() {
        return;
    }
    let world = World::start(kind);
    let mut spec = sh("c=$ROOT$(sed -n 's/^0:://p' /proc/self/cgroup); mkdir -p $c/a/b $c/c; \
         setsid sh -c 'echo $$ > '$c'/a/b/cgroup.procs; echo nested $$; sleep 1000' & wait");
    spec.env.push(std::ffi::CString::new(format!("ROOT={}", cgroup_mount().display())).unwrap());
    let server = world.launch(spec);
    let nested = numbers(&server.read_until("nested"), "nested")[0];
    let report = world.report(&server.scope);
    assert!(report.remaining.iter().any(|(pid, _)| *pid == nested), "{report:?}");
    world.containment.terminate(&server.scope);
    world.containment.kill(&server.scope);
    server.empty();
    assert!(!exists(nested));
    world.end();
}

/// G12: both its main process and an orphan have gone elsewhere: they are found as our children, by their marker. Negative control:
/// without the look at our own children the end was told while the orphan lived.
fn strays(kind: ContainmentKind) {
    if !is_root() {
        return;
    }
    let world = World::start(kind);
    let mut spec = sh("(setsid sh -c 'echo $$ > $ROOT/cgroup.procs; echo stray $$; sleep 1000; true' &); \
         echo $$ > $ROOT/cgroup.procs; echo up; sleep 1000; true");
    spec.env.push(std::ffi::CString::new(format!("ROOT={}", own_cgroup().display())).unwrap());
    let server = world.launch(spec);
    let mut text = server.read_until("stray");
    if !text.contains("up") {
        text.push_str(&server.read_until("up"));
    }
    let stray = numbers(&text, "stray")[0];
    world.containment.kill(&server.scope);
    let report = server.empty();
    assert!(!exists(stray) && !exists(server.launched.pid));
    assert!(crate::world::record(&report, stray).escaped);
    world.end();
}

/// G12: nothing tells whose they are, but that they are our children; the second is so only when the first has gone. Another session
/// that lives is left alone. Negative control: without `Owner::Stray` the end was told while both lived.
fn unmarked_strays(kind: ContainmentKind) {
    if !is_root() {
        return;
    }
    let world = World::start(kind);
    let bystander = world.launch(sh("exec sleep 1000"));
    let mut spec = sh("(setsid sh -c 'echo $$ > $ROOT/cgroup.procs; echo stray $$; \
         setsid env -i sh -c \"echo stray \\$\\$; exec env -i sleep 1000\" & exec env -i sleep 1000' &); \
         cat > /dev/null");
    spec.env.push(std::ffi::CString::new(format!("ROOT={}", own_cgroup().display())).unwrap());
    let mut server = world.launch(spec);
    let mut text = String::new();
    while numbers(&text, "stray").len() < 2 {
        text.push_str(&server.read_until("\n"));
    }
    let strays = numbers(&text, "stray");
    let file = |pid: u32, name: &str| std::fs::read(format!("/proc/{pid}/{name}")).unwrap();
    for pid in &strays {
        eventually("a stray without a name", || file(*pid, "cmdline").starts_with(b"sleep"));
        assert_eq!(file(*pid, "environ"), b"");
        assert_eq!(file(*pid, "cgroup"), std::fs::read("/proc/self/cgroup").unwrap());
    }
    drop(server.launched.stdin.take());
    world.containment.stdin_closed(&server.scope);
    let report = server.empty();
    for pid in &strays {
        assert!(!exists(*pid));
        let told = crate::world::record(&report, *pid);
        assert!(told.escaped && told.ended_by == Some(Rung::Sigkill), "{told:?}");
    }
    assert!(exists(bystander.launched.pid));
    world.containment.kill(&bystander.scope);
    assert_eq!(bystander.empty().processes.len(), 1);
    world.end();
}

/// A daemon that a shell executes has the shell's children: they are none of its servers'.
fn inherited(kind: ContainmentKind) {
    let world = World::start(kind);
    let me = std::env::current_exe().unwrap();
    let script = "sleep 1000 & echo inherited $!; exec $ME role inheriting";
    let daemon = world.launch(sh(&format!("ME={}; {script}", me.display())));
    let text = daemon.read_until("ended");
    assert!(exists(numbers(&text, "inherited")[0]), "{text}");
    world.containment.kill(&daemon.scope);
    daemon.empty();
    world.end();
}

/// The daemon of the test above.
pub(crate) fn play_inheriting() -> ! {
    let world = World::start(ContainmentKind::Cgroup);
    let server = world.launch(sh("exec sleep 1000"));
    world.containment.kill(&server.scope);
    server.empty();
    drop(world);
    println!("ended");
    loop {
        std::thread::park();
    }
}

fn shared_session(kind: ContainmentKind) {
    let world = World::start(kind);
    let scope = |leaf: &str| mcpvisor_process::ScopeId { session: "9-9".into(), leaf: leaf.into() };
    let first = world.begin_in(scope("0-1"), sh("exec sleep 1000")).ready().unwrap();
    let second = world.begin_in(scope("1-1"), sh("exec sleep 1000")).ready().unwrap();
    let session = world.cgroup().unwrap().join("s-9-9");
    assert!(session.join("v-0-1").exists() && session.join("v-1-1").exists());
    world.containment.kill(&first.scope);
    first.empty();
    assert!(!session.join("v-0-1").exists() && exists(second.launched.pid));
    // A session that is not empty is not removed.
    world.containment.release_session("9-9".into());
    world.containment.kill(&second.scope);
    second.empty();
    world.containment.release_session("9-9".into());
    world.report(&second.scope);
    assert!(!session.exists());
    world.end();
}

fn kill_file(kind: ContainmentKind) {
    use std::io::Write as _;
    let world = World::start(kind);
    let server = world.launch(sh("(setsid sleep 1000 &); echo up; exec sleep 1000"));
    server.read_until("up");
    let ask = |scope| {
        let (told, file) = std::sync::mpsc::channel();
        world.containment.kill_file(scope, Box::new(move |file| told.send(file).unwrap()));
        file.recv_timeout(crate::world::BUDGET).unwrap()
    };
    std::fs::File::from(ask(&server.scope).unwrap()).write_all(b"1").unwrap();
    server.empty();
    assert!(ask(&server.scope).is_none());
    world.end();
}
