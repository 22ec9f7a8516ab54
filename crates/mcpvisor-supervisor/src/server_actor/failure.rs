//! Why a server failed, in a word and in a sentence.
use super::Driver;
use mcpvisor_lifecycle::server::{Failure, Stage};
use mcpvisor_process::{Exit, LaunchErrorKind};

impl Driver {
    /// The cause of a failure, as a word and as a sentence.
    pub(super) fn why(&mut self, failure: Failure) -> (&'static str, String) {
        let noted = self.cause.take();
        let live = self.arguments.record.live();
        let spec = &self.arguments.record.spec;
        let ended = live.exit.map(|exit| match exit {
            Exit::Code(code) => format!("it exited with status {code}"),
            Exit::Signal(signal) => format!("it was ended by signal {signal}"),
        });
        match (failure, noted) {
            (Failure::Launch, Some(noted)) => noted,
            (Failure::StartTimeout, _) => {
                let mut text = format!("it was not ready within {} ms", spec.start.as_millis());
                if let Some(line) = live.noise.as_deref() {
                    text.push_str(&format!("; its stdout began with a line that is no message: {line}"));
                }
                ("timeout", text)
            }
            (Failure::Handshake, Some((cause, message)))
                if live.stage != Stage::Itself || ended.is_none() =>
            {
                (cause, message)
            }
            (Failure::OutputEnded, noted) if live.stage != Stage::Itself || ended.is_none() => {
                noted.unwrap_or_else(|| ("output_ended", "it closed its stdout".to_owned()))
            }
            (Failure::RestartLimit, _) => (
                "restart_limit",
                format!(
                    "it failed more than {} times in {} s{}",
                    spec.restart_intensity,
                    spec.restart_period.as_secs(),
                    ended.map(|text| format!("; the last time {text}")).unwrap_or_default()
                ),
            ),
            (_, _) => ("exited", ended.unwrap_or_else(|| "it ended".to_owned())),
        }
    }
}

pub(super) fn launch_cause(kind: LaunchErrorKind) -> &'static str {
    match kind {
        LaunchErrorKind::NotFound => "not_found",
        LaunchErrorKind::NotExecutable => "not_executable",
        LaunchErrorKind::Directory => "directory",
        LaunchErrorKind::Hung => "hung",
        LaunchErrorKind::Resources => "resources",
        LaunchErrorKind::Killed => "killed",
        LaunchErrorKind::Other => "launch",
    }
}
