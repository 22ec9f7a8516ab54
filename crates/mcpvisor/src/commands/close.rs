//! `close` and `kill`.
use super::failure::Failure;
use super::wire::{Wire, deadline_ms, millis};
use super::{Done, Status, tell};
use crate::cli::{CloseArgs, Globals, SessionArgs};
use crate::render::{certificate, output};
use mcpvisor_control::params::{SessionClose, SessionKill, SessionList};
use mcpvisor_control::results::{CloseOutcome, CloseReport, CloseResults, Session};
use mcpvisor_control::{ErrorKind, ErrorObject, SessionKey, SessionRef};
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use std::collections::{HashMap, HashSet};

pub(crate) fn close(args: &CloseArgs, globals: &Globals) -> Done {
    let doing = match args.keys.as_slice() {
        [session] => format!("close session {session}"),
        _ => "close sessions".to_owned(),
    };
    if args.request_id.is_some() && args.keys.len() != 1 {
        return Err(Failure::usage(doing, "`--request-id` names the close of one session: name one KEY"));
    }
    let mut wire = Wire::connect(&doing, globals)?;
    let sessions = if args.keys.is_empty() { chosen(&mut wire, args, globals)? } else { args.keys.clone() };
    let requests: Vec<_> = sessions
        .iter()
        .map(|session| SessionClose {
            key: session.key.clone(),
            generation: session.generation,
            user: globals.user,
            drain_ms: args.drain.map(millis),
            now: args.now,
            wait: !args.no_wait,
            request_id: args.request_id.clone(),
            deadline_ms: wire.deadline_ms(),
        })
        .collect();
    let answers = wire.call_all(&doing, &requests)?;
    report(&doing, &sessions, answers, globals)
}

pub(crate) fn kill(args: &SessionArgs, globals: &Globals) -> Done {
    let session = &args.session;
    let doing = format!("kill session {session}");
    let mut wire = Wire::connect(&doing, globals)?;
    let request = SessionKill {
        key: session.key.clone(),
        generation: session.generation,
        user: globals.user,
        deadline_ms: deadline_ms(globals),
    };
    let answers = wire.call_all(&doing, &[request])?;
    report(&doing, std::slice::from_ref(session), answers, globals)
}

/// The sessions that the selectors mean now, each with its generation: one that is opened after this is not meant.
fn chosen(wire: &mut Wire, args: &CloseArgs, globals: &Globals) -> Result<Vec<SessionRef>, Failure> {
    let list = wire.call("list sessions", &SessionList { user: globals.user, all_users: false })?;
    let of =
        |session: &Session| SessionRef { key: session.key.clone(), generation: Some(session.generation) };
    if let Some(parent) = &args.parent
        && !list.value.sessions.iter().any(|session| session.key == *parent)
    {
        let error = ErrorObject::new(ErrorKind::NotFound, format!("there is no session {parent}"));
        return Err(Failure::refused(
            format!("close what is below session {parent}"),
            error.with("key", parent.as_str()),
        ));
    }
    let below = args.parent.as_ref().map(|parent| below(parent, &list.value.sessions));
    let is_below = |session: &Session| below.as_ref().is_none_or(|below| below.contains(&session.key));
    let chosen = list.value.sessions.iter().filter(|session| is_chosen(session, args) && is_below(session));
    Ok(chosen.map(of).collect())
}

/// The keys of everything below a session.
fn below(parent: &SessionKey, sessions: &[Session]) -> HashSet<SessionKey> {
    let mut children: HashMap<&SessionKey, Vec<&SessionKey>> = HashMap::new();
    for session in sessions {
        if let Some(parent) = &session.parent {
            children.entry(parent).or_default().push(&session.key);
        }
    }
    let (mut found, mut open) = (HashSet::new(), vec![parent]);
    while let Some(key) = open.pop() {
        for child in children.remove(key).unwrap_or_default() {
            found.insert(child.clone());
            open.push(child);
        }
    }
    found
}

fn is_chosen(session: &Session, args: &CloseArgs) -> bool {
    !session.state.is_final()
        && args.tenant.as_ref().is_none_or(|tenant| session.tenant.as_ref() == Some(tenant))
        && args.labels.iter().all(|(name, value)| session.labels.get(name) == Some(value))
}

