//! Why a command was not done, for people and for programs.
use crate::cli::Globals;
use crate::render::certificate::{exit_text, indent, stderr_tail};
use crate::render::style::Style;
use crate::render::{escape, frames, output};
use mcpvisor_control::blocking;
use mcpvisor_control::results::{Exit, RemainingProcess};
use mcpvisor_control::socket::NoDaemon;
use mcpvisor_control::{ErrorKind, ErrorObject};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::fmt::Display;
use std::io;
use std::process::ExitCode;

/// A command that was not done. Its text reads "failed to `doing`: `cause`".
#[derive(Debug)]
pub(crate) struct Failure {
    doing: String,
    cause: Cause,
}

#[derive(Debug)]
enum Cause {
    /// What was asked can't be meant.
    Usage(String),
    NoDaemon(NoDaemon),
    /// The daemon said no.
    Refused(Box<ErrorObject>),
    /// The daemon did not answer within `--timeout`.
    TimedOut,
    /// This process was told to leave, by this signal.
    Interrupted(u8),
    /// The daemon ended before it answered.
    Gone,
    Other(String),
}

/// What `--json` prints of a failure.
#[derive(Serialize)]
struct Told<T> {
    error: T,
}

#[derive(Serialize)]
struct ErrorJson {
    kind: &'static str,
    message: String,
    data: Map<String, Value>,
}

/// An error in the command line, for people. The text may have the user's own words in it.
pub(crate) fn usage_text(mut error: clap::Error) -> String {
    // Its advice to write an option that is not known behind `--` would run it, or make a key of it.
    error.remove(clap::error::ContextKind::Suggested);
    error.render().to_string()
}

impl Failure {
    pub(crate) fn usage(doing: impl Into<String>, cause: impl Into<String>) -> Self {
        Self { doing: doing.into(), cause: Cause::Usage(cause.into()) }
    }

    /// Of an error in the command line.
    pub(crate) fn usage_of(error: &clap::Error) -> Self {
        let text = error.render().to_string();
        // The first paragraph; its further lines name what is meant.
        let lines: Vec<&str> = text.lines().take_while(|line| !line.is_empty()).map(str::trim).collect();
        let first = lines.join(" ");
        Self::usage("understand the command line", first.strip_prefix("error: ").unwrap_or(&first))
    }

    pub(crate) fn no_daemon(doing: impl Into<String>, error: NoDaemon) -> Self {
        Self { doing: doing.into(), cause: Cause::NoDaemon(error) }
    }

    pub(crate) fn refused(doing: impl Into<String>, error: ErrorObject) -> Self {
        Self { doing: doing.into(), cause: Cause::Refused(Box::new(error)) }
    }

    pub(crate) fn interrupted(doing: impl Into<String>, signal: u8) -> Self {
        Self { doing: doing.into(), cause: Cause::Interrupted(signal) }
    }

    pub(crate) fn other(doing: impl Into<String>, cause: impl Display) -> Self {
        Self { doing: doing.into(), cause: Cause::Other(cause.to_string()) }
    }

