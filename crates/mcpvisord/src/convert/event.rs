//! What has happened.
use super::certificate::{drained, exit, outcome, proof, reason, stage};
use super::{exact_milliseconds, names, timestamp};
use mcpvisor_control::results;
use mcpvisor_lifecycle::registry::Urgency;
use mcpvisor_supervisor::{Field, Fields, Told};
use serde_json::{Map, Value, json};

/// An event, with what was lost before it.
pub(crate) fn event(told: &Told, instance: &str) -> results::Event {
    let event = &told.event;
    results::Event {
        seq: event.seq,
        instance: instance.to_owned(),
        at: timestamp(event.at),
        kind: event.kind.as_str().to_owned(),
        key: event.subject.key.as_ref().map(names::key),
        generation: event.subject.generation.map(|generation| generation.0),
        server: event.subject.server.as_ref().map(names::server),
        data: fields(&event.data),
        lost: told.lost,
    }
}

fn fields(fields: &Fields) -> Map<String, Value> {
    fields.iter().map(|(name, field)| ((*name).to_owned(), value(field))).collect()
}

fn value(field: &Field) -> Value {
    match field {
        Field::Nothing => Value::Null,
        Field::Text(text) => (**text).into(),
        Field::Number(number) => (*number).into(),
        Field::Flag(flag) => (*flag).into(),
        Field::Span(span) => exact_milliseconds(*span).into(),
        Field::Reason(of) => reason(*of).as_str().into(),
        Field::Outcome(of) => outcome(*of).as_str().into(),
        Field::Proof(of) => proof(*of).as_str().into(),
        Field::Stage(of) => stage(*of).as_str().into(),
        Field::Drained(of) => json!(drained(*of)),
        Field::Exit(of) => json!(exit(*of)),
        Field::Urgency(of) => match of {
            Urgency::Drain => "drain",
            Urgency::Hurry => "hurry",
            Urgency::Kill => "kill",
        }
        .into(),
        Field::List(list) => list.iter().map(value).collect(),
        Field::Object(of) => fields(of).into(),
    }
}
