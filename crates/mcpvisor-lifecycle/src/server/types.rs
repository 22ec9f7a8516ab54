//! What a server is told and what it tells.
use super::health::Health;
use crate::Incarnation;
use crate::registry::Urgency;
use std::time::Duration;

/// Whether a server that ended is started again. Only one that was ready once is: the first start fails at once, so
/// that an open does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Restart {
    /// Always.
    Permanent,
    /// Unless it exited by itself with code 0.
    Transient,
    /// Never.
    Temporary,
    /// As often as whoever runs it starts it again: without a limit of its own, and never once that one has given it up, which is told
    /// as `GivenUp` while it is used, and else as a launch that failed.
    Followed,
}

/// How a server is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// By the daemon, after a handshake.
    Shared,
    /// By one client; ready once it runs; not restarted once it has had its client.
    Exclusive,
    /// By its client over its own descriptors; ready once it runs; never restarted.
    Direct,
}

/// How a server is run and ended.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ServerConfig {
    /// How it is spoken to.
    pub mode: Mode,
    /// From launch to ready.
    pub start: Duration,
    /// From the closing of stdin to SIGTERM.
    pub stdin_grace: Duration,
    /// From SIGTERM to the kill.
    pub term_grace: Duration,
    /// How long the stop command may take; none where there is none. It comes between SIGTERM's grace and the kill.
    pub stop_command: Option<Duration>,
    /// From the kill to the quarantine.
    pub kill_wait: Duration,
    /// Whether it is started again.
    pub restart: Restart,
    /// At most so many restarts in `restart_period`.
    pub restart_intensity: u32,
    /// See `restart_intensity`; also the uptime after which the backoff begins anew.
    pub restart_period: Duration,
    /// First backoff; doubles to the longest; reset after an uptime of `restart_period`.
    pub backoff: Duration,
    /// The longest backoff.
    pub longest_backoff: Duration,
    /// When it is asked whether it is still there, of a shared server; none: never.
    pub health: Option<Health>,
    /// Seed of the jitter (a backoff is drawn from half to the whole of its length).
    pub seed: u64,
}

/// What a server is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ServerEvent {
    // Commands.
    /// The first event: launch it.
    Start,
    /// Begin the ladder, or join the one that runs; nothing is restarted afterwards.
    Stop {
        /// Skips the close-stdin step, also of a ladder that is in it.
        term_first: bool,
    },
    /// `Kill` cuts the ladder short. `Hurry` skips drains, and a server has none.
    Urge {
        /// To what.
        urgency: Urgency,
    },
    /// End it by its ladder, or join the one that runs, and launch it again when nothing is left; at once where there is nothing.
    /// A stop beats it, before and after. Of a direct server it changes nothing.
    Restart,
    /// Try again to kill what a kill has left.
    RetryKill,
    // Facts, each with the incarnation that it speaks of; an older one's changes nothing.
    /// Its process runs.
    Launched {
        /// Which.
        incarnation: Incarnation,
    },
    /// Nothing was born, or what was born is already gone and reaped.
    LaunchFailed {
        /// Which.
        incarnation: Incarnation,
    },
    /// Another era may do: it is asked first in the one that is remembered of it, or has locked on the wrong one. If it ends
    /// before it is ready, one start more follows, in the other era and in the same time. To be told before the handshake's outcome.
    OtherEra {
        /// Which.
        incarnation: Incarnation,
    },
    /// It can be used.
    HandshakeDone {
        /// Which.
        incarnation: Incarnation,
    },
    /// It can't be used. Where the stream just ended, say `OutputEnded` instead: that leaves time to learn how the
    /// process exited.
    HandshakeFailed {
        /// Which.
        incarnation: Incarnation,
    },
    /// The main process has exited and is reaped.
    MainExited {
        /// Which.
        incarnation: Incarnation,
        /// Exit code 0.
        normal: bool,
        /// Direct mode: by the time at which this is told its client has closed its end, whether or not `InputEnded` has
        /// come. Of the two ends the client's counts as the first.
        hung_up: bool,
    },
    /// End of file on stdout, or a stream that can't be resynchronised (G30).
    OutputEnded {
        /// Which.
        incarnation: Incarnation,
    },
    /// An exclusive server: it has, or has had, its one client, and is not started again: a client's conversation can't go on with
    /// another process. To be told before `ScopeEmpty`.
    ClientCame {
        /// Which.
        incarnation: Incarnation,
    },
    /// One that sessions share: whoever runs it has given it up or ended it, and does not start it again. To be told before `ScopeEmpty`.
    GivenUp {
        /// Which.
        incarnation: Incarnation,
    },
    /// Direct mode: the client hung up and its last bytes are read. Starts the stdin grace, by itself. An exclusive server: its one
    /// client has left and its calls are settled.
    InputEnded {
        /// Which.
        incarnation: Incarnation,
    },
    /// What its connection knows, told before a `Timeout` of a server that is watched.
    Looked {
        /// Which.
        incarnation: Incarnation,
        /// Any byte has come since the last time.
        heard: bool,
        /// A call is in flight.
        busy: bool,
    },
    /// Direct mode: the shim is gone: straight to SIGTERM.
    ClientGone,
    /// No process of the scope exists, by the reaper's proof, and all ours are reaped.
    ScopeEmpty {
        /// Which.
        incarnation: Incarnation,
    },
    /// The stop command has ended, and nothing of it is left; or it could not be started. However it ended, this is all that is told.
    CommandEnded {
        /// Which.
        incarnation: Incarnation,
    },
    /// The clock has reached `next_timeout()`.
    Timeout,
}

