//! What is told of sessions, servers and processes.
use super::failure::StartFailure;
use mcpvisor_lifecycle::registry::Counts;
use mcpvisor_lifecycle::server::{Mode, ServerState, Stage};
use mcpvisor_lifecycle::session::{CloseReason, SessionState};
use mcpvisor_lifecycle::{Generation, HoldNumber, RequestId, ServerName, SessionKey, Tenant, Uid};
use mcpvisor_process::{ContainmentKind, Exit, ProcessRecord};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// A session, for `show` and `list`.
#[derive(Debug, Clone)]
pub struct SessionView {
    /// Its owner's name for it.
    pub key: SessionKey,
    /// Its number among its owner's.
    pub generation: Generation,
    /// Its owner.
    pub owner: Uid,
    /// Its public state.
    pub state: SessionState,
    /// Its quota group.
    pub tenant: Option<Tenant>,
    /// The key of the session that it was opened below.
    pub parent: Option<SessionKey>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// When it was admitted.
    pub created_at: SystemTime,
    /// `none`, `connection` or `pid:N`.
    pub lease: String,
    /// When its time to live is over.
    pub expires_at: Option<SystemTime>,
    /// Clients attached; none where that can't be known.
    pub attached: Option<usize>,
    /// Calls in flight; none where they don't pass through the daemon.
    pub in_flight: Option<usize>,
    /// How long no call was in flight and no client attached; none while there is one, and where that can't be known.
    pub idle_for: Option<Duration>,
    /// After how long of that it is closed.
    pub idle: Option<Duration>,
    /// It is parked then, and not closed.
    pub parks: bool,
    /// It is parked: its servers are stopped, or about to be, until someone calls it.
    pub parked: bool,
    /// Calls that wait for their turn, beyond those; none likewise.
    pub queued: Option<usize>,
    /// Calls that are held for a person, beyond those; none likewise.
    pub held: Option<usize>,
    /// Calls and clients that wait for its servers to be started again, after it was parked.
    pub waiting: usize,
    /// What contains its processes.
    pub containment: ContainmentKind,
    /// Its servers, as defined.
    pub servers: Vec<ServerView>,
    /// The newest report: of a quarantine, or the final one.
    pub certificate: Option<Arc<Certificate>>,
}

/// What became of a change of a session's servers.
#[derive(Debug, Clone)]
pub struct Changed {
    /// The session.
    pub session: SessionView,
    /// The server that was added, started again, or put in another's place.
    pub server: Option<ServerView>,
    /// The end of the server that was removed.
    pub certificate: Option<ServerCertificate>,
    /// By which proof nothing of that one is left; none where there was nothing.
    pub proof: Option<Proof>,
    /// What was asked.
    pub(crate) request: RequestId,
}

/// A server of a session, for `show`.
#[derive(Debug, Clone)]
pub struct ServerView {
    /// Its name.
    pub name: ServerName,
    /// `session`, `daemon` or `external`.
    pub scope: &'static str,
    /// The key of the session that has its process, where it is shared with other sessions and used now.
    pub host: Option<SessionKey>,
    /// How many sessions use it, likewise.
    pub users: Option<usize>,
    /// False: it is being added or removed, and none of the session's.
    pub member: bool,
    /// Its public state.
    pub state: ServerState,
    /// How it is spoken to.
    pub mode: Mode,
    /// Its main process.
    pub pid: Option<u32>,
    /// Launches after the first.
    pub restarts: u32,
    /// `legacy` or `modern`, once negotiated.
    pub era: Option<&'static str>,
    /// The revision, once negotiated.
    pub protocol: Option<String>,
    /// How many tools it has, once listed.
    pub tools: Option<usize>,
    /// Calls in flight.
    pub in_flight: Option<usize>,
    /// Calls that wait for their turn; none of a server that is not shared.
    pub queued: Option<usize>,
    /// Why it last failed.
    pub last_error: Option<String>,
    /// What its state waits for.
    pub waits_for: Option<Waits>,
    /// Lines of its stderr that are not kept any more, since newer ones came.
    pub stderr_dropped: u64,
    /// How it last failed, and what was said before: told where one session is asked for.
    pub failure: Option<StartFailure>,
    /// The last frames, where they were asked for and pass through the daemon.
    pub frames: Option<Vec<Frame>>,
}

