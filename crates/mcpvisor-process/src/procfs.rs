//! What /proc tells of a process.
//!
//! Reading `cmdline` and `environ` takes the process's memory lock, which a process that hangs on a dead mount may hold for ever.
//! So the reaper's thread reads `stat`, `cgroup` and `children` only, and leaves the others to disposable threads.
use std::collections::HashMap;
use std::fs;
use std::io::{self, Read};
use std::path::Path;
use std::time::Duration;

/// The longest command line that is told, in bytes.
const COMMAND_LENGTH: usize = 256;

/// What a file of the kernel's says (/proc, cgroups). They are short, and have no size: a place that is large enough from the beginning spares the
/// many small reads of those who look for the size.
///
/// # Errors
/// Where the file can't be opened or read.
pub fn read_whole(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    contents(fs::File::open(path)?)
}

/// The same of one that is open.
pub(crate) fn contents(file: fs::File) -> io::Result<Vec<u8>> {
    let mut text = Vec::with_capacity(4096);
    // Not by the file's own way of reading all: that asks for the size first.
    file.take(u64::MAX).read_to_end(&mut text)?;
    Ok(text)
}

/// The fields of /proc/PID/stat that we use. A zombie has them too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stat {
    /// The kernel's name for the process: at most 15 bytes.
    pub(crate) name: String,
    pub(crate) state: char,
    pub(crate) ppid: u32,
    pub(crate) pgid: u32,
    pub(crate) cpu: Duration,
    pub(crate) memory_bytes: u64,
}

impl Stat {
    /// It has exited (`Z`, `X`): nothing of it runs any more.
    pub(crate) fn is_dead(&self) -> bool {
        matches!(self.state, 'Z' | 'X' | 'x')
    }
}

pub(crate) fn stat(pid: u32) -> io::Result<Stat> {
    let text = read_whole(format!("/proc/{pid}/stat"))?;
    parse_stat(&text).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
}

fn parse_stat(text: &[u8]) -> Option<Stat> {
    // The name may hold anything, spaces and parentheses too: it ends with the last parenthesis.
    let open = text.iter().position(|b| *b == b'(')?;
    let close = text.iter().rposition(|b| *b == b')')?;
    let name = String::from_utf8_lossy(text.get(open + 1..close)?).into_owned();
    let rest = std::str::from_utf8(text.get(close + 1..)?).ok()?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    let ticks = number(11)? + number(12)?;
    let per_second = rustix::param::clock_ticks_per_second().max(1);
    Some(Stat {
        name,
        state: fields.first()?.chars().next()?,
        ppid: u32::try_from(number(1)?).ok()?,
        // 0 where it lies in an outer namespace; -1 where there is none any more.
        pgid: fields.get(2)?.parse().unwrap_or(0),
        cpu: Duration::from_millis(ticks * 1000 / per_second),
        memory_bytes: number(21)? * rustix::param::page_size() as u64,
    })
}

/// The command line, its words joined by spaces, at most 256 bytes. None: there is none (a zombie, a kernel thread).
/// May hang: see the module's text.
pub(crate) fn command(pid: u32) -> Option<String> {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let words: Vec<&[u8]> = bytes.split(|b| *b == 0).collect();
    let text = words.join(&b' ');
    let text = String::from_utf8_lossy(text.trim_ascii_end()).into_owned();
    (!text.is_empty()).then(|| shortened(text))
}

/// Cuts a command line to the length that is told.
pub(crate) fn shortened(mut text: String) -> String {
    if text.len() > COMMAND_LENGTH {
        let cut = (0..=COMMAND_LENGTH).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(cut);
    }
    text
}

/// The words of `cmdline` or `environ`; none where they can't be read. May hang: see the module's text.
pub(crate) fn words(pid: u32, file: &str) -> Vec<Vec<u8>> {
    let mut bytes = fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
    if bytes.last() == Some(&0) {
        bytes.pop();
    }
    if bytes.is_empty() { Vec::new() } else { bytes.split(|byte| *byte == 0).map(<[u8]>::to_vec).collect() }
}

