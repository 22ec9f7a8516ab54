//! The session's tables.
use super::parse::{Row, Table, cells, items};
use super::session_setup::{EVENTS, Variant, effect, variants};
use mcpvisor_lifecycle::Moment;
use mcpvisor_lifecycle::registry::CloseOptions;
use mcpvisor_lifecycle::session::{
    CloseReason, Ended, Session, SessionConfig, SessionEffect, SessionEvent, SessionState,
};
use std::collections::BTreeSet;
use std::time::Duration;

/// Rows with `x` and `y` stand for two: `x` is each of the servers in turn.
fn both_ways(row: Row) -> Vec<Row> {
    if !row.event.starts_with("x:") {
        return vec![row];
    }
    [("a", "b"), ("b", "a")]
        .into_iter()
        .map(|(x, y)| {
            let condition = [format!("{x} "), format!("{y} ")];
            row.replaced(&[
                ("x:", &format!("{x}:")),
                ("x ", condition[0].as_str()),
                ("y ", condition[1].as_str()),
                ("(x)", &format!("({x})")),
            ])
        })
        .collect()
}

/// The row's effects as they must be for this variant.
fn expected(variant: &Variant, effects: &[String]) -> Vec<String> {
    let mut all = Vec::new();
    for name in effects {
        let servers = || variant.servers.iter().map(|(name, _)| *name).collect::<Vec<_>>();
        if name == "StartServer(each)" {
            all.extend(servers().iter().map(|server| name.replace("each", server)));
        } else if name == "RetryKillServer(each quarantined)" {
            for server in servers() {
                if variant.status(server) == Some("quarantined") {
                    let lost = variant.lost.contains(&server);
                    let verb = if lost { "ReapServer" } else { "RetryKillServer" };
                    all.push(format!("{verb}({server})"));
                }
            }
        } else if name.contains("(each") {
            all.extend(variant.tellable().iter().map(|server| name.replace("each", server)));
        } else if name == "End(Requested)" && variant.holds().contains("polite") {
            all.push("End(LeaseEnded)".to_owned());
        } else if !(name.starts_with("WantClose") && variant.wished) {
            all.push(name.clone());
        }
    }
    all
}

#[test]
fn the_sessions_table_is_what_the_session_does() {
    let table = Table::read("session").expand(both_ways);
    for variant in variants() {
        let (state, holds) = (variant.session.fine_state(), variant.holds());
        let before = variant.session.state();
        for event in EVENTS {
            // As any other close, but where the client went first: those rows are of their own.
            let went = holds.contains("stream ended") || holds.contains("client gone");
            if event == "Close(LeaseEnded)" && !(went && state == "live") {
                continue;
            }
            let (after, effects) = variant.step(event);
            let case = format!("{state}, {event}, {holds:?}");
            let (line, next, mut wanted) = match table.row(state, event, &holds) {
                None => (0, state.to_owned(), Vec::new()),
                Some(row) => (row.line, row.next.clone(), expected(&variant, &row.effects)),
            };
            if after.session.state() != before {
                let changed = format!("Changed({:?})", after.session.state());
                let last = wanted.len() - usize::from(next == "ended");
                wanted.insert(last, changed);
            }
            let effects: Vec<_> = effects.iter().map(effect).collect();
            assert_eq!(effects, wanted, "effects of {case} (line {line})");
            assert_eq!(after.session.fine_state(), next, "next state of {case} (line {line})");
        }
    }
    table.assert_all_used();
}

#[test]
fn the_sessions_states_are_told_as_the_table_says() {
    let rows = cells("session states");
    let mut seen = BTreeSet::new();
    for variant in variants() {
        let state = variant.session.fine_state();
        let ready = variant.servers.iter().all(|(_, status)| *status == "ready");
        let closed = variant.session.state() == SessionState::Closed;
        let holds = match state {
            "live" if ready => "every server ready",
            "live" => "some server not ready",
            "ended" if closed => "closed",
            "ended" => "failed",
            _ => "",
        };
        let (line, row) = rows
            .iter()
            .find(|(_, row)| row[0] == state && row[1] == holds)
            .unwrap_or_else(|| panic!("no row for {state}, {holds}"));
        seen.insert(*line);
        assert_eq!(format!("{:?}", variant.session.state()), row[2], "line {line}");
        let waits = variant.session.waits_for().map_or("—", |(what, _, _)| what);
        assert_eq!(waits, row[3], "line {line}");
    }
    // The failed end is in the table of ends.
    assert_eq!(seen.len() + 1, rows.len());
}

const REASONS: [CloseReason; 13] = [
    CloseReason::Requested,
    CloseReason::Shutdown,
    CloseReason::LeaseEnded,
    CloseReason::Idle,
    CloseReason::Evicted,
    CloseReason::Ttl,
    CloseReason::ParentClosed,
    CloseReason::StartFailed,
    CloseReason::StartCancelled,
    CloseReason::ServersFailed,
    CloseReason::ServersEnded,
    CloseReason::Internal,
    CloseReason::DaemonLost,
];

#[test]
fn each_reason_ends_as_the_table_says() {
    let rows = cells("ends");
    for reason in REASONS {
        let config = SessionConfig { servers: vec![], drain: Duration::from_secs(5), direct: false };
        let mut session = Session::new(config);
        let options = CloseOptions::default();
        let effects = session.step(Moment(1), SessionEvent::Close { reason, options });
        let Some(SessionEffect::End { ended, reason: told }) = effects.last() else {
            panic!("a session without servers ends at once")
        };
        assert_eq!(*told, reason);
        let row = rows.iter().find(|(_, row)| items(&row[0]).contains(&format!("{reason:?}")));
        let (line, row) = row.unwrap_or_else(|| panic!("no row for {reason:?}"));
        assert_eq!(format!("{ended:?}"), row[1], "line {line}");
        let public = if *ended == Ended::Failed { SessionState::Failed } else { SessionState::Closed };
        assert_eq!(session.state(), public);
    }
}

/// The drain has its own budget, the close's or else the session's.
#[test]
fn g16_the_drain_ends_after_its_budget() {
    let live = variants().into_iter().find(|variant| {
        variant.session.fine_state() == "live" && variant.holds().contains("relay") && !variant.wished
    });
    let live = live.expect("there are live sessions");
    for (drain, length) in
        [(None, Duration::from_secs(5)), (Some(Duration::from_secs(1)), Duration::from_secs(1))]
    {
        let mut session = live.session.clone();
        let options = CloseOptions { drain, now: false };
        let _ = session.step(live.now, SessionEvent::Close { reason: CloseReason::Requested, options });
        assert_eq!(session.next_timeout(), Some(live.now.after(length)));
        assert_eq!(session.step(live.now, SessionEvent::Timeout), [], "a timeout before its time");
    }
}
