//! Why a request was not done: kind, message, details, mend.
use super::approval::approval_id;
use super::certificate::{exit, remaining, start_failure};
use super::frame::frames;
use super::{count, milliseconds, names};
use mcpvisor_control::results::Exit;
use mcpvisor_control::{ErrorKind, ErrorObject};
use mcpvisor_lifecycle::server::ServerState;
use mcpvisor_lifecycle::{SessionId, SessionKey};
use mcpvisor_supervisor::{Failure, GivenUp, StartFailure};

/// The error of a request that meant this key, where it meant one. Messages name keys of the requester's own only.
pub(crate) fn error(failure: Failure, key: Option<&SessionKey>) -> ErrorObject {
    let reached = failure.reached_server();
    let mut object = plain(failure, key);
    if let Some(reached) = reached {
        object = object.with("reached_server", reached);
    }
    match key {
        Some(key) => object.with("key", key.as_str()),
        None => object,
    }
}

/// The same of an open, which may have named a parent.
pub(crate) fn open_error(
    failure: Failure,
    key: &SessionKey,
    parent: Option<&mcpvisor_control::SessionKey>,
) -> ErrorObject {
    let kind = match failure {
        Failure::ParentNotFound => ErrorKind::NotFound,
        Failure::ParentClosing { .. } => ErrorKind::SessionClosing,
        _ => return error(failure, Some(key)),
    };
    let named = parent.map_or_else(String::new, |parent| format!(" {parent}"));
    let message = match kind {
        ErrorKind::NotFound => format!("there is no session{named} to open session {key} below"),
        _ => format!("the parent session{named} is being closed"),
    };
    let object = ErrorObject::new(kind, message).with("key", key.as_str());
    match parent {
        Some(parent) => object.with("parent", parent.as_str()),
        None => object,
    }
}

