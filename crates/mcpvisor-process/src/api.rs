//! What is launched, and what is told of it.
use std::ffi::{CString, OsString};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Identifies one daemon process's lifetime: 16 random hex digits.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InstanceId(pub Arc<str>);

/// A server's scope. `session` names the cgroup `s-<session>` (for instance "1000-3": uid and generation), `leaf` the one
/// below it (for instance "0-1": server index and incarnation). Both are made of digits and hyphens, never of a client's text.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ScopeId {
    /// The session.
    pub session: Arc<str>,
    /// The server's process tree in it.
    pub leaf: Arc<str>,
}

/// What holds a server's processes together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContainmentKind {
    /// A cgroup of version 2.
    Cgroup,
    /// A keeper process that is the server's parent and child subreaper.
    Keeper,
}

/// What is asked of [`start`](crate::start).
#[derive(Debug, Clone)]
pub struct Options {
    /// This daemon process.
    pub instance: InstanceId,
    /// None: cgroups where they are ours, else keepers. Some: that one, or an error that says why not.
    pub containment: Option<ContainmentKind>,
    /// A private daemon: cgroups only below the one it is in, since a leaf outside would survive its caller's scope.
    pub private: bool,
    /// The program (and first arguments) that becomes a keeper: this executable's `keeper` subcommand. With `guardian CGROUP` or
    /// `guardian INSTANCE` in the place of the last word, `keeper`, it must become a guardian by
    /// [`guardian_main`](crate::guardian_main); where that is not the last word, there is no guardian. A private daemon that has
    /// cgroups has none either: its client kills what it leaves.
    pub keeper_command: Vec<OsString>,
    /// Where sessions are noted for this daemon's successor, and where what its predecessors have left is told: a folder that all
    /// daemons of one socket have in common and no other has. None: nothing is noted, and no predecessor's sessions are known.
    pub state: Option<PathBuf>,
}

/// What the server's standard streams are.
#[derive(Debug)]
pub enum Stdio {
    /// Pipes; the daemon gets the other ends, non-blocking.
    Piped,
    /// Direct mode: the server is born with these, and the copies are closed after the launch.
    Given {
        /// The read end of the client's stream.
        stdin: OwnedFd,
        /// The write end.
        stdout: OwnedFd,
    },
}

/// A resource limit as getrlimit(2) tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResourceLimit {
    /// `RLIMIT_…`, as a number.
    pub resource: u32,
    /// The limit in force; `u64::MAX` is none.
    pub soft: u64,
    /// How far the program may raise it. What exceeds the daemon's own hard limit is cut down to it.
    pub hard: u64,
}

/// What the child becomes before exec.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credentials {
    /// Real, effective and saved user id.
    pub uid: u32,
    /// Real, effective and saved group id.
    pub gid: u32,
    /// The supplementary groups.
    pub groups: Vec<u32>,
}

/// A program to start in a scope of its own.
#[derive(Debug)]
pub struct LaunchSpec {
    /// As execvp(3) takes it: a path, or a name that is looked for in `PATH` of `env`.
    pub program: CString,
    /// `argv`, the zeroth included.
    pub args: Vec<CString>,
    /// The whole environment, `NAME=VALUE`; `MCPVISOR_SCOPE` is added.
    pub env: Vec<CString>,
    /// The working directory.
    pub cwd: Cwd,
    /// Standard input and output; standard error is always a pipe.
    pub stdio: Stdio,
    /// None: inherited from the daemon.
    pub umask: Option<u32>,
    /// Resource limits to set; others are inherited from the daemon.
    pub limits: Vec<ResourceLimit>,
    /// The nice value, where we have the right to set it; None: inherited.
    pub nice: Option<i32>,
    /// Signals to leave ignored (the shim's own); all others get their default disposition.
    pub ignored_signals: Vec<i32>,
    /// Whom it runs as; None: as the daemon.
    pub credentials: Option<Credentials>,
    /// It can't gain rights by exec.
    pub no_new_privs: bool,
    /// cgroup limits, where the controllers are there: `memory.max` in bytes, `pids.max`.
    pub memory_max: Option<u64>,
    /// See `memory_max`.
    pub pids_max: Option<u64>,
    /// What is noted of the session for the daemon's successor, before its first process is born: the same for all its scopes.
    pub note: Option<Arc<str>>,
    /// How long the opening of program and directory, and exec itself, may hang in the kernel.
    pub deadline: Duration,
}

/// A working directory.
#[derive(Debug)]
pub enum Cwd {
    /// By its path.
    Path(PathBuf),
    /// An `O_PATH` descriptor.
    Fd(OwnedFd),
    /// The daemon's own.
    Inherit,
}

/// A server that runs.
#[derive(Debug)]
pub struct Launched {
    /// The main process.
    pub pid: u32,
    /// The daemon's ends (non-blocking, close-on-exec): both None in direct mode.
    pub stdin: Option<OwnedFd>,
    /// See `stdin`.
    pub stdout: Option<OwnedFd>,
    /// The read end of the server's stderr (non-blocking, close-on-exec).
    pub stderr: OwnedFd,
    /// When it was born.
    pub at: Instant,
}

/// Why nothing runs, as a class that an exit status depends on: 127, 126, or 125 for the others.
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
pub struct LaunchError {
    /// Its class.
    pub kind: LaunchErrorKind,
    /// The text.
    pub message: String,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// By itself, with this status.
    Code(i32),
    /// By a signal.
    Signal(i32),
}

/// The rung of the stop ladder that is in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rung {
    /// No stop has begun.
    Itself,
    /// Its stdin was closed.
    Stdin,
    /// It was sent SIGTERM.
    Sigterm,
    /// It was killed.
    Sigkill,
}

/// One process of a scope, as the certificate tells it: those seen during the teardown and those that we reaped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessRecord {
    /// Its number; free for others since.
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
    /// The main process first, then the others as they were seen.
    pub processes: Vec<ProcessRecord>,
    /// What still lives: pid and command. Empty in the report of an empty scope.
    pub remaining: Vec<(u32, String)>,
    /// Of all together, where the memory controller is there.
    pub peak_memory_bytes: Option<u64>,
    /// Processor time of all together; in a keeper, of those that were reaped.
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
    MainExited {
        /// How.
        exit: Exit,
    },
    /// No process of the scope exists, zombies included. The scope's cgroup is removed. Never before it is true.
    Empty {
        /// What is known of it, for good.
        report: Arc<ScopeReport>,
    },
}

/// Runs on the reaper's thread: must be quick and must not block.
pub type Observer = Arc<dyn Fn(ScopeFact) + Send + Sync>;

/// A process, for `ps`.
#[derive(Debug, Clone)]
pub struct ProcessInfo {
    /// Its number.
    pub pid: u32,
    /// Its parent's.
    pub ppid: u32,
    /// Where it belongs to.
    pub scope: ScopeId,
    /// Its command line, at most 256 bytes; the kernel's name for it where it has none.
    pub command: String,
    /// Resident memory.
    pub memory_bytes: u64,
    /// Processor time so far.
    pub cpu: Duration,
    /// It has left its server's process group.
    pub escaped: bool,
}

/// A scope that the reaper holds.
#[derive(Debug, Clone)]
pub struct ScopeStatus {
    /// Its name.
    pub scope: ScopeId,
    /// The main process, while it lives.
    pub main: Option<u32>,
    /// Nothing is left of it, and it waits to be released.
    pub empty: bool,
}

/// Why containment could not be started.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct StartError {
    /// The cause, and the mend where there is one.
    pub message: String,
}
