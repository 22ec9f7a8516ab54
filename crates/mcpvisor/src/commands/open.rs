//! `open`.
use super::failure::Failure;
use super::token::TokenFile;
use super::wire::{Answer, Wire, deadline_ms, millis};
use super::{Done, Status, close, tell};
use crate::cli::{Globals, OpenArgs};
use crate::render::{output, session};
use crate::run::context::{Context, environment};
use mcpvisor_control::params::{Goal, ServerDefinition, SessionOpen, SessionWait};
use mcpvisor_control::results::{CloseReport, Opened, ProgressNotification, SessionState};
use mcpvisor_control::{Id, Lease, Message, ServerName, Text, method};
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

pub(crate) fn open(args: &OpenArgs, globals: &Globals) -> Done {
    let doing = match &args.key {
        Some(key) => format!("open session {key}"),
        None => "open a session".to_owned(),
    };
    let params = params(&doing, args, globals)?;
    if globals.private && args.lease != Lease::Connection {
        return Err(Failure::usage(
            doing,
            "a private daemon ends with this command, and its sessions with it: add `--lease connection`",
        ));
    }
    let file = args.token_file.as_deref().map(|path| TokenFile::create(&doing, path)).transpose()?;
    let mut wire = Wire::connect(&doing, globals)?;
    let opened = ask(&mut wire, &doing, &params)?;
    let without = file.is_some().then(|| without_token(&opened.raw)).flatten();
    let joined = match (file, &opened.value.token) {
        (Some(file), Some(token)) => file.write(&doing, token).map(|()| false)?,
        (Some(_), None) => true,
        (None, _) => false,
    };
    if globals.json {
        output::json(without.as_ref().unwrap_or(&opened.raw));
    } else if globals.quiet {
        output::text(opened.value.session.key.as_str());
    } else {
        tell(globals, |style| session::session(&opened.value.session, style));
    }
    if joined {
        output::note("the session was open already: whoever opened it has its token, and there is no other");
    }
    match args.lease {
        Lease::Connection => hold(wire, &opened.value, globals),
        _ if joined => Ok(Status::Failed),
        _ => Ok(Status::Done),
    }
}

/// The answer, for whoever reads it along.
fn without_token(raw: &RawValue) -> Option<Box<RawValue>> {
    let mut members: BTreeMap<String, &RawValue> = serde_json::from_str(raw.get()).ok()?;
    members.remove("token");
    serde_json::value::to_raw_value(&members).ok()
}

/// Asks, and tells a person where the open stands in the queue, if it waits there.
fn ask(wire: &mut Wire, doing: &str, params: &SessionOpen) -> Result<Answer<Opened>, Failure> {
    if !params.progress {
        return wire.call(doing, params);
    }
    let asked = wire.send(doing, params)?;
    loop {
        match wire.wait_message(doing)? {
            Message::Notification { method, params: Some(params) } if method == method::PROGRESS => {
                if let Some(position) = position(&params, &asked) {
                    output::note(&format!("there is no room: number {position} of those that wait"));
                }
            }
            Message::Response { id, result } if id.is_none() || id.as_ref() == Some(&asked) => {
                let raw = result.map_err(|error| Failure::refused(doing, error))?;
                let value = serde_json::from_str(raw.get());
                let value = value.map_err(|error| {
                    Failure::other(doing, format!("the daemon's answer can't be understood: {error}"))
                })?;
                return Ok(Answer { raw, value });
            }
            _ => {}
        }
    }
}

fn position(params: &RawValue, asked: &Id) -> Option<u64> {
    let told: ProgressNotification = serde_json::from_str(params.get()).ok()?;
    let progress: serde_json::Value = serde_json::from_str(told.progress.get()).ok()?;
    progress["position"].as_u64().filter(|_| told.request_id == *asked)
}

/// Stays until the session has ended. A signal ends this command, its end the connection, and that the session.
fn hold(mut wire: Wire, opened: &Opened, globals: &Globals) -> Done {
    let doing = format!("wait for the end of session {}", opened.session.key);
    let wait = SessionWait {
        key: opened.session.key.clone(),
        generation: Some(opened.session.generation),
        user: globals.user,
        goal: Goal::Closed,
        deadline_ms: None,
    };
    wire.without_deadline();
    let ended = wire.call(&doing, &wait)?;
    if let Some(certificate) = &ended.value.certificate {
        if globals.json {
            output::json(&ended.raw);
        } else {
            tell(globals, |style| crate::render::certificate::certificate(certificate, style));
        }
    }
    Ok(status_of_end(ended.value.state, ended.value.certificate.as_ref()))
}

