//! The way to the threads, their start and their end.
use crate::cgroup::Tree;
use crate::command::{Command, Mailbox};
use crate::launch::Launcher;
use crate::leftovers::handle::Sweeper;
use crate::leftovers::notes::{Notes, cgroups, former};
use crate::reaper::{Parts, Reaper};
use crate::{
    ContainmentKind, Holder, HolderWatch, LaunchError, LaunchSpec, Launched, Left, LeftId, Observer, Options,
    ProcessInfo, Rung, ScopeId, ScopeReport, ScopeStatus, StartError,
};
use std::ffi::{CString, OsStr, OsString};
use std::fmt;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// The scopes of a session with their reports.
pub type SessionReports = Vec<(ScopeId, Arc<ScopeReport>)>;

/// The way to the reaper and the launcher; cheap to clone. Every method returns at once: the work is done on their threads, and
/// callbacks run on the reaper's, so they must be quick and must not block.
#[derive(Clone)]
pub struct Containment {
    mailbox: Mailbox,
    kind: ContainmentKind,
    reason: Option<Arc<str>>,
    sweeper: Sweeper,
}

impl fmt::Debug for Containment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Containment").field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl Containment {
    /// Which containment is in force.
    #[must_use]
    pub fn kind(&self) -> ContainmentKind {
        self.kind
    }

    /// Why it is not cgroups, where it is not and was not asked to be something else.
    #[must_use]
    pub fn fallback_reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }

    /// Creates the scope and starts the program in it. `done` is called exactly once, on another thread. A scope whose launch
    /// failed is empty and is told so to nobody: `done` alone tells. So a launch that hangs in exec is told only when its child is
    /// gone: it is killed at the deadline, and what can't be killed remains visible in [`report`](Self::report).
    pub fn launch(
        &self,
        scope: ScopeId,
        spec: LaunchSpec,
        observer: Observer,
        done: Box<dyn FnOnce(Result<Launched, LaunchError>) + Send>,
    ) {
        self.mailbox.send(Command::Launch { scope, spec: Box::new(spec), observer, done });
    }

    /// Replaces the observer, and tells the new one what already holds (a scope that is unknown is told to be empty). One that comes
    /// while the launch is on its way hears of its failure too, as emptiness.
    pub fn observe(&self, scope: &ScopeId, observer: Observer) {
        self.mailbox.send(Command::Observe { scope: scope.clone(), observer });
    }

    /// The stop has begun with the closing of stdin: takes the snapshot of the scope's processes for the report.
    pub fn stdin_closed(&self, scope: &ScopeId) {
        self.mailbox.send(Command::Climb { scope: scope.clone(), rung: Rung::Stdin });
    }

    /// SIGTERM to every process of the scope.
    pub fn terminate(&self, scope: &ScopeId) {
        self.mailbox.send(Command::Climb { scope: scope.clone(), rung: Rung::Sigterm });
    }

    /// Kills every process of the scope; repeated until it is empty or [`release`](Self::release)d. Makes a launch on its way
    /// fail with [`Killed`](crate::LaunchErrorKind::Killed).
    pub fn kill(&self, scope: &ScopeId) {
        self.mailbox.send(Command::Climb { scope: scope.clone(), rung: Rung::Sigkill });
    }

    /// Kills every scope of a session, known by its name alone, and calls `empty` when all are empty (for a session whose actor
    /// is lost).
    pub fn kill_session(&self, session: Arc<str>, empty: Box<dyn FnOnce(SessionReports) + Send>) {
        self.mailbox.send(Command::KillSession { session, empty });
    }

    /// What is known of the scope now.
    pub fn report(&self, scope: &ScopeId, done: Box<dyn FnOnce(ScopeReport) + Send>) {
        self.mailbox.send(Command::Report { scope: scope.clone(), done });
    }

    /// Forgets an empty scope. One that is not empty is no longer killed again and again, and is forgotten when it is empty.
    pub fn release(&self, scope: &ScopeId) {
        self.mailbox.send(Command::Release { scope: scope.clone() });
    }

    /// Removes the session's cgroup; its scopes are empty.
    pub fn release_session(&self, session: Arc<str>) {
        self.mailbox.send(Command::ReleaseSession { session });
    }

    /// The processes of one session, or of all. The answer may never come if one of them hangs in the kernel in such a way that
    /// its memory can't be read.
    pub fn processes(&self, session: Option<Arc<str>>, done: Box<dyn FnOnce(Vec<ProcessInfo>) + Send>) {
        self.mailbox.send(Command::Processes { session, done });
    }

    /// The scope's open `cgroup.kill`, for a client that outlives the daemon: whoever writes `1` to it kills the scope, as long as it
    /// is not empty. None: there is no such scope now, or it is no cgroup.
    pub fn kill_file(&self, scope: &ScopeId, done: Box<dyn FnOnce(Option<OwnedFd>) + Send>) {
        self.mailbox.send(Command::KillFile { scope: scope.clone(), done });
    }

    /// The sessions that former daemons of this state folder have left, and that were not gone at the start. They are being killed.
    #[must_use]
    pub fn left(&self) -> &[Left] {
        self.sweeper.left()
    }

    /// Tries the kill of such a session again, and calls `empty` when nothing of it is left; on another thread, or at once where
    /// that is known already. A report is not [`proven`](ScopeReport::proven) where it rests on a search.
    pub fn kill_left(&self, left: &LeftId, empty: Box<dyn FnOnce(SessionReports) + Send>) {
        self.sweeper.kill(left, empty);
    }

    /// What lives of such a session, as it was last seen.
    #[must_use]
    pub fn report_left(&self, left: &LeftId) -> ScopeReport {
        self.sweeper.report(left)
    }

    /// Calls `ended` once when the process has ended, at once where it has already or can't be watched. It is not called any more
    /// some moments after the watch is dropped, nor when the threads have ended.
    #[must_use]
    pub fn watch_holder(&self, holder: Holder, ended: Box<dyn FnOnce() + Send>) -> HolderWatch {
        HolderWatch::start(self.mailbox.clone(), holder, ended)
    }

    /// The scopes that the reaper holds.
    pub fn scopes(&self, done: Box<dyn FnOnce(Vec<ScopeStatus>) + Send>) {
        self.mailbox.send(Command::Scopes { done });
    }
}

