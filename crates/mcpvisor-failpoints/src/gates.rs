//! The list of the gates, in the order in which a request meets them. `docs/failpoints.md` says what stands at each.

macro_rules! gates {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// A point of the daemon at which a test can hold it.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Gate { $($(#[$doc])* $variant,)* }

        #[cfg(feature = "enabled")]
        impl Gate {
            /// All of them.
            pub(crate) const ALL: &[Self] = &[$(Self::$variant,)*];

            pub(crate) const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            pub(crate) fn from_name(name: &str) -> Option<Self> {
                match name { $($name => Some(Self::$variant),)* _ => None }
            }
        }
    };
}

gates! {
    // Every request.
    /// A connection was accepted, and nothing of it is read.
    ConnectionAccepted = "connection.accepted",
    /// A line was read, and nobody has looked at it. The connection reads no further.
    RequestRead = "request.read",
    /// An answer is the next to be written, and not a byte of it is.
    AnswerWrite = "answer.write",
    /// A connection's end was noticed. What was asked on it is still in flight.
    ConnectionEnded = "connection.ended",
    /// The registry has a message, of whatever kind.
    RegistryMessage = "registry.message",

    // Opening.
    /// The handler of an open has begun.
    OpenDispatched = "open.dispatched",
    /// The servers of an open are whole, and the registry was not asked yet.
    OpenResolved = "open.resolved",
    /// The registry has an open, and has decided nothing.
    RegistryOpen = "registry.open",
    /// A session was admitted, and its actor has done nothing.
    SessionBegin = "session.begin",
    /// A server's actor is told to start.
    ServerStart = "server.start",
    /// The reaper has the order to launch.
    LaunchOrdered = "launch.ordered",
    /// A disposable thread is about to open program and directory.
    LaunchFind = "launch.find",
    /// Program and directory are open, and the launch thread has not been told.
    LaunchFound = "launch.found",
    /// The launch thread has a launch that may still be withdrawn.
    LaunchJob = "launch.job",
    /// The launch can't be withdrawn any more, and nothing is born.
    LaunchBirth = "launch.birth",
    /// The server, or its keeper, is born, and the reaper does not know.
    LaunchBorn = "launch.born",
    /// The reaper has the word of a birth, and has done nothing about it.
    LaunchAnnounced = "launch.announced",
    /// A server's actor has the answer of its launch.
    ServerLaunched = "server.launched",
    /// The task that shakes hands has begun.
    HandshakeBegun = "handshake.begun",
    /// The server has answered the handshake, and was not asked for its tools.
    HandshakeAnswered = "handshake.answered",
    /// The tools are there, and the actor has not been told.
    HandshakeListed = "handshake.listed",
    /// A server's actor has the result of the handshake.
    ServerShook = "server.shook",
    /// A session's actor has the word that a server is ready.
    SessionReady = "session.ready",
    /// The registry has the word that a session is ready.
    RegistryReady = "registry.ready",
    /// A direct session is open, and the reaper is asked for its `cgroup.kill`.
    OpenKillFile = "open.kill-file",
    /// The registry has the word that a requester has given up.
    RegistryCancel = "registry.cancel",

    // Changing the servers of a live session.
    /// The handler of an add, a remove or a restart has begun.
    ChangeDispatched = "change.dispatched",
    /// The server of an add is whole, and its session was not looked for yet.
    AddResolved = "add.resolved",
    /// The registry is asked which session a request means.
    RegistryResolve = "registry.resolve",
    /// The session of a change is found, and has not been told.
    ChangeFound = "change.found",
    /// A session's actor has a change of its servers.
    SessionChange = "session.change",
    /// A session's actor has the word that nothing is in flight at one of its servers.
    SessionServerDrained = "session.server-drained",
    /// A server's actor is told to end and to start again.
    ServerRestart = "server.restart",
    /// A session's actor has the word that nothing is left of what a server was before its restart.
    SessionRelaunched = "session.relaunched",
    /// A session's actor has the word that who asked for a change is gone.
    SessionCancelChange = "session.cancel-change",

    // Waking a parked session.
    /// A session's actor has the word that someone waits for it to be awake.
    SessionWake = "session.wake",
    /// The gate of a session that was parked has turned, and who waited there has not looked.
    WakeTurned = "wake.turned",

    // Closing.
    /// The handler of a close has begun.
    CloseDispatched = "close.dispatched",
    /// The registry has a close, and has decided nothing.
    RegistryClose = "registry.close",
    /// A session's actor has the close.
    SessionClose = "session.close",
    /// A session's actor has the word that no call is in flight.
    SessionDrained = "session.drained",
    /// A server's actor has the stop.
    ServerStop = "server.stop",
    /// The reaper has the word that stdin was closed.
    ReaperStdin = "reaper.stdin",
    /// The reaper has the order to send SIGTERM.
    ReaperTerm = "reaper.term",
    /// The reaper has the order to kill.
    ReaperKill = "reaper.kill",
    /// A server's actor has the word that a rung's budget has run out.
    ServerTimeout = "server.timeout",
    /// A main process has exited and is not reaped.
    ReaperExit = "reaper.exit",
    /// A server's actor has the word of its main process's exit.
    ServerExited = "server.exited",
    /// Nothing of a scope is left. Its cgroup is there, and nobody was told.
    ReaperEmpty = "reaper.empty",
    /// A server's actor has the word that its scope is empty.
    ServerEmpty = "server.empty",
    /// A session's actor has the word that a server has stopped.
    SessionStopped = "session.stopped",
    /// The registry has the word that a session has ended.
    RegistryEnded = "registry.ended",
    /// The reaper is to forget a session, and to remove its cgroup.
    ReaperRelease = "reaper.release",

    // The end of the daemon.
    /// The handler of a shutdown has begun.
    ShutdownDispatched = "shutdown.dispatched",
    /// A signal to end was received, and nothing was done about it.
    ShutdownSignalled = "shutdown.signalled",
    /// The registry has the shutdown, and has decided nothing.
    RegistryShutdown = "registry.shutdown",
    /// The registry says that all is gone, and nobody has heard it.
    ShutdownFinished = "shutdown.finished",
    /// The daemon accepts nothing more, and waits for its connections.
    ShutdownFarewell = "shutdown.farewell",
    /// A connection gives its last answers.
    ConnectionFarewell = "connection.farewell",
    /// The runtime is about to end.
    ShutdownRuntime = "shutdown.runtime",
    /// The reaper is told to end.
    ReaperEnd = "reaper.end",
    /// The threads have ended, and the process has not.
    ShutdownExit = "shutdown.exit",
}
