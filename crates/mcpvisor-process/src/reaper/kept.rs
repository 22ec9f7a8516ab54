//! Scopes that are held by a keeper.
use super::scope::{Held, Owner};
use super::{Reaper, Watch};
use crate::keeper::{FromKeeper, ToKeeper};
use crate::launch::{Key, setup_error, spawn_error};
use crate::reaper::stopping::open_process;
use crate::resolve::error;
use crate::{LaunchErrorKind, Rung, ScopeFact, sys};
use rustix::process::{Signal, pidfd_send_signal};
use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

/// A keeper that has been silent for so long is woken, in case something has stopped it …
const WAKE_AFTER: Duration = Duration::from_millis(300);
/// … and after this time it is killed, and what it kept is searched for.
const KILL_AFTER: Duration = Duration::from_secs(3);

impl Reaper {
    pub(super) fn tell_keeper(&mut self, key: Key, message: &ToKeeper) {
        let Some(scope) = self.scopes.get_mut(&key) else { return };
        let Held::Keeper(kept) = &mut scope.held else { return };
        // One that is gone is noticed as the end of its stream; one that does not read is pressed by the timer of the kill.
        if let Err(error) = kept.connection.send(message, &[]) {
            tracing::debug!(%error, "a keeper does not listen");
        }
    }

    pub(super) fn tell_keeper_to_kill(&mut self, key: Key) {
        if let Some(Held::Keeper(kept)) = self.scopes.get_mut(&key).map(|scope| &mut scope.held) {
            kept.unanswered.get_or_insert_with(Instant::now);
        }
        self.tell_keeper(key, &ToKeeper::Kill);
    }

    /// A keeper that does not answer may have been stopped, by its own server even.
    pub(super) fn press_keeper(&mut self, key: Key) {
        let Some(scope) = self.scopes.get(&key) else { return };
        let (pid, silent) = match &scope.held {
            Held::Keeper(kept) => (kept.pid, kept.unanswered.map_or(Duration::ZERO, |since| since.elapsed())),
            _ => return,
        };
        // One that has not started its server yet hangs with it in exec, and the server dies with the keeper.
        let patience = if scope.launch.is_some() { WAKE_AFTER } else { KILL_AFTER };
        if silent > patience {
            tracing::warn!(pid, "a keeper does not answer and is killed");
            self.kill_keeper(key);
        } else if silent > WAKE_AFTER {
            // Our own child, not reaped: the number is still its own.
            let _ = open_process(pid).map(|pidfd| pidfd_send_signal(pidfd, Signal::CONT));
        }
    }

    pub(super) fn kill_keeper(&mut self, key: Key) {
        let Some(Held::Keeper(kept)) = self.scopes.get(&key).map(|scope| &scope.held) else { return };
        let pid = kept.pid;
        let killed = self.parts.reserve.with(|| Ok(pidfd_send_signal(open_process(pid)?, Signal::KILL)?));
        tracing::debug!(pid, ?killed, "keeper killed");
    }

