//! The exit status of `run`: the server's own, as far as there is one.
use crate::run::failure::Failure;
use mcpvisor_control::results::{CloseOutcome, CloseReason, CloseReport, Exit};
use mcpvisor_control::{ErrorKind, ErrorObject};

/// 128+N, as a shell tells it.
pub(crate) fn of_signal(signal: u8) -> u8 {
    128_u8.saturating_add(signal)
}

/// What the certificate says: 0 where the client's end of file came first, else the server's status.
pub(crate) fn of_certificate(certificate: Option<&CloseReport>) -> Result<u8, Failure> {
    let certificate =
        certificate.ok_or_else(|| Failure::own("the daemon tells nothing of the server's end"))?;
    if certificate.outcome == CloseOutcome::Quarantined {
        let left: Vec<String> = certificate.remaining.iter().map(|left| left.pid.to_string()).collect();
        return Err(Failure::own(format!(
            "processes of the server could not be killed: {}",
            left.join(", ")
        )));
    }
    if certificate.reason == Some(CloseReason::LeaseEnded) {
        return Ok(0);
    }
    let exit = certificate.servers.first().and_then(|server| server.exit.as_ref());
    exit.and_then(of_exit).ok_or_else(|| {
        let reason = certificate.reason.map_or("unknown", CloseReason::as_str);
        Failure::own(format!("the server ended and its status is not known (reason: {reason})"))
    })
}

/// The server ran and ended before the daemon could even answer the open: its own status counts.
pub(crate) fn of_failed_start(error: &ErrorObject) -> Option<u8> {
    if !matches!(error.kind(), ErrorKind::StartFailed | ErrorKind::SessionFailed | ErrorKind::ServerExited) {
        return None;
    }
    let exit = serde_json::from_value(error.detail("exit")?.clone()).ok()?;
    of_exit(&exit)
}

fn of_exit(exit: &Exit) -> Option<u8> {
    match exit {
        // Exit codes have eight bits.
        Exit::Code(code) => u8::try_from(code & 0xff).ok(),
        Exit::Signal(name) => signal_number(name).map(of_signal),
    }
}

/// The number of a signal by its name without `SIG`; of one that has no name, the number as text.
fn signal_number(name: &str) -> Option<u8> {
    use signal_hook::consts::signal as number;
    let known = match name {
        "HUP" => number::SIGHUP,
        "INT" => number::SIGINT,
        "QUIT" => number::SIGQUIT,
        "ILL" => number::SIGILL,
        "TRAP" => number::SIGTRAP,
        "ABRT" => number::SIGABRT,
        "BUS" => number::SIGBUS,
        "FPE" => number::SIGFPE,
        "KILL" => number::SIGKILL,
        "USR1" => number::SIGUSR1,
        "SEGV" => number::SIGSEGV,
        "USR2" => number::SIGUSR2,
        "PIPE" => number::SIGPIPE,
        "ALRM" => number::SIGALRM,
        "TERM" => number::SIGTERM,
        "VTALRM" => number::SIGVTALRM,
        "PROF" => number::SIGPROF,
        "XCPU" => number::SIGXCPU,
        "XFSZ" => number::SIGXFSZ,
        "SYS" => number::SIGSYS,
        "IO" | "POLL" => number::SIGIO,
        other => other.parse().ok()?,
    };
    u8::try_from(known).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn certificate(reason: &str, stage: &str, exit: &serde_json::Value) -> CloseReport {
        serde_json::from_value(json!({
            "key": "k", "generation": 1, "outcome": "closed", "proof": "cgroup", "reason": reason,
            "drained": null, "duration_ms": 1.0, "remaining": [],
            "servers": [{"name": "main", "stage": stage, "exit": exit, "duration_ms": 1.0, "processes": [],
                         "peak_memory_bytes": null, "cpu_ms": null}],
        }))
        .unwrap()
    }

    #[test]
    fn the_servers_own_status_counts_unless_the_client_left_first() {
        let status = |reason, stage, exit: &_| of_certificate(Some(&certificate(reason, stage, exit)));
        assert_eq!(status("servers_ended", "itself", &json!({"code": 0})), Ok(0));
        assert_eq!(status("servers_failed", "itself", &json!({"code": 3})), Ok(3));
        assert_eq!(status("servers_failed", "itself", &json!({"signal": "SEGV"})), Ok(139));
        assert_eq!(status("servers_failed", "itself", &json!({"signal": "34"})), Ok(162));
        assert_eq!(status("requested", "sigterm", &json!({"signal": "TERM"})), Ok(143));
        assert_eq!(status("lease_ended", "sigkill", &json!({"signal": "KILL"})), Ok(0));
        assert_eq!(status("lease_ended", "stdin", &json!({"code": 1})), Ok(0));
        assert_eq!(status("internal", "sigkill", &json!(null)).unwrap_err().status, 125);
        assert_eq!(of_certificate(None).unwrap_err().status, 125);
    }

    #[test]
    fn what_could_not_be_killed_is_a_failure() {
        let mut report = certificate("lease_ended", "sigkill", &json!(null));
        report.outcome = CloseOutcome::Quarantined;
        assert_eq!(of_certificate(Some(&report)).unwrap_err().status, 125);
    }

    #[test]
    fn a_server_that_ended_at_once_has_a_status_too() {
        let error = ErrorObject::new(ErrorKind::StartFailed, "m").with("exit", json!({"code": 7}));
        assert_eq!(of_failed_start(&error), Some(7));
        let none = ErrorObject::new(ErrorKind::StartFailed, "m").with("exit", json!(null));
        assert_eq!(of_failed_start(&none), None);
        let other = ErrorObject::new(ErrorKind::Draining, "m").with("exit", json!({"code": 7}));
        assert_eq!(of_failed_start(&other), None);
    }
}
