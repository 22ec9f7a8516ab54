//! `session/open`: what a session is made of.
use crate::names::{Lease, ServerName, SessionKey, Tenant};
use crate::text::Text;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What to do where the key is still being closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum IfClosing {
    /// Wait until it is free.
    #[default]
    Wait,
    /// Refuse with `session_closing`.
    Fail,
}

/// What to do where the key is open with the same definition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum IfOpen {
    /// Answer with that session.
    #[default]
    Join,
    /// Refuse with `session_exists`.
    Fail,
}

/// What becomes of a session that is idle for too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnIdle {
    /// It is closed.
    #[default]
    Close,
    /// Its servers are stopped; it keeps its key and its slot, and the next call or client starts them again.
    Park,
}

/// How a server is spoken to, as far as a client can choose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// By the daemon, for any number of clients.
    Shared,
    /// By one client, relayed.
    Exclusive,
}

/// Whether a server that ended is started again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Restart {
    /// Always.
    Permanent,
    /// After a failure.
    Transient,
    /// Never.
    Temporary,
}

/// How names are published.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Prefix {
    /// As `SERVER__NAME` where several servers have the name.
    OnConflict,
    /// Always as `SERVER__NAME`.
    Always,
    /// As they are; of several servers that have one, the last has it.
    Never,
}

/// `session/open`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SessionOpen {
    /// Made up where left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<SessionKey>,
    /// The owner, where it is not the caller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<u32>,
    /// A profile of the daemon's configuration; its servers come before those of `servers`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// The profile's arguments, `${arg:NAME}`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub args: BTreeMap<String, String>,
    /// Commands of the client's own.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<ServerDefinition>,
    /// The environment of the client's own commands, whole: `NAME=VALUE`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub environment: Vec<Text>,
    /// Their working directory, absolute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<Text>,
    /// Their umask, 0 to 511 (0o777).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub umask: Option<u32>,
    /// Their resource limits.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resource_limits: Vec<ResourceLimit>,
    /// Their nice value, -20 to 19.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nice: Option<i32>,
    /// The signals that they are born ignoring, by number.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ignored_signals: Vec<i32>,
    /// The mode of the client's own commands that name none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// How the names of tools and prompts are published, where several servers are behind one endpoint; else the profile's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix: Option<Prefix>,
    /// Tools whose calls are held until a person approves them, besides the profile's: patterns in which `*` is any text and `?` any one
    /// character.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hold: Vec<String>,
    /// For `list` and `close`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The quota group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<Tenant>,
    /// The session that this one is closed before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<SessionKey>,
    /// What ends it.
    pub lease: Lease,
    /// Closes it this time after its admission; not zero.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<u64>,
    /// Closes it after this time without a call or a client; 0: never. The daemon's, or the profile's, where left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_ms: Option<u64>,
    /// What becomes of it then.
    pub on_idle: OnIdle,
    /// Its drain budget, where a close names none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drain_ms: Option<u64>,
    /// False: answers as soon as it is admitted, and goes on without its requester.
    pub wait: bool,
    /// Where there is no room: waits so long for a slot, in turn with other users and tenants, instead of being refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_ms: Option<u64>,
    /// Its place in that queue comes as `notifications/progress` (`position`), before the answer.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub progress: bool,
    /// Where the key is being closed.
    pub if_closing: IfClosing,
    /// Where the key is open.
    pub if_open: IfOpen,
    /// A retry with the same id gets the first one's answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// The requester's patience.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u64>,
    /// Direct mode: the one server is born with the client's own descriptors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub direct: Option<Direct>,
    /// The one server is exclusive, and the client's own descriptors are relayed to it from its birth. Its client's end is the
    /// session's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub relay: Option<Direct>,
}

impl Default for SessionOpen {
    fn default() -> Self {
        Self {
            key: None,
            user: None,
            profile: None,
            args: BTreeMap::new(),
            servers: Vec::new(),
            environment: Vec::new(),
            cwd: None,
            umask: None,
            resource_limits: Vec::new(),
            nice: None,
            ignored_signals: Vec::new(),
            mode: None,
            prefix: None,
            hold: Vec::new(),
            labels: BTreeMap::new(),
            tenant: None,
            parent: None,
            lease: Lease::None,
            ttl_ms: None,
            idle_ms: None,
            on_idle: OnIdle::default(),
            drain_ms: None,
            wait: true,
            queue_ms: None,
            progress: false,
            if_closing: IfClosing::default(),
            if_open: IfOpen::default(),
            request_id: None,
            deadline_ms: None,
            direct: None,
            relay: None,
        }
    }
}

/// A server that the client defines. What is left out is the daemon's default.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ServerDefinition {
    /// Unique in its session.
    pub name: ServerName,
    /// Program and arguments; run without a shell.
    #[schemars(length(min = 1))]
    pub command: Vec<Text>,
    /// Added to the environment.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, Text>,
    /// The working directory; a relative one counts from the client's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<Text>,
    /// How it is spoken to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// Its final failure fails the session; true where left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub required: Option<bool>,
    /// Its end closes the session, also a normal one, though the session does not wait for its start; false where left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub significant: Option<bool>,
    /// Whether it is started again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart: Option<Restart>,
    /// At most so many restarts …
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart_intensity: Option<u32>,
    /// … in this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart_period_ms: Option<u64>,
    /// It is asked whether it is still there when it was silent, and not busy, for so long; never where left out. Of a shared server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health_interval_ms: Option<u64>,
    /// How long it may take to give a sign of life then; 10 s where left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health_timeout_ms: Option<u64>,
    /// So often in a row without one, and it is ended and started again by its policy; 3 where left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health_misses: Option<u32>,
    /// From its launch until it is ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_ms: Option<u64>,
    /// From the end of its stdin to SIGTERM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdin_grace_ms: Option<u64>,
    /// From SIGTERM to the kill.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub term_grace_ms: Option<u64>,
    /// From the kill to quarantine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kill_wait_ms: Option<u64>,
    /// What the kernel enforces on all of its processes together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<Limits>,
}

impl ServerDefinition {
    /// A server with the daemon's defaults.
    #[must_use]
    pub fn new(name: ServerName, command: Vec<Text>) -> Self {
        Self {
            name,
            command,
            env: BTreeMap::new(),
            cwd: None,
            mode: None,
            required: None,
            significant: None,
            restart: None,
            restart_intensity: None,
            restart_period_ms: None,
            health_interval_ms: None,
            health_timeout_ms: None,
            health_misses: None,
            start_ms: None,
            stdin_grace_ms: None,
            term_grace_ms: None,
            kill_wait_ms: None,
            limits: None,
        }
    }
}

/// Limits of a server's scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Most memory, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Most processes and threads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processes: Option<u64>,
}

/// A resource limit as setrlimit(2) takes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ResourceLimit {
    /// The kernel's number of the resource.
    pub resource: u32,
    /// Null: none.
    pub soft: Option<u64>,
    /// Null: none.
    pub hard: Option<u64>,
}

/// Descriptors that come along.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Direct {
    /// What the descriptors are that were passed (SCM_RIGHTS) with this line's first byte, in their order. `stdin` and
    /// `stdout` must be among them.
    pub descriptors: Vec<Descriptor>,
}

/// A descriptor of the client's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Descriptor {
    /// The server's stdin: a pipe or a socket.
    Stdin,
    /// The server's stdout.
    Stdout,
    /// The write end of a pipe, non-blocking, that gets a copy of the server's stderr.
    Stderr,
    /// The working directory, opened with `O_PATH`.
    Cwd,
}
