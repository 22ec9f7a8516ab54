//! What is to be opened.
use super::token::Secret;
use crate::events::EventLimits;
use mcpvisor_lifecycle::registry::{IfClosing, IfOpen, Lifetime, Quota, RegistryConfig};
use mcpvisor_lifecycle::server::{Health, Mode, Restart};
use mcpvisor_lifecycle::session::Limits;
use mcpvisor_lifecycle::{KeyRef, ProfileName, ServerName, SessionKey, Tenant, Uid};
use mcpvisor_mcp::EraChoice;
use mcpvisor_mcp::catalogue::Prefix;
use mcpvisor_mcp::hold::Pattern;
use mcpvisor_mcp::peer::turns::CallLimits;
use mcpvisor_process::{Credentials, Holder, ResourceLimit};
use std::collections::BTreeMap;
use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// What the supervision tree is started with.
#[derive(Debug, Clone)]
pub struct SupervisorConfig {
    /// Limits and retention.
    pub registry: RegistryConfig,
    /// From the kill of what a former daemon has left to its quarantine.
    pub kill_wait: Duration,
    /// How much is kept of what has happened.
    pub events: EventLimits,
    /// Whom the daemon runs as: its own events are theirs from the first on.
    pub user: Uid,
}

/// What holds for the calls of one server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CallTerms {
    /// The most that wait for their turn, beyond those in flight; one more is refused.
    pub max_queued: usize,
    /// How long one may wait for its turn.
    pub queue_timeout: Duration,
    /// How long the server may take to answer one, or since its last progress. None: as long as it likes.
    pub call_timeout: Option<Duration>,
    /// The longest that progress may hold that off.
    pub call_timeout_max: Duration,
}

/// The most calls in flight at a shared server, where it is not said.
const MAX_IN_FLIGHT: usize = 64;
/// The most bytes of calls that wait for their turn.
const MAX_QUEUED_BYTES: usize = 4 << 20;

impl Default for CallTerms {
    fn default() -> Self {
        Self {
            max_queued: 1024,
            queue_timeout: Duration::from_secs(30),
            call_timeout: None,
            call_timeout_max: Duration::from_secs(4 * 3600),
        }
    }
}

impl CallTerms {
    /// With the usual number in flight.
    pub(crate) fn limits(self) -> CallLimits {
        CallLimits {
            max_in_flight: MAX_IN_FLIGHT,
            max_queued: self.max_queued,
            max_queued_bytes: MAX_QUEUED_BYTES,
            queue_timeout: self.queue_timeout,
            call_timeout: self.call_timeout,
            call_timeout_max: self.call_timeout_max,
        }
    }
}

/// What holds for a session as a whole.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Policy {
    /// The most calls in flight at its shared servers together; more wait. None: as many as each takes.
    pub max_in_flight: Option<usize>,
    /// The tools whose calls are held for a person.
    pub hold: Vec<Pattern>,
    /// How long a decision may take, before it is no.
    pub approval_timeout: Duration,
}

impl Default for Policy {
    fn default() -> Self {
        Self { max_in_flight: None, hold: Vec::new(), approval_timeout: Duration::from_secs(300) }
    }
}

impl Policy {
    /// Whether a tool's calls are held: a pattern means the name under which it is called, its own one at its server, or the one that it has
    /// with a prefix. So no other way to publish names lets a call pass.
    pub(crate) fn holds(&self, server: &ServerName, called: &str, own: &str) -> bool {
        if self.hold.is_empty() {
            return false;
        }
        let whole = format!("{server}__{own}");
        self.hold.iter().any(|pattern| [called, own, &whole].into_iter().any(|name| pattern.matches(name)))
    }
}

/// Whose process a server is.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub enum Scope {
    /// The session's own.
    #[default]
    Session,
    /// One for all sessions of its owner that name it.
    Daemon {
        /// The profile that names it.
        profile: String,
        /// How long it stays when none of them is left.
        linger: Duration,
    },
    /// Someone else's, behind a Unix socket.
    External {
        /// An absolute path.
        socket: PathBuf,
    },
}

impl Scope {
    /// Its name outside.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::Daemon { .. } => "daemon",
            Self::External { .. } => "external",
        }
    }

    /// The session has no process of it: it is only connected to it.
    pub(crate) fn is_apart(&self) -> bool {
        *self != Self::Session
    }
}

