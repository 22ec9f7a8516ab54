//! What is under way between actors, tasks and the kernel's watchers.
use mcpvisor_lifecycle::registry::Urgency;
use mcpvisor_lifecycle::server::ServerReport;
use mcpvisor_lifecycle::session::{CloseReason, Ended};

/// One sender's way to one receiver, about one session: what is on it keeps its order. Letters on different lanes overtake each
/// other. The number is a server's place in its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Way {
    /// Session to registry.
    FromSession,
    /// To the registry, by a task: something is left.
    QuarantineNote,
    /// To the registry, by a task: a session that lost its actor is reaped.
    SessionReaped,
    /// To the registry, by supervision: the session's actor is gone.
    SessionLost,
    /// To the registry: what owns a session wants it closed.
    Lease,
    /// To the registry: somebody uses the session.
    Use,
    /// Registry to session.
    FromRegistry,
    /// Server to session.
    FromServer(u8),
    /// To the session: no call is in flight.
    Gate,
    /// To the session: someone waits at its parked gate.
    Wake,
    /// To the session: no call is in flight at a server.
    ServerGate(u8),
    /// To the session: the client is gone.
    Client,
    /// To the session, by supervision: the server's actor is gone.
    ServerLost(u8),
    /// To the session: a server that lost its actor is reaped.
    ServerReaped(u8),
    /// To the session: such a server is not reaped in time.
    ServerNotReaped(u8),
    /// Session to server.
    ToServer(u8),
    /// To the server: the launch is answered.
    Launcher(u8),
    /// To the server: the main process has exited.
    Exit(u8),
    /// To the server: the scope is empty.
    Empty(u8),
    /// To the server: its output, or its client's input, has ended.
    Stream(u8),
    /// To the server: the handshake is answered.
    Handshake(u8),
    /// To the server: its stop command has ended.
    Command(u8),
}

/// A lane: a way, and the session that it is about, by its place in the world.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Lane {
    /// The session.
    pub(crate) session: u8,
    /// From whom to whom.
    pub(crate) way: Way,
}

/// What is written. The numbers are incarnations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Letter {
    Ready,
    Wanted(CloseReason),
    Ended(Ended),
    Quarantined,
    SessionLost,
    StartFailed,
    IdleClaimed,
    Detached,
    Used,
    Begin,
    AwaitChildren,
    ChildrenGone,
    StayOpen,
    Close { reason: CloseReason, now: bool },
    Urge(Urgency),
    RetryKill,
    Drained,
    Quiet,
    Wake,
    ClientGone,
    Report(ServerReport),
    ServerLost,
    Reaped { empty: bool },
    Start,
    Restart,
    Stop { term_first: bool },
    Launched(u8),
    LaunchFailed(u8),
    Exited { incarnation: u8, normal: bool },
    ScopeEmpty(u8),
    OutputEnded(u8),
    InputEnded(u8),
    HandshakeDone(u8),
    HandshakeFailed(u8),
    CommandEnded(u8),
}

/// All that is under way, by lanes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(crate) struct Mail(Vec<(Lane, Letter)>);

impl Mail {
    /// Puts a letter at the end of its lane.
    pub(crate) fn post(&mut self, lane: Lane, letter: Letter) {
        let place = self.0.partition_point(|(other, _)| *other <= lane);
        self.0.insert(place, (lane, letter));
    }

    /// The lanes on which something is under way.
    pub(crate) fn lanes(&self) -> impl Iterator<Item = Lane> {
        let all = self.0.iter().enumerate();
        all.filter(|(at, (lane, _))| *at == 0 || self.0[at - 1].0 != *lane).map(|(_, (lane, _))| *lane)
    }

    /// The oldest letter of a lane.
    pub(crate) fn first(&self, lane: Lane) -> Option<Letter> {
        self.0.iter().find(|(other, _)| *other == lane).map(|(_, letter)| *letter)
    }

    /// Takes the oldest letter of a lane.
    pub(crate) fn take(&mut self, lane: Lane) -> Option<Letter> {
        let place = self.0.iter().position(|(other, _)| *other == lane)?;
        Some(self.0.remove(place).1)
    }

    /// What is under way to receivers that are gone is never read.
    pub(crate) fn drop_where(&mut self, gone: impl Fn(Lane) -> bool) {
        self.0.retain(|(lane, _)| !gone(*lane));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Way {
    /// The server that it leads to.
    pub(crate) fn server(self) -> Option<u8> {
        match self {
            Self::ToServer(place)
            | Self::Launcher(place)
            | Self::Exit(place)
            | Self::Empty(place)
            | Self::Stream(place)
            | Self::Handshake(place)
            | Self::Command(place) => Some(place),
            _ => None,
        }
    }

    /// Whether it leads to the session.
    pub(crate) fn to_session(self) -> bool {
        matches!(
            self,
            Self::FromRegistry
                | Self::FromServer(_)
                | Self::Gate
                | Self::Wake
                | Self::ServerGate(_)
                | Self::Client
                | Self::ServerLost(_)
                | Self::ServerReaped(_)
                | Self::ServerNotReaped(_)
        )
    }

    /// Whether it leads to the registry.
    pub(crate) fn to_registry(self) -> bool {
        self.server().is_none() && !self.to_session()
    }
}
