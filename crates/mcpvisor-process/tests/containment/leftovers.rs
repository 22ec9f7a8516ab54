//! G36: what a daemon notes of its sessions, and what the next one makes of it.
//!
//! The daemons are contained by another one, as in `guarding`, and play by these roles:
//!
//! - `noting STATE PROGRAM`: notes a session, launches the program in it, and waits to be killed;
//! - `finding STATE`: tells what was left, and when it is gone.
use crate::guarding::pid;
use crate::hanging::Dead;
use crate::harness::Named;
use crate::keepers::{ESCAPEE, signal};
use crate::world::{Server, World, exists, numbers, program, sh};
use mcpvisor_process::{ContainmentKind, LaunchSpec};
use rustix::process::Signal;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::time::Duration;

pub(crate) const TESTS: &[Named] = &[
    ("g36_what_was_left_is_told_until_it_is_gone", g36_what_was_left_is_told_until_it_is_gone),
    ("g36_a_daemon_that_lives_has_left_nothing", g36_a_daemon_that_lives_has_left_nothing),
    ("g36_an_exec_that_hangs_is_found", g36_an_exec_that_hangs_is_found),
];

fn kind() -> ContainmentKind {
    match std::env::var("KIND").as_deref() {
        Ok("cgroup") => ContainmentKind::Cgroup,
        _ => ContainmentKind::Keeper,
    }
}

pub(crate) fn play_noting() -> ! {
    let mut arguments = std::env::args().skip(3);
    let state = PathBuf::from(arguments.next().unwrap());
    let script = arguments.next().unwrap();
    let world = World::start_in(kind(), Some(state));
    let spec = LaunchSpec { note: Some("whose it is".into()), ..program("/bin/sh", &["-c", &script]) };
    let launching = world.begin(spec);
    println!("daemon {}\nup", std::process::id());
    // The program may hang in the kernel before it runs.
    let server = launching.ready().unwrap();
    println!("{}", server.read_until("helper"));
    loop {
        std::thread::park();
    }
}

pub(crate) fn play_finding() -> ! {
    let state = PathBuf::from(std::env::args().nth(3).unwrap());
    let world = World::start_in(kind(), Some(state));
    let (gone, all_gone) = channel();
    let left = world.containment.left().to_vec();
    for left in &left {
        let note = left.note.as_deref().unwrap_or("(none)");
        let kind = if left.containment == ContainmentKind::Cgroup { "cgroup" } else { "keeper" };
        println!("left {} {kind} {note}", left.id.session);
        let gone = gone.clone();
        let session = left.id.session.clone();
        let told = Box::new(move |reports: mcpvisor_process::SessionReports| {
            let proven = reports.iter().all(|(_, report)| report.proven);
            println!("gone {session} proven={proven}");
            gone.send(()).unwrap();
        });
        world.containment.kill_left(&left.id, told);
    }
    println!("found {}", left.len());
    for _ in &left {
        all_gone.recv().unwrap();
    }
    world.end();
    println!("end of the search");
    std::process::exit(0)
}

/// A folder for notes, removed at the end.
struct State(PathBuf);

impl State {
    fn new() -> Self {
        Self(std::env::temp_dir().join(format!("mcpvisor-state-{}", std::process::id())))
    }

    fn folders(&self) -> usize {
        std::fs::read_dir(&self.0).map_or(0, Iterator::count)
    }
}

