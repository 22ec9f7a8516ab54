//! The client against a daemon that says what the test wants: exit statuses, what goes to stdout, what to stderr.
use mcpvisor_control::message::{Message, error_response, notification, response};
use mcpvisor_control::{ErrorKind, ErrorObject, Id};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, Stdio};
use std::thread::JoinHandle;

/// What the daemon sends when it has got this request.
type Says = fn(id: &Id, method: &str, params: &Value) -> Vec<Vec<u8>>;

struct Outcome {
    status: i32,
    stdout: String,
    stderr: String,
    /// Method and parameters of what was asked.
    asked: Vec<(String, Value)>,
}

impl Outcome {
    fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {}", self.stdout))
    }
}

fn serve(stream: &UnixStream, says: Says) -> Vec<(String, Value)> {
    let mut asked = Vec::new();
    for line in BufReader::new(stream).lines().map_while(Result::ok) {
        let Ok(Message::Request { id, method, params }) = Message::parse(line.as_bytes()) else { continue };
        let params = params.map_or(Value::Null, |raw| serde_json::from_str(raw.get()).expect("it is JSON"));
        for line in says(&id, &method, &params) {
            let mut stream = stream;
            // A client that has what it wants may be gone.
            let _ = stream.write_all(&line);
        }
        asked.push((method, params));
    }
    asked
}

#[expect(clippy::disallowed_methods, reason = "the client under test is a process, ended by its own means")]
fn client() -> Command {
    Command::new(env!("CARGO_BIN_EXE_mcpvisor"))
}

fn mcpvisor(args: &[&str], says: Says) -> Outcome {
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    let path = dir.path().join("control.sock");
    let listener = UnixListener::bind(&path).expect("a socket can be bound there");
    let daemon: JoinHandle<_> = std::thread::spawn(move || match listener.accept() {
        Ok((stream, _)) => serve(&stream, says),
        Err(_) => Vec::new(),
    });
    let output = client()
        .args(args)
        .env("MCPVISOR_SOCKET", &path)
        .env("FOR_SERVERS", "yes")
        .stdin(Stdio::null())
        .output()
        .expect("the client runs");
    // Where the client never connected, this ends the wait for it.
    drop(UnixStream::connect(&path));
    Outcome {
        status: output.status.code().expect("it was not killed"),
        stdout: String::from_utf8(output.stdout).expect("output is UTF-8"),
        stderr: String::from_utf8(output.stderr).expect("output is UTF-8"),
        asked: daemon.join().expect("the daemon did not panic"),
    }
}

fn say(id: &Id, result: &Value) -> Vec<Vec<u8>> {
    vec![response(id, result).expect("it is JSON")]
}

fn refuse(id: &Id, kind: ErrorKind) -> Vec<Vec<u8>> {
    let error = ErrorObject::new(kind, "because\u{1b}[31m").with("key", "a");
    vec![error_response(Some(id), &error)]
}

fn report(params: &Value, outcome: &str) -> Value {
    json!({"results": [{
        "key": params["key"], "generation": params["generation"].as_u64().unwrap_or(1), "outcome": outcome, "proof": "cgroup",
        "reason": "requested", "drained": null, "duration_ms": 1.0, "servers": [],
        "remaining": [], "acknowledged_after_us": 1, "failure": null, "new_field": 7
    }]})
}

fn session(key: &str, state: &str) -> Value {
    json!({
        "key": key, "generation": 3, "state": state, "owner": {"uid": 0}, "tenant": null, "labels": {"team": key},
        "parent": null, "created_at": "2026-01-02T03:04:05.678Z", "lease": "none", "attached": 0, "in_flight": 0,
        "containment": "cgroup", "servers": [], "created": true, "new_field": 7
    })
}

/// Answers by key: `q…` is quarantined, `n…` is not found, `e…` is refused, all else is closed.
fn closer(id: &Id, method: &str, params: &Value) -> Vec<Vec<u8>> {
    match (method, params["key"].as_str().unwrap_or_default()) {
        ("session/list", _) => say(
            id,
            &json!({"sessions": [session("a", "ready"), session("b", "ready"), session("c", "closed")]}),
        ),
        (_, key) if key.starts_with('q') => say(id, &report(params, "quarantined")),
        (_, key) if key.starts_with('n') => refuse(id, ErrorKind::NotFound),
        (_, key) if key.starts_with('e') => refuse(id, ErrorKind::Internal),
        _ => say(id, &report(params, "closed")),
    }
}

