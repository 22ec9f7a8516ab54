//! What requests carry. Unknown fields are errors that name the field. Durations are whole milliseconds; a
//! `deadline_ms` counts from the moment that the daemon has read the request.
//!
//! `user` names another owner's sessions by uid; only administrators may use it.
use crate::message::Id;
use crate::names::{ApprovalId, ServerName, SessionKey};
use crate::token::Token;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

mod open;
mod server;

pub use open::{
    Descriptor, Direct, IfClosing, IfOpen, Limits, Mode, OnIdle, Prefix, ResourceLimit, Restart,
    ServerDefinition, SessionOpen,
};

pub use server::{ServerAdd, ServerRemove, ServerRestart};

/// `notifications/cancelled`: the answer of this request is not wanted any more.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Cancelled {
    /// The request's id.
    #[serde(rename = "requestId")]
    pub request_id: Id,
}

/// `daemon/hello`.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Hello {
    /// Who asks, for the daemon's log: a name and a version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
}

/// `daemon/status`.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Status {}

/// `daemon/drain`: admits nothing more; sessions that exist go on.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Drain {}

/// `daemon/reload`. Goes on without its requester.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Reload {
    /// The requester's patience.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u64>,
}

/// `daemon/shutdown`: tears down every session, then the daemon ends. A second one only raises the urgency.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Shutdown {
    /// Skips the drain.
    pub now: bool,
    /// Answers when the teardown is complete, as the daemon's last word; else at once.
    pub wait: bool,
    /// The requester's patience.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u64>,
}

impl Default for Shutdown {
    fn default() -> Self {
        Self { now: false, wait: true, deadline_ms: None }
    }
}

/// `session/close`: drains, tears down, and answers when everything is reaped.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SessionClose {
    /// Which session.
    pub key: SessionKey,
    /// Which generation of it; none is the current one. An ended one gives its certificate again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<u64>,
    /// Its owner, where it is not the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<u32>,
    /// The drain's budget, instead of the session's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain_ms: Option<u64>,
    /// Skips the drain.
    #[serde(default)]
    pub now: bool,
    /// False: answers as soon as the teardown has begun.
    #[serde(default = "yes")]
    pub wait: bool,
    /// A retry with the same id gets the first one's answer, whatever has the key by then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// The requester's patience; the teardown goes on after it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u64>,
}

fn yes() -> bool {
    true
}

/// What is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Goal {
    /// Everything of it is reaped.
    #[default]
    Closed,
    /// Its required servers are ready.
    Ready,
}

/// `session/wait`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SessionWait {
    /// Which session.
    pub key: SessionKey,
    /// Which generation of it; none is the current one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<u64>,
    /// Its owner, where it is not the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<u32>,
    /// What for.
    #[serde(default, rename = "for")]
    pub goal: Goal,
    /// Answers with `reached: false` after this time; 0 asks and does not wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u64>,
}

/// `session/list`: the caller's sessions.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SessionList {
    /// Another user's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<u32>,
    /// Everyone's; administrators only.
    pub all_users: bool,
}

/// `session/show`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SessionShow {
    /// Which session.
    pub key: SessionKey,
    /// Which generation of it; none is the current one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<u64>,
    /// Its owner, where it is not the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<u32>,
    /// Also the heads of each server's last frames.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub frames: bool,
}

/// `session/attach`: speaks MCP with the session's shared servers as one, with one of them, or with an exclusive server, whose one client
/// it is then. After the answer the connection carries MCP, and no
/// other request may be in flight on it. With `descriptors` the client's own are used instead, and the answer comes when the server is
/// gone and the client has everything.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SessionAttach {
    /// Which session.
    pub key: SessionKey,
    /// Which generation of it; none is the current one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<u64>,
    /// Its owner, where it is not the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<u32>,
    /// Which server; left out, all shared ones, or with `exclusive` the only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<ServerName>,
    /// As the one client of an exclusive server.
    #[serde(default)]
    pub exclusive: bool,
    /// The session's token: the owner and the generation are those that it names, whoever the caller is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<Token>,
    /// The end of this client closes the session, and revokes its token.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub close_on_detach: bool,
    /// `stdin` and `stdout`, in the order of the descriptors that were passed (SCM_RIGHTS) with this line's first byte.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub descriptors: Option<Vec<Descriptor>>,
    /// The requester's patience until the conversation begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u64>,
}

/// `session/kill`: tries the kill of a quarantined session again; answers like a close.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SessionKill {
    /// Which session.
    pub key: SessionKey,
    /// Which generation of it; none is the current one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<u64>,
    /// Its owner, where it is not the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<u32>,
    /// The requester's patience.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u64>,
}

/// `tool/list`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ToolList {
    /// Which session.
    pub key: SessionKey,
    /// Which generation of it; none is the current one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<u64>,
    /// Its owner, where it is not the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<u32>,
    /// The session's token: the owner and the generation are those that it names, whoever the caller is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<Token>,
    /// The requester's patience.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u64>,
}

/// `tool/call`. Cancelling the request cancels the call at the server.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ToolCall {
    /// Which session.
    pub key: SessionKey,
    /// Which generation of it; none is the current one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<u64>,
    /// Its owner, where it is not the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<u32>,
    /// The server that has the tool; needed only where several could be meant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<ServerName>,
    /// The tool's name.
    pub tool: String,
    /// The tool's arguments, an object; passed on as they came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Box<RawValue>>,
    /// The requester's patience.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u64>,
    /// What the server tells of the call's progress comes as `notifications/progress`, before the answer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub progress: bool,
    /// The session's token: the owner and the generation are those that it names, whoever the caller is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<Token>,
}

/// `approval/list`: the tool calls that are held for a person.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ApprovalList {
    /// Whose, where it is not the caller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<u32>,
    /// Everybody's; for administrators.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub all_users: bool,
}

/// What is decided on a held call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// It goes on.
    Approve,
    /// It is answered with an error.
    Deny,
}

/// `approval/decide`: decides a held call, once.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ApprovalDecide {
    /// Which one, as `approval/list` tells it.
    pub id: ApprovalId,
    /// What.
    pub decision: Decision,
    /// Why it is denied, told to who made the call; at most 1,024 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The sessions' owner, where it is not the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<u32>,
}

/// `process/list`: of one session, or of all of the caller's.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ProcessList {
    /// One session's only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<SessionKey>,
    /// Which generation of it; none is the current one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation: Option<u64>,
    /// Another user's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<u32>,
    /// Everyone's; administrators only.
    pub all_users: bool,
}

/// `log/read`. With `follow`, every line comes as a `log` notification, and the answer, without lines, when the session has
/// ended.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LogRead {
    /// Which session.
    pub key: SessionKey,
    /// Which generation of it; none is the current one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<u64>,
    /// Its owner, where it is not the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<u32>,
    /// One server's only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<ServerName>,
    /// At most so many of the last lines; the daemon's whole store where left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lines: Option<u64>,
    /// Also what comes.
    #[serde(default)]
    pub follow: bool,
}

/// `event/subscribe`: a user's events, or those of one session. Answered at once; then each event comes as an `event` notification, until
/// `event/ended`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct EventSubscribe {
    /// From this number on, as far as they are kept; left out, from now on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<u64>,
    /// One session's only. What follows ends behind its last event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<SessionKey>,
    /// Which generation of it; left out, of all, and it is the current one that is followed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation: Option<u64>,
    /// Another user's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<u32>,
    /// False: only what there is by now, in the answer.
    pub follow: bool,
}

impl Default for EventSubscribe {
    fn default() -> Self {
        Self { since: None, key: None, generation: None, user: None, follow: true }
    }
}
