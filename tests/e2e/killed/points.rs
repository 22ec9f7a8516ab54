//! Where the daemon is killed: at the n-th time that one of its threads makes a system call, or at a moment.
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use std::time::Duration;

/// One place or moment.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Point {
    /// A thread of the daemon makes this call for the n-th time.
    Call { name: String, nth: u32 },
    /// So long after a session of it has its first process, under load.
    Moment(Duration),
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Call { name, nth } => write!(f, "{name}#{nth}"),
            Self::Moment(span) => write!(f, "{} µs after the first session", span.as_micros()),
        }
    }
}

impl Point {
    /// The command under which the daemon is killed there. `strace -D` becomes the daemon, follows its threads, and lets go of
    /// everything that executes another program.
    pub(super) fn tracer(&self, out: &Path) -> Vec<String> {
        let Self::Call { name, nth } = self else { return Vec::new() };
        let trace = format!("trace={name}");
        let inject = format!("inject={name}:signal=SIGKILL:when={nth}");
        strace(out, &["-e", &trace, "-e", &inject])
    }

    /// The next place to try where this one was not come to: how often a call is made depends on the machine's load.
    pub(super) fn nearer(&self) -> Option<Self> {
        match self {
            Self::Call { name, nth } if *nth > 1 => {
                Some(Self::Call { name: name.clone(), nth: (nth * 2 / 3).max(1) })
            }
            _ => None,
        }
    }
}

/// The tracer's words before those of the daemon.
pub(super) fn strace(out: &Path, more: &[&str]) -> Vec<String> {
    let out = out.to_string_lossy();
    let words = ["strace", "-D", "-f", "-b", "execve", "-qq", "-o", &out];
    words.iter().chain(more).map(|word| (*word).to_owned()).collect()
}

/// How often each call was made at most by one of these threads, read from what strace wrote.
pub(super) fn counts(trace: &str, threads: &BTreeSet<u32>) -> BTreeMap<String, u32> {
    let mut by_thread: BTreeMap<(u32, &str), u32> = BTreeMap::new();
    for line in trace.lines() {
        let Some((thread, rest)) = line.split_once(' ') else { continue };
        let Ok(thread) = thread.parse::<u32>() else { continue };
        let Some((name, _)) = rest.trim_start().split_once('(') else { continue };
        let is_name =
            !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        // The daemon executes no other program; its children do.
        if is_name && name != "execve" && threads.contains(&thread) {
            *by_thread.entry((thread, name)).or_default() += 1;
        }
    }
    let mut most: BTreeMap<String, u32> = BTreeMap::new();
    for ((_, name), count) in by_thread {
        let known = most.entry(name.to_owned()).or_default();
        *known = (*known).max(count);
    }
    most
}

/// So many points: the first of each call, and the others spread evenly over all that there are; where there are fewer, each
/// comes several times.
pub(super) fn spread(counts: &BTreeMap<String, u32>, wanted: usize) -> Vec<Point> {
    let point = |name: &String, nth: u32| Point::Call { name: name.clone(), nth };
    let mut points: Vec<Point> = counts.keys().map(|name| point(name, 1)).collect();
    let rest: Vec<Point> =
        counts.iter().flat_map(|(name, count)| (2..=*count).map(move |nth| point(name, nth))).collect();
    if wanted < points.len() {
        // Few: every so-manieth of all.
        points.extend(rest);
        let all = points.len();
        return (0..wanted).map(|n| points[(2 * n + 1) * all / (2 * wanted)].clone()).collect();
    }
    let left = wanted - points.len();
    let pool = if rest.is_empty() { points.clone() } else { rest };
    points.extend((0..left).map(|n| pool[n * pool.len() / left.max(1)].clone()));
    points
}

#[test]
fn points_are_spread_over_all_calls() {
    let trace = "10 read(3, \"x(\", 1) = 1\n11 read(3 <unfinished ...>\n10 read(3) = 0\n11 <... read resumed>) = 0\n\
                 12 kill(1) = 0\n10 close(3) = 0\n10 +++ exited with 0 +++\n";
    let counts = counts(trace, &BTreeSet::from([10, 11]));
    assert_eq!(counts, BTreeMap::from([("close".to_owned(), 1), ("read".to_owned(), 2)]));
    let call = |name: &str, nth| Point::Call { name: name.to_owned(), nth };
    assert_eq!(spread(&counts, 3), [call("close", 1), call("read", 1), call("read", 2)]);
    assert_eq!(spread(&counts, 5)[2..], [call("read", 2), call("read", 2), call("read", 2)]);
    assert_eq!(spread(&counts, 1), [call("read", 1)]);
}
