//! The table of tokens.
use super::parse::{Table, Words, words};
use super::registry_setup::{close, config, effect, key, open};
use mcpvisor_lifecycle::registry::{Phase, Refusal, Registry, RegistryEffect, RegistryEvent, Target};
use mcpvisor_lifecycle::session::Ended;
use mcpvisor_lifecycle::{Generation, KeyRef, Moment, RequestId, SessionId, SessionKey};

const NOW: Moment = Moment(1_000);
const EVENTS: [&str; 8] = [
    "Open",
    "Present",
    "Present(older)",
    "Present(newer)",
    "Present(other key)",
    "Detached",
    "Detached(older)",
    "SessionEnded",
];

fn session(generation: u64) -> SessionId {
    SessionId { uid: key().uid, generation: Generation(generation) }
}

fn opened(request: u64) -> RegistryEvent {
    RegistryEvent::Open(open(RequestId(request), "Open", None))
}

fn ended(generation: u64) -> RegistryEvent {
    RegistryEvent::SessionEnded { session: session(generation), ended: Ended::Closed }
}

fn closed(request: u64) -> RegistryEvent {
    close(RequestId(request), &Target { key: key(), generation: None }, false, false)
}

/// The token of the session of generation 2.
fn state(registry: &Registry) -> &'static str {
    match registry.current(&key()) {
        Some((holder, _)) if holder == session(2) => match registry.presented(&key(), holder) {
            Ok(_) => "valid",
            Err(_) => "revoked",
        },
        Some(_) => "next one's",
        None if registry.presented(&key(), session(2)) == Err(Refusal::NotFound) => "none",
        None => "over",
    }
}

fn step(registry: &mut Registry, event: &str) -> Vec<String> {
    let other = KeyRef { key: SessionKey::new("other").expect("it has a key's form"), ..key() };
    let presented = match event {
        "Present" => registry.presented(&key(), session(2)),
        "Present(older)" => registry.presented(&key(), session(1)),
        "Present(newer)" => registry.presented(&key(), session(9)),
        "Present(other key)" => registry.presented(&other, session(2)),
        _ => {
            let event = match event {
                "Open" => opened(100),
                "Detached" => RegistryEvent::Detached { session: session(2) },
                "Detached(older)" => RegistryEvent::Detached { session: session(1) },
                _ => ended(2),
            };
            // Who waits, and is told, is in the other tables.
            let told = |effect: &RegistryEffect| !matches!(effect, RegistryEffect::Reply { .. });
            return registry.step(NOW, event).iter().filter(|effect| told(effect)).map(effect).collect();
        }
    };
    vec![match presented {
        Ok(meant) => {
            assert_eq!(meant, session(2), "a token means its own session");
            "Admitted".to_owned()
        }
        Err(Refusal::StaleGeneration { .. }) => "Refused(StaleGeneration)".to_owned(),
        Err(refusal) => format!("Refused({refusal:?})"),
    }]
}

/// Every state, in each phase that the session can be in.
fn variants() -> Vec<(Registry, Words)> {
    let after = |registry: &Registry, events: &[RegistryEvent]| {
        let mut registry = registry.clone();
        for event in events {
            let _ = registry.step(NOW, event.clone());
        }
        registry
    };
    let none = after(&Registry::new(config()), &[opened(1), closed(2), ended(1)]);
    let starting = after(&none, &[opened(3)]);
    let live = after(&starting, &[RegistryEvent::SessionReady { session: session(2) }]);
    let dying = after(&live, &[closed(4)]);
    let parked = after(&dying, &[opened(5)]);
    let quarantined = after(&dying, &[RegistryEvent::SessionQuarantined { session: session(2) }]);
    let lost = after(&live, &[RegistryEvent::SessionLost { session: session(2) }]);
    let mut all = vec![(none, words(&[])), (after(&dying, &[ended(2)]), words(&[]))];
    for registry in [&starting, &live, &dying, &quarantined, &lost] {
        let detached = after(registry, &[RegistryEvent::Detached { session: session(2) }]);
        let open = matches!(registry.current(&key()), Some((_, Phase::Starting | Phase::Live)));
        all.push((registry.clone(), words(&[if open { "open" } else { "closing" }])));
        all.push((after(&detached, &[ended(2)]), words(&[])));
        all.push((detached, words(&["closing"])));
    }
    assert!(parked.is_parked(&key()) && parked.presented(&key(), session(2)).is_ok());
    all
}

/// G41: what a token means, row by row.
#[test]
fn g41_the_table_of_tokens_is_what_the_registry_does() {
    let table = Table::read("credential");
    for (registry, holds) in variants() {
        let before = state(&registry);
        for event in EVENTS {
            let mut registry = registry.clone();
            // Where the key is held an open joins or parks, which changes no token.
            if event == "Open" && registry.current(&key()).is_some() {
                continue;
            }
            let effects = step(&mut registry, event);
            let (line, next, wanted) = match table.row(before, event, &holds) {
                None => (0, before.to_owned(), Vec::new()),
                Some(row) => (row.line, row.next.clone(), row.effects.clone()),
            };
            assert_eq!(effects, wanted, "effects of {before}, {event}, {holds:?} (line {line})");
            assert_eq!(state(&registry), next, "next state of {before}, {event}, {holds:?} (line {line})");
        }
    }
    table.assert_all_used();
}
