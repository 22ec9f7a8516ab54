//! One session, from its start to its end.
use crate::registry::{CloseOptions, Urgency};
use crate::server::{ServerReport};
use crate::{Moment, ServerName};
use std::time::Duration;

/// Why a session is torn down. The words are those of the certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CloseReason { Requested, Shutdown, LeaseEnded, Idle, Ttl, ParentClosed, StartFailed, StartCancelled, ServersFailed,
    /// The last server that mattered ended by itself, normally.
    ServersEnded,
    /// An actor of the session broke; its processes were reaped without it.
    Internal }

/// The final state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ended { Closed, Failed }

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SessionConfig {
    pub servers: Vec<SessionServer>,
    /// Drain budget, where a close names none.
    pub drain: Duration,
    /// Direct mode: no drain, and the ladder of a close that the daemon begins starts at SIGTERM.
    pub direct: bool,
}
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SessionServer { pub name: ServerName, /// Its final failure fails the session.
    pub required: bool }

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum SessionEvent {
    /// The first event: start all servers.
    Begin,
    Close { reason: CloseReason, options: CloseOptions },
    Urge { urgency: Urgency },
    RetryKill,
    /// Direct mode: the shim is gone, so the stdin grace is cut.
    ClientGone,
    /// The gate is closed and no call is in flight any more.
    Drained,
    Server { name: ServerName, report: ServerReport },
    /// The server's actor is gone without its last report.
    ServerLost { name: ServerName },
    Timeout,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum SessionEffect {
    StartServer { name: ServerName },
    /// Close the admission gate in one atomic step; `Drained` follows when nothing is in flight (also at once).
    CloseGate,
    /// The drain is over: cancel at the server and answer with one error each what is still pending (G11, G19).
    SettleCalls,
    /// Begin the server's ladder. `term_first` skips the close-stdin step.
    StopServer { name: ServerName, term_first: bool },
    UrgeServer { name: ServerName, urgency: Urgency },
    RetryKillServer { name: ServerName },
    /// The server's actor is gone: kill and reap its scope without it; then the driver reports
    /// `Server { report: Stopped }` from the reaper's word, or `Quarantined` after the kill's budget.
    ReapServer { name: ServerName },
    /// Facts for the registry (see `RegistryEvent`).
    ReportReady,
    WantClose { reason: CloseReason },
    ReportQuarantined,
    /// Every server's scope is empty: release the session's scope, write the certificate, tell the registry, stop the actor.
    End { ended: Ended, reason: CloseReason },
    /// The public state changed.
    Changed(SessionState),
}

/// The public states (CONTRACT.md).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SessionState { Starting, Ready, Degraded, Draining, Stopping, Closed, Failed, Quarantined }

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Session { config: SessionConfig }

impl Session {
    pub fn new(config: SessionConfig) -> Self { Self { config } }
    pub fn step(&mut self, now: Moment, event: SessionEvent) -> Vec<SessionEffect> { let _ = (now, event); Vec::new() }
    pub fn next_timeout(&self) -> Option<Moment> { None }
    pub fn state(&self) -> SessionState { SessionState::Starting }
    /// What it waits for, since when, how long still; for people.
    pub fn waits_for(&self) -> Option<(&'static str, Moment, Option<Moment>)> { None }
}
