//! Servers of a live session: added, removed, started again; the names of their tools; what the attached client and others see.
//!
//! How the guards of these tests were seen to fail: see the seeded bugs `G26AddOutlivesTheClose` and `G29RestartLeavesTheTree` in the machines.
mod order;
mod profiles;
mod retried;

use crate::frozen::Freezer;
use crate::support::{assert_closed, close, main_pid, on_both};
use mcpvisor_testkit::{Containment, Daemon, Output, SOON, Scene, Setup, Stdio, eventually, procfs};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

const TIMEOUTS: &str = "[timeouts]\nstdin_grace = \"300ms\"\nterm_grace = \"300ms\"\nkill_wait = \"700ms\"\ndrain = \"3s\"\nstart = \"20s\"";

fn start(scene: &Arc<Scene>, containment: Containment) -> Daemon {
    Daemon::start(scene, &Setup::on(containment).config(TIMEOUTS))
}

/// A server with these tools.
fn server(tools: &[&str]) -> Vec<String> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/e2e/live/server.py");
    ["python3", path].iter().chain(tools).map(|word| (*word).to_owned()).collect()
}

/// Opens session `k` with server `a`, which has these tools.
fn open(daemon: &Daemon, scene: &Scene, words: &[&str], tools: &[&str]) -> Value {
    let line = format!("a={}", server(tools).join(" "));
    daemon.command(scene, &["open", "k", "--server", &line]).args(words).output().ok()
}

fn add(daemon: &Daemon, scene: &Scene, name: &str, tools: &[&str], env: &[&str]) -> Output {
    let mut command = daemon.command(scene, &["server", "add", "k", name]);
    for variable in env {
        command = command.args(["--env", variable]);
    }
    command.arg("--").args(server(tools)).output()
}

fn remove(daemon: &Daemon, name: &str) -> Output {
    daemon.cli(&["server", "remove", "k", name])
}

/// Of a command's failure.
fn kind(failure: &Value) -> &str {
    failure["kind"].as_str().unwrap_or("(no kind)")
}

/// The published names with whose they are.
fn tools(daemon: &Daemon) -> Vec<(String, String)> {
    let listed = daemon.cli(&["tools", "k"]).ok();
    let text = |value: &Value| value.as_str().expect("a name").to_owned();
    let tools = listed["tools"].as_array().expect("a list").iter();
    tools.map(|tool| (text(&tool["name"]), text(&tool["server"]))).collect()
}

fn call(daemon: &Daemon, tool: &str) -> String {
    let answer = daemon.cli(&["call", "k", tool]).ok();
    answer["content"][0]["text"].as_str().expect("a text").to_owned()
}

fn pid(daemon: &Daemon, name: &str) -> Option<u32> {
    let shown = daemon.cli(&["show", "k"]).ok();
    let server = shown["servers"].as_array()?.iter().find(|server| server["name"] == name)?.clone();
    server["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok())
}

fn names(daemon: &Daemon) -> Vec<String> {
    let shown = daemon.cli(&["show", "k"]).ok();
    let servers = shown["servers"].as_array().expect("a list").iter();
    servers.map(|server| server["name"].as_str().expect("a name").to_owned()).collect()
}

#[track_caller]
fn closes(daemon: Daemon, containment: Containment) -> Value {
    let certificate = close(&daemon, "k");
    assert_closed(&certificate, containment);
    daemon.finish();
    certificate
}

fn attach(daemon: &Daemon, scene: &Scene) -> Stdio {
    let socket = daemon.socket().to_string_lossy().into_owned();
    let mut client = Stdio::start(scene.mcpvisor(&["--socket", &socket, "attach", "k"]));
    client.initialize();
    client.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    client
}

fn heard_changes(client: &Stdio) -> usize {
    String::from_utf8_lossy(&client.bytes()).matches("notifications/tools/list_changed").count()
}

fn list(client: &mut Stdio) -> Vec<String> {
    let id = client.request("tools/list", json!({}));
    let answer = client.answer(id, SOON).expect("the list comes");
    let tools = answer["result"]["tools"].as_array().unwrap_or_else(|| panic!("no tools: {answer}")).clone();
    tools.iter().map(|tool| tool["name"].as_str().expect("a name").to_owned()).collect()
}

/// Six orders of three.
const ORDERS: [[usize; 3]; 6] = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];

