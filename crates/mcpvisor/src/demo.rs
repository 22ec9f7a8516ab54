//! `mcpvisor demo`: the main job, on a private daemon and two bundled servers.
//!
//! One server behaves; the other ignores end of file and SIGTERM and has a helper that has left its process group,
//! its session and its parent. Both are opened, spoken to and closed, and what the certificate says is then held
//! against /proc, which knows nothing of mcpvisor.
mod proof;
mod story;

use crate::cli::Globals;
use crate::commands::failure::Failure;
use crate::private;
use mcpvisor_control::blocking::{Connection, Error, Received};
use mcpvisor_control::call::Call;
use mcpvisor_control::params::{
    ProcessList, ServerDefinition, SessionClose, SessionOpen, Shutdown, ToolCall, ToolList,
};
use mcpvisor_control::results::{CloseOutcome, CloseReport, Process, Tools};
use mcpvisor_control::{Lease, ServerName, SessionKey, Text};
use proof::Witness;
use serde_json::json;
use serde_json::value::RawValue;
use std::ffi::OsString;
use std::process::ExitCode;
use story::Story;

/// So short that all of it takes about a second; a real server gets two seconds and three.
const STDIN_GRACE_MS: u64 = 300;
const TERM_GRACE_MS: u64 = 300;

/// Statuses, as in the other commands.
const FAILED: u8 = 1;
const QUARANTINED: u8 = 8;

/// Shows it. The status is 0 if nothing was left, 8 if the daemon says that something could not be killed, else 1.
pub(crate) fn main(globals: &Globals) -> ExitCode {
    match run(globals, &mut Story::new(globals)) {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            Failure::of_connection("show the demonstration", error).tell(globals.json, Some(globals))
        }
    }
}

fn run(globals: &Globals, story: &mut Story) -> Result<u8, Error> {
    let mut daemon = Connection::new(private::start(globals)?);
    story.daemon_started();

    let session = ask(&mut daemon, &open()?)?;
    story.opened(&session.session);
    let key = session.session.key.clone();

    let Tools { tools, .. } = ask(
        &mut daemon,
        &ToolList { key: key.clone(), generation: None, user: None, token: None, deadline_ms: None },
    )?;
    story.tools(&tools);

    let sum = call(&mut daemon, &key, "add", &json!({"a": 19, "b": 23}))?;
    story.called("add", "19, 23", &sum);
    let helper = call(&mut daemon, &key, "helper_pid", &json!({}))?;
    story.called("helper_pid", "", &helper);

    let list = ProcessList { key: Some(key.clone()), ..ProcessList::default() };
    let processes: Vec<Process> = ask(&mut daemon, &list)?.processes;
    let mut witness = Witness::default();
    processes.iter().map(|process| process.pid).for_each(|pid| witness.remember(pid));
    story.processes(&processes);

    story.closing(STDIN_GRACE_MS, TERM_GRACE_MS);
    let certificate = close(&mut daemon, key)?;
    // Looked at before anything else, so that nothing had time to go away meanwhile.
    let left = witness.still_there();
    story.closed(&certificate);
    story.verified(&witness, &left);

    end(&mut daemon)?;
    story.finish();
    Ok(match certificate.outcome {
        CloseOutcome::Closed if left.is_empty() => 0,
        CloseOutcome::Quarantined => QUARANTINED,
        _ => FAILED,
    })
}

fn ask<P: Call>(daemon: &mut Connection, params: &P) -> Result<P::Answer, Error> {
    daemon.call(params, &[])
}

fn open() -> Result<SessionOpen, Error> {
    let program = program()?;
    let server = |role: &str| {
        let command = [program.clone(), text("demo-server".into())?, text(role.into())?];
        let name = ServerName::new(role).expect("the bundled servers' names have the form of names");
        let mut server = ServerDefinition::new(name, command.into());
        server.stdin_grace_ms = Some(STDIN_GRACE_MS);
        server.term_grace_ms = Some(TERM_GRACE_MS);
        Ok::<_, Error>(server)
    };
    let environment =
        std::env::vars_os().filter(|(name, _)| !name.as_encoded_bytes().starts_with(b"MCPVISOR_"));
    Ok(SessionOpen {
        key: Some(SessionKey::new("demo").expect("demo has the form of a key")),
        servers: vec![server("polite")?, server("stubborn")?],
        environment: environment
            .map(|(mut variable, value)| {
                variable.push("=");
                variable.push(value);
                text(variable)
            })
            .collect::<Result<_, _>>()?,
        lease: Lease::Connection,
        ..SessionOpen::default()
    })
}

/// This program: by its path, which says more in a list of processes, as long as that leads to it.
fn program() -> Result<Text, Error> {
    let path = std::env::current_exe()?;
    text(if path.exists() { path.into() } else { "/proc/self/exe".into() })
}

fn text(text: OsString) -> Result<Text, Error> {
    // Neither a path nor a variable of a running program has a NUL in it.
    Text::new(text).map_err(|error| Error::Malformed(error.to_string()))
}

/// Calls a tool and gives back the text of its result.
fn call(
    daemon: &mut Connection,
    key: &SessionKey,
    tool: &str,
    arguments: &serde_json::Value,
) -> Result<String, Error> {
    let arguments = RawValue::from_string(arguments.to_string()).map_err(std::io::Error::other)?;
    let params = ToolCall {
        key: key.clone(),
        generation: None,
        user: None,
        server: None,
        tool: tool.to_owned(),
        arguments: Some(arguments),
        deadline_ms: None,
        progress: false,
        token: None,
    };
    let result = ask(daemon, &params)?;
    let result: serde_json::Value =
        serde_json::from_str(result.get()).map_err(|error| Error::Malformed(error.to_string()))?;
    let text = result["content"][0]["text"].as_str();
    text.map(str::to_owned).ok_or_else(|| Error::Malformed(format!("the tool {tool} gave no text")))
}

fn close(daemon: &mut Connection, key: SessionKey) -> Result<CloseReport, Error> {
    let params = SessionClose {
        key,
        generation: None,
        user: None,
        drain_ms: None,
        now: false,
        wait: true,
        request_id: None,
        deadline_ms: None,
    };
    let results = ask(daemon, &params)?.results;
    results.into_iter().next().ok_or_else(|| Error::Malformed("the close gave no certificate".to_owned()))
}

/// Ends the daemon, and waits until it is gone: the connection lasts as long as it does.
fn end(daemon: &mut Connection) -> Result<(), Error> {
    ask(daemon, &Shutdown::default())?;
    while daemon.receive(true)? != Received::End {}
    Ok(())
}
