//! `doctor`: what this machine allows, whether a daemon runs, and which MCP servers are orphaned here.
mod orphans;

use super::wire::Wire;
use super::{Done, Status, tell};
use crate::cli::Globals;
use crate::render::style::Style;
use crate::render::table::table;
use crate::render::{certificate::indent, escape, output, session};
use mcpvisor_control::params;
use orphans::Orphan;
use serde::Serialize;
use serde_json::value::RawValue;

#[derive(Serialize)]
struct Report {
    /// The daemon's state; null where none runs.
    daemon: Option<Box<RawValue>>,
    findings: Vec<Finding>,
    orphans: Vec<Orphan>,
}

#[derive(Serialize)]
struct Finding {
    name: String,
    ok: bool,
    detail: String,
}

pub(crate) fn doctor(globals: &Globals) -> Done {
    // Without a daemon there is still much to tell.
    let daemon = Wire::connect("ask the daemon", globals)
        .and_then(|mut wire| wire.call("ask for the daemon's state", &params::Status {}));
    let findings = mcpvisord::doctor()
        .into_iter()
        .map(|(name, result)| {
            let (ok, detail) = match result {
                Ok(detail) => (true, detail),
                Err(detail) => (false, detail),
            };
            Finding { name, ok, detail }
        })
        .collect();
    let report = Report {
        findings,
        orphans: orphans::find(),
        daemon: daemon.as_ref().ok().map(|status| status.raw.clone()),
    };
    if globals.json {
        output::json(&report);
        return Ok(Status::Done);
    }
    if globals.quiet {
        // What is not as it should be.
        let wrong = report.findings.iter().filter(|finding| !finding.ok);
        let wrong = wrong.map(|finding| format!("{}: {}", finding.name, finding.detail));
        let orphans =
            report.orphans.iter().map(|orphan| format!("orphan: {} {}", orphan.pid, orphan.command));
        output::text(
            &wrong.chain(orphans).map(|line| escape::line(&line).into_owned() + "\n").collect::<String>(),
        );
        return Ok(Status::Done);
    }
    // That no daemon answers is no result.
    if let Err(failure) = &daemon {
        failure.tell(false, Some(globals));
    }
    tell(globals, |style| {
        let daemon =
            daemon.as_ref().map_or_else(|_| String::new(), |status| session::status(&status.value, style));
        daemon + &machine(&report, style)
    });
    Ok(Status::Done)
}

fn machine(report: &Report, style: Style) -> String {
    let mut text = String::new();
    for finding in &report.findings {
        let mark = if finding.ok { style.good("yes") } else { style.bad("no ") };
        text += &format!("{mark} {}: {}\n", escape::line(&finding.name), escape::line(&finding.detail));
    }
    if report.orphans.is_empty() {
        return text + &format!("{} no orphaned MCP servers\n", style.good("yes"));
    }
    text += &format!(
        "{} processes that look like MCP servers whose client is gone (kill them by pid if they are):\n",
        style.bad("no ")
    );
    let rows = report.orphans.iter().map(|orphan| {
        vec![orphan.pid.to_string(), orphan.uid.to_string(), orphan.parent.clone(), orphan.command.clone()]
    });
    text + &indent(&table(style, &["PID", "UID", "ADOPTED BY", "COMMAND"], rows))
}
