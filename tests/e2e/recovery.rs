//! G36, G1, G4: what a killed daemon has left although its guardian or its keepers were killed too, and the daemon that comes next.
//!
//! Processes that outlive a kill are frozen by the version-1 freezer; where a machine has none, the tests that need it are left out.
use crate::frozen::Freezer;
use crate::support::{assert_closed, close, main_pid, on_both, open, open_params, polite, python, used};
use mcpvisor_testkit::{
    Containment, Daemon, SOON, Scene, Setup, Signal, ends_within, eventually, procfs, send_signal,
};
use serde_json::json;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The children of a daemon that would clean up after it: its guardian, its keepers.
pub(crate) fn helpers(daemon: &Daemon) -> Vec<u32> {
    let is_helper = |pid: &u32| {
        let command = procfs::command(*pid);
        command.ends_with(" keeper") || command.contains(" guardian ")
    };
    let child = |pid: &u32| procfs::stat(*pid).is_some_and(|stat| stat.ppid == daemon.pid());
    procfs::pids().into_iter().filter(child).filter(is_helper).collect()
}

/// Kills the daemon and whoever would clean up after it.
pub(crate) fn crash(daemon: &mut Daemon) {
    eventually("the daemon's helpers", SOON, || !helpers(daemon).is_empty());
    // So that it replaces none.
    daemon.process().signal(Signal::STOP);
    for pid in helpers(daemon) {
        send_signal(pid, Signal::KILL);
    }
    daemon.process().signal(Signal::KILL);
    daemon.process().wait(SOON);
}

/// The folder in which a daemon notes its sessions.
fn notes(daemon: &Daemon) -> PathBuf {
    let mut path = daemon.socket().as_os_str().to_owned();
    path.push(".sessions");
    PathBuf::from(path)
}

/// The keys of the sessions that are listed.
fn keys(daemon: &Daemon) -> Vec<String> {
    let listed = daemon.cli(&["list"]).ok();
    let sessions = listed["sessions"].as_array().expect("a list");
    sessions.iter().filter_map(|session| session["key"].as_str().map(str::to_owned)).collect()
}

fn next(scene: &Arc<Scene>, setup: &Setup, daemon: &Daemon) -> Daemon {
    Daemon::start_in(scene, setup, daemon.socket(), &format!("next-{}", daemon.pid()))
}

/// A setup in which the kill takes so long before it counts as failed.
fn patient(containment: Containment, kill_wait: &str) -> Setup {
    Setup::on(containment).allow_error("session is quarantined").config(&format!(
        "[timeouts]\nstdin_grace = \"200ms\"\nterm_grace = \"200ms\"\nkill_wait = \"{kill_wait}\""
    ))
}

/// By whose word nothing is left of what a former daemon had.
fn proof(containment: Containment) -> &'static str {
    match containment {
        Containment::Cgroup => "cgroup",
        // The keeper is dead: a search has found nothing.
        Containment::Keeper => "none",
    }
}

