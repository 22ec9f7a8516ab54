//! What requests are answered with. What can't be known is null. Readers pass over fields and words that they don't know.
//!
//! Points in time are RFC 3339 with milliseconds, in UTC.
use crate::error::ErrorObject;
use crate::message::Id;
use crate::names::{ApprovalId, ServerName, SessionKey, Tenant};
use crate::token::Token;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

mod certificate;
mod event;
mod frame;
mod signals;
mod words;

pub use certificate::{
    CloseReport, CloseResults, DrainCounts, EndedProcess, EndedServer, Exit, RemainingProcess, StartFailure,
    StopCommandEnd,
};
pub use event::{Event, EventNotification, EventsEnded, Subscribed};
pub use frame::Frame;
pub use words::{
    CloseOutcome, CloseReason, Containment, DaemonState, FrameDirection, FrameKind, Proof, ReloadOutcome,
    ServerMode, ServerState, SessionState, Stage,
};

/// Answer of `daemon/hello`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "HelloAnswer")]
pub struct Hello {
    /// The daemon's version.
    pub version: String,
    /// The version of this protocol that it speaks; see [`crate::PROTOCOL_VERSION`].
    pub protocol: u32,
    /// This run of the daemon.
    pub instance: String,
    /// The daemon's process.
    pub pid: u32,
}

/// Answer of `daemon/status`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "StatusAnswer")]
pub struct Status {
    /// The daemon's version.
    pub version: String,
    /// This run of the daemon.
    pub instance: String,
    /// Whether it admits sessions.
    pub state: DaemonState,
    /// How many sessions there are.
    pub sessions: SessionCounts,
    /// How many servers there are that sessions share; they take no slot of `sessions`.
    #[serde(default)]
    pub shared_servers: SharedCounts,
    /// How many processes they have.
    pub processes: Option<u64>,
    /// What holds them.
    pub containment: Containment,
    /// How long it has run.
    pub uptime_ms: u64,
    /// What it counted since it started.
    pub counters: BTreeMap<String, u64>,
    /// The daemon's process.
    #[serde(default)]
    pub pid: Option<u32>,
}

/// How many sessions there are, by phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SessionCounts {
    /// The sum of the next four.
    pub used: u64,
    /// Not ready yet.
    pub starting: u64,
    /// Open.
    pub live: u64,
    /// Being closed.
    pub dying: u64,
    /// Not closed in time.
    pub quarantined: u64,
    /// The most that `used` can be.
    pub limit: u64,
    /// Opens that wait for a slot; they are not in `used`.
    #[serde(default)]
    pub queued: u64,
}

/// How many servers of scope `daemon` there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct SharedCounts {
    /// Those that are not quarantined.
    pub used: u64,
    /// Those that could not be ended.
    pub quarantined: u64,
}

/// Answer of `daemon/drain`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Drained {
    /// Always `draining`.
    pub state: DaemonState,
}

/// Answer of `daemon/reload`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Reloaded {
    /// The file that was read; null where there is none, and the defaults hold.
    #[serde(default)]
    pub file: Option<String>,
    /// What has changed and holds now: names of keys, such as `daemon.max_sessions`, and of profiles, such as `profiles.coding`.
    #[serde(default)]
    pub applied: Vec<String>,
    /// What has changed and holds only after the daemon's restart.
    #[serde(default)]
    pub needs_restart: Vec<String>,
    /// What was done in the sessions that were opened from profiles which have changed, and in those that differed from their profiles.
    #[serde(default)]
    pub sessions: Vec<ReloadedSession>,
}

/// A session whose profile has changed, or that differed from it.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct ReloadedSession {
    /// Its key.
    pub key: SessionKey,
    /// Its generation.
    pub generation: u64,
    /// Who owns it.
    pub owner: Owner,
    /// The profile.
    pub profile: String,
    /// What became of each server of the profile, as it was and as it is.
    pub servers: Vec<ReloadedServer>,
    /// Why nothing of it was changed, where that is so.
    #[serde(default)]
    pub error: Option<ErrorObject>,
}

/// A server of a profile, in a session.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct ReloadedServer {
    /// Its name.
    pub name: ServerName,
    /// What was done.
    pub outcome: ReloadOutcome,
    /// Why it failed: the former server is in its place still, unless the message says otherwise.
    #[serde(default)]
    pub error: Option<ErrorObject>,
}

/// Answer of `daemon/shutdown`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ShutdownAnswer")]
pub struct Shutdown {
    /// Always `draining`.
    pub state: DaemonState,
    /// How many sessions could not be ended; null where the answer came before the end.
    pub quarantined: Option<u64>,
}

