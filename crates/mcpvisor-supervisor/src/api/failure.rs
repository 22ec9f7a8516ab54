//! Why a request was not done.
use super::requester::GivenUp;
use super::view::{Down, Frame};
use mcpvisor_lifecycle::{Generation, HoldNumber, ServerName, SessionId, Verdict};
use mcpvisor_process::Exit;
use serde_json::value::RawValue;
use std::sync::Arc;
use std::time::Duration;

/// Why a server failed.
#[derive(Debug, Clone)]
pub struct StartFailure {
    /// Which one.
    pub server: ServerName,
    /// `not_found`, `not_executable`, `directory`, `hung`, `resources`, `killed`, `launch`, `handshake`, `timeout`, `exited`,
    /// `output_ended`, `unhealthy`, `keeper_lost`, `restart_limit` or `internal`.
    pub cause: &'static str,
    /// A sentence for a person, without the server's name.
    pub message: String,
    /// Of a start that ran out of time: `launch`, or the method that had no answer.
    pub waited_for: Option<String>,
    /// How its main process ended.
    pub exit: Option<Exit>,
    /// The end of its stderr; what is not UTF-8 is replaced. Not escaped.
    pub stderr_tail: Arc<str>,
    /// The last frames, at most 20.
    pub frames: Arc<[Frame]>,
}

impl StartFailure {
    /// Another start would fail in the same way, as far as anyone knows: nothing of the daemon's or the machine's was in its way.
    pub(crate) fn is_the_servers_own(&self) -> bool {
        !matches!(self.cause, "resources" | "killed" | "keeper_lost" | "internal")
    }
}

