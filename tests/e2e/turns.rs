//! Limits of calls, the queue in front of a server, and the times of calls, on the daemon.
//!
//! How the guards of these tests were seen to fail: see the tests of `peer::turns` and `relay::turns`, which hold the rule; here is held
//! that configuration, daemon, client and endpoint follow it.
use crate::support::{assert_closed, close, kind, on_both};
use mcpvisor_testkit::{Containment, Daemon, Process, SOON, Scene, Setup, Stdio, eventually, shell_status};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Read as _;
use std::sync::Arc;
use std::time::Instant;

/// A server whose tool `hold` is answered when the file that it names is there, and `tick` meanwhile tells of progress. What it hears it
/// appends to the file `HEARD`.
const SERVER: &str = r#"
import json, os, sys, threading, time
lock = threading.Lock()
def send(message):
    with lock: sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n"); sys.stdout.flush()
def hold(rid, path, token):
    while not os.path.exists(path):
        if token: send({"method": "notifications/progress", "params": {"progressToken": token, "progress": time.time()}})
        time.sleep(0.02)
    send({"id": rid, "result": {"content": [{"type": "text", "text": path}]}})
for line in sys.stdin:
    message = json.loads(line)
    with open(os.environ["HEARD"], "a") as heard: heard.write(line)
    method, rid, params = message.get("method"), message.get("id"), message.get("params") or {}
    if method == "initialize":
        send({"id": rid, "result": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "t", "version": "1"}}})
    elif method == "tools/list":
        send({"id": rid, "result": {"tools": [{"name": n, "inputSchema": {"type": "object"}} for n in ("hold", "tick")]}})
    elif method == "tools/call":
        token = params.get("_meta", {}).get("progressToken") if params["name"] == "tick" else None
        threading.Thread(target=hold, args=(rid, params["arguments"]["until"], token), daemon=True).start()
"#;

/// A daemon with a profile of that server, and the session `k` of it.
fn stage(scene: &Arc<Scene>, containment: Containment, server: &str, more: &str) -> Daemon {
    std::fs::write(scene.path("server.py"), SERVER).expect("the scene is ours");
    let (script, heard) = (scene.path("server.py"), scene.path("heard"));
    let config = format!(
        "[timeouts]\nstdin_grace = \"300ms\"\nterm_grace = \"300ms\"\n{more}\n\
         [profiles.p.servers.main]\ncommand = \"python3\"\nargs = [{script:?}]\nenv = {{ HEARD = {heard:?} }}\n{server}\n"
    );
    let daemon = Daemon::start(scene, &Setup::on(containment).config(&config));
    daemon.cli(&["open", "k", "--profile", "p"]).ok();
    daemon
}

fn begin(daemon: &Daemon, scene: &Scene, tool: &str, until: &str) -> Process {
    let until = format!("until={}", scene.path(until).display());
    daemon.command(scene, &["call", "k", tool, &until]).spawn()
}

fn release(scene: &Scene, name: &str) {
    std::fs::write(scene.path(name), "").expect("the scene is ours");
}

/// The calls and cancellations that the server has heard of.
fn heard(scene: &Scene, method: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(scene.path("heard")).unwrap_or_default();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("the daemon speaks JSON"));
    lines.filter(|message| message["method"] == method).collect()
}

fn error(process: &mut Process) -> Value {
    let mut text = String::new();
    process.take_stdout().expect("it is a pipe").read_to_string(&mut text).expect("it is UTF-8");
    serde_json::from_str::<Value>(&text).unwrap_or_else(|_| panic!("no JSON: {text}"))["error"].clone()
}

/// In flight and waiting.
fn load(daemon: &Daemon) -> (u64, u64) {
    let session = daemon.cli(&["show", "k"]).ok();
    let server = &session["servers"][0];
    assert_eq!(
        (&session["in_flight"], &session["queued"]),
        (&server["in_flight"], &server["queued"]),
        "{session:#}"
    );
    (server["in_flight"].as_u64().expect("it is counted"), server["queued"].as_u64().expect("it is counted"))
}

/// The kind of an error of the protocol's, or of the client's.
fn told_kind(error: &Value) -> &str {
    error["kind"].as_str().unwrap_or_else(|| kind(error))
}

fn comes_to(daemon: &Daemon, wanted: (u64, u64)) {
    eventually(&format!("{wanted:?} calls in flight and waiting"), SOON, || load(daemon) == wanted);
}

