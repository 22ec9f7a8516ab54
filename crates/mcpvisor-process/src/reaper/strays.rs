//! Children of ours that are in no scope's cgroup. Root may leave its cgroup, and we are the subreaper of all that our servers
//! begot, so that whatever has done it comes to us when its parent has ended.
//!
//! One that carries a scope's marker is that scope's. Of one that has wiped its environment nobody can tell whose it is: it is a
//! *stray*. We have launched nothing but servers, keepers and the guardian, all of which we know, so that a stray is nothing that
//! anybody still wants. It is killed, and each scope that might be its origin waits for its end and names it.
use super::Reaper;
use super::guarding::exits;
use super::scope::Owner;
use crate::launch::Key;
use crate::procfs;
use crate::reaper::stopping::open_process;
use crate::{Rung, sys};
use rustix::process::{Signal, pidfd_send_signal};
use std::collections::HashSet;
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// How long all scopes wait for the marker of a child that we can't place.
const ASKING: Duration = Duration::from_millis(100);
/// How long the end of the threads waits for the last strays.
const LONGEST_END: Duration = Duration::from_secs(1);

impl Reaper {
    /// Children that we were born with, as a program that a shell executes may be, are none of ours, and left alone.
    pub(super) fn disown_children(&mut self) {
        for pid in self.listed_children() {
            self.children.insert(pid, Owner::Stranger);
        }
    }

    /// Deals with a child of which no scope is known, when these candidates seem to be empty. Those that must wait for it.
    pub(super) fn unplaced(&mut self, pid: u32, owner: Owner, candidates: &HashSet<Key>) -> HashSet<Key> {
        // Announced since it was met.
        if self.is_being_launched(pid) || self.is_guardian(pid) {
            return HashSet::new();
        }
        let owner = match owner {
            Owner::Asked { since, before } if since.elapsed() < ASKING => {
                return older(candidates, before).collect();
            }
            Owner::Asked { before, .. } => self.unmarked(before),
            other => other,
        };
        self.children.insert(pid, owner);
        let Owner::Stray { before } = owner else { return HashSet::new() };
        let waiting: HashSet<Key> = older(candidates, before).collect();
        if !waiting.is_empty() {
            self.kill_stray(&waiting, pid);
        }
        waiting
    }

    /// Whose a child is that carries no scope's marker.
    pub(super) fn unmarked(&self, before: Key) -> Owner {
        // The first process of a namespace gets everybody's orphans.
        if std::process::id() == 1 { Owner::Stranger } else { Owner::Stray { before } }
    }

    /// The rest of these scopes is gone, and so must it be.
    pub(super) fn kill_stray(&mut self, waiting: &HashSet<Key>, pid: u32) {
        let killed = self.parts.reserve.with(|| kill_child(pid));
        let stat = match killed {
            Ok(Some((stat, _))) if stat.is_dead() => return,
            Ok(Some((stat, _))) => stat,
            Ok(None) => return,
            Err(error) => {
                tracing::warn!(pid, %error, "a process that had left the cgroup of its scope can't be killed");
                return;
            }
        };
        let unknown = matches!(self.children.get(&pid), Some(Owner::Stray { .. }));
        for key in waiting {
            let Some(scope) = self.scopes.get_mut(key) else { continue };
            // It has escaped, whatever its group is.
            let pgid = if unknown { 0 } else { stat.pgid };
            if scope.records.seen(pid, pgid, &stat.name, false) {
                let (session, leaf) = (&*scope.id.session, &*scope.id.leaf);
                tracing::warn!(
                    pid,
                    name = stat.name,
                    unknown,
                    session,
                    leaf,
                    "a process that had left the cgroup of its scope is killed"
                );
            }
            scope.rung = Rung::Sigkill;
        }
    }

    /// One that can't be told a scope of has exited.
    pub(super) fn reap_stray(&mut self, pid: u32) {
        self.children.remove(&pid);
        let Ok(Some(reaped)) = sys::reap(pid) else { return };
        for (key, scope) in self.scopes.iter_mut().filter(|(_, scope)| scope.is_alive()) {
            if scope.records.lives(pid) {
                scope.records.reaped(pid, reaped.exit, scope.rung, None);
                scope.last_exit = Instant::now();
            }
            if scope.main_is_over() {
                self.dirty.insert(*key);
            }
        }
    }

    /// The strays that a scope waits for.
    pub(super) fn strays(&self, key: Key) -> Vec<u32> {
        let Some(scope) = self.scopes.get(&key) else { return Vec::new() };
        let is_one = |(pid, owner): &(&u32, &Owner)| match owner {
            Owner::Strayed(of) => *of == key,
            Owner::Stray { .. } => scope.records.lives(**pid),
            _ => false,
        };
        self.children.iter().filter(is_one).map(|(pid, _)| *pid).collect()
    }

    /// The last thing before the threads end: every scope is empty, and whatever has strayed since is ended.
    pub(super) fn end_strays(&mut self) {
        let end = Instant::now() + LONGEST_END;
        loop {
            self.sweep.wanted = true;
            self.sweep.held_up = false;
            self.sweep.not_before = Instant::now();
            self.sweep();
            let left: Vec<u32> =
                self.listed_children().into_iter().filter(|pid| self.is_unplaced(*pid)).collect();
            if left.is_empty() {
                return;
            }
            if Instant::now() >= end {
                tracing::error!(
                    ?left,
                    "processes that had left the cgroups of their scopes could not be killed"
                );
                return;
            }
            for pid in left {
                let ended = self.parts.reserve.with(|| match kill_child(pid)? {
                    Some((_, pidfd)) => exits(&pidfd, end),
                    None => Ok(true),
                });
                tracing::warn!(pid, ?ended, "a process that had left the cgroup of its scope was killed");
            }
        }
    }

    fn is_unplaced(&self, pid: u32) -> bool {
        if self.is_guardian(pid) || self.is_being_launched(pid) {
            return false;
        }
        match self.children.get(&pid) {
            Some(Owner::Asked { .. } | Owner::Stray { .. }) => true,
            Some(_) => false,
            None => std::process::id() != 1,
        }
    }
}

fn older(candidates: &HashSet<Key>, before: Key) -> impl Iterator<Item = Key> {
    candidates.iter().copied().filter(move |key| *key <= before)
}

/// Kills a child of ours, which it still is when its descriptor is open: what was read of it then. None: it is not.
fn kill_child(pid: u32) -> io::Result<Option<(procfs::Stat, OwnedFd)>> {
    let pidfd = open_process(pid)?;
    let stat = procfs::stat(pid)?;
    if stat.ppid != std::process::id() {
        return Ok(None);
    }
    pidfd_send_signal(&pidfd, Signal::KILL)?;
    Ok(Some((stat, pidfd)))
}