#[test]
fn of_several_closes_each_has_a_result_and_the_worst_gives_the_status() {
    for (keys, status) in
        [(&["a"][..], 0), (&["n"], 4), (&["a", "n"], 4), (&["n", "e", "a"], 1), (&["e", "q", "n", "a"], 8)]
    {
        let outcome = mcpvisor(&[&["close", "--json"], keys].concat(), closer);
        assert_eq!(outcome.status, status, "{keys:?}");
        let results = outcome.json()["results"].as_array().expect("there are results").clone();
        let told: Vec<_> = results.iter().map(|result| result["key"].as_str().unwrap_or_default()).collect();
        assert_eq!(told, keys);
    }
    let outcome = mcpvisor(&["close", "--json", "n@2"], closer);
    let result = &outcome.json()["results"][0];
    assert_eq!((&result["outcome"], &result["generation"]), (&json!("not_found"), &json!(2)));
    assert!(
        result.as_object().is_some_and(|result| result["proof"].is_null() && result.contains_key("proof"))
    );
    // What the daemon adds later passes through.
    assert_eq!(mcpvisor(&["close", "--json", "a"], closer).json()["results"][0]["new_field"], 7);
}

#[test]
fn the_only_close_that_is_refused_is_a_failure() {
    let outcome = mcpvisor(&["close", "e", "--json"], closer);
    assert_eq!((outcome.status, &outcome.json()["error"]["kind"]), (1, &json!("internal")));
    let outcome = mcpvisor(&["close", "e"], closer);
    assert!(outcome.stdout.is_empty());
    assert!(outcome.stderr.contains("failed to close session e: because\\x1b[31m"), "{}", outcome.stderr);
}

#[test]
fn a_selector_means_the_generations_that_there_are_now() {
    let outcome = mcpvisor(&["close", "--all", "--now", "--no-wait"], closer);
    let closes: Vec<_> = outcome.asked.iter().filter(|(method, _)| method == "session/close").collect();
    let meant: Vec<_> =
        closes.iter().map(|(_, params)| (params["key"].clone(), params["generation"].clone())).collect();
    assert_eq!(meant, [(json!("a"), json!(3)), (json!("b"), json!(3))]);
    assert!(closes.iter().all(|(_, params)| params["now"] == true && params["wait"] == false));
    assert_eq!(mcpvisor(&["close", "--label", "team=b"], closer).asked.len(), 2);
    let none = mcpvisor(&["close", "--tenant", "x", "--json"], closer);
    assert_eq!((none.status, none.json()), (0, json!({"results": []})));
}

#[test]
fn each_kind_of_error_has_its_exit_status_and_its_json() {
    macro_rules! kinds {
        ($($kind:ident: $status:literal,)*) => {
            $({
                let outcome = mcpvisor(&["show", "a", "--json"], |id, _, _| refuse(id, ErrorKind::$kind));
                assert_eq!(outcome.status, $status, "{}", ErrorKind::$kind);
                let error = &outcome.json()["error"];
                assert_eq!(error["kind"], ErrorKind::$kind.as_str());
                assert_eq!((&error["message"], &error["data"]["key"]), (&json!("because\u{1b}[31m"), &json!("a")));
                assert!(outcome.stderr.is_empty());
            })*
        };
    }
    kinds! {
        InvalidRequest: 2, NotFound: 4, PermissionDenied: 7, SessionExists: 5, SessionClosing: 5, SessionClosed: 1,
        SessionFailed: 1, StaleGeneration: 1, CapacityExhausted: 5, Overloaded: 5, AlreadyDecided: 5, Draining: 5, StartFailed: 1,
        StartTimeout: 1, Cancelled: 1, DeadlineExceeded: 3, ServerExited: 1, Quarantined: 8, Unsupported: 1, ServerError: 1,
        Internal: 1,
    }
}