on_both! {
    /// The next daemon serves at once, but for the key of what is left: an open of that key waits for its end, and gets a later
    /// generation. Negative control: a daemon that took nothing over had no such session to show.
    g36_g1_a_key_waits_for_what_a_former_daemon_left = |scene, containment| {
        let Some(freezer) = Freezer::create(&format!("g36w-{containment}")) else { return };
        let setup = patient(containment, "60s");
        let mut daemon = Daemon::start(scene, &setup);
        for _ in 0..2 {
            open(&daemon, scene, "before", &polite(), &[]);
            close(&daemon, "before");
        }
        let session = open(&daemon, scene, "k", &polite(), &[]);
        let generation = session["generation"].as_u64().expect("a number");
        let pid = main_pid(&session);
        open(&daemon, scene, "other", &polite(), &[]);
        freezer.freeze(pid);
        crash(&mut daemon);
        let next = next(scene, &setup, &daemon);
        assert!(procfs::is_alive(pid), "it is served before that has ended");
        let shown = next.cli(&["show", "k"]).ok();
        assert_eq!((&shown["state"], &shown["generation"]), (&json!("stopping"), &json!(generation)), "{shown:#}");
        assert_eq!(shown["servers"][0]["name"], session["servers"][0]["name"], "{shown:#}");
        assert_eq!(shown["containment"], containment.to_string(), "{shown:#}");
        // On a loaded machine the others may still be looked for.
        eventually("what has ended is not listed", SOON, || keys(&next) == ["k"]);
        assert_eq!(next.status()["sessions"]["dying"], 1);
        // Another key, one that was left and has ended, is free.
        open(&next, scene, "other", &polite(), &[]);
        close(&next, "other");
        let connection = next.connect();
        let parked = connection.send("session/open", &open_params(scene, "k", &polite(), &[]));
        let closing = next.connect();
        let closed = closing.send("session/close", &json!({"key": "k", "generation": generation}));
        let parked = parked.wait_within(Duration::from_millis(500)).expect_err("it waits for the key");
        let closed = closed.wait_within(Duration::ZERO).expect_err("it waits for the end");
        assert!(procfs::is_alive(pid));
        freezer.thaw();
        let closed = closed.wait(SOON).expect("its end is told");
        assert!(!procfs::is_alive(pid), "it was told after the end: {closed:#}");
        let opened = parked.wait(SOON).expect("the key is free");
        assert!(!procfs::is_alive(pid), "it was opened after that had ended");
        assert!(opened["generation"].as_u64().is_some_and(|new| new > generation), "{opened:#}");
        close(&next, "k");
        // What became of the one that was left is remembered as of any other.
        let old = next.cli(&["wait", &format!("k@{generation}")]).ok();
        assert_eq!((&old["state"], &old["certificate"]["reason"]), (&json!("failed"), &json!("daemon_lost")), "{old:#}");
        assert_eq!(old["certificate"]["proof"], proof(containment), "{old:#}");
        let server = &old["certificate"]["servers"][0];
        assert_eq!(server["stage"], "sigkill", "{old:#}");
        assert!(server["duration_ms"].as_f64() > Some(0.0), "{old:#}");
        let told = &server["processes"][0];
        assert_eq!((&told["pid"], &told["ended_by"]), (&json!(pid), &json!("sigkill")), "{old:#}");
        drop((freezer, connection, closing));
        next.finish();
        assert!(!notes(&daemon).exists(), "nothing is noted any more");
    };

    /// What does not end in time is quarantined like any other: visible, counted, its key refused, a kill is tried again on demand. The
    /// daemon's end leaves it to the next one. Negative control: with a daemon that took nothing over, the wait for the quarantine
    /// was in vain.
    g36_g4_what_a_former_daemon_left_is_quarantined = |scene, containment| {
        let Some(freezer) = Freezer::create(&format!("g36q-{containment}")) else { return };
        let setup = patient(containment, "300ms");
        let mut daemon = Daemon::start(scene, &setup);
        let pid = main_pid(&open(&daemon, scene, "k", &polite(), &[]));
        freezer.freeze(pid);
        crash(&mut daemon);
        let mut second = next(scene, &setup, &daemon);
        eventually("the quarantine", SOON, || second.cli(&["show", "k"]).json()["state"] == "quarantined");
        assert_eq!(used(&second), 1);
        assert_eq!(second.status()["sessions"]["quarantined"], 1);
        let refused = second.command(scene, &["open", "k", "--"]).args(polite()).output().fails(8);
        assert_eq!(refused["kind"], "quarantined", "{refused:#}");
        let killed = second.cli(&["kill", "k"]);
        assert_eq!(killed.status, 8, "{killed:?}");
        let told = &killed.json()["results"][0];
        assert_eq!(told["remaining"][0]["pid"], pid, "{told:#}");
        assert!(told["remaining"][0]["command"].as_str().is_some_and(|text| text.contains("demo-server")), "{told:#}");
        assert_eq!(second.cli(&["wait", "k", "--timeout", "200ms"]).status, 3);
        // It outlives this daemon too, which says so.
        second.process().signal(Signal::TERM);
        assert_eq!(second.process().wait(SOON).code(), Some(8));
        let third = Daemon::start_in(scene, &setup, daemon.socket(), "third");
        assert!(procfs::is_alive(pid));
        let blocked = third.cli(&["show", "k"]).ok();
        assert_eq!(blocked["generation"], 1, "{blocked:#}");
        freezer.thaw();
        let waited = third.cli(&["wait", "k", "--timeout", "20s"]).ok();
        assert_eq!(waited["certificate"]["outcome"], "closed", "{waited:#}");
        assert!(!procfs::exists(pid) || !procfs::is_alive(pid));
        open(&third, scene, "k", &polite(), &[]);
        assert_closed(&close(&third, "k"), containment);
        drop(freezer);
        third.finish();
        assert!(!notes(&daemon).exists(), "nothing is noted any more");
    };

    /// What can be killed is gone when the next daemon serves, or soon after, and its key is not kept from anyone for longer.
    /// Negative control: without the search, on keepers, the key was served while the escapee lived.
    g36_escapees_that_were_left_are_swept = |scene, containment| {
        let setup = Setup::on(containment).quick();
        let mut daemon = Daemon::start(scene, &setup);
        open(&daemon, scene, "k", &python("03-double-fork-daemon"), &[]);
        let escapee = scene.noted().into_iter().find(|(role, _)| role != "server").expect("it has a helper").1;
        crash(&mut daemon);
        assert!(procfs::is_alive(escapee), "nobody was there to kill it");
        let next = next(scene, &setup, &daemon);
        let session = open(&next, scene, "k", &polite(), &[]);
        assert!(!procfs::is_alive(escapee), "the key was served while its old generation lived: {session:#}");
        close(&next, "k");
        next.finish();
    };

    /// Whoever still lives of those that clean up is left to do so: a process that has wiped its environment, and which nothing but
    /// its keeper or its cgroup knows of, blocks its key as well. Negative control: where the keeper was killed like the others, the
    /// key was free while the process lived.
    g36_a_wiped_environment_hides_nobody = |scene, containment| {
        let Some(freezer) = Freezer::create(&format!("g36e-{containment}")) else { return };
        let setup = patient(containment, "60s");
        let mut daemon = Daemon::start(scene, &setup);
        let script = "env -i sleep 300 >/dev/null 2>&1 & exec \"$@\"";
        let command: Vec<String> =
            ["sh", "-c", script, "sh"].map(str::to_owned).into_iter().chain(polite()).collect();
        let main = main_pid(&open(&daemon, scene, "k", &command, &[]));
        let child = || procfs::children(main).into_iter().find(|pid| procfs::command(*pid).starts_with("sleep"));
        let pid = mcpvisor_testkit::until(SOON, child).expect("it has a child");
        assert_eq!(procfs::environment(pid), Vec::<String>::new());
        freezer.freeze(pid);
        daemon.process().signal(Signal::KILL);
        daemon.process().wait(SOON);
        let next = next(scene, &setup, &daemon);
        let connection = next.connect();
        let parked = connection.send("session/open", &open_params(scene, "k", &polite(), &[]));
        // Longer than those that clean up, or the next daemon, might take it for gone.
        let parked = parked.wait_within(Duration::from_secs(4)).expect_err("it waits for the key");
        assert!(procfs::is_alive(pid));
        freezer.thaw();
        parked.wait(SOON).expect("the key is free");
        assert!(!procfs::is_alive(pid), "it was opened after that had ended");
        close(&next, "k");
        drop((freezer, connection));
        next.finish();
    };

    /// A note without a process is removed, and one that can't be read hides nothing: the session is shown under a name that is
    /// made up, counted, and ended. Negative control: where notes that are not understood were passed over, nothing was listed.
    g36_notes_that_mean_nothing = |scene, containment| {
        let Some(freezer) = Freezer::create(&format!("g36n-{containment}")) else { return };
        let setup = patient(containment, "60s").allow_error("is not understood").allow_error("can't be read");
        let mut daemon = Daemon::start(scene, &setup);
        let mut pids = Vec::new();
        for key in ["torn", "newer"] {
            pids.push(main_pid(&open(&daemon, scene, key, &polite(), &[])));
        }
        open(&daemon, scene, "gone", &polite(), &[]);
        let folder = notes(&daemon).join(daemon.instance());
        let uid = rustix_uid();
        let note = |generation: u32| folder.join(format!("s-{uid}-{generation}"));
        assert!((1..=3).all(|generation| note(generation).is_file()), "each session is noted");
        for pid in &pids {
            freezer.freeze(*pid);
        }
        crash(&mut daemon);
        std::fs::write(note(1), b"{\"version\":1,\"key\":\"to").expect("a note can be torn");
        std::fs::write(note(2), b"{\"version\":99,\"key\":\"newer\"}").expect("a note can be of another version");
        std::fs::write(folder.join("s-0-77"), b"{\"version\":1,\"key\":\"never\"}").expect("a note without a process");
        let next = next(scene, &setup, &daemon);
        let unknown = |generation: u32| format!("unknown:{}:{uid}-{generation}", daemon.instance());
        eventually("those that are left are listed alone", SOON, || keys(&next) == [unknown(1), unknown(2)]);
        assert_eq!(used(&next), 2);
        let opened = open(&next, scene, "gone", &polite(), &[]);
        assert!(opened["generation"].as_u64().is_some_and(|new| new > 2), "{opened:#}");
        close(&next, "gone");
        freezer.thaw();
        for generation in 1..=2 {
            let waited = next.cli(&["wait", &unknown(generation), "--timeout", "20s"]).ok();
            assert_eq!(waited["certificate"]["outcome"], "closed", "{waited:#}");
        }
        assert!(pids.iter().all(|pid| !procfs::is_alive(*pid)));
        drop(freezer);
        next.finish();
        assert!(!notes(&daemon).exists());
    };

    /// Nobody else is signalled: neither a process that has the number of one that was left, as process and as group, nor one with a
    /// marker of another instance, nor the sessions of a daemon that lives. What carries the dead instance's marker is. Negative
    /// control: where the beginning of an instance's name was enough, those with a longer and a shorter one were killed.
    g36_strangers_are_left_alone = |scene, containment| {
        let setup = Setup::on(containment).quick();
        let mut daemon = Daemon::start(scene, &setup);
        let mut living = Daemon::start(scene, &setup);
        let main = main_pid(&open(&daemon, scene, "k", &python("03-double-fork-daemon"), &[]));
        let escapee = scene.noted().into_iter().find(|(role, _)| role != "server").expect("it has a helper").1;
        let neighbour = main_pid(&open(&living, scene, "k", &polite(), &[]));
        crash(&mut daemon);
        assert!(ends_within(main, SOON), "it dies with its parent");
        // The orphan has come to the test, which reaps what it sees when it looks for leaks.
        eventually("its number is free", SOON, || {
            let _ = living.leaks(Duration::ZERO);
            !procfs::exists(main)
        });
        let instance = daemon.instance().to_owned();
        let marked = |marker: &str| {
            scene.command("sleep").arg("300").env("MCPVISOR_SCOPE", marker).spawn()
        };
        let mut strangers = vec![
            ("the marker of another instance", marked("ffffffffffffffff/0-1/0-1")),
            ("a longer instance", marked(&format!("{instance}0/0-1/0-1"))),
            ("a shorter instance", marked(&format!("{}/0-1/0-1", &instance[..15]))),
            ("the instance elsewhere in the marker", marked(&format!("x/{instance}/0-1"))),
            ("no scope", marked(&format!("{instance}/"))),
            ("the instance in another variable", scene.command("sleep").arg("300").env("MCPVISOR_SCOPES", format!("{instance}/0-1/0-1")).spawn()),
        ];
        if let Some(process) = with_number(scene, main) {
            strangers.push(("a number that was used before", process));
        }
        let mut caught = marked(&format!("{instance}/0-99/0-1"));
        for (what, process) in &mut strangers {
            // From here on the shell has become the program, in its own environment.
            eventually(&format!("the stranger with {what}"), SOON, || {
                assert!(!process.has_ended(), "it has ended: {what}");
                procfs::command(process.pid()).starts_with("sleep")
            });
        }
        let next = next(scene, &setup, &daemon);
        assert!(ends_within(escapee, SOON), "the sweep has been there");
        caught.wait(SOON);
        open(&next, scene, "k", &polite(), &[]);
        close(&next, "k");
        for (what, process) in &mut strangers {
            assert!(!process.has_ended(), "it was killed: {what}");
        }
        assert!(procfs::is_alive(neighbour), "another daemon's session was killed");
        close(&living, "k");
        drop(strangers);
        // One after the other: each daemon's helpers would be leaks of the other one.
        living.process().signal(Signal::TERM);
        assert_eq!(living.process().wait(SOON).code(), Some(0));
        next.finish();
    };
}