    /// A keeper has said something, or is gone.
    pub(super) fn keeper_speaks(&mut self, key: Key) {
        let Some(Held::Keeper(kept)) = self.scopes.get_mut(&key).map(|scope| &mut scope.held) else { return };
        let more = match kept.connection.fill() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            other => other.unwrap_or(false),
        };
        loop {
            let Some(Held::Keeper(kept)) = self.scopes.get_mut(&key).map(|scope| &mut scope.held) else {
                return;
            };
            match kept.connection.next::<FromKeeper>() {
                Ok(Some(message)) => self.keeper_said(key, message),
                Ok(None) => break,
                Err(error) => {
                    tracing::error!(%error, "a keeper talks nonsense and is killed");
                    self.kill_keeper(key);
                    break;
                }
            }
        }
        if !more {
            self.keeper_ends(key);
        }
    }

    fn keeper_said(&mut self, key: Key, message: FromKeeper) {
        let Some(scope) = self.scopes.get_mut(&key) else { return };
        let Held::Keeper(kept) = &mut scope.held else { return };
        match message {
            FromKeeper::Started { pid } => {
                if let Some((ends, _, at)) = scope.launch.as_mut().and_then(|launch| launch.kept.take()) {
                    self.runs(key, pid, ends, at);
                }
            }
            FromKeeper::Failed { stage, errno } => {
                kept.finished = true;
                let resolved = scope.launch.as_mut().and_then(|launch| launch.kept.take());
                let failed = match (resolved, sys::Stage::from_number(stage)) {
                    (Some((_, resolved, _)), Some(stage)) => setup_error(stage, errno, &resolved),
                    _ => error(LaunchErrorKind::Other, "its keeper has failed"),
                };
                self.not_kept(key, failed);
            }
            FromKeeper::NotBorn { errno } => {
                kept.finished = true;
                self.not_kept(key, spawn_error("clone", &io::Error::from_raw_os_error(errno)));
            }
            FromKeeper::Seen { processes } => {
                kept.unanswered = None;
                let living: HashMap<u32, _> = processes.iter().map(|seen| (seen.pid, seen)).collect();
                scope.records.retain_living(|pid| living.contains_key(&pid), scope.rung);
                for seen in &processes {
                    scope.records.seen(seen.pid, seen.pgid, &seen.command, true);
                }
            }
            FromKeeper::Reaped { process, exit, rung, main, cpu_micros } => {
                // The keeper may hear of the closing of stdin later than the server sees it.
                let rung = Rung::from(rung).max(scope.rung.min(Rung::Stdin));
                scope.rung = scope.rung.max(rung);
                scope.last_exit = Instant::now();
                scope.cpu += Duration::from_micros(cpu_micros);
                let last = Some((process.command, process.pgid));
                scope.records.reaped(process.pid, exit.into(), rung, last);
                if main {
                    scope.main_exit = Some(exit.into());
                    scope.tell(ScopeFact::MainExited { exit: exit.into() });
                }
            }
            FromKeeper::Empty => {
                kept.finished = true;
                self.keeper_ends(key);
            }
        }
    }

    /// The keeper is ending: its exit is waited for, since it is a process of ours like any other.
    fn keeper_ends(&mut self, key: Key) {
        let Some(Held::Keeper(kept)) = self.scopes.get(&key).map(|scope| &scope.held) else { return };
        let (pid, watched) = (kept.pid, kept.ending.is_some());
        self.keeper_exited(key);
        let Some(Held::Keeper(kept)) = self.scopes.get_mut(&key).map(|scope| &mut scope.held) else { return };
        let watch = kept.watch;
        let (false, Ok(socket)) = (watched, kept.connection.socket().try_clone_to_owned()) else { return };
        // An end of file would wake us for ever.
        self.unwatch(&socket, watch);
        let Ok(pidfd) = open_process(pid) else { return };
        let Ok(watch) = self.watch(pidfd.as_fd(), Watch::KeeperExit(key)) else { return };
        if let Some(Held::Keeper(kept)) = self.scopes.get_mut(&key).map(|scope| &mut scope.held) {
            kept.ending = Some((pidfd, watch));
        }
    }

    /// Reaps a keeper, if it has exited.
    pub(super) fn keeper_exited(&mut self, key: Key) {
        let Some(Held::Keeper(kept)) = self.scopes.get(&key).map(|scope| &scope.held) else { return };
        let pid = kept.pid;
        match sys::reap(pid) {
            Ok(None) => return,
            Ok(Some(_)) => {}
            Err(error) => tracing::error!(pid, %error, "somebody else has reaped a keeper"),
        }
        self.children.remove(&pid);
        // Its last words may still lie in the socket.
        self.last_words(key);
        let Some(scope) = self.scopes.get_mut(&key) else { return };
        let Held::Keeper(kept) = std::mem::replace(&mut scope.held, Held::Nothing) else { return };
        self.unwatch(kept.connection.socket(), kept.watch);
        if let Some((pidfd, watch)) = &kept.ending {
            self.unwatch(pidfd, *watch);
        }
        if kept.finished {
            self.dirty.insert(key);
        } else {
            self.lose(key);
        }
    }

    fn last_words(&mut self, key: Key) {
        loop {
            let Some(Held::Keeper(kept)) = self.scopes.get_mut(&key).map(|scope| &mut scope.held) else {
                return;
            };
            if let Ok(Some(message)) = kept.connection.next::<FromKeeper>() {
                if matches!(message, FromKeeper::Empty) {
                    kept.finished = true;
                } else {
                    self.keeper_said(key, message);
                }
            } else if !kept.connection.fill().unwrap_or(false) {
                return;
            }
        }
    }

    /// A keeper's main process that has come to us, because its keeper is gone.
    pub(super) fn inherit_main(&mut self, key: Key) {
        let Some(scope) = self.scopes.get(&key) else { return };
        let (Some(pid), None) = (scope.main, scope.main_exit) else { return };
        let me = std::process::id();
        if self.parts.reserve.with(|| crate::procfs::stat(pid)).is_ok_and(|stat| stat.ppid == me) {
            self.children.insert(pid, Owner::Main(key));
        }
    }
}
