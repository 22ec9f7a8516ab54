//! From the order to launch to a program that runs, or to the reason why none does.
use super::scope::{Held, Kept, Killing, Launching, Owner, Scope, guarded};
use super::{LAUNCH_WAITS, Reaper, Timer, Watch};
use crate::command::{Command, Done};
use crate::keeper::Connection;
use crate::launch::{Ends, Job, Key, Order, Outcome};
use crate::procfs::shortened;
use crate::reaper::stopping::open_process;
use crate::resolve::{Resolved, error, resolve};
use crate::{LaunchError, LaunchErrorKind, LaunchSpec, Launched, Observer, Rung, ScopeId, sys};
use mcpvisor_failpoints::{self as failpoints, Gate};
use rustix::process::{Signal, pidfd_send_signal};
use std::collections::HashMap;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

type LaunchDone = Done<Result<Launched, LaunchError>>;

impl Reaper {
    pub(super) fn launch(&mut self, id: ScopeId, spec: LaunchSpec, observer: Observer, done: LaunchDone) {
        let refused = if self.ending {
            Some(error(LaunchErrorKind::Killed, "the daemon is shutting down"))
        } else if let Some(key) = self.keys.get(&id).copied() {
            let alive = self.scopes.get(&key).is_some_and(Scope::is_alive);
            if !alive {
                self.forget(key);
            }
            alive.then(|| {
                let text = format!("the scope {}/{} is in use", id.session, id.leaf);
                error(LaunchErrorKind::Other, text)
            })
        } else {
            None
        };
        if let Some(refused) = refused {
            guarded("a launch's answer", || done(Err(refused)));
            return;
        }
        let key = self.number();
        let words: Vec<_> = spec.args.iter().map(|arg| arg.to_string_lossy()).collect();
        let mut command = shortened(words.join(" "));
        if command.is_empty() {
            command = spec.program.to_string_lossy().into_owned();
        }
        let deadline = spec.deadline;
        let (wanted, cell) = Order::part(spec);
        let cell = Arc::new(cell);
        let marker = format!("{}/{}/{}", self.instance.0, id.session, id.leaf);
        let launching = Launching {
            done,
            cell: Arc::clone(&cell),
            command,
            wanted: wanted.describe(),
            deadline,
            verdict: None,
            kept: None,
        };
        let scope = Scope {
            marker: marker.clone(),
            id: id.clone(),
            observer,
            heir: false,
            launch: Some(launching),
            doomed: None,
            held: Held::Nothing,
            main: None,
            main_exit: None,
            rung: Rung::Itself,
            records: super::records::Records::default(),
            last_exit: Instant::now(),
            cpu: Duration::ZERO,
            proven: true,
            killing: None,
            naming: None,
            look_again: None,
            backstop: None,
            released: false,
            empty: None,
        };
        self.scopes.insert(key, scope);
        self.keys.insert(id.clone(), key);
        let now = Instant::now();
        self.timers.set(now + deadline, Timer::LaunchDeadline(key));
        self.timers.set(now + LAUNCH_WAITS, Timer::LaunchWaits(key));
        let (mailbox, launcher) = (self.mailbox.clone(), self.launcher.clone());
        // What was found goes straight to the launch thread: whether the launch is still wanted, the cell tells.
        let started = self.crew.run(move || {
            failpoints::pass_thread(Gate::LaunchFind);
            let found = resolve(wanted);
            failpoints::pass_thread(Gate::LaunchFound);
            match found {
                Ok(resolved) => launcher.submit(Job { key, scope: id, marker, cell, resolved }),
                Err(error) => mailbox.send(Command::NotResolved { key, error }),
            }
        });
        if let Err(e) = started {
            let text = format!("no thread to open its program on: {e}");
            self.not_launched(key, error(LaunchErrorKind::Resources, text));
        }
    }

    /// Nothing was born and nothing will be: tells it and forgets the scope. One that was withdrawn is not known any more.
    pub(super) fn not_launched(&mut self, key: Key, error: LaunchError) {
        let Some(launch) = self.scopes.get_mut(&key).and_then(|scope| scope.launch.take()) else { return };
        self.forget(key);
        let error = launch.verdict.unwrap_or(error);
        guarded("a launch's answer", || (launch.done)(Err(error)));
    }

    /// What a launch thread has to say.
    pub(super) fn launched(&mut self, key: Key, outcome: Outcome) {
        // A sweep that met this launch's child goes on now.
        self.sweep.held_up = false;
        match outcome {
            Outcome::Failed(error) => self.not_launched(key, error),
            Outcome::Stillborn { pid, error } => {
                if let Err(error) = sys::reap(pid) {
                    tracing::error!(pid, %error, "a child that failed before exec can't be reaped");
                }
                if let (Some(tree), Some(scope)) = (&self.tree, self.scopes.get(&key))
                    && let Err(error) = tree.remove(&scope.id)
                {
                    tracing::warn!(%error, "the cgroup of a failed launch can't be removed");
                }
                self.not_launched(key, error);
            }
            Outcome::Born { pid, pidfd, ends, at } => self.born(key, pid, pidfd, ends, at),
            Outcome::Kept { keeper, connection, ends, resolved, at } => {
                self.kept(key, keeper, connection, (ends, resolved, at));
            }
        }
    }