/// A tool call that is held for a person.
#[derive(Debug, Clone)]
pub struct ApprovalView {
    /// Its session.
    pub key: SessionKey,
    /// Whose.
    pub owner: Uid,
    /// The session's generation; with the number it names the call.
    pub generation: Generation,
    /// Its number in the session.
    pub number: HoldNumber,
    /// The server that has the tool.
    pub server: ServerName,
    /// The tool, by the name under which it was called. Not escaped.
    pub tool: String,
    /// The beginning of the arguments as they came, at most 4,096 bytes; none where there are none. Not escaped.
    pub arguments: Option<String>,
    /// The arguments are longer.
    pub cut: bool,
    /// Since it is held.
    pub age: Duration,
    /// Until it is denied for want of a decision.
    pub left: Duration,
}

/// A frame that went to or came from a server; nothing of what it said.
#[derive(Debug, Clone)]
pub struct Frame {
    /// When its end had come.
    pub at: SystemTime,
    /// Where it went.
    pub to_server: bool,
    /// What it was.
    pub kind: FrameKind,
    /// Its method; of an answer the request's, where that is known. Cut to 64 bytes, not escaped.
    pub method: Option<String>,
    /// Its id as JSON text, cut to 30 bytes.
    pub id: Option<String>,
    /// Its size.
    pub bytes: u64,
    /// Of an answer: since its request.
    pub latency: Option<Duration>,
}

/// What a frame was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameKind {
    /// Wants an answer.
    Request,
    /// Wants none.
    Notification,
    /// An answer.
    Response,
    /// An array of messages.
    Batch,
    /// No message.
    Noise,
    /// Over the longest line.
    TooLong,
    /// A message of none of these kinds.
    Other,
}

/// What a state waits for.
#[derive(Debug, Clone)]
pub struct Waits {
    /// In words.
    pub what: Cow<'static, str>,
    /// For how long already.
    pub since: Duration,
    /// For how long still; none waits without a bound.
    pub left: Option<Duration>,
}

/// How a close ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing is left, by proof.
    Closed,
    /// The kill's budget ran out with something left.
    Quarantined,
    /// The teardown has begun (nobody waited for it).
    Stopping,
}

/// By whose word nothing is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proof {
    /// The cgroup is empty.
    Cgroup,
    /// The keeper has no child.
    Keeper,
    /// None; a search found nothing, or something is left.
    None,
}

/// The death certificate.
#[derive(Debug, Clone)]
pub struct Certificate {
    /// The session's key.
    pub key: SessionKey,
    /// Its generation.
    pub generation: Generation,
    /// How the close ended.
    pub outcome: Outcome,
    /// The session's state with it.
    pub state: SessionState,
    /// By whose word; none where it had no server of its own, and so no process.
    pub proof: Option<Proof>,
    /// Why it was closed.
    pub reason: CloseReason,
    /// What became of the calls that were in flight at the close; none where they don't pass through the daemon.
    pub drained: Option<Drained>,
    /// From the close to this certificate.
    pub duration: Duration,
    /// Its servers, as defined.
    pub servers: Vec<ServerCertificate>,
    /// What is left of a quarantined session: pid and command.
    pub remaining: Vec<(u32, String)>,
    /// From the last process's exit to the moment that this was written.
    pub acknowledged_after: Option<Duration>,
    /// Why the session failed, where it did.
    pub failure: Option<StartFailure>,
}

/// Calls that were in flight at a close.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drained {
    /// They had their results.
    pub finished: u64,
    /// They were given up.
    pub cancelled: u64,
}

