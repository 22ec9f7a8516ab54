//! A keeper that was killed by somebody: what it kept has come to us, the subreaper above it, and is searched for by its marker
//! and its ancestry. That is no proof, and the report says so.
use super::Reaper;
use super::scope::{Held, Owner};
use super::timers::Timer;
use crate::command::Command;
use crate::exact::signal_if;
use crate::launch::{Key, MARKER};
use crate::resolve::error;
use crate::{LaunchErrorKind, Rung, procfs};
use rustix::process::Signal;
use std::collections::HashSet;
use std::time::{Duration, Instant};

const SEARCH_AGAIN: Duration = Duration::from_millis(20);

impl Reaper {
    /// The keeper of a scope is gone without a word.
    pub(super) fn lose(&mut self, key: Key) {
        let Some(scope) = self.scopes.get_mut(&key) else { return };
        tracing::warn!(session = %scope.id.session, leaf = %scope.id.leaf, "a keeper was killed; its scope is cleaned up by search");
        scope.proven = false;
        scope.rung = Rung::Sigkill;
        scope.held = Held::Lost { unmarked: Vec::new(), searching: false, again: None };
        self.not_kept(key, error(LaunchErrorKind::Other, "the keeper that would contain it ended"));
        self.inherit_main(key);
        self.sweep.wanted = true;
        self.search(key);
    }

    /// Searches for and kills what is left of a scope, on a thread that may hang.
    pub(super) fn search(&mut self, key: Key) {
        let mut inflight: Vec<u32> =
            self.scopes.values().filter_map(|s| s.launch.as_ref()?.cell.pid()).collect();
        inflight.extend(self.guard.pid());
        let launching = self.guard.is_starting() || self.scopes.values().any(|scope| scope.launch.is_some());
        let Some(scope) = self.scopes.get_mut(&key) else { return };
        let Held::Lost { unmarked, searching, again } = &mut scope.held else { return };
        if std::mem::replace(searching, true) {
            return;
        }
        *again = None;
        let suspects = std::mem::take(unmarked);
        let marker = scope.marker.clone();
        // Other scopes' keepers and servers are not to be touched.
        let own = |owner: &Owner| *owner == Owner::Main(key);
        let known = self.children.iter().filter(|(_, owner)| !own(owner)).map(|(pid, _)| *pid);
        let known: HashSet<u32> = known.chain(inflight).collect();
        let mailbox = self.mailbox.clone();
        let started = self.crew.run(move || {
            let (found, unmarked) = search_and_kill(&marker, &known, &suspects, launching);
            mailbox.send(Command::Searched { key, found, unmarked });
        });
        if started.is_err() {
            *searching = false;
            self.search_later(key);
        }
    }

    pub(super) fn searched(&mut self, key: Key, found: Vec<(u32, String)>, now_unmarked: Vec<u32>) {
        // What was killed has perhaps become our zombie by now.
        self.sweep.wanted = true;
        self.sweep.not_before = Instant::now();
        self.sweep();
        let main_is_ours = self.children.values().any(|owner| *owner == Owner::Main(key));
        let Some(scope) = self.scopes.get_mut(&key) else { return };
        let Held::Lost { unmarked, searching, .. } = &mut scope.held else { return };
        *searching = false;
        let over = found.is_empty() && now_unmarked.is_empty() && !main_is_ours;
        *unmarked = now_unmarked;
        for (pid, command) in found {
            let pgid = procfs::stat(pid).map_or(0, |stat| stat.pgid);
            scope.records.seen(pid, pgid, &command, true);
        }
        if over {
            scope.held = Held::Nothing;
            // Its exit was never told, and is not known; that it is over is.
            scope.main = scope.main_exit.and(scope.main);
            self.dirty.insert(key);
        } else {
            self.search_later(key);
        }
    }

    fn search_later(&mut self, key: Key) {
        let at = Instant::now() + SEARCH_AGAIN;
        if let Some(Held::Lost { again, .. }) = self.scopes.get_mut(&key).map(|scope| &mut scope.held) {
            *again = Some(at);
            self.timers.set(at, Timer::SearchAgain(key));
        }
    }
}

/// Kills what carries the marker, and the children of ours that nobody knows: those at the second time only that they are seen,
/// and never while something is being launched, since a child is ours before it is known. Tells both kinds.
fn search_and_kill(
    marker: &str,
    known: &HashSet<u32>,
    suspects: &[u32],
    launching: bool,
) -> (Vec<(u32, String)>, Vec<u32>) {
    let me = std::process::id();
    let mut found = Vec::new();
    for pid in procfs::everyone().into_iter().filter(|pid| *pid != me && !known.contains(pid)) {
        let lives = || procfs::stat(pid).is_ok_and(|stat| !stat.is_dead());
        let is_marked = || procfs::variable(pid, MARKER).as_deref() == Some(marker);
        if is_marked() && lives() {
            found.push((pid, procfs::command(pid).unwrap_or_default()));
            kill_if(pid, is_marked);
        }
    }
    let ours = |pid: u32| procfs::stat(pid).is_ok_and(|stat| stat.ppid == me && !stat.is_dead());
    let taken: HashSet<u32> = found.iter().map(|(pid, _)| *pid).collect();
    let unknown = procfs::everyone().into_iter().filter(|pid| !known.contains(pid) && !taken.contains(pid));
    let unmarked: Vec<u32> = unknown.filter(|pid| ours(*pid)).collect();
    for pid in unmarked.iter().copied().filter(|pid| !launching && suspects.contains(pid)) {
        for below in procfs::descendants(pid) {
            kill_if(below, || true);
        }
        kill_if(pid, || ours(pid));
    }
    (found, unmarked)
}

fn kill_if(pid: u32, still: impl FnOnce() -> bool) {
    signal_if(pid, Signal::KILL, still);
}