#[test]
fn wait_tells_reached_from_not_yet() {
    fn waited(id: &Id, reached: bool) -> Vec<Vec<u8>> {
        say(
            id,
            &json!({"key": "a", "generation": 1, "state": "ready", "reached": reached, "certificate": null}),
        )
    }
    let outcome = mcpvisor(&["wait", "a", "--for", "ready", "--timeout", "5s"], |id, _, _| waited(id, true));
    assert_eq!((outcome.status, outcome.stdout.as_str()), (0, "a@1 ready\n"));
    assert_eq!(outcome.asked[0].1, json!({"key": "a", "for": "ready", "deadline_ms": 5000}));
    assert_eq!(mcpvisor(&["wait", "a"], |id, _, _| waited(id, false)).status, 3);
    assert_eq!(mcpvisor(&["wait", "a"], |id, _, _| refuse(id, ErrorKind::NotFound)).status, 4);
}

#[test]
fn a_daemon_that_says_nothing_is_given_up() {
    let outcome = mcpvisor(&["list", "--timeout", "10ms", "--json"], |_, _, _| Vec::new());
    assert_eq!((outcome.status, &outcome.json()["error"]["kind"]), (3, &json!("deadline_exceeded")));
}

#[test]
fn open_sends_what_its_commands_need_and_nothing_of_ours() {
    let opened: Says = |id, _, _| say(id, &session("a", "ready"));
    let outcome = mcpvisor(
        &[
            "open",
            "a",
            "--server",
            "one=x 'y z'",
            "--env",
            "B=2",
            "--cwd",
            "/",
            "--label",
            "k=v",
            "--json",
            "--",
            "cmd",
            "-v",
        ],
        opened,
    );
    assert_eq!((outcome.status, &outcome.json()["new_field"]), (0, &json!(7)));
    let params = &outcome.asked[0].1;
    assert_eq!(
        params["servers"],
        json!([{"name": "one", "command": ["x", "y z"]}, {"name": "main", "command": ["cmd", "-v"]}])
    );
    let environment: Vec<_> =
        params["environment"].as_array().expect("it is sent").iter().filter_map(Value::as_str).collect();
    assert!(environment.contains(&"FOR_SERVERS=yes") && environment.contains(&"B=2"));
    assert!(!environment.iter().any(|variable| variable.starts_with("MCPVISOR_")));
    assert_eq!(
        (&params["cwd"], &params["wait"], &params["labels"]),
        (&json!("/"), &json!(true), &json!({"k": "v"}))
    );
    assert!(params["umask"].is_u64() && params["resource_limits"].is_array());
    assert_eq!(mcpvisor(&["open", "--quiet", "--", "x"], opened).stdout, "a\n");
    let profile = mcpvisor(&["open", "a", "--profile", "p", "--arg", "x=y"], opened);
    assert_eq!(profile.asked[0].1["args"], json!({"x": "y"}));
    assert!(
        profile.asked[0].1.get("environment").is_none(),
        "a profile's servers get nothing of the client's"
    );
}

#[test]
fn a_lease_of_the_connection_stays_until_the_session_ends() {
    let outcome = mcpvisor(
        &["open", "a", "--lease", "connection", "--json", "--", "x"],
        |id, method, params| match method {
            "session/open" => say(id, &session("a", "ready")),
            _ => {
                let certificate = report(params, "closed")["results"][0].clone();
                say(
                    id,
                    &json!({"key": "a", "generation": 3, "state": "closed", "reached": true, "certificate": certificate}),
                )
            }
        },
    );
    assert_eq!(outcome.status, 0);
    let lines: Vec<Value> =
        outcome.stdout.lines().map(|line| serde_json::from_str(line).expect("it is JSON")).collect();
    assert_eq!(
        (&lines[0]["state"], &lines[1]["certificate"]["outcome"]),
        (&json!("ready"), &json!("closed"))
    );
    assert_eq!(
        outcome.asked[1],
        ("session/wait".to_owned(), json!({"key": "a", "generation": 3, "for": "closed"}))
    );
}

