//! The interface: what is launched, what is told.
use std::ffi::{CString, OsString};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Identifies one daemon process's lifetime: 16 random hex digits.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct InstanceId(pub Arc<str>);

/// A server's scope. `session` names the cgroup `s-<session>` (for instance "1000-3": uid and generation), `leaf` the one
/// below it (for instance "0-1": server index and incarnation). Both are made of digits and hyphens, never of a client's text.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ScopeId { pub session: Arc<str>, pub leaf: Arc<str> }

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContainmentKind { Cgroup, Keeper }

/// What is asked of [`start`].
#[derive(Debug, Clone)]
pub struct Options {
    pub instance: InstanceId,
    /// None: cgroups where they are ours, else keepers. Some: that one, or an error that says why not.
    pub containment: Option<ContainmentKind>,
    /// A private daemon: cgroups only below the one it is in, since a leaf outside would survive its caller's scope.
    pub private: bool,
    /// The program (and first arguments) that becomes a keeper: this executable's `keeper` subcommand.
    pub keeper_command: Vec<OsString>,
}

/// What the server's standard streams are.
#[derive(Debug)]
pub enum Stdio {
    /// Pipes; the daemon gets the other ends, non-blocking.
    Piped,
    /// Direct mode: the server is born with these, and the copies are closed after the launch.
    Given { stdin: OwnedFd, stdout: OwnedFd },
}

/// A resource limit as getrlimit(2) tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResourceLimit { pub resource: u32, pub soft: u64, pub hard: u64 }

/// What the child becomes before exec.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credentials { pub uid: u32, pub gid: u32, pub groups: Vec<u32> }

/// A program to start in a scope of its own.
#[derive(Debug)]
pub struct LaunchSpec {
    /// As execvp(3) takes it: a path, or a name that is looked for in `PATH` of `env`.
    pub program: CString,
    /// `argv`, the zeroth included.
    pub args: Vec<CString>,
    /// The whole environment, `NAME=VALUE`; `MCPVISOR_SCOPE` is added.
    pub env: Vec<CString>,
    pub cwd: Cwd,
    pub stdio: Stdio,
    /// None: inherited from the daemon.
    pub umask: Option<u32>,
    pub limits: Vec<ResourceLimit>,
    pub nice: Option<i32>,
    /// Signals to leave ignored (the shim's own); all others get their default disposition.
    pub ignored_signals: Vec<i32>,
    pub credentials: Option<Credentials>,
    pub no_new_privs: bool,
    /// cgroup limits, where the controllers are there: `memory.max` in bytes, `pids.max`.
    pub memory_max: Option<u64>,
    pub pids_max: Option<u64>,
    /// How long the opening of program and directory, and exec itself, may hang in the kernel.
    pub deadline: Duration,
}

#[derive(Debug)]
pub enum Cwd { Path(PathBuf), /// An `O_PATH` descriptor. 
    Fd(OwnedFd), /// The daemon's own.
    Inherit }

/// A server that runs.
#[derive(Debug)]
pub struct Launched {
    pub pid: u32,
    /// The daemon's ends (non-blocking, close-on-exec): both None in direct mode.
    pub stdin: Option<OwnedFd>,
    pub stdout: Option<OwnedFd>,
    pub stderr: OwnedFd,
    pub at: Instant,
}

/// Why nothing runs, as a class that the exit status depends on (CONTRACT.md: 126, 127, 125).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LaunchErrorKind {
    /// No such program (ENOENT of the program or its interpreter): 127.
    NotFound,
    /// It is there and can't be executed (a folder, no execute bit, a bad format, no permission): 126.
    NotExecutable,
    /// The working directory is not there or can't be entered.
    Directory,
    /// The kernel did not answer in time (a dead mount).
    Hung,
    /// A limit of the machine: descriptors, processes, memory.
    Resources,
    /// The scope was killed before the launch was through.
    Killed,
    /// Anything else.
    Other,
}

/// Why nothing runs. Its text completes "failed to start SERVER: " and names the cause and, where there is one, the mend.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct LaunchError { pub kind: LaunchErrorKind, pub message: String }

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit { Code(i32), Signal(i32) }

/// The rung of the stop ladder that is in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rung { Itself, Stdin, Sigterm, Sigkill }

/// One process of a scope, as the certificate tells it: those seen during the teardown and those that we reaped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessRecord {
    pub pid: u32,
    /// Its command line, at most 256 bytes; the kernel's name for it where it had none left.
    pub command: String,
    /// The rung in force when it ended; None while it lives.
    pub ended_by: Option<Rung>,
    /// None where its own parent reaped it.
    pub exit: Option<Exit>,
    /// It had left its server's process group.
    pub escaped: bool,
}

