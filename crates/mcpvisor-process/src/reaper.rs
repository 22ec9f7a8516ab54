//! The reaper: one thread that holds all kernel handles, and alone reaps. It says when a scope is empty, and never before.
//!
//! It sleeps until something happens: a command, the exit of a process that it watches, SIGCHLD, a word of a keeper.
mod asking;
mod emptiness;
mod guarding;
mod holders;
mod kept;
mod lost;
mod reaping;
mod records;
mod scope;
mod starting;
mod stopping;
mod strays;
mod timers;

use crate::cgroup::Tree;
use crate::command::{Command, Done, Mailbox, answer_without_reaper};
use crate::crew::Crew;
use crate::launch::{Key, Launcher};
use crate::leftovers::notes::Notes;
use crate::reserve::Reserve;
use crate::{InstanceId, ScopeId, ScopeReport};
use mcpvisor_failpoints as failpoints;
use rustix::event::epoll;
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::fs::inotify;
pub(crate) use scope::guarded;
use scope::{Held, Owner, Scope};
use std::collections::{BTreeSet, HashMap};
use std::ffi::CString;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};
use timers::{Timer, Timers};

/// What the reaper is made of, before its thread runs.
pub(crate) struct Parts {
    epoll: OwnedFd,
    wake: Arc<OwnedFd>,
    commands: Receiver<Command>,
    children: OwnedFd,
    child_signal: signal_hook::SigId,
    inotify: Option<OwnedFd>,
    reserve: Reserve,
}

impl Parts {
    /// Opens everything that the reaper will need, so that it can't fail later.
    pub(crate) fn new() -> io::Result<(Self, Mailbox)> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let flags = rustix::pipe::PipeFlags::CLOEXEC | rustix::pipe::PipeFlags::NONBLOCK;
        let (children, far) = rustix::pipe::pipe_with(flags)?;
        // One instance for all scopes. Without it, a timer looks instead.
        let inotify = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK).ok();
        let interest = epoll::EventFlags::IN;
        epoll::add(&epoll, &wake, epoll::EventData::new_u64(WAKE), interest)?;
        epoll::add(&epoll, &children, epoll::EventData::new_u64(CHILDREN), interest)?;
        if let Some(inotify) = &inotify {
            epoll::add(&epoll, inotify, epoll::EventData::new_u64(EVENTS), interest)?;
        }
        let (mailbox, commands) = Mailbox::new(Arc::clone(&wake));
        // A handler, and not a blocked signal: other threads of the daemon were perhaps started before us.
        let child_signal = signal_hook::low_level::pipe::register(libc::SIGCHLD, far)?;
        let reserve = Reserve::new()?;
        Ok((Self { epoll, wake, commands, children, child_signal, inotify, reserve }, mailbox))
    }
}

const WAKE: u64 = 0;
const CHILDREN: u64 = 1;
const EVENTS: u64 = 2;

/// What a descriptor that is ready means.
#[derive(Debug, Clone, Copy)]
enum Watch {
    Main(Key),
    Other(Key, u32),
    /// A keeper has said something.
    Keeper(Key),
    /// A keeper has exited.
    KeeperExit(Key),
    /// A process that holds a lease has ended.
    Holder(u64),
}

/// Someone who waits for all scopes of a session.
struct SessionEnd {
    empty: Done<Vec<(ScopeId, Arc<ScopeReport>)>>,
    waits_for: BTreeSet<Key>,
    reports: Vec<(ScopeId, Arc<ScopeReport>)>,
}

/// The sweep for children that have exited, which scans all children and so must not be done too often.
struct Sweep {
    wanted: bool,
    not_before: Instant,
    /// A child that is being launched has exited: it is left alone until its launch is told.
    held_up: bool,
}

pub(crate) struct Reaper {
    parts: Parts,
    instance: InstanceId,
    /// None: keepers.
    tree: Option<Arc<Tree>>,
    notes: Option<Arc<Notes>>,
    launcher: Launcher,
    crew: Crew,
    mailbox: Mailbox,
    scopes: HashMap<Key, Scope>,
    keys: HashMap<ScopeId, Key>,
    /// Our own children, as far as we know them.
    children: HashMap<u32, Owner>,
    watches: HashMap<u64, Watch>,
    /// Processes that hold leases.
    holders: HashMap<u64, holders::Held>,
    /// Scopes by inotify watch.
    backstops: HashMap<i32, Key>,
    /// Scopes that may have become empty.
    dirty: BTreeSet<Key>,
    session_ends: Vec<SessionEnd>,
    sweep: Sweep,
    timers: Timers,
    guard: guarding::Guard,
    next_number: u64,
    /// No new scopes; the thread ends when all are empty.
    ending: bool,
    given_up: bool,
}

