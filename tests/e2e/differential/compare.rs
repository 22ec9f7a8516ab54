//! What two conversations have in common: lines with times and the like masked, and for shared servers the parts of messages.
use serde_json::value::RawValue;
use std::collections::BTreeMap;

/// A line in which whatever looks like one of these patterns is the pattern itself, and how many bytes that was. `#` is one
/// digit or more, anything else itself.
pub(crate) fn masked(line: &str, patterns: &[&str]) -> (String, usize) {
    let mut text = String::new();
    let mut hidden = 0;
    let mut rest = line;
    while let Some(first) = rest.chars().next() {
        let after_digit = text.ends_with(|c: char| c.is_ascii_digit());
        let found = patterns.iter().find_map(|pattern| Some((pattern, like(rest, pattern)?)));
        match found {
            Some((pattern, length)) if !after_digit => {
                text.push_str(pattern);
                hidden += length;
                rest = &rest[length..];
            }
            _ => {
                text.push(first);
                rest = &rest[first.len_utf8()..];
            }
        }
    }
    (text, hidden)
}

/// How long the beginning is that looks like the pattern.
fn like(text: &str, pattern: &str) -> Option<usize> {
    let mut rest = text;
    for wanted in pattern.chars() {
        if wanted == '#' {
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            rest = (digits > 0).then(|| &rest[digits..])?;
        } else {
            rest = rest.strip_prefix(wanted)?;
        }
    }
    Some(text.len() - rest.len())
}

/// What a client hears through an endpoint in front of a server, which writes the answer to `initialize` and the ids of requests
/// anew: each part as text, so that numbers, escapes and the order of keys within it count.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Parts {
    /// By the id's own text.
    pub(crate) answers: BTreeMap<String, String>,
    /// What the server asked, without the ids, in order.
    pub(crate) asked: Vec<String>,
    /// Notifications, in order.
    pub(crate) told: Vec<String>,
}

impl Parts {
    /// Of these lines. Changes of lists that come of the handshake itself are not the client's business where the daemon has made it.
    #[track_caller]
    pub(crate) fn of(lines: &[String]) -> Self {
        let mut parts = Self::default();
        for line in lines {
            let mut message: BTreeMap<String, Box<RawValue>> =
                serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
            let id = message.remove("id").map(|id| id.get().to_owned());
            let method = message.get("method").map(|method| method.get().to_owned());
            let text: Vec<String> =
                message.iter().map(|(key, value)| format!("{key}: {}", value.get())).collect();
            let text = text.join(", ");
            match (id, method) {
                (Some(id), None) => {
                    assert_eq!(parts.answers.insert(id, text), None, "a second answer: {line}");
                }
                (Some(_), Some(_)) => parts.asked.push(text),
                (None, Some(method)) if method.ends_with("/list_changed\"") && parts.answers.len() < 2 => {}
                (None, _) => parts.told.push(text),
            }
        }
        parts
    }
}

#[test]
fn masks_hide_no_more_than_they_say() {
    let (text, hidden) = masked(r#"{"at":"2026-12-01T09:53:33+00:00","n":12}"#, &["#-#-#T#:#:#"]);
    assert_eq!((text.as_str(), hidden), (r##"{"at":"#-#-#T#:#:#+00:00","n":12}"##, 19));
    assert_eq!(masked("12:3x", &["#:#:#"]), ("12:3x".to_owned(), 0));
}

#[test]
fn parts_are_compared_as_text() {
    let of = |line: &str| Parts::of(&[line.to_owned()]);
    let first = of(r#"{"jsonrpc":"2.0","id":1,"result":{"n":1.0}}"#);
    assert_eq!(first, of(r#"{"id":1, "result":{"n":1.0}, "jsonrpc":"2.0"}"#));
    assert_ne!(first, of(r#"{"jsonrpc":"2.0","id":1,"result":{"n":1}}"#));
    assert_ne!(first, of(r#"{"jsonrpc":"2.0","id":"1","result":{"n":1.0}}"#));
}
