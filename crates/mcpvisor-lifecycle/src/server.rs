//! One server: launch, handshake, the stop ladder with a budget for each rung, restarts.
use crate::registry::Urgency;
use crate::{Incarnation, Moment};
use std::time::Duration;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Restart { Permanent, Transient, Temporary }

/// How a server is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode { /// By the daemon, after a handshake.
    Shared, /// By one client; ready once it runs.
    Exclusive, /// By its client over its own descriptors; ready once it runs; never restarted.
    Direct }

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ServerConfig {
    pub mode: Mode,
    /// From launch to ready.
    pub start: Duration,
    pub stdin_grace: Duration,
    pub term_grace: Duration,
    pub kill_wait: Duration,
    pub restart: Restart,
    pub restart_intensity: u32,
    pub restart_period: Duration,
    /// First backoff; doubles to the longest; reset after an uptime of `restart_period`.
    pub backoff: Duration,
    pub longest_backoff: Duration,
    /// Seed of the jitter (a backoff is drawn from half to the whole of its length).
    pub seed: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ServerEvent {
    // Commands.
    Start,
    Stop { term_first: bool },
    Urge { urgency: Urgency },
    RetryKill,
    // Facts, each with the incarnation that it speaks of; an older one's changes nothing.
    Launched { incarnation: Incarnation },
    /// Nothing was born, or what was born is already gone and reaped.
    LaunchFailed { incarnation: Incarnation },
    HandshakeDone { incarnation: Incarnation },
    HandshakeFailed { incarnation: Incarnation },
    MainExited { incarnation: Incarnation, /// Exit code 0.
        normal: bool },
    /// End of file on stdout, or a stream that can't be resynchronised (G30).
    OutputEnded { incarnation: Incarnation },
    /// Direct mode: the client hung up and its last bytes are read. Starts the stdin grace, by itself.
    InputEnded { incarnation: Incarnation },
    /// Direct mode: the shim is gone: straight to SIGTERM.
    ClientGone,
    /// No process of the scope exists, by the reaper's proof, and all ours are reaped.
    ScopeEmpty { incarnation: Incarnation },
    Timeout,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ServerEffect {
    /// Exactly one of `Launched` and `LaunchFailed` answers it, late perhaps.
    Launch { incarnation: Incarnation },
    /// Speak the handshake (shared mode only). Its own deadline is the machine's.
    Handshake { incarnation: Incarnation },
    CloseStdin { incarnation: Incarnation },
    /// SIGTERM to every process of the scope.
    Terminate { incarnation: Incarnation },
    /// Kill the scope; also makes a launch that is still on its way fail.
    Kill { incarnation: Incarnation },
    /// The scope is empty: drop what belongs to it (pipes, pending calls, the scope's directory).
    Release { incarnation: Incarnation },
    Report(ServerReport),
}

/// Why a server failed for good, or is being restarted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Failure { Launch, Handshake, StartTimeout, Exited, OutputEnded, RestartLimit }

/// What the session is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ServerReport {
    Ready,
    /// It failed and will be restarted (its old tree is ended first).
    Restarting,
    /// It won't be restarted; its tree is gone. `Failed` is final without a stop.
    Failed(Failure),
    /// It ended normally by itself and is not restarted; its tree is gone.
    Ended,
    /// Direct mode: the client's stream ended and the ladder has begun.
    Ending,
    /// A `Stop` is complete: nothing is left.
    Stopped,
    /// The kill's budget ran out with something left; `Stopped` may follow.
    Quarantined,
}

/// The public states (CONTRACT.md).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ServerState { Starting, Ready, Backoff, Stopping, Stopped, Failed }

/// The rungs of the ladder, in order: which one was in force when a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage { Itself, Stdin, Sigterm, Sigkill }

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Server { config: ServerConfig }

impl Server {
    pub fn new(config: ServerConfig) -> Self { Self { config } }
    pub fn step(&mut self, now: Moment, event: ServerEvent) -> Vec<ServerEffect> { let _ = (now, event); Vec::new() }
    pub fn next_timeout(&self) -> Option<Moment> { None }
    pub fn state(&self) -> ServerState { ServerState::Starting }
    pub fn incarnation(&self) -> Option<Incarnation> { None }
    pub fn restarts(&self) -> u32 { 0 }
    pub fn stage(&self) -> Stage { Stage::Itself }
    pub fn waits_for(&self) -> Option<(&'static str, Moment, Option<Moment>)> { None }
}
