//! The table of the changes of a live session's servers.
use super::parse::{Table, Words, words};
use super::session_setup::{effect, name};
use mcpvisor_lifecycle::registry::CloseOptions;
use mcpvisor_lifecycle::server::{Failure, ServerReport};
use mcpvisor_lifecycle::session::{
    CloseReason, Session, SessionConfig, SessionEffect, SessionEvent, SessionServer,
};
use mcpvisor_lifecycle::{Moment, Place, RequestId};
use std::time::Duration;

const EVENTS: [&str; 24] = [
    "Add(c)",
    "Add(b)",
    "Replace(b)",
    "Replace(c)",
    "Remove(b)",
    "Remove(b, no drain)",
    "Remove(c)",
    "Restart(b)",
    "Restart(b, no drain)",
    "Restart(c)",
    "Yield(b)",
    "CancelChange",
    "Drained(b)",
    "Timeout",
    "Close",
    "c:Ready",
    "c:Failed",
    "c:Stopped",
    "c:Quarantined",
    "b:Relaunched",
    "b:Failed",
    "b:Stopped",
    "b:Quarantined",
    "b:Lost",
];

/// Each variant by the word of the table, with the way to it.
const VARIANTS: [(&str, &[&str]); 21] = [
    ("direct", &["Begin", "a:Ready"]),
    ("starting", &["Begin"]),
    ("b ready", &["Begin", "a:Ready", "b:Ready"]),
    ("b failed", &["Begin", "a:Ready", "b:Failed"]),
    ("b quarantined", &["Begin", "a:Ready", "b:Quarantined"]),
    ("c joining", &["Begin", "a:Ready", "b:Ready", "Add(c)"]),
    ("c added", &["Begin", "a:Ready", "b:Ready", "Add(c)", "c:Ready"]),
    ("c joining for b", &["Begin", "a:Ready", "b:Ready", "Replace(b)"]),
    ("b held", &["Begin", "a:Ready", "b:Ready", "Restart(b)"]),
    ("b restarting", &["Begin", "a:Ready", "b:Ready", "Restart(b, no drain)"]),
    ("b relaunched", &["Begin", "a:Ready", "b:Ready", "Restart(b, no drain)", "b:Relaunched"]),
    ("b yielding", &["Begin", "a:Ready", "b:Ready", "Yield(b)"]),
    ("b to yield", &["Begin", "a:Ready", "b:Ready", "Yield(b)", "Drained(b)"]),
    ("b yielded", &["Begin", "a:Ready", "b:Ready", "Yield(b)", "Drained(b)", "b:Stopped"]),
    (
        "b blocked",
        &[
            "Begin",
            "a:Ready",
            "b:Ready",
            "Yield(b)",
            "Drained(b)",
            "b:Stopped",
            "Replace(b)",
            "c:Quarantined",
        ],
    ),
    ("b retiring", &["Begin", "a:Ready", "b:Ready", "Remove(b)"]),
    ("b leaving", &["Begin", "a:Ready", "b:Ready", "Remove(b, no drain)"]),
    ("b left over", &["Begin", "a:Ready", "b:Ready", "Remove(b, no drain)", "b:Quarantined"]),
    ("closing", &["Begin", "a:Ready", "b:Ready", "Close"]),
    ("closing with c joining", &["Begin", "a:Ready", "b:Ready", "Add(c)", "Close"]),
    ("closing with b leaving", &["Begin", "a:Ready", "b:Ready", "Remove(b, no drain)", "Close"]),
];

