//! `wait`.
use super::wire::{Wire, deadline_ms};
use super::{Done, Status, tell_or};
use crate::cli::{Globals, WaitArgs};
use crate::render::{certificate, output};
use mcpvisor_control::params::{Goal, SessionWait};

pub(crate) fn wait(args: &WaitArgs, globals: &Globals) -> Done {
    let goal = match args.goal {
        Goal::Closed => "closed",
        Goal::Ready => "ready",
    };
    let session = &args.session;
    let doing = format!("wait until session {session} is {goal}");
    let mut wire = Wire::connect(&doing, globals)?;
    let request = SessionWait {
        key: session.key.clone(),
        generation: session.generation,
        user: globals.user,
        goal: args.goal,
        deadline_ms: deadline_ms(globals),
    };
    let answer = wire.call(&doing, &request)?;
    let waited = &answer.value;
    if globals.json {
        output::json(&answer.raw);
    } else {
        tell_or(globals, waited.state, |style| match &waited.certificate {
            Some(report) => certificate::certificate(report, style),
            None => {
                let not_yet = if waited.reached { "" } else { ", not yet what was waited for" };
                format!("{}@{} {}{not_yet}", waited.key, waited.generation, waited.state)
            }
        });
    }
    Ok(if waited.reached { Status::Done } else { Status::NotYet })
}