#[derive(Deserialize, Serialize)]
struct RawResults {
    results: Vec<Box<RawValue>>,
}

/// One result: as it came, and understood where it is a report.
struct Outcome {
    raw: Box<RawValue>,
    report: Result<CloseReport, Failure>,
}

/// Tells one result for each session.
fn report(
    doing: &str,
    sessions: &[SessionRef],
    answers: Vec<Result<Box<RawValue>, Failure>>,
    globals: &Globals,
) -> Done {
    let mut outcomes = Vec::new();
    for (session, answer) in sessions.iter().zip(answers) {
        match answer {
            Ok(raw) => outcomes.extend(understood(doing, &raw)?),
            Err(failure) if failure.kind() == Some(ErrorKind::NotFound) => {
                let key = session.key.clone();
                let report = CloseReport::without_end(key, session.generation, CloseOutcome::NotFound);
                let raw = to_raw_value(&report).map_err(|error| Failure::other(doing, error))?;
                outcomes.push(Outcome { raw, report: Ok(report) });
            }
            // A failure to close the only session is the command's failure.
            Err(failure) if sessions.len() == 1 => return Err(failure),
            Err(failure) => {
                let raw = to_raw_value(&serde_json::json!({
                    "key": session.key, "generation": session.generation, "outcome": "error", "error": failure.to_json(),
                }))
                .map_err(|error| Failure::other(doing, error))?;
                outcomes.push(Outcome { raw, report: Err(failure) });
            }
        }
    }
    if globals.json {
        // As they came, in their own order.
        output::json(&RawResults { results: outcomes.iter().map(|outcome| outcome.raw.clone()).collect() });
    } else {
        let reports = || outcomes.iter().filter_map(|outcome| outcome.report.as_ref().ok());
        if globals.quiet {
            output::text(
                &reports().map(|report| format!("{} {}\n", report.key, report.outcome)).collect::<String>(),
            );
        }
        tell(globals, |style| reports().map(|report| certificate::certificate(report, style)).collect());
        for failure in outcomes.iter().filter_map(|outcome| outcome.report.as_ref().err()) {
            failure.tell(false, Some(globals));
        }
        if outcomes.is_empty() && !globals.quiet {
            output::note("no session is meant by this");
        }
    }
    let statuses = outcomes.iter().map(|outcome| outcome.report.as_ref().map_or(Status::Failed, status_of));
    Ok(worst(statuses))
}

fn understood(doing: &str, raw: &RawValue) -> Result<Vec<Outcome>, Failure> {
    let bad = |error| Failure::other(doing, format!("the daemon's answer can't be understood: {error}"));
    let raws: RawResults = serde_json::from_str(raw.get()).map_err(bad)?;
    let reports: CloseResults = serde_json::from_str(raw.get()).map_err(bad)?;
    let pairs = raws.results.into_iter().zip(reports.results);
    Ok(pairs.map(|(raw, report)| Outcome { raw, report: Ok(report) }).collect())
}

/// What one report means for the exit status.
pub(super) fn status_of(report: &CloseReport) -> Status {
    match report.outcome {
        CloseOutcome::Closed | CloseOutcome::Stopping => Status::Done,
        CloseOutcome::Quarantined => Status::Quarantined,
        CloseOutcome::NotFound => Status::NotFound,
        CloseOutcome::Unknown => Status::Failed,
    }
}

/// Of several results: 8, else 1, else 4, else 0.
fn worst(statuses: impl Iterator<Item = Status>) -> Status {
    let rank = |status: &Status| match status {
        Status::Quarantined => 4,
        Status::Failed => 3,
        Status::NotYet => 2,
        Status::NotFound => 1,
        Status::Done => 0,
    };
    statuses.max_by_key(rank).unwrap_or(Status::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_several_results_the_worst_gives_the_status() {
        let worst = |statuses: &[Status]| worst(statuses.iter().copied());
        assert_eq!(worst(&[]), Status::Done);
        assert_eq!(worst(&[Status::Done, Status::NotFound]), Status::NotFound);
        assert_eq!(worst(&[Status::NotFound, Status::Failed, Status::Done]), Status::Failed);
        assert_eq!(worst(&[Status::Failed, Status::Quarantined, Status::NotFound]), Status::Quarantined);
    }
}
