//! What has happened is told: each edge once, in order, numbered without gaps, to whoever reads, however slowly.
use crate::support::{close, kind, main_pid, on_both, open, open_params, polite, python};
use mcpvisor_testkit::{Daemon, Process, Rpc, SOON, Scene, Setup, Signal, eventually, send_signal};
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader};

fn events(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("each line is a document")).collect()
}

/// What `mcpvisor events …` tells.
#[track_caller]
fn told(daemon: &Daemon, args: &[&str]) -> Vec<Value> {
    let output = daemon.cli(&[&["events"], args].concat());
    assert_eq!(output.status, 0, "{output:?}");
    events(&output.text())
}

fn kinds(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["kind"].as_str().expect("an event has a kind")).collect()
}

/// Numbers follow one another, and a gap is told.
#[track_caller]
fn assert_whole(events: &[Value], first: u64) {
    let mut next = first;
    for event in events {
        next += event["lost"].as_u64().unwrap_or(0);
        assert_eq!(event["seq"], next, "{event}");
        next += 1;
    }
}

/// `mcpvisor events -f …`, whose output the test reads when it likes.
fn follower(daemon: &Daemon, scene: &Scene, args: &[&str]) -> Process {
    daemon.command(scene, &[&["events", "-f"], args].concat()).spawn()
}

/// Everything until its end.
#[track_caller]
fn rest(mut follower: Process) -> Vec<Value> {
    let stdout = follower.take_stdout().expect("it is a pipe");
    let text: String = BufReader::new(stdout).lines().map(|line| line.expect("it is UTF-8") + "\n").collect();
    assert_eq!(follower.wait(SOON).code(), Some(0), "it ends well: {text}");
    events(&text)
}

/// Opens that are refused, as many as are wanted: each is an event, and costs nothing else.
fn refusals(daemon: &Daemon, scene: &Scene, connection: &Rpc, count: usize) {
    let mut params = open_params(scene, "k", &polite(), &[]);
    params["if_open"] = json!("fail");
    for chunk in (0..count).collect::<Vec<_>>().chunks(200) {
        let asked: Vec<_> = chunk.iter().map(|_| connection.send("session/open", &params)).collect();
        for pending in asked {
            assert_eq!(kind(&pending.wait(SOON).expect_err("it is open")), "session_exists");
        }
    }
    assert_eq!(daemon.status()["sessions"]["used"], 1);
}

