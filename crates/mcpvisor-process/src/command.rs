//! What the reaper's thread is told, and how.
use crate::launch::{Key, Outcome};
use crate::resolve::error;
use crate::{
    LaunchError, LaunchErrorKind, LaunchSpec, Launched, Observer, ProcessInfo, Rung, ScopeFact, ScopeId,
    ScopeReport, ScopeStatus,
};
use mcpvisor_failpoints::Gate;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicI32;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Instant;

/// Called once, with the answer.
pub(crate) type Done<T> = Box<dyn FnOnce(T) + Send>;

/// A message to the reaper's thread.
pub(crate) enum Command {
    // From the interface.
    Launch {
        scope: ScopeId,
        spec: Box<LaunchSpec>,
        observer: Observer,
        done: Done<Result<Launched, LaunchError>>,
    },
    Observe {
        scope: ScopeId,
        observer: Observer,
    },
    Climb {
        scope: ScopeId,
        rung: Rung,
    },
    KillSession {
        session: Arc<str>,
        empty: Done<Vec<(ScopeId, Arc<ScopeReport>)>>,
    },
    Report {
        scope: ScopeId,
        done: Done<ScopeReport>,
    },
    Release {
        scope: ScopeId,
    },
    ReleaseSession {
        session: Arc<str>,
    },
    Processes {
        session: Option<Arc<str>>,
        done: Done<Vec<ProcessInfo>>,
    },
    Scopes {
        done: Done<Vec<ScopeStatus>>,
    },
    KillFile {
        scope: ScopeId,
        done: Done<Option<OwnedFd>>,
    },
    /// Tells once that a process of somebody else has ended.
    Hold {
        number: u64,
        pidfd: OwnedFd,
        ended: Box<dyn FnOnce() + Send>,
    },
    /// Nobody wants to know that any more.
    LetGo {
        number: u64,
    },
    End,
    // From other threads.
    /// A guardian was born, and the write end of its pipe; or not.
    Guarded {
        born: Arc<AtomicI32>,
        result: io::Result<OwnedFd>,
    },
    NotResolved {
        key: Key,
        error: LaunchError,
    },
    Launched {
        key: Key,
        outcome: Box<Outcome>,
    },
    /// Command lines that were read on a disposable thread.
    Commands {
        key: Key,
        commands: Vec<(u32, String)>,
    },
    /// The marker of a child of ours that is in no scope's cgroup.
    Marked {
        pid: u32,
        marker: Option<String>,
    },
    /// What a search for the processes of a lost keeper has found and killed.
    Searched {
        key: Key,
        found: Vec<(u32, String)>,
        unmarked: Vec<u32>,
    },
}

impl Command {
    /// Where a test can hold it.
    pub(crate) fn gate(&self) -> Option<Gate> {
        match self {
            Self::Launch { .. } => Some(Gate::LaunchOrdered),
            Self::Launched { .. } => Some(Gate::LaunchAnnounced),
            Self::Climb { rung: Rung::Stdin, .. } => Some(Gate::ReaperStdin),
            Self::Climb { rung: Rung::Sigterm, .. } => Some(Gate::ReaperTerm),
            Self::Climb { rung: Rung::Sigkill, .. } => Some(Gate::ReaperKill),
            Self::ReleaseSession { .. } => Some(Gate::ReaperRelease),
            Self::End => Some(Gate::ReaperEnd),
            _ => None,
        }
    }
}

/// The sending half; cheap to clone.
#[derive(Clone)]
pub(crate) struct Mailbox {
    sender: Sender<Command>,
    wake: Arc<OwnedFd>,
}

impl Mailbox {
    pub(crate) fn new(wake: Arc<OwnedFd>) -> (Self, Receiver<Command>) {
        let (sender, receiver) = channel();
        (Self { sender, wake }, receiver)
    }

    /// Sends a command. Where the reaper has ended, the answer is given here: everything is gone.
    pub(crate) fn send(&self, command: Command) {
        match self.sender.send(command) {
            // An eventfd is full after 2^64 wake-ups without a read only.
            Ok(()) => drop(rustix::io::write(&self.wake, &1_u64.to_ne_bytes())),
            Err(refused) => answer_without_reaper(refused.0),
        }
    }
}

/// The report of a scope of which nothing is known any more.
pub(crate) fn nothing_known() -> ScopeReport {
    ScopeReport {
        processes: Vec::new(),
        remaining: Vec::new(),
        peak_memory_bytes: None,
        cpu: None,
        last_exit: Instant::now(),
        proven: true,
    }
}

/// What is answered when the threads have ended, every scope before them.
pub(crate) fn answer_without_reaper(command: Command) {
    match command {
        Command::Launch { done, .. } => {
            done(Err(error(LaunchErrorKind::Killed, "the daemon is shutting down")));
        }
        Command::Observe { observer, .. } => observer(ScopeFact::Empty { report: Arc::new(nothing_known()) }),
        Command::KillSession { empty, .. } => empty(Vec::new()),
        Command::Report { done, .. } => done(nothing_known()),
        Command::Processes { done, .. } => done(Vec::new()),
        Command::Scopes { done } => done(Vec::new()),
        Command::KillFile { done, .. } => done(None),
        Command::Climb { .. }
        | Command::Release { .. }
        | Command::ReleaseSession { .. }
        | Command::Hold { .. }
        | Command::LetGo { .. }
        | Command::Guarded { .. }
        | Command::End
        | Command::NotResolved { .. }
        | Command::Launched { .. }
        | Command::Commands { .. }
        | Command::Marked { .. }
        | Command::Searched { .. } => {}
    }
}
