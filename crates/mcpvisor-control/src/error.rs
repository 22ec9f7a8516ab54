//! The one table of errors: kind, JSON-RPC code, exit status.
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Deserializer;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::fmt;

/// A row of the table.
struct Row {
    kind: &'static str,
    code: i64,
    exit_status: u8,
    meaning: &'static str,
}

macro_rules! kinds {
    ($($variant:ident = $kind:literal, $code:literal, $exit:literal, $meaning:literal;)*) => {
        /// Why a request was not done.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum ErrorKind { $(#[doc = $meaning] $variant,)* }

        impl ErrorKind {
            /// All kinds, in the order of the documentation.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            const fn row(self) -> &'static Row {
                match self {
                    $(Self::$variant => &Row { kind: $kind, code: $code, exit_status: $exit, meaning: $meaning },)*
                }
            }

            /// The kind of this name.
            #[must_use]
            pub fn from_name(name: &str) -> Option<Self> {
                match name { $($kind => Some(Self::$variant),)* _ => None }
            }
        }
    };
}

// The codes of our own kinds lie outside the range that JSON-RPC keeps for itself, so that none can be mistaken for an
// MCP server's own error. A code is never given to another kind.
kinds! {
    InvalidRequest = "invalid_request", -32600, 2, "The request is malformed, or a value in it is not allowed.";
    NotFound = "not_found", 1001, 4, "No session of the caller has this key.";
    PermissionDenied = "permission_denied", 1002, 7, "The caller may not do this; or a tool call was held and not approved: `approval`, `decision` (`denied`, `timed_out`), `server`, `tool`.";
    SessionExists = "session_exists", 1003, 5, "The key is open with another definition, or `if_open` is `fail`.";
    SessionClosing = "session_closing", 1004, 5, "The session is being closed.";
    SessionClosed = "session_closed", 1005, 1, "The session was closed.";
    SessionFailed = "session_failed", 1006, 1, "The session failed.";
    StaleGeneration = "stale_generation", 1007, 1, "This generation of the key is over.";
    CapacityExhausted = "capacity_exhausted", 1008, 5, "A limit on sessions is reached: `used`, `limit`, `scope`, `retry_after_ms`.";
    Overloaded = "overloaded", 1009, 5, "Too many requests or calls are in flight or wait, or too many bytes of them. Of calls: `server`, `scope` (`queue`), `used`, `limit`, `in_flight`; `queue_timeout_ms` where it waited so long. What is refused so was not done.";
    Draining = "draining", 1010, 5, "The daemon admits nothing more.";
    StartFailed = "start_failed", 1011, 1, "A server could not be started: `server`, `reason`, `exit`, `stderr_tail`, `frames`; with the reason `breaker` also `breaker`, `last_reason`, `retry_after_ms`.";
    StartTimeout = "start_timeout", 1012, 1, "A server was not ready in time: `server`, `reason`, `exit`, `stderr_tail`, `frames`.";
    Cancelled = "cancelled", 1013, 1, "The request was cancelled.";
    DeadlineExceeded = "deadline_exceeded", 1014, 3, "The request's deadline passed first; or a server has not answered a call in time: `server`, `timeout` (`call_timeout` or `call_timeout_max`), `timeout_ms`.";
    ServerExited = "server_exited", 1015, 1, "The server ended before it answered, or does not run: `server`, `exit`, `stderr_tail`, `frames`, `retry_after_ms` where that is known.";
    Quarantined = "quarantined", 1016, 8, "Processes of the session could not be killed; the key stays blocked.";
    Unsupported = "unsupported", 1017, 1, "This can't be done here; the message says why.";
    ServerError = "server_error", 1018, 1, "The MCP server answered with an error of its own: `error`, as it came; or with what is no answer: `server`.";
    InvalidConfiguration = "invalid_configuration", 1020, 1, "The daemon's configuration is wrong: `problems` (line, column, message, help), `report`. The former one stays in force.";
    ServerExists = "server_exists", 1031, 5, "A server of the session has the name, though it may be one that is being removed.";
    ServerBusy = "server_busy", 1032, 5, "Another change of the same server is under way.";
    AlreadyDecided = "already_decided", 1030, 5, "The held call was decided before: `decision` (`approved`, `denied`, `timed_out`, `withdrawn`, `server_gone`, `closed`), which stands.";
    Internal = "internal", 1019, 1, "A defect of the daemon.";
}

