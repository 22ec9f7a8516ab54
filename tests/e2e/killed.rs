//! The daemon is killed with SIGKILL at places of its own code and at random moments (G1, G12, G36): nothing of its sessions
//! outlives it by two seconds, no certificate was false, and the next daemon serves the same keys.
//!
//! A place is the n-th time that one of its threads makes a certain system call: strace kills it there. The calls are
//! learned by a run of the script that nobody disturbs. `cargo xtask kill-sweep [COUNT [SEED]]` goes to more places and moments.
//!
//! How it failed when it was tried: without the guardian, on cgroups, what the wild server left outlived the daemon; without the
//! parent-death signal's and the keeper's part, on keepers.
mod points;
mod script;

use self::points::{Point, counts, spread, strace};
use self::script::{Client, Hold, Stop};
use crate::histories::outside::Outside;
use crate::histories::play::Random;
use mcpvisor_testkit::{
    Containment, Daemon, SOON, Scene, Setup, Signal, eventually, procfs, scene_within, until,
};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long anything may outlive the daemon.
const GRACE: Duration = Duration::from_secs(2);
/// Points in one scene; then the oracle looks.
const BATCH: usize = 25;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

fn setup(containment: Containment) -> Setup {
    Setup::on(containment).config(
        "[timeouts]\nstdin_grace = \"15ms\"\nterm_grace = \"15ms\"\ndrain = \"200ms\"\nstart = \"20s\"",
    )
}

/// What a run came to.
#[derive(Debug, Default)]
struct Tally {
    kills: BTreeMap<String, u64>,
    before_ready: u64,
    /// Kills while a session was open.
    with_sessions: u64,
    /// Processes that the test held.
    processes: usize,
    /// Certificates that said closed, and were true.
    closed: u64,
    /// How long after the daemon the last of its processes ended.
    slowest: Duration,
    /// Points that were not come to, and for which a nearer one was taken.
    missed: u64,
    /// Points of calls that no later run made.
    never: u64,
}

/// The threads of a process.
fn threads(pid: u32) -> BTreeSet<u32> {
    let Ok(entries) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return BTreeSet::new() };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Plays the whole script undisturbed, and counts the daemon's calls.
fn learn(containment: Containment) -> BTreeMap<String, u32> {
    let learned = Arc::new(Mutex::new(BTreeMap::new()));
    let ours = learned.clone();
    scene_within(Duration::from_secs(120), move |scene| {
        let out = scene.path("trace");
        let mut daemon = Daemon::start(scene, &setup(containment).under(&strace(&out, &[])));
        let (outside, hold) = (Outside::of(&daemon, containment), Hold::default());
        let mut client =
            Client { scene, rpc: daemon.connect(), outside: &outside, hold: &hold, open: 0, closed: 0 };
        client.whole().expect("nobody kills this one");
        assert_eq!(client.closed, 3);
        drop(client);
        let threads = threads(daemon.pid());
        daemon.process().signal(Signal::TERM);
        assert_eq!(daemon.process().wait(SOON).code(), Some(0), "it ends well");
        // The tracer is done when it has seen the end.
        let whole = || {
            let text = std::fs::read_to_string(&out).unwrap_or_default();
            text.contains("exit_group(").then_some(text)
        };
        let text = until(SOON, whole).expect("the trace comes to the end of the daemon");
        *ours.lock().unwrap_or_else(PoisonError::into_inner) = counts(&text, &threads);
    });
    let learned = learned.lock().unwrap_or_else(PoisonError::into_inner);
    assert!(learned.len() > 10, "the trace tells few calls: {learned:?}");
    learned.clone()
}

/// Kills one daemon at this point. None where it was not come to.
fn kill(
    scene: &Arc<Scene>,
    containment: Containment,
    point: &Point,
    number: usize,
    tally: &mut Tally,
) -> Option<()> {
    let dir = scene.path(&format!("k{number}"));
    std::fs::create_dir_all(&dir).expect("a folder in the scene's folder");
    let socket = dir.join("control.sock");
    let (killed, keys) = match point {
        Point::Call { .. } => (at_a_call(scene, containment, point, &socket, number, tally), ["a", "b"]),
        Point::Moment(after) => {
            at_a_moment(scene, containment, *after, &socket, number, tally);
            (true, ["load-0", "load-1"])
        }
    };
    // Whatever became of the first, the next one serves.
    let next = Daemon::start_in(scene, &setup(containment), &socket, &format!("k{number}-next"));
    let outside = Outside::of(&next, containment);
    script::serves_again(scene, &next, &outside, &keys);
    next.finish();
    killed.then_some(())
}

