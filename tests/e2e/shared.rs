//! Shared servers behind one endpoint: `attach KEY` and `attach KEY/SERVER`. What each case says through it is held in `cases_run`.
//!
//! How the guards of these tests were seen to fail: without `session_over` at a quarantine, `g39_a_quarantined_session` finds the client's stream
//! open; with what follows from `client_lost` not carried out, `a_killed_client` finds no cancellation; with the client always taken for the first to
//! end, `g11_calls_in_flight_are_finished` finds the status 0.
use crate::frozen::Freezer;
use crate::support::{assert_closed, case, kind, main_pid, on_both};
use mcpvisor_testkit::{
    Containment, Daemon, SOON, Scene, Setup, Signal, Stdio, eventually, handshake, procfs, send_signal,
    shell_status,
};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

fn start(scene: &Arc<Scene>, containment: Containment, drain: &str) -> Daemon {
    let timeouts = format!(
        "[timeouts]\nstdin_grace = \"300ms\"\nterm_grace = \"300ms\"\ndrain = \"{drain}\"\nstart = \"20s\""
    );
    Daemon::start(scene, &Setup::on(containment).config(&timeouts))
}

/// A session `k` with servers of these cases, named `a`, `b` and so on.
fn open(daemon: &Daemon, scene: &Scene, cases: &[&str], words: &[&str], env: &[(&str, &str)]) -> Value {
    let mut command = daemon.command(scene, &["open", "k"]).args(words);
    for (name, path) in ["a", "b", "c"].iter().zip(cases) {
        command = command.args(["--server", &format!("{name}=python3 {}", case(path))]);
    }
    for (name, value) in env {
        command = command.args(["--env", &format!("{name}={value}")]);
    }
    command.output().ok()
}

fn attach(daemon: &Daemon, scene: &Scene, target: &str) -> Stdio {
    let socket = daemon.socket().to_string_lossy().into_owned();
    Stdio::start(scene.mcpvisor(&["--socket", &socket, "attach", target]))
}

fn in_flight(daemon: &Daemon) -> Value {
    daemon.cli(&["show", "k"]).ok()["in_flight"].clone()
}

fn lines(client: &Stdio) -> Vec<Value> {
    let bytes = client.bytes();
    bytes
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_slice(line).expect("only JSON is said"))
        .collect()
}

/// All answers to a call.
fn answers(client: &Stdio, id: u64) -> Vec<Value> {
    lines(client)
        .into_iter()
        .filter(|message| message["id"] == json!(id) && message.get("method").is_none())
        .collect()
}

fn tools(client: &mut Stdio) -> Vec<String> {
    let id = client.request("tools/list", json!({}));
    let answer = client.answer(id, SOON).expect("the list comes");
    let tools = answer["result"]["tools"].as_array().unwrap_or_else(|| panic!("no tools: {answer}")).clone();
    tools.iter().map(|tool| tool["name"].as_str().expect("a name").to_owned()).collect()
}

fn echo(client: &mut Stdio, tool: &str, text: &str) {
    let answer = client.call_tool(tool, &json!({ "text": text }));
    assert_eq!(answer["result"]["content"][0]["text"], text, "{answer}");
}

/// The client is gone: nothing of it is left in the session.
fn leaves(daemon: &Daemon, mut client: Stdio) {
    client.close_stdin();
    assert_eq!(shell_status(client.wait(SOON)), 0);
    assert_eq!(daemon.cli(&["show", "k"]).ok()["attached"], 0);
}

#[track_caller]
fn closes(daemon: Daemon, containment: Containment) {
    let certificate = crate::support::close(&daemon, "k");
    assert_closed(&certificate, containment);
    daemon.finish();
}