fn status_of_end(state: SessionState, certificate: Option<&CloseReport>) -> Status {
    match certificate.map(close::status_of) {
        Some(Status::Done) | None if state == SessionState::Failed => Status::Failed,
        Some(status) => status,
        None => Status::Done,
    }
}

fn params(doing: &str, args: &OpenArgs, globals: &Globals) -> Result<SessionOpen, Failure> {
    let mut params = SessionOpen {
        key: args.key.clone(),
        user: globals.user,
        profile: args.profile.clone(),
        args: args.args.iter().cloned().collect(),
        servers: servers(doing, args)?,
        mode: args.mode,
        prefix: args.prefix,
        hold: args.hold.clone(),
        labels: args.labels.iter().cloned().collect(),
        tenant: args.tenant.clone(),
        parent: args.parent.clone(),
        lease: args.lease,
        ttl_ms: args.ttl.map(millis),
        idle_ms: args.idle.map(millis),
        on_idle: args.on_idle,
        wait: !args.no_wait,
        queue_ms: args.queue.map(millis),
        progress: args.queue.is_some() && !globals.quiet && std::io::stderr().is_terminal(),
        if_closing: args.if_closing,
        if_open: args.if_open,
        request_id: args.request_id.clone(),
        deadline_ms: deadline_ms(globals),
        ..SessionOpen::default()
    };
    if params.profile.is_none() && params.servers.is_empty() {
        return Err(Failure::usage(
            doing,
            "there is nothing to open: name a `--profile`, a `--server`, or a command after `--`",
        ));
    }
    if params.servers.is_empty() {
        if !args.env.is_empty() || args.cwd.is_some() || args.mode.is_some() {
            return Err(Failure::usage(
                doing,
                "`--env`, `--cwd` and `--mode` are for commands of your own; a profile has its own",
            ));
        }
        return Ok(params);
    }
    let here = Context::of_this_process().map_err(|error| Failure::other(doing, error))?;
    params.environment = environment(std::env::vars_os(), &args.env)
        .into_iter()
        .map(|variable| text(doing, variable))
        .collect::<Result<_, _>>()?;
    params.cwd = Some(text(doing, directory(args.cwd.as_deref())?.into())?);
    params.umask = here.umask;
    params.nice = here.nice;
    params.ignored_signals = here.ignored_signals;
    params.resource_limits = here.limits;
    Ok(params)
}

fn servers(doing: &str, args: &OpenArgs) -> Result<Vec<ServerDefinition>, Failure> {
    let mut servers = Vec::new();
    for server in &args.servers {
        let words = server.words.iter().map(|word| text(doing, word.into())).collect::<Result<_, _>>()?;
        servers.push(ServerDefinition::new(server.name.clone(), words));
    }
    if !args.command.is_empty() {
        let words = args.command.iter().map(|word| text(doing, word.clone())).collect::<Result<_, _>>()?;
        let main = ServerName::new("main").map_err(|error| Failure::other(doing, error))?;
        servers.push(ServerDefinition::new(main, words));
    }
    for (index, server) in servers.iter().enumerate() {
        if servers[..index].iter().any(|other| other.name == server.name) {
            return Err(Failure::usage(doing, format!("two servers have the name {}", server.name)));
        }
    }
    Ok(servers)
}

/// The directory of a client's own commands.
pub(super) fn directory(named: Option<&Path>) -> Result<PathBuf, Failure> {
    let here = std::env::current_dir().map_err(|error| {
        Failure::other("find the current directory", format!("{error}; name one with `--cwd`"))
    });
    match named {
        Some(dir) if dir.is_absolute() => Ok(dir.to_owned()),
        Some(dir) => Ok(here?.join(dir)),
        None => here,
    }
}

/// What a request carries.
pub(super) fn text(doing: &str, text: OsString) -> Result<Text, Failure> {
    Text::new(text).map_err(|error| Failure::usage(doing, error.to_string()))
}
