//! The death certificate, for people.
use super::escape;
use super::frames;
use super::style::Style;
use super::table::table;
use super::units;
use mcpvisor_control::results::{
    CloseOutcome, CloseReason, CloseReport, EndedProcess, EndedServer, Exit, Proof, ServerRemoved, Stage,
    StartFailure, StopCommandEnd,
};

/// The whole certificate, some lines of text.
pub(crate) fn certificate(report: &CloseReport, style: Style) -> String {
    let mut text = head(report, style) + "\n";
    if let Some(failure) = &report.failure {
        text += &indent(&start_failure(failure));
    }
    let mut facts = Vec::new();
    if let Some(reason) = report.reason.filter(|reason| *reason != CloseReason::Requested) {
        facts.push(format!("why: {}", because(reason)));
    }
    if let Some(drained) = report.drained.filter(|drained| drained.finished + drained.cancelled > 0) {
        facts
            .push(format!("calls in flight: {} finished, {} cancelled", drained.finished, drained.cancelled));
    }
    if let Some(micros) = report.acknowledged_after_us {
        facts.push(format!("known {} after the last exit", units::millis(micros as f64 / 1_000.0)));
    }
    if !facts.is_empty() {
        text += &format!("  {}\n", facts.join("; "));
    }
    for server in &report.servers {
        text += &ended_server(server, style);
    }
    if !report.remaining.is_empty() {
        text += &format!("  {}\n", style.bad("still alive:"));
        let rows =
            report.remaining.iter().map(|process| vec![process.pid.to_string(), process.command.clone()]);
        text += &indent(&indent(&table(style, &["PID", "COMMAND"], rows)));
    }
    text
}

/// `server remove`.
pub(crate) fn removed_server(removed: &ServerRemoved, style: Style) -> String {
    let name = style.strong(&format!("{}/{}", removed.key, removed.server.name));
    let proof = if removed.server.detached { DETACHED } else { proven(removed.proof) };
    format!("{name} {}: {proof}\n", style.good("removed")) + &ended_server(&removed.server, style)
}

/// Nothing was ended.
const DETACHED: &str = "detached; no process was its own, and nothing was ended";

fn proven(proof: Option<Proof>) -> &'static str {
    match proof {
        Some(Proof::Cgroup) => "nothing is left, by proof of its empty control groups",
        Some(Proof::Keeper) => "nothing is left, by proof of its keepers that have no child any more",
        _ => "nothing was found of it, but that is not proven",
    }
}

fn head(report: &CloseReport, style: Style) -> String {
    let name = match report.generation {
        Some(generation) => format!("{}@{generation}", report.key),
        None => report.key.to_string(),
    };
    let name = style.strong(&name);
    let took = report.duration_ms.map(|ms| format!(" in {}", units::millis(ms))).unwrap_or_default();
    match report.outcome {
        CloseOutcome::Closed => {
            let none_its_own = report.proof.is_none() && report.servers.iter().any(|server| server.detached);
            let proof = if none_its_own { DETACHED } else { proven(report.proof) };
            format!("{name} {}{took}: {proof}", style.good("closed"))
        }
        CloseOutcome::Quarantined => {
            format!(
                "{name} {}{took}: something could not be killed; the key stays blocked",
                style.bad("quarantined")
            )
        }
        CloseOutcome::NotFound => format!("{name} {}: no session has this key", style.bad("not found")),
        CloseOutcome::Stopping => format!("{name} is stopping"),
        CloseOutcome::Unknown => format!("{name}: the outcome is one that this client does not know"),
    }
}

fn because(reason: CloseReason) -> &'static str {
    match reason {
        CloseReason::Requested => "a client asked for it",
        CloseReason::Shutdown => "the daemon was told to end",
        CloseReason::LeaseEnded => "the one that held it is gone",
        CloseReason::Idle => "nobody used it",
        CloseReason::Evicted => "nobody used it, and another session needed its slot",
        CloseReason::Ttl => "its time was up",
        CloseReason::ParentClosed => "its parent was closed",
        CloseReason::StartFailed => "a required server could not be started",
        CloseReason::StartCancelled => "its open was cancelled",
        CloseReason::ServersFailed => "a required server failed for good",
        CloseReason::ServersEnded => "its servers ended by themselves",
        CloseReason::Internal => "a defect of the daemon",
        CloseReason::DaemonLost => "the daemon that had it was killed",
        CloseReason::Unknown => "a reason that this client does not know",
    }
}

