//! `call` on real servers: its progress, its cancellation, what it saves; and what is noted of the frames.
use crate::support::{close, on_both, open};
use mcpvisor_testkit::{Daemon, Process, SOON, Scene, Setup, Signal, eventually, shell_status};
use serde_json::{Value, json};
use std::io::Read as _;

/// A server with a tool for each of these tests. What it is told it appends to the file `HEARD`.
const SERVER: &str = r#"
import json, os, sys
def send(message): sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n"); sys.stdout.flush()
def reply(result): send({"id": rid, "result": result})
def progress(n, **more): send({"method": "notifications/progress", "params": {"progressToken": token, "progress": n, **more}})
schema = {"type": "object", "properties": {"n": {"type": "integer"}, "how": {"enum": ["up", "down"]}}}
for line in sys.stdin:
    message = json.loads(line)
    with open(os.environ["HEARD"], "a") as heard: heard.write(line)
    method, rid, params = message.get("method"), message.get("id"), message.get("params") or {}
    token = (params.get("_meta") or {}).get("progressToken")
    if method == "initialize":
        reply({"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "t", "version": "1"}})
    elif method == "tools/list":
        reply({"tools": [{"name": name, "inputSchema": schema} for name in ("steps", "flood", "hang", "image", "die")]})
    elif method == "tools/call":
        name = params["name"]
        if name == "steps":
            for n in (1, 2, 3): progress(n, total=3, message="step \u001b[2J%d" % n)
        elif name == "flood":
            for n in range(50000): progress(n, message="y" * 200)
        elif name == "die":
            sys.stderr.write("last words\n"); sys.stderr.flush()
            os._exit(7)
        if name == "image":
            reply({"content": [{"type": "image", "mimeType": "image/png", "data": "AAEC"}]})
        elif name != "hang":
            reply({"content": [{"type": "text", "text": json.dumps(params.get("arguments"))}]})
"#;

fn server() -> Vec<String> {
    ["python3", "-c", SERVER].map(str::to_owned).to_vec()
}

/// A daemon with that server in the session `k`.
fn stage(scene: &std::sync::Arc<Scene>, containment: mcpvisor_testkit::Containment) -> Daemon {
    let daemon = Daemon::start(scene, &Setup::on(containment).quick());
    open(&daemon, scene, "k", &server(), &[("HEARD", &scene.path("heard").to_string_lossy())]);
    daemon
}

fn heard(scene: &Scene) -> Vec<Value> {
    let text = std::fs::read_to_string(scene.path("heard")).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).expect("the daemon speaks JSON")).collect()
}

fn all_of(process: &mut Process) -> String {
    let mut text = String::new();
    let mut stdout = process.take_stdout().expect("it is a pipe");
    stdout.read_to_string(&mut text).expect("it is UTF-8");
    text
}

