//! A scope, as the reaper holds it.
use super::records::Records;
use crate::command::Done;
use crate::keeper::Connection;
use crate::launch::{Cell, Ends, Key};
use crate::resolve::Resolved;
use crate::{Exit, LaunchError, Launched, Observer, Rung, ScopeFact, ScopeId, ScopeReport};
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(super) struct Scope {
    pub(super) id: ScopeId,
    /// `INSTANCE/SESSION/LEAF`, the value of `MCPVISOR_SCOPE`.
    pub(super) marker: String,
    pub(super) observer: Observer,
    /// The observer came while the launch was on its way: who asked for the launch may be gone, so that its failure, too, is
    /// told to the observer, as emptiness.
    pub(super) heir: bool,
    /// The launch, until the program runs or has failed.
    pub(super) launch: Option<Launching>,
    /// A launch that failed when something was already born: told when nothing is left of it.
    pub(super) doomed: Option<(Done<Result<Launched, LaunchError>>, LaunchError)>,
    pub(super) held: Held,
    pub(super) main: Option<u32>,
    pub(super) main_exit: Option<Exit>,
    /// The rung in force.
    pub(super) rung: Rung,
    pub(super) records: Records,
    pub(super) last_exit: Instant,
    /// Processor time of what we reaped.
    pub(super) cpu: Duration,
    pub(super) proven: bool,
    pub(super) killing: Option<Killing>,
    /// This rung waits for the command lines of what it may end.
    pub(super) naming: Option<Rung>,
    /// When it is looked at again.
    pub(super) look_again: Option<(Instant, Duration)>,
    /// The inotify watch of its cgroup.events.
    pub(super) backstop: Option<i32>,
    pub(super) released: bool,
    /// The report of a scope that is empty.
    pub(super) empty: Option<Arc<ScopeReport>>,
}

/// A launch on its way.
pub(super) struct Launching {
    pub(super) done: Done<Result<Launched, LaunchError>>,
    pub(super) cell: Arc<Cell>,
    /// What the program is, for records and errors.
    pub(super) command: String,
    pub(super) wanted: String,
    pub(super) deadline: Duration,
    /// Whatever comes, it has failed: it was killed, or hung.
    pub(super) verdict: Option<LaunchError>,
    /// What a keeper that has not answered yet was sent off with.
    pub(super) kept: Option<(Ends, Box<Resolved>, Instant)>,
}

/// What a scope's processes are held by.
pub(super) enum Held {
    /// Nothing was born, or nothing is left but what the scope's cgroup may hold.
    Nothing,
    Cgroup {
        /// The main process, until it is reaped: its pidfd, and its watch.
        main: Option<(OwnedFd, u64)>,
        /// Others, from the beginning of a stop: they are watched so that their exits are noticed at once.
        others: HashMap<u32, (OwnedFd, u64)>,
    },
    Keeper(Kept),
    /// The keeper is gone without a word. What it kept is searched for.
    Lost {
        /// Children that nobody knew at the last search.
        unmarked: Vec<u32>,
        searching: bool,
        again: Option<Instant>,
    },
}

/// A keeper that lives, or is not yet reaped.
pub(super) struct Kept {
    pub(super) pid: u32,
    pub(super) connection: Connection,
    pub(super) watch: u64,
    /// It has said that nothing is left, so that its own end is all that is waited for.
    pub(super) finished: bool,
    /// Since when a command to kill is unanswered.
    pub(super) unanswered: Option<Instant>,
    /// The keeper's own pidfd and watch, once it is ending.
    pub(super) ending: Option<(OwnedFd, u64)>,
}

/// A kill in progress.
#[derive(Debug, Clone, Copy)]
pub(super) struct Killing {
    pub(super) next: Instant,
    pub(super) pause: Duration,
}

impl Killing {
    pub(super) const FIRST: Duration = Duration::from_millis(50);
    pub(super) const LONGEST: Duration = Duration::from_secs(1);
}

impl Scope {
    /// Something of it may exist, now or soon.
    pub(super) fn is_alive(&self) -> bool {
        self.empty.is_none()
    }

    /// No launch is on its way and the main process, if there ever was one, is reaped.
    pub(super) fn main_is_over(&self) -> bool {
        self.launch.is_none() && (self.main.is_none() || self.main_exit.is_some())
    }

    pub(super) fn tell(&self, fact: ScopeFact) {
        if self.doomed.is_none() {
            guarded("a scope's observer", || (self.observer)(fact));
        }
    }

    /// Tells the observer what already holds.
    pub(super) fn tell_levels(&self) {
        if let Some(exit) = self.main_exit {
            self.tell(ScopeFact::MainExited { exit });
        }
        if let Some(report) = &self.empty {
            self.tell(ScopeFact::Empty { report: Arc::clone(report) });
        }
    }
}

/// Runs what others have given us: a panic in it must not end the thread that holds every scope.
pub(crate) fn guarded(what: &str, run: impl FnOnce()) {
    if std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).is_err() {
        tracing::error!(what, "panicked on the reaper's thread");
    }
}

/// Whom a child of ours belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    /// It is the scope's main process.
    Main(Key),
    Keeper(Key),
    /// An orphan of the scope that we have adopted.
    Orphan(Key),
    /// An orphan that has left the scope's cgroup, known by its marker.
    Strayed(Key),
    /// It is in no scope's cgroup, and its marker is being read, since then. It is of no scope that is newer than `before`.
    Asked {
        since: Instant,
        before: Key,
    },
    /// It is in no scope's cgroup and has no marker, and is of no scope that is newer than this one.
    Stray {
        before: Key,
    },
    /// None of our scopes'.
    Stranger,
}