impl Reaper {
    pub(crate) fn new(
        parts: Parts,
        mailbox: Mailbox,
        instance: InstanceId,
        (tree, notes): (Option<Arc<Tree>>, Option<Arc<Notes>>),
        launcher: Launcher,
        guardian: Option<Vec<CString>>,
    ) -> Self {
        Self {
            parts,
            instance,
            tree,
            notes,
            launcher,
            crew: Crew::new(),
            mailbox,
            scopes: HashMap::new(),
            keys: HashMap::new(),
            children: HashMap::new(),
            watches: HashMap::new(),
            holders: HashMap::new(),
            backstops: HashMap::new(),
            dirty: BTreeSet::new(),
            session_ends: Vec::new(),
            sweep: Sweep { wanted: false, not_before: Instant::now(), held_up: false },
            timers: Timers::default(),
            guard: guarding::Guard::new(guardian),
            next_number: EVENTS + 1,
            ending: false,
            given_up: false,
        }
    }

    /// The thread's whole life.
    pub(crate) fn run(mut self) {
        // A mask that was inherited must not keep the signal from us.
        let mut child = nix::sys::signal::SigSet::empty();
        child.add(nix::sys::signal::Signal::SIGCHLD);
        let _ = child.thread_unblock();
        self.disown_children();
        self.start_guardian();
        while !self.is_over() {
            // A panic is a bug. Every scope is held here, so that going on with the others is the lesser evil.
            scope::guarded("a turn", || self.turn());
        }
        self.close();
    }

    fn is_over(&self) -> bool {
        self.ending && (self.given_up || self.scopes.values().all(|scope| !scope.is_alive()))
    }

    /// Waits for something to happen, and deals with it.
    fn turn(&mut self) {
        let mut space = [MaybeUninit::<epoll::Event>::uninit(); 512];
        let timeout = self.timeout();
        let events: Vec<u64> = match epoll::wait(&self.parts.epoll, &mut space, timeout.as_ref()) {
            Ok((events, _)) => events.iter().map(|event| event.data.u64()).collect(),
            Err(_) => Vec::new(),
        };
        for token in &events {
            match *token {
                WAKE => drain(&self.parts.wake),
                CHILDREN => {
                    drain(&self.parts.children);
                    self.sweep.wanted = true;
                }
                EVENTS => self.read_inotify(),
                _ => {}
            }
        }
        // Births first: an exit of the same turn may be that of a child that was only just announced.
        while let Ok(command) = self.parts.commands.try_recv() {
            self.obey(command);
        }
        for token in events {
            match self.watches.get(&token).copied() {
                Some(Watch::Main(key)) => self.main_exited(key),
                Some(Watch::Other(key, pid)) => self.other_exited(key, pid),
                Some(Watch::Keeper(key)) => self.keeper_speaks(key),
                Some(Watch::KeeperExit(key)) => self.keeper_exited(key),
                Some(Watch::Holder(number)) => self.holder_ended(number),
                None => {}
            }
        }
        let now = Instant::now();
        while let Some((at, timer)) = self.timers.due(now) {
            self.timer(at, timer);
        }
        self.settle();
    }

    fn timeout(&mut self) -> Option<Timespec> {
        let (scopes, ending) = (&self.scopes, self.ending);
        let mut next = self.timers.next(|at, timer| is_live(scopes, ending, at, timer));
        if self.sweep.wanted && !self.sweep.held_up {
            next = Some(next.map_or(self.sweep.not_before, |at| at.min(self.sweep.not_before)));
        }
        let left = match next {
            _ if !self.dirty.is_empty() => Duration::ZERO,
            next => next?.saturating_duration_since(Instant::now()),
        };
        // The kernel's clock for this counts whole milliseconds: round up, or we would spin.
        Timespec::try_from(Duration::from_millis(left.as_micros().div_ceil(1000) as u64)).ok()
    }

    fn timer(&mut self, at: Instant, timer: Timer) {
        if !is_live(&self.scopes, self.ending, at, timer) {
            return;
        }
        match timer {
            Timer::LaunchDeadline(key) => self.launch_hangs(key),
            Timer::LaunchWaits(key) => {
                self.launcher.relieve();
                self.timers.set(at + LAUNCH_WAITS, Timer::LaunchWaits(key));
            }
            Timer::ClimbUnnamed(key) => {
                if let Some(rung) = self.scopes.get(&key).and_then(|scope| scope.naming) {
                    self.climb_now(key, rung);
                }
            }
            Timer::KillAgain(key) => self.kill_again(key),
            Timer::LookAgain(key) => {
                self.dirty.insert(key);
                self.sweep.wanted = true;
            }
            Timer::SearchAgain(key) => self.search(key),
            Timer::Guard => self.start_guardian(),
            Timer::EndDeadline => {
                tracing::error!("some processes could not be killed; the threads end without them");
                self.given_up = true;
            }
        }
    }