/// Several servers, each name by the rule of the open; one of them alone; one client after the other.
fn several(scene: &Arc<Scene>, containment: Containment) {
    let daemon = start(scene, containment, "1s");
    for (rule, names) in [
        (None, &["a__echo", "b__echo", "probe"][..]),
        (Some("on-conflict"), &["a__echo", "b__echo", "probe"]),
        (Some("always"), &["a__echo", "b__echo", "c__echo", "c__probe"]),
        (Some("never"), &["echo", "probe"]),
    ] {
        let words: Vec<&str> = rule.map(|rule| vec!["--prefix", rule]).unwrap_or_default();
        let cases = ["34-out-of-order", "20-tiny-writes", "29-probe"];
        open(&daemon, scene, &cases, &words, &[]);
        let mut client = attach(&daemon, scene, "k");
        let hello = client.initialize();
        assert_eq!(hello["result"]["serverInfo"]["name"], "mcpvisor", "{hello}");
        let found = tools(&mut client);
        let echoes: Vec<&str> = found.iter().map(String::as_str).collect();
        if rule == Some("on-conflict") || rule.is_none() {
            assert!(echoes.starts_with(&["a__echo", "b__echo"]), "{echoes:?}");
        }
        assert!(
            names.iter().all(|name| echoes.contains(name) || name.starts_with("c__echo")),
            "{rule:?}: {echoes:?}"
        );
        let first = *echoes.iter().find(|name| name.ends_with("echo")).expect("an echo");
        let answer = client.call_tool(first, &json!({"text": "x"}));
        assert!(answer["result"]["content"][0]["text"].is_string(), "{answer}");
        let unknown = client.call_tool("nobody's", &json!({}));
        assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
        leaves(&daemon, client);
        let mut one = attach(&daemon, scene, "k/a");
        let hello = one.initialize();
        assert_eq!(
            hello["result"]["serverInfo"]["name"], "34-out-of-order.py",
            "it looks like that server: {hello}"
        );
        let own = if rule == Some("always") { "a__echo" } else { "echo" };
        assert_eq!(tools(&mut one), [own]);
        echo(&mut one, own, "y");
        leaves(&daemon, one);
        daemon.cli(&["close", "k"]).ok();
    }
    daemon.finish();
}

/// The same of a profile.
fn profile(scene: &Arc<Scene>, containment: Containment) {
    let (a, b) = (case("34-out-of-order"), case("20-tiny-writes"));
    let mut config = String::from("[timeouts]\nstdin_grace = \"300ms\"\n");
    for rule in ["on-conflict", "always", "never"] {
        config.push_str(&format!("[profiles.{rule}]\nprefix = \"{rule}\"\n"));
        for (name, path) in [("a", &a), ("b", &b)] {
            config.push_str(&format!(
                "[profiles.{rule}.servers.{name}]\ncommand = \"python3\"\nargs = [\"{path}\"]\n"
            ));
        }
    }
    let daemon = Daemon::start(scene, &Setup::on(containment).config(&config));
    for (rule, names) in [
        ("on-conflict", &["a__echo", "b__echo"][..]),
        ("always", &["a__echo", "b__echo"]),
        ("never", &["echo"]),
    ] {
        daemon.command(scene, &["open", "k", "--profile", rule]).output().ok();
        let mut client = attach(&daemon, scene, "k");
        client.initialize();
        assert_eq!(tools(&mut client), names);
        let tool = names[names.len() - 1];
        // Of several that have it the last one answers, which adds to the text.
        let answer = client.call_tool(tool, &json!({"text": "x"}));
        assert_eq!(answer["result"]["content"][0]["text"], "x \u{e9}\u{6f22}\u{1f389}", "{rule}: {answer}");
        leaves(&daemon, client);
        daemon.cli(&["close", "k"]).ok();
    }
    daemon.finish();
}

