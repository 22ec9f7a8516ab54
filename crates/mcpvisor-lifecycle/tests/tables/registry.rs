//! The registry's tables.
use super::parse::{Table, cells};
use super::registry_setup::{
    CLOSER, OPENER, PARKED, Variant, WAIT_CLOSED, WAIT_READY, close, config, effect, events, fine_state, key,
    open, result, variants,
};
use mcpvisor_lifecycle::registry::{Goal, Registry, RegistryEffect, RegistryEvent, Target};
use mcpvisor_lifecycle::session::Ended;
use mcpvisor_lifecycle::{Generation, Moment, RequestId, SessionId, Uid};
use std::collections::{BTreeMap, BTreeSet};

/// The table of answers: by who waits and what happens.
fn answers() -> BTreeMap<(String, &'static str), String> {
    let columns = ["ready", "ended well", "ended badly", "quarantined", "fence", "deadline"];
    let mut all = BTreeMap::new();
    for (_, row) in cells("answers") {
        for (column, answer) in columns.iter().zip(&row[1..]) {
            all.insert((row[0].clone(), *column), answer.clone());
        }
    }
    all
}

/// The column of the table of answers that an event belongs to.
fn column(event: &str) -> &'static str {
    match event {
        "SessionReady" => "ready",
        "SessionEnded(Closed)" => "ended well",
        "SessionEnded(Failed)" => "ended badly",
        "SessionQuarantined" => "quarantined",
        _ => "fence",
    }
}

type Cells = BTreeSet<(String, &'static str)>;

fn replies(variant: &Variant, event: &str, reached: &mut Cells) -> Vec<String> {
    let (table, column) = (answers(), column(event));
    let mut all = Vec::new();
    // A quarantine refuses what is parked before it answers the others.
    let parked = |entry: &&(RequestId, &str)| entry.0 == PARKED;
    let order: Vec<_> = if column == "quarantined" {
        let first = variant.waiting.iter().filter(parked);
        first.chain(variant.waiting.iter().filter(|entry| !parked(entry))).collect()
    } else {
        variant.waiting.iter().collect()
    };
    for (request, role) in order {
        let answer = &table[&((*role).to_owned(), column)];
        reached.insert(((*role).to_owned(), column));
        if answer != "waits" {
            all.push(format!("{request:?} {answer}"));
        }
    }
    all
}

#[test]
fn the_registrys_table_is_what_the_registry_does() {
    let table = Table::read("registry");
    let mut reached = Cells::new();
    for variant in variants() {
        let state = fine_state(&variant.registry);
        for (event, told) in events(variant.now) {
            let mut registry = variant.registry.clone();
            let effects: Vec<_> = registry.step(variant.now, told).iter().map(effect).collect();
            let case = format!("{state}, {event}, {:?}", variant.holds);
            let (line, next, wanted) = match table.row(state, &event, &variant.holds) {
                None => (0, state.to_owned(), Vec::new()),
                Some(row) => {
                    let mut wanted = Vec::new();
                    for name in &row.effects {
                        if name == "Answers" {
                            wanted.extend(replies(&variant, &event, &mut reached));
                        } else {
                            wanted.push(name.clone());
                        }
                    }
                    (row.line, row.next.clone(), wanted)
                }
            };
            assert_eq!(effects, wanted, "effects of {case} (line {line})");
            assert_eq!(fine_state(&registry), next, "next state of {case} (line {line})");
            let counts = registry.counts();
            let total = counts.starting + counts.live + counts.dying + counts.quarantined;
            assert_eq!(total, registry.sessions(None).len(), "G6: slots after {case}");
        }
    }
    table.assert_all_used();
    let waiting = answers().into_iter().filter(|(_, answer)| answer != "waits");
    for (cell, answer) in waiting.filter(|(cell, _)| cell.1 != "deadline") {
        assert!(reached.contains(&cell), "nothing reaches the answer {answer} of {cell:?}");
    }
}

/// What a deadline says, of each kind of request that waits.
#[test]
fn deadlines_answer_as_the_table_says() {
    let target = Target { key: key(), generation: None };
    let deadline = Some(Moment(5_000));
    let wait = |request, goal| RegistryEvent::Wait { request, target: target.clone(), goal, deadline };
    let until = |request| RegistryEvent::Open(open(request, "Open", deadline));
    let mut closing = close(CLOSER, &target, false, true);
    if let RegistryEvent::Close { deadline: patience, .. } = &mut closing {
        *patience = deadline;
    }
    let mut registry = Registry::new(config());
    for event in [until(OPENER), wait(WAIT_READY, Goal::Ready), wait(WAIT_CLOSED, Goal::Closed), closing] {
        assert!(
            !registry
                .step(Moment(1), event)
                .iter()
                .any(|effect| matches!(effect, RegistryEffect::Reply { .. }))
        );
    }
    assert_eq!(registry.step(Moment(2), until(PARKED)), []);
    assert_eq!(registry.next_timeout(), deadline);
    assert_eq!(registry.step(Moment(4_999), RegistryEvent::Timeout), []);
    let mut told = BTreeMap::new();
    for effect in registry.step(Moment(5_000), RegistryEvent::Timeout) {
        let RegistryEffect::Reply { request, result: answer } = effect else {
            panic!("a deadline only answers, and does {effect:?}")
        };
        assert_eq!(told.insert(request, result(&answer)), None, "one answer each");
    }
    for (request, role) in [
        (OPENER, "opener"),
        (OPENER, "opener, closed by someone"),
        (PARKED, "parked open"),
        (CLOSER, "closer"),
        (WAIT_CLOSED, "wait for closed"),
        (WAIT_READY, "wait for ready"),
    ] {
        assert_eq!(told[&request], answers()[&(role.to_owned(), "deadline")], "{role}");
    }
    assert!(!registry.is_parked(&key()), "the deadline ended the parking");
    assert_eq!(registry.next_timeout(), None);
    assert_eq!(fine_state(&registry), "dying", "the teardown goes on");
}

/// A tombstone is forgotten when it is too old, and the oldest when there are too many; each once.
#[test]
fn tombstones_are_forgotten_by_age_and_by_count() {
    let mut registry =
        Registry::new(mcpvisor_lifecycle::registry::RegistryConfig { tombstones: 2, ..config() });
    let target = Target { key: key(), generation: None };
    let mut forgotten = Vec::new();
    for generation in 1..=4 {
        let now = Moment(generation * 1_000);
        let session = SessionId { uid: Uid(1000), generation: Generation(generation) };
        let open = RegistryEvent::Open(open(RequestId(generation), "Open", None));
        for event in [
            open,
            close(RequestId(10 + generation), &target, false, true),
            RegistryEvent::SessionEnded { session, ended: Ended::Closed },
        ] {
            let effects = registry.step(now, event);
            forgotten.extend(effects.into_iter().filter_map(|effect| match effect {
                RegistryEffect::Forget { session } => Some(session.generation.0),
                _ => None,
            }));
        }
    }
    assert_eq!(forgotten, [1, 2]);
    let due = registry.next_timeout().expect("a tombstone has its age");
    assert_eq!(due, Moment(3_000).after(config().tombstone_age));
    let session = SessionId { uid: Uid(1000), generation: Generation(3) };
    assert_eq!(registry.step(due, RegistryEvent::Timeout), [RegistryEffect::Forget { session }]);
    let gone = Target { generation: Some(Generation(3)), ..target };
    assert_eq!(registry.find(&gone), None);
}
