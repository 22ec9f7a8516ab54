//! Tells what the demonstration does: step by step for a person, or as one JSON document at its end.
use crate::cli::Globals;
use crate::demo::proof::Witness;
use crate::render::certificate::{certificate, indent};
use crate::render::style::Style;
use crate::render::{escape, output};
use mcpvisor_control::results::{CloseReport, Process, Session, Tool};
use serde_json::{Map, Value, json};

/// What was told so far, and how it is told.
#[derive(Debug)]
pub(crate) struct Story {
    /// The document, where that is what is asked for.
    document: Option<Map<String, Value>>,
    style: Style,
}

impl Story {
    pub(crate) fn new(globals: &Globals) -> Self {
        Self { document: globals.json.then(Map::new), style: Style::of(globals, &std::io::stdout()) }
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
        self.say(&format!("   {tool}({arguments}) = {answer}"));
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

    pub(crate) fn closed(&mut self, report: &CloseReport) {
        self.note("certificate", report);
        self.say("6. The certificate:");
        if self.document.is_none() {
            output::text(&indent(&certificate(report, self.style)));
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
        self.say("   The daemon has ended, too.");
        if let Some(document) = self.document.take() {
            output::json(&document);
        }
    }

    fn note(&mut self, name: &str, value: &(impl serde::Serialize + ?Sized)) {
        if let Some(document) = &mut self.document {
            // The types of the protocol can all be told in JSON.
            document.insert(name.to_owned(), serde_json::to_value(value).unwrap_or_default());
        }
    }

    fn say(&self, line: &str) {
        if self.document.is_none() {
            output::text(&escape::line(line));
        }
    }
}
