//! The rungs of the ladder: looking at who is there, SIGTERM, the kill.
use super::scope::{Held, Killing};
use super::{Reaper, Timer, Watch};
use crate::command::Command;
use crate::keeper::ToKeeper;
use crate::launch::Key;
use crate::resolve::error;
use crate::{LaunchErrorKind, Rung, procfs};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

/// How many processes of one scope are watched, and looked at in detail. Those beyond are killed and reaped like the others.
const WATCHED: usize = 32;
const DETAILED: usize = 512;
/// How often a scope is read again for processes that were born during one SIGTERM.
const ROUNDS: usize = 16;
/// How long a signal waits for the command lines of what it may end.
const NAMING: Duration = Duration::from_millis(20);

impl Reaper {
    /// Climbs to a rung. Lower ones than that in force change nothing; the same one is done again.
    pub(super) fn climb(&mut self, key: Key, rung: Rung) {
        let Some(scope) = self.scopes.get(&key) else { return };
        if !scope.is_alive() {
            return;
        }
        if scope.launch.is_some() {
            if rung == Rung::Sigkill {
                self.abort(key, error(LaunchErrorKind::Killed, "it was closed during its start"));
            }
            return;
        }
        if rung < scope.rung {
            return;
        }
        match &scope.held {
            Held::Cgroup { .. } => {
                self.look(key);
                // After a signal nobody can read what the processes were.
                let wait = self.read_commands(key) && rung > Rung::Stdin;
                let Some(scope) = self.scopes.get_mut(&key) else { return };
                if wait {
                    scope.naming = scope.naming.max(Some(rung));
                    self.timers.set(Instant::now() + NAMING, Timer::ClimbUnnamed(key));
                } else {
                    self.climb_now(key, rung);
                }
            }
            Held::Keeper(_) => match rung {
                Rung::Itself => {}
                Rung::Stdin => {
                    self.climb_now(key, rung);
                    self.tell_keeper(key, &ToKeeper::StdinClosed);
                }
                Rung::Sigterm => self.tell_keeper(key, &ToKeeper::Terminate),
                Rung::Sigkill => self.kill_now(key),
            },
            Held::Lost { .. } => self.search(key),
            Held::Nothing => {}
        }
    }

    /// Does what was decided, now that the processes' command lines are known or nobody waits for them any longer.
    pub(super) fn climb_now(&mut self, key: Key, rung: Rung) {
        let Some(scope) = self.scopes.get_mut(&key) else { return };
        scope.naming = None;
        scope.rung = scope.rung.max(rung);
        match rung {
            Rung::Itself | Rung::Stdin => {}
            Rung::Sigterm => self.terminate(key),
            Rung::Sigkill => self.kill_now(key),
        }
    }

    /// Records who is there, and watches the first of them so that their exits are noticed at once.
    pub(super) fn look(&mut self, key: Key) {
        let pids = self.members(key);
        let Some(scope) = self.scopes.get_mut(&key) else { return };
        let Held::Cgroup { others, .. } = &scope.held else { return };
        let (main, mut watched) = (scope.main, others.len());
        let mut living = HashSet::new();
        let mut new = Vec::new();
        for pid in pids.iter().copied().take(DETAILED) {
            let unwatched = main != Some(pid) && !others.contains_key(&pid) && watched < WATCHED;
            let pidfd = unwatched.then(|| open_process(pid)).and_then(Result::ok);
            // In this order: what is read is told of the process that the descriptor is of, or of none.
            let Ok(stat) = self.parts.reserve.with(|| procfs::stat(pid)) else { continue };
            if stat.is_dead() {
                continue;
            }
            living.insert(pid);
            scope.records.seen(pid, stat.pgid, &stat.name, false);
            if let Some(pidfd) = pidfd {
                watched += 1;
                new.push((pid, pidfd));
            }
        }
        living.extend(pids.iter().copied().skip(DETAILED));
        let rung = scope.rung;
        // The main process is known by its own descriptor.
        scope.records.retain_living(|pid| main == Some(pid) || living.contains(&pid), rung);
        for (pid, pidfd) in new {
            let Ok(watch) = self.watch(pidfd.as_fd(), Watch::Other(key, pid)) else { continue };
            if let Some(Held::Cgroup { others, .. }) = self.scopes.get_mut(&key).map(|scope| &mut scope.held)
            {
                others.insert(pid, (pidfd, watch));
            }
        }
    }

