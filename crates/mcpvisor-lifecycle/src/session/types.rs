//! What a session is told and what it tells.
use super::limits::Activity;
use crate::registry::{CloseOptions, Urgency};
use crate::server::ServerReport;
use crate::{Place, RequestId, ServerName};
use std::time::Duration;

/// Why a session is torn down. The words are those of the certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CloseReason {
    /// Someone asked for it.
    Requested,
    /// The daemon shuts down.
    Shutdown,
    /// The lease's holder is gone.
    LeaseEnded,
    /// Nobody used it for too long.
    Idle,
    /// Nobody used it, and another session of its user needed its slot.
    Evicted,
    /// Its time to live is over.
    Ttl,
    /// The session that it was opened below is closed.
    ParentClosed,
    /// A required server failed before the session was ready.
    StartFailed,
    /// Everyone who waited for its start has gone.
    StartCancelled,
    /// A required server failed for good.
    ServersFailed,
    /// The last server that mattered ended by itself, normally.
    ServersEnded,
    /// An actor of the session broke; its processes were reaped without it.
    Internal,
    /// The daemon that had it was killed; its successor has ended what was left.
    DaemonLost,
}

/// The final state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ended {
    /// It was closed, or its work was over.
    Closed,
    /// It failed.
    Failed,
}

/// What a session consists of.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SessionConfig {
    /// Its servers, by distinct names, in the order in which they are started.
    pub servers: Vec<SessionServer>,
    /// Drain budget, where a close names none.
    pub drain: Duration,
    /// Direct mode: no drain, and the ladder of a close that the daemon begins starts at SIGTERM.
    pub direct: bool,
}

/// A server of a session.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SessionServer {
    /// Its name.
    pub name: ServerName,
    /// Its final failure fails the session.
    pub required: bool,
    /// Its end closes the session, also a normal one, though the session does not wait for its start.
    pub significant: bool,
}

/// What a session is told.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum SessionEvent {
    /// The first event: start all servers.
    Begin,
    /// From the registry alone; a second one changes nothing.
    Close {
        /// Why.
        reason: CloseReason,
        /// How.
        options: CloseOptions,
    },
    /// Its close, which comes next, waits with the stop of its servers for `ChildrenGone`.
    AwaitChildren,
    /// The sessions below it are gone, as far as they will be.
    ChildrenGone,
    /// Raises the urgency of a teardown that runs; before one it is ignored.
    Urge {
        /// To what.
        urgency: Urgency,
    },
    /// Try again to kill what a kill has left.
    RetryKill,
    /// Direct mode: the shim is gone, so the stdin grace is cut.
    ClientGone,
    /// The gate is closed and no call is in flight any more.
    Drained,
    /// What has happened, as it was asked by `LookAtActivity`.
    Activity(Activity),
    /// No call is in flight and no client attached any more. Told once after a look at which it was busy.
    Quiet,
    /// The registry does not take it for idle.
    StayOpen,
    /// The answer to `ParkGate`.
    GateParked {
        /// It was idle still, and whoever comes now waits.
        parked: bool,
    },
    /// Someone waits at the parked gate.
    Wake,
    /// A server's report.
    Server {
        /// Whose.
        server: Place,
        /// What.
        report: ServerReport,
    },
    /// The server's actor is gone without its last report.
    ServerLost {
        /// Whose.
        server: Place,
    },
    /// Somebody wants a server added; answered by one `Reply`, when it is ready or nothing of it is left.
    Add {
        /// To be answered.
        request: RequestId,
        /// The server, as it will count once it has been added.
        server: SessionServer,
        /// It takes the place of the server that has the name, in the step that finds it ready.
        replace: bool,
    },
    /// Somebody wants a server removed; answered when nothing of it is left, or something can't be killed. Of one that is being
    /// ended it joins, and tries the kill again.
    Remove {
        /// To be answered.
        request: RequestId,
        /// The server's.
        name: ServerName,
        /// Drain budget; none is the session's.
        drain: Option<Duration>,
    },
    /// Somebody wants a server stopped and started again; answered when it is ready again, or is not at its first try.
    Restart {
        /// To be answered.
        request: RequestId,
        /// The server's.
        name: ServerName,
        /// Drain budget; none is the session's.
        drain: Option<Duration>,
    },
    /// Somebody wants a server stopped so that another can take its place: it stays a member; answered when nothing of it is left. Then it is
    /// replaced, removed, or started again by a restart.
    Yield {
        /// To be answered.
        request: RequestId,
        /// The server's.
        name: ServerName,
    },
    /// The one who asked for a change is gone: an add ends, anything else goes on without an answer.
    CancelChange {
        /// What had been asked.
        request: RequestId,
    },
    /// The server was held or retired, and nothing that was asked of it is in flight any more.
    ServerDrained {
        /// Which.
        server: Place,
    },
    /// The clock has reached `next_timeout()`.
    Timeout,
}

/// What became of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Changed {
    /// The server is ready, and one of the session's.
    Added {
        /// Which.
        server: Place,
    },
    /// The server is ready, and stands where another stood; that one drains.
    Replaced {
        /// The new one.
        server: Place,
    },
    /// Nothing of the server is left.
    Removed {
        /// Which.
        server: Place,
    },
    /// Nothing of the server is left, and it is a member still.
    Yielded {
        /// Which.
        server: Place,
    },
    /// The server is ready again.
    Restarted {
        /// Which.
        server: Place,
    },
}

