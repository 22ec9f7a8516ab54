//! `server add`, `server remove`, `server restart`.
use super::failure::Failure;
use super::open::{directory, text};
use super::wire::{Wire, deadline_ms, millis};
use super::{Done, Status, tell_or};
use crate::cli::{Globals, ServerAddArgs, ServerArgs, ServerCommands};
use crate::render::{certificate, output, session};
use crate::run::context::{Context, environment};
use mcpvisor_control::params::{ServerAdd, ServerDefinition, ServerRemove, ServerRestart};

pub(crate) fn server(command: &ServerCommands, globals: &Globals) -> Done {
    match command {
        ServerCommands::Add(args) => add(args, globals),
        ServerCommands::Remove(args) => remove(args, globals),
        ServerCommands::Restart(args) => restart(args, globals),
    }
}

fn add(args: &ServerAddArgs, globals: &Globals) -> Done {
    let doing = format!("add server {} to session {}", args.name, args.session);
    let words = args.command.iter().map(|word| text(&doing, word.clone())).collect::<Result<_, _>>()?;
    let here = Context::of_this_process().map_err(|error| Failure::other(&doing, error))?;
    let mut server = ServerDefinition::new(args.name.clone(), words);
    server.mode = args.mode;
    let environment = environment(std::env::vars_os(), &args.env);
    let request = ServerAdd {
        request_id: args.request_id.clone(),
        key: args.session.key.clone(),
        generation: args.session.generation,
        user: globals.user,
        server,
        environment: environment
            .into_iter()
            .map(|variable| text(&doing, variable))
            .collect::<Result<_, _>>()?,
        cwd: Some(text(&doing, directory(args.cwd.as_deref())?.into())?),
        umask: here.umask,
        resource_limits: here.limits,
        nice: here.nice,
        ignored_signals: here.ignored_signals,
        deadline_ms: deadline_ms(globals),
    };
    let answer = Wire::connect(&doing, globals)?.call(&doing, &request)?;
    if globals.json {
        output::json(&answer.raw);
    } else {
        let added = &answer.value;
        tell_or(globals, added.server.state, |style| {
            session::changed_server(&added.key, &added.server, "added", style)
        });
    }
    Ok(Status::Done)
}

fn remove(args: &ServerArgs, globals: &Globals) -> Done {
    let doing = format!("remove server {} from session {}", args.name, args.session);
    let request = ServerRemove {
        key: args.session.key.clone(),
        generation: args.session.generation,
        user: globals.user,
        name: args.name.clone(),
        drain_ms: args.drain.map(millis),
        deadline_ms: deadline_ms(globals),
    };
    let answer = Wire::connect(&doing, globals)?.call(&doing, &request)?;
    if globals.json {
        output::json(&answer.raw);
    } else {
        let removed = &answer.value;
        tell_or(globals, "removed", |style| certificate::removed_server(removed, style));
    }
    Ok(Status::Done)
}

fn restart(args: &ServerArgs, globals: &Globals) -> Done {
    let doing = format!("restart server {} of session {}", args.name, args.session);
    let request = ServerRestart {
        key: args.session.key.clone(),
        generation: args.session.generation,
        user: globals.user,
        name: args.name.clone(),
        drain_ms: args.drain.map(millis),
        deadline_ms: deadline_ms(globals),
    };
    let answer = Wire::connect(&doing, globals)?.call(&doing, &request)?;
    if globals.json {
        output::json(&answer.raw);
    } else {
        let restarted = &answer.value;
        tell_or(globals, restarted.server.state, |style| {
            session::changed_server(&restarted.key, &restarted.server, "restarted", style)
        });
    }
    Ok(Status::Done)
}