/// A session. Answer of `session/show`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Session {
    /// Its owner's name for it.
    pub key: SessionKey,
    /// Its number among those of its owner, in this run of the daemon.
    pub generation: u64,
    /// Its state.
    pub state: SessionState,
    /// Who owns it.
    pub owner: Owner,
    /// The quota group.
    pub tenant: Option<Tenant>,
    /// As they were given with the open.
    pub labels: BTreeMap<String, String>,
    /// The session that it is closed before.
    pub parent: Option<SessionKey>,
    /// When it was admitted.
    pub created_at: String,
    /// What ends it: `none`, `connection`, `pid:N`.
    pub lease: String,
    /// When its time to live is over; left out where it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// How many clients are attached.
    pub attached: Option<u64>,
    /// How many calls are in flight.
    pub in_flight: Option<u64>,
    /// How long no call was in flight and no client attached; null while there is one, or where that can't be known.
    #[serde(default)]
    pub idle_ms: Option<u64>,
    /// After how long of that it is closed; left out where it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_limit_ms: Option<u64>,
    /// It is parked then, and not closed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub parks: bool,
    /// How many calls wait for their turn, beyond those.
    #[serde(default)]
    pub queued: Option<u64>,
    /// How many calls are held for a person, beyond those.
    #[serde(default)]
    pub held: Option<u64>,
    /// How many calls and clients wait for its servers to be started again, beyond those; it was parked.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub waiting: u64,
    /// What holds its processes.
    pub containment: Containment,
    /// Its servers.
    pub servers: Vec<Server>,
    /// Why it failed, where it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<StartFailure>,
    /// What is left of it, where it is quarantined.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remaining: Vec<RemainingProcess>,
}

/// Who owns a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Owner {
    /// The user.
    pub uid: u32,
}

/// A server of a session.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Server {
    /// Its name.
    pub name: ServerName,
    /// Its state.
    pub state: ServerState,
    /// It is being added or removed, and none of the session's: its tools are not the session's. Left out where it is not so.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub aside: bool,
    /// How it is spoken to.
    pub mode: ServerMode,
    /// Whose its process is, where it is not the session's own: `daemon`, one for all sessions of the owner that name it; `external`,
    /// someone else's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// Of scope `daemon`, while it is used: the key by which the process itself is shown, for `show`, `ps`, `logs` and `kill`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<SessionKey>,
    /// How many sessions use it, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub users: Option<u64>,
    /// Its main process; null of one that someone else runs.
    pub pid: Option<u32>,
    /// How often it was started again.
    pub restarts: u32,
    /// `legacy` or `modern`.
    pub era: Option<String>,
    /// The MCP revision that was agreed on.
    pub protocol: Option<String>,
    /// How many tools it has.
    pub tools: Option<u64>,
    /// How many calls are in flight.
    pub in_flight: Option<u64>,
    /// How many calls wait for their turn; null of a server that is not shared.
    #[serde(default)]
    pub queued: Option<u64>,
    /// The last thing that went wrong.
    pub last_error: Option<String>,
    /// What it waits for.
    #[serde(default)]
    pub waits_for: Option<WaitsFor>,
    /// Lines of its stderr that are not kept any more, since newer ones came; left out where there are none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub stderr_dropped: u64,
    /// How it last failed, where it did: told by `session/show`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_failure: Option<StartFailure>,
    /// Its last frames, at most 256, oldest first: told by `session/show` with `frames`, unless they don't pass through the daemon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frames: Option<Vec<Frame>>,
}

/// What a server waits for.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct WaitsFor {
    /// In a word or two.
    pub what: String,
    /// For how long already.
    pub since_ms: u64,
    /// How long still; null: without end.
    pub left_ms: Option<u64>,
}

/// Answer of `session/open`: the session.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Opened {
    /// The session.
    #[serde(flatten)]
    pub session: Session,
    /// False: an open session was joined.
    pub created: bool,
    /// With this answer's first byte comes a descriptor (SCM_RIGHTS): writing `1` to it kills the server's scope. For the
    /// shim of a private daemon that died.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub kill_descriptor: bool,
    /// Whoever has it may be attached to this session, list its tools and call them, and nothing else, until nothing is left of it.
    /// Where `created`, and the session is not its client's alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<Token>,
}

/// Answer of `server/add` and `server/restart`: the server, which is ready.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct ServerChanged {
    /// The session's key.
    pub key: SessionKey,
    /// Its generation.
    pub generation: u64,
    /// The session's state now.
    pub state: SessionState,
    /// The server.
    pub server: Server,
}

/// Answer of `server/remove`: the server's part of the certificate; nothing of it is left.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct ServerRemoved {
    /// The session's key.
    pub key: SessionKey,
    /// Its generation.
    pub generation: u64,
    /// The session's state now.
    pub state: SessionState,
    /// By what it is known that nothing is left; null of one that was only detached: no process was the session's.
    pub proof: Option<Proof>,
    /// How it ended.
    pub server: EndedServer,
}

/// Answer of `session/attach`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Attached {
    /// The session's key.
    pub key: SessionKey,
    /// Its generation.
    pub generation: u64,
    /// The server; null where all shared servers of the session are one.
    pub server: Option<ServerName>,
    /// With `descriptors`: which side ended first; null while the conversation lasts.
    pub first_end: Option<ConversationEnd>,
}

