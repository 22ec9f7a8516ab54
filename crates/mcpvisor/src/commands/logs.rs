//! `logs`.
use super::failure::Failure;
use super::wire::Wire;
use super::{Done, Status};
use crate::cli::{Globals, LogsArgs};
use crate::render::{escape, output};
use mcpvisor_control::params::LogRead;
use mcpvisor_control::results::{LogLine, LogLines, LogNotification};
use mcpvisor_control::{Message, method};
use serde::Deserialize;
use serde_json::value::RawValue;

pub(crate) fn logs(args: &LogsArgs, globals: &Globals) -> Done {
    let session = &args.target.session;
    let doing = format!("read the logs of session {session}");
    let mut wire = Wire::connect(&doing, globals)?;
    let request = LogRead {
        key: session.key.clone(),
        generation: session.generation,
        user: globals.user,
        server: args.target.server.clone(),
        lines: args.lines,
        follow: args.follow,
    };
    if args.follow {
        return follow(wire, &doing, &request, globals);
    }
    let answer = wire.call(&doing, &request)?;
    if globals.json {
        output::json(&answer.raw);
    } else {
        output::text(&answer.value.lines.iter().map(|line| shown(line, globals)).collect::<String>());
    }
    Ok(Status::Done)
}

#[derive(Deserialize)]
struct RawLine {
    line: Box<RawValue>,
}

/// Each line as it comes, until the session has ended.
fn follow(mut wire: Wire, doing: &str, request: &LogRead, globals: &Globals) -> Done {
    let bad = |error| Failure::other(doing, format!("the daemon's answer can't be understood: {error}"));
    let asked = wire.send(doing, request)?;
    if globals.timeout.is_none() {
        wire.without_deadline();
    }
    loop {
        match wire.wait_message(doing)? {
            Message::Notification { method, params: Some(params) } if method == method::LOG => {
                let notification: LogNotification = serde_json::from_str(params.get()).map_err(bad)?;
                if notification.request_id != asked {
                    continue;
                }
                if globals.json {
                    output::json(&serde_json::from_str::<RawLine>(params.get()).map_err(bad)?.line);
                } else {
                    output::text(&shown(&notification.line, globals));
                }
                if output::is_lost() {
                    return Ok(Status::Done);
                }
            }
            Message::Response { id: Some(id), result } if id == asked => {
                let raw = result.map_err(|error| Failure::refused(doing, error))?;
                let rest: LogLines = serde_json::from_str(raw.get()).map_err(bad)?;
                for line in &rest.lines {
                    if globals.json {
                        output::json(line);
                    } else {
                        output::text(&shown(line, globals));
                    }
                }
                return Ok(Status::Done);
            }
            _ => {}
        }
    }
}

fn shown(line: &LogLine, globals: &Globals) -> String {
    let mut text = String::new();
    if line.dropped > 0 && !globals.quiet {
        text += &format!("({} lines were dropped here)\n", line.dropped);
    }
    if !globals.quiet {
        text += &format!("{} {} ", escape::line(&line.at), line.server);
    }
    text + &escape::line(line.text.trim_end_matches('\r')) + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_shown_with_its_server_and_without_control_characters() {
        let line = LogLine {
            server: "files".parse().unwrap(),
            at: "2026-01-02T03:04:05.678Z".to_owned(),
            text: "a\u{1b}[2J\tb\r".to_owned(),
            dropped: 2,
        };
        let quiet = Globals { quiet: true, ..Globals::default() };
        assert_eq!(shown(&line, &quiet), "a\\x1b[2J\\x09b\n");
        assert_eq!(
            shown(&line, &Globals::default()),
            "(2 lines were dropped here)\n2026-01-02T03:04:05.678Z files a\\x1b[2J\\x09b\n"
        );
    }
}