fn rustix_uid() -> u32 {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::metadata("/proc/self").expect("a process has a folder").uid()
}

/// A process with this number, which leads a process group of the same number; None where the kernel does not let us choose.
fn with_number(scene: &Scene, pid: u32) -> Option<mcpvisor_testkit::Process> {
    const CHOSEN: &str = "/proc/sys/kernel/ns_last_pid";
    for _ in 0..200 {
        std::fs::write(CHOSEN, (pid - 1).to_string()).ok()?;
        let process = scene.command("setsid").args(["sleep", "300"]).spawn();
        if process.pid() == pid {
            eventually("its own group", SOON, || procfs::command(pid).starts_with("sleep"));
            return Some(process);
        }
        // Somebody else was faster; this one ends here.
    }
    None
}

/// The guardian on the real daemon: in no scope, small, mended when it dies, and then still there when the daemon is killed.
/// Negative control: without a guardian the escapee outlived its daemon by more than two seconds.
#[test]
fn g36_the_guardian_is_mended_and_guards() {
    crate::support::play_on(Containment::Cgroup, |scene, containment| {
        let mut daemon = Daemon::start(scene, &Setup::on(containment).quick());
        open(&daemon, scene, "k", &python("03-double-fork-daemon"), &[]);
        let escapee =
            scene.noted().into_iter().find(|(role, _)| role != "server").expect("it has a helper").1;
        let mut last = 0;
        for _ in 0..2 {
            eventually("a guardian", SOON, || helpers(&daemon).iter().any(|pid| *pid != last));
            last = helpers(&daemon)[0];
            send_signal(last, Signal::KILL);
        }
        eventually("another guardian", SOON, || helpers(&daemon).iter().any(|pid| *pid != last));
        let guardian = helpers(&daemon)[0];
        let own = |pid| procfs::cgroup(pid).expect("a process is in a cgroup");
        assert_eq!(own(guardian), own(daemon.pid()));
        assert!(!own(guardian).contains("/s-"), "{}", own(guardian));
        assert!(procfs::environment(guardian).iter().all(|line| !line.starts_with("MCPVISOR_SCOPE=")));
        // What it costs, once it waits.
        eventually("its wait", SOON, || procfs::stat(guardian).is_some_and(|stat| stat.state == 'S'));
        let private = private_kilobytes(guardian);
        assert!(private < 1024, "{private} kB of private memory");
        assert!(procfs::is_alive(escapee), "the guardian's end has cost nobody anything");
        daemon.process().signal(Signal::KILL);
        assert!(ends_within(escapee, Duration::from_secs(2)), "it outlives the daemon by two seconds");
        assert!(ends_within(guardian, SOON), "a guardian ends when it has done its work");
        daemon.process().wait(SOON);
        let next = next(scene, &Setup::on(containment).quick(), &daemon);
        eventually("nothing is left", SOON, || used(&next) == 0);
        next.finish();
    });
}

