//! When a scope is empty.
//!
//! A cgroup's `populated 0` says that each of its processes has at least got so far in its exit that it can't run or fork; some
//! may still be on their way to becoming a zombie, or be one. We are the subreaper of all: the parent of any such process is
//! another such process, or we are. So there is one left if and only if one of our own children is of that scope, and our
//! children stay in the lists of /proc until we ourselves reap them. A scope is empty when both say so. What has left its cgroup is in
//! these lists too: see `strays`.
use super::scope::{Held, Owner, guarded};
use super::{Reaper, SessionEnd};
use crate::command::{Command, nothing_known};
use crate::launch::Key;
use crate::reaper::timers::Timer;
use crate::{ScopeFact, ScopeReport, procfs};
use mcpvisor_failpoints::{self as failpoints, Gate};
use rustix::fs::inotify;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Orphans are adopted by the main thread. The children of the launch threads are servers, which we know, unless one used
/// CLONE_PARENT: worth a look while they are few.
const FEW: usize = 256;
const LOOK_AGAIN_FIRST: Duration = Duration::from_millis(1);
const LOOK_AGAIN_LAST: Duration = Duration::from_millis(200);

impl Reaper {
    /// Looks at every scope that may have become empty since the last time.
    pub(super) fn settle(&mut self) {
        const ROUNDS: usize = 8;
        for _ in 0..ROUNDS {
            self.sweep();
            let dirty = std::mem::take(&mut self.dirty);
            let candidates: HashSet<Key> =
                dirty.into_iter().filter(|key| self.has_no_process(*key)).collect();
            if candidates.is_empty() {
                return;
            }
            let occupied = self.occupied(&candidates);
            for key in candidates.difference(&occupied) {
                self.finish(*key);
            }
            for key in &occupied {
                self.look_again(*key);
            }
            if !occupied.is_empty() {
                // What was seen there may be a zombie already.
                self.sweep.wanted = true;
                self.sweep.not_before = Instant::now();
            }
        }
    }

    /// The main process is reaped and the kernel counts no other.
    fn has_no_process(&mut self, key: Key) -> bool {
        let Some(scope) = self.scopes.get(&key) else { return false };
        if !scope.is_alive() || !scope.main_is_over() {
            return false;
        }
        match &scope.held {
            Held::Nothing => true,
            // These tell it themselves.
            Held::Keeper(_) | Held::Lost { .. } => false,
            Held::Cgroup { .. } => {
                let Some(tree) = &self.tree else { return false };
                match self.parts.reserve.with(|| tree.populated(&scope.id)) {
                    Ok(false) => true,
                    Ok(true) => {
                        self.wait_for_others(key);
                        false
                    }
                    Err(error) => {
                        tracing::warn!(%error, "a scope's state can't be read yet");
                        self.look_again(key);
                        false
                    }
                }
            }
        }
    }

    /// The main process has ended and others are left. The last of them will be our child when it ends, which SIGCHLD tells;
    /// the notification of the cgroup is for what would leave it in another way.
    fn wait_for_others(&mut self, key: Key) {
        if self.members(key).is_empty() {
            // The kernel counts a process a moment longer than it lists it.
            self.look_again(key);
        }
        let (Some(tree), Some(scope)) = (&self.tree, self.scopes.get_mut(&key)) else { return };
        if scope.backstop.is_some() {
            return;
        }
        let added = self.parts.inotify.as_ref().and_then(|fd| {
            inotify::add_watch(fd, tree.events_file(&scope.id), inotify::WatchFlags::MODIFY).ok()
        });
        match added {
            Some(watch) => {
                scope.backstop = Some(watch);
                self.backstops.insert(watch, key);
                // It may have changed before it was watched.
                self.dirty.insert(key);
            }
            None => self.look_again(key),
        }
    }

    /// Looks again soon, and then more and more rarely.
    fn look_again(&mut self, key: Key) {
        let Some(scope) = self.scopes.get_mut(&key) else { return };
        let now = Instant::now();
        let pause = match scope.look_again {
            Some((next, _)) if next > now => return,
            Some((_, pause)) => (pause * 2).min(LOOK_AGAIN_LAST),
            None => LOOK_AGAIN_FIRST,
        };
        scope.look_again = Some((now + pause, pause));
        self.timers.set(now + pause, Timer::LookAgain(key));
    }

    /// Those of the candidates of which one of our children still is.
    fn occupied(&mut self, candidates: &HashSet<Key>) -> HashSet<Key> {
        let mut occupied = HashSet::new();
        if self.tree.is_none() {
            return occupied;
        }
        for pid in self.listed_children() {
            let owner = match self.children.get(&pid) {
                Some(owner) => *owner,
                None if self.is_being_launched(pid) || self.is_guardian(pid) => continue,
                None => self.adopt(pid),
            };
            match owner {
                Owner::Main(key) | Owner::Keeper(key) | Owner::Orphan(key) => {
                    occupied.extend(candidates.get(&key));
                }
                Owner::Strayed(key) if candidates.contains(&key) => {
                    occupied.insert(key);
                    self.kill_stray(&HashSet::from([key]), pid);
                }
                Owner::Asked { .. } | Owner::Stray { .. } => {
                    occupied.extend(self.unplaced(pid, owner, candidates));
                }
                Owner::Strayed(_) | Owner::Stranger => {}
            }
        }
        occupied
    }