    fn obey(&mut self, command: Command) {
        if let Some(gate) = command.gate() {
            failpoints::pass_thread(gate);
        }
        match command {
            Command::Launch { scope, spec, observer, done } => self.launch(scope, *spec, observer, done),
            Command::NotResolved { key, error } => self.not_launched(key, error),
            Command::Launched { key, outcome } => self.launched(key, *outcome),
            Command::Observe { scope, observer } => self.observe(&scope, observer),
            Command::Climb { scope, rung } => {
                if let Some(key) = self.keys.get(&scope).copied() {
                    self.climb(key, rung);
                }
            }
            Command::KillSession { session, empty } => self.kill_session(&session, empty),
            Command::Report { scope, done } => self.report(&scope, done),
            Command::Release { scope } => self.release(&scope),
            Command::ReleaseSession { session } => self.release_session(&session),
            Command::Processes { session, done } => self.processes(session.as_deref(), done),
            Command::Scopes { done } => self.list(done),
            Command::KillFile { scope, done } => self.kill_file(&scope, done),
            Command::Commands { key, commands } => self.named(key, commands),
            Command::Marked { pid, marker } => self.marked(pid, marker.as_deref()),
            Command::Searched { key, found, unmarked } => self.searched(key, found, unmarked),
            Command::Hold { number, pidfd, ended } => self.hold(number, pidfd, ended),
            Command::LetGo { number } => self.let_go(number),
            Command::Guarded { born, result } => self.guarded(&born, result),
            Command::End => self.end(),
        }
    }

    fn end(&mut self) {
        self.ending = true;
        self.timers.set(Instant::now() + LONGEST_END, Timer::EndDeadline);
        let keys: Vec<Key> = self.scopes.keys().copied().collect();
        for key in keys {
            self.climb(key, crate::Rung::Sigkill);
        }
    }

    fn close(mut self) {
        if self.tree.is_some() {
            self.end_strays();
        }
        if let Some(tree) = &self.tree
            && let Err(error) = tree.remove_all()
        {
            tracing::error!(%error, "the instance's cgroup can't be removed");
        }
        self.dismiss_guardian();
        self.launcher.close();
        self.crew.close();
        signal_hook::low_level::unregister(self.parts.child_signal);
        while let Ok(command) = self.parts.commands.try_recv() {
            scope::guarded("an answer", || answer_without_reaper(command));
        }
    }

    fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    /// Watches a descriptor; the number of the watch.
    fn watch(&mut self, fd: impl AsFd, watch: Watch) -> io::Result<u64> {
        let number = self.number();
        epoll::add(&self.parts.epoll, fd, epoll::EventData::new_u64(number), epoll::EventFlags::IN)?;
        self.watches.insert(number, watch);
        Ok(number)
    }

    /// Ends a watch before its descriptor is closed: a child that is being born holds a copy for a moment, so that closing
    /// alone would leave the watch alive.
    fn unwatch(&mut self, fd: impl AsFd, number: u64) {
        self.watches.remove(&number);
        let _ = epoll::delete(&self.parts.epoll, fd);
    }

    fn read_inotify(&mut self) {
        let Some(fd) = &self.parts.inotify else { return };
        let mut space = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(fd, &mut space);
        while let Ok(event) = reader.next() {
            if let Some(key) = self.backstops.get(&event.wd()) {
                self.dirty.insert(*key);
            }
        }
    }
}

/// Between looks whether launches wait behind one that hangs.
const LAUNCH_WAITS: Duration = Duration::from_millis(100);
/// How long the end of the threads may take.
const LONGEST_END: Duration = Duration::from_secs(10);

fn drain(fd: impl AsFd) {
    let mut buffer = [0_u8; 512];
    while rustix::io::read(&fd, &mut buffer[..]).is_ok_and(|length| length == buffer.len()) {}
}

/// Whether a timer still has a reason.
fn is_live(scopes: &HashMap<Key, Scope>, ending: bool, at: Instant, timer: Timer) -> bool {
    let scope = |key| scopes.get(&key).filter(|scope: &&Scope| scope.is_alive());
    match timer {
        Timer::LaunchDeadline(key) | Timer::LaunchWaits(key) => {
            scope(key).is_some_and(|s| s.launch.is_some())
        }
        Timer::ClimbUnnamed(key) => scope(key).is_some_and(|s| s.naming.is_some()),
        Timer::KillAgain(key) => scope(key).and_then(|s| s.killing).is_some_and(|killing| killing.next == at),
        Timer::LookAgain(key) => scope(key).and_then(|s| s.look_again).is_some_and(|(next, _)| next == at),
        Timer::SearchAgain(key) => {
            scope(key).is_some_and(|s| matches!(s.held, Held::Lost { again, .. } if again == Some(at)))
        }
        Timer::Guard => !ending,
        Timer::EndDeadline => ending,
    }
}
