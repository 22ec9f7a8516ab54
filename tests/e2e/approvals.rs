//! Calls that a policy holds for a person (G19, C.5), and what servers ask of a client, at a close.
//!
//! How the guards of these tests were seen to fail: the rule is held by `lifecycle::approvals` and `supervisor::desk`; here is held that
//! daemon, client and endpoint follow it.
use crate::support::{assert_closed, close, kind, on_both};
use mcpvisor_testkit::{
    Containment, Daemon, Process, SOON, Scene, Setup, Signal, Stdio, eventually, shell_status,
};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A server that answers every call, but for `ask`, which asks the client for input, the model for text and the roots first, and then waits
/// for all three. The calls that it hears it appends to the file `HEARD`, and so what it is answered.
const SERVER: &str = r#"
import json, os, sys, threading
def send(message): sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n"); sys.stdout.flush()
waiting = {}
for line in sys.stdin:
    message = json.loads(line)
    method, rid, params = message.get("method"), message.get("id"), message.get("params") or {}
    if method == "initialize":
        send({"id": rid, "result": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "t", "version": "1"}}})
    elif method == "tools/list":
        send({"id": rid, "result": {"tools": [{"name": n, "inputSchema": {"type": "object"}} for n in ("read", "delete_file", "ask")]}})
    elif method == "tools/call":
        with open(os.environ["HEARD"], "a") as heard: heard.write(line)
        if params["name"] == "ask":
            for n, ask in enumerate(("elicitation/create", "sampling/createMessage", "roots/list")):
                waiting["%s-%d" % (rid, n)] = rid
                send({"id": "%s-%d" % (rid, n), "method": ask, "params": {"message": "?", "messages": []}})
        else:
            send({"id": rid, "result": {"content": [{"type": "text", "text": params["name"]}]}})
    elif method is None and rid in waiting:
        with open(os.environ["HEARD"], "a") as heard: heard.write(line)
        of = waiting.pop(rid)
        if of not in waiting.values():
            send({"id": of, "result": {"content": [{"type": "text", "text": "asked"}], "isError": "error" in message}})
"#;

fn stage(scene: &Arc<Scene>, containment: Containment, profile: &str, more: &str) -> Daemon {
    std::fs::write(scene.path("server.py"), SERVER).expect("the scene is ours");
    let (script, heard) = (scene.path("server.py"), scene.path("heard"));
    let config = format!(
        "[timeouts]\nstdin_grace = \"300ms\"\nterm_grace = \"300ms\"\ndrain = \"30s\"\n{more}\n[profiles.p]\n{profile}\n\
         [profiles.p.servers.main]\ncommand = \"python3\"\nargs = [{script:?}]\nenv = {{ HEARD = {heard:?} }}\nmax_in_flight = 1\n"
    );
    Daemon::start(scene, &Setup::on(containment).config(&config))
}

fn attach(daemon: &Daemon, scene: &Scene) -> Stdio {
    let socket = daemon.socket().to_string_lossy().into_owned();
    Stdio::start(scene.mcpvisor(&["--socket", &socket, "attach", "k"]))
}

/// Those that are held, once there are so many.
fn held(daemon: &Daemon, count: usize) -> Vec<Value> {
    let list = || daemon.cli(&["approvals"]).ok()["approvals"].as_array().expect("a list").clone();
    eventually(&format!("{count} held calls"), SOON, || list().len() == count);
    list()
}

fn id(held: &Value) -> String {
    held["id"].as_str().expect("an id").to_owned()
}

fn heard(scene: &Scene) -> Vec<Value> {
    let text = std::fs::read_to_string(scene.path("heard")).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).expect("the daemon speaks JSON")).collect()
}