on_both! {
    /// Where it is asked for, a call's progress comes before its answer, as the server tells it; else nothing of it comes.
    a_call_tells_its_progress = |scene, containment| {
        let daemon = stage(scene, containment);
        let connection = daemon.connect();
        let silent = connection.send("tool/call", &json!({"key": "k", "tool": "steps"}));
        silent.wait(SOON).expect("it is answered");
        let asked = connection.send("tool/call", &json!({"key": "k", "tool": "steps", "progress": true}));
        let id = asked.id;
        asked.wait(SOON).expect("it is answered");
        for n in 1..=3 {
            let told = connection.next_other(SOON).expect("what comes before the answer is read before it");
            assert_eq!(told["method"], "notifications/progress", "{told}");
            assert_eq!(told["params"]["requestId"], json!(id), "{told}");
            let progress = &told["params"]["progress"];
            assert_eq!((&progress["progress"], &progress["total"]), (&json!(n), &json!(3)), "{told}");
        }
        drop(connection);
        close(&daemon, "k");
        daemon.finish();
    };

    /// A server that tells of each of its fifty thousand steps is thinned out: its client is neither flooded nor cut.
    g39_a_flood_of_progress = |scene, containment| {
        let daemon = stage(scene, containment);
        let connection = daemon.connect();
        let flood = connection.send("tool/call", &json!({"key": "k", "tool": "flood", "progress": true}));
        let (mut told, mut dropped, mut last) = (0_u64, 0_u64, Value::Null);
        // It may take its time on a busy machine, and goes on.
        while last != 49_999 {
            let message = connection.next_other(SOON).expect("the last one is told before the answer");
            told += 1;
            dropped += message["params"]["dropped"].as_u64().unwrap_or(0);
            last = message["params"]["progress"]["progress"].clone();
        }
        flood.wait(SOON).expect("it is answered");
        assert_eq!(told + dropped, 50_000, "all are told or counted");
        assert!(dropped > told, "{told} of 50,000 were told");
        drop(connection);
        close(&daemon, "k");
        daemon.finish();
    };

    /// Ctrl-C and SIGTERM cancel the call at the server, and the client says by its status which it was.
    a_signal_cancels_a_call = |scene, containment| {
        let daemon = stage(scene, containment);
        for (signal, status, name) in [(Signal::INT, 130, "SIGINT"), (Signal::TERM, 143, "SIGTERM")] {
            let calls = |method: &str| heard(scene).into_iter().filter(|m| m["method"] == method).collect::<Vec<_>>();
            let before = calls("tools/call").len();
            let mut call = daemon.command(scene, &["call", "k", "hang"]).spawn();
            eventually("the call", SOON, || calls("tools/call").len() > before);
            call.signal(signal);
            let text = all_of(&mut call);
            assert_eq!(shell_status(call.wait(SOON)), status);
            let told: Value = serde_json::from_str(&text).expect("it is JSON");
            assert_eq!(told["error"]["kind"], "cancelled", "{told}");
            assert!(told["error"]["message"].to_string().contains(name), "{told}");
            // It left when the server had been told.
            eventually("the cancellation", SOON, || calls("notifications/cancelled").len() > before);
            let id = calls("tools/call").pop().expect("it is there")["id"].clone();
            assert_eq!(calls("notifications/cancelled").pop().expect("it is there")["params"]["requestId"], id);
            assert_eq!(daemon.cli(&["show", "k"]).ok()["in_flight"], 0);
        }
        close(&daemon, "k");
        daemon.finish();
    };

    /// What was last said is told of a server that lives, and with its last words of one that died.
    frames_are_noted = |scene, containment| {
        let daemon = stage(scene, containment);
        daemon.cli(&["call", "k", "steps"]).ok();
        let plain = daemon.cli(&["show", "k"]).ok();
        assert!(plain["servers"][0].get("frames").is_none() && plain["servers"][0].get("last_failure").is_none());
        let shown = daemon.cli(&["show", "k", "--frames"]).ok();
        let frames = shown["servers"][0]["frames"].as_array().expect("they were asked for").clone();
        let called = frames.iter().find(|frame| frame["method"] == "tools/call").expect("the call is noted");
        assert_eq!((&called["direction"], &called["kind"]), (&json!("to_server"), &json!("request")), "{called}");
        let last = frames.last().expect("there are some");
        assert_eq!((&last["method"], &last["id"], &last["kind"]), (&json!("tools/call"), &called["id"], &json!("response")));
        assert!(last["latency_ms"].as_f64().is_some_and(|ms| ms > 0.0), "{last}");
        let told = frames.iter().filter(|frame| frame["method"] == "notifications/progress").count();
        assert_eq!(told, 3, "{frames:?}");
        // The server dies of a call.
        let error = daemon.cli(&["call", "k", "die"]).fails(1);
        assert_eq!(error["kind"], "server_exited", "{error}");
        assert_eq!(error["data"]["stderr_tail"], "last words", "{error}");
        let last = error["data"]["frames"].as_array().and_then(|frames| frames.last()).expect("it is told").clone();
        assert_eq!((&last["method"], &last["kind"]), (&json!("tools/call"), &json!("request")), "{error}");
        let failure = || daemon.cli(&["show", "k"]).json()["servers"][0]["last_failure"].clone();
        eventually("the report of the end", SOON, || failure()["stderr_tail"] == "last words");
        let report = failure();
        assert!(report["frames"].as_array().is_some_and(|frames| !frames.is_empty() && frames.len() <= 20), "{report}");
        close(&daemon, "k");
        daemon.finish();
    };

    /// Of a server that fails for good the certificate has the frames, of an exclusive one too.
    a_certificate_has_the_last_frames = |scene, containment| {
        let daemon = Daemon::start(scene, &Setup::on(containment).quick());
        let socket = daemon.socket().to_string_lossy().into_owned();
        let words = ["--socket", &socket, "run", "--key", "relay", "--relay", "--"];
        let heard = scene.path("heard");
        let mut relay = mcpvisor_testkit::Stdio::start(scene.mcpvisor(&words).args(server()).env("HEARD", heard));
        relay.initialize();
        let shown = daemon.cli(&["show", "relay", "--frames"]).ok();
        let methods: Vec<_> = shown["servers"][0]["frames"].as_array().expect("they were asked for").iter()
            .map(|frame| (frame["direction"].clone(), frame["method"].clone())).collect();
        assert_eq!(methods[..2], [(json!("to_server"), json!("initialize")), (json!("from_server"), json!("initialize"))]);
        let id = relay.request("tools/call", json!({"name": "die"}));
        assert!(relay.answer(id, SOON).is_some_and(|answer| answer.get("error").is_some()));
        assert_eq!(relay.wait(SOON).code(), Some(7));
        let certificate = daemon.cli(&["wait", "relay", "--timeout", "20s"]).ok()["certificate"].clone();
        let frames = certificate["failure"]["frames"].as_array().cloned().unwrap_or_default();
        assert_eq!(frames.last().map(|frame| frame["method"].clone()), Some(json!("tools/call")), "{certificate:#}");
        assert_eq!(certificate["failure"]["stderr_tail"], "last words", "{certificate:#}");
        daemon.finish();
    };
}

