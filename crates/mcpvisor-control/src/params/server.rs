//! `server/add`, `server/remove`, `server/restart`: changes of a live session's servers. Those of one session are done one after the
//! other with its close, so that each is done wholly before that, or refused.
use super::{ResourceLimit, ServerDefinition};
use crate::names::{ServerName, SessionKey};
use crate::text::Text;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `server/add`: answers when the server is ready. One that fails leaves nothing; a requester that vanishes before the answer undoes it.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ServerAdd {
    /// Which session.
    pub key: SessionKey,
    /// Which generation of it; none is the current one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<u64>,
    /// Its owner, where it is not the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<u32>,
    /// The server. Its `required` is false where left out.
    pub server: ServerDefinition,
    /// Its environment, whole: `NAME=VALUE`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub environment: Vec<Text>,
    /// Its working directory, absolute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<Text>,
    /// Its umask, 0 to 511 (0o777).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub umask: Option<u32>,
    /// Its resource limits.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resource_limits: Vec<ResourceLimit>,
    /// Its nice value, -20 to 19.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nice: Option<i32>,
    /// The signals that it is born ignoring, by number.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ignored_signals: Vec<i32>,
    /// The same id again gives the first answer again, also while the first is still running and over another connection; 1 to 128 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// The requester's patience; an add that is not done by then is undone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u64>,
}

/// `server/remove`: the server's tools are gone at once; its calls in flight may finish; answers when nothing of it is left. Where
/// something can't be killed it is removed all the same, and a second remove tries the kill again.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ServerRemove {
    /// Which session.
    pub key: SessionKey,
    /// Which generation of it; none is the current one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<u64>,
    /// Its owner, where it is not the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<u32>,
    /// Which server.
    pub name: ServerName,
    /// How long its calls in flight may take to finish, instead of the session's drain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain_ms: Option<u64>,
    /// The requester's patience; the removal goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u64>,
}

/// `server/restart`: ends the server as a close does, starts it again, and answers when it is ready.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ServerRestart {
    /// Which session.
    pub key: SessionKey,
    /// Which generation of it; none is the current one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<u64>,
    /// Its owner, where it is not the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<u32>,
    /// Which server.
    pub name: ServerName,
    /// How long its calls in flight may take to finish, instead of the session's drain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain_ms: Option<u64>,
    /// The requester's patience; the restart goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u64>,
}