fn plain(failure: Failure, key: Option<&SessionKey>) -> ErrorObject {
    let named = key.map_or_else(|| "the session".to_owned(), |key| format!("session {key}"));
    let of = |kind, message: String, session: SessionId| {
        ErrorObject::new(kind, message).with("generation", session.generation.0)
    };
    match failure {
        Failure::NotFound => ErrorObject::new(
            ErrorKind::NotFound,
            key.map_or_else(
                || "there is no such session".to_owned(),
                |key| format!("there is no session {key}"),
            ),
        )
        .with("help", "`mcpvisor list` tells the sessions that there are"),
        Failure::SessionExists { session } => of(
            ErrorKind::SessionExists,
            format!("{named} is open already: its definition is another one, or it must not be joined"),
            session,
        )
        .with("help", "close it first, or take another key"),
        Failure::ParentNotFound => ErrorObject::new(ErrorKind::NotFound, failure.to_string()),
        Failure::ParentClosing { session } => of(ErrorKind::SessionClosing, failure.to_string(), session),
        Failure::SessionClosing { session } => {
            of(ErrorKind::SessionClosing, format!("{named} is being closed"), session)
        }
        Failure::SessionClosed { session } => {
            of(ErrorKind::SessionClosed, format!("{named} was closed"), session)
        }
        Failure::SessionFailed { session, failure } => {
            started(of(ErrorKind::SessionFailed, format!("{named} failed"), session), failure)
        }
        Failure::StartFailed { session, timeout, failure } => {
            let kind = if timeout { ErrorKind::StartTimeout } else { ErrorKind::StartFailed };
            started(of(kind, format!("{named} could not be started"), session), failure)
        }
        Failure::BreakerOpen { server, trying, retry_after, failure } => {
            let server = server.map_or_else(|| "a server".to_owned(), |name| format!("server {name}"));
            let now = if trying {
                "another session is just trying it".to_owned()
            } else {
                format!("it is not started for another {} s", retry_after.as_secs_f64().ceil())
            };
            let last = failure.as_ref().map(|failure| format!("; the last time: {}", failure.message));
            let object = ErrorObject::new(
                ErrorKind::StartFailed,
                format!(
                    "the breaker of {server} is open, since its starts failed again and again: {now}{}",
                    last.unwrap_or_default()
                ),
            );
            let object = match &failure {
                Some(failure) => object
                    .with_all(start_failure(failure))
                    .with("last_reason", failure.cause)
                    .with("message", failure.message.as_str()),
                None => object,
            };
            object
                .with("reason", "breaker")
                .with("breaker", if trying { "half_open" } else { "open" })
                .with("retry_after_ms", milliseconds(retry_after))
                .with("help", "mend what fails; `mcpvisor reload` closes every breaker at once")
        }
        Failure::Quarantined { session } => of(
            ErrorKind::Quarantined,
            format!("processes of {named} could not be killed; its key stays blocked until they are gone"),
            session,
        )
        .with("help", "`mcpvisor show` tells them, `mcpvisor kill` tries again"),
        Failure::CapacityExhausted { scope, used, limit, retry_after } => {
            let sessions = |whose| format!("{used} of at most {limit} sessions {whose} are in use");
            let (message, help) = match scope {
                "user" => {
                    (sessions("of this user"), "close some, or raise max_sessions_per_user in [daemon]")
                }
                "tenant" => {
                    (sessions("of this tenant"), "close some, or raise max_sessions_per_tenant in [daemon]")
                }
                "profile" => {
                    (sessions("of this profile"), "close some, or raise max_sessions in the profile")
                }
                "processes" => (
                    format!("{used} of at most {limit} processes of servers are in use or promised"),
                    "close some sessions, or raise max_processes in [daemon]",
                ),
                "session_processes" => (
                    format!("the session has {used} servers, and may have {limit}"),
                    "open fewer servers, or raise max_processes_per_session in [daemon]",
                ),
                "queue" => (
                    format!("{used} of at most {limit} opens of this user wait for a slot"),
                    "close some sessions, or raise max_queued_per_user in [daemon]",
                ),
                _ => (sessions("in all"), "close some, or raise max_sessions in [daemon]"),
            };
            ErrorObject::new(ErrorKind::CapacityExhausted, message)
                .with("used", count(used))
                .with("limit", count(limit))
                .with("scope", scope)
                .with("retry_after_ms", milliseconds(retry_after))
                .with("help", help)
        }
        Failure::Draining => {
            ErrorObject::new(ErrorKind::Draining, "the daemon is draining and opens no more sessions")
        }
        Failure::StaleGeneration { session } => of(
            ErrorKind::StaleGeneration,
            format!("generation {} of {named} is over", session.generation.0),
            session,
        ),
        Failure::NotQuarantined { session } => of(
            ErrorKind::InvalidRequest,
            format!("{named} is not quarantined: there is nothing to kill again"),
            session,
        )
        .with("help", "`mcpvisor close` ends a session"),
        Failure::DeadlineExceeded => ErrorObject::new(ErrorKind::DeadlineExceeded, "the deadline has passed"),
        Failure::Cancelled => ErrorObject::new(ErrorKind::Cancelled, "the request was cancelled"),
        Failure::CallGivenUp { why, reached } => {
            let (kind, what) = match why {
                GivenUp::Deadline => (ErrorKind::DeadlineExceeded, "the deadline has passed"),
                GivenUp::Gone => (ErrorKind::Cancelled, "the request was cancelled"),
            };
            ErrorObject::new(kind, format!("{what}; {}", of_the_call(reached)))
        }
        Failure::CallUnfinished { session, reached } => of(
            ErrorKind::SessionClosing,
            format!("{named} is being closed; {}", of_the_call(reached)),
            session,
        ),
        Failure::ServerExited { server, exit: status, stderr_tail, frames: last } => {
            let status = status.map(exit);
            let how = match &status {
                Some(Exit::Code(code)) => format!("exited with {code}"),
                Some(Exit::Signal(signal)) => format!("was killed by SIG{signal}"),
                None => "ended".to_owned(),
            };
            ErrorObject::new(ErrorKind::ServerExited, format!("server {server} {how} before it answered"))
                .with("server", names::server(&server))
                .with("exit", status)
                .with("stderr_tail", stderr_tail)
                .with("frames", frames(&last))
        }
        Failure::ServerDown { down, exit: status, stderr_tail } => {
            let server = &down.server;
            let message = match (down.state, down.retry_after) {
                (ServerState::Backoff, Some(after)) => {
                    format!("server {server} has ended and is started again in {} ms", milliseconds(after))
                }
                (ServerState::Backoff | ServerState::Starting, _) => {
                    format!("server {server} has ended and is being started again")
                }
                (ServerState::Stopping, Some(_)) => {
                    format!("server {server} is being stopped, to be started again or replaced")
                }
                (ServerState::Failed, _) => format!("server {server} has failed and is not started again"),
                (ServerState::Ready | ServerState::Stopping | ServerState::Stopped, _) => {
                    format!("server {server} has ended")
                }
            };
            let message = format!("{message}; the call did not reach it");
            let object = ErrorObject::new(ErrorKind::ServerExited, message)
                .with("server", names::server(server))
                .with("exit", status.map(exit))
                .with("stderr_tail", stderr_tail);
            match down.retry_after {
                Some(after) => object.with("retry_after_ms", milliseconds(after)),
                None => object,
            }
        }
        Failure::ServerLeft { server, reason, asked } => {
            let end = if asked { ", and had not answered" } else { ", and the call did not reach it" };
            ErrorObject::new(ErrorKind::ServerExited, format!("server {server} {reason}{end}"))
                .with("server", names::server(&server))
        }
        Failure::ServerExists { server } => ErrorObject::new(
            ErrorKind::ServerExists,
            format!("{named} has a server {server} already, though it may be one that is being removed"),
        )
        .with("server", names::server(&server))
        .with("help", "remove it first, or take another name"),
        Failure::ServerBusy { server } => ErrorObject::new(
            ErrorKind::ServerBusy,
            format!("server {server} of {named} is being changed by another request"),
        )
        .with("server", names::server(&server)),
        Failure::ServerFailed { session, server, failure } => {
            let timeout = failure.as_ref().is_some_and(|failure| failure.cause == "timeout");
            let kind = if timeout { ErrorKind::StartTimeout } else { ErrorKind::StartFailed };
            started(of(kind, format!("server {server} could not be started"), session), failure)
                .with("server", names::server(&server))
        }
        Failure::ServerQuarantined { session, server, remaining: left } => of(
            ErrorKind::Quarantined,
            format!("processes of server {server} could not be killed; it is none of the session's any more"),
            session,
        )
        .with("server", names::server(&server))
        .with("remaining", remaining(&left))
        .with("help", "`mcpvisor server remove` tries again"),
        Failure::Unsupported(why) => ErrorObject::new(ErrorKind::Unsupported, why),
        Failure::Invalid(why) => ErrorObject::new(ErrorKind::InvalidRequest, why),
        Failure::Overloaded => ErrorObject::new(ErrorKind::Overloaded, "too many calls are in flight"),
        Failure::QueueFull { server, used, limit, in_flight, waited } => {
            let message = match waited {
                None => format!("too many calls wait for server {server} already"),
                Some(_) => format!("the call waited too long for its turn at server {server}"),
            };
            let object = ErrorObject::new(ErrorKind::Overloaded, message)
                .with("server", names::server(&server))
                .with("scope", "queue")
                .with("used", count(used))
                .with("limit", count(limit))
                .with("in_flight", count(in_flight));
            match waited {
                Some(span) => object.with("queue_timeout_ms", milliseconds(span)),
                None => object,
            }
        }
        Failure::NotApproved { server, tool, approval, waited, why } => {
            let (decision, mut message) = match waited {
                None => ("denied", "a person has denied the call".to_owned()),
                Some(after) => {
                    ("timed_out", format!("nobody has approved the call within {} ms", milliseconds(after)))
                }
            };
            if let Some(why) = why {
                message.push_str(": ");
                message.push_str(&why);
            }
            ErrorObject::new(ErrorKind::PermissionDenied, message)
                .with("approval", approval_id(approval))
                .with("decision", decision)
                .with("server", names::server(&server))
                .with("tool", tool)
        }
        Failure::TooManyHeld { used } => {
            ErrorObject::new(ErrorKind::Overloaded, "too many calls of the session are held for approval")
                .with("scope", "approvals")
                .with("used", count(used))
                .with("limit", count(used))
        }
        Failure::NoApproval => ErrorObject::new(ErrorKind::NotFound, "no call is held under this number")
            .with("help", "`mcpvisor approvals` lists those that are held"),
        Failure::DecidedBefore(first) => {
            let first = first.as_str();
            ErrorObject::new(ErrorKind::AlreadyDecided, format!("the call was decided before: {first}"))
                .with("decision", first)
        }
        Failure::CallTimeout { server, key, after } => ErrorObject::new(
            ErrorKind::DeadlineExceeded,
            format!(
                "server {server} has not answered in {} ms ({key}), and the call was cancelled there",
                milliseconds(after)
            ),
        )
        .with("server", names::server(&server))
        .with("timeout", key)
        .with("timeout_ms", milliseconds(after)),
        Failure::ServerError(error) => {
            let told: serde_json::Value = serde_json::from_str(error.get()).unwrap_or_default();
            let message = told["message"].as_str().unwrap_or("it gave no message").to_owned();
            ErrorObject::new(ErrorKind::ServerError, format!("the server answered with an error: {message}"))
                .with("error", told)
        }
        Failure::BadAnswer { server, what } => ErrorObject::new(
            ErrorKind::ServerError,
            format!("server {server} gave an answer that can't be used: {what}"),
        )
        .with("server", names::server(&server)),
        Failure::Internal(why) => ErrorObject::new(ErrorKind::Internal, why),
    }
}

/// What became of a call that was given up (G31).
fn of_the_call(reached: bool) -> &'static str {
    match reached {
        true => "the call was cancelled at its server, which may have done it",
        false => "the call did not reach its server",
    }
}

/// The server's failure is the message; the session's stands where there is none.
fn started(object: ErrorObject, failure: Option<Box<StartFailure>>) -> ErrorObject {
    let Some(failure) = failure else { return object };
    let mut object = object.with_all(start_failure(&failure));
    object.data.details.remove("message");
    object.message = format!("server {}: {}", failure.server, failure.message);
    object
}
