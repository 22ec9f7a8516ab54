//! Where results go: stdout, and nothing else goes there.
use super::escape;
use serde::Serialize;
use std::io::{self, Write};

/// Prints text that is made for people, with a newline at its end. A reader that has gone is no failure of ours.
pub(crate) fn text(text: &str) {
    let mut out = io::stdout().lock();
    let newline = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    // What can't be told can't be told: there is no other place for it.
    let _ = write!(out, "{text}{newline}").and_then(|()| out.flush());
}

/// Prints one JSON document on one line.
pub(crate) fn json(document: &impl Serialize) {
    match serde_json::to_string(document) {
        Ok(document) => text(&escape::json(&document)),
        Err(error) => note(&format!("the result can't be told in JSON: {error}")),
    }
}

/// Tells something that is no result, on stderr.
pub(crate) fn note(text: &str) {
    let _ = writeln!(io::stderr().lock(), "mcpvisor: {text}");
}

/// Tells the mend of what a note told, on stderr.
pub(crate) fn help(text: &str) {
    let _ = writeln!(io::stderr().lock(), "help: {text}");
}