#[test]
fn a_tool_gets_its_arguments_and_its_error_is_a_failure() {
    let says: Says = |id, method, params| match method {
        "tool/list" => say(
            id,
            &json!({"tools": [{"name": "t", "server": "s", "inputSchema": {"properties": {"zip": {"type": "string"}}}}]}),
        ),
        _ => say(
            id,
            &json!({"content": [{"type": "text", "text": "got\u{7}"}], "isError": params["arguments"]["bad"] == true}),
        ),
    };
    let good = mcpvisor(&["call", "a", "t", "zip=01234", "n=5"], says);
    assert_eq!((good.status, good.stdout.as_str()), (0, "got\\x07\n"));
    assert_eq!(good.asked[1].1["arguments"], json!({"zip": "01234", "n": 5}));
    let bad = mcpvisor(&["call", "a", "t", "{\"bad\": true}", "--json"], says);
    assert_eq!((bad.status, &bad.json()["isError"], bad.asked.len()), (1, &json!(true), 1));
}

#[test]
fn a_value_that_does_not_fit_is_told_before_the_call() {
    let says: Says = |id, _, _| {
        let schema = json!({"properties": {"depth": {"type": "integer"}, "how": {"enum": ["up", "down"]}}});
        say(id, &json!({"tools": [{"name": "t", "server": "s", "inputSchema": schema}]}))
    };
    for (argument, wanted) in [("depth=deep", "a whole number"), ("how=left", "one of \"up\", \"down\"")] {
        let outcome = mcpvisor(&["call", "a", "t", argument, "--json"], says);
        assert_eq!((outcome.status, outcome.asked.len()), (2, 1), "{argument}: {:?}", outcome.asked);
        let message = outcome.json()["error"]["message"].to_string();
        assert!(message.contains(&wanted.replace('"', "\\\"")), "{message}");
    }
}

#[test]
fn what_is_no_text_in_a_result_is_saved_and_the_rest_is_shown() {
    let says: Says = |id, _, _| {
        say(
            id,
            &json!({"content": [
                {"type": "text", "text": "{\"n\": [1]}"},
                {"type": "image", "mimeType": "image/png", "data": "AAEC"},
                {"type": "resource", "resource": {"uri": "file:///x", "blob": "/w=="}},
                {"type": "resource_link", "uri": "file:///y", "name": "y"},
            ], "structuredContent": {"n": [1]}}),
        )
    };
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    let path = dir.path().to_str().expect("it is UTF-8").to_owned();
    std::fs::write(dir.path().join("a_b-1.png"), "mine").expect("it can be written");
    let outcome = mcpvisor(&["call", "k", "a/b", "--output", &path], says);
    assert_eq!(outcome.status, 0, "{}", outcome.stderr);
    assert_eq!(
        outcome.stdout,
        format!(
            "[image: image/png, 3 bytes: saved as {path}/a_b-2.png]\n\
             [resource: file:///x, 1 bytes: saved as {path}/a_b-3.bin]\n\
             [resource: file:///y, y]\n{{\n  \"n\": [\n    1\n  ]\n}}\n"
        )
    );
    assert_eq!(outcome.asked[0].1.get("progress"), None, "stderr is no terminal: nobody would see it");
    assert_eq!(std::fs::read(dir.path().join("a_b-1.png")).expect("it is there"), b"mine");
    assert_eq!(std::fs::read(dir.path().join("a_b-3.bin")).expect("it is there"), b"\xff");
    // With --json the result is passed on, and nothing is saved.
    let raw = mcpvisor(&["call", "k", "a/b", "--output", &path, "--json"], says);
    assert_eq!((raw.status, &raw.json()["content"][1]["data"]), (0, &json!("AAEC")));
    assert_eq!(std::fs::read_dir(dir.path()).expect("it is there").count(), 3);
    // A call may do what can't be done twice: a directory that is not there is told before it.
    let nowhere = mcpvisor(&["call", "k", "a/b", "--output", "/nonexistent"], says);
    assert_eq!((nowhere.status, nowhere.asked.len()), (2, 0), "{}", nowhere.stderr);
}

#[test]
fn a_server_that_wants_input_first_is_a_failure_with_a_hint() {
    let says: Says = |id, _, _| {
        let request = json!({"method": "elicitation/create", "params": {"message": "Which\u{1b} one?"}});
        say(
            id,
            &json!({"resultType": "input_required", "inputRequests": {"which": request}, "requestState": "x"}),
        )
    };
    let outcome = mcpvisor(&["call", "a", "t"], says);
    assert_eq!(outcome.status, 1);
    assert_eq!(outcome.stdout, "input is required:\n  which: elicitation/create: Which\\x1b one?\n");
    assert!(outcome.stderr.contains("was not carried out") && outcome.stderr.contains("mcpvisor attach a"));
    let raw = mcpvisor(&["call", "a", "t", "--json"], says);
    assert_eq!((raw.status, &raw.json()["requestState"], raw.stderr.as_str()), (1, &json!("x"), ""));
}