/// The threads themselves. To be ended last, after every scope is empty.
#[derive(Debug)]
pub struct Threads {
    reaper: JoinHandle<()>,
    containment: Containment,
    notes: Option<Arc<Notes>>,
}

impl Threads {
    /// Ends the threads and removes the instance's cgroup. Scopes that are not empty are killed first; what can't be killed within
    /// ten seconds is left. Blocks until then.
    pub fn end(self) {
        self.containment.mailbox.send(Command::End);
        if self.reaper.join().is_err() {
            tracing::error!("the reaper's thread has panicked");
        }
        if let Some(Err(error)) = self.notes.map(|notes| notes.close()) {
            tracing::warn!(%error, "this daemon's folder can't be removed");
        }
        STARTED.store(false, Ordering::SeqCst);
    }
}

/// There is one reaper in a process at a time, since it reaps whatever child there is.
static STARTED: AtomicBool = AtomicBool::new(false);

/// Starts reaper and launcher, makes the calling process a child subreaper. One at a time: a second call fails until
/// [`Threads::end`].
///
/// From then on every child of this process that nobody has claimed is reaped here, those of other libraries too.
pub fn start(options: Options) -> Result<(Threads, Containment), StartError> {
    if STARTED.swap(true, Ordering::SeqCst) {
        return Err(StartError { message: "containment is started already in this process".into() });
    }
    let result = try_start(options);
    if result.is_err() {
        STARTED.store(false, Ordering::SeqCst);
    }
    result
}