/// The value of a variable in the process's initial environment. May hang: see the module's text.
pub(crate) fn variable(pid: u32, name: &str) -> Option<String> {
    let bytes = fs::read(format!("/proc/{pid}/environ")).ok()?;
    bytes.split(|b| *b == 0).find_map(|entry| {
        let value = entry.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
        Some(String::from_utf8_lossy(value).into_owned())
    })
}

/// The process's cgroup in the version 2 hierarchy, as a path from its root. Zombies have one too.
pub(crate) fn cgroup(pid: u32) -> io::Result<String> {
    let text = read_whole(format!("/proc/{pid}/cgroup"))?;
    let text = String::from_utf8(text).map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
    let path = text.lines().find_map(|line| line.strip_prefix("0::"));
    let path = path.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
    Ok(path.strip_suffix(" (deleted)").unwrap_or(path).to_owned())
}

/// The children of one thread of a process. Complete if nobody reaps one of them meanwhile.
pub(crate) fn children_of_thread(pid: u32, tid: u32) -> io::Result<Vec<u32>> {
    let text = read_whole(format!("/proc/{pid}/task/{tid}/children"))?;
    Ok(String::from_utf8_lossy(&text).split_ascii_whitespace().filter_map(|word| word.parse().ok()).collect())
}

fn children(pid: u32) -> io::Result<Vec<u32>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/task"))? {
        if let Some(tid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) {
            match children_of_thread(pid, tid) {
                Ok(children) => found.extend(children),
                // The thread has ended.
                Err(error) if fs::exists(format!("/proc/{pid}/task/{tid}"))? => return Err(error),
                Err(_) => {}
            }
        }
    }
    Ok(found)
}

/// Every process below `root`, parents before children. A walk of something that moves: repeat it to be sure.
pub(crate) fn descendants(root: u32) -> Vec<u32> {
    if fs::exists(format!("/proc/{root}/task/{root}/children")).unwrap_or(false) {
        walk(root, |pid| children(pid).unwrap_or_default())
    } else {
        // A kernel without CONFIG_PROC_CHILDREN: everybody is asked for its parent.
        let mut by_parent: HashMap<u32, Vec<u32>> = HashMap::new();
        for pid in everyone() {
            if let Ok(stat) = stat(pid) {
                by_parent.entry(stat.ppid).or_default().push(pid);
            }
        }
        walk(root, |pid| by_parent.remove(&pid).unwrap_or_default())
    }
}

fn walk(root: u32, mut children: impl FnMut(u32) -> Vec<u32>) -> Vec<u32> {
    let mut found = children(root);
    let mut next = 0;
    while let Some(pid) = found.get(next).copied() {
        found.extend(children(pid));
        next += 1;
    }
    found
}

/// Every process of the machine that we may see.
pub(crate) fn everyone() -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_hold_parentheses_and_spaces() {
        let text =
            b"42 (a) b (c) Z 7 42 42 0 -1 4 0 0 0 0 150 50 0 0 20 0 1 0 99 4096 3 18446744073709551615";
        let stat = parse_stat(text).unwrap();
        assert_eq!((stat.name.as_str(), stat.state, stat.ppid, stat.pgid), ("a) b (c", 'Z', 7, 42));
        assert!(stat.is_dead());
        assert_eq!(stat.memory_bytes, 3 * rustix::param::page_size() as u64);
    }

    #[test]
    fn nonsense_is_refused() {
        assert_eq!(parse_stat(b""), None);
        assert_eq!(parse_stat(b"1 (x"), None);
        assert_eq!(parse_stat(b"1 )x( S"), None);
        assert_eq!(parse_stat(b"1 (x) S"), None);
    }

    #[test]
    fn we_find_ourselves() {
        let me = std::process::id();
        assert!(!stat(me).unwrap().is_dead());
        assert!(command(me).unwrap().contains("mcpvisor"));
        assert!(everyone().contains(&me));
    }

    #[test]
    fn long_commands_are_cut_between_characters() {
        let long = shortened("é".repeat(200));
        assert_eq!(long.len(), 256);
        assert_eq!(shortened("x".repeat(300)).len(), 256);
    }
}
