//! Why the shim itself failed, and with which status it leaves then.
use crate::commands::failure::help;
use crate::render::{escape, output};
use mcpvisor_control::{ErrorKind, ErrorObject};
use std::io;

/// The statuses of `env` and `timeout`.
pub(crate) const OWN: u8 = 125;
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;

/// A failure of the shim's own, or of the start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    /// 125, 126 or 127.
    pub(crate) status: u8,
    /// A sentence for people, not escaped.
    message: String,
    /// The mend, where one is known.
    help: Option<String>,
}

impl Failure {
    /// A failure of the shim's own.
    pub(crate) fn own(message: impl Into<String>) -> Self {
        Self { status: OWN, message: message.into(), help: None }
    }

    /// For an error of the operating system; `what` completes "failed to …".
    pub(crate) fn here(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::own(format!("failed to {what}: {error}"))
    }

    pub(crate) fn with_help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// The daemon has refused; `what` completes "failed to …".
    pub(crate) fn refused(what: &str, error: &ErrorObject) -> Self {
        let reason = error.detail("reason").and_then(|reason| reason.as_str());
        let status = match (error.kind(), reason) {
            (ErrorKind::StartFailed, Some("not_found")) => NOT_FOUND,
            (ErrorKind::StartFailed, Some("not_executable")) => NOT_EXECUTABLE,
            _ => OWN,
        };
        Self { status, message: format!("failed to {what}: {}", error.message), help: help(error) }
    }

    /// The sentence.
    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// On stderr.
    pub(crate) fn tell(&self) {
        output::note(&escape::line(&self.message));
        if let Some(help) = &self.help {
            output::help(&escape::line(help));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_is_127_and_one_that_is_none_126() {
        let status = |kind, reason: &str| {
            Failure::refused("x", &ErrorObject::new(kind, "m").with("reason", reason)).status
        };
        assert_eq!(status(ErrorKind::StartFailed, "not_found"), 127);
        assert_eq!(status(ErrorKind::StartFailed, "not_executable"), 126);
        assert_eq!(status(ErrorKind::StartFailed, "directory"), 125);
        assert_eq!(status(ErrorKind::CapacityExhausted, "not_found"), 125);
    }

    #[test]
    fn the_mend_is_told() {
        let error = ErrorObject::new(ErrorKind::Draining, "no").with("help", "wait");
        assert_eq!(Failure::refused("x", &error).help.as_deref(), Some("wait"));
    }
}