/// A side of a conversation that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ConversationEnd {
    /// The client.
    Client,
    /// The server.
    Server,
}

/// Answer of `session/list`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Sessions {
    /// In the order of their keys.
    pub sessions: Vec<Session>,
    /// Opens that wait for a slot, in the order of their turns.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub queued: Vec<QueuedOpen>,
}

/// An open that waits for a slot.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct QueuedOpen {
    /// The key that it is to open.
    pub key: SessionKey,
    /// Whose session it will be.
    pub owner: Owner,
    /// Its quota group.
    pub tenant: Option<Tenant>,
    /// Its place among all that wait, those of other users included; the first is 1.
    pub position: u64,
}

/// Answer of `session/wait`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Waited {
    /// Which session.
    pub key: SessionKey,
    /// Which generation of it.
    pub generation: u64,
    /// Its state now.
    pub state: SessionState,
    /// False: the deadline came first.
    pub reached: bool,
    /// The certificate of a session that has ended.
    pub certificate: Option<CloseReport>,
}

/// Answer of `tool/list`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Tools {
    /// In the order of the servers, and as each tells them.
    pub tools: Vec<Tool>,
    /// Servers that do not run, and whose tools are left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub down: Vec<ServerDown>,
}

/// A server that can't be called now.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct ServerDown {
    /// Its name.
    pub name: ServerName,
    /// Its state.
    pub state: ServerState,
    /// When it is started again, where that is known.
    pub retry_after_ms: Option<u64>,
}

/// A tool.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Tool {
    /// The name to call it by.
    pub name: String,
    /// The server that has it.
    pub server: ServerName,
    /// A name for people.
    #[serde(default)]
    pub title: Option<String>,
    /// What it does.
    #[serde(default)]
    pub description: Option<String>,
    /// The JSON Schema of its arguments.
    #[serde(default, rename = "inputSchema")]
    pub input_schema: Value,
    /// What else the server tells of it.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// Answer of `process/list`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Processes {
    /// By session and server.
    pub processes: Vec<Process>,
}

/// A process of a session.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Process {
    /// Its id.
    pub pid: u32,
    /// Its parent's.
    pub ppid: u32,
    /// The session's key.
    pub session: SessionKey,
    /// The session's generation.
    #[serde(default)]
    pub generation: Option<u64>,
    /// The server that it belongs to.
    pub server: ServerName,
    /// Its command line.
    pub command: String,
    /// Resident memory.
    pub memory_bytes: Option<u64>,
    /// Processor time.
    pub cpu_ms: Option<u64>,
    /// It has left its server's process group.
    pub escaped: bool,
    /// `daemon` of a server that sessions share: its processes are listed with each session that uses it. Left out of any other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
}

/// Answer of `log/read`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct LogLines {
    /// From old to new; empty where they came as notifications.
    pub lines: Vec<LogLine>,
}

/// A line that a server wrote to stderr.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct LogLine {
    /// The server.
    pub server: ServerName,
    /// When it was read.
    pub at: String,
    /// The line, cut to 8 KiB, without its newline; what was not UTF-8 is replaced. Not escaped.
    pub text: String,
    /// How many lines were dropped just before this one.
    #[serde(default)]
    pub dropped: u64,
}

/// Parameters of the `log` notification.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct LogNotification {
    /// The `log/read` that it belongs to.
    #[serde(rename = "requestId")]
    pub request_id: Id,
    /// The line.
    pub line: LogLine,
}

/// Parameters of the daemon's `notifications/progress`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct ProgressNotification {
    /// The `tool/call` that it belongs to.
    #[serde(rename = "requestId")]
    pub request_id: Id,
    /// The parameters of the server's `notifications/progress`, as they came: `progress`, and perhaps `total` and `message`.
    pub progress: Box<RawValue>,
    /// How many were dropped just before this one, since they came too fast.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub dropped: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Answer of `approval/list`: in the order of sessions and age.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Approvals {
    /// The calls that are held.
    pub approvals: Vec<Approval>,
}

/// A tool call that is held for a person.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Approval {
    /// By which it is decided; unique among its owner's, in this run of the daemon.
    pub id: ApprovalId,
    /// The session's key.
    pub session: SessionKey,
    /// The session's generation.
    pub generation: u64,
    /// Whose it is.
    pub owner: Owner,
    /// The server that has the tool.
    pub server: ServerName,
    /// The tool, by the name under which it was called. Not escaped.
    pub tool: String,
    /// The beginning of the arguments as they came, JSON text of at most 4,096 bytes; null where there are none. Not escaped.
    pub arguments: Option<String>,
    /// The arguments are longer than what is told of them.
    pub arguments_cut: bool,
    /// How long it is held already.
    pub age_ms: u64,
    /// When it is denied for want of a decision.
    pub left_ms: u64,
}

/// Answer of `approval/decide`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct ApprovalDecided {
    /// Which call.
    pub id: ApprovalId,
    /// `approved` or `denied`.
    pub decision: String,
}