#[test]
fn logs_that_follow_are_one_line_each() {
    let says: Says = |id, _, _| {
        let line =
            |text: &str| json!({"server": "s", "at": "2026-01-02T03:04:05.678Z", "text": text, "dropped": 0});
        let note = |id: &Id, text| {
            notification("log", json!({"requestId": id, "line": line(text)})).expect("it is JSON")
        };
        let other = Id::Number(77);
        let end = response(id, json!({"lines": []})).expect("it is JSON");
        vec![note(id, "one"), note(&other, "another's"), note(id, "two"), end]
    };
    let outcome = mcpvisor(&["logs", "a/s", "-f", "-n", "5", "--json"], says);
    let texts: Vec<_> = outcome
        .stdout
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("it is JSON")["text"].clone())
        .collect();
    assert_eq!((outcome.status, texts), (0, vec![json!("one"), json!("two")]));
    assert_eq!(outcome.asked[0].1, json!({"key": "a", "server": "s", "lines": 5, "follow": true}));
}

#[test]
fn usage_errors_are_2_and_json_where_that_is_asked() {
    let nothing: Says = |_, _, _| Vec::new();
    let outcome = mcpvisor(&["show", "a/b", "--json"], nothing);
    assert_eq!((outcome.status, &outcome.json()["error"]["kind"]), (2, &json!("invalid_request")));
    let outcome = mcpvisor(&["open", "a"], nothing);
    assert_eq!((outcome.status, outcome.stdout.as_str()), (2, ""));
    assert!(outcome.stderr.contains("--server") && outcome.asked.is_empty(), "{}", outcome.stderr);
}