/// Why a change was not made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ChangeRefusal {
    /// The session is direct.
    Direct,
    /// The session is not ready yet.
    Starting,
    /// The session is being torn down.
    Closing,
    /// The session was closed before it was made.
    Closed,
    /// No server has the name.
    NoServer,
    /// A server has the name, though it may be one that is being ended.
    NameTaken,
    /// Another change of the same server is under way.
    Busy,
    /// There are [`super::MOST_SERVERS`].
    TooMany,
    /// The server could not be started. Of one that was added nothing is left; one that was restarted goes on by its policy.
    Failed {
        /// Which.
        server: Place,
    },
    /// Something of the server can't be killed. It is the session's no more, where it was to be removed or added.
    Quarantined {
        /// Which.
        server: Place,
    },
}

/// What the driver must do.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum SessionEffect {
    /// Create the server's actor and start it.
    StartServer {
        /// Which.
        server: Place,
    },
    /// Close the admission gate in one atomic step; `Drained` follows when nothing is in flight (also at once).
    CloseGate,
    /// The drain is over: cancel at the server and answer with one error each what is still pending (G11, G19).
    SettleCalls,
    /// Begin the server's ladder. `term_first` skips the close-stdin step. May come a second time with
    /// `term_first`, which cuts the stdin grace of a ladder that runs.
    StopServer {
        /// Which.
        server: Place,
        /// Whether to begin at SIGTERM.
        term_first: bool,
    },
    /// Raise the urgency of the server's ladder.
    UrgeServer {
        /// Which.
        server: Place,
        /// To what.
        urgency: Urgency,
    },
    /// Try the kill again.
    RetryKillServer {
        /// Which.
        server: Place,
    },
    /// The server's actor is gone: kill and reap its scope without it; then the driver reports
    /// `Server { report: Stopped }` from the reaper's word, or `Quarantined` after the kill's budget. Comes again,
    /// in place of `RetryKillServer`, when the kill of such a server is retried.
    ReapServer {
        /// Which.
        server: Place,
    },
    /// Make a server of what the request has brought. It is counted and shown, and not published.
    CreateServer {
        /// Whose server it is to be.
        request: RequestId,
        /// Its place.
        server: Place,
        /// It will stand where this one stands.
        replaces: Option<Place>,
    },
    /// From now on its tools are the session's. Where it replaces another, in one atomic step with that one's going.
    PublishServer {
        /// Which.
        server: Place,
        /// Whom it replaces.
        replaces: Option<Place>,
    },
    /// It is not the session's any more: its tools vanish, nothing more is asked of it. `ServerDrained` follows when nothing is in
    /// flight there (also at once).
    RetireServer {
        /// Which.
        server: Place,
    },
    /// Nothing more is asked of it until it has started again; its tools stay its own. `ServerDrained` follows as above.
    HoldServer {
        /// Which.
        server: Place,
    },
    /// Cancel at this server, and answer with one error each, what is still pending there (G11, G19).
    SettleServer {
        /// Which.
        server: Place,
    },
    /// End it by its ladder and start it again; answered by its report `Relaunched`.
    RestartServer {
        /// Which.
        server: Place,
    },
    /// Nothing of it is left: it is no part of the session any more but for its certificate.
    ForgetServer {
        /// Which.
        server: Place,
    },
    /// The one answer to a change. After `ForgetServer`, where that comes in the same step.
    Reply {
        /// To whom.
        request: RequestId,
        /// What.
        result: Result<Changed, ChangeRefusal>,
    },
    /// A fact for the registry (see `RegistryEvent`), at most once.
    ReportReady,
    /// A fact for the registry, at most once: the session wants to be closed. It goes on until it is.
    WantClose {
        /// Why.
        reason: CloseReason,
    },
    /// Look at the gate, and answer with `Activity` before anything else. Where it is busy, `Quiet` follows when it is not any more.
    LookAtActivity,
    /// Look at the gate, and park it in the same atomic step if the session is still idle for too long; answer with `GateParked`
    /// before anything else.
    ParkGate,
    /// The servers run again: whoever waits at the gate is admitted.
    OpenGate,
    /// They don't, and will not: whoever waits at the gate is told why. A close follows.
    RefuseWaiting,
    /// A fact for the registry (`IdleClaimed`): it has been idle for too long.
    ClaimIdle,
    /// A fact for the registry: everything else is stopped, and something of some server is left.
    ReportQuarantined,
    /// Every server's scope is empty: release the session's scope, write the certificate, tell the registry, stop
    /// the actor. Exactly once, and the last effect of all.
    End {
        /// The final state.
        ended: Ended,
        /// Why it was torn down.
        reason: CloseReason,
    },
    /// The public state changed.
    Changed(SessionState),
}

/// The public states.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SessionState {
    /// Not every required server is ready yet.
    Starting,
    /// Every server is ready.
    Ready,
    /// It works, but some server is not ready.
    Degraded,
    /// Nothing more is admitted; calls in flight are awaited.
    Draining,
    /// The servers are being stopped.
    Stopping,
    /// Final: closed, by proof.
    Closed,
    /// Final: failed; nothing is left, by proof.
    Failed,
    /// Something could not be killed.
    Quarantined,
}
