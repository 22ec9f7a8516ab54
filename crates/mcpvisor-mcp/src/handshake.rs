//! What a server's answers to the handshake mean.
//!
//! `initialize` is sent first: servers of both eras lock to the first that they see, and legacy clients are the many. A server
//! that refuses it as one of the modern era would is asked with `server/discover`. One that is known to be modern is asked the other way round.
use crate::listing::ListKind;
use crate::text::printable;
use crate::version::{Era, EraChoice, LEGACY, MODERN, OFFERED};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use std::sync::Arc;

/// How much of a server's text an error shows, in characters.
const SHOWN: usize = 1000;
/// MCP: the protocol version is not supported; `data.supported` says which are.
const UNSUPPORTED_VERSION: i64 = -32022;
/// With these codes a server of the modern era may refuse `initialize`: unsupported version, unknown method, invalid request
/// (there was no modern `_meta`), invalid parameters.
const MODERN_REFUSALS: [i64; 4] = [UNSUPPORTED_VERSION, -32601, -32600, -32602];

/// What was agreed with the server.
#[derive(Debug, Clone)]
pub struct Negotiated {
    /// How it is spoken to.
    pub era: Era,
    /// The protocol's revision.
    pub protocol: Arc<str>,
    /// What it says that it has.
    pub offers: Offers,
    /// Its own name and version, where it told them; made printable.
    pub server: Option<(String, String)>,
    /// Its answer, untouched: the result of `initialize`, or of `server/discover`.
    pub raw: Arc<RawValue>,
}

/// What a server says that it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Offers {
    /// Tools.
    pub tools: bool,
    /// Prompts.
    pub prompts: bool,
    /// Resources and templates of them.
    pub resources: bool,
    /// A client may subscribe to a resource.
    pub subscribe: bool,
    /// It sends messages of its log.
    pub logging: bool,
    /// It completes arguments.
    pub completions: bool,
}

impl Offers {
    /// Whether it has what is listed.
    #[must_use]
    pub fn lists(self, kind: ListKind) -> bool {
        match kind {
            ListKind::Tools => self.tools,
            ListKind::Prompts => self.prompts,
            ListKind::Resources | ListKind::Templates => self.resources,
        }
    }
}

/// Why a server can't be spoken to.
#[derive(Debug, Clone, thiserror::Error)]
pub enum HandshakeError {
    /// It answered with an error.
    #[error("the server refused the handshake: {message} (code {code})")]
    Refused {
        /// JSON-RPC's error code.
        code: i64,
        /// The server's message, made printable.
        message: String,
        /// The server's `data`, as it came.
        data: Option<Box<RawValue>>,
    },
    /// It refused one era after the other: perhaps since it had locked on the wrong one, which a new process would not have. Why it
    /// refused `initialize`.
    #[error("{0}")]
    Locked(Box<HandshakeError>),
    /// No revision is known to both.
    #[error("no common protocol version: the server answered {answered}, mcpvisor offered {offered}")]
    Version {
        /// What we offered, and for a legacy server what else would have done.
        offered: String,
        /// What the server answered, made printable.
        answered: String,
    },
    /// Its answer is not what the protocol says.
    #[error("the server's answer to the handshake is not valid: {0}")]
    BadAnswer(String),
    /// Its answer was over the line cap.
    #[error("the server's answer to the handshake has {bytes} bytes, more than the longest line of {cap}")]
    TooLong {
        /// The line's length.
        bytes: u64,
        /// The cap.
        cap: u64,
    },
    /// Its output ended before it answered.
    #[error("the server ended before it answered the handshake")]
    ServerExited,
    /// It is being stopped.
    #[error("the handshake was given up: {0}")]
    Settled(Arc<str>),
    /// What was to be written could not be queued: the server reads nothing.
    #[error("the server does not read its input")]
    Overloaded,
}

