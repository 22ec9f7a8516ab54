//! The table of an open for which somebody is to make room.
use super::parse::{Table, Words, words};
use super::registry_setup::{config, effect, key, open};
use mcpvisor_lifecycle::registry::{
    Lifetime, Open, Quota, Registry, RegistryConfig, RegistryEffect, RegistryEvent,
};
use mcpvisor_lifecycle::session::Ended;
use mcpvisor_lifecycle::{Generation, KeyRef, Moment, RequestId, SessionId, SessionKey};
use std::time::Duration;

const NOW: Moment = Moment(1_000);
const PATIENCE: Moment = Moment(5_000);
const FIRST: RequestId = RequestId(1);
/// The one of the table.
const ASKED: RequestId = RequestId(2);
const EVENTS: [&str; 9] = [
    "Open",
    "Evicted",
    "NobodyIdle",
    "SessionEnded",
    "SessionQuarantined",
    "Cancel",
    "Timeout",
    "Fence",
    "HolderEnded",
];

fn victim() -> SessionId {
    SessionId { uid: key().uid, generation: Generation(1) }
}

fn quota() -> Quota {
    let lifetime = Lifetime { idle: Some(Duration::from_secs(1)), ..Lifetime::default() };
    Quota { lifetime, ..Quota::default() }
}

fn asked(holds: &Words) -> RegistryEvent {
    let other = KeyRef { key: SessionKey::new("other").expect("it has a key's form"), ..key() };
    let queue = holds.contains("queues").then_some(Moment(1_000_000));
    let open = open(ASKED, "Open", Some(PATIENCE));
    RegistryEvent::Open(Open { key: other, quota: quota(), queue, ..open })
}

fn event(name: &str, holds: &Words) -> (Moment, RegistryEvent) {
    let (request, session) = (ASKED, victim());
    let event = match name {
        "Open" => asked(holds),
        "Evicted" => RegistryEvent::Evicted { request, session },
        "NobodyIdle" => RegistryEvent::NobodyIdle { request },
        "SessionEnded" => RegistryEvent::SessionEnded { session, ended: Ended::Closed },
        "SessionQuarantined" => RegistryEvent::SessionQuarantined { session },
        "Cancel" => RegistryEvent::Cancel { request },
        "Fence" => RegistryEvent::Fence,
        "HolderEnded" => RegistryEvent::HolderEnded { request },
        _ => return (PATIENCE, RegistryEvent::Timeout),
    };
    (NOW, event)
}

/// What is told of the open alone, and what is done with the session that makes room.
fn told(effects: &[RegistryEffect]) -> Vec<String> {
    let of_it = effects.iter().filter_map(|told| match told {
        RegistryEffect::Reply { request, result } if *request == ASKED => {
            Some(format!("Reply({})", super::registry_setup::result(result)))
        }
        RegistryEffect::Evict { .. } => Some("Evict".to_owned()),
        RegistryEffect::Reply { .. } | RegistryEffect::Forget { .. } => None,
        told => Some(effect(told)),
    });
    of_it.collect()
}

/// Every state, with an open that queues and one that does not, and for some with a session that may not be closed.
fn variants() -> Vec<(&'static str, Registry, Words)> {
    let mut all = Vec::new();
    for queues in [false, true] {
        for room in [false, true] {
            let mut holds = words(&[if queues { "queues" } else { "refused" }]);
            holds.extend(words(&[if room { "somebody" } else { "nobody" }]));
            let limits = RegistryConfig { max_sessions: 1, evict_after: Some(Duration::ZERO), ..config() };
            let mut registry = Registry::new(limits);
            let quota = if room { quota() } else { Quota::default() };
            let first = RegistryEvent::Open(Open { quota, ..open(FIRST, "Open", None) });
            let _ = registry.step(NOW, first);
            let _ = registry.step(NOW, RegistryEvent::SessionReady { session: victim() });
            all.push(("new", registry.clone(), holds.clone()));
            if !room {
                continue;
            }
            let _ = registry.step(NOW, asked(&holds));
            all.push(("asked", registry.clone(), holds.clone()));
            let _ = registry.step(NOW, event("Evicted", &holds).1);
            all.push(("heir", registry, holds));
        }
    }
    all
}

/// G6, G32: what becomes of an open for which somebody is to make room, row by row.
#[test]
fn g6_the_table_of_evictions_is_what_the_registry_does() {
    let table = Table::read("eviction");
    for (state, registry, holds) in variants() {
        for name in EVENTS {
            // Nothing else comes before the answer of the gates; what is not asked for yet hears nothing; and the session that is to make room ends in no other way.
            let fits = match state {
                "new" => name == "Open",
                "asked" => matches!(name, "Evicted" | "NobodyIdle"),
                _ => name != "Open",
            };
            if !fits {
                continue;
            }
            let mut registry = registry.clone();
            let (now, happens) = event(name, &holds);
            let effects = told(&registry.step(now, happens));
            let row = table.row(state, name, &holds);
            let (line, wanted) = row.map_or((0, Vec::new()), |row| (row.line, row.effects.clone()));
            assert_eq!(effects, wanted, "effects of {state}, {name}, {holds:?} (line {line})");
            let counts = registry.counts();
            let all = counts.starting + counts.live + counts.dying + counts.quarantined;
            assert_eq!((all, registry.sessions(None).len()), (1, 1), "G6: after {state}, {name}, {holds:?}");
        }
    }
    table.assert_all_used();
}
