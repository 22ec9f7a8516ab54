//! Every state of every small configuration. See `docs/model.md`.
use mcpvisor_model::{Config, Violation, Witness, check, configs};
use std::collections::BTreeSet;

/// For people: the rule, and the history that breaks it.
fn told(violation: &Violation) -> String {
    let story = violation.story.join("\n  ");
    format!("{}: {}\n  {story}", violation.wrong.property.name(), violation.wrong.what)
}

fn holds(name: &str) {
    let config = configs::named(name).expect("a configuration of the suite");
    let outcome = check(&config, 1);
    if let Some(violation) = &outcome.violation {
        panic!("{}", told(violation));
    }
    println!("{} states of {name}", outcome.states);
    assert!(outcome.states >= config.states, "only {} states are left to be looked at", outcome.states);
    let missed: Vec<_> = config.expects.iter().filter(|witness| !outcome.reached.contains(witness)).collect();
    assert!(missed.is_empty(), "never seen: {missed:?}");
}

macro_rules! configurations {
    ($($test:ident: $name:literal,)*) => {
        $(#[test]
        fn $test() {
            holds($name);
        })*

        #[test]
        fn every_configuration_is_walked_through() {
            let names: Vec<_> = configs::suite().iter().map(|config| config.name).collect();
            assert_eq!([$($name),*], names[..]);
        }
    };
}

configurations! {
    reopen: "reopen",
    full: "full",
    limits: "limits",
    shutdown: "shutdown",
    hurried_shutdown: "hurried shutdown",
    restart: "restart",
    handshake: "handshake",
    direct: "direct",
    lost_server: "lost server",
    lost_session: "lost session",
    lost_registry: "lost registry",
    recovery: "recovery",
    two_servers: "two servers",
    ladder: "ladder",
    quarantine: "quarantine",
    deadlines: "deadlines",
    late_notes: "late notes",
    tree: "tree",
    leases: "leases",
    detach: "detach",
    time_to_live: "time to live",
    queue: "queue",
    own_limits: "own limits",
    slots: "slots",
    breaker: "breaker",
    open_breaker: "open breaker",
    calls: "calls",
    held_calls: "held calls",
    idle: "idle",
    evictions: "evictions",
    idle_tree: "idle tree",
    parking: "parking",
    health: "health",
    adds: "adds",
    cancelled_adds: "cancelled adds",
    removes: "removes",
    replacements: "replacements",
    stop_first: "stop first",
    restarts: "restarts",
    stop_commands: "stop commands",
    eras: "eras",
    memory: "memory",
}

/// A million states, and a witness for everything that a property speaks of.
#[test]
fn the_suite_is_large_enough_and_misses_nothing() {
    let suite = configs::suite();
    let states: usize = suite.iter().map(|config: &Config| config.states).sum();
    assert!(states >= 1_000_000, "{states}");
    let expected: BTreeSet<Witness> =
        suite.iter().flat_map(|config| config.expects.iter().copied()).collect();
    let missing: Vec<_> = Witness::ALL.iter().filter(|witness| !expected.contains(witness)).collect();
    assert!(missing.is_empty(), "expected nowhere: {missing:?}");
}