/// Why a request was not done. The daemon maps each to a kind of the control protocol.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Failure {
    /// No session has this key, or it is another user's.
    #[error("no session has this key")]
    NotFound,
    /// The key is open with another definition, or joining was not wanted.
    #[error("the session is open with another definition")]
    SessionExists {
        /// The one that is open.
        session: SessionId,
    },
    /// No session holds the key that an open names as its parent's.
    #[error("the parent session is not open")]
    ParentNotFound,
    /// The parent that an open names is being torn down, or can't be.
    #[error("the parent session is being closed")]
    ParentClosing {
        /// The parent.
        session: SessionId,
    },
    /// It is being torn down.
    #[error("the session is being closed")]
    SessionClosing {
        /// Which one.
        session: SessionId,
    },
    /// It was closed before it was ready.
    #[error("the session was closed")]
    SessionClosed {
        /// Which one.
        session: SessionId,
    },
    /// It failed before it was ready.
    #[error("the session failed")]
    SessionFailed {
        /// Which one.
        session: SessionId,
        /// Why.
        failure: Option<Box<StartFailure>>,
    },
    /// The open's session failed to start; nothing of it is left.
    #[error("a server could not be started")]
    StartFailed {
        /// Which one.
        session: SessionId,
        /// The start timeout ran out.
        timeout: bool,
        /// Why.
        failure: Option<Box<StartFailure>>,
    },
    /// The server's starts have failed again and again, and it is not started for a while.
    #[error("a server is not started for a while")]
    BreakerOpen {
        /// Which one, as its session that failed last calls it; none where that session is forgotten.
        server: Option<ServerName>,
        /// Another session is just trying.
        trying: bool,
        /// When to try again, at the earliest.
        retry_after: Duration,
        /// Why it failed last, where that is remembered.
        failure: Option<Box<StartFailure>>,
    },
    /// Something of it could not be killed.
    #[error("the session's processes could not be killed")]
    Quarantined {
        /// Which one.
        session: SessionId,
    },
    /// A limit on sessions is reached.
    #[error("the limit is reached")]
    CapacityExhausted {
        /// `total`, `user`, `tenant`, `profile`, `processes`, `session_processes` or `queue`.
        scope: &'static str,
        /// How many there are.
        used: usize,
        /// How many there may be.
        limit: usize,
        /// When to try again, at the earliest.
        retry_after: Duration,
    },
    /// Nothing more is admitted.
    #[error("the daemon is draining")]
    Draining,
    /// The named generation is over.
    #[error("the generation is over")]
    StaleGeneration {
        /// Which one.
        session: SessionId,
    },
    /// A retry of the kill was asked for a session that needs none.
    #[error("the session is not quarantined")]
    NotQuarantined {
        /// Which one.
        session: SessionId,
    },
    /// The request's deadline has passed; what it began goes on where it says so.
    #[error("the deadline has passed")]
    DeadlineExceeded,
    /// The requester cancelled.
    #[error("cancelled")]
    Cancelled,
    /// The server is gone, or is being restarted. The call may have been carried out.
    #[error("the server has ended")]
    ServerExited {
        /// Which one.
        server: ServerName,
        /// How its main process ended, where that is known already.
        exit: Option<Exit>,
        /// The end of its stderr; what is not UTF-8 is replaced. Not escaped.
        stderr_tail: String,
        /// The last frames, at most 20.
        frames: Arc<[Frame]>,
    },
    /// The server is being removed from the session, or started again.
    #[error("the server {reason}")]
    ServerLeft {
        /// Which one.
        server: ServerName,
        /// Which of both, as the end of a sentence: `was removed from the session`.
        reason: Arc<str>,
        /// It had been asked, and may have carried the call out.
        asked: bool,
    },
    /// A server of the session has the name, though it may be one that is being removed.
    #[error("the session has a server {server} already")]
    ServerExists {
        /// Which one.
        server: ServerName,
    },
    /// Another change of the same server is under way.
    #[error("server {server} is being changed by another request")]
    ServerBusy {
        /// Which one.
        server: ServerName,
    },
    /// A server that was to be added, or started again, was not ready at its first try. Of one that was to be added nothing is left.
    #[error("server {server} could not be started")]
    ServerFailed {
        /// Whose it is.
        session: SessionId,
        /// Which one.
        server: ServerName,
        /// Why.
        failure: Option<Box<StartFailure>>,
    },
    /// Something of a server can't be killed. It is no server of the session any more, where it was to be added or removed.
    #[error("processes of server {server} could not be killed")]
    ServerQuarantined {
        /// Whose it is.
        session: SessionId,
        /// Which one.
        server: ServerName,
        /// Pid and command line of each.
        remaining: Vec<(u32, String)>,
    },
    /// The server did not run, and nothing was sent to it.
    #[error("the server does not run")]
    ServerDown {
        /// Which one, and when it may run again.
        down: Down,
        /// How its main process ended, where that is known.
        exit: Option<Exit>,
        /// The end of its stderr; what is not UTF-8 is replaced. Not escaped.
        stderr_tail: String,
    },
    /// It can't be asked of this session.
    #[error("{0}")]
    Unsupported(String),
    /// It makes no sense, or names what is not there.
    #[error("{0}")]
    Invalid(String),
    /// Too many calls wait for this server.
    #[error("too many calls in flight")]
    Overloaded,
    /// Too many calls wait for their turn at this server; this one was not sent to it.
    #[error("too many calls wait for server {server}")]
    QueueFull {
        /// Which one.
        server: ServerName,
        /// Calls that wait.
        used: usize,
        /// The most that may.
        limit: usize,
        /// Calls in flight.
        in_flight: usize,
        /// How long this one has waited, where it did.
        waited: Option<Duration>,
    },
    /// Nobody waits for the call any more; what of it has reached its server is cancelled there.
    #[error("the call was given up")]
    CallGivenUp {
        /// Why.
        why: GivenUp,
        /// It may have reached its server, and been carried out.
        reached: bool,
    },
    /// The session is being closed, and the call was refused, or not answered in time.
    #[error("the session is being closed")]
    CallUnfinished {
        /// Which one.
        session: SessionId,
        /// It has reached its server, and may have been carried out.
        reached: bool,
    },
    /// The server has not answered in time, and was told that the call is cancelled.
    #[error("server {server} has not answered in time")]
    CallTimeout {
        /// Which one.
        server: ServerName,
        /// Which time: `call_timeout` or `call_timeout_max`.
        key: &'static str,
        /// How long it is.
        after: Duration,
    },
    /// The call was held for a person, and not approved: it was not sent to its server.
    #[error("the call of {tool} was not approved")]
    NotApproved {
        /// The server that has the tool.
        server: ServerName,
        /// As it was called.
        tool: String,
        /// Which held call.
        approval: (Generation, HoldNumber),
        /// How long nobody has decided; none where a person said no.
        waited: Option<Duration>,
        /// What that person says.
        why: Option<String>,
    },
    /// So many calls of the session are held for a person already.
    #[error("{used} calls of the session are held for approval already")]
    TooManyHeld {
        /// How many.
        used: usize,
    },
    /// No call of this number is held, or was lately.
    #[error("no call is held under this number")]
    NoApproval,
    /// The held call was decided before, by this.
    #[error("it was decided before")]
    DecidedBefore(Verdict),
    /// The server's own answer was a JSON-RPC error: the error object, as it came.
    #[error("the server answered with an error")]
    ServerError(Box<RawValue>),
    /// The server's answer is not what the protocol says.
    #[error("the server's answer can't be used: {what}")]
    BadAnswer {
        /// Which one.
        server: ServerName,
        /// What is wrong with it, with its beginning, escaped.
        what: String,
    },
    /// A part of the daemon broke; what it held is being reaped.
    #[error("{0}")]
    Internal(String),
}

impl Failure {
    /// Of a call without a result: whether it may have reached its server, and been carried out. Where it has not, it can be made again
    /// (G31). None of any other request.
    #[must_use]
    pub fn reached_server(&self) -> Option<bool> {
        match self {
            Self::CallGivenUp { reached, .. } | Self::CallUnfinished { reached, .. } => Some(*reached),
            Self::ServerLeft { asked, .. } => Some(*asked),
            Self::ServerExited { .. } | Self::CallTimeout { .. } | Self::BadAnswer { .. } => Some(true),
            Self::ServerDown { .. }
            | Self::Overloaded
            | Self::QueueFull { .. }
            | Self::NotApproved { .. }
            | Self::TooManyHeld { .. } => Some(false),
            _ => None,
        }
    }
}
