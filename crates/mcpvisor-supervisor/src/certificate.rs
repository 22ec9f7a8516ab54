//! The death certificate of a session, put together from the records.
use crate::api::{Certificate, Detached, Drained, Outcome, Proof, ServerCertificate};
use crate::record::{ServerRecord, SessionRecord};
use mcpvisor_lifecycle::server::Stage;
use mcpvisor_lifecycle::session::{CloseReason, SessionState};
use mcpvisor_process::{ContainmentKind, Rung, ScopeReport};
use std::time::{Duration, Instant};

/// The ladder's rung as the machine names it.
pub(crate) fn stage(rung: Rung) -> Stage {
    match rung {
        Rung::Itself => Stage::Itself,
        Rung::Stdin => Stage::Stdin,
        Rung::Sigterm => Stage::Sigterm,
        Rung::Sigkill => Stage::Sigkill,
    }
}

/// What is told of one server when its scope is empty, or of one that could not be emptied.
pub(crate) fn of_server(server: &ServerRecord, report: &ScopeReport, now: Instant) -> ServerCertificate {
    let live = server.live();
    let main = live.pid.and_then(|pid| report.processes.iter().find(|process| process.pid == pid));
    let stage = main.and_then(|process| process.ended_by).map_or(live.stage, stage);
    ServerCertificate {
        name: server.spec.name.clone(),
        stage,
        exit: live.exit.or_else(|| main.and_then(|process| process.exit)),
        duration: live.stopping_since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since)),
        processes: report.processes.clone(),
        peak_memory_bytes: report.peak_memory_bytes,
        cpu: report.cpu,
        stop_command: live.stop_command.clone(),
        detached: None,
    }
}

/// What is told of a server that is not the session's to end, while it is connected to it still.
pub(crate) fn of_detached(server: &ServerRecord) -> ServerCertificate {
    let host = server.live().host.clone();
    let users = host.as_ref().map(|host| host.slot.clients().len().saturating_sub(1));
    let host = host.map(|host| host.key.key.clone());
    let detached = Detached { scope: server.spec.scope.as_str(), host, users };
    ServerCertificate { detached: Some(detached), ..without_process(server) }
}

/// What is told of a server that never had a process, or whose processes ended before its last start failed.
fn without_process(server: &ServerRecord) -> ServerCertificate {
    ServerCertificate {
        name: server.spec.name.clone(),
        stage: Stage::Itself,
        exit: None,
        duration: Duration::ZERO,
        processes: Vec::new(),
        peak_memory_bytes: None,
        cpu: None,
        stop_command: None,
        detached: server.spec.scope.is_apart().then(|| Detached {
            scope: server.spec.scope.as_str(),
            host: None,
            users: None,
        }),
    }
}

/// What is told of one server of which nothing is left.
pub(crate) fn of_removed(server: &ServerRecord) -> ServerCertificate {
    let certificate = server.live().certificate.clone();
    certificate.unwrap_or_else(|| without_process(server))
}

/// By which proof nothing is left of one server; none of one that is only detached, of which there was nothing.
pub(crate) fn proof(server: &ServerRecord, kind: ContainmentKind) -> Option<Proof> {
    (!server.spec.scope.is_apart()).then(|| match kind {
        _ if !server.live().proven => Proof::None,
        ContainmentKind::Cgroup => Proof::Cgroup,
        ContainmentKind::Keeper => Proof::Keeper,
    })
}

/// How a teardown went, for the certificate.
pub(crate) struct End {
    pub(crate) outcome: Outcome,
    pub(crate) state: SessionState,
    pub(crate) reason: CloseReason,
    pub(crate) remaining: Vec<(u32, String)>,
    /// False: emptiness rests on a search and not on the kernel's word.
    pub(crate) proven: bool,
}

/// What became of the calls in flight.
pub(crate) fn drained(session: &SessionRecord) -> Option<Drained> {
    let counts = session.gate.drained();
    (!session.direct).then_some(Drained { finished: counts.finished, cancelled: counts.cancelled })
}

pub(crate) fn of_session(session: &SessionRecord, kind: ContainmentKind, end: End) -> Certificate {
    let now = Instant::now();
    let closing = session.live().closing;
    let (departed, all) = (session.roster.departed(), session.servers());
    let mut last_exit = departed.last_exit;
    let mut failure = None;
    let mut servers: Vec<_> = departed.certificates.into();
    for server in all.iter() {
        let live = server.live();
        last_exit = last_exit.max(live.last_exit);
        if failure.is_none() {
            failure.clone_from(&live.failure);
        }
        let certificate = live.certificate.clone();
        drop(live);
        servers.push(certificate.unwrap_or_else(|| without_process(server)));
    }
    // Of what a former daemon has left nobody knows what it had.
    let own =
        departed.own || session.former.is_some() || all.iter().any(|server| !server.spec.scope.is_apart());
    let proof = match (end.outcome, kind) {
        (Outcome::Closed, _) if !own => None,
        (Outcome::Closed, _) if !end.proven || departed.unproven => Some(Proof::None),
        (Outcome::Closed, ContainmentKind::Cgroup) => Some(Proof::Cgroup),
        (Outcome::Closed, ContainmentKind::Keeper) => Some(Proof::Keeper),
        (Outcome::Quarantined | Outcome::Stopping, _) => Some(Proof::None),
    };
    // One that failed and whose processes can't be killed has no final state yet, and failed all the same (G23).
    let by_itself = matches!(end.reason, CloseReason::StartFailed | CloseReason::ServersFailed);
    let failed = match end.state {
        SessionState::Failed => true,
        SessionState::Quarantined => by_itself,
        _ => false,
    };
    Certificate {
        key: session.key.key.clone(),
        generation: session.id.generation,
        outcome: end.outcome,
        state: end.state,
        proof,
        reason: end.reason,
        drained: drained(session),
        duration: closing.map_or(Duration::ZERO, |(since, _)| now.saturating_duration_since(since)),
        servers,
        remaining: end.remaining,
        acknowledged_after: last_exit
            .filter(|_| end.outcome == Outcome::Closed)
            .map(|at| now.saturating_duration_since(at)),
        failure: failure.filter(|_| failed),
    }
}
