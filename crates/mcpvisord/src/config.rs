//! The configuration: what may be set, with its defaults, and how a file becomes it.
pub(crate) mod expand;
mod hooks;
pub(crate) mod keys;
mod problem;
mod read;
mod scope;
mod source;
mod template;
mod units;
mod walk;

use mcpvisor_lifecycle::registry::RegistryConfig;
use mcpvisor_lifecycle::repeats::RepeatsConfig;
use mcpvisor_lifecycle::server::{Health, Mode, Restart};
use mcpvisor_lifecycle::{BreakerConfig, ProfileName, ServerName};
use mcpvisor_supervisor::{CallTerms, EraChoice, EventLimits, Policy, Prefix};
use std::collections::BTreeMap;
use std::ffi::CString;
use std::io::Read as _;
use std::path::Path;
use std::time::Duration;

pub(crate) use problem::Problems;
pub(crate) use source::Source;
pub(crate) use template::{Part, Template, Variable};

/// Everything that a configuration file says; the default is that of a daemon without one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Config {
    pub(crate) daemon: Daemon,
    pub(crate) timeouts: Timeouts,
    pub(crate) profiles: BTreeMap<String, Profile>,
    pub(crate) hooks: Vec<Hook>,
}

/// `[daemon]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Daemon {
    pub(crate) max_sessions: usize,
    pub(crate) max_sessions_per_user: usize,
    pub(crate) max_sessions_per_tenant: usize,
    /// Of `max_sessions`.
    pub(crate) reserved_for_administrators: usize,
    /// That servers are started as, one each.
    pub(crate) max_processes: usize,
    pub(crate) max_processes_per_session: usize,
    /// Opens that wait for a slot.
    pub(crate) max_queued_per_user: usize,
    pub(crate) when_full: WhenFull,
    /// For how long a session is idle before it may make room.
    pub(crate) evict_after: Duration,
    /// In bytes; of a server's line and of a control connection's.
    pub(crate) max_line: usize,
    /// In bytes; of all requests that are held.
    pub(crate) max_input: usize,
    pub(crate) max_input_per_user: usize,
    pub(crate) containment: Containment,
    pub(crate) tombstones: usize,
    pub(crate) tombstone_age: Duration,
    /// How many events are kept of each user.
    pub(crate) events: usize,
    /// In bytes; of each user's events.
    pub(crate) event_bytes: usize,
    pub(crate) breaker: Breaker,
    /// Of one user.
    pub(crate) request_ids: usize,
    pub(crate) request_id_age: Duration,
    /// Users, besides the daemon's own, whose clients may run commands of their own.
    pub(crate) allow_commands: Vec<u32>,
    /// Permission bits of the socket.
    pub(crate) socket_mode: u32,
    pub(crate) log_level: tracing::Level,
}

/// When a server whose starts fail is not started for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Breaker {
    pub(crate) of: BreakerOf,
    pub(crate) failures: u32,
    pub(crate) period: Duration,
    pub(crate) wait: Duration,
}

/// Whose servers have breakers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BreakerOf {
    Profiles,
    /// Also commands of the clients' own.
    All,
    Nobody,
}

impl BreakerOf {
    pub(crate) const WORDS: [(&'static str, Self); 3] =
        [("profiles", Self::Profiles), ("all", Self::All), ("off", Self::Nobody)];
}

impl Default for Breaker {
    fn default() -> Self {
        Self {
            of: BreakerOf::Profiles,
            failures: 5,
            period: Duration::from_secs(600),
            wait: Duration::from_secs(30),
        }
    }
}

/// Which containment is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Containment {
    Auto,
    Cgroup,
    Keeper,
}

/// What becomes of an open for which there is no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WhenFull {
    Refuse,
    /// A session of its own user that nobody uses makes room for it.
    Evict,
}

