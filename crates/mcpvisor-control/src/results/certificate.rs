//! The death certificate of a session: each process, how it ended, and by what it is known that nothing remains.
use super::frame::Frame;
use super::words::{CloseOutcome, CloseReason, Proof, Stage};
use crate::names::{ServerName, SessionKey};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Answer of `session/close` and `session/kill`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct CloseResults {
    /// One for each session that was asked for.
    pub results: Vec<CloseReport>,
}

/// What is known of a session's end.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct CloseReport {
    /// Which session.
    pub key: SessionKey,
    /// Which generation of it; null where it is not known.
    pub generation: Option<u64>,
    /// How the close ended.
    pub outcome: CloseOutcome,
    /// By what that is known; null where there is nothing to prove: none of its servers was its own, or it has not ended (yet).
    pub proof: Option<Proof>,
    /// Why it was torn down.
    pub reason: Option<CloseReason>,
    /// What became of the calls that were in flight; null in direct mode.
    pub drained: Option<DrainCounts>,
    /// From the beginning of the teardown to its end.
    pub duration_ms: Option<f64>,
    /// Its servers.
    pub servers: Vec<EndedServer>,
    /// What still lives.
    pub remaining: Vec<RemainingProcess>,
    /// From the last process's exit to the moment when this was known, in microseconds.
    #[serde(default)]
    pub acknowledged_after_us: Option<u64>,
    /// Why the session failed, where it did.
    #[serde(default)]
    pub failure: Option<StartFailure>,
}

impl CloseReport {
    /// The report of a session that is not there, or of one whose end was not waited for.
    #[must_use]
    pub fn without_end(key: SessionKey, generation: Option<u64>, outcome: CloseOutcome) -> Self {
        Self {
            key,
            generation,
            outcome,
            proof: None,
            reason: None,
            drained: None,
            duration_ms: None,
            servers: Vec::new(),
            remaining: Vec::new(),
            acknowledged_after_us: None,
            failure: None,
        }
    }
}

/// What became of the calls that were in flight when the close began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DrainCounts {
    /// Answered by the server.
    pub finished: u64,
    /// Answered with an error by the daemon.
    pub cancelled: u64,
}

/// How a server ended.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct EndedServer {
    /// Its name.
    pub name: ServerName,
    /// The rung of the ladder that was reached; null of one that was detached.
    pub stage: Option<Stage>,
    /// The session was only connected to it, and is not any more. It did not end by that: nothing else is told of it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub detached: bool,
    /// Of a detached one: `daemon`, or `external`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// Of a detached one of scope `daemon`: the key by which it itself is shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<SessionKey>,
    /// How many other sessions used it at the moment in which this one left it, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub users: Option<u64>,
    /// How its main process ended; null where none was started.
    pub exit: Option<Exit>,
    /// How long its end took.
    pub duration_ms: f64,
    /// Those that were seen during the teardown, and those that were reaped.
    pub processes: Vec<EndedProcess>,
    /// The most memory that it used, where the kernel counted it.
    pub peak_memory_bytes: Option<u64>,
    /// The processor time that it used, where the kernel counted it.
    pub cpu_ms: Option<u64>,
    /// How its stop command ended, where one was run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_command: Option<StopCommandEnd>,
}

/// How a server's stop command ended; nothing of it is left.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct StopCommandEnd {
    /// It exited with 0 within its time.
    pub ok: bool,
    /// How its main process ended; null where none was started.
    pub exit: Option<Exit>,
    /// It was killed, since its time was up.
    pub killed: bool,
    /// Why it could not be started.
    pub message: Option<String>,
    /// How long it took.
    pub duration_ms: f64,
    /// The end of what it wrote to stderr; what was not UTF-8 is replaced. Not escaped.
    pub stderr_tail: String,
}

/// How a process ended.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct EndedProcess {
    /// Its id.
    pub pid: u32,
    /// Its command line, shortened.
    pub command: String,
    /// The rung in force when it ended; null while it lives.
    pub ended_by: Option<Stage>,
    /// Null where its own parent reaped it.
    pub exit: Option<Exit>,
    /// It had left its server's process group.
    pub escaped: bool,
}

/// An exit status: `{"code":N}`, or `{"signal":"KILL"}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Exit {
    /// It ended with this code.
    Code(i32),
    /// It was ended by this signal: the name without `SIG`, or the number of one that has no name.
    Signal(String),
}

/// A process that could not be killed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RemainingProcess {
    /// Its id.
    pub pid: u32,
    /// Its command line, shortened.
    pub command: String,
}

/// Why a server could not be started, or did not stay. The details of `start_failed` and `start_timeout` are these.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct StartFailure {
    /// The server.
    pub server: ServerName,
    /// In a word: `not_found`, `not_executable`, `directory`, `exited`, `handshake`, `timeout`, `unhealthy`, …
    pub reason: String,
    /// In a sentence.
    pub message: String,
    /// Of a start that ran out of time: `launch`, or the method (`initialize`, `server/discover`, `tools/list`, `tools/list, page 2`)
    /// that had no answer; left out of any other failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waited_for: Option<String>,
    /// How its main process ended, where it did.
    pub exit: Option<Exit>,
    /// The end of what it wrote to stderr; what was not UTF-8 is replaced. Not escaped.
    pub stderr_tail: String,
    /// The last frames before its end, at most 20, oldest first; left out where none passed through the daemon.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub frames: Vec<Frame>,
}