impl Drop for State {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A script in which `$ME role` is such a daemon.
fn script(world: &World, text: &str) -> Server {
    let me = std::env::current_exe().unwrap();
    let kind = if world.kind == ContainmentKind::Cgroup { "cgroup" } else { "keeper" };
    world.launch(sh(&format!("export KIND={kind}; ME='{} role'; {text}", me.display())))
}

/// Kills a daemon and whoever would clean up after it.
fn crash(daemon: u32) {
    // So that it replaces none.
    signal(daemon, Signal::STOP);
    for helper in children(daemon) {
        let command = std::fs::read_to_string(format!("/proc/{helper}/cmdline")).unwrap_or_default();
        if command.contains("\0keeper") || command.contains("\0guardian") {
            signal(helper, Signal::KILL);
        }
    }
    signal(daemon, Signal::KILL);
}

fn children(pid: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let lists = tasks.filter_map(|task| std::fs::read_to_string(task.unwrap().path().join("children")).ok());
    lists
        .flat_map(|list| list.split_whitespace().map(|pid| pid.parse().unwrap()).collect::<Vec<_>>())
        .collect()
}

fn quoted(path: &Path) -> String {
    format!("'{}'", path.display())
}

fn g36_what_was_left_is_told_until_it_is_gone(kind: ContainmentKind) {
    let world = World::start(kind);
    let state = State::new();
    let place = quoted(&state.0);
    let daemons = script(
        &world,
        &format!(
            "ESCAPEE=$(cat <<'END'\n{ESCAPEE}\nEND\n); $ME noting {place} \"$ESCAPEE\"; echo next; exec $ME finding {place}"
        ),
    );
    let text = daemons.read_until("helper");
    let (daemon, helper) = (pid(&text, "daemon"), pid(&text, "helper"));
    crash(daemon);
    let text = daemons.read_until("end of the search");
    assert!(text.contains("next"), "{text}");
    // Fast as the kill is, it may be over at the first look.
    let (word, proven) = match kind {
        ContainmentKind::Cgroup => ("cgroup", true),
        ContainmentKind::Keeper => ("keeper", false),
    };
    if !text.contains("found 0") {
        assert!(text.contains(&format!("left 0-0 {word} whose it is")), "{text}");
        assert!(text.contains(&format!("gone 0-0 proven={proven}")), "{text}");
    }
    assert!(!exists(helper), "told to be gone while it is not");
    assert_eq!(state.folders(), 0, "nothing is noted any more");
    daemons.empty();
    world.end();
}

/// The next daemon of the same socket may come before the first is gone, where nothing but systemd keeps them apart. Negative control:
/// without a look at the lock it was taken for dead, and its server was killed.
fn g36_a_daemon_that_lives_has_left_nothing(kind: ContainmentKind) {
    let world = World::start(kind);
    let state = State::new();
    let place = quoted(&state.0);
    let daemons = script(
        &world,
        &format!(
            "$ME noting {place} 'echo helper $$; exec sleep 1000' & read line; $ME finding {place}; wait"
        ),
    );
    let text = daemons.read_until("helper");
    let (daemon, server) = (pid(&text, "daemon"), pid(&text, "helper"));
    rustix::io::write(daemons.launched.stdin.as_ref().unwrap(), b"\n").unwrap();
    let text = daemons.read_until("end of the search");
    assert!(text.contains("found 0"), "{text}");
    assert!(exists(server) && exists(daemon), "it was taken for dead");
    assert_eq!(state.folders(), 1);
    world.containment.kill(&daemons.scope);
    daemons.empty();
    world.end();
}

/// A program that hangs in exec can't be killed, and is found all the same. Negative control: where a session was taken to be gone
/// without asking the kernel, it was told so while the program hung.
fn g36_an_exec_that_hangs_is_found(kind: ContainmentKind) {
    let Some(mut dead) = Dead::mount() else { return };
    dead.greet();
    let program = dead.script();
    let world = World::start(kind);
    let state = State::new();
    let place = quoted(&state.0);
    let daemons = script(
        &world,
        &format!("$ME noting {place} 'echo helper; exec {}'; exec $ME finding {place}", program.display()),
    );
    let daemon = pid(&daemons.read_until("up"), "daemon");
    dead.swallow();
    crash(daemon);
    let text = daemons.read_until("found");
    let count = numbers(&format!("{text}\n"), "found");
    assert_eq!(count, [1], "{text}");
    // It is not told to be gone for as long as it hangs.
    let early = daemons.facts.recv_timeout(Duration::from_millis(800));
    assert!(early.is_err(), "the search has ended: {early:?}");
    dead.abort();
    let text = daemons.read_until("end of the search");
    assert!(text.contains("gone 0-0"), "{text}");
    daemons.empty();
    drop(dead);
    world.end();
}
