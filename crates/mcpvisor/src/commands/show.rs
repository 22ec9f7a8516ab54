//! `list`, `show`, `ps`, `status`: what there is.
use super::wire::Wire;
use super::{Done, Status, tell, tell_or};
use crate::cli::{Globals, ListArgs, PsArgs, ShowArgs};
use crate::render::{output, session};
use mcpvisor_control::params;

pub(crate) fn list(args: &ListArgs, globals: &Globals) -> Done {
    let doing = "list sessions";
    let mut wire = Wire::connect(doing, globals)?;
    let answer = wire.call(doing, &params::SessionList { user: globals.user, all_users: args.all_users })?;
    let sessions = &answer.value.sessions;
    if globals.json {
        output::json(&answer.raw);
    } else if globals.quiet {
        let keys: String = sessions.iter().map(|session| format!("{}\n", session.key)).collect();
        output::text(&keys);
    } else {
        if sessions.is_empty() {
            output::note("there are no sessions");
        } else {
            tell(globals, |style| session::sessions(sessions, args.all_users, style));
        }
        for open in &answer.value.queued {
            output::note(&format!("{} waits for a slot, as number {}", open.key, open.position));
        }
    }
    Ok(Status::Done)
}

pub(crate) fn show(args: &ShowArgs, globals: &Globals) -> Done {
    let doing = format!("show session {}", args.session);
    let mut wire = Wire::connect(&doing, globals)?;
    let request = params::SessionShow {
        key: args.session.key.clone(),
        generation: args.session.generation,
        user: globals.user,
        frames: args.frames,
    };
    let answer = wire.call(&doing, &request)?;
    if globals.json {
        output::json(&answer.raw);
    } else {
        tell_or(globals, answer.value.state, |style| session::session(&answer.value, style));
    }
    Ok(Status::Done)
}

pub(crate) fn ps(args: &PsArgs, globals: &Globals) -> Done {
    let doing = match &args.session {
        Some(session) => format!("list the processes of session {session}"),
        None => "list processes".to_owned(),
    };
    let mut wire = Wire::connect(&doing, globals)?;
    let request = params::ProcessList {
        key: args.session.as_ref().map(|session| session.key.clone()),
        generation: args.session.as_ref().and_then(|session| session.generation),
        user: globals.user,
        all_users: args.all_users,
    };
    let answer = wire.call(&doing, &request)?;
    let processes = &answer.value.processes;
    if globals.json {
        output::json(&answer.raw);
    } else if globals.quiet {
        let pids: String = processes.iter().map(|process| format!("{}\n", process.pid)).collect();
        output::text(&pids);
    } else if processes.is_empty() {
        output::note("there are no processes");
    } else {
        tell(globals, |style| session::processes(processes, style));
    }
    Ok(Status::Done)
}

pub(crate) fn status(globals: &Globals) -> Done {
    let doing = "ask for the daemon's state";
    let mut wire = Wire::connect(doing, globals)?;
    let answer = wire.call(doing, &params::Status {})?;
    if globals.json {
        output::json(&answer.raw);
    } else {
        tell_or(globals, answer.value.state, |style| session::status(&answer.value, style));
    }
    Ok(Status::Done)
}
