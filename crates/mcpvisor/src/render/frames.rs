//! What was last said to a server and by it, for people.
use super::style::Style;
use super::table::{or_none, table};
use super::units::millis;
use mcpvisor_control::results::{Frame, FrameDirection};
use serde_json::Value;

/// Oldest first. Methods and ids are what clients and servers wrote: every cell is escaped.
pub(crate) fn frames(frames: &[Frame], style: Style) -> String {
    let header = ["TIME", "WAY", "KIND", "METHOD", "ID", "BYTES", "TOOK"];
    let rows = frames.iter().map(|frame| {
        vec![
            time(&frame.at).to_owned(),
            match frame.direction {
                FrameDirection::ToServer => "to",
                FrameDirection::FromServer => "from",
                FrameDirection::Unknown => "?",
            }
            .to_owned(),
            frame.kind.to_string(),
            or_none(frame.method.as_ref()),
            or_none(frame.id.as_ref().map(|id| match id {
                // A text that looks like a number is told apart from one.
                Value::String(text) if text.parse::<f64>().is_err() => text.clone(),
                other => other.to_string(),
            })),
            frame.bytes.to_string(),
            or_none(frame.latency_ms.map(millis)),
        ]
    });
    table(style, &header, rows)
}

/// The same at the end of a report; nothing where there are none.
pub(crate) fn last(last: &[Frame]) -> String {
    if last.is_empty() { String::new() } else { format!("last frames:\n{}", frames(last, Style::PLAIN)) }
}

/// The time of day of a point in time.
fn time(at: &str) -> &str {
    at.split_once('T').map_or(at, |(_, time)| time)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn frames_are_lines_without_control_characters() {
        let all: Vec<Frame> = serde_json::from_value(json!([
            {"at": "2026-01-02T03:04:05.678Z", "direction": "to_server", "kind": "request", "method": "a\u{1b}[2J", "id": 7,
                "bytes": 70, "latency_ms": null},
            {"at": "2026-01-02T03:04:05.680Z", "direction": "from_server", "kind": "response", "method": "a", "id": "7",
                "bytes": 5, "latency_ms": 1.5},
            {"at": "x", "direction": "new", "kind": "new", "method": null, "id": "b\n", "bytes": 5, "latency_ms": null},
        ]))
        .unwrap();
        assert_eq!(
            last(&all),
            "last frames:\n\
             TIME           WAY   KIND      METHOD    ID     BYTES  TOOK\n\
             03:04:05.678Z  to    request   a\\x1b[2J  7      70     -\n\
             03:04:05.680Z  from  response  a         \"7\"    5      1.50 ms\n\
             x              ?     unknown   -         b\\x0a  5      -\n"
        );
        assert_eq!(last(&[]), "");
    }
}
