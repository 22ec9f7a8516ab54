//! Calls that are held, for people. The table escapes what it shows.
use super::style::Style;
use super::table::table;
use super::units::span;
use mcpvisor_control::results::Approval;

/// The most of a call's arguments that is shown, in characters.
const SHOWN: usize = 200;

/// `approvals`. With `owners`, also whose they are.
pub(crate) fn approvals(held: &[Approval], owners: bool, style: Style) -> String {
    let mut header = vec!["ID", "SESSION", "SERVER", "TOOL", "AGE", "LEFT", "ARGUMENTS"];
    if owners {
        header.insert(0, "UID");
    }
    let rows = held.iter().map(|held| {
        let seconds = |ms: u64| span(ms as f64 / 1_000.0);
        let mut row = vec![
            held.id.to_string(),
            format!("{}@{}", held.session, held.generation),
            held.server.to_string(),
            held.tool.clone(),
            seconds(held.age_ms),
            seconds(held.left_ms),
            arguments(held),
        ];
        if owners {
            row.insert(0, held.owner.uid.to_string());
        }
        row
    });
    table(style, &header, rows)
}

fn arguments(held: &Approval) -> String {
    let Some(text) = &held.arguments else { return "-".to_owned() };
    let mut shown: String = text.chars().take(SHOWN).collect();
    if held.arguments_cut || shown.len() < text.len() {
        shown.push('…');
    }
    shown
}
