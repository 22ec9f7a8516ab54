//! `tools` and `call`.
use super::failure::Failure;
use super::wire::{Wire, deadline_ms};
use super::{Done, Status, tell};
use crate::cli::{CallArgs, Globals, SessionArgs};
use crate::render::{output, tools as render};
use mcpvisor_control::SessionRef;
use mcpvisor_control::params::{ToolCall, ToolList};
use mcpvisor_control::results::Tool;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value};

fn list_of(session: &SessionRef, globals: &Globals) -> ToolList {
    ToolList { key: session.key.clone(), generation: session.generation, user: globals.user }
}

pub(crate) fn tools(args: &SessionArgs, globals: &Globals) -> Done {
    let doing = format!("list the tools of session {}", args.session);
    let mut wire = Wire::connect(&doing, globals)?;
    let answer = wire.call(&doing, &list_of(&args.session, globals))?;
    let tools = &answer.value.tools;
    if globals.json {
        output::json(&answer.raw);
    } else if globals.quiet {
        let names: String = tools.iter().map(|tool| format!("{}\n", tool.name)).collect();
        output::text(&crate::render::escape::block(&names));
    } else if tools.is_empty() {
        output::note("the session has no tools");
    } else {
        tell(globals, |style| render::tools(tools, style));
    }
    Ok(Status::Done)
}

pub(crate) fn call(args: &CallArgs, globals: &Globals) -> Done {
    let doing = format!("call {} of session {}", args.tool, args.session);
    let given = Given::read(&args.arguments).map_err(|error| Failure::usage(&doing, error))?;
    let mut wire = Wire::connect(&doing, globals)?;
    let arguments = match given {
        Given::Nothing => None,
        Given::Object(raw) => Some(raw),
        Given::Named(pairs) => {
            // Only the tool's schema tells whether `1` is a number or text.
            let tools = wire.call(&doing, &list_of(&args.session, globals))?.value.tools;
            let meant = |tool: &&Tool| {
                tool.name == args.tool && args.server.as_ref().is_none_or(|server| *server == tool.server)
            };
            let schema = tools.iter().find(meant).map(|tool| &tool.input_schema);
            Some(to_raw_value(&object(&pairs, schema)).map_err(|error| Failure::other(&doing, error))?)
        }
    };
    let request = ToolCall {
        key: args.session.key.clone(),
        generation: args.session.generation,
        user: globals.user,
        server: args.server.clone(),
        tool: args.tool.clone(),
        arguments,
        deadline_ms: deadline_ms(globals),
    };
    let raw = wire.call(&doing, &request)?.raw;
    let result: Value = serde_json::from_str(raw.get()).map_err(|error| Failure::other(&doing, error))?;
    if globals.json {
        output::json(&raw);
    } else {
        output::text(&render::result(&result));
    }
    let is_error = result.get("isError").and_then(Value::as_bool).unwrap_or(false);
    if is_error && !globals.json && !globals.quiet {
        output::note("the tool says that this is an error");
    }
    Ok(if is_error { Status::Failed } else { Status::Done })
}

/// The arguments, as they were given.
#[derive(Debug)]
enum Given {
    Nothing,
    /// One JSON object: passed on as it is.
    Object(Box<RawValue>),
    /// Values by name.
    Named(Vec<(String, String)>),
}

impl Given {
    fn read(arguments: &[String]) -> Result<Self, String> {
        match arguments {
            [] => Ok(Self::Nothing),
            [one] if one.trim_start().starts_with('{') => {
                let object = |error| format!("the arguments are not a JSON object: {error}");
                serde_json::from_str::<Map<String, Value>>(one).map_err(object)?;
                RawValue::from_string(one.trim().to_owned()).map(Self::Object).map_err(object)
            }
            named => {
                let mut pairs: Vec<(String, String)> = Vec::new();
                for argument in named {
                    let Some((name, value)) = argument.split_once('=').filter(|(name, _)| !name.is_empty())
                    else {
                        return Err(format!("{argument:?} is neither a JSON object nor NAME=VALUE"));
                    };
                    if pairs.iter().any(|(other, _)| other == name) {
                        return Err(format!("{name:?} is given twice"));
                    }
                    pairs.push((name.to_owned(), value.to_owned()));
                }
                Ok(Self::Named(pairs))
            }
        }
    }
}

fn object(pairs: &[(String, String)], schema: Option<&Value>) -> Map<String, Value> {
    let properties = schema.and_then(|schema| schema.get("properties"));
    let value = |(name, text): &(String, String)| {
        let kind = properties.and_then(|all| all.get(name)).and_then(|property| property.get("type"));
        (name.clone(), value(text, kind))
    };
    pairs.iter().map(value).collect()
}

/// JSON where it is JSON and the schema does not ask for text only; else text.
fn value(text: &str, kind: Option<&Value>) -> Value {
    let is_text = match kind {
        Some(Value::String(kind)) => kind == "string",
        Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "string") && !kinds.iter().any(is_other),
        _ => false,
    };
    let json = || serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()));
    if is_text { Value::String(text.to_owned()) } else { json() }
}

fn is_other(kind: &Value) -> bool {
    kind != "string" && kind != "null"
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(arguments: &[&str]) -> Result<Given, String> {
        Given::read(&arguments.iter().map(|argument| (*argument).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn arguments_are_one_object_or_values_by_name() {
        assert!(matches!(read(&[]), Ok(Given::Nothing)));
        // Numbers that no float can hold pass as they are.
        let Ok(Given::Object(raw)) = read(&[" {\"a\": 12345678901234567890123} "]) else { panic!() };
        assert_eq!(raw.get(), "{\"a\": 12345678901234567890123}");
        assert!(matches!(read(&["a=1", "b={}"]), Ok(Given::Named(pairs)) if pairs.len() == 2));
        for bad in [vec!["{"], vec!["[1]"], vec!["=1"], vec!["a=1", "a=2"], vec!["{}", "a=1"]] {
            assert!(read(&bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn the_schema_tells_text_from_json() {
        let schema = json!({"properties": {"s": {"type": "string"}, "n": {"type": "number"},
            "o": {"type": ["string", "null"]}, "e": {"type": ["string", "number"]}}});
        let pairs: Vec<_> = ["s=1", "n=1", "o=2", "e=3", "u=true", "v=x y", "w={\"a\":[1]}"]
            .iter()
            .map(|pair| pair.split_once('=').unwrap())
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        let object = Value::Object(object(&pairs, Some(&schema)));
        assert_eq!(
            object,
            json!({"s": "1", "n": 1, "o": "2", "e": 3, "u": true, "v": "x y", "w": {"a": [1]}})
        );
    }
}
