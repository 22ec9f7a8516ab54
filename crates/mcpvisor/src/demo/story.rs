//! Tells what the demonstration does: step by step for a person, or as one JSON document at its end.
use crate::demo::proof::Witness;
use mcpvisor_control::results::{
    CloseOutcome, CloseReport, EndedProcess, Exit, Process, Proof, Session, Stage, Tool,
};
use serde_json::{Map, Value, json};
use std::io::Write;

/// What was told so far, and how it is told.
#[derive(Debug)]
pub(crate) struct Story {
    /// The document, where that is what is asked for.
    document: Option<Map<String, Value>>,
}

impl Story {
    pub(crate) fn new(json: bool) -> Self {
        Self { document: json.then(Map::new) }
    }

    pub(crate) fn daemon_started(&mut self) {
        self.say("1. A private daemon runs. It ends with this command.");
    }

    pub(crate) fn opened(&mut self, session: &Session) {
        self.note("session", session);
        self.say(&format!(
            "2. The session {}@{} is {}, held by {}:",
            session.key,
            session.generation,
            session.state,
            match session.containment.as_str() {
                "cgroup" => "control groups",
                "keeper" => "keeper processes",
                other => other,
            }
        ));
        for server in &session.servers {
            let manners = match server.name.as_str() {
                "polite" => "leaves at end of file",
                _ => "ignores end of file and SIGTERM, and has a helper that has run away",
            };
            let pid = server.pid.map_or("?".to_owned(), |pid| pid.to_string());
            self.say(&format!("     {:<9} process {pid:<7} {manners}", server.name));
        }
    }

    pub(crate) fn tools(&mut self, tools: &[Tool]) {
        self.note("tools", tools);
        self.say("3. Its tools:");
        for tool in tools {
            let description = tool.description.as_deref().unwrap_or_default();
            self.say(&format!("     {:<11} of {:<9} {description}", tool.name, tool.server));
        }
    }

    pub(crate) fn called(&mut self, tool: &str, arguments: &str, answer: &str) {
        if let Some(document) = &mut self.document {
            let calls = document.entry("calls").or_insert_with(|| json!([]));
            if let Value::Array(calls) = calls {
                calls.push(json!({"tool": tool, "answer": answer}));
            }
        }
        self.say(&format!("   {tool} of {arguments} is {answer}."));
    }

    pub(crate) fn processes(&mut self, processes: &[Process]) {
        self.note("processes", processes);
        self.say("4. Its processes:");
        for process in processes {
            let escaped = if process.escaped { "  (has left its server's process group)" } else { "" };
            self.say(&format!("     {:<7} {:<9} {}{escaped}", process.pid, process.server, process.command));
        }
    }

    pub(crate) fn closing(&mut self, stdin_grace_ms: u64, term_grace_ms: u64) {
        self.say(&format!(
            "5. It is closed: end of file, {stdin_grace_ms} ms of patience, SIGTERM, {term_grace_ms} ms more, then the kill …"
        ));
    }

    pub(crate) fn closed(&mut self, certificate: &CloseReport) {
        self.note("certificate", certificate);
        let took = certificate.duration_ms.map_or(String::new(), |ms| format!(" in {ms:.1} ms"));
        self.say(&format!("6. The certificate: {} is {}{took}.", certificate.key, certificate.outcome));
        for server in &certificate.servers {
            let took = server.duration_ms;
            self.say(&format!("     {}, {took:.1} ms, as far as: {}", server.name, stage(server.stage)));
            for process in &server.processes {
                self.say(&format!("       {:<7} {}", process.pid, process.command));
                self.say(&format!("               {}", ending(process)));
            }
        }
        for left in &certificate.remaining {
            self.say(&format!("     REMAINS {:<7} {}", left.pid, left.command));
        }
        if certificate.outcome == CloseOutcome::Closed {
            self.say(&format!("   Nothing remains. {}", proof(certificate.proof)));
        }
        if let Some(after) = certificate.acknowledged_after_us {
            self.say(&format!("   This was said {after} µs after the exit of the last process."));
        }
    }

