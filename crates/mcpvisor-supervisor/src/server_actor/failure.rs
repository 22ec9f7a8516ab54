//! Why a server failed, in a word and in a sentence.
use super::Driver;
use crate::record::ServerRecord;
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
        // An exit that it was not told to make explains itself.
        let by_itself = live.stage == Stage::Itself && ended.is_some();
        drop(live);
        let keeps = |cause| {
            !by_itself
                || failure == Failure::Launch
                || matches!(cause, "keeper_lost" | "timeout" | "unhealthy")
        };
        let noted = noted.filter(|(cause, _)| keeps(*cause));
        let waited_for = self.waited_for.clone().unwrap_or_else(|| "launch".to_owned());
        let too_slow = || self.arguments.record.too_slow(&waited_for);
        let noted = noted.map(|noted| if noted.0 == "timeout" { too_slow() } else { noted });
        let last = noted.clone().map(|(_, text)| text).or_else(|| ended.clone());
        match (failure, noted) {
            (Failure::RestartLimit, _) => (
                "restart_limit",
                format!(
                    "it failed more than {} times in {} s{}",
                    spec.restart_intensity,
                    spec.restart_period.as_secs(),
                    last.map(|text| format!("; the last time {text}")).unwrap_or_default()
                ),
            ),
            (_, Some(keeper @ ("keeper_lost", _))) => keeper,
            (Failure::StartTimeout, _) => too_slow(),
            (_, Some(noted)) => noted,
            (Failure::OutputEnded, None) if !by_itself => ("output_ended", "it closed its stdout".to_owned()),
            (_, None) => ("exited", ended.unwrap_or_else(|| "it ended".to_owned())),
        }
    }
}

impl ServerRecord {
    /// The start's time has run out.
    pub(super) fn too_slow(&self, waited_for: &str) -> (&'static str, String) {
        let mut text = format!("it was not ready within {} ms: ", self.spec.start.as_millis());
        match waited_for {
            "launch" => text.push_str("its launch was not done"),
            method => text.push_str(&format!("it did not answer `{method}`")),
        }
        let noise = self.live().noise.clone();
        if let Some(line) = noise {
            text.push_str(&format!("; its stdout began with a line that is no message: {line}"));
        }
        ("timeout", text)
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