/// How to start one server. Everything is resolved: no variables are left.
#[derive(Debug, Clone)]
pub struct ServerSpec {
    /// Its name in the session.
    pub name: ServerName,
    /// Whose process it is; of a shared server.
    pub scope: Scope,
    /// As execvp(3) takes it; looked for in the `PATH` of `env`.
    pub program: CString,
    /// The arguments, `argv[0]` included.
    pub args: Vec<CString>,
    /// The whole environment, `NAME=VALUE`.
    pub env: Arc<[CString]>,
    /// The working directory; none takes the daemon's (or in direct mode the client's).
    pub cwd: Option<PathBuf>,
    /// The file mode creation mask; none takes the daemon's.
    pub umask: Option<u32>,
    /// Resource limits that are set; others are the daemon's.
    pub limits: Vec<ResourceLimit>,
    /// The nice value; none takes the daemon's.
    pub nice: Option<i32>,
    /// Signals that stay ignored; all others have their default dispositions.
    pub ignored_signals: Vec<i32>,
    /// Whom it runs as; none runs it as the daemon does.
    pub credentials: Option<Credentials>,
    /// Sets `no_new_privs` (prctl(2)).
    pub no_new_privs: bool,
    /// Most memory of its scope, in bytes, where the memory controller is there.
    pub memory_max: Option<u64>,
    /// Most processes of its scope, where the pids controller is there.
    pub pids_max: Option<u64>,
    /// Most calls in flight: more wait for their turn, those of an exclusive server are refused as `overloaded`. None: 64, and 4,096.
    pub max_in_flight: Option<usize>,
    /// What else holds for its calls; of a shared server.
    pub calls: CallTerms,
    /// How it is spoken to.
    pub mode: Mode,
    /// How the handshake with it begins.
    pub era: EraChoice,
    /// Its final failure fails the session.
    pub required: bool,
    /// Its end closes the session, also a normal one, though the session does not wait for its start.
    pub significant: bool,
    /// Its failed starts are counted over all sessions, and bounded by a breaker; of a server that is required.
    pub breaker: bool,
    /// When it is started again.
    pub restart: Restart,
    /// At most so many restarts …
    pub restart_intensity: u32,
    /// … in this time.
    pub restart_period: Duration,
    /// When it is asked whether it is still there; none: never. Of a shared server.
    pub health: Option<Health>,
    /// From launch to ready.
    pub start: Duration,
    /// From end of file to SIGTERM.
    pub stdin_grace: Duration,
    /// From SIGTERM to the kill.
    pub term_grace: Duration,
    /// What ends things that another daemon started on its behalf.
    pub stop_command: Option<StopCommand>,
    /// From the kill to quarantine.
    pub kill_wait: Duration,
    /// The longest line of the server, in bytes.
    pub max_line: usize,
}

/// A program that is run in each teardown of a server, as the server is: same user, environment and directory.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct StopCommand {
    /// The program and its arguments, at least one word; looked for in the `PATH` of the server's `env`.
    pub args: Vec<CString>,
    /// After this time it is killed; not zero.
    pub timeout: Duration,
}

impl ServerSpec {
    /// The limits of its calls, where it is shared.
    pub(crate) fn call_limits(&self) -> CallLimits {
        let usual = self.calls.limits();
        CallLimits { max_in_flight: self.max_in_flight.unwrap_or(usual.max_in_flight), ..usual }
    }

    /// That of a server of which no more is known, and which will not be started.
    pub(crate) fn unknown(name: ServerName, mode: Mode, kill_wait: Duration) -> Self {
        Self {
            name,
            scope: Scope::default(),
            program: CString::default(),
            args: Vec::new(),
            env: Arc::default(),
            cwd: None,
            umask: None,
            limits: Vec::new(),
            nice: None,
            ignored_signals: Vec::new(),
            credentials: None,
            no_new_privs: false,
            memory_max: None,
            pids_max: None,
            max_in_flight: None,
            calls: CallTerms::default(),
            mode,
            era: EraChoice::Auto,
            required: true,
            significant: false,
            breaker: false,
            restart: Restart::Temporary,
            restart_intensity: 0,
            restart_period: Duration::ZERO,
            health: None,
            start: Duration::ZERO,
            stdin_grace: Duration::ZERO,
            term_grace: Duration::ZERO,
            stop_command: None,
            kill_wait,
            max_line: 0,
        }
    }
}

/// What a direct session's client hands over. The descriptors' flags are the client's own and are never changed.
#[derive(Debug)]
pub struct DirectStreams {
    pub(crate) stdin: Option<OwnedFd>,
    pub(crate) stdout: Option<OwnedFd>,
    /// What is watched for the client's hang-up once the server has its own.
    pub(crate) copy: Option<OwnedFd>,
    /// The write end of a pipe that the client made for stderr, non-blocking; what does not fit is dropped.
    pub(crate) stderr: Option<OwnedFd>,
    /// The client's working directory, as an `O_PATH` descriptor.
    pub(crate) cwd: Option<OwnedFd>,
}

