//! Where results go: stdout, and nothing else goes there.
use super::escape;
use serde::Serialize;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::OnceLock;

/// Why a result did not reach stdout, the first time.
static LOST: OnceLock<io::Error> = OnceLock::new();

/// 128 and SIGPIPE: what a reader that has gone ends other programs with.
const BROKEN_PIPE: u8 = 141;

/// Prints text that is made for people, with a newline at its end. Whether it arrives, [`settle`] tells.
pub(crate) fn text(text: &str) {
    let newline = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    bytes(format!("{text}{newline}").as_bytes());
}

/// Prints bytes as they are.
pub(crate) fn bytes(bytes: &[u8]) {
    let mut out = io::stdout().lock();
    printed(out.write_all(bytes).and_then(|()| out.flush()));
}

/// Somebody else has printed.
pub(crate) fn printed(result: io::Result<()>) {
    if let Err(error) = result {
        let _ = LOST.set(error);
    }
}

/// Nobody gets the results any more.
pub(crate) fn is_lost() -> bool {
    LOST.get().is_some()
}

/// The exit status, where a result that did not arrive is a failure: told, but for a reader that has gone, as `head` does.
pub(crate) fn settle(status: ExitCode) -> ExitCode {
    let Some(error) = LOST.get() else { return status };
    let broken = error.kind() == io::ErrorKind::BrokenPipe;
    if !broken {
        note(&format!("failed to write the result to stdout: {error}"));
    }
    match status {
        ExitCode::SUCCESS if broken => ExitCode::from(BROKEN_PIPE),
        ExitCode::SUCCESS => ExitCode::FAILURE,
        failed => failed,
    }
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
