//! The progress of a call, on one line of a terminal.
use crate::cli::Globals;
use crate::render::escape;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::io::{self, IsTerminal, Write};

/// A terminal that does not tell its width is taken to have so many columns.
const COLUMNS: usize = 80;

/// What a server tells of a call's progress.
#[derive(Debug, Default, Deserialize)]
struct Told {
    #[serde(default)]
    progress: Option<f64>,
    #[serde(default)]
    total: Option<f64>,
    #[serde(default)]
    message: Option<String>,
}

/// The line. It is gone when this is dropped.
#[derive(Debug)]
pub(super) struct Line {
    place: Place,
    /// Something stands there.
    written: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Not on a terminal: nothing is shown.
    Nowhere,
    /// A terminal that can't go back: a line for each.
    Lines,
    OneLine,
}

impl Line {
    pub(super) fn for_stderr(globals: &Globals) -> Self {
        let place = match io::stderr().is_terminal() && !globals.quiet {
            false => Place::Nowhere,
            true if std::env::var_os("TERM").is_some_and(|term| term == "dumb") => Place::Lines,
            true => Place::OneLine,
        };
        Self { place, written: false }
    }

    pub(super) fn is_shown(&self) -> bool {
        self.place != Place::Nowhere
    }

    pub(super) fn show(&mut self, progress: &RawValue) {
        // What a server made up otherwise is not worth an error.
        let told: Told = serde_json::from_str(progress.get()).unwrap_or_default();
        let Some(text) = text(&told) else { return };
        let mut stderr = io::stderr().lock();
        // Where it can't be shown there is no other place for it.
        let _ = match self.place {
            Place::Nowhere => Ok(()),
            Place::Lines => writeln!(stderr, "{text}"),
            Place::OneLine => {
                let columns =
                    rustix::termios::tcgetwinsize(&stderr).map_or(0, |size| usize::from(size.ws_col));
                let text = cut(&text, if columns == 0 { COLUMNS } else { columns });
                self.written = true;
                write!(stderr, "\r\x1b[K{text}").and_then(|()| stderr.flush())
            }
        };
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if self.written {
            let _ = io::stderr().lock().write_all(b"\r\x1b[K");
        }
    }
}

fn text(told: &Told) -> Option<String> {
    let message = told.message.as_deref().map(escape::line).filter(|message| !message.is_empty());
    let amount = match (told.progress, told.total) {
        (Some(progress), Some(total)) if total > 0.0 => {
            let percent = (progress / total * 100.0).clamp(0.0, 100.0).floor();
            Some(format!("{percent}% ({progress} of {total})"))
        }
        (Some(progress), _) => Some(progress.to_string()),
        (None, _) => None,
    };
    match (amount, message) {
        (None, None) => None,
        (Some(amount), None) => Some(amount),
        (None, Some(message)) => Some(message.into_owned()),
        (Some(amount), Some(message)) => Some(format!("{amount} {message}")),
    }
}

/// What fits on a line with a column to spare, so that the terminal does not begin the next one. A character beyond ASCII may take two.
fn cut(text: &str, columns: usize) -> &str {
    let mut used = 0;
    for (at, character) in text.char_indices() {
        used += if character.is_ascii() { 1 } else { 2 };
        if used >= columns {
            return &text[..at];
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(json: &str) -> Option<String> {
        text(&serde_json::from_str(json).unwrap_or_default())
    }

    #[test]
    fn what_a_server_tells_is_one_harmless_line() {
        for (json, wanted) in [
            (r#"{"progress":3,"total":10,"message":"a\nb\u001b[2J"}"#, Some(r"30% (3 of 10) a\x0ab\x1b[2J")),
            (r#"{"progress":0.5,"total":0}"#, Some("0.5")),
            (r#"{"progress":20,"total":10}"#, Some("100% (20 of 10)")),
            (r#"{"message":"m"}"#, Some("m")),
            (r#"{"message":""}"#, None),
            (r#"{"progress":"x"}"#, None),
            ("[]", None),
        ] {
            assert_eq!(shown(json).as_deref(), wanted, "{json}");
        }
    }

    #[test]
    fn a_line_is_cut_to_its_terminal() {
        assert_eq!(cut("abcdef", 4), "abc");
        assert_eq!(cut("abc", 4), "abc");
        assert_eq!(cut("漢字漢", 6), "漢字");
        assert_eq!(cut("abc", 1), "");
    }
}