/// Values are read as the tool's schema says, and one that does not fit never reaches the server.
#[test]
fn values_are_typed_by_the_schema() {
    mcpvisor_testkit::scene(|scene| {
        let daemon = stage(scene, mcpvisor_testkit::Containment::Keeper);
        let told = daemon.cli(&["call", "k", "steps", "n=3", "how=up"]).ok();
        assert_eq!(told["content"][0]["text"], r#"{"n": 3, "how": "up"}"#);
        let before = heard(scene).len();
        for argument in ["n=three", "how=left"] {
            let error = daemon.cli(&["call", "k", "steps", argument]).fails(2);
            assert_eq!(error["kind"], "invalid_request", "{error}");
        }
        assert!(heard(scene)[before..].iter().all(|message| message["method"] != "tools/call"));
        close(&daemon, "k");
        daemon.finish();
    });
}

/// An image is saved beside those that there are, for its owner alone.
#[test]
fn an_image_is_saved() {
    mcpvisor_testkit::scene(|scene| {
        use std::os::unix::fs::PermissionsExt as _;
        let daemon = stage(scene, mcpvisor_testkit::Containment::Keeper);
        let socket = daemon.socket().to_string_lossy().into_owned();
        for n in 1..=2 {
            let call = scene.mcpvisor(&["--socket", &socket, "call", "k", "image"]).output();
            assert_eq!(call.status, 0, "{call:?}");
            assert!(call.text().contains(&format!("image-{n}.png")), "{call:?}");
            let path = scene.path(&format!("image-{n}.png"));
            assert_eq!(std::fs::read(&path).expect("it is here"), b"\0\x01\x02");
            assert_eq!(std::fs::metadata(&path).expect("it is here").permissions().mode() & 0o777, 0o600);
        }
        close(&daemon, "k");
        daemon.finish();
    });
}

/// On a terminal the progress is one line that is written over, harmless and gone at the end; the result stands by itself.
#[test]
fn progress_on_a_terminal() {
    mcpvisor_testkit::scene(|scene| {
        let daemon = stage(scene, mcpvisor_testkit::Containment::Keeper);
        let socket = daemon.socket().to_string_lossy().into_owned();
        let words = scene.mcpvisor(&["--socket", &socket, "call", "k", "steps", "n=1"]).words();
        let spawn = "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))";
        for (term, wanted) in [
            ("xterm", "\r\u{1b}[K100% (3 of 3) step \\x1b[2J3\r\u{1b}[K{"),
            ("dumb", "100% (3 of 3) step \\x1b[2J3\r\n{"),
        ] {
            let call = scene.command("python3").args(["-c", spawn]).args(&words).env("TERM", term).output();
            assert_eq!(call.status, 0, "{call:?}");
            assert!(call.text().contains(wanted), "{term}: {call:?}");
        }
        close(&daemon, "k");
        daemon.finish();
    });
}

/// A modern server that wants to ask a person first is told from one that answers.
#[test]
fn a_modern_server_wants_input() {
    const ASKS: &str = r#"
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    method, rid = message.get("method"), message.get("id")
    if rid is None: continue
    answer = {"error": {"code": -32601, "message": "no"}}
    if method == "server/discover":
        answer = {"result": {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "serverInfo": {"name": "m", "version": "1"}}}
    elif method == "tools/list":
        answer = {"result": {"tools": [{"name": "ask", "inputSchema": {"type": "object"}}]}}
    elif method == "tools/call":
        answer = {"result": {"resultType": "input_required", "requestState": "s", "inputRequests": {
            "who": {"method": "elicitation/create", "params": {"message": "Who?"}}}}}
    elif method == "initialize":
        answer = {"error": {"code": -32022, "message": "no", "data": {"supported": ["2026-07-28"]}}}
    print(json.dumps({"jsonrpc": "2.0", "id": rid, **answer}), flush=True)
"#;
    mcpvisor_testkit::scene(|scene| {
        let daemon = Daemon::start(scene, &Setup::on(mcpvisor_testkit::Containment::Keeper).quick());
        open(&daemon, scene, "k", &["python3", "-c", ASKS].map(str::to_owned), &[]);
        let socket = daemon.socket().to_string_lossy().into_owned();
        let call = scene.mcpvisor(&["--socket", &socket, "call", "k", "ask"]).output();
        assert_eq!(call.status, 1, "{call:?}");
        assert!(call.text().contains("who: elicitation/create: Who?"), "{call:?}");
        close(&daemon, "k");
        daemon.finish();
    });
}