    fn born(&mut self, key: Key, pid: u32, pidfd: OwnedFd, ends: Ends, at: Instant) {
        let watch = self.watch(pidfd.as_fd(), Watch::Main(key));
        let Some(scope) = self.scopes.get_mut(&key) else {
            return self.foundling(pid);
        };
        // Without a watch (no memory in the kernel) the sweep notices the exit.
        let main = watch.map_err(|error| tracing::warn!(%error, "a process can't be watched")).ok();
        scope.held = Held::Cgroup { main: main.map(|watch| (pidfd, watch)), others: HashMap::new() };
        self.runs(key, pid, ends, at);
    }

    fn kept(&mut self, key: Key, pid: u32, connection: Connection, kept: (Ends, Box<Resolved>, Instant)) {
        let watch = self.watch(connection.socket(), Watch::Keeper(key));
        let launch = self.scopes.get_mut(&key).and_then(|scope| scope.launch.as_mut());
        let Some(launch) = launch else {
            return self.foundling(pid);
        };
        launch.kept = Some(kept);
        let killed = launch.verdict.is_some();
        self.children.insert(pid, Owner::Keeper(key));
        let unwatched = watch.is_err();
        let watch = watch.unwrap_or_default();
        let kept = Kept { pid, connection, watch, finished: false, unanswered: None, ending: None };
        if let Some(scope) = self.scopes.get_mut(&key) {
            scope.held = Held::Keeper(kept);
        }
        if unwatched {
            // A keeper that can't be listened to is no containment.
            tracing::error!("a keeper can't be watched");
            self.kill_keeper(key);
        } else if killed {
            self.tell_keeper_to_kill(key);
        }
    }

    /// A child of a launch that nobody knows: a launch whose order was taken is kept until its outcome, so this is a bug.
    fn foundling(&mut self, pid: u32) {
        tracing::error!(pid, "a launch was forgotten before its outcome; its child is killed");
        self.children.insert(pid, Owner::Stranger);
        let _ = open_process(pid).map(|pidfd| pidfd_send_signal(pidfd, Signal::KILL));
    }

    /// The program runs.
    pub(super) fn runs(&mut self, key: Key, pid: u32, ends: Ends, at: Instant) {
        let Some(scope) = self.scopes.get_mut(&key) else { return };
        let Some(launch) = scope.launch.take() else { return };
        scope.main = Some(pid);
        scope.records.start(pid, launch.command);
        if matches!(scope.held, Held::Cgroup { .. }) {
            self.children.insert(pid, Owner::Main(key));
        }
        if let Some(verdict) = launch.verdict {
            // It was killed while it was born: nobody hears of it until it is gone.
            scope.doomed = Some((launch.done, verdict));
            scope.rung = Rung::Sigkill;
            drop(ends);
            self.kill_now(key);
        } else {
            let Ends { stdin, stdout, stderr } = ends;
            let launched = Launched { pid, stdin, stdout, stderr, at };
            guarded("a launch's answer", || (launch.done)(Ok(launched)));
        }
    }

    /// A keeper has not started its server; the keeper is ending, and is waited for before that is told.
    pub(super) fn not_kept(&mut self, key: Key, error: LaunchError) {
        let Some(scope) = self.scopes.get_mut(&key) else { return };
        let Some(launch) = scope.launch.take() else { return };
        scope.doomed = Some((launch.done, launch.verdict.unwrap_or(error)));
    }

    /// The deadline of a launch has passed.
    pub(super) fn launch_hangs(&mut self, key: Key) {
        let Some(launch) = self.scopes.get(&key).and_then(|scope| scope.launch.as_ref()) else { return };
        let text = format!("{}: the kernel has not answered within {:?}", launch.wanted, launch.deadline);
        let text = format!("{text} (is its file system alive?)");
        self.abort(key, error(LaunchErrorKind::Hung, text));
    }

    /// Withdraws a launch, or sees to it that whatever it brings forth is killed.
    pub(super) fn abort(&mut self, key: Key, verdict: LaunchError) {
        let Some(scope) = self.scopes.get_mut(&key) else { return };
        let Some(launch) = &mut scope.launch else { return };
        let withdrawn = launch.cell.take().is_some();
        launch.verdict.get_or_insert(verdict.clone());
        if withdrawn {
            self.not_launched(key, verdict);
            return;
        }
        let now = Instant::now();
        scope.killing = Some(Killing { next: now, pause: Killing::FIRST });
        self.timers.set(now, Timer::KillAgain(key));
    }

    /// Kills what a launch that must fail may have brought forth so far.
    pub(super) fn kill_unborn(&mut self, key: Key) {
        let Some(scope) = self.scopes.get(&key) else { return };
        match (&scope.held, &self.tree) {
            (Held::Keeper(_), _) => self.tell_keeper_to_kill(key),
            (_, Some(tree)) => {
                // Not there yet, perhaps: then the next time, or at birth.
                if let Err(error) = self.parts.reserve.with(|| tree.kill(&scope.id)) {
                    tracing::debug!(%error, "the scope of a launch can't be killed yet");
                }
            }
            // A keeper that is not even handed over yet. Its number is its own until we reap it.
            (_, None) => {
                if let Some(pid) = scope.launch.as_ref().and_then(|launch| launch.cell.pid()) {
                    let _ = open_process(pid).map(|pidfd| pidfd_send_signal(pidfd, Signal::KILL));
                }
            }
        }
    }
}