    pub(super) fn listed_children(&mut self) -> Vec<u32> {
        let me = std::process::id();
        let mut threads = vec![me];
        if self.children.len() < FEW {
            threads.extend(self.launcher.threads());
        }
        let mut found = Vec::new();
        for tid in threads {
            match self.parts.reserve.with(|| procfs::children_of_thread(me, tid)) {
                Ok(children) => found.extend(children),
                // A kernel without these lists: everybody is asked for its parent.
                Err(_) => {
                    let ours = |pid: &u32| procfs::stat(*pid).is_ok_and(|stat| stat.ppid == me);
                    return procfs::everyone().into_iter().filter(ours).collect();
                }
            }
        }
        found
    }

    /// A child that we did not know of.
    fn adopt(&mut self, pid: u32) -> Owner {
        let owner = match self.scope_of_process(pid) {
            Some(key) => Owner::Orphan(key),
            None => {
                let mailbox = self.mailbox.clone();
                let read = move || {
                    let marker = procfs::variable(pid, crate::launch::MARKER);
                    mailbox.send(Command::Marked { pid, marker });
                };
                if let Err(error) = self.crew.run(read) {
                    tracing::debug!(pid, %error, "a child's marker can't be read");
                }
                Owner::Asked { since: Instant::now(), before: self.next_number }
            }
        };
        self.children.insert(pid, owner);
        owner
    }

    /// The marker of a child that is in no scope's cgroup.
    pub(super) fn marked(&mut self, pid: u32, marker: Option<&str>) {
        let Some(Owner::Asked { before, .. }) = self.children.get(&pid).copied() else { return };
        let of = |marker: &str| {
            let mut scopes = self.scopes.iter();
            scopes.find(|(_, scope)| scope.is_alive() && scope.marker == marker).map(|(key, _)| *key)
        };
        let owner = marker.and_then(of).map_or_else(|| self.unmarked(before), Owner::Strayed);
        self.children.insert(pid, owner);
        // Any scope may have waited for this.
        let over = self.scopes.iter().filter(|(_, scope)| scope.is_alive() && scope.main_is_over());
        let over: Vec<Key> = over.map(|(key, _)| *key).collect();
        self.dirty.extend(over);
    }

    /// Nothing is left: removes the cgroup and tells it.
    pub(super) fn finish(&mut self, key: Key) {
        failpoints::pass_thread(Gate::ReaperEmpty);
        let Some(scope) = self.scopes.get_mut(&key) else { return };
        let (mut peak_memory_bytes, mut cpu) = (None, Some(scope.cpu));
        if let (Some(tree), Held::Cgroup { .. }) = (&self.tree, &scope.held) {
            if let Ok(usage) = self.parts.reserve.with(|| Ok(tree.usage(&scope.id))) {
                peak_memory_bytes = usage.peak_memory_bytes;
                cpu = usage.cpu.or(cpu);
            }
            match self.parts.reserve.with(|| tree.remove(&scope.id)) {
                Ok(()) => {}
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                    // Somebody has moved a process into it.
                    self.look_again(key);
                    return;
                }
                Err(error) => tracing::warn!(%error, "an empty scope's cgroup can't be removed"),
            }
        }
        scope.records.retain_living(|_| false, scope.rung);
        let report = Arc::new(ScopeReport {
            processes: scope.records.all(),
            remaining: Vec::new(),
            peak_memory_bytes,
            cpu,
            last_exit: scope.last_exit,
            proven: scope.proven,
        });
        let held = std::mem::replace(&mut scope.held, Held::Nothing);
        let backstop = scope.backstop.take();
        scope.killing = None;
        scope.empty = Some(Arc::clone(&report));
        if let Held::Cgroup { others, .. } = held {
            for (pidfd, watch) in others.into_values() {
                self.unwatch(&pidfd, watch);
            }
        }
        if let (Some(watch), Some(fd)) = (backstop, &self.parts.inotify) {
            self.backstops.remove(&watch);
            // The kernel has removed it with the cgroup, most likely.
            let _ = inotify::remove_watch(fd, watch);
        }
        self.tell_end(key, &report);
    }

    fn tell_end(&mut self, key: Key, report: &Arc<ScopeReport>) {
        let Some(scope) = self.scopes.get_mut(&key) else { return };
        if let Some((done, error)) = scope.doomed.take() {
            self.forget(key);
            guarded("a launch's answer", || done(Err(error)));
            return;
        }
        scope.tell(ScopeFact::Empty { report: Arc::clone(report) });
        scope.heir = false;
        let (id, released) = (scope.id.clone(), scope.released);
        for end in &mut self.session_ends {
            if end.waits_for.contains(&key) {
                end.reports.push((id.clone(), Arc::clone(report)));
            }
        }
        self.session_end(key);
        if released {
            self.forget(key);
        }
    }

    /// Drops a scope of which nothing exists.
    pub(super) fn forget(&mut self, key: Key) {
        if let Some(scope) = self.scopes.remove(&key) {
            self.keys.remove(&scope.id);
            if scope.heir {
                let report = scope.empty.unwrap_or_else(|| Arc::new(nothing_known()));
                guarded("a scope's observer", || (scope.observer)(ScopeFact::Empty { report }));
            }
        }
        self.session_end(key);
    }

    /// A scope is over: tells those who waited for it last.
    fn session_end(&mut self, key: Key) {
        for end in &mut self.session_ends {
            end.waits_for.remove(&key);
        }
        let over = self.session_ends.extract_if(.., |end| end.waits_for.is_empty());
        let over: Vec<SessionEnd> = over.collect();
        for end in over {
            guarded("a session's end", || (end.empty)(end.reports));
        }
    }
}