/// What the driver must do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ServerEffect {
    /// Exactly one of `Launched` and `LaunchFailed` answers it, late perhaps.
    Launch {
        /// Which.
        incarnation: Incarnation,
    },
    /// Speak the handshake (shared mode only). Its own deadline is the machine's.
    Handshake {
        /// Which.
        incarnation: Incarnation,
    },
    /// Ask whether it is still there. Whatever it says then is heard.
    AskHealth {
        /// Which.
        incarnation: Incarnation,
    },
    /// Close the server's stdin. Harmless where it is closed.
    CloseStdin {
        /// Which.
        incarnation: Incarnation,
    },
    /// SIGTERM to every process of the scope.
    Terminate {
        /// Which.
        incarnation: Incarnation,
    },
    /// Run the stop command in a scope of its own: at most once per `Launch`. `CommandEnded` answers it.
    StopCommand {
        /// Whose.
        incarnation: Incarnation,
    },
    /// The stop command has used up its budget: kill it.
    KillCommand {
        /// Whose.
        incarnation: Incarnation,
    },
    /// Kill the scope; also makes a launch that is still on its way fail.
    Kill {
        /// Which.
        incarnation: Incarnation,
    },
    /// The scope is empty: drop what belongs to it (pipes, pending calls, the scope's directory). Exactly once per
    /// `Launch`, before its last report.
    Release {
        /// Which.
        incarnation: Incarnation,
    },
    /// To be told to the session.
    Report(ServerReport),
}

/// Why a server failed for good, or is being restarted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Failure {
    /// It could not be started.
    Launch,
    /// It runs, and can't be spoken to.
    Handshake,
    /// It was not ready in time.
    StartTimeout,
    /// Its main process exited.
    Exited,
    /// Its output ended while its main process lived on.
    OutputEnded,
    /// It gave no sign of life when it was asked.
    Unhealthy,
    /// It was restarted too often.
    RestartLimit,
}

/// What the session is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ServerReport {
    /// It can be used.
    Ready,
    /// It failed and will be restarted; its old tree is gone.
    Restarting,
    /// A `Restart` has come to its launch: nothing is left of what ran before.
    Relaunched,
    /// It won't be restarted; its tree is gone. `Failed` is final without a stop.
    Failed(Failure),
    /// It ended normally by itself, or with its client, and is not restarted; its tree is gone.
    Ended,
    /// Direct mode: the client's stream ended and the ladder has begun.
    Ending,
    /// A `Stop` is complete: nothing is left.
    Stopped,
    /// The kill's budget ran out with something left; the outcome may follow.
    Quarantined,
}

/// The public states.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ServerState {
    /// Not ready yet.
    Starting,
    /// In use.
    Ready,
    /// Waiting to be started again.
    Backoff,
    /// Its tree is being ended, to stop it or to start it anew.
    Stopping,
    /// Final: stopped, or ended normally.
    Stopped,
    /// Final: failed.
    Failed,
}

/// The rungs of the ladder, in order: which one was in force when a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// None: it ended by itself.
    Itself,
    /// Its stdin was closed.
    Stdin,
    /// SIGTERM was sent.
    Sigterm,
    /// The scope was killed.
    Sigkill,
}
