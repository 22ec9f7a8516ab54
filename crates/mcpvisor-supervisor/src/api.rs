//! What the daemon asks of its sessions: requests, views, failures.
use mcpvisor_lifecycle::registry::{Counts, IfClosing, IfOpen, RegistryConfig};
use mcpvisor_lifecycle::server::{Mode, Restart, ServerState, Stage};
use mcpvisor_lifecycle::session::{CloseReason, SessionState};
use mcpvisor_lifecycle::{Generation, KeyRef, ServerName, SessionId, SessionKey, Tenant, Uid};
use mcpvisor_process::{ContainmentKind, Exit, ProcessRecord};
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// How to start one server. Everything is resolved: no variables are left.
#[derive(Debug, Clone)]
pub struct ServerSpec {
    pub name: ServerName,
    pub program: CString,
    /// The arguments, `argv[0]` included.
    pub args: Vec<CString>,
    pub env: Vec<CString>,
    pub cwd: Option<PathBuf>,
    pub umask: Option<u32>,
    pub limits: Vec<mcpvisor_process::ResourceLimit>,
    pub nice: Option<i32>,
    pub ignored_signals: Vec<i32>,
    pub credentials: Option<mcpvisor_process::Credentials>,
    pub no_new_privs: bool,
    pub memory_max: Option<u64>,
    pub pids_max: Option<u64>,
    pub mode: Mode,
    pub required: bool,
    pub restart: Restart,
    pub restart_intensity: u32,
    pub restart_period: Duration,
    pub start: Duration,
    pub stdin_grace: Duration,
    pub term_grace: Duration,
    pub kill_wait: Duration,
    /// Longest line of the server, in bytes.
    pub max_line: usize,
}

/// What a direct session's client hands over (DESIGN.md section 7).
#[derive(Debug)]
pub struct DirectStreams {
    pub(crate) stdin: Option<OwnedFd>,
    pub(crate) stdout: Option<OwnedFd>,
    /// What is watched for the client's hang-up once the server has its own.
    pub(crate) copy: Option<OwnedFd>,
    /// The write end of a pipe that the client made for stderr; made non-blocking by the client; written to, dropped when full.
    pub stderr: Option<OwnedFd>,
    /// The client's working directory, as an `O_PATH` descriptor.
    pub cwd: Option<OwnedFd>,
}

impl DirectStreams {
    /// The client's own stdin and stdout, both pipes or sockets.
    #[must_use]
    pub fn new(stdin: OwnedFd, stdout: OwnedFd, stderr: Option<OwnedFd>, cwd: Option<OwnedFd>) -> Self {
        Self { stdin: Some(stdin), stdout: Some(stdout), copy: None, stderr, cwd }
    }
}

/// A session to be opened.
#[derive(Debug)]
pub struct OpenRequest {
    /// None: a key is made up.
    pub key: KeyRef,
    pub tenant: Option<Tenant>,
    pub labels: BTreeMap<String, String>,
    pub servers: Vec<ServerSpec>,
    pub drain: Duration,
    pub direct: Option<DirectStreams>,
    pub if_closing: IfClosing,
    pub if_open: IfOpen,
    pub wait: bool,
    pub deadline: Option<Instant>,
    /// What `show` tells: `none`, `connection`, `pid:N`.
    pub lease: String,
}

/// A server of a session, for `show`.
#[derive(Debug, Clone)]
pub struct ServerView {
    pub name: ServerName,
    pub state: ServerState,
    pub mode: Mode,
    pub pid: Option<u32>,
    pub restarts: u32,
    pub era: Option<&'static str>,
    pub protocol: Option<String>,
    pub tools: Option<usize>,
    pub in_flight: Option<usize>,
    pub last_error: Option<String>,
    /// What it waits for, since how long, how long still.
    pub waits_for: Option<Waits>,
}

#[derive(Debug, Clone)]
pub struct Waits {
    pub what: &'static str,
    pub since: Duration,
    pub left: Option<Duration>,
}