fn try_start(options: Options) -> Result<(Threads, Containment), StartError> {
    let Options { instance, containment, private, keeper_command, state } = options;
    let failed = |what: &str, e: &dyn fmt::Display| StartError { message: format!("{what}: {e}") };
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
        .map_err(|e| failed("can't become a child subreaper", &e))?;
    // Before we have a folder there ourselves.
    let former = state.as_deref().map(former).unwrap_or_default();
    if !private {
        Tree::sweep(&cgroups(&former));
    }
    let (tree, reason) = match containment {
        Some(ContainmentKind::Keeper) => (None, None),
        Some(ContainmentKind::Cgroup) => match Tree::new(&instance, private) {
            Ok(tree) => (Some(Arc::new(tree)), None),
            Err(reason) => return Err(failed("cgroups were asked for and can't be used", &reason)),
        },
        None => match Tree::new(&instance, private) {
            Ok(tree) => (Some(Arc::new(tree)), None),
            Err(reason) => {
                tracing::info!(%reason, "servers are contained by keepers");
                (None, Some(Arc::from(reason)))
            }
        },
    };
    let kind = if tree.is_some() { ContainmentKind::Cgroup } else { ContainmentKind::Keeper };
    let notes = state.and_then(|state| {
        let made = Notes::make(&state, &instance, tree.as_ref().map(|tree| tree.path()));
        let told = |error| {
            let state = state.display();
            tracing::warn!(%state, %error, "sessions can't be noted: should this daemon be killed, their keys are not blocked");
        };
        made.map_err(told).ok().map(Arc::new)
    });
    let started = (|| {
        let sweeper = Sweeper::start(former)?;
        let (parts, mailbox) = Parts::new()?;
        let tell = mailbox.clone();
        let tell =
            Box::new(move |key, outcome| tell.send(Command::Launched { key, outcome: Box::new(outcome) }));
        let guarded = match &tree {
            Some(_) if private => None,
            Some(tree) => Some(tree.path().as_os_str()),
            None => Some(OsStr::new(&*instance.0)),
        };
        let guardian = guarded.and_then(|guarded| guardian_command(&keeper_command, guarded));
        let launcher = Launcher::start(tree.clone(), notes.clone(), keeper_command, tell)?;
        let held = (tree.clone(), notes.clone());
        let reaper = Reaper::new(parts, mailbox.clone(), instance, held, launcher, guardian);
        let thread =
            std::thread::Builder::new().name("mcpvisor-reaper".into()).spawn(move || reaper.run())?;
        Ok((thread, mailbox, sweeper))
    })();
    let (reaper, mailbox, sweeper) = started.map_err(|e: std::io::Error| {
        if let Some(tree) = &tree {
            let _ = tree.remove_all();
        }
        if let Some(notes) = &notes {
            let _ = notes.close();
        }
        failed("can't start the threads that contain servers", &e)
    })?;
    let containment = Containment { mailbox, kind, reason, sweeper };
    Ok((Threads { reaper, containment: containment.clone(), notes }, containment))
}

/// What becomes the guardian of a cgroup or an instance, where the keeper's command says it.
fn guardian_command(keeper: &[OsString], guarded: &OsStr) -> Option<Vec<CString>> {
    let (last, front) = keeper.split_last()?;
    if last != "keeper" {
        return None;
    }
    let words = front.iter().map(OsString::as_os_str).chain([OsStr::new("guardian"), guarded]);
    words.map(|word| CString::new(word.as_bytes()).ok()).collect()
}

/// Forks into the background: the caller's process exits with 0, the child goes on in a session of its own, without leading it.
/// Descriptors are left as they are. Before any thread is started: fails if there is another one.
pub fn detach() -> std::io::Result<()> {
    if std::fs::read_dir("/proc/self/task")?.count() != 1 {
        return Err(std::io::Error::other("a process with several threads can't go into the background"));
    }
    crate::sys::background()
}