fn event(text: &str) -> SessionEvent {
    let request = RequestId(1);
    if let Some((server, report)) = text.split_once(':') {
        let server = Place(u32::from(server.as_bytes()[0] - b'a'));
        let report = match report {
            "Lost" => return SessionEvent::ServerLost { server },
            "Ready" => ServerReport::Ready,
            "Relaunched" => ServerReport::Relaunched,
            "Failed" => ServerReport::Failed(Failure::Exited),
            "Stopped" => ServerReport::Stopped,
            _ => ServerReport::Quarantined,
        };
        return SessionEvent::Server { server, report };
    }
    let server = |name| SessionServer { name, required: false, significant: false };
    let of = |text: &str| name(text.split(['(', ')', ',']).nth(1).unwrap_or("a"));
    let drain = text.contains("no drain").then_some(Duration::ZERO);
    match text.split('(').next().unwrap_or_default() {
        "Begin" => SessionEvent::Begin,
        "Timeout" => SessionEvent::Timeout,
        "Close" => SessionEvent::Close { reason: CloseReason::Requested, options: CloseOptions::default() },
        "CancelChange" => SessionEvent::CancelChange { request },
        "Drained" => SessionEvent::ServerDrained { server: Place(1) },
        "Add" => SessionEvent::Add { request, server: server(of(text)), replace: false },
        "Replace" => SessionEvent::Add { request, server: server(of(text)), replace: true },
        "Remove" => SessionEvent::Remove { request, name: of(text), drain },
        "Yield" => SessionEvent::Yield { request, name: of(text) },
        "Restart" => SessionEvent::Restart { request, name: of(text), drain },
        other => panic!("the table of changes names an event {other}"),
    }
}

/// The words that hold of a variant.
fn holds(variant: &'static str) -> Words {
    let any = |of: &[&str]| of.contains(&variant);
    let there = variant.contains("c joining");
    let restarts = any(&["b held", "b restarting", "b relaunched"]);
    let yields = any(&["b yielding", "b to yield"]);
    let mut all = words(&[
        variant,
        if variant == "direct" { "direct" } else { "open" },
        match variant {
            _ if there => "c there",
            "b blocked" => "b blocked by c",
            _ => "no c",
        },
        match (restarts, yields) {
            (true, _) => "b restarts",
            (_, true) => "b yields",
            _ => "no restart",
        },
    ]);
    if any(&["b ready", "b failed", "b quarantined"]) {
        all.extend(words(&["b at rest"]));
    }
    if restarts || any(&["c joining for b", "b yielding", "b to yield"]) {
        all.extend(words(&["b changing"]));
    }
    if any(&["b retiring", "b leaving", "b left over"]) {
        all.extend(words(&["b going"]));
    }
    if variant == "c joining" {
        all.extend(words(&["b ready"]));
    }
    if !any(&["b failed", "b yielded", "b blocked"]) {
        all.extend(words(&["b left"]));
    }
    all
}

/// One step, at the moment at which the driver would; what the rules for all rows add is left out.
fn step(session: &mut Session, now: &mut Moment, text: &str) -> Vec<String> {
    *now = match (text, session.next_timeout()) {
        ("Timeout", Some(until)) => until,
        _ => now.after(Duration::from_millis(1)),
    };
    let effects = session.step(*now, event(text));
    effects.iter().filter(|effect| !matches!(effect, SessionEffect::Changed(_))).map(effect).collect()
}

#[test]
fn the_table_of_changes_is_what_the_session_does() {
    let table = Table::read("changes");
    let mut wrong = Vec::new();
    for (variant, way) in VARIANTS {
        let direct = variant == "direct";
        let server =
            |text: &str| SessionServer { name: name(text), required: text == "a", significant: false };
        let servers = if direct { vec![server("a")] } else { vec![server("a"), server("b")] };
        let mut session = Session::new(SessionConfig { servers, drain: Duration::from_secs(5), direct });
        let mut now = Moment(1_000);
        for text in way {
            let _ = step(&mut session, &mut now, text);
        }
        for text in EVENTS {
            // Of one that was added the same is true as of any other, but for this.
            if variant == "c added" && text != "CancelChange" {
                continue;
            }
            // A report of a server that is not there, and what other tables are for.
            if text.starts_with("c:") && !variant.contains("c joining")
                || text == "Close" && way.contains(&"Close")
            {
                continue;
            }
            let (mut after, mut at) = (session.clone(), now);
            let effects = step(&mut after, &mut at, text);
            let state = session.fine_state();
            let row = table.row(state, text, &holds(variant));
            let (next, expected) =
                row.map_or((state.to_owned(), Vec::new()), |row| (row.next.clone(), row.effects.clone()));
            if effects != expected || after.fine_state() != next {
                let told = if effects.is_empty() { "—".to_owned() } else { effects.join(", ") };
                let next = if after.fine_state() == state { "same" } else { after.fine_state() };
                wrong.push(format!("| {state} | {text} | {variant} | {next} | {told} |"));
            }
        }
    }
    assert!(wrong.is_empty(), "rows that are as the session does:\n{}", wrong.join("\n"));
    table.assert_all_used();
}