fn call(daemon: &Daemon, scene: &Scene, tool: &str) -> Process {
    daemon.command(scene, &["call", "k", tool, r#"{"path": "\u001b[2J/x"}"#]).spawn()
}

fn error(process: &mut Process) -> Value {
    use std::io::Read as _;
    let mut text = String::new();
    process.take_stdout().expect("it is a pipe").read_to_string(&mut text).expect("it is UTF-8");
    serde_json::from_str::<Value>(&text).unwrap_or_else(|_| panic!("no JSON: {text}"))["error"].clone()
}

on_both! {
    /// A held call is listed, decided once, and reaches its server only then; others pass meanwhile, also where the server takes one at a time.
    a_held_call_is_decided_once = |scene: &Arc<Scene>, containment: Containment| {
        let daemon = stage(scene, containment, "hold = [\"delete_*\"]", "");
        daemon.cli(&["open", "k", "--profile", "p", "--hold", "never-?"]).ok();
        let mut first = call(&daemon, scene, "delete_file");
        let list = held(&daemon, 1);
        let view = &list[0];
        assert_eq!((&view["session"], &view["server"], &view["tool"]), (&json!("k"), &json!("main"), &json!("delete_file")));
        assert_eq!(view["arguments"], r#"{"path": "\u001b[2J/x"}"#, "as they came");
        assert!(view["age_ms"].is_u64() && view["left_ms"].as_u64() <= Some(300_000), "{view:#}");
        let session = daemon.cli(&["show", "k"]).ok();
        assert_eq!((&session["held"], &session["in_flight"], &session["servers"][0]["in_flight"]), (&json!(1), &json!(0), &json!(0)));
        daemon.cli(&["call", "k", "read"]).ok();
        // The same through the endpoint, under whatever spelling.
        let mut client = attach(&daemon, scene);
        client.initialize();
        let denied = client.request("tools/call", json!({"name": "delete_file", "arguments": {}}));
        let both = held(&daemon, 2);
        assert_eq!(heard(scene).len(), 1, "only the call that is not held");
        daemon.cli(&["approvals", "approve", &id(&both[0])]).ok();
        assert_eq!(shell_status(first.wait(SOON)), 0);
        daemon.cli(&["approvals", "deny", &id(&both[1]), "--reason", "not today"]).ok();
        let answer = client.answer(denied, SOON).expect("it has its answer");
        assert_eq!(answer["result"]["isError"], true, "{answer}");
        let text = answer["result"]["content"][0]["text"].as_str().expect("a text for the model");
        assert!(text.contains("delete_file") && text.contains("not today"), "{text}");
        assert_eq!(answer["result"]["_meta"]["mcpvisor/error"]["decision"], "denied");
        for (held, first) in both.iter().zip(["approved", "denied"]) {
            let refused = daemon.cli(&["approvals", "approve", &id(held)]).fails(5);
            assert_eq!((&refused["kind"], &refused["data"]["decision"]), (&json!("already_decided"), &json!(first)));
        }
        assert_eq!(daemon.cli(&["approvals", "deny", "1.99"]).fails(4)["kind"], "not_found");
        let mut refused = call(&daemon, scene, "delete_file");
        daemon.cli(&["approvals", "deny", &id(&held(&daemon, 1)[0])]).ok();
        assert_eq!(shell_status(refused.wait(SOON)), 7);
        let error = error(&mut refused);
        assert_eq!((&error["kind"], &error["data"]["decision"]), (&json!("permission_denied"), &json!("denied")), "{error}");
        // What can't be told for certain does not pass, and a call that wants no answer is none.
        client.write(b"{\"jsonrpc\":\"2.0\",\"id\":70,\"method\":\"tools/call\",\"params\":{\"name\":\"read\",\"name\":\"delete_file\"}}\n");
        assert_eq!(client.answer(70, SOON).expect("it has its answer")["error"]["code"], -32602);
        client.write(b"{\"jsonrpc\":\"2.0\",\"method\":\"tools/call\",\"params\":{\"name\":\"delete_file\"}}\n");
        client.call_tool("read", &json!({}));
        assert_eq!(heard(scene).iter().filter(|line| line["params"]["name"] == "delete_file").count(), 1);
        client.close_stdin();
        client.wait(SOON);
        assert_closed(&close(&daemon, "k"), containment);
        daemon.finish();
    };

    /// A held call ends with its caller, and by itself after `approval_timeout`.
    a_held_call_goes_with_its_caller_and_its_time = |scene: &Arc<Scene>, containment: Containment| {
        let daemon = stage(scene, containment, "hold = [\"main__delete_*\"]\n[profiles.p.timeouts]\napproval_timeout = \"700ms\"", "");
        daemon.cli(&["open", "k", "--profile", "p"]).ok();
        let mut gone = call(&daemon, scene, "delete_file");
        let first = id(&held(&daemon, 1)[0]);
        gone.signal(Signal::KILL);
        gone.wait(SOON);
        held(&daemon, 0);
        let refused = daemon.cli(&["approvals", "approve", &first]).fails(5);
        assert_eq!(refused["data"]["decision"], "withdrawn");
        let mut client = attach(&daemon, scene);
        client.initialize();
        let cancelled = client.request("tools/call", json!({"name": "delete_file", "arguments": {}}));
        held(&daemon, 1);
        client.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": cancelled}}));
        held(&daemon, 0);
        let late = client.call_tool("delete_file", &json!({}));
        assert_eq!(late["result"]["_meta"]["mcpvisor/error"]["decision"], "timed_out", "{late}");
        let late = daemon.cli(&["call", "k", "delete_file"]).fails(7);
        assert_eq!(late["data"]["decision"], "timed_out", "{late:#}");
        assert_eq!(heard(scene).len(), 0);
        client.close_stdin();
        client.wait(SOON);
        assert_closed(&close(&daemon, "k"), containment);
        daemon.finish();
    };

    /// G19, C.5: at a close held calls, and what a server asks of its client, are answered with a reason on both sides, and whoever is blocked by
    /// them is released within a second, although the drain has half a minute.
    g19_c5_what_waits_for_a_person_at_a_close = |scene: &Arc<Scene>, containment: Containment| {
        let daemon = stage(scene, containment, "hold = [\"delete_*\"]", "");
        daemon.cli(&["open", "k", "--profile", "p"]).ok();
        let mut client = attach(&daemon, scene);
        client.send(&json!({"jsonrpc": "2.0", "id": 1000, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25", "clientInfo": {"name": "c", "version": "1"},
            "capabilities": {"elicitation": {}, "sampling": {}, "roots": {}}}}));
        assert!(client.answer(1000, SOON).is_some());
        client.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        let asking = client.request("tools/call", json!({"name": "ask", "arguments": {}}));
        let asked = |bytes: &[u8]| {
            let count = bytes.split(|byte| *byte == b'\n').filter(|line| line.windows(9).any(|part| part == b"mcpvisor-")).count();
            (count >= 3).then_some(())
        };
        client.wait_for(SOON, asked).expect("three requests of the server");
        let here = client.request("tools/call", json!({"name": "delete_file", "arguments": {}}));
        let mut there = call(&daemon, scene, "delete_file");
        held(&daemon, 2);
        let began = Instant::now();
        let certificate = close(&daemon, "k");
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
        let answer = client.answer(here, SOON).expect("the held call has its answer");
        assert_eq!(kind(&answer["error"]), "session_closing", "{answer}");
        assert_eq!(shell_status(there.wait(SOON)), 5, "session_closing");
        let answer = client.answer(asking, SOON).expect("the call that asked has its answer");
        assert_eq!(answer["result"]["isError"], true, "by the server, which was not kept waiting: {answer}");
        let answered: Vec<Value> = heard(scene).into_iter().filter(|line| line.get("error").is_some()).collect();
        assert_eq!(answered.len(), 3);
        assert!(answered.iter().all(|line| kind(&line["error"]) == "session_closing"), "{answered:?}");
        let text = String::from_utf8(client.bytes()).expect("it is UTF-8");
        assert_eq!(text.lines().filter(|line| line.contains("notifications/cancelled")).count(), 3, "{text}");
        assert_closed(&certificate, containment);
        client.wait(SOON);
        daemon.finish();
    };

    /// A call that is held while its server is started again is the new one's, and one whose server is removed is answered, and is no
    /// other's; a session with a held call is not idle; what the daemon never speaks to is not added where calls are held.
    held_calls_of_servers_that_change = |scene: &Arc<Scene>, containment: Containment| {
        let daemon = stage(scene, containment, "hold = [\"delete_*\"]", "");
        daemon.cli(&["open", "k", "--profile", "p", "--idle", "500ms", "--on-idle", "park"]).ok();
        let other = daemon.cli(&["open", "k", "--profile", "p", "--hold", "x", "--idle", "500ms", "--on-idle", "park"]).fails(5);
        assert_eq!(other["kind"], "session_exists", "what is held is part of what the session is: {other:#}");
        let refused = daemon.cli(&["server", "add", "k", "own", "--mode", "exclusive", "--", "cat"]).fails(1);
        assert_eq!(refused["kind"], "unsupported", "{refused:#}");
        let parked = || daemon.cli(&["show", "k"]).ok()["servers"][0]["state"] == "parked";
        eventually("the parking", SOON, parked);
        let mut there = call(&daemon, scene, "delete_file");
        held(&daemon, 1);
        let mut client = attach(&daemon, scene);
        client.initialize();
        let here = client.request("tools/call", json!({"name": "delete_file", "arguments": {}}));
        held(&daemon, 2);
        daemon.cli(&["server", "restart", "k", "main"]).ok();
        for held in held(&daemon, 2) {
            daemon.cli(&["approvals", "approve", &id(&held)]).ok();
        }
        assert_eq!(shell_status(there.wait(SOON)), 0);
        assert!(client.answer(here, SOON).expect("it has its answer")["result"]["content"].is_array());
        assert_eq!(heard(scene).len(), 2);
        let mut there = call(&daemon, scene, "delete_file");
        held(&daemon, 1);
        let here = client.request("tools/call", json!({"name": "delete_file", "arguments": {}}));
        let both = held(&daemon, 2);
        // Another one comes in its place among the numbers, and by its name among the tools.
        let script = scene.path("server.py").to_string_lossy().into_owned();
        let heard_at = format!("HEARD={}", scene.path("other").display());
        daemon.cli(&["server", "remove", "k", "main"]).ok();
        held(&daemon, 0);
        daemon.cli(&["server", "add", "k", "other", "--env", &heard_at, "--", "python3", &script]).ok();
        for held in &both {
            let refused = daemon.cli(&["approvals", "approve", &id(held)]).fails(5);
            assert_eq!((&refused["kind"], &refused["data"]["decision"]), (&json!("already_decided"), &json!("server_gone")));
        }
        assert_eq!(shell_status(there.wait(SOON)), 1);
        let told = error(&mut there);
        assert_eq!((&told["kind"], &told["data"]["reached_server"]), (&json!("server_exited"), &json!(false)), "{told:#}");
        assert!(told["message"].as_str().is_some_and(|text| text.contains("was removed from the session")), "{told:#}");
        let answer = client.answer(here, SOON).expect("it has its answer");
        assert_eq!(kind(&answer["error"]), "server_exited", "{answer}");
        assert!(!scene.path("other").exists(), "nobody approved a call of this one");
        client.close_stdin();
        client.wait(SOON);
        eventually("the parking", SOON, parked);
        let mut waits = call(&daemon, scene, "delete_file");
        let last = held(&daemon, 1);
        let began = Instant::now();
        eventually("three times the idle limit", SOON, || began.elapsed() > Duration::from_millis(1500));
        assert!(!parked(), "a held call is activity");
        daemon.cli(&["approvals", "approve", &id(&last[0])]).ok();
        assert_eq!(shell_status(waits.wait(SOON)), 0);
        assert_closed(&close(&daemon, "k"), containment);
        daemon.finish();
    };

    /// G19: what is held for a server that has failed for good is answered with that, and can't be approved any more; without the daemon's word to
    /// the desk it stays listed. The other servers' are left alone.
    g19_held_calls_of_a_server_that_goes = |scene: &Arc<Scene>, containment: Containment| {
        let daemon = stage(scene, containment, "hold = [\"delete_*\"]", "");
        daemon.cli(&["open", "k", "--profile", "p"]).ok();
        let connection = daemon.connect();
        let command = ["python3".to_owned(), scene.path("server.py").to_string_lossy().into_owned()];
        let environment = [format!("HEARD={}", scene.path("other").display()), "PATH=/usr/bin:/bin:/usr/local/bin".to_owned()];
        let server = json!({"name": "brief", "command": command, "restart": "temporary"});
        let added = connection.call("server/add", &json!({"key": "k", "server": server, "environment": environment})).expect("it starts");
        let call = |server: &str| connection.send("tool/call", &json!({"key": "k", "server": server, "tool": "delete_file"}));
        let (stays, goes) = (call("main"), call("brief"));
        let both = held(&daemon, 2);
        let pid = added["server"]["pid"].as_u64().expect("it runs") as u32;
        mcpvisor_testkit::send_signal(pid, Signal::KILL);
        let told = goes.wait(SOON).expect_err("its server has failed");
        assert_eq!((kind(&told), &told["data"]["reached_server"]), ("server_exited", &json!(false)), "{told:#}");
        assert!(told["message"].as_str().is_some_and(|text| text.contains("has failed")), "{told:#}");
        let left = held(&daemon, 1);
        assert_eq!(left[0]["server"], "main", "{left:?}");
        let gone = both.iter().find(|held| held["server"] == "brief").expect("it was held");
        let refused = daemon.cli(&["approvals", "approve", &id(gone)]).fails(5);
        assert_eq!(refused["data"]["decision"], "server_gone", "{refused:#}");
        daemon.cli(&["approvals", "approve", &id(&left[0])]).ok();
        stays.wait(SOON).expect("it was approved");
        assert!(!scene.path("other").exists(), "nobody approved a call of that one");
        drop(connection);
        assert_closed(&close(&daemon, "k"), containment);
        daemon.finish();
    };

    /// What the daemon never speaks to can't be held, and says so.
    only_shared_servers_are_held = |scene: &Arc<Scene>, containment: Containment| {
        let daemon = stage(scene, containment, "", "");
        let refused = daemon.command(scene, &["open", "k", "--mode", "exclusive", "--hold", "*", "--", "cat"]).output().fails(1);
        assert_eq!(refused["kind"], "unsupported", "{refused:#}");
        let refused = daemon.command(scene, &["open", "k", "--hold", "", "--", "cat"]).output().fails(2);
        assert_eq!(refused["kind"], "invalid_request", "{refused:#}");
        daemon.finish();
    };
}