    /// The scope's processes, as its cgroup tells them.
    pub(super) fn members(&mut self, key: Key) -> Vec<u32> {
        let (Some(tree), Some(scope)) = (&self.tree, self.scopes.get(&key)) else { return Vec::new() };
        let pids = self.parts.reserve.with(|| tree.processes(&scope.id));
        pids.unwrap_or_else(|error| {
            tracing::warn!(%error, "a scope's processes can't be read");
            Vec::new()
        })
    }

    /// Has the command lines of what is there read, on a thread that may hang. False: all are known.
    fn read_commands(&mut self, key: Key) -> bool {
        let Some(scope) = self.scopes.get(&key) else { return false };
        let unnamed = scope.records.unnamed();
        if unnamed.is_empty() {
            return false;
        }
        let mailbox = self.mailbox.clone();
        let read = move || {
            let commands = unnamed.into_iter().filter_map(|pid| Some((pid, procfs::command(pid)?))).collect();
            mailbox.send(Command::Commands { key, commands });
        };
        self.crew.run(read).is_ok()
    }

    pub(super) fn named(&mut self, key: Key, commands: Vec<(u32, String)>) {
        let Some(scope) = self.scopes.get_mut(&key) else { return };
        for (pid, command) in commands {
            scope.records.name(pid, command);
        }
        if let Some(rung) = scope.naming {
            self.climb_now(key, rung);
        }
    }

    /// SIGTERM to each process once, to those too that are born meanwhile.
    fn terminate(&mut self, key: Key) {
        let mut told = HashSet::new();
        for _ in 0..ROUNDS {
            let before = told.len();
            for pid in self.members(key) {
                if told.insert(pid) {
                    self.signal(key, pid, Signal::TERM);
                }
            }
            if told.len() == before {
                break;
            }
        }
    }

    /// Signals a member of a scope. Its pidfd is opened first and its cgroup read then, so that a stranger that got the number
    /// meanwhile is never hit.
    fn signal(&mut self, key: Key, pid: u32, signal: Signal) {
        let (Some(tree), Some(scope)) = (&self.tree, self.scopes.get(&key)) else { return };
        let sent = self.parts.reserve.with(|| {
            let pidfd = open_process(pid)?;
            let path = procfs::cgroup(pid)?;
            if tree.scope_of(&path).as_ref() == Some(&scope.id) {
                pidfd_send_signal(&pidfd, signal)?;
            }
            Ok(())
        });
        if let Err(error) = sent {
            tracing::debug!(pid, %error, "a process was not signalled: it has ended");
        }
    }

    /// The kill itself, and the timer for the next one.
    pub(super) fn kill_now(&mut self, key: Key) {
        let Some(scope) = self.scopes.get_mut(&key) else { return };
        scope.rung = Rung::Sigkill;
        let killing = Killing { next: Instant::now() + Killing::FIRST, pause: Killing::FIRST };
        scope.killing = Some(killing);
        self.timers.set(killing.next, Timer::KillAgain(key));
        self.kill_once(key);
    }

    fn kill_once(&mut self, key: Key) {
        let Some(scope) = self.scopes.get(&key) else { return };
        match &scope.held {
            Held::Cgroup { main, .. } => {
                if let Some(tree) = &self.tree
                    && let Err(error) = self.parts.reserve.with(|| tree.kill(&scope.id))
                {
                    tracing::warn!(%error, session = %scope.id.session, "a scope can't be killed yet");
                }
                // One that has left its cgroup (root may) is still ours.
                if let Some((pidfd, _)) = main {
                    let _ = pidfd_send_signal(pidfd, Signal::KILL);
                }
                self.dirty.insert(key);
            }
            Held::Keeper(_) => self.tell_keeper_to_kill(key),
            Held::Lost { .. } => self.search(key),
            Held::Nothing => {}
        }
    }

    /// The timer: what is still there is killed again, more and more rarely.
    pub(super) fn kill_again(&mut self, key: Key) {
        let Some(scope) = self.scopes.get_mut(&key) else { return };
        if scope.released {
            scope.killing = None;
            return;
        }
        let pause = scope.killing.map_or(Killing::FIRST, |killing| killing.pause);
        let killing = Killing { next: Instant::now() + pause, pause: (pause * 2).min(Killing::LONGEST) };
        scope.killing = Some(killing);
        let unborn = scope.launch.is_some();
        self.timers.set(killing.next, Timer::KillAgain(key));
        if unborn {
            self.kill_unborn(key);
        } else {
            self.kill_once(key);
        }
        self.press_keeper(key);
    }
}

/// A process by its number, which may belong to another by now: the caller looks at what it has got.
pub(super) fn open_process(pid: u32) -> io::Result<OwnedFd> {
    let raw = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let raw = raw.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    Ok(pidfd_open(raw, PidfdFlags::empty())?)
}