impl WhenFull {
    pub(crate) const WORDS: [(&'static str, Self); 2] = [("refuse", Self::Refuse), ("evict", Self::Evict)];
}

impl Containment {
    /// The words that name them, in the file and on the command line.
    pub(crate) const WORDS: [(&'static str, Self); 3] =
        [("auto", Self::Auto), ("cgroup", Self::Cgroup), ("keeper", Self::Keeper)];
}

/// `[timeouts]`, and the same at a profile and at a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Timeouts {
    /// From launch to ready; not zero.
    pub(crate) start: Duration,
    pub(crate) drain: Duration,
    pub(crate) stdin_grace: Duration,
    pub(crate) term_grace: Duration,
    pub(crate) kill_wait: Duration,
    /// Of sessions with shared servers; zero: none.
    pub(crate) idle: Duration,
    pub(crate) pin: Duration,
    /// How long a call may wait for its turn.
    pub(crate) queue_timeout: Duration,
    /// How long a server may take to answer a call; not zero, not longer than the next.
    pub(crate) call_timeout: Option<Duration>,
    /// The longest that progress may hold that off.
    pub(crate) call_timeout_max: Duration,
    /// How long a held call may wait for its approval; of a session.
    pub(crate) approval_timeout: Duration,
}

/// `[profiles.NAME]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Profile {
    /// The most sessions of it, of all users together; none: no limit of its own.
    pub(crate) max_sessions: Option<usize>,
    pub(crate) timeouts: Timeouts,
    /// How the names of the servers' tools and prompts are published.
    pub(crate) prefix: Prefix,
    /// What holds for all servers together.
    pub(crate) policy: Policy,
    /// In order of name; at least one.
    pub(crate) servers: Vec<Server>,
}

/// `[profiles.NAME.servers.NAME]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Server {
    pub(crate) name: ServerName,
    pub(crate) scope: Scope,
    /// None of one that someone else runs.
    pub(crate) command: Option<Template>,
    pub(crate) args: Vec<Template>,
    pub(crate) env: BTreeMap<String, Template>,
    pub(crate) cwd: Option<Template>,
    pub(crate) mode: Mode,
    pub(crate) era: EraChoice,
    pub(crate) required: bool,
    pub(crate) significant: bool,
    /// How a reload that changes it puts the new one in its place.
    pub(crate) replace: Replace,
    pub(crate) restart: RestartPolicy,
    pub(crate) health: Option<Health>,
    pub(crate) timeouts: Timeouts,
    /// Words, of which the first is the program; empty: none.
    pub(crate) stop_command: Vec<Template>,
    /// Not zero.
    pub(crate) stop_command_timeout: Duration,
    pub(crate) memory: Option<u64>,
    pub(crate) processes: Option<u64>,
    /// The most calls in flight; none: the default of its mode.
    pub(crate) max_in_flight: Option<usize>,
    /// The most calls that wait for their turn.
    pub(crate) max_queued: Option<usize>,
}

/// Whose process a server is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum Scope {
    #[default]
    Session,
    /// One for all sessions of an owner that name it.
    Daemon {
        /// How long it stays after the last of them.
        linger: Duration,
    },
    /// Someone else's.
    External { socket: Template },
}

/// `[[hooks]]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hook {
    pub(crate) name: String,
    /// Kinds of events, or beginnings of them with a `*` behind; at least one.
    pub(crate) on: Vec<String>,
    pub(crate) command: CString,
    pub(crate) args: Vec<CString>,
    pub(crate) env: BTreeMap<String, CString>,
    /// Not zero.
    pub(crate) timeout: Duration,
}

/// How a changed server takes the place of the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Replace {
    /// The new one is started and ready before the old one goes.
    #[default]
    StartFirst,
    /// Nothing is left of the old one before the new one is started.
    StopFirst,
}

/// When a server is started again, and how often at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RestartPolicy {
    pub(crate) when: Restart,
    pub(crate) intensity: u32,
    pub(crate) period: Duration,
}

impl Default for Daemon {
    fn default() -> Self {
        Self {
            max_sessions: 1000,
            max_sessions_per_user: 200,
            max_sessions_per_tenant: 200,
            reserved_for_administrators: 0,
            max_processes: 10_000,
            max_processes_per_session: 64,
            max_queued_per_user: 100,
            when_full: WhenFull::Refuse,
            evict_after: Duration::from_secs(10),
            max_line: 64 << 20,
            max_input: 256 << 20,
            max_input_per_user: 128 << 20,
            containment: Containment::Auto,
            tombstones: 1000,
            tombstone_age: Duration::from_secs(3600),
            events: 4096,
            event_bytes: 1 << 20,
            breaker: Breaker::default(),
            request_ids: 1000,
            request_id_age: Duration::from_secs(3600),
            allow_commands: Vec::new(),
            socket_mode: 0o600,
            log_level: tracing::Level::INFO,
        }
    }
}

impl Default for Timeouts {
    fn default() -> Self {
        let calls = CallTerms::default();
        Self {
            start: Duration::from_secs(30),
            drain: Duration::from_secs(5),
            stdin_grace: Duration::from_secs(2),
            term_grace: Duration::from_secs(3),
            kill_wait: Duration::from_secs(5),
            idle: Duration::from_secs(30 * 60),
            pin: Duration::from_secs(4 * 3600),
            queue_timeout: calls.queue_timeout,
            call_timeout: calls.call_timeout,
            call_timeout_max: calls.call_timeout_max,
            approval_timeout: Policy::default().approval_timeout,
        }
    }
}

impl Timeouts {
    /// What holds for the calls of a server with these.
    pub(crate) fn calls(&self, max_queued: Option<usize>) -> CallTerms {
        let Self { queue_timeout, call_timeout, call_timeout_max, .. } = *self;
        let max_queued = max_queued.unwrap_or(CallTerms::default().max_queued);
        CallTerms { max_queued, queue_timeout, call_timeout, call_timeout_max }
    }
}