#[derive(Debug, Clone)]
pub struct SessionView {
    pub key: SessionKey,
    pub generation: Generation,
    pub owner: Uid,
    pub state: SessionState,
    pub tenant: Option<Tenant>,
    pub labels: BTreeMap<String, String>,
    pub created_at: SystemTime,
    pub lease: String,
    pub attached: Option<usize>,
    pub in_flight: Option<usize>,
    pub containment: ContainmentKind,
    pub servers: Vec<ServerView>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Closed,
    Quarantined,
    Stopping,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proof {
    Cgroup,
    Keeper,
    None,
}

/// The death certificate.
#[derive(Debug, Clone)]
pub struct Certificate {
    pub key: SessionKey,
    pub generation: Generation,
    pub outcome: Outcome,
    pub state: SessionState,
    pub proof: Proof,
    pub reason: CloseReason,
    pub drained_finished: u64,
    pub drained_cancelled: u64,
    pub duration: Duration,
    pub servers: Vec<ServerCertificate>,
    pub remaining: Vec<(u32, String)>,
    /// From the last process's exit to the moment that the acknowledgement was made.
    pub acknowledged_after: Option<Duration>,
    /// Why the session failed, where it did: server, reason, tail of stderr.
    pub failure: Option<StartFailure>,
}

#[derive(Debug, Clone)]
pub struct ServerCertificate {
    pub name: ServerName,
    pub stage: Stage,
    /// Of the main process; None where none was started.
    pub exit: Option<Exit>,
    pub duration: Duration,
    pub processes: Vec<ProcessRecord>,
    pub peak_memory_bytes: Option<u64>,
    pub cpu: Option<Duration>,
}

#[derive(Debug, Clone)]
pub struct StartFailure {
    pub server: ServerName,
    /// `not_found`, `not_executable`, `directory`, `exited`, `handshake`, `timeout`, …
    pub cause: &'static str,
    pub message: String,
    pub exit: Option<Exit>,
    pub stderr_tail: String,
}

/// Why a request was not done. The daemon maps each to a kind of the control protocol.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Failure {
    #[error("no session has this key")]
    NotFound,
    #[error("the session is open with another definition")]
    SessionExists { session: SessionId },
    #[error("the session is being closed")]
    SessionClosing { session: SessionId },
    #[error("the session was closed")]
    SessionClosed { session: SessionId },
    #[error("the session failed")]
    SessionFailed { session: SessionId, failure: Option<StartFailure> },
    #[error("a server could not be started")]
    StartFailed { session: SessionId, timeout: bool, failure: Option<StartFailure> },
    #[error("the session's processes could not be killed")]
    Quarantined { session: SessionId },
    #[error("the limit is reached")]
    CapacityExhausted { scope: &'static str, used: usize, limit: usize, retry_after: Duration },
    #[error("the daemon is draining")]
    Draining,
    #[error("the generation is over")]
    StaleGeneration { session: SessionId },
    #[error("the session is not quarantined")]
    NotQuarantined { session: SessionId },
    #[error("the deadline has passed")]
    DeadlineExceeded,
    #[error("cancelled")]
    Cancelled,
    #[error("the server has ended")]
    ServerExited { server: ServerName, exit: Option<Exit>, stderr_tail: String },
    #[error("{0}")]
    Unsupported(String),
    #[error("{0}")]
    Invalid(String),
    #[error("too many calls in flight")]
    Overloaded,
    /// The server's own answer was a JSON-RPC error: passed on as it came.
    #[error("the server answered with an error")]
    ServerError(Box<RawValue>),
    #[error("{0}")]
    Internal(String),
}

/// How an open ended well.
#[derive(Debug, Clone)]
pub struct Opened {
    pub session: SessionView,
    pub created: bool,
}

/// A wait's answer.
#[derive(Debug, Clone)]
pub struct Waited {
    pub key: SessionKey,
    pub generation: Generation,
    pub state: SessionState,
    pub reached: bool,
    pub certificate: Option<Arc<Certificate>>,
}

#[derive(Debug, Clone)]
pub struct ToolView {
    pub name: String,
    pub server: ServerName,
    /// The tool as the server tells it, whole.
    pub raw: Arc<RawValue>,
}

#[derive(Debug, Clone)]
pub struct LogLine {
    pub server: ServerName,
    pub at: SystemTime,
    /// As the server wrote it, without the newline, at most 8 KiB. Not escaped.
    pub bytes: Vec<u8>,
    /// Lines dropped just before this one.
    pub dropped: u64,
}

#[derive(Debug, Clone)]
pub struct ProcessView {
    pub pid: u32,
    pub ppid: u32,
    pub key: SessionKey,
    pub generation: Generation,
    pub server: ServerName,
    pub command: String,
    pub memory_bytes: u64,
    pub cpu: Duration,
    pub escaped: bool,
}

#[derive(Debug, Clone)]
pub struct StatusView {
    pub counts: Counts,
    pub draining: bool,
    pub processes: usize,
    pub containment: ContainmentKind,
    pub uptime: Duration,
    pub counters: BTreeMap<&'static str, u64>,
}

#[derive(Debug, Clone)]
pub struct SupervisorConfig {
    pub registry: RegistryConfig,
}