/// It goes on without the session.
fn detached(server: &EndedServer, style: Style) -> String {
    let what = match (server.scope.as_deref(), &server.host) {
        (Some("daemon"), Some(host)) => format!("sessions share it, as {host}"),
        (Some("daemon"), None) => "sessions share it".to_owned(),
        _ => "someone else runs it".to_owned(),
    };
    // Both were so when it was left, which may be long ago.
    let users = match server.users {
        Some(0) => ", and no other used it then".to_owned(),
        Some(1) => ", and another one used it then".to_owned(),
        Some(users) => format!(", and {users} others used it then"),
        None => String::new(),
    };
    format!("  {}: detached; {what}{users}\n", style.strong(&server.name.to_string()))
}

fn ended_server(server: &EndedServer, style: Style) -> String {
    if server.detached {
        return detached(server, style);
    }
    let mut facts = vec![format!("ended {}", server.stage.map_or("", rung))];
    if let Some(exit) = &server.exit {
        facts.push(exit_text(exit));
    }
    facts.push(units::millis(server.duration_ms));
    if let Some(peak) = server.peak_memory_bytes {
        facts.push(format!("at most {} of memory", units::bytes(peak)));
    }
    if let Some(cpu) = server.cpu_ms {
        facts.push(format!("{cpu} ms of CPU"));
    }
    let mut text = format!("  {}: {}\n", style.strong(server.name.as_str()), facts.join(", "));
    if let Some(command) = &server.stop_command {
        text += &format!("    stop command: {}\n", stop_command(command, style));
    }
    let rows = server.processes.iter().map(process_row);
    text += &indent(&indent(&table(style, &["PID", "ENDED BY", "EXIT", "ESCAPED", "COMMAND"], rows)));
    text
}

fn stop_command(command: &StopCommandEnd, style: Style) -> String {
    let how = match (&command.message, &command.exit) {
        _ if command.killed => "killed, since its time was up".to_owned(),
        (Some(message), _) => escape::line(message).into_owned(),
        (None, Some(exit)) => exit_text(exit),
        (None, None) => "ended".to_owned(),
    };
    let how = if command.ok { how } else { style.bad(&how) };
    let tail = command.stderr_tail.lines().last().filter(|_| !command.ok);
    let tail = tail.map(|line| format!(": {}", escape::line(line))).unwrap_or_default();
    format!("{how}, {}{tail}", units::millis(command.duration_ms))
}

fn process_row(process: &EndedProcess) -> Vec<String> {
    vec![
        process.pid.to_string(),
        process.ended_by.map_or("alive", Stage::as_str).to_owned(),
        process.exit.as_ref().map_or_else(|| "-".to_owned(), exit_text),
        if process.escaped { "yes" } else { "no" }.to_owned(),
        process.command.clone(),
    ]
}

fn rung(stage: Stage) -> &'static str {
    match stage {
        Stage::Itself => "by itself",
        Stage::Stdin => "at the end of its stdin",
        Stage::Sigterm => "by SIGTERM",
        Stage::Sigkill => "by the kill",
        Stage::Unknown => "in a way that this client does not know",
    }
}

/// `code 0`, `signal KILL`.
pub(crate) fn exit_text(exit: &Exit) -> String {
    match exit {
        Exit::Code(code) => format!("code {code}"),
        Exit::Signal(name) => format!("signal {}", escape::line(name)),
    }
}

/// Why a server did not start or stay, the end of its stderr, and what was last said.
pub(crate) fn start_failure(failure: &StartFailure) -> String {
    let mut text = format!("server {} failed: {}", failure.server, escape::line(&failure.message));
    if let Some(exit) = &failure.exit {
        text += &format!(" ({})", exit_text(exit));
    }
    text.push('\n');
    text + &stderr_tail(&failure.stderr_tail) + &indent(&frames::last(&failure.frames))
}

/// The end of a server's stderr, marked as such.
pub(crate) fn stderr_tail(tail: &str) -> String {
    tail.lines().map(|line| format!("  | {}\n", escape::line(line))).collect()
}

/// Two columns to the right.
pub(crate) fn indent(text: &str) -> String {
    text.lines().map(|line| format!("  {line}\n")).collect()
}

#[cfg(test)]
mod tests;
