//! The processes below a keeper: finding and signalling them, where each may end, and its number be used again, at any time.
use super::protocol::SeenProcess;
use crate::exact::signal_if;
use crate::procfs;
use rustix::process::Signal;
use std::collections::{HashMap, HashSet};

/// The keeper's view of its descendants.
#[derive(Debug, Default)]
pub(super) struct Tree {
    /// What was seen of those that may still live: their command lines can't be read any more when they are reaped.
    seen: HashMap<u32, SeenProcess>,
}

/// How often the tree is walked again for processes that were born meanwhile, within one command.
const ROUNDS: usize = 32;
/// How many command lines are read for a report.
const TOLD: usize = 1024;

impl Tree {
    /// Looks at all descendants that have not exited.
    pub(super) fn look(&mut self) -> Vec<SeenProcess> {
        let mut now = Vec::new();
        for pid in procfs::descendants(std::process::id()) {
            let Ok(stat) = procfs::stat(pid) else { continue };
            if stat.is_dead() {
                continue;
            }
            if now.len() < TOLD {
                let known = self.seen.get(&pid).filter(|seen| seen.pgid == stat.pgid);
                let command = procfs::command(pid);
                let command = command.or_else(|| Some(known?.command.clone())).unwrap_or(stat.name);
                now.push(SeenProcess { pid, command, pgid: stat.pgid });
            }
        }
        self.seen.extend(now.iter().map(|seen| (seen.pid, seen.clone())));
        now
    }

    /// What is known of a child of ours that has exited and is not yet reaped.
    pub(super) fn forget(&mut self, pid: u32) -> SeenProcess {
        let seen = self.seen.remove(&pid);
        let stat = procfs::stat(pid).ok();
        let command = seen.as_ref().map(|seen| seen.command.clone());
        let command = command.or_else(|| Some(stat.as_ref()?.name.clone())).unwrap_or_default();
        let pgid = stat.map(|stat| stat.pgid).or(seen.map(|seen| seen.pgid)).unwrap_or(0);
        SeenProcess { pid, command, pgid }
    }

    /// SIGTERM to each once, to those too that are born meanwhile.
    pub(super) fn terminate(&self) {
        let mut told = HashSet::new();
        for _ in 0..ROUNDS {
            let before = told.len();
            for pid in procfs::descendants(std::process::id()) {
                if told.insert(pid) {
                    signal(std::process::id(), pid, Signal::TERM);
                }
            }
            if told.len() == before {
                break;
            }
        }
    }

    /// Kills them all.
    pub(super) fn kill(&self) {
        kill_below(std::process::id());
    }
}

/// Stops each process below this one, until no new one appears, and then kills each: what is stopped has no more children.
pub(crate) fn kill_below(root: u32) {
    let mut stopped = HashSet::new();
    for _ in 0..ROUNDS {
        let new: Vec<u32> =
            procfs::descendants(root).into_iter().filter(|pid| !stopped.contains(pid)).collect();
        if new.is_empty() {
            break;
        }
        for pid in new {
            signal(root, pid, Signal::STOP);
            stopped.insert(pid);
        }
    }
    for pid in procfs::descendants(root) {
        signal(root, pid, Signal::KILL);
    }
}

/// Signals a process that was seen below `root`, if it still is.
fn signal(root: u32, pid: u32, signal: Signal) {
    signal_if(pid, signal, || is_below(root, pid));
}

fn is_below(root: u32, pid: u32) -> bool {
    const DEEPEST: usize = 4096;
    let mut at = pid;
    for _ in 0..DEEPEST {
        match procfs::stat(at) {
            Ok(stat) if stat.ppid == root => return true,
            Ok(stat) if stat.ppid > 1 => at = stat.ppid,
            _ => return false,
        }
    }
    false
}
