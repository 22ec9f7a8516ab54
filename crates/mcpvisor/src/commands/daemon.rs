//! What is asked of the daemon itself.
use super::wire::Wire;
use super::{Done, Status, tell};
use crate::cli::{Globals, ShutdownArgs};
use crate::render::style::Style;
use crate::render::units::count;
use crate::render::{escape, output};
use mcpvisor_control::params;
use mcpvisor_control::results::ReloadedSession;
use std::ffi::OsString;

/// The daemon's options where some of them stood before `daemon`.
pub(crate) fn options(globals: &Globals, args: Vec<OsString>) -> Vec<OsString> {
    let mut options = Vec::new();
    if let Some(socket) = &globals.socket {
        options.extend(["--socket".into(), socket.clone().into_os_string()]);
    }
    if let Some(containment) = &globals.containment {
        options.extend(["--containment".into(), containment.into()]);
    }
    options.extend(args);
    options
}

pub(crate) fn drain(globals: &Globals) -> Done {
    let doing = "drain the daemon";
    let answer = Wire::connect(doing, globals)?.call(doing, &params::Drain {})?;
    if globals.json {
        output::json(&answer.raw);
    } else {
        tell(globals, |_| "the daemon admits no more sessions; those that there are go on".to_owned());
    }
    Ok(Status::Done)
}

pub(crate) fn reload(globals: &Globals) -> Done {
    let doing = "reload the configuration";
    let mut wire = Wire::connect(doing, globals)?;
    let deadline_ms = wire.deadline_ms();
    let answer = wire.call(doing, &params::Reload { deadline_ms })?;
    if globals.json {
        output::json(&answer.raw);
    } else {
        let reloaded = &answer.value;
        tell(globals, |_| match (&reloaded.file, reloaded.applied.as_slice()) {
            (_, applied @ [_, ..]) => format!("changed: {}", applied.join(", ")),
            (Some(file), []) => format!("nothing that can change at once has changed in {file}"),
            (None, []) => "there is no configuration file: the defaults hold, as before".to_owned(),
        });
        for session in &reloaded.sessions {
            tell(globals, |style| reloaded_session(session, style));
        }
        if !reloaded.needs_restart.is_empty() {
            tell(globals, |style| {
                let keys = reloaded.needs_restart.join(", ");
                format!("{} {keys}", style.strong("not changed before the daemon's restart:"))
            });
        }
    }
    let failed = answer.value.sessions.iter().any(|session| {
        session.error.is_some() || session.servers.iter().any(|server| server.error.is_some())
    });
    Ok(if failed { Status::Failed } else { Status::Done })
}

fn reloaded_session(session: &ReloadedSession, style: Style) -> String {
    let name = style.strong(&format!("{}@{}", session.key, session.generation));
    let mut text = format!("{name}, of profile {}\n", escape::line(&session.profile));
    if let Some(error) = &session.error {
        text += &format!("  {}: {}\n", style.bad("not changed"), escape::line(&error.message));
    }
    for server in &session.servers {
        let outcome = match &server.error {
            None => server.outcome.to_string(),
            Some(error) => {
                format!("{}: {}", style.bad(server.outcome.as_str()), escape::line(&error.message))
            }
        };
        text += &format!("  {}: {outcome}\n", server.name);
    }
    text
}

pub(crate) fn shutdown(args: &ShutdownArgs, globals: &Globals) -> Done {
    let doing = "shut the daemon down";
    let mut wire = Wire::connect(doing, globals)?;
    let deadline_ms = wire.deadline_ms();
    let answer = wire.call(doing, &params::Shutdown { now: args.now, wait: !args.no_wait, deadline_ms })?;
    if !args.no_wait {
        // It is gone when its socket is.
        wire.wait_end();
    }
    let left = answer.value.quarantined.unwrap_or(0);
    if globals.json {
        output::json(&answer.raw);
    } else {
        tell(globals, |style| match answer.value.quarantined {
            None => "the daemon closes its sessions and ends".to_owned(),
            Some(0) => "the daemon has closed all sessions and ended".to_owned(),
            Some(left) => {
                format!(
                    "the daemon has ended; {} could not be killed",
                    style.bad(&count(left, "session", "sessions"))
                )
            }
        });
    }
    Ok(if left > 0 { Status::Quarantined } else { Status::Done })
}