/// One server in a certificate.
#[derive(Debug, Clone)]
pub struct ServerCertificate {
    /// Its name.
    pub name: ServerName,
    /// The rung in force when its main process ended.
    pub stage: Stage,
    /// How its main process ended; none where there was none.
    pub exit: Option<Exit>,
    /// From the begin of its teardown to the last reap.
    pub duration: Duration,
    /// Those seen during the teardown, and those that were reaped.
    pub processes: Vec<ProcessRecord>,
    /// Most memory that its scope had, where that is known.
    pub peak_memory_bytes: Option<u64>,
    /// Processor time of its scope, where that is known.
    pub cpu: Option<Duration>,
    /// How its stop command ended, where one was run.
    pub stop_command: Option<StopCommandEnd>,
    /// It did not end: the session is only not connected to it any more. Then nothing above says anything.
    pub detached: Option<Detached>,
}

/// A server that a session has left, and that is not the session's to end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Detached {
    /// `daemon` or `external`.
    pub scope: &'static str,
    /// The key of the session that has its process, of one that sessions share.
    pub host: Option<SessionKey>,
    /// How many other sessions used it then, likewise.
    pub users: Option<usize>,
}

/// How a server's stop command ended. Nothing of it is left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StopCommandEnd {
    /// How its main process did; none where there was none.
    pub exit: Option<Exit>,
    /// It had used up its budget.
    pub killed: bool,
    /// Why it could not be started.
    pub message: Option<String>,
    /// From its launch to its last reap.
    pub duration: Duration,
    /// The end of its stderr; what is not UTF-8 is replaced. Not escaped.
    pub stderr_tail: String,
}

/// A wait's answer.
#[derive(Debug, Clone)]
pub struct Waited {
    /// The session's key.
    pub key: SessionKey,
    /// Its generation.
    pub generation: Generation,
    /// Its state.
    pub state: SessionState,
    /// False: the deadline came first.
    pub reached: bool,
    /// The certificate, where there is one.
    pub certificate: Option<Arc<Certificate>>,
}

/// A tool.
#[derive(Debug, Clone)]
pub struct ToolView {
    /// Its published name.
    pub name: String,
    /// Whose it is.
    pub server: ServerName,
    /// The tool as the server tells it, whole.
    pub raw: Arc<RawValue>,
}

/// The tools of a session.
#[derive(Debug, Clone)]
pub struct ToolsView {
    /// Those of the servers that run.
    pub tools: Vec<ToolView>,
    /// Shared servers that do not.
    pub down: Vec<Down>,
}

/// A server that can't be called now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Down {
    /// Which one.
    pub server: ServerName,
    /// Its state.
    pub state: ServerState,
    /// When it is started again, where that is known.
    pub retry_after: Option<Duration>,
}

/// A line of a server's stderr.
#[derive(Debug, Clone)]
pub struct LogLine {
    /// Whose.
    pub server: ServerName,
    /// When it was read.
    pub at: SystemTime,
    /// As the server wrote it, without the newline, at most 8 KiB. Not escaped.
    pub bytes: Vec<u8>,
    /// Lines dropped just before this one.
    pub dropped: u64,
}

/// A process of a session.
#[derive(Debug, Clone)]
pub struct ProcessView {
    /// Its pid.
    pub pid: u32,
    /// Its parent's.
    pub ppid: u32,
    /// The session's key.
    pub key: SessionKey,
    /// The session's generation.
    pub generation: Generation,
    /// The server that it belongs to.
    pub server: ServerName,
    /// `session`; `daemon` of one that sessions share, which is told of each that uses it.
    pub scope: &'static str,
    /// Its command line.
    pub command: String,
    /// Its resident memory.
    pub memory_bytes: u64,
    /// Its processor time.
    pub cpu: Duration,
    /// It has left its server's process group.
    pub escaped: bool,
}

/// The daemon as a whole.
#[derive(Debug, Clone)]
pub struct StatusView {
    /// How many sessions there are.
    pub counts: Counts,
    /// Nothing more is admitted.
    pub draining: bool,
    /// Live processes of all sessions.
    pub processes: usize,
    /// What contains processes.
    pub containment: ContainmentKind,
    /// Since the start of the supervision tree.
    pub uptime: Duration,
    /// What has happened since then.
    pub counters: BTreeMap<&'static str, u64>,
}
