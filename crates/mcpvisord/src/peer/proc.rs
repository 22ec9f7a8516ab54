//! What /proc says of a peer. Only files that are answered from the kernel's own memory are read: those that look into the
//! process's memory (its environment) can be made to block by the process.
use super::Confined;
use mcpvisor_process::read_whole;
use std::collections::HashSet;
use std::io;

/// More ancestors than any real process has.
const DEEPEST: usize = 1000;

/// Whether the process may have commands run for it by this daemon.
pub(crate) fn check(pid: u32, instance: &str) -> Result<(), Confined> {
    check_against(pid, instance, std::process::id())
}

/// The same, for a daemon of another pid.
pub(crate) fn check_against(pid: u32, instance: &str, daemon: u32) -> Result<(), Confined> {
    let cgroup = read_whole(format!("/proc/{pid}/cgroup")).map_err(|_| Confined::Gone)?;
    if is_ours(&String::from_utf8_lossy(&cgroup), instance) || is_below(pid, daemon) {
        return Err(Confined::InSession);
    }
    for namespace in ["mnt", "user", "pid"] {
        let ours = std::fs::read_link(format!("/proc/self/ns/{namespace}"));
        let theirs = std::fs::read_link(format!("/proc/{pid}/ns/{namespace}"));
        match (ours, theirs) {
            (Ok(ours), Ok(theirs)) if ours == theirs => {}
            (Ok(_), Ok(_)) => return Err(Confined::Namespace(namespace)),
            (_, Err(error)) if error.kind() == io::ErrorKind::NotFound => return Err(Confined::Gone),
            // A process with more rights than ours can't be looked into, and needs no leave of ours either: only root's.
            (_, Err(_)) if owner(pid) == Some(0) => {}
            _ => return Err(Confined::Unknown),
        }
    }
    Ok(())
}

/// A line of /proc/PID/cgroup lies below one of the instance's sessions.
fn is_ours(cgroup: &str, instance: &str) -> bool {
    let mark = format!("/mcpvisor-{instance}/s-");
    cgroup.lines().any(|line| line.contains(&mark))
}

/// The process descends from the daemon: all that sessions start does, since what loses its parent comes back to the daemon
/// or to a keeper below it.
fn is_below(pid: u32, daemon: u32) -> bool {
    let mut seen = HashSet::new();
    let mut at = pid;
    for _ in 0..DEEPEST {
        match parent(at) {
            Some(parent) if parent == daemon => return true,
            Some(parent) if parent > 1 && seen.insert(parent) => at = parent,
            _ => return false,
        }
    }
    true
}

fn parent(pid: u32) -> Option<u32> {
    let stat = read_whole(format!("/proc/{pid}/stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    // The name stands in parentheses and may hold some itself.
    stat[stat.rfind(')')? + 1..].split_whitespace().nth(1)?.parse().ok()
}

fn status(pid: u32, field: &str) -> Option<Vec<u32>> {
    let status = read_whole(format!("/proc/{pid}/status")).ok()?;
    let status = String::from_utf8_lossy(&status);
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    line.split_whitespace().map(|word| word.parse().ok()).collect()
}

/// The effective uid.
fn owner(pid: u32) -> Option<u32> {
    status(pid, "Uid:")?.get(1).copied()
}

/// The supplementary groups of a process, if it is still one of this user.
pub(crate) fn groups(pid: u32, uid: u32) -> Option<Vec<u32>> {
    if pid == 0 || owner(pid)? != uid {
        return None;
    }
    status(pid, "Groups:")
}

/// The hard limit of each resource, by its number; None: there is none.
pub(crate) fn hard_limits(pid: u32) -> Option<Vec<(u32, Option<u64>)>> {
    let text = String::from_utf8(read_whole(format!("/proc/{pid}/limits")).ok()?).ok()?;
    let limits: Vec<_> = RESOURCES
        .iter()
        .filter_map(|(name, number)| {
            let line = text.lines().find_map(|line| line.strip_prefix(name))?;
            let hard = line.split_whitespace().nth(1)?;
            Some((*number, if hard == "unlimited" { None } else { Some(hard.parse().ok()?) }))
        })
        .collect();
    (limits.len() == RESOURCES.len()).then_some(limits)
}

/// As the kernel names and numbers them (the numbers are those of all architectures that this program is built for).
const RESOURCES: [(&str, u32); 16] = [
    ("Max cpu time", 0),
    ("Max file size", 1),
    ("Max data size", 2),
    ("Max stack size", 3),
    ("Max core file size", 4),
    ("Max resident set", 5),
    ("Max processes", 6),
    ("Max open files", 7),
    ("Max locked memory", 8),
    ("Max address space", 9),
    ("Max file locks", 10),
    ("Max pending signals", 11),
    ("Max msgqueue size", 12),
    ("Max nice priority", 13),
    ("Max realtime priority", 14),
    ("Max realtime timeout", 15),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cgroup_below_a_session_is_told_from_others() {
        let ours = "12:cpu:/\n0::/user.slice/daemon.service/mcpvisor-00ff00ff00ff00ff/s-1000-3/v-0-1\n";
        assert!(is_ours(ours, "00ff00ff00ff00ff"));
        assert!(!is_ours(ours, "11ff00ff00ff00ff"));
        assert!(!is_ours("0::/mcpvisor-00ff00ff00ff00ff\n", "00ff00ff00ff00ff"));
    }

    #[test]
    fn limits_are_those_of_the_process() {
        let limits = hard_limits(std::process::id()).unwrap();
        let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
        assert!(limits.contains(&(7, files)), "{limits:?}");
        assert_eq!(hard_limits(0), None);
    }

    #[test]
    fn ancestry_is_followed_to_its_end() {
        let me = std::process::id();
        let parent = parent(me).unwrap();
        assert!(is_below(me, parent));
        assert!(!is_below(me, u32::MAX));
        assert_eq!(super::parent(0), None);
    }
}
