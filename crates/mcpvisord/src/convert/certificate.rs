//! The death certificate, and the answer of `wait` that carries it.
use super::frame::frames;
use super::session::state;
use super::{count, exact_milliseconds, milliseconds, names};
use mcpvisor_control::results;
use mcpvisor_lifecycle::server::Stage;
use mcpvisor_lifecycle::session::CloseReason;
use mcpvisor_process::{Exit, ProcessRecord, Rung};
use mcpvisor_supervisor::{
    Certificate, Drained, Outcome, Proof, ServerCertificate, StartFailure, StopCommandEnd, Waited,
};

/// One result of a close.
pub(crate) fn close_report(certificate: &Certificate) -> results::CloseReport {
    results::CloseReport {
        key: names::key(&certificate.key),
        generation: Some(certificate.generation.0),
        outcome: outcome(certificate.outcome),
        proof: certificate.proof.map(proof),
        reason: Some(reason(certificate.reason)),
        drained: certificate.drained.map(drained),
        duration_ms: Some(exact_milliseconds(certificate.duration)),
        servers: certificate.servers.iter().map(ended_server).collect(),
        remaining: remaining(&certificate.remaining),
        acknowledged_after_us: certificate
            .acknowledged_after
            .map(|span| u64::try_from(span.as_micros()).unwrap_or(u64::MAX)),
        failure: certificate.failure.as_ref().map(start_failure),
    }
}

/// By what it is known that nothing is left.
pub(crate) fn proof(proof: Proof) -> results::Proof {
    match proof {
        Proof::Cgroup => results::Proof::Cgroup,
        Proof::Keeper => results::Proof::Keeper,
        Proof::None => results::Proof::None,
    }
}

/// What is left of a quarantined session.
pub(crate) fn remaining(left: &[(u32, String)]) -> Vec<results::RemainingProcess> {
    let told =
        |(pid, command): &(u32, String)| results::RemainingProcess { pid: *pid, command: command.clone() };
    left.iter().map(told).collect()
}

/// The answer of a wait.
pub(crate) fn waited(waited: &Waited) -> results::Waited {
    results::Waited {
        key: names::key(&waited.key),
        generation: waited.generation.0,
        state: state(waited.state),
        reached: waited.reached,
        certificate: waited.certificate.as_deref().map(close_report),
    }
}

/// One server's part.
pub(crate) fn ended_server(certificate: &ServerCertificate) -> results::EndedServer {
    let detached = certificate.detached.as_ref();
    results::EndedServer {
        name: names::server(&certificate.name),
        stage: certificate.detached.is_none().then(|| stage(certificate.stage)),
        detached: certificate.detached.is_some(),
        scope: detached.map(|detached| detached.scope.to_owned()),
        host: detached.and_then(|detached| detached.host.as_ref()).map(names::key),
        users: detached.and_then(|detached| detached.users).map(count),
        exit: certificate.exit.map(exit),
        duration_ms: exact_milliseconds(certificate.duration),
        processes: certificate.processes.iter().map(process).collect(),
        peak_memory_bytes: certificate.peak_memory_bytes,
        cpu_ms: certificate.cpu.map(milliseconds),
        stop_command: certificate.stop_command.as_ref().map(stop_command),
    }
}

fn stop_command(end: &StopCommandEnd) -> results::StopCommandEnd {
    results::StopCommandEnd {
        ok: end.exit == Some(Exit::Code(0)) && !end.killed,
        exit: end.exit.map(exit),
        killed: end.killed,
        message: end.message.clone(),
        duration_ms: exact_milliseconds(end.duration),
        stderr_tail: end.stderr_tail.clone(),
    }
}

fn process(record: &ProcessRecord) -> results::EndedProcess {
    results::EndedProcess {
        pid: record.pid,
        command: record.command.clone(),
        ended_by: record.ended_by.map(|rung| match rung {
            Rung::Itself => results::Stage::Itself,
            Rung::Stdin => results::Stage::Stdin,
            Rung::Sigterm => results::Stage::Sigterm,
            Rung::Sigkill => results::Stage::Sigkill,
        }),
        exit: record.exit.map(exit),
        escaped: record.escaped,
    }
}

pub(super) fn exit(exit: Exit) -> results::Exit {
    match exit {
        Exit::Code(code) => results::Exit::Code(code),
        Exit::Signal(number) => results::Exit::from_signal(number),
    }
}

pub(super) fn start_failure(failure: &StartFailure) -> results::StartFailure {
    results::StartFailure {
        server: names::server(&failure.server),
        reason: failure.cause.to_owned(),
        message: failure.message.clone(),
        waited_for: failure.waited_for.clone(),
        exit: failure.exit.map(exit),
        stderr_tail: failure.stderr_tail.to_string(),
        frames: frames(&failure.frames),
    }
}

pub(super) fn outcome(outcome: Outcome) -> results::CloseOutcome {
    match outcome {
        Outcome::Closed => results::CloseOutcome::Closed,
        Outcome::Quarantined => results::CloseOutcome::Quarantined,
        Outcome::Stopping => results::CloseOutcome::Stopping,
    }
}

pub(super) fn drained(calls: Drained) -> results::DrainCounts {
    results::DrainCounts { finished: calls.finished, cancelled: calls.cancelled }
}

pub(super) fn stage(stage: Stage) -> results::Stage {
    match stage {
        Stage::Itself => results::Stage::Itself,
        Stage::Stdin => results::Stage::Stdin,
        Stage::Sigterm => results::Stage::Sigterm,
        Stage::Sigkill => results::Stage::Sigkill,
    }
}

pub(super) fn reason(reason: CloseReason) -> results::CloseReason {
    match reason {
        CloseReason::Requested => results::CloseReason::Requested,
        CloseReason::Shutdown => results::CloseReason::Shutdown,
        CloseReason::LeaseEnded => results::CloseReason::LeaseEnded,
        CloseReason::Idle => results::CloseReason::Idle,
        CloseReason::Evicted => results::CloseReason::Evicted,
        CloseReason::Ttl => results::CloseReason::Ttl,
        CloseReason::ParentClosed => results::CloseReason::ParentClosed,
        CloseReason::StartFailed => results::CloseReason::StartFailed,
        CloseReason::StartCancelled => results::CloseReason::StartCancelled,
        CloseReason::ServersFailed => results::CloseReason::ServersFailed,
        CloseReason::ServersEnded => results::CloseReason::ServersEnded,
        CloseReason::Internal => results::CloseReason::Internal,
        CloseReason::DaemonLost => results::CloseReason::DaemonLost,
    }
}