/// What follows from an answer.
#[derive(Debug)]
pub(crate) enum Step {
    Done(Negotiated),
    Failed(HandshakeError),
    /// Ask with `server/discover` at this revision; if that fails too, this error is told.
    Discover(&'static str, HandshakeError),
    /// Ask with `initialize`, after `server/discover` was refused.
    Initialize,
}

/// An error object of JSON-RPC.
#[derive(Deserialize)]
pub(crate) struct RpcError {
    pub(crate) code: i64,
    #[serde(default)]
    pub(crate) message: String,
    pub(crate) data: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
struct InitializeResult<'a> {
    #[serde(borrow, rename = "protocolVersion")]
    protocol_version: std::borrow::Cow<'a, str>,
    #[serde(default)]
    capabilities: Capabilities,
    #[serde(rename = "serverInfo")]
    server_info: Option<serde_json::Value>,
}

#[derive(Deserialize)]
struct DiscoverResult {
    #[serde(rename = "supportedVersions", default)]
    supported_versions: Vec<String>,
    #[serde(default)]
    capabilities: Capabilities,
    _meta: Option<DiscoverMeta>,
    #[serde(rename = "serverInfo")]
    server_info: Option<serde_json::Value>,
}

#[derive(Deserialize)]
struct DiscoverMeta {
    #[serde(rename = "io.modelcontextprotocol/serverInfo")]
    server_info: Option<serde_json::Value>,
}

#[derive(Deserialize, Default)]
struct Capabilities {
    tools: Option<IgnoredAny>,
    prompts: Option<IgnoredAny>,
    resources: Option<ResourcesCapability>,
    logging: Option<IgnoredAny>,
    completions: Option<IgnoredAny>,
}

/// Anything that is there; only an object's `subscribe: true` says more.
#[derive(Deserialize)]
#[serde(untagged)]
enum ResourcesCapability {
    Object {
        #[serde(default)]
        subscribe: bool,
    },
    Other(IgnoredAny),
}

impl From<Capabilities> for Offers {
    fn from(said: Capabilities) -> Self {
        Self {
            tools: said.tools.is_some(),
            prompts: said.prompts.is_some(),
            subscribe: matches!(said.resources, Some(ResourcesCapability::Object { subscribe: true })),
            resources: said.resources.is_some(),
            logging: said.logging.is_some(),
            completions: said.completions.is_some(),
        }
    }
}

#[derive(Deserialize)]
struct Supported {
    supported: Vec<String>,
}

/// The answer to `initialize`.
/// `second`: after `server/discover` was refused.
pub(crate) fn initialize_answered(
    outcome: Result<&RawValue, &RawValue>,
    era: EraChoice,
    second: bool,
) -> Step {
    let result = match outcome {
        Ok(result) => result,
        Err(error) => return initialize_refused(error, era, second),
    };
    let raw = result;
    let result: InitializeResult<'_> = match serde_json::from_str(raw.get()) {
        Ok(result) => result,
        Err(error) => return bad_answer("initialize", &error),
    };
    if !LEGACY.contains(&&*result.protocol_version) {
        return Step::Failed(HandshakeError::Version {
            offered: format!("{OFFERED} (and knows {})", LEGACY[..LEGACY.len() - 1].join(", ")),
            answered: printable(result.protocol_version.as_bytes(), SHOWN),
        });
    }
    Step::Done(Negotiated {
        era: Era::Legacy,
        protocol: result.protocol_version.into(),
        offers: result.capabilities.into(),
        server: result.server_info.as_ref().and_then(identity),
        raw: Arc::from(raw.to_owned()),
    })
}

fn initialize_refused(error: &RawValue, era: EraChoice, second: bool) -> Step {
    let error: RpcError = match serde_json::from_str(error.get()) {
        Ok(error) => error,
        Err(error) => return bad_answer("initialize", &error),
    };
    let supported = error.supported();
    let refused = error.refused();
    if second {
        return Step::Failed(HandshakeError::Locked(Box::new(refused)));
    }
    if era == EraChoice::Legacy || !MODERN_REFUSALS.contains(&error.code) {
        return Step::Failed(refused);
    }
    match supported {
        None => Step::Discover(MODERN[MODERN.len() - 1], refused),
        Some(supported) => match newest_common(&supported) {
            Some(version) => Step::Discover(version, refused),
            None => Step::Failed(no_common(OFFERED, &supported)),
        },
    }
}

/// The answer to `server/discover`; where it was sent after `initialize` had been refused, that error explains more than the second.
pub(crate) fn discover_answered(
    outcome: Result<&RawValue, &RawValue>,
    era: EraChoice,
    refusal: Option<HandshakeError>,
) -> Step {
    let result = match outcome {
        Ok(result) => result,
        Err(_) if era == EraChoice::ModernFirst => return Step::Initialize,
        Err(error) => {
            let error = serde_json::from_str::<RpcError>(error.get());
            return Step::Failed(match error.as_ref().ok().and_then(RpcError::supported) {
                Some(supported) => no_common(&MODERN.join(", "), &supported),
                None => match (refusal, error) {
                    (Some(refusal), _) => HandshakeError::Locked(Box::new(refusal)),
                    (None, Ok(error)) => error.refused(),
                    (None, Err(error)) => return bad_answer("server/discover", &error),
                },
            });
        }
    };
    let raw = result;
    let result: DiscoverResult = match serde_json::from_str(raw.get()) {
        Ok(result) => result,
        Err(error) => return bad_answer("server/discover", &error),
    };
    let Some(version) = newest_common(&result.supported_versions) else {
        return Step::Failed(no_common(&MODERN.join(", "), &result.supported_versions));
    };
    let server = result._meta.and_then(|meta| meta.server_info).or(result.server_info);
    Step::Done(Negotiated {
        era: Era::Modern,
        protocol: version.into(),
        offers: result.capabilities.into(),
        server: server.as_ref().and_then(identity),
        raw: Arc::from(raw.to_owned()),
    })
}

impl RpcError {
    fn supported(&self) -> Option<Vec<String>> {
        if self.code != UNSUPPORTED_VERSION {
            return None;
        }
        let data: Supported = serde_json::from_str(self.data.as_ref()?.get()).ok()?;
        Some(data.supported)
    }

    fn refused(&self) -> HandshakeError {
        HandshakeError::Refused {
            code: self.code,
            message: printable(self.message.as_bytes(), SHOWN),
            data: self.data.clone(),
        }
    }
}

fn newest_common(supported: &[String]) -> Option<&'static str> {
    MODERN.iter().rev().find(|version| supported.iter().any(|name| name == *version)).copied()
}

fn no_common(offered: &str, supported: &[String]) -> HandshakeError {
    let answered =
        if supported.is_empty() { "that it supports none".to_owned() } else { supported.join(", ") };
    HandshakeError::Version { offered: offered.to_owned(), answered: printable(answered.as_bytes(), SHOWN) }
}

fn bad_answer(method: &str, error: &serde_json::Error) -> Step {
    Step::Failed(HandshakeError::BadAnswer(printable(format!("{method}: {error}").as_bytes(), SHOWN)))
}

fn identity(info: &serde_json::Value) -> Option<(String, String)> {
    let text = |field: &str| info.get(field)?.as_str().map(|text| printable(text.as_bytes(), 200));
    Some((text("name")?, text("version").unwrap_or_default()))
}