impl Default for RestartPolicy {
    fn default() -> Self {
        Self { when: Restart::Transient, intensity: 5, period: Duration::from_secs(60) }
    }
}

/// What is left out of a server's health, once it has an interval.
pub(crate) const HEALTH_TIMEOUT: Duration = Duration::from_secs(10);
pub(crate) const HEALTH_MISSES: u32 = 3;

/// Why a configuration could not be loaded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LoadError {
    /// It could not be read.
    #[error("failed to read {path}: {cause}")]
    Read {
        /// As it was given.
        path: String,
        /// What the system said.
        cause: std::io::Error,
    },
    /// It says something wrong; the text is the whole report.
    #[error("{0}")]
    Wrong(Problems),
}

impl Config {
    /// Parses a text; `name` is what the errors call it.
    ///
    /// # Errors
    /// Every error that is in the text, at once.
    pub(crate) fn parse(name: &str, text: &str) -> Result<Self, Problems> {
        read::parse(text).map_err(|list| Problems::new(name, text, list))
    }

    /// Reads and parses a file.
    ///
    /// # Errors
    /// That it can't be read, or every error that is in it.
    pub(crate) fn load(path: &Path) -> Result<Self, LoadError> {
        let name = path.display().to_string();
        let bytes = read_file(path).map_err(|cause| LoadError::Read { path: name.clone(), cause })?;
        let text = String::from_utf8(bytes).map_err(|error| {
            let cause = std::io::Error::new(std::io::ErrorKind::InvalidData, error.utf8_error());
            LoadError::Read { path: name.clone(), cause }
        })?;
        Self::parse(&name, &text).map_err(LoadError::Wrong)
    }

    /// What is right by itself and can't be honoured by a daemon of this user.
    ///
    /// # Errors
    /// The reason, and the mend.
    pub(crate) fn can_be_honoured(&self) -> Result<(), (String, String)> {
        let me = rustix::process::geteuid().as_raw();
        match self.daemon.allow_commands.iter().find(|uid| me != 0 && **uid != me) {
            None => Ok(()),
            Some(uid) => Err((
                format!(
                    "allow_commands names uid {uid}, and this daemon runs as uid {me}: it can't run commands as others"
                ),
                "run the daemon as root, or take the uid out".to_owned(),
            )),
        }
    }

    /// The part that the registry goes by.
    pub(crate) fn registry(&self) -> RegistryConfig {
        RegistryConfig {
            max_sessions: self.daemon.max_sessions,
            max_sessions_per_user: self.daemon.max_sessions_per_user,
            max_sessions_per_tenant: self.daemon.max_sessions_per_tenant,
            max_sessions_per_profile: self.profile_limits(),
            reserved_for_administrators: self.daemon.reserved_for_administrators,
            max_processes: self.daemon.max_processes,
            max_processes_per_session: self.daemon.max_processes_per_session,
            max_queued_per_user: self.daemon.max_queued_per_user,
            evict_after: match self.daemon.when_full {
                WhenFull::Refuse => None,
                WhenFull::Evict => Some(self.daemon.evict_after),
            },
            tombstones: self.daemon.tombstones,
            tombstone_age: self.daemon.tombstone_age,
            breaker: BreakerConfig {
                failures: self.daemon.breaker.failures,
                period: self.daemon.breaker.period,
                wait: self.daemon.breaker.wait,
            },
        }
    }

    /// How much is kept of what has happened.
    pub(crate) fn events(&self) -> EventLimits {
        EventLimits { events: self.daemon.events, bytes: self.daemon.event_bytes }
    }

    fn profile_limits(&self) -> BTreeMap<ProfileName, usize> {
        let limited = self.profiles.iter().filter_map(|(name, profile)| Some((name, profile.max_sessions?)));
        limited.filter_map(|(name, limit)| Some((ProfileName::new(name).ok()?, limit))).collect()
    }

    /// How the answers of requests with an id are remembered.
    pub(crate) fn repeats(&self) -> RepeatsConfig {
        RepeatsConfig {
            per_user: self.daemon.request_ids,
            age: self.daemon.request_id_age,
            grace: RETRY_GRACE,
        }
    }
}

/// How long an open with a request id, whose requester has vanished, waits for a retry.
const RETRY_GRACE: Duration = Duration::from_secs(10);

/// The most that is read of a configuration, in bytes: a file may have no end.
const LARGEST_FILE: u64 = 16 << 20;

fn read_file(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(LARGEST_FILE + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LARGEST_FILE {
        let text = format!("it has more than {} MiB", LARGEST_FILE >> 20);
        return Err(std::io::Error::new(std::io::ErrorKind::FileTooLarge, text));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests;
