//! `events`.
use super::failure::Failure;
use super::wire::Wire;
use super::{Done, Status};
use crate::cli::{EventsArgs, Globals};
use crate::render::{escape, output};
use mcpvisor_control::params::EventSubscribe;
use mcpvisor_control::results::{Event, EventNotification, EventsEnded};
use mcpvisor_control::{Id, Message, method};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

pub(crate) fn events(args: &EventsArgs, globals: &Globals) -> Done {
    let doing = match &args.session {
        Some(session) => format!("read the events of session {session}"),
        None => "read the events".to_owned(),
    };
    let mut wire = Wire::connect(&doing, globals)?;
    let request = EventSubscribe {
        since: Some(args.since),
        key: args.session.as_ref().map(|session| session.key.clone()),
        generation: args.session.as_ref().and_then(|session| session.generation),
        user: globals.user,
        follow: args.follow,
    };
    if args.follow {
        return follow(wire, &doing, &request, globals);
    }
    let answer = wire.call(&doing, &request)?;
    if globals.json {
        let raw: RawEvents = serde_json::from_str(answer.raw.get()).map_err(|error| bad(&doing, &error))?;
        raw.events.iter().for_each(output::json);
        if answer.value.lost > 0 {
            output::json(&serde_json::json!({ "lost": answer.value.lost }));
        }
    } else {
        let mut text: String = answer.value.events.iter().map(|event| shown(event, globals)).collect();
        text += &gap(answer.value.lost, globals);
        output::text(&text);
    }
    Ok(Status::Done)
}

/// As they came: what `--json` prints, one a line.
#[derive(Deserialize)]
struct RawEvents {
    events: Vec<Box<RawValue>>,
}

fn bad(doing: &str, error: &serde_json::Error) -> Failure {
    Failure::other(doing, format!("the daemon's answer can't be understood: {error}"))
}

/// Each event as it comes, until there are no more.
fn follow(mut wire: Wire, doing: &str, request: &EventSubscribe, globals: &Globals) -> Done {
    let asked = wire.send(doing, request)?;
    if globals.timeout.is_none() {
        wire.without_deadline();
    }
    loop {
        match wire.wait_message(doing)? {
            Message::Notification { method, params: Some(params) } if method == method::EVENT => {
                tell(&params, &asked, globals).map_err(|error| bad(doing, &error))?;
                if output::is_lost() {
                    return Ok(Status::Done);
                }
            }
            Message::Notification { method, params: Some(params) } if method == method::EVENTS_ENDED => {
                let over: EventsEnded =
                    serde_json::from_str(params.get()).map_err(|error| bad(doing, &error))?;
                if over.request_id == asked {
                    return Ok(Status::Done);
                }
            }
            Message::Response { id: Some(id), result: Err(error) } if id == asked => {
                return Err(Failure::refused(doing, error));
            }
            _ => {}
        }
    }
}

/// An event without the request that it belongs to.
fn tell(params: &RawValue, asked: &Id, globals: &Globals) -> serde_json::Result<()> {
    let notification: EventNotification = serde_json::from_str(params.get())?;
    if notification.request_id != *asked {
        return Ok(());
    }
    if globals.json {
        // A newer daemon may say more than we know: all of it but the request's id is passed on.
        let mut event: serde_json::Map<String, Value> = serde_json::from_str(params.get())?;
        event.remove("requestId");
        output::json(&event);
    } else {
        output::text(&shown(&notification.event, globals));
    }
    Ok(())
}

/// A line in the place of events that are lost.
fn gap(lost: u64, globals: &Globals) -> String {
    if lost == 0 || globals.quiet {
        return String::new();
    }
    format!("({lost} events are not kept any more here)\n")
}

/// One line: when, number, kind, whom, and what there is to say; with `--quiet` kind and whom.
fn shown(event: &Event, globals: &Globals) -> String {
    let line = gap(event.lost, globals);
    let mut text = if globals.quiet { String::new() } else { format!("{} {} ", event.at, event.seq) };
    text += &event.kind;
    if let Some(key) = &event.key {
        text += &format!(" {key}");
        if let Some(generation) = event.generation {
            text += &format!("@{generation}");
        }
        if let Some(server) = &event.server {
            text += &format!("/{server}");
        }
    }
    if !globals.quiet {
        for (name, value) in event.data.iter().filter(|(_, value)| !value.is_null()) {
            let value = match value {
                Value::String(text) if !text.contains([' ', '"']) => text.clone(),
                other => other.to_string(),
            };
            text += &format!(" {name}={value}");
        }
    }
    line + &escape::line(&text) + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_event_is_one_line_without_control_characters() {
        let event: Event = serde_json::from_value(json!({
            "seq": 7, "instance": "i", "at": "2026-01-02T03:04:05.678Z", "kind": "server.failed", "key": "k", "generation": 3,
            "server": "main", "data": {"cause": "exited", "exit": {"code": 1}, "message": "it \u{1b}[2J\n left", "pid": null},
            "lost": 2, "later": "more",
        }))
        .unwrap();
        assert_eq!(
            shown(&event, &Globals::default()),
            "(2 events are not kept any more here)\n\
             2026-01-02T03:04:05.678Z 7 server.failed k@3/main cause=exited exit={\"code\":1} message=\"it \\u001b[2J\\n left\"\n"
        );
        let quiet = Globals { quiet: true, ..Globals::default() };
        assert_eq!(shown(&event, &quiet), "server.failed k@3/main\n");
    }
}
