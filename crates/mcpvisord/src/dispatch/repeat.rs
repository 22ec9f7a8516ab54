//! Requests that may be sent again: those with the same `request_id` of the same owner are carried out once.
//!
//! A method that takes an id says what it asks for ([`Asked`]) and hands over its work as a future; everything else is here and in
//! the machine `repeats`.
use crate::connection::Context;
use mcpvisor_control::{Call, ErrorKind, ErrorObject};
use mcpvisor_lifecycle::Uid;
use mcpvisor_lifecycle::repeats::NotRepeated;
use mcpvisor_supervisor::{Done, NoAnswer, Repeat, Repeats, Undo, is_volatile};
use serde_json::Value;
use serde_json::value::RawValue;
use std::future::Future;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Instant;

/// The answers that are remembered: as they were told first.
pub(crate) type Answers = Repeats<Result<Box<RawValue>, ErrorObject>>;

/// The longest id, in bytes.
const LONGEST_ID: usize = 128;

/// A request with an id.
pub(super) struct Asked {
    pub(super) id: String,
    /// Whose sessions it is about; ids are the owner's own.
    pub(super) owner: Uid,
    /// It goes on where nobody waits for its answer.
    pub(super) goes_on: bool,
    pub(super) deadline: Option<Instant>,
}

/// What came of the work, with what takes it back where nobody hears of it.
pub(super) type Worked<A> = (Result<A, ErrorObject>, Option<Undo>);

/// Carries out the work of the first request with this id, and answers with its answer. `params` are all of the request's.
pub(super) async fn once<P: Call>(
    context: &Context,
    asked: Asked,
    params: &P,
    work: impl Future<Output = Worked<P::Answer>> + Send + 'static,
) -> Result<P::Answer, ErrorObject> {
    let Asked { id, owner, goes_on, deadline } = asked;
    check(&id)?;
    let told = serde_json::to_value(params).map_err(|error| untold(&error))?;
    let digest = digest(P::METHOD.as_str(), told);
    let repeat = Repeat { owner, id: id.into(), digest, goes_on, deadline };
    let work = async move {
        let (answer, undo) = work.await;
        let answer = answer
            .and_then(|answer| serde_json::value::to_raw_value(&answer).map_err(|error| untold(&error)));
        Done { keep: has_left_something(&answer), answer, undo }
    };
    match context.daemon.answers().once(repeat, || context.gone(), work).await {
        Ok(answer) => serde_json::from_str(answer?.get()).map_err(|error| untold(&error)),
        Err(refusal) => Err(refused(refusal)),
    }
}

fn untold(error: &serde_json::Error) -> ErrorObject {
    ErrorObject::new(ErrorKind::Internal, format!("the answer can't be told: {error}"))
}

fn check(id: &str) -> Result<(), ErrorObject> {
    if (1..=LONGEST_ID).contains(&id.len()) && !id.chars().any(char::is_control) {
        return Ok(());
    }
    Err(ErrorObject::new(
        ErrorKind::InvalidRequest,
        format!("a request id has 1 to {LONGEST_ID} bytes and no control characters"),
    ))
}

/// Of all that is asked for. The id itself and the requester's patience are not part of it, nor what differs from shell to shell.
fn digest(method: &str, mut told: Value) -> u64 {
    if let Value::Object(members) = &mut told {
        members.remove("request_id");
        members.remove("deadline_ms");
        if let Some(Value::Array(environment)) = members.get_mut("environment") {
            environment
                .retain(|variable| !variable.as_str().is_some_and(|text| is_volatile(text.as_bytes())));
            environment.sort_by_cached_key(Value::to_string);
        }
    }
    let mut hash = DefaultHasher::new();
    (method, told.to_string()).hash(&mut hash);
    hash.finish()
}

/// A refusal leaves no trace (G9), so it is not remembered either: a retry may find room.
fn has_left_something(answer: &Result<Box<RawValue>, ErrorObject>) -> bool {
    match answer {
        Ok(_) => true,
        Err(error) => matches!(
            error.kind(),
            ErrorKind::StartFailed
                | ErrorKind::StartTimeout
                | ErrorKind::SessionClosed
                | ErrorKind::SessionFailed
        ),
    }
}

fn refused(refusal: NoAnswer) -> ErrorObject {
    match refusal {
        NoAnswer::Refused(NotRepeated::OtherRequest) => ErrorObject::new(
            ErrorKind::InvalidRequest,
            "the request id is that of another request, which asked for something else",
        )
        .with("help", "take a new id for each request, and the same one only to send it again"),
        NoAnswer::Refused(NotRepeated::TooMany { used, limit }) => ErrorObject::new(
            ErrorKind::Overloaded,
            format!("{used} requests of this user that have an id are under way, and {limit} may be"),
        )
        .with("used", used)
        .with("limit", limit)
        .with("scope", "request_ids"),
        NoAnswer::Refused(NotRepeated::DeadlineExceeded) => {
            ErrorObject::new(ErrorKind::DeadlineExceeded, "the deadline has passed")
        }
        NoAnswer::Broke => ErrorObject::new(ErrorKind::Internal, "the request's handler broke"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn same(one: &Value, two: &Value) -> bool {
        let of = |params: &Value| digest("session/open", params.clone());
        of(one) == of(two)
    }

    #[test]
    fn a_retry_asks_for_the_same_with_another_patience_and_from_another_shell() {
        let one = json!({"key": "a", "request_id": "x", "deadline_ms": 5, "environment": ["A=1", "SHLVL=1", "B=2"]});
        assert!(same(&one, &json!({"key": "a", "environment": ["B=2", "SHLVL=2", "A=1"]})));
        assert!(!same(&one, &json!({"key": "a", "environment": ["A=1"]})));
        assert!(!same(&one, &json!({"key": "b", "environment": ["A=1", "B=2"]})));
        let of = |method| digest(method, json!({"key": "a"}));
        assert_ne!(of("session/open"), of("session/close"));
    }

    #[test]
    fn ids_are_short_and_printable() {
        assert!(check("r-1").is_ok() && check(&"x".repeat(128)).is_ok());
        for bad in ["", &"x".repeat(129), "a\u{1b}[2J", "a\nb"] {
            assert!(check(bad).is_err(), "{bad:?}");
        }
    }

    /// G9: what left nothing is tried again.
    #[test]
    fn g9_refusals_are_not_remembered() {
        for kind in ErrorKind::ALL {
            let left = matches!(
                kind.as_str(),
                "start_failed" | "start_timeout" | "session_closed" | "session_failed"
            );
            assert_eq!(has_left_something(&Err(ErrorObject::new(*kind, "no"))), left, "{kind}");
        }
    }
}
