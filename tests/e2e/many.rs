//! Many sessions at once, and many one after the other: nothing grows.
use crate::support::{assert_closed, open_params, polite, used};
use mcpvisor_testkit::{Containment, Daemon, Pending, Rpc, Setup, heavy_scene, procfs};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(120);

/// Two hundred sessions are opened at once, and closed at once.
fn two_hundred(containment: Containment) {
    heavy_scene(LONG * 3, move |scene| {
        if !containment.is_possible(scene) {
            return;
        }
        let setup = Setup::on(containment).config("[timeouts]\nstart = \"100s\"\nstdin_grace = \"30s\"");
        let daemon = Daemon::start(scene, &setup);
        let connections: Vec<Rpc> = (0..8).map(|_| daemon.connect()).collect();
        let keys: Vec<String> = (0..200).map(|n| format!("many-{n}")).collect();
        let ask = |(n, key): (usize, &String)| {
            connections[n % 8].send("session/open", &open_params(scene, key, &polite(), &[]))
        };
        let opened: Vec<Pending> = keys.iter().enumerate().map(ask).collect();
        let sessions: Vec<Value> = opened.into_iter().map(|p| p.wait(LONG).expect("each opens")).collect();
        let generations: BTreeSet<Option<u64>> = sessions.iter().map(|s| s["generation"].as_u64()).collect();
        assert_eq!((generations.len(), used(&daemon)), (200, 200));
        let text = json!({"message": "all of you"});
        let call = |(n, key): (usize, &String)| {
            connections[n % 8].send("tool/call", &json!({"key": key, "tool": "echo", "arguments": text}))
        };
        let called: Vec<Pending> = keys.iter().enumerate().map(call).collect();
        for pending in called {
            assert_eq!(pending.wait(LONG).expect("each answers")["content"][0]["text"], "all of you");
        }
        let close =
            |(n, key): (usize, &String)| connections[n % 8].send("session/close", &json!({"key": key}));
        let closed: Vec<Pending> = keys.iter().enumerate().map(close).collect();
        for pending in closed {
            let mut answer = pending.wait(LONG).expect("each closes");
            let certificate = answer["results"][0].take();
            assert_closed(&certificate, containment);
            assert_eq!(certificate["servers"][0]["exit"], json!({"code": 0}), "{certificate:#}");
        }
        drop(connections);
        daemon.finish();
    });
}

#[test]
fn two_hundred_sessions_on_cgroups() {
    two_hundred(Containment::Cgroup);
}

#[test]
fn two_hundred_sessions_on_keepers() {
    two_hundred(Containment::Keeper);
}

/// What the daemon holds.
#[derive(Debug, Clone, Copy)]
struct Held {
    descriptors: usize,
    children: usize,
    anonymous_kib: u64,
    /// Where the daemon is built to count them.
    allocations: Option<u64>,
}

fn held(daemon: &Daemon) -> Held {
    Held {
        descriptors: procfs::descriptors(daemon.pid()).len(),
        children: procfs::children(daemon.pid()).len(),
        anonymous_kib: procfs::anonymous_kib(daemon.pid()).expect("the daemon lives"),
        allocations: daemon.connect().call("daemon/status", &json!({})).expect("it answers")["counters"]
            ["live_allocations"]
            .as_u64(),
    }
}

/// G37: open and close, over and over. `cargo xtask soak` runs it with five thousand cycles, the suite with fewer.
fn cycles(containment: Containment, usual: u32) {
    let count = std::env::var("MCPVISOR_CYCLES").ok().and_then(|text| text.parse().ok()).unwrap_or(usual);
    heavy_scene(LONG + Duration::from_millis(u64::from(count) * 200), move |scene| {
        if !containment.is_possible(scene) {
            return;
        }
        // Few ended sessions and events are remembered, so that memory is at rest after the first of them.
        let daemon =
            Daemon::start(scene, &Setup::on(containment).daemon("tombstones = 16").daemon("events = 64"));
        let connection = daemon.connect();
        let params = open_params(scene, "cycle", &polite(), &[]);
        let cycle = || {
            connection.call("session/open", &params).expect("it opens");
            let mut answer = connection.call("session/close", &json!({"key": "cycle"})).expect("it closes");
            assert_closed(&answer["results"][0].take(), containment);
        };
        (0..100).for_each(|_| cycle());
        let before = held(&daemon);
        (0..count).for_each(|_| cycle());
        let after = held(&daemon);
        println!("{count} cycles: {before:?} before, {after:?} after");
        assert_eq!(after.descriptors, before.descriptors, "descriptors grow");
        assert_eq!(after.children, before.children, "children are left");
        if let (Some(before), Some(after)) = (before.allocations, after.allocations) {
            // Less than one for fifty cycles: what is kept of each session would show at once.
            assert!(
                after <= before + u64::from(count) / 50,
                "allocations grow: {before} before, {after} after"
            );
        }
        assert!(after.anonymous_kib <= before.anonymous_kib + 1024, "memory grows: {before:?}, {after:?}");
        drop(connection);
        daemon.finish();
    });
}

#[test]
fn g37_cycles_on_cgroups() {
    cycles(Containment::Cgroup, 500);
}

#[test]
fn g37_cycles_on_keepers() {
    cycles(Containment::Keeper, 150);
}