/// A server that runs as root may move its processes out of their cgroup. Both the guardian and the next daemon find them by their
/// marker. Negative control: without the search it outlived its daemon by more than two seconds.
#[test]
fn g36_a_process_that_has_left_its_cgroup_is_found() {
    crate::support::play_on(Containment::Cgroup, |scene, containment| {
        let setup = Setup::on(containment).quick();
        let mount = procfs::cgroup_mount().expect("there are cgroups");
        let stray = |daemon: &Daemon, key: &str| {
            let known = scene.noted().len();
            open(daemon, scene, key, &python("03-double-fork-daemon"), &[]);
            let noted = scene.noted().split_off(known);
            let pid = noted.into_iter().find(|(role, _)| role != "server").expect("it has a helper").1;
            let own = procfs::cgroup(daemon.pid()).expect("it is in a cgroup");
            let procs = mount.join(own.trim_start_matches('/')).join("cgroup.procs");
            std::fs::write(procs, pid.to_string()).expect("root may move it");
            assert_eq!(procfs::cgroup(pid), Some(own));
            pid
        };
        let mut daemon = Daemon::start(scene, &setup);
        let pid = stray(&daemon, "k");
        daemon.process().signal(Signal::KILL);
        assert!(ends_within(pid, Duration::from_secs(2)), "its daemon's guardian has not found it");
        daemon.process().wait(SOON);
        let mut second = next(scene, &setup, &daemon);
        let pid = stray(&second, "k");
        crash(&mut second);
        assert!(procfs::is_alive(pid), "nobody was there to kill it");
        let third = Daemon::start_in(scene, &setup, daemon.socket(), "third");
        open(&third, scene, "k", &polite(), &[]);
        assert!(!procfs::is_alive(pid), "the key was served while its old generation lived");
        close(&third, "k");
        third.finish();
    });
}

/// The memory that would be free without this process.
fn private_kilobytes(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).expect("the kernel tells it");
    let fields = text.lines().filter(|line| line.starts_with("Private_"));
    fields
        .map(|line| line.split_whitespace().nth(1).and_then(|number| number.parse::<u64>().ok()).expect("kB"))
        .sum()
}

/// A private daemon writes nothing down.
#[test]
fn a_private_daemon_notes_nothing() {
    mcpvisor_testkit::scene(|scene| {
        let result = scene
            .mcpvisor(&["run", "--", "sh", "-c", "ls -R \"$XDG_RUNTIME_DIR\" >&2; cat"])
            .input("")
            .output();
        assert_eq!(result.status, 0, "{result:?}");
        let run = scene.path("run");
        let there: Vec<_> = std::fs::read_dir(&run).expect("the scene's folder").flatten().collect();
        assert!(there.is_empty(), "{there:?}");
        assert!(!result.stderr.contains("sessions"), "{}", result.stderr);
    });
}