/// What is known of a scope at its end (or, for a quarantined one, so far).
#[derive(Debug, Clone)]
pub struct ScopeReport {
    pub processes: Vec<ProcessRecord>,
    /// What still lives: pid and command. Empty in the report of an empty scope.
    pub remaining: Vec<(u32, String)>,
    pub peak_memory_bytes: Option<u64>,
    pub cpu: Option<Duration>,
    /// When the last process was seen to have exited.
    pub last_exit: Instant,
    /// False: a keeper was lost and emptiness rests on a search of /proc by marker and ancestry.
    pub proven: bool,
}

/// What a scope tells its observer. Facts are levels: a new observer is told at once what already holds.
#[derive(Debug, Clone)]
pub enum ScopeFact {
    /// The main process has exited and is reaped.
    MainExited { exit: Exit },
    /// No process of the scope exists, zombies included. The scope's cgroup is removed. Never before it is true.
    Empty { report: Arc<ScopeReport> },
}

/// Runs on the reaper's thread: must be quick and must not block.
pub type Observer = Arc<dyn Fn(ScopeFact) + Send + Sync>;

/// A process, for `ps`.
#[derive(Debug, Clone)]
pub struct ProcessInfo { pub pid: u32, pub ppid: u32, pub scope: ScopeId, pub command: String, pub memory_bytes: u64, pub cpu: Duration, pub escaped: bool }

/// A scope that the reaper holds.
#[derive(Debug, Clone)]
pub struct ScopeStatus { pub scope: ScopeId, pub main: Option<u32>, pub empty: bool }

/// The way to the reaper and the launcher; cheap to clone. Every method returns at once: work is done on their threads.
#[derive(Clone)]
pub struct Containment { /* private */ }

impl Containment {
    pub fn kind(&self) -> ContainmentKind { unreachable!("skeleton") }
    /// Creates the scope and starts the program in it. `done` is called exactly once, on another thread. A scope whose launch
    /// failed is empty and is told so to nobody: `done` alone tells.
    pub fn launch(&self, scope: ScopeId, spec: LaunchSpec, observer: Observer, done: Box<dyn FnOnce(Result<Launched, LaunchError>) + Send>) { let _ = (scope, spec, observer, done); }
    /// Replaces the observer, and tells the new one what already holds (a scope that is unknown is told to be empty).
    pub fn observe(&self, scope: &ScopeId, observer: Observer) { let _ = (scope, observer); }
    /// The stop has begun with the closing of stdin: takes the snapshot of the scope's processes for the report.
    pub fn stdin_closed(&self, scope: &ScopeId) { let _ = scope; }
    /// SIGTERM to every process of the scope.
    pub fn terminate(&self, scope: &ScopeId) { let _ = scope; }
    /// Kills every process of the scope; repeated until it is empty or `release`d. Makes a launch on its way fail with `Killed`.
    pub fn kill(&self, scope: &ScopeId) { let _ = scope; }
    /// Kills every scope of a session, known by its name alone, and calls `empty` when all are empty (for a session whose actor is lost).
    pub fn kill_session(&self, session: Arc<str>, empty: Box<dyn FnOnce(Vec<(ScopeId, Arc<ScopeReport>)>) + Send>) { let _ = (session, empty); }
    /// What is known of the scope now.
    pub fn report(&self, scope: &ScopeId, done: Box<dyn FnOnce(ScopeReport) + Send>) { let _ = (scope, done); }
    /// Forgets an empty scope.
    pub fn release(&self, scope: &ScopeId) { let _ = scope; }
    /// Removes the session's cgroup; its scopes are empty.
    pub fn release_session(&self, session: Arc<str>) { let _ = session; }
    /// The processes of one session, or of all.
    pub fn processes(&self, session: Option<Arc<str>>, done: Box<dyn FnOnce(Vec<ProcessInfo>) + Send>) { let _ = (session, done); }
    pub fn scopes(&self, done: Box<dyn FnOnce(Vec<ScopeStatus>) + Send>) { let _ = done; }
}

/// The threads themselves. To be ended last, after every scope is empty.
pub struct Threads { /* private */ }
impl Threads {
    /// Ends the threads and removes the instance's cgroup. Scopes that are not empty are killed first.
    pub fn end(self) {}
}

/// Why containment could not be started.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct StartError { pub message: String }

/// Starts reaper and launcher, makes the calling process a child subreaper. Once per process.
pub fn start(options: Options) -> Result<(Threads, Containment), StartError> { let _ = options; Err(StartError { message: "skeleton".into() }) }

/// The main function of a keeper process (see `Options::keeper_command`); never returns.
pub fn keeper_main() -> ! { std::process::exit(1) }

/// Forks into the background: the caller's process exits with 0, the child goes on in a session of its own. Before any thread is started.
pub fn detach() -> std::io::Result<()> { Ok(()) }