impl ErrorKind {
    /// The kind's name on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        self.row().kind
    }

    /// The JSON-RPC code.
    #[must_use]
    pub const fn code(self) -> i64 {
        self.row().code
    }

    /// With what status a command ends that failed so.
    #[must_use]
    pub const fn exit_status(self) -> u8 {
        self.row().exit_status
    }

    /// What it means, in a sentence, for the documentation.
    #[must_use]
    pub const fn meaning(self) -> &'static str {
        self.row().meaning
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for ErrorKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// A kind that is not known, of a newer daemon, is read as [`ErrorKind::Internal`]; the message still says it.
impl<'de> Deserialize<'de> for ErrorKind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = Cow::<'de, str>::deserialize(deserializer)?;
        Ok(Self::from_name(&name).unwrap_or(Self::Internal))
    }
}

impl JsonSchema for ErrorKind {
    fn schema_name() -> Cow<'static, str> {
        "ErrorKind".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let kinds: Vec<_> = Self::ALL.iter().map(|kind| kind.as_str()).collect();
        json_schema!({ "type": "string", "enum": kinds })
    }
}

/// The `error` member of a response.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, thiserror::Error)]
#[error("{message}")]
pub struct ErrorObject {
    /// The code of the kind.
    pub code: i64,
    /// A sentence for people; it completes "failed to …: ".
    pub message: String,
    /// The kind, and what belongs to it.
    pub data: ErrorData,
}

/// The `data` member of an error.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ErrorData {
    /// Why.
    pub kind: ErrorKind,
    /// What belongs to the kind; also `key` and `generation` where a session is meant, and `help`, a sentence that names
    /// the mend.
    #[serde(flatten)]
    pub details: Map<String, Value>,
}

impl ErrorObject {
    /// An error of this kind.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { code: kind.code(), message: message.into(), data: ErrorData { kind, details: Map::new() } }
    }

    /// With one more detail. A value that can't be told in JSON is told as null.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Serialize) -> Self {
        self.data.details.insert(name.to_owned(), serde_json::to_value(value).unwrap_or(Value::Null));
        self
    }

    /// With the details of this value, which must be a struct or a map.
    #[must_use]
    pub fn with_all(mut self, value: impl Serialize) -> Self {
        if let Ok(Value::Object(details)) = serde_json::to_value(value) {
            self.data.details.extend(details.into_iter().filter(|(name, _)| name != "kind"));
        }
        self
    }

    /// Why.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.data.kind
    }

    /// A detail.
    #[must_use]
    pub fn detail(&self, name: &str) -> Option<&Value> {
        self.data.details.get(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn kinds_and_codes_are_unique_and_ours_are_outside_json_rpcs_range() {
        let mut codes = HashSet::new();
        for kind in ErrorKind::ALL {
            assert_eq!(ErrorKind::from_name(kind.as_str()), Some(*kind));
            assert!(codes.insert(kind.code()), "{kind}");
            assert!(
                *kind == ErrorKind::InvalidRequest || !(-32768..=-32000).contains(&kind.code()),
                "{kind}"
            );
        }
    }

    #[test]
    fn an_error_has_its_kind_and_details_in_data() {
        let error = ErrorObject::new(ErrorKind::CapacityExhausted, "full").with("used", 3).with("limit", 3);
        let json = serde_json::to_value(&error).unwrap();
        assert_eq!(
            json,
            serde_json::json!({"code":1008,"message":"full","data":{"kind":"capacity_exhausted","used":3,"limit":3}})
        );
        assert_eq!(serde_json::from_value::<ErrorObject>(json).unwrap(), error);
    }

    #[test]
    fn a_kind_of_the_future_is_tolerated() {
        let error: ErrorObject =
            serde_json::from_str(r#"{"code":1,"message":"m","data":{"kind":"tomorrow"},"x":1}"#).unwrap();
        assert_eq!(error.kind(), ErrorKind::Internal);
    }
}