    pub(crate) fn verified(&mut self, witness: &Witness, left: &[u32]) {
        self.note("verified", &json!({"processes": witness.count(), "remaining": left}));
        self.say(&if left.is_empty() {
            format!(
                "7. Checked without the daemon: of the {} processes seen, /proc knows none any more.",
                witness.count()
            )
        } else {
            format!("7. Checked without the daemon: these still exist: {left:?}")
        });
    }

    /// The daemon is gone, too.
    pub(crate) fn finish(&mut self) {
        if let Some(document) = self.document.take() {
            print(&Value::Object(document).to_string());
        } else {
            print("   The daemon has ended.");
        }
    }

    /// What was asked for could not be done.
    pub(crate) fn failed(&mut self, error: &mcpvisor_control::blocking::Error) {
        if self.document.take().is_some() {
            let error = match error {
                mcpvisor_control::blocking::Error::Refused(refusal) => {
                    json!({"kind": refusal.kind(), "message": refusal.message, "data": refusal.data})
                }
                other => json!({"kind": "internal", "message": other.to_string(), "data": null}),
            };
            print(&json!({"error": error}).to_string());
        }
        eprintln!("mcpvisor: failed to show the demonstration: {error}");
    }

    fn note(&mut self, name: &str, value: &(impl serde::Serialize + ?Sized)) {
        if let Some(document) = &mut self.document {
            // The types of the protocol can all be told in JSON.
            document.insert(name.to_owned(), serde_json::to_value(value).unwrap_or_default());
        }
    }

    fn say(&self, line: &str) {
        if self.document.is_none() {
            print(&printable(line));
        }
    }
}

/// A reader that is gone is no reason to stop half way.
fn print(line: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// Command lines are anyone's text.
fn printable(line: &str) -> String {
    line.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

fn stage(stage: Stage) -> &'static str {
    match stage {
        Stage::Itself => "its own end",
        Stage::Stdin => "end of file",
        Stage::Sigterm => "SIGTERM",
        Stage::Sigkill => "the kill",
        Stage::Unknown => "unknown",
    }
}

fn ending(process: &EndedProcess) -> String {
    let when = match process.ended_by {
        Some(Stage::Itself) => "ended by itself",
        Some(Stage::Stdin) => "left at end of file",
        Some(Stage::Sigterm) => "left at SIGTERM",
        Some(Stage::Sigkill) => "was killed",
        Some(Stage::Unknown) => "ended",
        None => "lives",
    };
    let how = match &process.exit {
        Some(Exit::Code(code)) => format!(" with code {code}"),
        Some(Exit::Signal(signal)) => format!(" (SIG{signal})"),
        None => String::new(),
    };
    let escaped = if process.escaped { "; it had left its server's process group" } else { "" };
    format!("{when}{how}{escaped}")
}

fn proof(proof: Option<Proof>) -> &'static str {
    match proof {
        Some(Proof::Cgroup) => "Proof: the kernel says that the control group is empty.",
        Some(Proof::Keeper) => "Proof: the keeper, to whom every orphan comes back, has no child any more.",
        Some(Proof::None | Proof::Unknown) | None => "There is no proof of it.",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endings_are_told_in_words() {
        let process = |ended_by, exit, escaped| {
            let process =
                json!({"pid": 1, "command": "c", "ended_by": ended_by, "exit": exit, "escaped": escaped});
            ending(&serde_json::from_value(process).unwrap())
        };
        assert_eq!(process("stdin", json!({"code": 0}), false), "left at end of file with code 0");
        assert_eq!(
            process("sigkill", json!({"signal": "KILL"}), true),
            "was killed (SIGKILL); it had left its server's process group"
        );
        assert_eq!(printable("a\u{1b}b"), "a\u{fffd}b");
    }
}
