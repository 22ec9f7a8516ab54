//! Lines that clients and daemons of a release have sent must be understood for ever. A file is never changed after its
//! release; what is added later gets a file of its own.
use mcpvisor_control::message::Message;
use mcpvisor_control::params::{self, Cancelled};
use mcpvisor_control::{Call, Method, method, parse_params, results};
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::{HashMap, HashSet};

const V1: &str = include_str!("frozen-v1.jsonl");

/// How the lines of one method are read.
struct Reader {
    method: Method,
    /// Understands parameters, and tells them again.
    params: fn(Option<&RawValue>) -> Value,
    answer: fn(&str),
}

fn reader<P: Call>() -> Reader {
    Reader {
        method: P::METHOD,
        params: |raw| match parse_params::<P>(raw) {
            Ok(params) => serde_json::to_value(&params).expect("parameters can be told in JSON"),
            Err(error) => panic!("{error}"),
        },
        answer: |raw| {
            if let Err(error) = serde_json::from_str::<P::Answer>(raw) {
                panic!("{}: {error}", P::METHOD);
            }
        },
    }
}

fn readers() -> Vec<Reader> {
    vec![
        reader::<params::Hello>(),
        reader::<params::Status>(),
        reader::<params::Drain>(),
        reader::<params::Reload>(),
        reader::<params::Shutdown>(),
        reader::<params::SessionOpen>(),
        reader::<params::SessionClose>(),
        reader::<params::SessionWait>(),
        reader::<params::SessionList>(),
        reader::<params::SessionShow>(),
        reader::<params::SessionKill>(),
        reader::<params::ToolList>(),
        reader::<params::ToolCall>(),
        reader::<params::ProcessList>(),
        reader::<params::LogRead>(),
    ]
}

/// All that the line said is said again; fields that it left out may come with their defaults.
fn contains(told: &Value, line: &Value) -> bool {
    match (told, line) {
        (Value::Object(told), Value::Object(line)) => {
            line.iter().all(|(name, value)| told.get(name).is_some_and(|told| contains(told, value)))
        }
        _ => told == line,
    }
}

#[test]
fn lines_of_version_1_are_understood() {
    let readers = readers();
    let reader = |method: Method| readers.iter().find(|reader| reader.method == method);
    let mut asked = HashMap::new();
    let mut answered = HashSet::new();
    for line in V1.lines().filter(|line| !line.starts_with('#')) {
        match Message::parse(line.as_bytes()).unwrap_or_else(|error| panic!("{line}: {error}")) {
            Message::Request { id, method, params } => {
                let method =
                    Method::from_name(&method).unwrap_or_else(|| panic!("{method} is not known any more"));
                if let Some(reader) = reader(method) {
                    let told = (reader.params)(params.as_deref());
                    let line = serde_json::from_str(params.as_deref().map_or("{}", RawValue::get)).unwrap();
                    assert!(contains(&told, &line), "{method}: {line} is told as {told}");
                }
                asked.insert(id, method);
            }
            Message::Response { id, result: Ok(raw) } => {
                let method = asked[&id.expect("an answer names its request")];
                (reader(method).expect("what is answered can be read").answer)(raw.get());
                answered.insert(method);
            }
            Message::Response { result: Err(error), .. } => {
                assert_eq!(error.code, error.kind().code(), "{line}");
            }
            Message::Notification { method, params } => {
                let raw = params.expect("both have parameters");
                match method.as_str() {
                    method::CANCELLED => drop(serde_json::from_str::<Cancelled>(raw.get()).unwrap()),
                    method::LOG => drop(serde_json::from_str::<results::LogNotification>(raw.get()).unwrap()),
                    other => panic!("{other} is not known any more"),
                }
            }
        }
    }
    for method in Method::ALL {
        assert!(asked.values().any(|known| known == method), "{method} has no line");
        assert!(reader(*method).is_none() || answered.contains(method), "{method} has no answer");
    }
}