#[test]
fn without_a_daemon_the_status_is_6() {
    let output =
        client().args(["list", "--socket", "/nonexistent/control.sock"]).output().expect("the client runs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(6));
    assert!(stderr.contains("/nonexistent/control.sock") && stderr.contains("`mcpvisor daemon`"), "{stderr}");
}

#[test]
fn packagers_get_completions_and_manual_pages() {
    let run = |args: &[&str]| {
        let output = client().args(args).output().expect("the client runs");
        assert!(output.status.success(), "{args:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    for shell in ["bash", "zsh", "fish"] {
        assert!(run(&["completions", shell]).contains("mcpvisor"));
    }
    assert!(run(&["man"]).contains(".TH mcpvisor 1"));
    assert!(run(&["man", "open"]).contains("COMMANDLINE"));
}

/// The client with a stdout of the test's, against a daemon that answers everything with a session.
fn with_stdout(args: &[&str], stdout: Stdio) -> (Option<i32>, String) {
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    let path = dir.path().join("control.sock");
    let listener = UnixListener::bind(&path).expect("a socket can be bound there");
    let daemon = std::thread::spawn(move || {
        let (stream, _) = listener.accept().expect("somebody connects");
        serve(&stream, |id, _, params| match params["key"].as_str() {
            Some("a") => say(id, &session("a", "ready")),
            _ => say(id, &json!({"sessions": [session("a", "ready")]})),
        })
    });
    let mut command = client();
    command
        .args(args)
        .env("MCPVISOR_SOCKET", &path)
        .stdin(Stdio::null())
        .stdout(stdout)
        .stderr(Stdio::piped());
    let output = command.spawn().and_then(std::process::Child::wait_with_output);
    let output = output.expect("the client runs");
    drop(UnixStream::connect(&path));
    daemon.join().expect("the daemon did not panic");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn a_result_that_does_not_arrive_is_a_failure() {
    for args in [
        &["list"][..],
        &["list", "--json"],
        &["show", "a"],
        &["--quiet", "show", "a"],
        &["open", "a", "--", "x"],
        &["--help"],
        &["close", "--help"],
        &["--version"],
        &["completions", "bash"],
        &["man"],
    ] {
        let full = std::fs::File::options().write(true).open("/dev/full").expect("/dev/full is there");
        let (status, stderr) = with_stdout(args, full.into());
        assert_eq!(status, Some(1), "{args:?}: {stderr}");
        assert!(stderr.contains("failed to write the result to stdout: No space left"), "{args:?}: {stderr}");
        let (reader, writer) = std::io::pipe().expect("a pipe can be made");
        drop(reader);
        assert_eq!(with_stdout(args, writer.into()), (Some(141), String::new()), "{args:?}");
    }
}

#[test]
fn quiet_is_the_result_in_its_shortest_form() {
    let show: Says = |id, _, _| say(id, &session("a", "ready"));
    assert_eq!(mcpvisor(&["-q", "show", "a"], show).stdout, "ready\n");
    assert_eq!(mcpvisor(&["-q", "close", "a", "qb"], closer).stdout, "a closed\nqb quarantined\n");
    let waited: Says = |id, _, _| {
        say(
            id,
            &json!({"key": "a", "generation": 1, "state": "closed", "reached": true, "certificate": null}),
        )
    };
    assert_eq!(mcpvisor(&["-q", "wait", "a"], waited).stdout, "closed\n");
}

#[test]
fn errors_in_the_command_line_of_run_are_its_own() {
    for args in
        [&["run"][..], &["run", "--bogus", "x"], &["run", "--key", "bad key", "x"], &["--json", "run"]]
    {
        let output = client().args(args).output().expect("the client runs");
        assert_eq!(output.status.code(), Some(125), "{args:?}");
        assert!(output.stdout.is_empty() && !output.stderr.is_empty(), "{args:?}: stdout is the server's");
    }
}

#[test]
fn errors_in_the_command_line_name_what_is_missing_and_obey_nobody() {
    let nothing: Says = |_, _, _| Vec::new();
    let message = mcpvisor(&["close", "--json"], nothing).json()["error"]["message"].clone();
    assert!(message.as_str().is_some_and(|text| text.contains("KEY[@GEN]")), "{message}");
    for args in
        [&["show\u{9b}2J"][..], &["show", "\u{202e}x\r"], &["--\u{9b}", "list"], &["daemon", "--\u{202e}\r"]]
    {
        let stderr = mcpvisor(args, nothing).stderr;
        assert!(!stderr.contains(['\u{9b}', '\u{202e}', '\r']), "{stderr:?}");
    }
    let both = mcpvisor(&["call", "a", "t", "{\"s\": 0.1}", "s=3"], nothing).stderr;
    assert!(both.contains("and not both"), "{both}");
    assert!(!mcpvisor(&["open", "k", "--ttl", "3"], nothing).stderr.contains("-- --ttl"));
}

#[test]
fn programs_get_the_keys_in_the_order_of_the_documents() {
    let closed: Says = |id, _, params| {
        let raw = serde_json::to_string(&report(params, "closed")["results"][0]).expect("it is JSON");
        let raw = raw.replacen('{', "{\"zero\":0,", 1);
        vec![
            format!("{{\"jsonrpc\":\"2.0\",\"id\":{},\"result\":{{\"results\":[{raw}]}}}}\n", json!(id))
                .into(),
        ]
    };
    let outcome = mcpvisor(&["close", "--json", "a"], closed);
    assert!(outcome.stdout.starts_with("{\"results\":[{\"zero\":0,"), "{}", outcome.stdout);
    let outcome = mcpvisor(&["show", "a", "--json"], |id, _, _| refuse(id, ErrorKind::NotFound));
    assert!(
        outcome.stdout.starts_with("{\"error\":{\"kind\":\"not_found\",\"message\":"),
        "{}",
        outcome.stdout
    );
}

#[test]
fn a_daemon_that_ends_before_it_answers_is_none() {
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    let path = dir.path().join("control.sock");
    let listener = UnixListener::bind(&path).expect("a socket can be bound there");
    let dies = std::thread::spawn(move || drop(listener.accept()));
    let output =
        client().args(["list", "--json"]).env("MCPVISOR_SOCKET", &path).output().expect("the client runs");
    dies.join().expect("it did not panic");
    let told: Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    assert_eq!((output.status.code(), &told["error"]["kind"]), (Some(6), &json!("no_daemon")), "{told:#}");
}