/// Ids and tokens come back with their type and their text, whatever servers make of ours.
fn ids(scene: &Arc<Scene>, containment: Containment) {
    let daemon = start(scene, containment, "1s");
    open(&daemon, scene, &["34-out-of-order", "14-string-id"], &[], &[]);
    let socket = daemon.socket().to_string_lossy().into_owned();
    let mut process = scene.mcpvisor(&["--socket", &socket, "attach", "k"]).spawn();
    let mut stdin = process.take_stdin().expect("a pipe");
    let mut hear = BufReader::new(process.take_stdout().expect("a pipe"));
    let mut next = || {
        let mut line = String::new();
        hear.read_line(&mut line).expect("the client is told");
        line
    };
    writeln!(stdin, "{}", json!({"jsonrpc":"2.0","id":"hello","method":"initialize","params":handshake()}))
        .expect("it is read");
    assert!(next().starts_with("{\"jsonrpc\":\"2.0\",\"id\":\"hello\",\"result\":"));
    for id in ["1", "\"1\"", "1.0", "1e0", "-7", "12345678901234567890123", r#""\u0041 \"b\"""#] {
        for tool in ["a__echo", "b__echo"] {
            writeln!(stdin, r#"{{"params":{{"arguments":{{"text":"t"}},"name":"{tool}"}},"method":"tools/call","id":{id},"jsonrpc":"2.0"}}"#).expect("it is read");
            let line = next();
            assert!(line.contains(&format!("\"id\":{id},")), "{id}: {line}");
            assert_eq!(
                serde_json::from_str::<Value>(&line).expect("JSON")["result"]["content"][0]["text"],
                "t"
            );
        }
    }
    // One that waits is refused a second time.
    for _ in 0..2 {
        writeln!(stdin, r#"{{"jsonrpc":"2.0","id":1.0,"method":"tools/call","params":{{"name":"a__echo","arguments":{{"text":"t","delay_ms":300}}}}}}"#).expect("it is read");
    }
    let mut both = [next(), next()];
    both.sort();
    assert!(
        both[0].contains("-32600")
            && both[1].contains("\"result\"")
            && both.iter().all(|line| line.contains("\"id\":1.0")),
        "{both:?}"
    );
    drop(stdin);
    assert_eq!(shell_status(process.wait(SOON)), 0);
    closes(daemon, containment);
}

/// A call in flight at the close is finished within the drain, and has its one answer; a later one is refused; the session is first to end.
fn finishes(scene: &Arc<Scene>, containment: Containment) {
    let daemon = start(scene, containment, "20s");
    open(&daemon, scene, &["34-out-of-order", "34-out-of-order"], &[], &[]);
    let mut client = attach(&daemon, scene, "k");
    client.initialize();
    let slow: Vec<u64> = ["a__echo", "b__echo", "a__echo"]
        .iter()
        .map(|tool| {
            client
                .request("tools/call", json!({"name": tool, "arguments": {"text": "slow", "delay_ms": 3000}}))
        })
        .collect();
    eventually("the calls are counted", SOON, || in_flight(&daemon) == json!(3));
    let rpc = daemon.connect();
    let close = rpc.send("session/close", &json!({"key": "k"}));
    eventually("the session drains", SOON, || daemon.cli(&["show", "k"]).ok()["state"] == "draining");
    let late: Vec<u64> = ["tools/call", "tools/list"]
        .iter()
        .map(|method| client.request(method, json!({"name": "a__echo", "arguments": {"text": "b"}})))
        .collect();
    for id in &late {
        let refused = client.answer(*id, SOON).expect("a refused call is answered");
        assert_eq!((kind(&refused["error"]), &refused["error"]["code"]), ("session_closing", &json!(1004)));
    }
    let report = close.wait(SOON).expect("it is closed");
    assert_eq!(report["results"][0]["drained"], json!({"finished": 3, "cancelled": 0}), "{report}");
    assert!(client.output_ends(SOON), "its stream ends with the session");
    for id in &slow {
        let told = answers(&client, *id);
        assert!(told.len() == 1 && told[0].get("result").is_some(), "{told:?}");
    }
    assert!(late.iter().all(|id| answers(&client, *id).len() == 1));
    assert_eq!(shell_status(client.wait(SOON)), 1, "the session ended first");
    drop(rpc);
    daemon.finish();
}

/// A call that outlasts the drain is cancelled at its server and answered with one error. What servers ask is settled when the drain begins:
/// the call that waited for that is finished by its server, within the drain.
fn outlasts(scene: &Arc<Scene>, containment: Containment) {
    let daemon = start(scene, containment, "300ms");
    open(&daemon, scene, &["16-ignore-cancel", "15-server-requests"], &[], &[("BUG_DELAY", "30")]);
    let mut client = attach(&daemon, scene, "k");
    let capabilities = json!({"roots": {}, "sampling": {}, "elicitation": {}});
    let mut hello = handshake();
    hello["capabilities"] = capabilities;
    let id = client.request("initialize", hello);
    assert!(client.answer(id, SOON).is_some());
    client.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    let calls = ["a__echo", "b__echo"]
        .map(|tool| client.request("tools/call", json!({"name": tool, "arguments": {"text": "x"}})));
    for asked in ["roots/list", "sampling/createMessage", "elicitation/create"] {
        let there = |bytes: &[u8]| String::from_utf8_lossy(bytes).contains(asked).then_some(());
        assert!(client.wait_for(SOON, there).is_some(), "{asked} comes");
    }
    let closed = daemon.cli(&["close", "k"]).ok();
    let report = &closed["results"][0];
    assert_closed(report, containment);
    assert_eq!(report["drained"], json!({"finished": 1, "cancelled": 1}), "{report}");
    assert!(client.output_ends(SOON));
    let [outlasted, asked] = calls.map(|id| answers(&client, id));
    assert_eq!((outlasted.len(), asked.len()), (1, 1), "{outlasted:?} {asked:?}");
    assert_eq!((kind(&outlasted[0]["error"]), &outlasted[0]["error"]["code"]), ("cancelled", &json!(1013)));
    let text = asked[0]["result"]["content"][0]["text"].as_str().expect("what came back of what it asked");
    assert_eq!(text.matches("error 1004").count(), 3, "{text}");
    assert_eq!(shell_status(client.wait(SOON)), 1);
    let logs = daemon.cli(&["logs", "k"]).text();
    assert!(logs.contains("ignoring the cancel of 'mcpvisor-"), "the server is told: {logs}");
    daemon.finish();
}

/// What servers ask is asked of the client, and answered where it is not able to.
fn asks(scene: &Arc<Scene>, containment: Containment) {
    let daemon = start(scene, containment, "1s");
    open(&daemon, scene, &["15-server-requests", "34-out-of-order"], &[], &[]);
    let mut without = attach(&daemon, scene, "k");
    without.initialize();
    let refused = r#"{"srv-elicit": "error -32601", "srv-ping": "result", "srv-roots": "error -32601", "srv-sample": "error -32601"}"#;
    let answer = without.call_tool("a__echo", &json!({}));
    assert_eq!(answer["result"]["content"][0]["text"], refused, "{answer}");
    leaves(&daemon, without);
    let mut with = attach(&daemon, scene, "k");
    let mut hello = handshake();
    hello["capabilities"] = json!({"roots": {}, "elicitation": {"form": {}}});
    let id = with.request("initialize", hello);
    assert!(with.answer(id, SOON).is_some());
    with.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    let call = with.request("tools/call", json!({"name": "a__echo", "arguments": {}}));
    for asked in ["roots/list", "elicitation/create"] {
        let its = |bytes: &[u8]| {
            let lines = bytes
                .split(|byte| *byte == b'\n')
                .filter_map(|line| serde_json::from_slice::<Value>(line).ok());
            lines.into_iter().find(|message| message["method"] == asked).map(|message| message["id"].clone())
        };
        let theirs = with.wait_for(SOON, its).expect("it is asked");
        with.send(&json!({"jsonrpc": "2.0", "id": theirs, "result": {}}));
    }
    let answer = with.answer(call, SOON).expect("the call is answered");
    let told = r#"{"srv-elicit": "result", "srv-ping": "result", "srv-roots": "result", "srv-sample": "error -32601"}"#;
    assert_eq!(answer["result"]["content"][0]["text"], told, "{answer}");
    leaves(&daemon, with);
    closes(daemon, containment);
}

/// The shim is killed in a call: the server hears of it, the session stays, and another client comes.
fn killed(scene: &Arc<Scene>, containment: Containment) {
    let daemon = start(scene, containment, "20s");
    open(&daemon, scene, &["16-ignore-cancel", "34-out-of-order"], &[], &[("BUG_DELAY", "30")]);
    for round in 1..=3 {
        let mut client = attach(&daemon, scene, "k");
        client.initialize();
        client.request("tools/call", json!({"name": "a__echo", "arguments": {"text": "x"}}));
        eventually("the call is counted", SOON, || in_flight(&daemon) == json!(1));
        let since = Instant::now();
        client.process().signal(Signal::KILL);
        let told = || {
            daemon.cli(&["logs", "k"]).text().matches("ignoring the cancel of 'mcpvisor-").count() == round
        };
        eventually("the server is told", SOON, told);
        eventually("its place is free", SOON, || daemon.cli(&["show", "k"]).ok()["attached"] == 0);
        assert!(since.elapsed() < Duration::from_secs(10), "nobody waits for a lost client's calls");
        assert_eq!(in_flight(&daemon), json!(0));
        client.process().wait(SOON);
    }
    let session = daemon.cli(&["show", "k"]).ok();
    assert_eq!((&session["state"], &session["servers"][0]["restarts"]), (&json!("ready"), &json!(0)));
    closes(daemon, containment);
}

/// A server dies in a call: that call has its error, the other server goes on, and the client hears when its lists may be others.
fn dies(scene: &Arc<Scene>, containment: Containment) {
    let daemon = start(scene, containment, "1s");
    let opened = open(&daemon, scene, &["11-dies-mid-call", "34-out-of-order"], &[], &[]);
    let mut client = attach(&daemon, scene, "k");
    client.initialize();
    let slow = client
        .request("tools/call", json!({"name": "b__echo", "arguments": {"text": "slow", "delay_ms": 1000}}));
    let answer = client.call_tool("a__echo", &json!({"partial": true}));
    assert_eq!(
        (kind(&answer["error"]), &answer["error"]["code"]),
        ("server_exited", &json!(1015)),
        "{answer}"
    );
    assert!(client.answer(slow, SOON).expect("the other goes on").get("result").is_some());
    let changed = |bytes: &[u8]| {
        String::from_utf8_lossy(bytes).contains("notifications/tools/list_changed").then_some(())
    };
    assert!(client.wait_for(SOON, changed).is_some(), "it runs again");
    assert_eq!(tools(&mut client), ["a__echo", "b__echo"]);
    // Killed from outside, with nothing in flight.
    let first = main_pid(&daemon.cli(&["show", "k"]).ok());
    assert_ne!(first, main_pid(&opened));
    send_signal(first, Signal::KILL);
    let changed = |bytes: &[u8]| {
        (String::from_utf8_lossy(bytes).matches("notifications/tools/list_changed").count() == 2)
            .then_some(())
    };
    assert!(client.wait_for(SOON, changed).is_some(), "it runs again");
    echo(&mut client, "b__echo", "still here");
    let mut ids: Vec<String> = lines(&client)
        .iter()
        .filter(|line| line.get("method").is_none())
        .map(|line| line["id"].to_string())
        .collect();
    let count = ids.len();
    ids.dedup();
    assert_eq!(ids.len(), count, "each is answered once");
    leaves(&daemon, client);
    closes(daemon, containment);
}

/// A client that reads nothing is cut; nobody else waits for it, and a close takes as long as any other.
fn slow_reader(scene: &Arc<Scene>, containment: Containment) {
    let timeouts =
        "[timeouts]\nstdin_grace = \"300ms\"\nterm_grace = \"300ms\"\ndrain = \"1s\"\nstart = \"20s\"";
    let daemon = Daemon::start(scene, &Setup::on(containment).config(timeouts).daemon("max_line = \"1M\""));
    open(&daemon, scene, &["13-notify-flood", "34-out-of-order"], &[], &[("BUG_COUNT", "100000000")]);
    let socket = daemon.socket().to_string_lossy().into_owned();
    let mut process = scene.mcpvisor(&["--socket", &socket, "attach", "k"]).spawn();
    let mut stdin = process.take_stdin().expect("a pipe");
    let unread = process.take_stdout().expect("a pipe");
    writeln!(stdin, "{}", json!({"jsonrpc":"2.0","id":0,"method":"initialize","params":handshake()}))
        .expect("it is read");
    let call = || daemon.cli(&["call", "k", "b__echo", "text=beside"]).ok();
    let is_cut = || {
        assert_eq!(call()["content"][0]["text"], "beside");
        daemon.log().contains("a client was cut: it does not read what it is told")
    };
    eventually("the client is cut", SOON, is_cut);
    eventually("its place is free", SOON, || daemon.cli(&["show", "k"]).ok()["attached"] == 0);
    let memory = procfs::anonymous_kib(daemon.pid()).expect("the daemon lives");
    assert!(memory < 64 << 10, "{memory} KiB");
    assert_eq!(shell_status(process.wait(SOON)), 1, "the daemon was the first to end it");
    // Another one that reads nothing does not keep a close.
    let mut second = scene.mcpvisor(&["--socket", &socket, "attach", "k"]).spawn();
    let mut says = second.take_stdin().expect("a pipe");
    writeln!(says, "{}", json!({"jsonrpc":"2.0","id":0,"method":"initialize","params":handshake()}))
        .expect("it is read");
    eventually("it is attached", SOON, || {
        second.has_ended() || daemon.cli(&["show", "k"]).ok()["attached"] == 1
    });
    let since = Instant::now();
    let closed = daemon.cli(&["close", "k"]).ok();
    assert_eq!(closed["results"][0]["outcome"], "closed", "{closed}");
    assert!(since.elapsed() < Duration::from_secs(8), "{:?}", since.elapsed());
    second.signal(Signal::KILL);
    second.wait(SOON);
    drop((unread, stdin, says));
    daemon.finish();
}

/// Over the connection itself; a second client is refused, and may come later.
fn over_the_connection(scene: &Arc<Scene>, containment: Containment) {
    let daemon = start(scene, containment, "1s");
    open(&daemon, scene, &["34-out-of-order", "34-out-of-order"], &[], &[]);
    let mut stream = UnixStream::connect(daemon.socket()).expect("the daemon listens");
    stream.set_read_timeout(Some(SOON)).expect("a socket has timeouts");
    let mut lines = BufReader::new(stream.try_clone().expect("a descriptor")).lines();
    let mut next =
        || -> Value { serde_json::from_str(&lines.next().expect("a line").expect("a line")).expect("JSON") };
    let request = json!({"jsonrpc":"2.0","id":"a","method":"session/attach","params":{"key":"k"}});
    let initialize = json!({"jsonrpc":"2.0","id":0,"method":"initialize","params":handshake()});
    write!(stream, "{request}\n{initialize}\n").expect("the daemon reads");
    assert_eq!(next()["id"], "a");
    assert!(next()["result"]["capabilities"]["tools"].is_object());
    writeln!(stream, "{}", json!({"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"b__echo","arguments":{"text":"t"}}})).expect("it is read");
    assert_eq!(next()["result"]["content"][0]["text"], "t");
    let second = daemon.cli(&["attach", "k"]).fails(1);
    assert_eq!(second["kind"], "unsupported", "{second}");
    for words in [&["tools", "k"][..], &["call", "k", "a__echo", "text=beside"]] {
        daemon.cli(words).ok();
    }
    drop((stream, lines));
    eventually("its place is free", SOON, || daemon.cli(&["show", "k"]).ok()["attached"] == 0);
    let mut client = attach(&daemon, scene, "k");
    client.initialize();
    echo(&mut client, "a__echo", "now");
    leaves(&daemon, client);
    closes(daemon, containment);
}

/// A client that ends its stream at once after its calls has their answers, and as soon as it has left another may come.
fn half_closed(scene: &Arc<Scene>, containment: Containment) {
    let daemon = start(scene, containment, "20s");
    open(&daemon, scene, &["34-out-of-order", "34-out-of-order"], &[], &[]);
    for _ in 0..5 {
        let mut client = attach(&daemon, scene, "k");
        client.request("initialize", handshake());
        let calls: Vec<u64> = ["a__echo", "b__echo"]
            .iter()
            .map(|tool| {
                client
                    .request("tools/call", json!({"name": tool, "arguments": {"text": "x", "delay_ms": 200}}))
            })
            .collect();
        client.close_stdin();
        assert_eq!(shell_status(client.wait(SOON)), 0);
        assert!(client.output_ends(SOON));
        for id in calls {
            let told = answers(&client, id);
            assert!(told.len() == 1 && told[0].get("result").is_some(), "{told:?}");
        }
    }
    closes(daemon, containment);
}

/// The daemon is ended with a client attached: its call is answered, its stream ends, and the daemon ends well.
fn shutdown(scene: &Arc<Scene>, containment: Containment) {
    let mut daemon = start(scene, containment, "500ms");
    open(&daemon, scene, &["34-out-of-order", "16-ignore-cancel"], &[], &[("BUG_DELAY", "30")]);
    let mut client = attach(&daemon, scene, "k");
    client.initialize();
    let quick =
        client.request("tools/call", json!({"name": "a__echo", "arguments": {"text": "x", "delay_ms": 100}}));
    let stuck = client.request("tools/call", json!({"name": "b__echo", "arguments": {"text": "x"}}));
    assert!(client.answer(quick, SOON).is_some());
    daemon.process().signal(Signal::TERM);
    assert!(client.output_ends(SOON), "its stream ends");
    let told = answers(&client, stuck);
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(kind(&told[0]["error"]), "cancelled");
    client.wait(SOON);
    assert_eq!(daemon.process().wait(SOON).code(), Some(0));
    assert_eq!(daemon.complaints(), Vec::<String>::new());
    for (role, pid) in scene.noted() {
        assert!(!procfs::is_alive(pid), "{role} {pid} is left");
    }
}

/// A client does not wait for the kernel: its conversation is over when the session is quarantined.
fn quarantined(scene: &Arc<Scene>, containment: Containment) {
    let Some(freezer) = Freezer::create(&format!("g39s-{containment}")) else { return };
    let setup = Setup::on(containment).allow_error("session is quarantined").config(
        "[timeouts]\nstdin_grace = \"200ms\"\nterm_grace = \"200ms\"\nkill_wait = \"500ms\"\ndrain = \"300ms\"\nstart = \"20s\"",
    );
    let daemon = Daemon::start(scene, &setup);
    let opened = open(&daemon, scene, &["34-out-of-order", "34-out-of-order"], &[], &[]);
    let mut client = attach(&daemon, scene, "k");
    client.initialize();
    freezer.freeze(main_pid(&opened));
    let stuck = client.request("tools/call", json!({"name": "a__echo", "arguments": {"text": "x"}}));
    eventually("the call is counted", SOON, || in_flight(&daemon) == json!(1));
    let closed = daemon.cli(&["close", "k"]);
    assert_ne!(closed.status, 0, "{closed:?}");
    assert!(client.output_ends(SOON), "its stream ends though a server of the session is left");
    let told = answers(&client, stuck);
    assert_eq!((told.len(), kind(&told[0]["error"])), (1, "cancelled"), "{told:?}");
    assert_eq!(shell_status(client.wait(SOON)), 1);
    assert_eq!(daemon.status()["sessions"]["quarantined"], 1);
    drop(freezer);
    eventually("the end of what was frozen", SOON, || daemon.status()["sessions"]["used"] == 0);
    daemon.finish();
}

/// A modern server: both revisions in the error for a legacy client, which may go on with `server/discover`.
fn eras(scene: &Arc<Scene>, containment: Containment) {
    let daemon = start(scene, containment, "1s");
    open(&daemon, scene, &["36-modern-only", "34-out-of-order"], &[], &[]);
    let mut old = attach(&daemon, scene, "k/a");
    let id = old.request("initialize", handshake());
    let refused = old.answer(id, SOON).expect("it is refused");
    let message = refused["error"]["message"].as_str().unwrap_or_default();
    assert_eq!(refused["error"]["code"], -32022, "{refused}");
    assert!(message.contains("2025-06-18") && message.contains("2026-07-28"), "{refused}");
    let meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}});
    let id = old.request("server/discover", json!({"_meta": meta}));
    assert!(old.answer(id, SOON).expect("it is answered").get("result").is_some());
    let id =
        old.request("tools/call", json!({"name": "echo", "arguments": {"text": "modern"}, "_meta": meta}));
    assert_eq!(old.answer(id, SOON).expect("it is answered")["result"]["content"][0]["text"], "modern");
    leaves(&daemon, old);
    // Of both a client sees those that speak as it does.
    let mut legacy = attach(&daemon, scene, "k");
    legacy.initialize();
    assert_eq!(tools(&mut legacy), ["echo"]);
    echo(&mut legacy, "echo", "legacy");
    leaves(&daemon, legacy);
    closes(daemon, containment);
}

on_both! {
    g27_several_servers_are_one = several;
    the_prefix_of_a_profile = profile;
    g42_ids_of_any_kind = ids;
    g11_calls_in_flight_are_finished = finishes;
    g11_g19_what_outlasts_the_drain = outlasts;
    servers_ask_the_client = asks;
    a_killed_client = killed;
    g11_a_server_that_dies = dies;
    g39_a_client_that_does_not_read = slow_reader;
    g42_over_the_connection = over_the_connection;
    a_client_that_half_closes = half_closed;
    g35_a_shutdown_with_a_client = shutdown;
    g39_a_quarantined_session = quarantined;
    eras_and_their_revisions = eras;
}
