//! `tools` and `call`.
mod arguments;
mod files;
mod progress;

use super::failure::Failure;
use super::token;
use super::wire::Wire;
use super::{Done, Status, tell};
use crate::cli::{CallArgs, Globals, ToolsArgs};
use crate::render::{output, tools as render};
use crate::run::context::Context;
use crate::run::signals::Signals;
use arguments::Given;
use files::Files;
use mcpvisor_control::params::{ToolCall, ToolList};
use mcpvisor_control::results::{ProgressNotification, Tool};
use mcpvisor_control::{Message, SessionRef, Token, method};
use progress::Line;
use serde_json::Value;
use serde_json::value::RawValue;
use std::path::Path;
use std::time::Duration;

/// How long the daemon may take to say that a call is cancelled.
const PATIENCE: Duration = Duration::from_secs(2);

fn list_of(session: &SessionRef, globals: &Globals, wire: &Wire, token: Option<Token>) -> ToolList {
    ToolList {
        key: session.key.clone(),
        generation: session.generation,
        user: globals.user,
        deadline_ms: wire.deadline_ms(),
        token,
    }
}

pub(crate) fn tools(args: &ToolsArgs, globals: &Globals) -> Done {
    let doing = format!("list the tools of session {}", args.session);
    let token = token::shown(&doing, &args.token)?;
    let mut wire = Wire::connect(&doing, globals)?;
    let request = list_of(&args.session, globals, &wire, token);
    let answer = wire.call(&doing, &request)?;
    let tools = &answer.value.tools;
    if globals.json {
        output::json(&answer.raw);
    } else if globals.quiet {
        let names: String = tools.iter().map(|tool| format!("{}\n", tool.name)).collect();
        output::text(&crate::render::escape::block(&names));
    } else if tools.is_empty() && answer.value.down.is_empty() {
        output::note("the session has no tools");
    } else if !tools.is_empty() {
        tell(globals, |style| render::tools(tools, style));
    }
    if !globals.json && !globals.quiet {
        answer.value.down.iter().for_each(|down| output::note(&render::down(down)));
    }
    Ok(Status::Done)
}

pub(crate) fn call(args: &CallArgs, globals: &Globals) -> Done {
    let doing = format!("call {} of session {}", args.tool, args.session);
    let given = Given::read(&args.arguments).map_err(|error| Failure::usage(&doing, error))?;
    let directory = args.output.as_deref().unwrap_or(Path::new("."));
    if !directory.is_dir() {
        // Told before the call and not after it: a call may do what can't be done twice.
        return Err(Failure::usage(&doing, format!("{} is no directory", directory.display())));
    }
    let token = token::shown(&doing, &args.token)?;
    let mut wire = Wire::connect(&doing, globals)?;
    let arguments = match given {
        Given::Nothing => None,
        Given::Object(raw) => Some(raw),
        Given::Named(pairs) => {
            // Only the tool's schema tells whether `1` is a number or text.
            let request = list_of(&args.session, globals, &wire, token.clone());
            let tools = wire.call(&doing, &request).map_err(Failure::before_the_call)?.value.tools;
            // With a server the name is that server's own, whatever it is published as.
            let meant = |tool: &&Tool| match &args.server {
                None => tool.name == args.tool,
                Some(server) => {
                    let published =
                        tool.name.strip_prefix(server.as_str()).and_then(|name| name.strip_prefix("__"));
                    tool.server == *server
                        && (tool.name == args.tool || published == Some(args.tool.as_str()))
                }
            };
            let schema = tools.iter().find(meant).map(|tool| &tool.input_schema);
            Some(arguments::object(&pairs, schema).map_err(|error| Failure::usage(&doing, error))?)
        }
    };
    let mut line = Line::for_stderr(globals);
    let request = ToolCall {
        key: args.session.key.clone(),
        generation: args.session.generation,
        user: globals.user,
        server: args.server.clone(),
        tool: args.tool.clone(),
        arguments,
        deadline_ms: wire.deadline_ms(),
        progress: line.is_shown(),
        token,
    };
    let raw = carry_out(&mut wire, &doing, &request, &mut line)?;
    drop(line);
    // Half a surrogate pair is JSON, and no text: what has one is shown as it came.
    let result: Value = serde_json::from_str(raw.get())
        .unwrap_or_else(|_| serde_json::json!({ "content": [{ "type": "text", "text": raw.get() }] }));
    let wants_input = result.get("resultType").and_then(Value::as_str) == Some("input_required");
    let is_error = result.get("isError").and_then(Value::as_bool).unwrap_or(false);
    let mut files = Files::new(directory, &args.tool);
    if globals.json {
        output::json(&raw);
    } else if wants_input {
        output::text(&render::input_required(&result));
    } else {
        output::text(&render::result(&result, &mut |file| files.save(file)));
    }
    if !globals.json && !globals.quiet {
        if wants_input {
            output::note("the tool was not carried out: it wants input first, which `call` can't give");
            output::help(&format!(
                "`mcpvisor attach {}` is an endpoint for a client that can ask a person",
                args.session.key
            ));
        } else if is_error {
            output::note("the tool says that this is an error");
        }
    }
    let failed = is_error || wants_input || files.have_failed();
    Ok(if failed { Status::Failed } else { Status::Done })
}

/// Asks, shows the progress, and gives the result as it came. A signal cancels the call at its server.
fn carry_out(
    wire: &mut Wire,
    doing: &str,
    request: &ToolCall,
    line: &mut Line,
) -> Result<Box<RawValue>, Failure> {
    let other = |error| Failure::other(doing, error);
    let ignored = Context::of_this_process().map_err(other)?.ignored_signals;
    let signals = Signals::catch(&ignored).map_err(other)?;
    let asked = wire.send(doing, request)?;
    loop {
        match wire.wait_message_or(doing, signals.descriptor())? {
            None => {
                let signal = signals.received().unwrap_or_default();
                signals.forget();
                // Another one ends the wait.
                wire.cancel(doing, &asked, PATIENCE, signals.descriptor());
                return Err(Failure::interrupted(doing, signal));
            }
            Some(Message::Notification { method, params: Some(params) }) if method == method::PROGRESS => {
                let told = serde_json::from_str::<ProgressNotification>(params.get());
                if let Ok(told) = told.as_ref().map_err(drop)
                    && told.request_id == asked
                {
                    line.show(&told.progress);
                }
            }
            Some(Message::Response { id, result }) if id.is_none() || id.as_ref() == Some(&asked) => {
                return result.map_err(|error| Failure::refused(doing, error));
            }
            Some(_) => {}
        }
    }
}
