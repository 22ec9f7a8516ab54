//! The breakers' table.
use super::parse::{Table, Words, words};
use mcpvisor_lifecycle::breaker::{BreakerState, Breakers};
use mcpvisor_lifecycle::{BreakerConfig, Generation, Moment, SessionId, SpecDigest, Uid};
use std::time::Duration;

const SPEC: SpecDigest = SpecDigest(7);
const TRIAL: u64 = 50;
const EVENTS: [&str; 6] = ["Open", "Failed", "Failed(trial)", "Succeeded", "Ended", "Ended(trial)"];

fn session(generation: u64) -> SessionId {
    SessionId { uid: Uid(1), generation: Generation(generation) }
}

fn config() -> BreakerConfig {
    BreakerConfig { failures: 2, period: Duration::from_secs(60), wait: Duration::from_secs(30) }
}

fn state(breakers: &Breakers) -> &'static str {
    match breakers.state(Uid(1), SPEC) {
        BreakerState::Closed => "closed",
        BreakerState::Open => "open",
        BreakerState::HalfOpen => "half-open",
    }
}

/// As the registry does it.
fn step(breakers: &mut Breakers, now: Moment, event: &str) -> Vec<String> {
    let effect = match event {
        "Open" => match breakers.check(now, Uid(1), &[SPEC]) {
            Ok(()) => {
                breakers.started(now, session(TRIAL), &[SPEC]);
                "Admitted"
            }
            Err(_) => "Refused",
        },
        "Succeeded" if breakers.succeeded(Uid(1), &[SPEC]) => "Closed",
        "Failed" if breakers.failed(now, &config(), session(9), SPEC) => "Opened",
        "Failed(trial)" if breakers.failed(now, &config(), session(TRIAL), SPEC) => "Opened",
        "Ended" => {
            breakers.ended(now, session(9), &[SPEC]);
            return Vec::new();
        }
        "Ended(trial)" => {
            breakers.ended(now, session(TRIAL), &[SPEC]);
            return Vec::new();
        }
        _ => return Vec::new(),
    };
    vec![effect.to_owned()]
}

fn variants() -> Vec<(Breakers, Moment, Words)> {
    let now = Moment(1_000_000);
    let fresh = Breakers::default();
    let mut short = fresh.clone();
    step(&mut short, now, "Failed");
    let mut open = short.clone();
    step(&mut open, now, "Failed");
    let due = now.after(config().wait);
    let mut trying = open.clone();
    step(&mut trying, due, "Open");
    vec![
        (fresh, now, words(&["below the limit"])),
        (short.clone(), now, words(&["limit reached"])),
        (short, now.after(config().period), words(&["below the limit"])),
        (open.clone(), Moment(due.0 - 1), words(&["waits"])),
        (open, due, words(&["wait over"])),
        (trying, due, words(&[])),
    ]
}

/// G29: what a breaker does, row by row.
#[test]
fn g29_the_breakers_table_is_what_a_breaker_does() {
    let table = Table::read("breaker");
    for (breakers, now, holds) in variants() {
        let before = state(&breakers);
        for event in EVENTS {
            let mut breakers = breakers.clone();
            let effects = step(&mut breakers, now, event);
            let (line, next, wanted) = match table.row(before, event, &holds) {
                None => (0, before.to_owned(), Vec::new()),
                Some(row) => (row.line, row.next.clone(), row.effects.clone()),
            };
            assert_eq!(effects, wanted, "effects of {before}, {event}, {holds:?} (line {line})");
            assert_eq!(state(&breakers), next, "next state of {before}, {event}, {holds:?} (line {line})");
        }
    }
    table.assert_all_used();
}
