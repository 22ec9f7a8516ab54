//! What is written down of a history: who asked what when, and what was told.
use mcpvisor_lifecycle::SessionId;
use mcpvisor_lifecycle::registry::{Answer, Refusal};
use serde_json::Value;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What a session's server does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    /// Ends at the end of its input.
    Cat,
    /// Ends at SIGTERM.
    Sleeper,
    /// Ends at SIGKILL alone.
    Stubborn,
    /// Leaves a child in a session of its own behind.
    Escaping,
    /// Ends by itself at once, and badly.
    Broken,
    /// Ends by itself, and badly, once it is ready.
    Failing,
    /// Never answers the handshake.
    Hanging,
    /// Speaks MCP.
    Polite,
}

impl Kind {
    /// Whether it can end its session by itself.
    pub(crate) fn can_fail(self) -> bool {
        matches!(self, Self::Broken | Self::Failing)
    }

    /// Whether its session can become ready.
    pub(crate) fn can_be_ready(self) -> bool {
        !matches!(self, Self::Hanging | Self::Broken)
    }
}

/// What a client asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    Open { key: usize, kind: Kind, tenant: bool, wait: bool, join: bool, park: bool, leased: bool },
    Close { key: usize, generation: Option<u64>, now: bool, wait: bool },
    WaitClosed { key: usize, generation: Option<u64> },
    WaitReady { key: usize },
    Kill { key: usize, generation: Option<u64> },
    Show { key: usize, generation: Option<u64> },
    Call { key: usize },
    Status,
}

impl Asked {
    /// The key that it means.
    pub(crate) fn key(self) -> Option<usize> {
        match self {
            Self::Open { key, .. }
            | Self::Close { key, .. }
            | Self::WaitClosed { key, .. }
            | Self::WaitReady { key }
            | Self::Kill { key, .. }
            | Self::Show { key, .. }
            | Self::Call { key } => Some(key),
            Self::Status => None,
        }
    }

    /// Whether it changes nothing.
    pub(crate) fn is_question(self) -> bool {
        matches!(self, Self::Show { .. } | Self::Call { .. } | Self::Status)
    }
}

/// What a client is told, in the parts that can be judged.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Told {
    Opened {
        generation: u64,
        created: bool,
    },
    /// A certificate, or a wait's goal that is reached.
    Done {
        generation: u64,
    },
    Stopping {
        generation: u64,
    },
    NotYet,
    Shown {
        generation: u64,
    },
    /// Starting, live, dying, quarantined.
    Counts([u64; 4]),
    Called,
    Refused {
        kind: String,
        generation: Option<u64>,
    },
}

impl Told {
    fn refused(kind: impl Into<String>, session: Option<SessionId>) -> Self {
        Self::Refused { kind: kind.into(), generation: session.map(|session| session.generation.0) }
    }

    pub(crate) fn is(&self, wanted: &str) -> bool {
        matches!(self, Self::Refused { kind, .. } if kind == wanted)
    }

    /// The generation of the request's key that this names.
    pub(crate) fn names(&self) -> Option<u64> {
        match self {
            Self::Opened { generation, .. }
            | Self::Done { generation }
            | Self::Stopping { generation }
            | Self::Shown { generation } => Some(*generation),
            // Of a stale generation it is only known that the client has named it.
            Self::Refused { kind, generation } if kind != "stale_generation" => *generation,
            Self::NotYet | Self::Counts(_) | Self::Called | Self::Refused { .. } => None,
        }
    }

    /// The generation of which this says that nothing of it is left.
    pub(crate) fn ended(&self) -> Option<u64> {
        match self {
            Self::Refused { kind, generation } => ["session_closed", "session_failed", "start_failed"]
                .contains(&kind.as_str())
                .then_some(*generation)?,
            _ => None,
        }
    }

    /// The machine's answer in the words of the protocol.
    pub(crate) fn by_machine(result: &Result<Answer, Refusal>) -> Self {
        match result {
            Ok(Answer::Opened { session, created }) => {
                Self::Opened { generation: session.generation.0, created: *created }
            }
            Ok(Answer::Closed { session } | Answer::Reached { session, .. }) => {
                Self::Done { generation: session.generation.0 }
            }
            Ok(Answer::Stopping { session }) => Self::Stopping { generation: session.generation.0 },
            Ok(Answer::NotYet { .. }) => Self::NotYet,
            Ok(Answer::Quarantined { session }) => Self::refused("quarantined", Some(*session)),
            Err(refusal) => Self::by_refusal(refusal),
        }
    }

