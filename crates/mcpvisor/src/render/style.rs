//! Colour, sparingly.
use crate::cli::{Color, Globals};
use std::io::IsTerminal;

/// Whether colours are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Style {
    on: bool,
}

impl Style {
    /// For text that goes to this stream.
    pub(crate) fn of(globals: &Globals, stream: &impl IsTerminal) -> Self {
        let auto = || {
            let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
            stream.is_terminal()
                && !set("NO_COLOR")
                && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
        };
        Self {
            on: match globals.color {
                Color::Auto => auto(),
                Color::Always => true,
                Color::Never => false,
            },
        }
    }

    /// Without colours.
    pub(crate) const PLAIN: Self = Self { on: false };

    fn paint(self, code: &str, text: &str) -> String {
        if self.on { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    pub(crate) fn good(self, text: &str) -> String {
        self.paint("32", text)
    }

    pub(crate) fn bad(self, text: &str) -> String {
        self.paint("1;31", text)
    }

    pub(crate) fn strong(self, text: &str) -> String {
        self.paint("1", text)
    }
}
