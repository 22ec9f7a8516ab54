//! `mcpvisor attach`: a stdio MCP endpoint of a session.
//!
//! The daemon gets stdin and stdout where they are pipes or sockets; what is anything else is copied. The answer comes when the
//! conversation is over. This program's end, by any signal, is the end of its client.
use super::link::Link;
use super::signals::Signals;
use super::streams::Streams;
use super::watch::Watch;
use super::{Shim, Step, status};
use crate::cli::{AttachArgs, Globals};
use crate::commands::failure::Failure;
use crate::commands::token;
use crate::commands::wire::deadline_ms;
use mcpvisor_control::blocking::{Connection, answer};
use mcpvisor_control::params::{Descriptor, SessionAttach};
use mcpvisor_control::results::ConversationEnd;
use mcpvisor_control::socket::{Surroundings, connect};
use std::process::ExitCode;

/// Leaves with 0 where the client ended first, with 1 where the server did.
#[expect(clippy::needless_pass_by_value, reason = "the arguments end here")]
pub(crate) fn main(args: AttachArgs, globals: &Globals) -> ExitCode {
    match attach(&args, globals) {
        Ok(status) => ExitCode::from(status),
        Err(failure) => failure.tell(globals.json, Some(globals)),
    }
}

fn attach(args: &AttachArgs, globals: &Globals) -> Result<u8, Failure> {
    let session = &args.target.session;
    let doing = match &args.target.server {
        Some(server) => format!("attach to server {server} of session {}", session.key),
        None => format!("attach to session {}", session.key),
    };
    let here = |error: std::io::Error| Failure::other(doing.clone(), error);
    if globals.private {
        return Err(Failure::usage(doing, "a private daemon has no session to attach to"));
    }
    let token = token::shown(&doing, &args.token)?;
    let streams = Streams::new().map_err(here)?;
    let (stream, _) = connect(&Surroundings::of_process(globals.socket.clone()))
        .map_err(|error| Failure::no_daemon(doing.clone(), error))?;
    let mut connection = Connection::new(stream);
    let params = SessionAttach {
        key: session.key.clone(),
        generation: session.generation,
        user: globals.user,
        server: args.target.server.clone(),
        exclusive: args.exclusive,
        token,
        close_on_detach: args.close_on_detach,
        descriptors: Some(vec![Descriptor::Stdin, Descriptor::Stdout]),
        deadline_ms: deadline_ms(globals),
    };
    let Some([stdin, stdout, _]) = streams.descriptors() else {
        return Err(Failure::other(doing, "the standard streams were let go too early"));
    };
    let id = connection.send(&params, &[stdin, stdout]).map_err(here)?;
    let signals = Signals::catch(&[]).map_err(here)?;
    let mut shim = Shim { globals, watch: Watch::new(Link::of(connection), streams, signals), kill: None };
    // The streams are kept, too: a refusal is told on stdout, and this program leaves as soon as the conversation is over.
    let told = shim.answer_to(&id).map_err(|failure| Failure::other(doing.clone(), failure.message()))?;
    let result = match told {
        Step::Leave(status) => return Ok(status),
        Step::Go(None) => return Err(Failure::other(doing, "the daemon has ended")),
        Step::Go(Some(result)) => result,
    };
    let attached = answer::<SessionAttach>(result).map_err(|error| Failure::of_connection(doing, error))?;
    if let Some(signal) = shim.watch.deliver() {
        return Ok(status::of_signal(signal));
    }
    Ok(u8::from(attached.first_end != Some(ConversationEnd::Client)))
}
