//! Real clients with `run`, `run --relay`, `attach --exclusive` and `attach` as their command, and real servers behind it: each client
//! talks to each server, or is told in its own terms that they have no revision in common; and each is killed in the middle of a
//! call. Nothing remains.
//!
//! In the suite every pair of values occurs; `cargo xtask clients` plays the whole product.
mod matrix;

use crate::real::LONG;
use matrix::{CLIENTS, Program, SERVERS, Server, WAYS, Way};
use mcpvisor_testkit::{Daemon, SOON, Scene, Setup, Signal, Stdio, eventually, scene_within, shell_status};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// Whether the whole product is asked for.
fn whole() -> bool {
    std::env::var_os("MCPVISOR_CLIENTS").is_some_and(|value| value == "all")
}

/// The ways on which a client talks to a server in the suite: one, so chosen that each client and each server is seen on each way.
fn ways(client: usize, server: usize) -> Vec<Way> {
    if whole() { WAYS.to_vec() } else { vec![WAYS[(client + server) % WAYS.len()]] }
}

/// The ways on which a client is killed in a call. `run` is left out: nobody but the server can tell when the call has come.
fn deaths() -> Vec<Way> {
    if whole() { vec![Way::Shared, Way::Relay, Way::Exclusive] } else { vec![Way::Shared] }
}

#[test]
fn every_pair_of_values_occurs() {
    let all: Vec<(usize, usize, Way)> = (0..CLIENTS.len())
        .flat_map(|client| (0..SERVERS.len()).map(move |server| (client, server)))
        .flat_map(|(client, server)| ways(client, server).into_iter().map(move |way| (client, server, way)))
        .collect();
    for way in WAYS {
        for client in 0..CLIENTS.len() {
            assert!(all.iter().any(|case| (case.0, case.2) == (client, way)), "{client} {way:?}");
        }
        for server in 0..SERVERS.len() {
            assert!(all.iter().any(|case| (case.1, case.2) == (server, way)), "{server} {way:?}");
        }
    }
}

fn start(scene: &Arc<Scene>) -> Daemon {
    let timeouts =
        "[timeouts]\nstart = \"60s\"\nstdin_grace = \"300ms\"\nterm_grace = \"300ms\"\ndrain = \"1s\"";
    Daemon::start(scene, &Setup::new().config(timeouts))
}

/// The command of the server on this way, which takes a session first where one is attached to.
fn prepared(scene: &Arc<Scene>, daemon: &Daemon, server: &Server, way: Way) -> Vec<String> {
    let client = mcpvisor_testkit::binary("mcpvisor").to_string_lossy().into_owned();
    let mut words = vec![client, "--socket".to_owned(), daemon.socket().to_string_lossy().into_owned()];
    let mut say = |more: &[&str]| words.extend(more.iter().map(|word| (*word).to_owned()));
    let command = server.words();
    let open = |mode: &str| {
        daemon.command(scene, &["open", "real", "--mode", mode, "--"]).args(&command).output_within(LONG).ok()
    };
    match way {
        Way::Run => say(&["run", "--key", "real", "--"]),
        Way::Relay => say(&["run", "--relay", "--key", "real", "--"]),
        Way::Exclusive => {
            open("exclusive");
            say(&["attach", "real", "--exclusive"]);
        }
        Way::Shared => {
            open("shared");
            say(&["attach", "real"]);
        }
    }
    if matches!(way, Way::Run | Way::Relay) {
        words.extend(command);
    }
    words
}

