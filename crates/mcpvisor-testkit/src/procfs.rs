//! What /proc tells about processes, from the outside.
use std::fs;
use std::path::{Path, PathBuf};

/// A process that can't be mistaken for a later one with the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity {
    /// Its number.
    pub pid: u32,
    /// When it was started, in clock ticks since boot.
    pub started: u64,
}

/// Some fields of /proc/PID/stat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stat {
    /// Which process it is.
    pub id: Identity,
    /// Its parent.
    pub ppid: u32,
    /// The kernel's letter for its state, `Z` for a zombie.
    pub state: char,
    /// The kernel's short name for it.
    pub name: String,
}

impl Stat {
    /// Whether it has ended and waits to be reaped.
    #[must_use]
    pub fn is_zombie(&self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }
}

/// All process numbers at this moment.
#[must_use]
pub fn pids() -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// The process's state; None where there is no such process.
#[must_use]
pub fn stat(pid: u32) -> Option<Stat> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name is in parentheses and may hold anything, closing parentheses too.
    let (open, close) = (text.find('(')?, text.rfind(')')?);
    let name = text.get(open + 1..close)?.to_owned();
    let fields: Vec<&str> = text.get(close + 2..)?.split(' ').collect();
    Some(Stat {
        id: Identity { pid, started: fields.get(19)?.parse().ok()? },
        ppid: fields.get(1)?.parse().ok()?,
        state: fields.first()?.chars().next()?,
        name,
    })
}

/// Whether the process exists and has not ended.
#[must_use]
pub fn is_alive(pid: u32) -> bool {
    stat(pid).is_some_and(|stat| !stat.is_zombie())
}

/// Whether the process exists, as a zombie perhaps.
#[must_use]
pub fn exists(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

/// The environment that the process was started with; empty for a zombie.
#[must_use]
pub fn environment(pid: u32) -> Vec<String> {
    let bytes = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    bytes
        .split(|byte| *byte == 0)
        .filter(|v| !v.is_empty())
        .map(|v| String::from_utf8_lossy(v).into_owned())
        .collect()
}

/// The command line, words joined by spaces; the kernel's name in brackets where there is none.
#[must_use]
pub fn command(pid: u32) -> String {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words: Vec<_> =
        bytes.split(|b| *b == 0).filter(|w| !w.is_empty()).map(String::from_utf8_lossy).collect();
    if words.is_empty() {
        stat(pid).map_or_else(|| "(gone)".to_owned(), |stat| format!("[{}]", stat.name))
    } else {
        words.join(" ")
    }
}

/// The process's cgroup in the unified hierarchy. Zombies have one too.
#[must_use]
pub fn cgroup(pid: u32) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    text.lines().find_map(|line| line.strip_prefix("0::")).map(str::to_owned)
}

/// The open descriptors, as `number → target`.
#[must_use]
pub fn descriptors(pid: u32) -> Vec<(u32, String)> {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fd")) else { return Vec::new() };
    let mut all: Vec<_> = entries
        .flatten()
        .filter_map(|entry| {
            let number = entry.file_name().to_str()?.parse().ok()?;
            let target = fs::read_link(entry.path()).ok()?;
            Some((number, target.to_string_lossy().into_owned()))
        })
        .collect();
    all.sort();
    all
}

/// The children at this moment, of all its threads.
#[must_use]
pub fn children(pid: u32) -> Vec<u32> {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    threads
        .flatten()
        .filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok())
        .flat_map(|text| text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<u32>>())
        .collect()
}

/// A number of /proc/PID/status in KiB, `VmRSS` for instance.
#[must_use]
pub fn status_kib(pid: u32, field: &str) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = text.lines().find(|line| line.split(':').next() == Some(field))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// Anonymous memory in KiB: what the process has allocated and touched, without the pages of its executable.
#[must_use]
pub fn anonymous_kib(pid: u32) -> Option<u64> {
    status_kib(pid, "RssAnon")
}

/// Where the unified cgroup hierarchy is mounted. Hybrid systems mount it below the old one.
#[must_use]
pub fn cgroup_mount() -> Option<PathBuf> {
    let text = fs::read_to_string("/proc/self/mountinfo").ok()?;
    text.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let is_unified = after.split(' ').next() == Some("cgroup2");
        let mut fields = before.split(' ').skip(3);
        let (root, target) = (fields.next()?, fields.next()?);
        (is_unified && root == "/").then(|| PathBuf::from(target))
    })
}