on_both! {
    /// Calls beyond `max_in_flight` wait, those beyond `max_queued` are refused, and nothing that is no call waits behind them.
    calls_wait_for_their_turn = |scene: &Arc<Scene>, containment: Containment| {
        let daemon = stage(scene, containment, "max_in_flight = 1\nmax_queued = 1", "");
        let mut first = begin(&daemon, scene, "hold", "one");
        comes_to(&daemon, (1, 0));
        let mut second = begin(&daemon, scene, "hold", "two");
        comes_to(&daemon, (1, 1));
        let refused = daemon.cli(&["call", "k", "hold", "until=x"]).fails(5);
        assert_eq!(refused["kind"], "overloaded", "{refused:#}");
        let data = &refused["data"];
        assert_eq!((&data["used"], &data["limit"], &data["in_flight"]), (&json!(1), &json!(1), &json!(1)), "{refused:#}");
        assert_eq!(daemon.cli(&["tools", "k"]).ok()["tools"].as_array().expect("a list").len(), 2);
        // A client that is attached waits in the same queue.
        let socket = daemon.socket().to_string_lossy().into_owned();
        let mut client = Stdio::start(scene.mcpvisor(&["--socket", &socket, "attach", "k"]));
        client.initialize();
        let refused = client.call_tool("hold", &json!({"until": "x"}));
        assert_eq!((kind(&refused["error"]), &refused["error"]["data"]["limit"]), ("overloaded", &json!(1)), "{refused}");
        let id = client.request("tools/list", json!({}));
        assert!(client.answer(id, SOON).is_some(), "a list does not wait");
        // Whoever gives up leaves the queue, and the server never hears of it.
        second.signal(mcpvisor_testkit::Signal::INT);
        assert_eq!(shell_status(second.wait(SOON)), 130);
        comes_to(&daemon, (1, 0));
        let id = client.request("tools/call", json!({"name": "hold", "arguments": {"until": scene.path("three")}}));
        comes_to(&daemon, (1, 1));
        release(scene, "one");
        assert_eq!(shell_status(first.wait(SOON)), 0);
        comes_to(&daemon, (1, 0));
        release(scene, "three");
        assert!(client.answer(id, SOON).expect("it has its turn")["result"].is_object());
        assert_eq!(heard(scene, "tools/call").len(), 2);
        client.close_stdin();
        client.wait(SOON);
        assert_closed(&close(&daemon, "k"), containment);
        daemon.finish();
    };

    /// G31: the end of a connection gives all of its calls up at once: of those that wait none is written in the place of the one in flight.
    /// Without the look at who is wanted when a turn comes, some of them are.
    g31_a_lost_connections_calls_are_given_up_together = |scene: &Arc<Scene>, containment: Containment| {
        let daemon = stage(scene, containment, "max_in_flight = 2", "");
        let connection = daemon.connect();
        let arguments = json!({"key": "k", "tool": "hold", "arguments": {"until": scene.path("never")}});
        let calls: Vec<_> = (0..100).map(|_| connection.send("tool/call", &arguments)).collect();
        comes_to(&daemon, (2, 98));
        drop((calls, connection));
        comes_to(&daemon, (0, 0));
        eventually("both cancellations", SOON, || heard(scene, "notifications/cancelled").len() == 2);
        release(scene, "now");
        assert_eq!(shell_status(begin(&daemon, scene, "hold", "now").wait(SOON)), 0);
        assert_eq!(heard(scene, "tools/call").len(), 3, "what waited was never written");
        assert_closed(&close(&daemon, "k"), containment);
        daemon.finish();
    };

    /// G31: who gives up is told whether the call may have been done.
    g31_who_gives_up_hears_whether_it_was_written = |scene: &Arc<Scene>, containment: Containment| {
        let daemon = stage(scene, containment, "max_in_flight = 1", "");
        let connection = daemon.connect();
        let call = |deadline: Option<u64>| {
            let mut params = json!({"key": "k", "tool": "hold", "arguments": {"until": scene.path("never")}});
            if let Some(deadline) = deadline { params["deadline_ms"] = deadline.into(); }
            connection.send("tool/call", &params)
        };
        let told = |error: Value, wanted: &str, reached: bool| {
            let words = if reached { "may have done it" } else { "did not reach its server" };
            assert_eq!((told_kind(&error), &error["data"]["reached_server"]), (wanted, &json!(reached)), "{error:#}");
            assert!(error["message"].as_str().is_some_and(|text| text.ends_with(words)), "{error:#}");
        };
        let late = call(Some(2000));
        comes_to(&daemon, (1, 0));
        told(late.wait(SOON).expect_err("nobody answers it"), "deadline_exceeded", true);
        let first = call(None);
        comes_to(&daemon, (1, 0));
        told(call(Some(50)).wait(SOON).expect_err("its turn does not come"), "deadline_exceeded", false);
        let second = call(None);
        comes_to(&daemon, (1, 1));
        for (pending, reached) in [(second, false), (first, true)] {
            connection.cancel(&pending);
            told(pending.wait(SOON).expect_err("it is given up"), "cancelled", reached);
        }
        assert_eq!(heard(scene, "tools/call").len(), 2);
        drop(connection);
        // The same for people.
        let mut first = begin(&daemon, scene, "hold", "never");
        comes_to(&daemon, (1, 0));
        let waiting = ["--timeout", "200ms", "call", "k", "hold", "{\"until\": \"/\"}"];
        told(daemon.cli(&waiting).fails(3), "deadline_exceeded", false);
        first.signal(mcpvisor_testkit::Signal::INT);
        assert_eq!(shell_status(first.wait(SOON)), 130);
        assert_closed(&close(&daemon, "k"), containment);
        daemon.finish();
    };

    /// `queue_timeout`, `call_timeout` with progress, and `call_timeout_max`.
    calls_have_their_times = |scene: &Arc<Scene>, containment: Containment| {
        let times = "queue_timeout = \"200ms\"\ncall_timeout = \"4s\"\ncall_timeout_max = \"6s\"";
        let daemon = stage(scene, containment, "max_in_flight = 2", times);
        let began = Instant::now();
        let (mut silent, mut ticking) = (begin(&daemon, scene, "hold", "never"), begin(&daemon, scene, "tick", "never"));
        comes_to(&daemon, (2, 0));
        let waited = daemon.cli(&["call", "k", "hold", "until=x"]).fails(5);
        assert_eq!((&waited["kind"], &waited["data"]["queue_timeout_ms"]), (&json!("overloaded"), &json!(200)), "{waited:#}");
        assert_eq!(shell_status(silent.wait(SOON)), 3);
        let late = error(&mut silent);
        assert_eq!((&late["kind"], &late["data"]["timeout"]), (&json!("deadline_exceeded"), &json!("call_timeout")), "{late:#}");
        assert!(began.elapsed().as_secs() >= 4);
        assert_eq!(shell_status(ticking.wait(SOON)), 3);
        assert_eq!(error(&mut ticking)["data"]["timeout"], "call_timeout_max", "progress holds it off until then");
        assert!(began.elapsed().as_secs() >= 6);
        eventually("both cancellations", SOON, || heard(scene, "notifications/cancelled").len() == 2);
        assert_eq!(heard(scene, "tools/call").len(), 2);
        comes_to(&daemon, (0, 0));
        let socket = daemon.socket().to_string_lossy().into_owned();
        let mut client = Stdio::start(scene.mcpvisor(&["--socket", &socket, "attach", "k"]));
        client.initialize();
        let late = client.call_tool("hold", &json!({"until": "/never"}));
        assert_eq!((kind(&late["error"]), &late["error"]["data"]["timeout_ms"]), ("deadline_exceeded", &json!(4000)), "{late}");
        client.close_stdin();
        client.wait(SOON);
        assert_closed(&close(&daemon, "k"), containment);
        daemon.finish();
    };

    /// G19: a close refuses what waits at once, and the call in flight has the drain's time.
    g19_a_close_settles_what_waits = |scene: &Arc<Scene>, containment: Containment| {
        let daemon = stage(scene, containment, "max_in_flight = 1", "drain = \"20s\"");
        let mut first = begin(&daemon, scene, "hold", "one");
        comes_to(&daemon, (1, 0));
        let second = daemon.command(scene, &["call", "k", "hold", "until=x"]).spawn();
        comes_to(&daemon, (1, 1));
        let closing = daemon.command(scene, &["close", "k"]).spawn();
        let (mut second, mut closing) = (second, closing);
        assert_eq!(shell_status(second.wait(SOON)), 5, "session_closing");
        assert_eq!(load(&daemon), (1, 0));
        release(scene, "one");
        assert_eq!(shell_status(first.wait(SOON)), 0);
        assert_eq!(shell_status(closing.wait(SOON)), 0);
        assert_eq!(heard(scene, "tools/call").len(), 1);
        daemon.finish();
    };

    /// G19, G31: at a server that is started again those that wait have their turns within the drain, and after it each hears why, and
    /// whether it reached the server; the next call is the new one's.
    g19_a_restarted_server_settles_what_waits = |scene: &Arc<Scene>, containment: Containment| {
        let daemon = stage(scene, containment, "max_in_flight = 1", "drain = \"20s\"");
        let restart = |drain: &str| daemon.command(scene, &["server", "restart", "k", "main", "--drain", drain]).spawn();
        let shown = || daemon.cli(&["show", "k"]).ok()["servers"][0].clone();
        let (mut first, mut second) = (begin(&daemon, scene, "hold", "one"), begin(&daemon, scene, "hold", "two"));
        comes_to(&daemon, (1, 1));
        let mut restarting = restart("20s");
        eventually("it is asked nothing more", SOON, || {
            // One that came before the restart waits for its turn, and gives up.
            daemon.command(scene, &["--timeout", "300ms", "call", "k", "hold", "{\"until\": \"/\"}"]).output().status == 1
        });
        release(scene, "one");
        release(scene, "two");
        for process in [&mut first, &mut second, &mut restarting] {
            assert_eq!(shell_status(process.wait(SOON)), 0);
        }
        assert_eq!((heard(scene, "tools/call").len(), &shown()["restarts"]), (2, &json!(1)));
        let mut first = begin(&daemon, scene, "hold", "three");
        comes_to(&daemon, (1, 0));
        let socket = daemon.socket().to_string_lossy().into_owned();
        let mut client = Stdio::start(scene.mcpvisor(&["--socket", &socket, "attach", "k"]));
        client.initialize();
        let attached = client.request("tools/call", json!({"name": "hold", "arguments": {"until": scene.path("three")}}));
        comes_to(&daemon, (1, 1));
        let mut second = begin(&daemon, scene, "hold", "three");
        comes_to(&daemon, (1, 2));
        let mut restarting = restart("300ms");
        for (process, end) in [(&mut first, "had not answered"), (&mut second, "did not reach it")] {
            assert_eq!(shell_status(process.wait(SOON)), 1);
            let error = error(process);
            let text = error["message"].as_str().expect("a message");
            assert!(error["kind"] == "server_exited" && text.contains(end), "{error:#}");
        }
        let answer = client.answer(attached, SOON).expect("it has its answer");
        let text = answer["error"]["message"].as_str().expect("an error");
        assert!(kind(&answer["error"]) == "server_exited" && text.contains("did not reach it"), "{answer}");
        assert_eq!(shell_status(restarting.wait(SOON)), 0);
        assert_eq!(heard(scene, "tools/call").len(), 3, "what waited was never written");
        release(scene, "three");
        assert_eq!(shell_status(begin(&daemon, scene, "hold", "three").wait(SOON)), 0);
        client.close_stdin();
        client.wait(SOON);
        assert_closed(&close(&daemon, "k"), containment);
        daemon.finish();
    };

    /// G11, C.2: hundreds of calls, most of which wait, race a close: each has one answer.
    g11_calls_that_wait_race_a_close = |scene: &Arc<Scene>, containment: Containment| {
        let daemon = stage(scene, containment, "max_in_flight = 3", "");
        let socket = daemon.socket().to_string_lossy().into_owned();
        let mut client = Stdio::start(scene.mcpvisor(&["--socket", &socket, "attach", "k"]));
        client.initialize();
        release(scene, "now");
        let arguments = json!({"name": "hold", "arguments": {"until": scene.path("now")}});
        let ids: Vec<u64> = (0..1000).map(|_| client.request("tools/call", arguments.clone())).collect();
        assert!(client.answer(ids[20], SOON).is_some());
        let certificate = close(&daemon, "k");
        assert_closed(&certificate, containment);
        assert!(client.output_ends(SOON), "its stream ends with the session");
        let bytes = client.bytes();
        let lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let mut answers: BTreeMap<u64, Vec<Value>> = BTreeMap::new();
        for line in lines {
            let message: Value = serde_json::from_slice(line).expect("only JSON is said");
            answers.entry(message["id"].as_u64().unwrap_or(0)).or_default().push(message);
        }
        let (mut done, mut refused) = (0, 0);
        for id in ids {
            let [answer] = answers[&id].as_slice() else { panic!("{id}: {:?}", answers[&id]) };
            match answer["error"]["data"]["kind"].as_str() {
                None => done += 1,
                Some("session_closing" | "cancelled") => refused += 1,
                Some(other) => panic!("{other}: {answer}"),
            }
        }
        assert!(done >= 21 && refused > 0, "{done} done, {refused} refused");
        assert_eq!(heard(scene, "tools/call").len(), done, "what was refused was never written");
        client.wait(SOON);
        daemon.finish();
    };
}
