//! Exits: of main processes, of those that are watched, of orphans that we have adopted.
use super::Reaper;
use super::scope::{Held, Owner};
use crate::launch::Key;
use crate::{Exit, ScopeFact, procfs, sys};
use mcpvisor_failpoints::{self as failpoints, Gate};
use std::time::{Duration, Instant};

/// With few children a sweep costs next to nothing; with thousands it may take a tenth of our time.
const REST: u32 = 10;
const CHEAP: Duration = Duration::from_micros(50);

impl Reaper {
    /// The main process's descriptor says that it has exited.
    pub(super) fn main_exited(&mut self, key: Key) {
        let Some(pid) = self.scopes.get(&key).and_then(|scope| scope.main) else { return };
        failpoints::pass_thread(Gate::ReaperExit);
        match sys::reap(pid) {
            Ok(Some(reaped)) => self.main_reaped(key, pid, reaped),
            Ok(None) => {}
            Err(error) => {
                tracing::error!(pid, %error, "somebody else has reaped a server's main process");
                self.main_reaped(key, pid, sys::Reaped { exit: Exit::Code(-1), cpu: Duration::ZERO });
            }
        }
    }

    fn main_reaped(&mut self, key: Key, pid: u32, reaped: sys::Reaped) {
        self.children.remove(&pid);
        let Some(scope) = self.scopes.get_mut(&key) else { return };
        scope.main_exit = Some(reaped.exit);
        scope.last_exit = Instant::now();
        scope.cpu += reaped.cpu;
        scope.records.reaped(pid, reaped.exit, scope.rung, None);
        if let Held::Cgroup { main, .. } = &mut scope.held
            && let Some((pidfd, watch)) = main.take()
        {
            self.unwatch(&pidfd, watch);
        }
        self.dirty.insert(key);
        if let Some(scope) = self.scopes.get(&key) {
            scope.tell(ScopeFact::MainExited { exit: reaped.exit });
        }
    }

    /// A process that is watched since the stop began has exited. If its parent is gone too, it is our child, and the sweep
    /// reaps it.
    pub(super) fn other_exited(&mut self, key: Key, pid: u32) {
        let Some(scope) = self.scopes.get_mut(&key) else { return };
        scope.last_exit = Instant::now();
        scope.records.ended(pid, scope.rung);
        if let Held::Cgroup { others, .. } = &mut scope.held
            && let Some((pidfd, watch)) = others.remove(&pid)
        {
            self.unwatch(&pidfd, watch);
        }
        self.dirty.insert(key);
        self.sweep.wanted = true;
    }

    /// Reaps every child that has exited, if it is time.
    pub(super) fn sweep(&mut self) {
        let begin = Instant::now();
        if !self.sweep.wanted || self.sweep.held_up || begin < self.sweep.not_before {
            return;
        }
        self.sweep.wanted = false;
        // ECHILD: we have no child at all.
        while let Ok(Some(zombie)) = sys::peek_any() {
            if !self.reap_zombie(zombie.pid) {
                self.sweep.held_up = true;
                self.sweep.wanted = true;
                break;
            }
        }
        let cost = begin.elapsed();
        self.sweep.not_before = if cost > CHEAP { Instant::now() + cost * REST } else { begin };
    }

    /// False: it must be left alone for the moment.
    fn reap_zombie(&mut self, pid: u32) -> bool {
        if self.is_guardian(pid) {
            self.guardian_exited(pid);
            return true;
        }
        let owner = match self.children.get(&pid) {
            Some(owner) => *owner,
            None if self.is_being_launched(pid) => return false,
            None => self.scope_of_process(pid).map_or(Owner::Stranger, Owner::Orphan),
        };
        match owner {
            Owner::Main(key) => self.main_exited(key),
            Owner::Keeper(key) => self.keeper_exited(key),
            Owner::Orphan(key) | Owner::Strayed(key) => self.reap_orphan(key, pid),
            Owner::Stray { .. } => self.reap_stray(pid),
            Owner::Asked { .. } | Owner::Stranger => {
                self.children.remove(&pid);
                self.reap_stranger(pid);
            }
        }
        // Whatever went wrong, the same zombie must not be found for ever.
        if self.children.remove(&pid).is_some() {
            let _ = sys::reap(pid);
        }
        true
    }

    fn reap_orphan(&mut self, key: Key, pid: u32) {
        self.children.remove(&pid);
        // Before it is reaped: afterwards nothing is known of it any more.
        let stat = self.parts.reserve.with(|| procfs::stat(pid)).ok();
        let Ok(Some(reaped)) = sys::reap(pid) else { return };
        let Some(scope) = self.scopes.get_mut(&key) else { return };
        scope.last_exit = Instant::now();
        scope.cpu += reaped.cpu;
        scope.records.reaped(pid, reaped.exit, scope.rung, stat.map(|stat| (stat.name, stat.pgid)));
        if let Held::Cgroup { others, .. } = &mut scope.held
            && let Some((pidfd, watch)) = others.remove(&pid)
        {
            self.unwatch(&pidfd, watch);
        }
        self.dirty.insert(key);
    }

    /// An orphan that can't be told a scope of. It may have been what a lost keeper's scope waits for.
    fn reap_stranger(&mut self, pid: u32) {
        let stat = self.parts.reserve.with(|| procfs::stat(pid)).ok();
        let Ok(Some(reaped)) = sys::reap(pid) else { return };
        let mut lost = self.scopes.iter_mut().filter(|(_, scope)| matches!(scope.held, Held::Lost { .. }));
        if let (Some((key, scope)), None) = (lost.next(), lost.next()) {
            scope.records.reaped(pid, reaped.exit, scope.rung, stat.map(|stat| (stat.name, stat.pgid)));
            scope.last_exit = Instant::now();
            self.dirty.insert(*key);
        }
    }

    /// The child of a launch whose outcome is not told yet.
    pub(super) fn is_being_launched(&self, pid: u32) -> bool {
        let mut launches = self.scopes.values().filter_map(|scope| scope.launch.as_ref());
        launches.any(|launch| launch.cell.pid() == Some(pid))
    }

    /// The scope whose cgroup a process is in.
    pub(super) fn scope_of_process(&mut self, pid: u32) -> Option<Key> {
        let tree = self.tree.as_ref()?;
        let path = self.parts.reserve.with(|| procfs::cgroup(pid)).ok()?;
        self.keys.get(&tree.scope_of(&path)?).copied()
    }
}
