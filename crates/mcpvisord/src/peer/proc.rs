//! What /proc says of a peer. Only files that are answered from the kernel's own memory are read: those that look into the
//! process's memory (its environment) can be made to block by the process.
use super::Confined;
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
    let cgroup = std::fs::read(format!("/proc/{pid}/cgroup")).map_err(|_| Confined::Gone)?;
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
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name stands in parentheses and may hold some itself.
    stat[stat.rfind(')')? + 1..].split_whitespace().nth(1)?.parse().ok()
}

fn status(pid: u32, field: &str) -> Option<Vec<u32>> {
    let status = std::fs::read(format!("/proc/{pid}/status")).ok()?;
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
    fn ancestry_is_followed_to_its_end() {
        let me = std::process::id();
        let parent = parent(me).unwrap();
        assert!(is_below(me, parent));
        assert!(!is_below(me, u32::MAX));
        assert_eq!(super::parent(0), None);
    }
}