    pub(crate) fn by_refusal(refusal: &Refusal) -> Self {
        match refusal {
            Refusal::Draining => Self::refused("draining", None),
            Refusal::SessionExists { session } => Self::refused("session_exists", Some(*session)),
            Refusal::SessionClosing { session } => Self::refused("session_closing", Some(*session)),
            Refusal::SessionClosed { session } => Self::refused("session_closed", Some(*session)),
            Refusal::SessionFailed { session } => Self::refused("session_failed", Some(*session)),
            Refusal::StartFailed { session } => Self::refused("start_failed", Some(*session)),
            Refusal::Quarantined { session } => Self::refused("quarantined", Some(*session)),
            Refusal::StaleGeneration { session } => Self::refused("stale_generation", Some(*session)),
            Refusal::Broken(_) => Self::refused("start_failed", None),
            Refusal::NotQuarantined { session } => Self::refused("invalid_request", Some(*session)),
            Refusal::NotFound | Refusal::ParentNotFound => Self::refused("not_found", None),
            Refusal::ParentClosing { .. } => Self::refused("session_closing", None),
            Refusal::TooDeep { .. } | Refusal::HolderEnded => Self::refused("invalid_request", None),
            Refusal::DeadlineExceeded { .. } => Self::refused("deadline_exceeded", None),
            Refusal::CapacityExhausted { scope, used, limit, .. } => {
                let scope = scope.as_str();
                Self::refused(format!("capacity_exhausted: {scope} {used}/{limit}"), None)
            }
        }
    }

    /// The daemon's answer, as it came over the socket.
    pub(crate) fn by_daemon(asked: Asked, answer: &Result<Value, Value>) -> Self {
        let number = |value: &Value| value.as_u64();
        let refused = |kind: &str, data: &Value| Self::Refused {
            kind: kind.to_owned(),
            generation: number(&data["generation"]),
        };
        let bad = |what: &Value| refused(&format!("an answer that is none: {what}"), &Value::Null);
        let result = match answer {
            Err(error) => {
                let data = &error["data"];
                let kind = data["kind"].as_str().unwrap_or("no kind");
                return match kind {
                    "capacity_exhausted" => {
                        let scope = data["scope"].as_str().unwrap_or_default();
                        refused(&format!("{kind}: {scope} {}/{}", data["used"], data["limit"]), data)
                    }
                    "no kind" => bad(error),
                    _ => refused(kind, data),
                };
            }
            Ok(result) => result,
        };
        let generation = number(&result["generation"]);
        match (asked, generation) {
            (Asked::Open { .. }, Some(generation)) => {
                Self::Opened { generation, created: result["created"] == true }
            }
            (Asked::Close { .. } | Asked::Kill { .. }, _) => {
                let one = &result["results"][0];
                match (one["outcome"].as_str(), number(&one["generation"])) {
                    (Some("closed"), Some(generation)) => Self::Done { generation },
                    (Some("stopping"), Some(generation)) => Self::Stopping { generation },
                    (Some("not_found"), _) => refused("not_found", &Value::Null),
                    (Some(other), _) => refused(other, one),
                    _ => bad(result),
                }
            }
            (Asked::WaitClosed { .. } | Asked::WaitReady { .. }, Some(generation)) => {
                if result["reached"] == true { Self::Done { generation } } else { Self::NotYet }
            }
            (Asked::Show { .. }, Some(generation)) => Self::Shown { generation },
            (Asked::Call { .. }, _) if result["content"].is_array() => Self::Called,
            (Asked::Status, _) => {
                let counts = &result["sessions"];
                let count = |name: &str| number(&counts[name]).unwrap_or(u64::MAX);
                Self::Counts([count("starting"), count("live"), count("dying"), count("quarantined")])
            }
            _ => bad(result),
        }
    }
}

/// Names a request of a history; also in the machine.
pub(crate) type Request = u64;

/// One thing that happened.
#[derive(Debug, Clone)]
pub(crate) enum Event {
    /// A request is about to be sent.
    Ask { request: Request, client: usize, asked: Asked, patience: Option<Duration> },
    /// Its cancellation is about to be sent.
    Cancel { request: Request },
    /// A client is about to hang up.
    Vanish { client: usize },
    /// An answer has come.
    Tell { request: Request, told: Told },
}

/// What happened, in the order in which the clients noticed it.
///
/// What is sent is written down before, and what is told afterwards: a request's span in here is never shorter than the
/// true one, so that what the judge refuses was wrong.
#[derive(Debug)]
pub(crate) struct Log {
    begin: Instant,
    inner: Mutex<(Vec<(Duration, Event)>, Request)>,
}

impl Log {
    pub(crate) fn new() -> Self {
        Self { begin: Instant::now(), inner: Mutex::new((Vec::new(), 0)) }
    }

    fn write(&self, event: impl FnOnce(&mut Request) -> Event) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let event = event(&mut inner.1);
        inner.0.push((self.begin.elapsed(), event));
    }

    pub(crate) fn ask(&self, client: usize, asked: Asked, patience: Option<Duration>) -> Request {
        let mut given = 0;
        self.write(|last| {
            *last += 1;
            given = *last;
            Event::Ask { request: given, client, asked, patience }
        });
        given
    }

    pub(crate) fn note(&self, event: Event) {
        self.write(|_| event);
    }

    pub(crate) fn take(&self) -> Vec<(Duration, Event)> {
        std::mem::take(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner).0)
    }
}