fn at_a_call(
    scene: &Arc<Scene>,
    containment: Containment,
    point: &Point,
    socket: &Path,
    number: usize,
    tally: &mut Tally,
) -> bool {
    let tracer = point.tracer(&scene.path(&format!("k{number}.trace")));
    let started =
        Daemon::try_start_in(scene, &setup(containment).under(&tracer), socket, &format!("k{number}"));
    let mut daemon = match started {
        Ok(daemon) => daemon,
        Err(status) => {
            assert_eq!(status.signal(), Some(9), "at {point} the daemon ended by itself: {status}");
            tally.before_ready += 1;
            return true;
        }
    };
    let hold = Hold::default();
    let Some(outside) = Outside::find(&daemon, containment) else {
        // It was killed between its greeting and this look.
        let ended = daemon.process().wait(SOON).signal() == Some(9);
        return ended && nothing_is_left(&daemon, &hold, point, tally);
    };
    let Ok(stream) = mcpvisor_testkit::Rpc::connect(socket) else {
        let ended = daemon.process().wait(SOON).signal() == Some(9);
        return ended && nothing_is_left(&daemon, &hold, point, tally);
    };
    let mut client = Client { scene, rpc: stream, outside: &outside, hold: &hold, open: 0, closed: 0 };
    let done = client.whole();
    tally.closed += client.closed;
    tally.with_sessions += u64::from(client.open > 0);
    drop(client);
    // The rest of the script is the daemon's own end. So it is where a child was killed that had not executed its program.
    match done {
        Err(Stop::HungUp) => {}
        Ok(()) => daemon.process().signal(Signal::TERM),
        Err(Stop::Refused(why)) => {
            eprintln!("{point}: refused: {why}");
            daemon.process().signal(Signal::TERM);
        }
    }
    let status = daemon.process().wait(SOON);
    nothing_is_left(&daemon, &hold, point, tally);
    if status.signal() == Some(9) {
        return true;
    }
    // 8: it says itself that it has left something, see above.
    assert!(
        matches!(status.code(), Some(0 | 8)),
        "the daemon was not killed at {point}, and ended badly: {status}"
    );
    false
}

fn at_a_moment(
    scene: &Arc<Scene>,
    containment: Containment,
    after: Duration,
    socket: &Path,
    number: usize,
    tally: &mut Tally,
) {
    let mut daemon = Daemon::start_in(scene, &setup(containment), socket, &format!("k{number}"));
    let (outside, hold) = (Outside::of(&daemon, containment), Hold::default());
    let connections: Vec<_> = (0..3).map(|_| daemon.connect()).collect();
    let mut closed = 0;
    std::thread::scope(|threads| {
        let clients: Vec<_> = connections
            .into_iter()
            .enumerate()
            .map(|(number, rpc)| {
                let (outside, hold) = (&outside, &hold);
                threads.spawn(move || {
                    let mut client = Client { scene, rpc, outside, hold, open: 0, closed: 0 };
                    client.over_and_over(number);
                    client.closed
                })
            })
            .collect();
        // The load has begun; from here the moment counts.
        eventually("the first process of a session", SOON, || hold.count() > 0);
        std::thread::sleep(after);
        tally.with_sessions += u64::from(!hold.all_living().is_empty());
        daemon.process().signal(Signal::KILL);
        assert_eq!(daemon.process().wait(SOON).signal(), Some(9), "it was killed and by nothing else");
        nothing_is_left(&daemon, &hold, &Point::Moment(after), tally);
        for client in clients {
            closed += client.join().expect("a client finds no fault");
        }
    });
    tally.closed += closed;
}

/// The daemon has just ended: what was its has ended two seconds later.
fn nothing_is_left(daemon: &Daemon, hold: &Hold, point: &Point, tally: &mut Tally) -> bool {
    let begin = Instant::now();
    let mut left = Vec::new();
    let gone = until(GRACE, || {
        left = daemon.session_processes();
        left.extend(hold.all_living());
        left.is_empty().then_some(())
    });
    let commands: Vec<String> = left.iter().map(|pid| format!("{pid} {}", procfs::command(*pid))).collect();
    assert!(gone.is_some(), "at {point}: {commands:?} outlive the daemon by two seconds");
    tally.slowest = tally.slowest.max(begin.elapsed());
    tally.processes += hold.count();
    true
}

