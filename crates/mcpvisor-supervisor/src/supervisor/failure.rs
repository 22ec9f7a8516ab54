//! What a refusal of the registry, or an end of a call, is called outside.
use crate::api::Failure;
use crate::frames::LAST;
use crate::record::SessionRecord;
use crate::relay::CallError;
use mcpvisor_lifecycle::ServerName;
use mcpvisor_lifecycle::registry::Refusal;
use mcpvisor_mcp::peer::turns::Load;
use std::time::Duration;

/// How much of a server's stderr goes with the failure of a call, in bytes.
pub(super) const CALL_TAIL: usize = 2048;

/// The registry's actor ended before it answered.
pub(super) fn lost() -> Failure {
    Failure::Internal("the registry was lost; its sessions are being reaped".to_owned())
}

pub(super) fn failure(refusal: &Refusal, record: Option<&SessionRecord>) -> Failure {
    let detail = || {
        record
            .and_then(|record| record.live().certificate.as_ref().and_then(|of| of.failure.clone()))
            .map(Box::new)
    };
    match *refusal {
        Refusal::Draining => Failure::Draining,
        Refusal::SessionExists { session } => Failure::SessionExists { session },
        Refusal::SessionClosing { session } => Failure::SessionClosing { session },
        Refusal::SessionClosed { session } => Failure::SessionClosed { session },
        Refusal::SessionFailed { session } => Failure::SessionFailed { session, failure: detail() },
        Refusal::StartFailed { session } => {
            let failure = detail();
            let timeout = failure.as_ref().is_some_and(|failure| failure.cause == "timeout");
            Failure::StartFailed { session, timeout, failure }
        }
        Refusal::Broken(broken) => {
            let of_spec = |record: &SessionRecord| {
                record.servers().iter().find(|server| server.digest == broken.spec).cloned()
            };
            let server = record.and_then(of_spec);
            let failure = server.as_ref().and_then(|server| server.live().failure.clone()).map(Box::new);
            let server = server.map(|server| server.spec.name.clone());
            Failure::BreakerOpen { server, trying: broken.trying, retry_after: broken.retry_after, failure }
        }
        Refusal::Quarantined { session } => Failure::Quarantined { session },
        Refusal::CapacityExhausted { scope, used, limit, retry_after } => {
            Failure::CapacityExhausted { scope: scope.as_str(), used, limit, retry_after }
        }
        Refusal::ParentNotFound => Failure::ParentNotFound,
        Refusal::ParentClosing { session } => Failure::ParentClosing { session },
        Refusal::TooDeep { limit } => Failure::Invalid(format!(
            "sessions are nested at most {limit} deep, and the parent is there already"
        )),
        Refusal::StaleGeneration { session } => Failure::StaleGeneration { session },
        Refusal::NotFound => Failure::NotFound,
        Refusal::NotQuarantined { session } => Failure::NotQuarantined { session },
        Refusal::DeadlineExceeded { .. } => Failure::DeadlineExceeded,
        Refusal::HolderEnded => Failure::Invalid("the process of the lease has ended".to_owned()),
    }
}

fn queue_full(server: &ServerName, load: Load, waited: Option<Duration>) -> Failure {
    let Load { used, limit, in_flight } = load;
    Failure::QueueFull { server: server.clone(), used, limit, in_flight, waited }
}

pub(super) fn call_failure(error: CallError, server: &ServerName, record: &SessionRecord) -> Failure {
    match error {
        CallError::ServerError(error) => Failure::ServerError(error),
        CallError::BadAnswer(what) => Failure::BadAnswer { server: server.clone(), what },
        CallError::Overloaded => Failure::Overloaded,
        CallError::QueueFull(load) => queue_full(server, load, None),
        CallError::QueueTimeout { load, after } => queue_full(server, load, Some(after)),
        CallError::TimedOut(overrun) => {
            Failure::CallTimeout { server: server.clone(), key: overrun.key, after: overrun.after }
        }
        CallError::Closing => Failure::SessionClosing { session: record.id },
        CallError::ServerExited => {
            let (exit, stderr_tail, frames) = match record.server(server) {
                Some(server) => {
                    (server.exit(), server.stderr_tail(CALL_TAIL), server.frames.last(LAST).into())
                }
                None => (None, String::new(), [].into()),
            };
            Failure::ServerExited { server: server.clone(), exit, stderr_tail, frames }
        }
        CallError::Leaving(reason) | CallError::LeftUnwritten(reason) => {
            Failure::ServerLeft { server: server.clone(), reason, asked: false }
        }
        CallError::LeftUnanswered(reason) => {
            Failure::ServerLeft { server: server.clone(), reason, asked: true }
        }
        // The server's fault, and not the caller's.
        error => Failure::Unsupported(error.to_string()),
    }
}
