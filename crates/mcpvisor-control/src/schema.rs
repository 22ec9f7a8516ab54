//! The JSON Schema of the protocol, generated from the types.
use crate::error::ErrorObject;
use crate::method::{CANCELLED, EVENT, EVENTS_ENDED, LOG, Method, PROGRESS};
use crate::{call, params, results};
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

/// One schema document: for each method its parameters and its answer, for each notification its parameters, the error
/// object, and the definitions that they share. Methods that are named and not served have none.
#[must_use]
pub fn document() -> Value {
    let mut generator = SchemaSettings::draft2020_12().into_generator();
    let mut methods = Map::new();
    for (method, params, answer) in call::schemas(&mut generator) {
        methods.insert(method.as_str().to_owned(), json!({ "params": params, "result": answer }));
    }
    let reserved: Vec<_> = Method::ALL
        .iter()
        .map(|method| method.as_str())
        .filter(|name| !methods.contains_key(*name))
        .collect();
    let notifications = json!({
        CANCELLED: { "from": "client", "params": generator.subschema_for::<params::Cancelled>() },
        LOG: { "from": "daemon", "params": generator.subschema_for::<results::LogNotification>() },
        EVENT: { "from": "daemon", "params": generator.subschema_for::<results::EventNotification>() },
        EVENTS_ENDED: { "from": "daemon", "params": generator.subschema_for::<results::EventsEnded>() },
        PROGRESS: { "from": "daemon", "params": generator.subschema_for::<results::ProgressNotification>() },
    });
    let error = generator.subschema_for::<ErrorObject>();
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "The control protocol of mcpvisor",
        "version": crate::PROTOCOL_VERSION,
        "methods": methods,
        "reserved": reserved,
        "notifications": notifications,
        "error": error,
        "$defs": generator.take_definitions(true),
    })
}