/// Kills the daemon at all of these points.
fn sweep(containment: Containment, points: &[Point]) {
    let tally = Arc::new(Mutex::new(Tally::default()));
    let all = points.len();
    for (batch, some) in points.chunks(BATCH).enumerate() {
        let (some, ours) = (some.to_vec(), tally.clone());
        scene_within(Duration::from_secs(900), move |scene| {
            let mut tally = ours.lock().unwrap_or_else(PoisonError::into_inner);
            for (n, wanted) in some.into_iter().enumerate() {
                let mut point = wanted;
                let mut tries = 0;
                let mut never = false;
                while kill(scene, containment, &point, n * 16 + tries, &mut tally).is_none() {
                    tally.missed += 1;
                    tries += 1;
                    match point.nearer() {
                        Some(nearer) => point = nearer,
                        None => {
                            never = true;
                            break;
                        }
                    }
                }
                if never {
                    // Some calls are made in some runs only: a watch for what is over by then, for instance.
                    println!("{point} is not come to");
                    tally.never += 1;
                    continue;
                }
                let name = match &point {
                    Point::Call { name, .. } => name.clone(),
                    Point::Moment(_) => "moment".to_owned(),
                };
                *tally.kills.entry(name).or_default() += 1;
            }
        });
        let tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
        let done: u64 = tally.kills.values().sum();
        println!("{containment}: {done} of {all} kills after batch {}", batch + 1);
    }
    let tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
    let done: u64 = tally.kills.values().sum();
    println!(
        "{done} kills on {containment}: {} before it served, {} while a session was open, {} processes held, \
         {} certificates said closed, the last process ended {} ms after the daemon at most, {} points were missed, {} never come to\n{:?}",
        tally.before_ready,
        tally.with_sessions,
        tally.processes,
        tally.closed,
        tally.slowest.as_millis(),
        tally.missed,
        tally.never,
        tally.kills
    );
    let all = u64::try_from(all).expect("few");
    assert_eq!(done + tally.never, all, "each point was tried");
    assert!(tally.never <= 1 + all / 20, "{} of {all} points were never come to", tally.never);
    // Few kills may all fall to one kind of moment.
    assert!(done < 5 || tally.with_sessions > 0, "no session was ever open: {tally:?}");
    assert!(done < 15 || tally.closed > 0, "nothing was ever closed before: {tally:?}");
}

/// How many points, of which every so-manieth falls to each containment.
fn count(usual: u64, containment: Containment) -> usize {
    let all = number("MCPVISOR_KILLS");
    let share = match (all, containment) {
        (None, _) => usual,
        (Some(all), Containment::Cgroup) => all - all / 4,
        (Some(all), Containment::Keeper) => all / 4,
    };
    usize::try_from(share).expect("few")
}

fn is_possible(containment: Containment) -> bool {
    let (answer, possible) = std::sync::mpsc::channel();
    scene_within(Duration::from_secs(60), move |scene| {
        answer.send(containment.is_possible(scene)).expect("the answer is waited for");
    });
    possible.recv().expect("the scene was played")
}

fn at_calls(containment: Containment, usual: u64) {
    if !is_possible(containment) {
        return;
    }
    let calls = learn(containment);
    let there: u32 = calls.values().sum();
    println!("{containment}: {} system calls, {there} places: {calls:?}", calls.len());
    sweep(containment, &spread(&calls, count(usual, containment)));
}

fn at_moments(containment: Containment, usual: u64) {
    if !is_possible(containment) {
        return;
    }
    let seed = number("MCPVISOR_SEED").unwrap_or(1);
    println!("seed {seed}");
    let mut random = Random::new(seed);
    let moments =
        (0..count(usual, containment)).map(|_| Point::Moment(Duration::from_micros(random.below(400_000))));
    sweep(containment, &moments.collect::<Vec<_>>());
}

#[test]
fn g36_at_places_of_its_code_on_cgroups() {
    at_calls(Containment::Cgroup, 20);
}

#[test]
fn g36_at_places_of_its_code_on_keepers() {
    at_calls(Containment::Keeper, 6);
}

#[test]
fn g36_at_random_moments_on_cgroups() {
    at_moments(Containment::Cgroup, 18);
}

#[test]
fn g36_at_random_moments_on_keepers() {
    at_moments(Containment::Keeper, 6);
}