    pub(crate) fn of_connection(doing: impl Into<String>, error: blocking::Error) -> Self {
        let cause = match error {
            blocking::Error::Refused(error) => Cause::Refused(error),
            // It has died; or it did before it had even accepted the connection, which looks the same from here.
            blocking::Error::Disconnected => Cause::Gone,
            blocking::Error::Io(error)
                if matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe) =>
            {
                Cause::Gone
            }
            blocking::Error::Io(error) if error.kind() == io::ErrorKind::TimedOut => Cause::TimedOut,
            other => Cause::Other(other.to_string()),
        };
        Self { doing: doing.into(), cause }
    }

    /// Of a question that comes before a call: the call was not made.
    pub(crate) fn before_the_call(self) -> Self {
        const UNMADE: &str = "the call did not reach its server";
        let message = self.message();
        let late = |message| ErrorObject::new(ErrorKind::DeadlineExceeded, format!("{message}; {UNMADE}"));
        let error = match self.cause {
            Cause::Refused(error) if error.kind() == ErrorKind::DeadlineExceeded => late(message),
            Cause::TimedOut => late(message),
            Cause::Refused(error) => *error,
            cause => return Self { cause, ..self },
        };
        Self::refused(self.doing, error.with("reached_server", false))
    }

    /// The daemon's reason, where it gave one.
    pub(crate) fn kind(&self) -> Option<ErrorKind> {
        match &self.cause {
            Cause::Refused(error) => Some(error.kind()),
            Cause::TimedOut => Some(ErrorKind::DeadlineExceeded),
            Cause::Interrupted(_) => Some(ErrorKind::Cancelled),
            _ => None,
        }
    }

    pub(crate) fn exit_status(&self) -> u8 {
        match &self.cause {
            Cause::Usage(_) => ErrorKind::InvalidRequest.exit_status(),
            Cause::NoDaemon(_) | Cause::Gone => 6,
            Cause::Refused(error) => error.kind().exit_status(),
            Cause::TimedOut => ErrorKind::DeadlineExceeded.exit_status(),
            Cause::Interrupted(signal) => 128 + signal,
            Cause::Other(_) => 1,
        }
    }

    /// Tells it, as JSON on stdout or for people on stderr, and gives the exit status.
    pub(crate) fn tell(&self, json: bool, globals: Option<&Globals>) -> ExitCode {
        if json {
            output::json(&Told { error: self.to_json() });
        } else {
            let globals = globals.cloned().unwrap_or_default();
            let style = Style::of(&globals, &io::stderr());
            let text = self.for_people(style);
            // Where stderr is gone too there is no place left to tell it.
            let _ = io::Write::write_all(&mut io::stderr().lock(), text.as_bytes());
        }
        ExitCode::from(self.exit_status())
    }

    /// `{"kind", "message", "data"}`.
    pub(crate) fn to_json(&self) -> impl Serialize + use<> {
        let (kind, data) = match &self.cause {
            Cause::Usage(_) => (ErrorKind::InvalidRequest.as_str(), Map::new()),
            Cause::NoDaemon(error) => {
                let tried = error.tried.iter().map(|(path, error)| {
                    serde_json::json!({ "path": path.to_string_lossy(), "error": error.to_string() })
                });
                ("no_daemon", Map::from_iter([("tried".to_owned(), tried.collect())]))
            }
            Cause::Refused(error) => (error.kind().as_str(), error.data.details.clone()),
            Cause::TimedOut => (ErrorKind::DeadlineExceeded.as_str(), Map::new()),
            Cause::Interrupted(_) => (ErrorKind::Cancelled.as_str(), Map::new()),
            Cause::Gone => ("no_daemon", Map::new()),
            Cause::Other(_) => (ErrorKind::Internal.as_str(), Map::new()),
        };
        ErrorJson { kind, message: self.message(), data }
    }

    fn message(&self) -> String {
        match &self.cause {
            Cause::Usage(text) | Cause::Other(text) => text.clone(),
            Cause::NoDaemon(error) => error.to_string(),
            Cause::Refused(error) => error.message.clone(),
            Cause::TimedOut => "the daemon did not answer in time".to_owned(),
            Cause::Interrupted(signal) => match Exit::from_signal(i32::from(*signal)) {
                Exit::Signal(name) => format!("it was cancelled by SIG{name}"),
                Exit::Code(_) => "it was cancelled".to_owned(),
            },
            Cause::Gone => "the daemon ended before it answered".to_owned(),
        }
    }

    /// The message, what belongs to it, and how to mend it.
    pub(crate) fn for_people(&self, style: Style) -> String {
        let message = self.message();
        let mut text = format!(
            "{} failed to {}: {}\n",
            style.bad("mcpvisor:"),
            escape::line(&self.doing),
            escape::line(&message)
        );
        if let Cause::Refused(error) = &self.cause {
            text += &indent(&details(error));
        }
        if let Some(help) = self.help() {
            text += &format!("{} {}\n", style.strong("help:"), escape::line(&help));
        }
        text
    }

    fn help(&self) -> Option<String> {
        match &self.cause {
            Cause::NoDaemon(_) => Some(
                "start a daemon with `mcpvisor daemon`, name its socket with `--socket PATH`, or, for \
                 a daemon of this command's own, use `--private`"
                    .to_owned(),
            ),
            Cause::Refused(error) if error.kind() == ErrorKind::DeadlineExceeded => {
                // Of a call the daemon has said whether it may have been done.
                let told = error.detail("reached_server").is_some();
                Some(if told { LONGER.to_owned() } else { longer(&self.doing) })
            }
            Cause::Refused(error) => help(error),
            Cause::TimedOut => Some(longer(&self.doing)),
            Cause::Usage(_) | Cause::Interrupted(_) | Cause::Other(_) | Cause::Gone => None,
        }
    }
}

const LONGER: &str = "ask again with a longer `--timeout`";

/// After a deadline.
fn longer(doing: &str) -> String {
    let meanwhile = match doing.split(' ').next() {
        Some("open") => "; an open that was given up is undone",
        Some("close" | "kill") => "; the teardown goes on all the same",
        Some("add") => "; an add that was given up is undone",
        Some("remove" | "restart") => "; it goes on all the same",
        Some("call") => "; the call may have been done",
        _ => "",
    };
    format!("{LONGER}{meanwhile}")
}