/// A client talks to a server, and closes as it is used to.
fn converse(scene: &Arc<Scene>, daemon: &Daemon, client: Program, server: &Server, way: Way) {
    let what = format!("{client:?} with {server:?} through {way:?}");
    let command = prepared(scene, daemon, server, way);
    let mut running = Stdio::start(client.call(scene, "close", server.call(client), &command));
    let status = running.process().wait_within(LONG).map(shell_status);
    assert!(running.output_ends(SOON), "{what}");
    let (told, why) = (String::from_utf8_lossy(&running.bytes()).into_owned(), running.stderr_to_its_end());
    if matrix::agree(client, server, way) {
        assert_eq!(status, Some(0), "{what}: {told}\n{why}");
        assert!(told.contains(server.call(client).answer), "{what}: {told}");
    } else {
        assert!(status.is_some_and(|status| status != 0), "{what}: {status:?} {told}\n{why}");
        assert!(!told.contains(server.call(client).answer), "{what}: {told}");
    }
    // An exclusive server ends with its client.
    let closed = daemon.cli(&["close", "real"]);
    assert!(way != Way::Shared || closed.status == 0, "{what}: {closed:?}");
    daemon.assert_at_rest();
}

/// A client is killed while the server works for it.
fn killed_in_a_call(scene: &Arc<Scene>, daemon: &Daemon, client: Program, way: Way) {
    let server = client.slow_server();
    let what = format!("{client:?} with {server:?} through {way:?}");
    let command = prepared(scene, daemon, server, way);
    let mut running = Stdio::start(client.call(scene, "stay", server.slow(), &command));
    let in_flight = || daemon.cli(&["show", "real"]).json()["in_flight"].clone();
    let mut seen = Value::Null;
    let called = mcpvisor_testkit::until(LONG, || {
        seen = in_flight();
        // Its other requests are over when it says so; where it does not, the call is its only one after the handshake.
        let told = String::from_utf8_lossy(&running.bytes()).contains("calling") || !client.tells();
        (told && seen == json!(1)).then_some(())
    });
    assert!(called.is_some(), "{what}: {seen} in flight; {}", running.stderr_text());
    running.process().signal(Signal::KILL);
    running.process().wait(SOON);
    if way == Way::Shared {
        eventually(&format!("{what}: the call is over"), SOON, || in_flight() == json!(0));
        let call = server.plain();
        let result = daemon.cli(&["call", "real", call.tool, call.arguments]).ok();
        let text = result["content"][0]["text"].as_str().unwrap_or_default();
        assert!(text.contains(call.answer), "{what}: {result}");
    }
    // The session of a relay ends with its client.
    let closed = daemon.cli(&["close", "real"]);
    assert!(way != Way::Shared || closed.status == 0, "{what}: {closed:?}");
    daemon.assert_at_rest();
}

fn talks_to_every_server(client: Program) {
    scene_within(Duration::from_secs(900), move |scene| {
        let daemon = start(scene);
        for (n, server) in SERVERS.iter().enumerate() {
            for way in ways(client.index(), n) {
                converse(scene, &daemon, client, server, way);
            }
        }
        daemon.finish();
    });
}

fn is_killed_in_a_call(client: Program) {
    scene_within(Duration::from_secs(300), move |scene| {
        let daemon = start(scene);
        for way in deaths() {
            if !client.starts_twice() || way != Way::Exclusive {
                killed_in_a_call(scene, &daemon, client, way);
            }
        }
        daemon.finish();
    });
}

macro_rules! clients {
    ($($name:ident = $client:expr;)*) => {
        $(
            mod $name {
                use super::*;

                #[test]
                fn talks() {
                    talks_to_every_server($client);
                }

                #[test]
                fn is_killed() {
                    is_killed_in_a_call($client);
                }
            }
        )*
    };
}

clients! {
    python_sdk_legacy = CLIENTS[0];
    python_sdk_auto = CLIENTS[1];
    fastmcp = CLIENTS[2];
    typescript_sdk_1 = CLIENTS[3];
    typescript_sdk_2 = CLIENTS[4];
    typescript_sdk_2_auto = CLIENTS[5];
    rust_sdk = CLIENTS[6];
    rust_sdk_discover = CLIENTS[7];
    rust_sdk_auto = CLIENTS[8];
    mcp_cli = CLIENTS[9];
}