on_both! {
    /// E.4: an add that is sent again is carried out once, and has the first answer; other words with its id are refused.
    e4_an_add_that_is_sent_again = |scene, containment| {
        let daemon = start(scene, containment);
        open(&daemon, scene, &[], &["x"]);
        let again = |tools: &[&str]| {
            let words = ["server", "add", "k", "b", "--request-id", "add-1", "--"];
            daemon.command(scene, &words).args(server(tools)).output()
        };
        let first = again(&["y"]).ok();
        assert_eq!(again(&["y"]).ok(), first);
        assert_eq!(kind(&again(&["z"]).fails(2)), "invalid_request");
        remove(&daemon, "b").ok();
        assert_eq!(again(&["y"]).ok(), first, "the first answer, though it is gone");
        assert_eq!(names(&daemon), ["a"]);
        assert_closed(&close(&daemon, "k"), containment);
        daemon.finish();
    };

    /// An add is answered when the server is ready; its environment and directory are as asked; a remove leaves nothing of it, and its
    /// end is in the session's certificate.
    g26_a_server_is_added_and_removed = |scene, containment| {
        let daemon = start(scene, containment);
        open(&daemon, scene, &[], &["x"]);
        let added = add(&daemon, scene, "b", &["y"], &["MARK=mine"]).ok();
        assert_eq!((&added["server"]["state"], &added["server"]["name"]), (&json!("ready"), &json!("b")), "{added:#}");
        assert_eq!(added["key"], "k");
        assert_eq!(tools(&daemon), [("x".into(), "a".into()), ("y".into(), "b".into())]);
        assert_eq!(call(&daemon, "y"), "mine");
        let taken = add(&daemon, scene, "b", &["z"], &[]).fails(5);
        assert_eq!(kind(&taken), "server_exists", "{taken:#}");
        let other = pid(&daemon, "a").expect("it runs");
        let gone = pid(&daemon, "b").expect("it runs");
        let removed = remove(&daemon, "b").ok();
        assert!(!procfs::exists(gone), "it is told removed, and there");
        assert_eq!((&removed["proof"], &removed["server"]["name"]), (&json!(containment.to_string()), &json!("b")), "{removed:#}");
        assert_eq!(removed["server"]["stage"], "stdin", "{removed:#}");
        assert_eq!((tools(&daemon), names(&daemon)), (vec![("x".into(), "a".into())], vec!["a".to_owned()]));
        assert_eq!(pid(&daemon, "a"), Some(other), "the other one is untouched");
        let missing = remove(&daemon, "b").fails(2);
        assert_eq!(kind(&missing), "invalid_request", "{missing:#}");
        // The name is free again.
        add(&daemon, scene, "b", &["y"], &["MARK=again"]).ok();
        assert_eq!(call(&daemon, "y"), "again");
        let certificate = closes(daemon, containment);
        let ended: Vec<_> = certificate["servers"].as_array().expect("a list").iter().map(|server| server["name"].clone()).collect();
        assert_eq!(ended, [json!("b"), json!("a"), json!("b")], "{certificate:#}");
    };

    /// A failed add leaves no process, no tool and no server, and says why; one whose requester loses patience is undone.
    g26_a_failed_add_leaves_nothing_behind = |scene, containment| {
        let daemon = start(scene, containment);
        open(&daemon, scene, &[], &["x"]);
        let before = scene.noted().len();
        let failed = add(&daemon, scene, "b", &["y"], &["BROKEN=1"]).fails(1);
        assert_eq!(kind(&failed), "start_failed", "{failed:#}");
        assert!(failed["data"]["stderr_tail"].as_str().is_some_and(|tail| tail.contains("broken on purpose")), "{failed:#}");
        let missing = daemon.command(scene, &["server", "add", "k", "b", "--", "/no/such/program"]).output().fails(1);
        assert_eq!(missing["data"]["reason"], "not_found", "{missing:#}");
        let impatient = daemon
            .command(scene, &["--timeout", "700ms", "server", "add", "k", "b", "--env", "MUTE=1", "--"])
            .args(server(&["y"]))
            .output()
            .fails(3);
        assert_eq!(kind(&impatient), "deadline_exceeded", "{impatient:#}");
        eventually("the end of what was added in vain", SOON, || names(&daemon) == ["a"]);
        for (_, pid) in &scene.noted()[before..] {
            assert!(!procfs::exists(*pid), "{pid} is left");
        }
        assert_eq!(tools(&daemon), [("x".into(), "a".into())]);
        assert_eq!(daemon.cli(&["show", "k"]).ok()["state"], "ready");
        closes(daemon, containment);
    };

    /// D.3: an add that is stuck in its handshake when the close comes is fenced; a late add is refused.
    d3_an_add_that_meets_the_close = |scene, containment| {
        let daemon = start(scene, containment);
        open(&daemon, scene, &[], &["x"]);
        let before = scene.noted().len();
        let mut adding = daemon
            .command(scene, &["server", "add", "k", "b", "--env", "MUTE=1", "--env", "STUBBORN=1", "--"])
            .args(server(&["y"]))
            .spawn();
        eventually("its launch", SOON, || scene.noted().len() > before);
        assert_eq!(tools(&daemon), [("x".into(), "a".into())], "it is not published");
        let certificate = close(&daemon, "k");
        assert_closed(&certificate, containment);
        for (_, pid) in &scene.noted() {
            assert!(!procfs::exists(*pid), "{pid} is left");
        }
        assert_eq!(adding.wait(SOON).code(), Some(1), "session_closed");
        let late = add(&daemon, scene, "b", &["y"], &[]).fails(1);
        assert_eq!(kind(&late), "session_closed", "{late:#}");
        daemon.finish();
    };

    /// Calls in flight at a server that is removed have the drain's time, and then an error that says why; nothing is left.
    g11_calls_of_a_removed_server_are_answered = |scene, containment| {
        let daemon = start(scene, containment);
        open(&daemon, scene, &[], &["x"]);
        for (seconds, code) in [("1.5", 0), ("30", 1)] {
            add(&daemon, scene, "b", &["slow"], &["MARK=done"]).ok();
            let calling = daemon.command(scene, &["call", "k", "slow", &format!("seconds={seconds}")]).spawn();
            eventually("the call", SOON, || daemon.cli(&["show", "k"]).ok()["in_flight"] == json!(1));
            let begin = Instant::now();
            let removing = daemon.command(scene, &["server", "remove", "k", "b"]).spawn();
            eventually("its tools are gone at once", SOON, || tools(&daemon) == [("x".into(), "a".into())]);
            assert!(begin.elapsed() < Duration::from_millis(2_900) || code == 0, "before the drain is over");
            let (mut calling, mut removing) = (calling, removing);
            assert_eq!(calling.wait(SOON).code(), Some(code), "{seconds} s");
            assert_eq!(removing.wait(SOON).code(), Some(0));
        }
        closes(daemon, containment);
    };

    /// D.3: a server that won't die is removed all the same, and a second remove succeeds.
    d3_a_server_that_wont_die_is_removed = |scene, containment| {
        let Some(freezer) = Freezer::create(&format!("d3-{containment}")) else { return };
        let daemon = start(scene, containment);
        open(&daemon, scene, &[], &["x"]);
        add(&daemon, scene, "b", &["y"], &[]).ok();
        let stuck = pid(&daemon, "b").expect("it runs");
        freezer.freeze(stuck);
        let refused = remove(&daemon, "b").fails(8);
        assert_eq!(kind(&refused), "quarantined", "{refused:#}");
        let left = refused["data"]["remaining"].as_array().expect("a list").clone();
        assert!(left.iter().any(|process| process["pid"] == json!(stuck)), "{refused:#}");
        assert_eq!(tools(&daemon), [("x".into(), "a".into())], "the logical removal stays");
        let shown = daemon.cli(&["show", "k"]).ok();
        let aside = shown["servers"].as_array().expect("a list").iter().find(|server| server["name"] == "b").cloned();
        assert_eq!(aside.expect("it is visible")["aside"], true, "{shown:#}");
        assert_eq!(shown["state"], "ready");
        let taken = add(&daemon, scene, "b", &["y"], &[]).fails(5);
        assert_eq!(kind(&taken), "server_exists", "{taken:#}");
        freezer.thaw();
        // What was frozen may have died meanwhile, and is gone by itself then.
        let second = remove(&daemon, "b");
        if second.status != 0 {
            assert_eq!(kind(&second.fails(2)), "invalid_request");
        }
        assert!(!procfs::exists(stuck));
        eventually("it is forgotten", SOON, || names(&daemon) == ["a"]);
        drop(freezer);
        closes(daemon, containment);
    };

    /// A restart by hand leaves nothing of the old tree, counts, and answers when the server is ready; one that fails says so.
    g29_a_server_is_started_again = |scene, containment| {
        let daemon = start(scene, containment);
        open(&daemon, scene, &[], &["x"]);
        add(&daemon, scene, "b", &["y"], &["STUBBORN=1"]).ok();
        for round in 1..=2 {
            let before = pid(&daemon, "b").expect("it runs");
            let restarted = daemon.cli(&["server", "restart", "k", "b"]).ok();
            assert!(!procfs::exists(before), "the old tree is left");
            assert_eq!((&restarted["server"]["state"], &restarted["server"]["restarts"]), (&json!("ready"), &json!(round)), "{restarted:#}");
            assert_ne!(pid(&daemon, "b"), Some(before));
            assert_eq!(call(&daemon, "y"), pid(&daemon, "b").expect("it runs").to_string());
        }
        let shown = daemon.cli(&["show", "k"]).ok();
        assert_eq!((&shown["servers"][0]["restarts"], &shown["servers"][1]["restarts"]), (&json!(0), &json!(2)));
        closes(daemon, containment);
    };

    /// D.2: three servers in turn have the tool `t`; whichever is removed, the newest that is left has it.
    g27_the_newest_that_is_left_has_the_name = |scene, containment| {
        let daemon = start(scene, containment);
        for order in ORDERS {
            open(&daemon, scene, &["--prefix", "never"], &["own"]);
            for name in ["s0", "s1", "s2"] {
                add(&daemon, scene, name, &["t"], &[&format!("MARK={name}")]).ok();
                assert_eq!(call(&daemon, "t"), name, "the newest shadows");
            }
            let mut left: BTreeSet<usize> = (0..3).collect();
            for gone in order {
                remove(&daemon, &format!("s{gone}")).ok();
                left.remove(&gone);
                match left.last() {
                    Some(newest) => assert_eq!(call(&daemon, "t"), format!("s{newest}"), "{order:?} without {gone}"),
                    None => {
                        let unknown = daemon.cli(&["call", "k", "t"]).fails(2);
                        assert_eq!(kind(&unknown), "invalid_request", "{unknown:#}");
                    }
                }
            }
            assert_eq!(tools(&daemon), [("own".into(), "a".into())]);
            daemon.cli(&["close", "k", "--now"]).ok();
        }
        daemon.finish();
    };

    /// A name that two servers could claim after prefixing is nobody's, and comes back when one of them goes.
    g27_a_name_that_two_could_claim_is_refused = |scene, containment| {
        let daemon = start(scene, containment);
        open(&daemon, scene, &["--prefix", "always"], &["b__x"]);
        assert_eq!(tools(&daemon), [("a__b__x".into(), "a".into())]);
        add(&daemon, scene, "a__b", &["x", "y"], &[]).ok();
        assert_eq!(tools(&daemon), [("a__b__y".into(), "a__b".into())]);
        let refused = daemon.cli(&["call", "k", "a__b__x"]).fails(2);
        assert_eq!(kind(&refused), "invalid_request", "{refused:#}");
        remove(&daemon, "a__b").ok();
        assert_eq!(tools(&daemon), [("a__b__x".into(), "a".into())]);
        closes(daemon, containment);
    };

    /// The client that is attached hears that lists have changed, sees the new tools, and keeps its calls.
    g27_the_attached_client_sees_servers_come_and_go = |scene, containment| {
        let daemon = start(scene, containment);
        open(&daemon, scene, &[], &["x"]);
        let mut client = attach(&daemon, scene);
        assert_eq!(list(&mut client), ["x"]);
        for round in 1..=3 {
            add(&daemon, scene, "b", &["x", "y"], &["MARK=b"]).ok();
            eventually("it hears of the add", SOON, || heard_changes(&client) >= 2 * round - 1);
            assert_eq!(list(&mut client), ["a__x", "b__x", "y"]);
            let answer = client.call_tool("b__x", &json!({}));
            assert_eq!(answer["result"]["content"][0]["text"], "b", "{answer}");
            let slow = client.request("tools/call", json!({"name": "y", "arguments": {"seconds": 1.5}}));
            eventually("the call", SOON, || daemon.cli(&["show", "k"]).ok()["in_flight"] == json!(1));
            remove(&daemon, "b").ok();
            let answer = client.answer(slow, SOON).expect("it is answered");
            assert_eq!(answer["result"]["content"][0]["text"], "b", "within the drain: {answer}");
            eventually("it hears of the removal", SOON, || heard_changes(&client) >= 2 * round);
            assert_eq!(list(&mut client), ["x"]);
        }
        daemon.cli(&["server", "restart", "k", "a"]).ok();
        eventually("it hears of the restart", SOON, || heard_changes(&client) >= 7);
        assert_eq!(list(&mut client), ["x"]);
        client.close_stdin();
        client.wait(SOON);
        closes(daemon, containment);
    };

    /// An exclusive server can be added, attached to, and removed while nobody is; direct sessions have none of this.
    g26_sessions_of_one_client_are_refused = |scene, containment| {
        let daemon = start(scene, containment);
        open(&daemon, scene, &[], &["x"]);
        let command = daemon.command(scene, &["server", "add", "k", "e", "--mode", "exclusive", "--"]);
        let added = command.args(server(&["y"])).output().ok();
        assert_eq!(added["server"]["mode"], "exclusive", "{added:#}");
        let socket = daemon.socket().to_string_lossy().into_owned();
        let mut client = Stdio::start(scene.mcpvisor(&["--socket", &socket, "attach", "k/e", "--exclusive"]));
        client.initialize();
        let refused = remove(&daemon, "e").fails(1);
        assert_eq!(kind(&refused), "unsupported", "{refused:#}");
        client.close_stdin();
        client.wait(SOON);
        eventually("the exclusive one is over", SOON, || pid(&daemon, "e").is_none());
        remove(&daemon, "e").ok();
        assert_eq!(names(&daemon), ["a"]);
        let words = server(&["x"]);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let mut direct = Stdio::start(daemon.run(scene, &words));
        direct.initialize();
        let listed = daemon.cli(&["list"]).ok();
        let sessions = listed["sessions"].as_array().expect("a list");
        let key = sessions.iter().find(|session| session["key"] != "k").expect("that of the run")["key"].clone();
        let key = key.as_str().expect("a key");
        for words in [&["server", "remove", key, "main"][..], &["server", "restart", key, "main"]] {
            let refused = daemon.cli(words).fails(1);
            assert_eq!(kind(&refused), "unsupported", "{refused:#}");
        }
        let refused = daemon.command(scene, &["server", "add", key, "b", "--", "true"]).output().fails(1);
        assert_eq!(kind(&refused), "unsupported", "{refused:#}");
        direct.close_stdin();
        direct.wait(SOON);
        closes(daemon, containment);
    };

    /// G28, D.1: what is done to one session's servers leaves those of another with the same command.
    g28_another_sessions_servers_are_untouched = |scene, containment| {
        let daemon = start(scene, containment);
        open(&daemon, scene, &[], &["x"]);
        let line = format!("a={}", server(&["x"]).join(" "));
        let other = daemon.command(scene, &["open", "other", "--server", &line]).output().ok();
        let untouched = main_pid(&other);
        daemon.cli(&["server", "restart", "k", "a"]).ok();
        remove(&daemon, "a").ok();
        assert_eq!(names(&daemon), Vec::<String>::new(), "a session may have none for a while");
        add(&daemon, scene, "a", &["x"], &[]).ok();
        daemon.cli(&["close", "k"]).ok();
        let shown = daemon.cli(&["show", "other"]).ok();
        assert_eq!((main_pid(&shown), &shown["state"]), (untouched, &json!("ready")));
        assert_closed(&close(&daemon, "other"), containment);
        daemon.finish();
    };
}