impl DirectStreams {
    /// The client's own stdin and stdout, both pipes or sockets; the write end of a pipe that it made for stderr; its working
    /// directory as an `O_PATH` descriptor.
    #[must_use]
    pub fn new(stdin: OwnedFd, stdout: OwnedFd, stderr: Option<OwnedFd>, cwd: Option<OwnedFd>) -> Self {
        Self { stdin: Some(stdin), stdout: Some(stdout), copy: None, stderr, cwd }
    }
}

impl OpenRequest {
    /// The server is born with its client's streams.
    pub(crate) fn is_direct(&self) -> bool {
        self.direct.is_some() && !self.is_relayed()
    }

    /// What it takes from the limits besides slots.
    pub(crate) fn quota(&self) -> Quota {
        let processes = self.servers.iter().filter(|server| !server.scope.is_apart()).count();
        let ladder = |server: &ServerSpec| {
            let stop_command = server.stop_command.as_ref().map_or(Duration::ZERO, |command| command.timeout);
            let rungs = [server.stdin_grace, server.term_grace, stop_command, server.kill_wait];
            rungs.into_iter().fold(Duration::ZERO, Duration::saturating_add)
        };
        let longest = self.servers.iter().map(ladder).max().unwrap_or_default();
        let lifetime = Lifetime {
            idle: self.limits.idle.map(|limit| limit.idle),
            ttl: self.limits.ttl,
            teardown: self.drain.saturating_add(longest),
        };
        let (profile, administrator) = (self.profile.clone(), self.administrator);
        Quota { profile, processes, administrator, shared: self.key.key.is_of_shared(), lifetime }
    }

    /// Its client's streams are relayed to the one server from its birth.
    pub(crate) fn is_relayed(&self) -> bool {
        self.direct.is_some() && self.servers.iter().any(|server| server.mode == Mode::Exclusive)
    }
}

/// What a session was made from, for when that changes. Its servers are the first of the session's.
#[derive(Debug, Clone)]
pub struct Origin {
    /// The profile's name.
    pub profile: String,
    /// Its arguments.
    pub args: BTreeMap<String, String>,
    /// Whom its servers run as; none runs them as the daemon does.
    pub credentials: Option<Credentials>,
    /// How many servers it gave.
    pub servers: usize,
}

/// A session to be opened.
#[derive(Debug)]
pub struct OpenRequest {
    /// Owner and key.
    pub key: KeyRef,
    /// The quota group.
    pub tenant: Option<Tenant>,
    /// The key of the session, of the same owner, that this one is closed before.
    pub parent: Option<SessionKey>,
    /// The profile that it is opened from.
    pub profile: Option<ProfileName>,
    /// Who opens it is an administrator.
    pub administrator: bool,
    /// Until when it waits for a slot, where there is none.
    pub queue: Option<Instant>,
    /// Is told the open's place in the queue, from 1; dropped when it waits there no more.
    pub position: Option<watch::Sender<usize>>,
    /// For `list` and batch closes.
    pub labels: BTreeMap<String, String>,
    /// Its servers, at least one; of a direct session exactly one.
    pub servers: Vec<ServerSpec>,
    /// The profile that the first of them come from.
    pub origin: Option<Origin>,
    /// How long admitted calls may take to finish at a close.
    pub drain: Duration,
    /// The client's own streams: of direct mode, or where the one server is exclusive, of a relay from its birth.
    pub direct: Option<DirectStreams>,
    /// What to do where the key is being torn down.
    pub if_closing: IfClosing,
    /// What to do where the key is open with the same definition.
    pub if_open: IfOpen,
    /// False: answered when admitted, and not cancelled when its requester goes.
    pub wait: bool,
    /// When the requester's patience ends.
    pub deadline: Option<Instant>,
    /// How the names of its servers' tools and prompts are published.
    pub prefix: Prefix,
    /// What holds for all its servers together.
    pub policy: Policy,
    /// What `show` tells: `none`, `connection`, `pid:N`.
    pub lease: String,
    /// The process whose end closes it.
    pub holder: Option<Holder>,
    /// What else ends it where nobody closes it.
    pub limits: Limits,
    /// What its token is to be, where it has one. Used by the open that begins the session.
    pub secret: Option<Secret>,
}