/// Which server, how it ended, the end of its stderr, and what was last said.
fn details(error: &ErrorObject) -> String {
    let text = |name: &str| error.detail(name).and_then(Value::as_str);
    let mut details = String::new();
    let exit = error.detail("exit").and_then(|exit| serde_json::from_value::<Exit>(exit.clone()).ok());
    if let (Some(server), Some(exit)) = (text("server"), exit) {
        details += &format!("server {} ended with {}\n", escape::line(server), exit_text(&exit));
    }
    let left = error.detail("remaining").and_then(|left| Vec::<RemainingProcess>::deserialize(left).ok());
    for process in left.unwrap_or_default() {
        details += &format!("still alive: {} {}\n", process.pid, escape::line(&process.command));
    }
    if let Some(tail) = text("stderr_tail").filter(|tail| !tail.is_empty()) {
        details += &stderr_tail(tail);
    }
    let frames = error.detail("frames").and_then(|frames| Vec::deserialize(frames).ok());
    details += &frames::last(&frames.unwrap_or_default());
    if let Some(report) = text("report").filter(|_| error.kind() == ErrorKind::InvalidConfiguration) {
        report.lines().for_each(|line| details += &format!("{}\n", escape::line(line)));
    }
    if let Some(error) = error.detail("error").filter(|_| error.kind() == ErrorKind::ServerError) {
        details += &format!("{}\n", escape::line(&error.to_string()));
    }
    details
}

/// The mend: the daemon's own words where it has some.
pub(crate) fn help(error: &ErrorObject) -> Option<String> {
    let text = |name: &str| error.detail(name).and_then(Value::as_str);
    if let Some(help) = text("help") {
        return Some(help.to_owned());
    }
    let key = text("key").unwrap_or("KEY");
    let help = match error.kind() {
        ErrorKind::NotFound => "`mcpvisor list` tells the sessions that there are".to_owned(),
        ErrorKind::SessionExists => format!("close it first (`mcpvisor close {key}`), or open another key"),
        ErrorKind::SessionClosing => {
            format!("`mcpvisor wait {key}` waits for its end; `--if-closing wait` opens it then")
        }
        ErrorKind::StaleGeneration => format!("leave out the generation to mean the current one: `{key}`"),
        ErrorKind::CapacityExhausted => {
            let limit = match text("scope") {
                Some("user") => "max_sessions_per_user",
                Some("tenant") => "max_sessions_per_tenant",
                Some("processes") => "max_processes",
                Some("session_processes") => "max_processes_per_session",
                Some("queue") => "max_queued_per_user",
                _ => "max_sessions",
            };
            format!("close sessions that are not needed, or raise `{limit}` in the daemon's configuration")
        }
        ErrorKind::Draining => "this daemon is about to end; ask again when a new one runs".to_owned(),
        ErrorKind::StartFailed => match text("reason") {
            Some("not_found") => "is the program installed, and in this shell's PATH?".to_owned(),
            Some("not_executable") => "is it a program, with the execute bit set (`chmod +x`)?".to_owned(),
            Some("directory") => "name an existing directory with `--cwd`".to_owned(),
            _ => return None,
        },
        ErrorKind::StartTimeout => {
            "the server may need more time for its first start, or is no MCP server on stdio".to_owned()
        }
        ErrorKind::Quarantined => {
            format!("`mcpvisor show {key}` tells what is left, `mcpvisor kill {key}` tries again")
        }
        _ => return None,
    };
    Some(help)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_the_cause_the_details_and_the_mend() {
        let error = ErrorObject::new(ErrorKind::StartFailed, "no such program: x\u{1b}y")
            .with("server", "main")
            .with("reason", "not_found")
            .with("exit", Exit::Code(3))
            .with("stderr_tail", "a\nb");
        let failure = Failure::refused("open a session", error);
        assert_eq!(
            failure.for_people(Style::PLAIN),
            "mcpvisor: failed to open a session: no such program: x\\x1by\n  server main ended with code 3\n    | a\n    \
             | b\nhelp: is the program installed, and in this shell's PATH?\n"
        );
        assert_eq!(failure.exit_status(), 1);
    }

    #[test]
    fn programs_get_kind_message_and_data() {
        let error = ErrorObject::new(ErrorKind::CapacityExhausted, "full").with("used", 3);
        let failure = Failure::refused("open a session", error);
        let json = serde_json::to_value(failure.to_json()).unwrap();
        assert_eq!(
            json,
            serde_json::json!({"kind": "capacity_exhausted", "message": "full", "data": {"used": 3}})
        );
        assert_eq!(failure.exit_status(), 5);
    }

    #[test]
    fn without_a_daemon_the_paths_and_the_mend_are_named() {
        let tried = vec![("/a/control.sock".into(), io::Error::from(io::ErrorKind::NotFound))];
        let failure = Failure::no_daemon("list sessions", NoDaemon { tried });
        let text = failure.for_people(Style::PLAIN);
        assert!(
            text.contains("/a/control.sock")
                && text.contains("not there")
                && text.contains("`mcpvisor daemon`"),
            "{text}"
        );
        assert_eq!(failure.exit_status(), 6);
    }

    #[test]
    fn the_daemons_own_help_comes_first() {
        let error = ErrorObject::new(ErrorKind::NotFound, "no").with("help", "do this");
        assert!(Failure::refused("x", error).for_people(Style::PLAIN).ends_with("help: do this\n"));
    }
}
