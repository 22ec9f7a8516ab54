//! G36 on cgroups: what a daemon that is killed leaves, its guardian, and the sweep of the next start.
//!
//! The daemons that are killed here are contained by another one, so that a test that fails leaves nothing either. Their cgroups
//! lie below its scope's, since each makes its own below the one that it is in.
use crate::harness::Named;
use crate::keepers::{ESCAPEE, signal};
use crate::world::{Server, World, eventually, exists, guardian, numbers, sh, status};
use mcpvisor_process::{ContainmentKind, Rung};
use rustix::process::Signal;
use std::fs;
use std::time::{Duration, Instant};

pub(crate) const TESTS: &[Named] = &[
    ("g36_a_daemon_that_is_killed_leaves_nothing", g36_a_daemon_that_is_killed_leaves_nothing),
    ("g36_a_guardian_that_is_killed_is_replaced", g36_a_guardian_that_is_killed_is_replaced),
    ("a_guardian_is_small_and_deaf", a_guardian_is_small_and_deaf),
    ("g36_the_next_start_sweeps", g36_the_next_start_sweeps),
    ("g36_two_daemons_that_live_leave_each_other_alone", g36_two_daemons_that_live_leave_each_other_alone),
];

/// A daemon with a server and its escapee.
pub(crate) fn play_daemon() -> ! {
    let world = World::start(ContainmentKind::Cgroup);
    let server = world.launch(sh(ESCAPEE));
    let helper = numbers(&server.read_until("helper"), "helper")[0];
    eventually("the guardian", || guardian().is_some());
    println!("daemon {}\nguardian {}", std::process::id(), guardian().unwrap());
    println!("helper {helper}\nserver {}\nup", server.launched.pid);
    loop {
        std::thread::park();
    }
}

/// A script in which `$ME` is such a daemon.
fn script(world: &World, text: &str) -> Server {
    let me = std::env::current_exe().unwrap();
    world.launch(sh(&format!("ME='{} role guarded'; {text}", me.display())))
}

pub(crate) fn pid(text: &str, word: &str) -> u32 {
    numbers(text, word)[0]
}

fn all_gone(pids: &[u32]) -> bool {
    pids.iter().all(|pid| !exists(*pid))
}

/// Negative control: without the guardian the helper outlived its daemon, and the wait for its end was in vain.
fn g36_a_daemon_that_is_killed_leaves_nothing(kind: ContainmentKind) {
    let world = World::start(kind);
    let daemon = script(&world, "exec $ME");
    let text = daemon.read_until("up");
    let pids = ["helper", "server", "guardian"].map(|word| pid(&text, word));
    let begin = Instant::now();
    signal(daemon.launched.pid, Signal::KILL);
    eventually("the end of what the daemon had", || all_gone(&pids));
    assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
    let report = daemon.empty();
    assert!(report.processes.iter().all(|record| record.ended_by == Some(Rung::Itself)), "{report:?}");
    world.end();
}

fn g36_a_guardian_that_is_killed_is_replaced(kind: ContainmentKind) {
    let world = World::start(kind);
    let server = world.launch(sh("exec sleep 1000"));
    let mut last = 0;
    for _ in 0..3 {
        eventually("a guardian", || guardian().is_some_and(|pid| pid != last));
        last = guardian().unwrap();
        signal(last, Signal::KILL);
    }
    eventually("another guardian", || guardian().is_some_and(|pid| pid != last));
    assert!(exists(server.launched.pid), "nothing was lost but the guardian");
    world.containment.kill(&server.scope);
    let report = server.empty();
    assert_eq!(report.processes.len(), 1, "a guardian is in no scope: {report:?}");
    // It is dismissed and reaped: this looks for children that are left.
    world.end();
}

fn a_guardian_is_small_and_deaf(kind: ContainmentKind) {
    let world = World::start(kind);
    let server = world.launch(sh("exec sleep 1000"));
    eventually("the guardian", || guardian().is_some());
    let pid = guardian().unwrap();
    let file = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap();
    // What follows holds once it waits.
    eventually("the guardian's wait", || file("syscall").split(' ').next().is_some_and(is_poll));
    for deaf_to in [Signal::TERM, Signal::INT, Signal::HUP] {
        signal(pid, deaf_to);
    }
    assert_eq!(file("cgroup"), fs::read_to_string("/proc/self/cgroup").unwrap());
    // pid, name, state, parent, group, session.
    assert_eq!(file("stat").split(' ').nth(5), Some(pid.to_string().as_str()), "a session of its own");
    let memory = file("smaps_rollup");
    let kilobytes = |field| status(&memory, field).trim_end_matches(" kB").parse::<u32>().unwrap();
    let private = kilobytes("Private_Dirty");
    assert!(private < 1024, "{private} kB");
    let link = |fd: u32| fs::read_link(format!("/proc/{pid}/fd/{fd}")).unwrap();
    assert!(link(0).to_string_lossy().starts_with("pipe:"));
    assert_eq!((link(1), link(2)), ("/dev/null".into(), "/dev/null".into()));
    // Nobody but us can keep it from seeing our end.
    let pipe = link(0);
    let held = |pid: u32| {
        let entries = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
        entries
            .filter(|entry| fs::read_link(entry.as_ref().unwrap().path()).is_ok_and(|link| link == pipe))
            .count()
    };
    assert_eq!((held(std::process::id()), held(server.launched.pid)), (1, 0));
    assert_eq!(guardian(), Some(pid), "deaf");
    world.end();
}

/// Its number differs between architectures: poll, or ppoll where there is no poll.
fn is_poll(number: &str) -> bool {
    [libc_number::POLL, libc_number::PPOLL].contains(&number)
}

mod libc_number {
    #[cfg(target_arch = "x86_64")]
    pub(super) const POLL: &str = "7";
    #[cfg(target_arch = "x86_64")]
    pub(super) const PPOLL: &str = "271";
    #[cfg(target_arch = "aarch64")]
    pub(super) const POLL: &str = "73";
    #[cfg(target_arch = "aarch64")]
    pub(super) const PPOLL: &str = "73";
}

/// Both the daemon and its guardian are killed. Negative control: without the sweep the wait for the helper's
/// end was in vain.
fn g36_the_next_start_sweeps(kind: ContainmentKind) {
    let world = World::start(kind);
    let daemons = script(&world, "$ME; echo next; exec $ME");
    let text = daemons.read_until("up");
    let [daemon, guardian, helper] = ["daemon", "guardian", "helper"].map(|word| pid(&text, word));
    // So that it starts no other guardian.
    signal(daemon, Signal::STOP);
    signal(guardian, Signal::KILL);
    signal(daemon, Signal::KILL);
    let text = daemons.read_until("helper");
    assert!(text.contains("next"));
    eventually("the end of what the first daemon had", || !exists(helper));
    assert!(exists(pid(&text, "helper")));
    world.containment.kill(&daemons.scope);
    daemons.empty();
    world.end();
}

/// They start at the same moment, below the same cgroup. Negative control: with a lock that both can have, one swept the
/// other's server, which was never up.
fn g36_two_daemons_that_live_leave_each_other_alone(kind: ContainmentKind) {
    let world = World::start(kind);
    let daemons = script(&world, "$ME & $ME & wait");
    let mut text = String::new();
    while numbers(&text, "server").len() < 2 {
        text.push_str(&daemons.read_until("up"));
    }
    let mut pids = numbers(&text, "server");
    pids.extend(numbers(&text, "helper"));
    assert_eq!(pids.len(), 4);
    assert!(pids.iter().all(|pid| exists(*pid)));
    world.containment.kill(&daemons.scope);
    daemons.empty();
    world.end();
}