on_both! {
    /// G38, G5: each edge of the session and of its server is told once, in order, and the last one is its end.
    g38_g5_each_edge_once = |scene, containment| {
        let daemon = Daemon::start(scene, &Setup::on(containment).quick());
        let session = open(&daemon, scene, "k", &polite(), &[]);
        let certificate = close(&daemon, "k");
        let all = told(&daemon, &[]);
        assert_whole(&all, 1);
        assert_eq!(
            kinds(&all),
            [
                "session.starting", "server.starting", "server.ready", "session.ready", "session.draining",
                "session.stopping", "server.stopping", "server.stopped", "session.closed",
            ]
        );
        for event in &all {
            assert_eq!(event["instance"], daemon.instance(), "{event}");
            assert_eq!((&event["key"], &event["generation"]), (&json!("k"), &session["generation"]), "{event}");
            let of_server = event["kind"].as_str().is_some_and(|kind| kind.starts_with("server."));
            assert_eq!(event["server"], if of_server { json!("main") } else { Value::Null }, "{event}");
        }
        assert_eq!(all[2]["data"]["pid"], session["servers"][0]["pid"], "{:#}", all[2]);
        assert_eq!(all[5]["data"]["reason"], "requested");
        let last = &all[8]["data"];
        for field in ["outcome", "proof", "reason", "drained", "duration_ms"] {
            assert_eq!(last[field], certificate[field], "{field} of {last:#}");
        }
        for field in ["name", "stage", "exit", "duration_ms"] {
            assert_eq!(last["servers"][0][field], certificate["servers"][0][field], "{field} of {last:#}");
        }
        assert_eq!(kinds(&told(&daemon, &["--since", "9"])), ["session.closed"]);
        assert_eq!(told(&daemon, &["--since", "10"]), Vec::<Value>::new());
        // For people: one line each.
        let text = scene.mcpvisor(&["--socket", &daemon.socket().to_string_lossy(), "events", "k"]).output().text();
        assert_eq!(text.lines().count(), 9, "{text}");
        assert!(text.lines().last().is_some_and(|line| line.contains(" 9 session.closed k@1 ")), "{text}");
        daemon.finish();
    };

    /// G38: a followed stream of a key ends behind the last event of the generation that held it; so does one that comes late, and
    /// one whose key is open again.
    g38_the_last_event_before_the_end = |scene, containment| {
        let daemon = Daemon::start(scene, &Setup::on(containment).quick().daemon("events = 4"));
        open(&daemon, scene, "k", &polite(), &[]);
        let connection = daemon.connect();
        let subscribed = connection.call("event/subscribe", &json!({"key": "k"})).expect("it is there");
        assert_eq!((&subscribed["next"], &subscribed["oldest"]), (&json!(5), &json!(1)), "{subscribed:#}");
        let follower = follower(&daemon, scene, &["k"]);
        close(&daemon, "k");
        open(&daemon, scene, "k", &polite(), &[]);
        let followed = rest(follower);
        assert_eq!(followed.last().map(|event| (&event["kind"], &event["generation"])), Some((&json!("session.closed"), &json!(1))));
        let mut heard = Vec::new();
        loop {
            let note = connection.next_other(SOON).expect("the end is told");
            if note["method"] == "event/ended" {
                break;
            }
            assert_eq!(note["method"], "event");
            heard.push(note["params"].clone());
        }
        assert_whole(&heard, 5);
        assert_eq!(kinds(&heard).last(), Some(&"session.closed"));
        // The ring has gone round; what holds the key now is followed, and its predecessor's last event is not its end.
        close(&daemon, "k");
        let late = rest(daemon.command(scene, &["events", "-f", "--since", "1000", "k"]).spawn());
        assert_eq!(late.len(), 1, "{late:#?}");
        assert_eq!((&late[0]["kind"], &late[0]["generation"]), (&json!("session.closed"), &json!(2)));
        assert_eq!(daemon.cli(&["events", "-f", "nobody"]).fails(4)["kind"], "not_found");
        assert_eq!(daemon.cli(&["events", "nobody"]).fails(4)["kind"], "not_found");
        assert_eq!(daemon.cli(&["events", "-f", "k@1"]).fails(1)["kind"], "stale_generation");
        // Where nothing of the key is kept the gap is told by itself.
        open(&daemon, scene, "other", &polite(), &[]);
        let told = connection.call("event/subscribe", &json!({"key": "k", "since": 1, "follow": false})).expect("it is known");
        assert_eq!(told["events"], json!([]), "{told:#}");
        assert_eq!(told["lost"].as_u64(), told["oldest"].as_u64().map(|oldest| oldest - 1), "{told:#}");
        let text = daemon.command(scene, &["events", "k"]).output().text();
        assert!(text.contains("not kept any more") || text.contains("\"lost\""), "{text}");
        close(&daemon, "other");
        drop(connection);
        daemon.finish();
    };

    /// G39, G38: a reader that is stopped for thousands of events delays nobody, and is told what it has lost; the last event of the session
    /// that it follows is not among that. One that has gone is forgotten.
    g39_g38_a_reader_that_is_stopped = |scene, containment| {
        let daemon = Daemon::start(scene, &Setup::on(containment).quick().daemon("events = 64"));
        open(&daemon, scene, "k", &polite(), &[]);
        let mut stopped = follower(&daemon, scene, &["k"]);
        let mut first = String::new();
        let mut reader = BufReader::new(stopped.take_stdout().expect("it is a pipe"));
        reader.read_line(&mut first).expect("it tells what is kept");
        stopped.signal(Signal::STOP);
        let mut gone = follower(&daemon, scene, &[]);
        let watching = daemon.connect();
        watching.call("event/subscribe", &json!({})).expect("it subscribes");
        let connection = daemon.connect();
        refusals(&daemon, scene, &connection, 5000);
        // Others hear at once.
        let mut heard = Vec::new();
        while heard.len() < 5000 {
            heard.push(watching.next_other(SOON).expect("all are told")["params"].clone());
            let lost = heard.last().and_then(|event| event["lost"].as_u64()).unwrap_or(0);
            heard.extend((0..lost).map(|_| Value::Null));
        }
        gone.signal(Signal::KILL);
        gone.wait(SOON);
        let certificate = close(&daemon, "k");
        assert_eq!(certificate["outcome"], "closed");
        refusals_of_nobody(&daemon, 100);
        stopped.signal(Signal::CONT);
        let text: String = std::iter::once(Ok(first.trim_end().to_owned())).chain(reader.lines()).map(|line| line.expect("it is UTF-8") + "\n").collect();
        assert_eq!(stopped.wait(SOON).code(), Some(0));
        let all = events(&text);
        assert_whole(&all, 1);
        assert!(all.iter().any(|event| event["lost"].as_u64().is_some_and(|lost| lost > 1000)), "it has lost some");
        assert_eq!(kinds(&all).last(), Some(&"session.closed"));
        drop((watching, connection));
        daemon.finish();
    };

    /// G9: a refusal leaves its event, and nothing else; it says what the answer says.
    g9_a_refusal_is_told = |scene, containment| {
        let daemon = Daemon::start(scene, &Setup::on(containment).quick().daemon("max_sessions = 1"));
        open(&daemon, scene, "k", &polite(), &[]);
        let full = daemon.command(scene, &["open", "other", "--"]).args(polite()).output().fails(5);
        let other = daemon.command(scene, &["open", "k", "--"]).args(python("34-out-of-order")).output().fails(5);
        let refused = told(&daemon, &["other"]);
        assert_eq!((kinds(&refused), &refused[0]["generation"]), (vec!["session.refused"], &Value::Null));
        assert_eq!(refused[0]["data"]["error"], full["kind"]);
        for field in ["scope", "used", "limit"] {
            assert_eq!(refused[0]["data"][field], full["data"][field], "{field} of {refused:#?}");
        }
        let all = told(&daemon, &["k"]);
        assert_eq!(all.last().map(|event| &event["data"]["error"]), Some(&other["kind"]));
        assert_eq!(daemon.cli(&["show", "other"]).fails(4)["kind"], "not_found", "an event is no session");
        close(&daemon, "k");
        daemon.finish();
    };

    /// A server that is started again, and one that can't be started, are told with the cause.
    failures_are_told_with_their_causes = |scene, containment| {
        let daemon = Daemon::start(scene, &Setup::on(containment).quick());
        let session = open(&daemon, scene, "k", &polite(), &[]);
        send_signal(main_pid(&session), Signal::KILL);
        eventually("the restart", SOON, || kinds(&told(&daemon, &["k"])).iter().filter(|kind| **kind == "session.ready").count() == 2);
        let all = told(&daemon, &["k"]);
        let after = &all[4..];
        assert_eq!(
            kinds(after),
            ["server.stopping", "server.backoff", "session.degraded", "server.starting", "server.ready", "session.ready"]
        );
        let backoff = after.iter().find(|event| event["kind"] == "server.backoff").expect("it waited");
        assert_eq!(backoff["data"]["exit"], json!({"signal": "KILL"}), "{backoff:#}");
        let again = after.iter().find(|event| event["kind"] == "server.ready").expect("it is ready again");
        assert_eq!(again["data"]["restarts"], 1, "{again:#}");
        close(&daemon, "k");
        let command = ["/nonexistent".to_owned()];
        let _ = daemon.command(scene, &["open", "bad", "--"]).args(&command).output();
        let bad = told(&daemon, &["bad"]);
        assert_eq!(kinds(&bad).last(), Some(&"session.failed"));
        assert_eq!(bad.last().map(|event| &event["data"]["failure"]["cause"]), Some(&json!("not_found")), "{bad:#?}");
        assert!(kinds(&bad).contains(&"server.failed"), "{bad:#?}");
        daemon.finish();
    };

    /// The daemon's own doings are told, and those who follow are told the end of everything before the daemon goes.
    the_end_of_the_daemon = |scene, containment| {
        let mut daemon = Daemon::start(scene, &Setup::on(containment).quick());
        open(&daemon, scene, "k", &polite(), &[]);
        let follower = follower(&daemon, scene, &[]);
        assert_eq!(daemon.cli(&["reload"]).status, 0);
        assert_eq!(daemon.cli(&["drain"]).status, 0);
        eventually("the fence", SOON, || kinds(&told(&daemon, &[])).contains(&"daemon.draining"));
        assert_eq!(daemon.cli(&["shutdown"]).status, 0);
        let all = rest(follower);
        assert_whole(&all, 1);
        let of_daemon: Vec<&str> = kinds(&all).into_iter().filter(|kind| kind.starts_with("daemon.")).collect();
        assert_eq!(of_daemon, ["daemon.reloaded", "daemon.draining", "daemon.shutdown"]);
        let last = all.last().expect("there is one");
        assert_eq!((&last["kind"], &last["data"]["reason"]), (&json!("session.closed"), &json!("shutdown")));
        assert_eq!(daemon.process().wait(SOON).code(), Some(0));
    };
}

/// Refused opens of keys that nobody has.
fn refusals_of_nobody(daemon: &Daemon, count: usize) {
    daemon.cli(&["drain"]).ok();
    let connection = daemon.connect();
    for n in 0..count {
        let params = json!({"key": format!("n{n}"), "servers": [{"name": "main", "command": ["true"]}], "environment": []});
        connection.call("session/open", &params).expect_err("the daemon is draining");
    }
}
