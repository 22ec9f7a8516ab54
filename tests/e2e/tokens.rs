//! The token of a session: for whom it is, what it opens, and when it ends.
use crate::support::{assert_closed, close, kind, on_both, open_params, polite, python};
use mcpvisor_testkit::{Daemon, Rpc, SOON, Scene, Setup, Stdio, eventually};
use serde_json::{Value, json};
use std::path::PathBuf;

const OTHER: u32 = 4_000_001;

/// Opens a session, and gives its token.
#[track_caller]
fn opened(scene: &Scene, connection: &Rpc, key: &str, command: &[String]) -> String {
    let opened = connection.call("session/open", &open_params(scene, key, command, &[])).expect("it opens");
    assert_eq!(opened["created"], true, "{opened:#}");
    opened["token"].as_str().expect("who opens it has its token").to_owned()
}

/// How the daemon answers who shows a token: `ok`, or the error's kind.
fn shows(connection: &Rpc, key: &str, token: &str) -> String {
    match connection.call("tool/list", &json!({"key": key, "token": token})) {
        Ok(_) => "ok".to_owned(),
        Err(error) => kind(&error).to_owned(),
    }
}

/// The same token with another secret.
fn forged(token: &str) -> String {
    let (front, last) = token.split_at(token.len() - 1);
    format!("{front}{}", if last == "0" { "1" } else { "0" })
}

fn written(scene: &Scene, token: &str) -> PathBuf {
    let path = scene.path("token");
    std::fs::write(&path, token).expect("the scene's folder can be written");
    path
}

fn client(daemon: &Daemon, scene: &Scene, args: &[&str]) -> Stdio {
    let socket = daemon.socket().to_string_lossy().into_owned();
    Stdio::start(scene.mcpvisor(&["--socket", &socket, "attach"]).args(args))
}

on_both! {
    /// Only who began the session is told; what is told means that generation of that key, and nothing else; and nobody else hears of it.
    g41_a_token_is_of_one_generation = |scene, containment| {
        let daemon = Daemon::start(scene, &Setup::on(containment).quick().daemon("log_level = \"trace\""));
        let connection = daemon.connect();
        let first = opened(scene, &connection, "k", &polite());
        let joined = connection.call("session/open", &open_params(scene, "k", &polite(), &[])).expect("it joins");
        assert_eq!((&joined["created"], joined.get("token")), (&json!(false), None));
        let other = opened(scene, &connection, "other", &polite());
        assert_eq!(shows(&connection, "k", &first), "ok");
        for (key, token) in [("other", &first), ("k", &other), ("k", &forged(&first)), ("nobody", &first)] {
            assert_eq!(shows(&connection, key, token), "not_found", "{key} {token}");
        }
        let newer = first.replacen("_1_", "_2_", 1);
        assert_eq!(shows(&connection, "k", &newer), "not_found", "its secret is the first one's");
        let bad = connection.call("tool/list", &json!({"key": "k", "token": &first[1..]})).expect_err("that is no token");
        assert!(kind(&bad) == "invalid_request" && !bad.to_string().contains(&first[20..]), "{bad:#}");
        let both = connection.call("tool/list", &json!({"key": "k", "token": first, "user": 0}));
        assert_eq!(kind(&both.expect_err("a token names its owner")), "invalid_request");
        // As a file and as a variable, for each command that takes one.
        let file = written(scene, &format!("{first}\n"));
        let file = file.to_string_lossy();
        daemon.cli(&["tools", "k", "--token-file", &file]).ok();
        daemon.cli(&["call", "k", "echo", "message=x", "--token-file", &file]).ok();
        daemon.command(scene, &["tools", "k"]).env("MCPVISOR_TOKEN", &first).output().ok();
        daemon.command(scene, &["tools", "k"]).env("MCPVISOR_TOKEN", forged(&first)).output().fails(4);
        daemon.command(scene, &["tools", "k"]).env("MCPVISOR_TOKEN", "mcpv_1").output().fails(2);
        assert_closed(&close(&daemon, "k"), containment);
        assert_eq!(shows(&connection, "k", &first), "stale_generation");
        assert_eq!(shows(&connection, "k", &forged(&first)), "not_found", "who guesses learns nothing");
        let second = opened(scene, &connection, "k", &polite());
        assert_eq!(shows(&connection, "k", &first), "stale_generation");
        assert_eq!(shows(&connection, "k", &second), "ok");
        let mut told = daemon.log();
        for method in ["session/show", "session/list", "event/subscribe"] {
            let params = if method == "session/show" { json!({"key": "k"}) } else { json!({}) };
            let params = if method == "event/subscribe" { json!({"since": 1, "follow": false}) } else { params };
            told.push_str(&connection.call(method, &params).expect("it answers").to_string());
        }
        for token in [&first, &second, &other] {
            assert!(!told.contains(&token[token.len() - 64..]), "a secret is told to others");
        }
        // A file of one's own, where nothing else shows it.
        let file = scene.path("mine");
        let path = file.to_string_lossy().into_owned();
        let session = daemon.command(scene, &["open", "mine", "--token-file", &path, "--"]).args(polite()).output().ok();
        assert_eq!((&session["key"], session.get("token")), (&json!("mine"), None), "{session:#}");
        let mode = std::os::unix::fs::PermissionsExt::mode(&file.metadata().expect("it is there").permissions());
        assert_eq!(mode & 0o777, 0o600);
        daemon.cli(&["tools", "mine", "--token-file", &path]).ok();
        daemon.command(scene, &["open", "mine", "--token-file", &path, "--"]).args(polite()).output().fails(1);
        daemon.cli(&["close", "--all"]).ok();
        drop(connection);
        daemon.finish();
    };

    /// Another user sees nothing of a session without its token, and with it what the token is for, and no more.
    g41_g40_another_user_with_a_token = |scene, containment| {
        let daemon = Daemon::start(scene, &Setup::on(containment).quick().daemon("socket_mode = \"0666\""));
        let Some(other) = daemon.connect_as(scene, OTHER) else { return daemon.finish() };
        let connection = daemon.connect();
        let token = opened(scene, &connection, "k", &python("11-dies-mid-call"));
        for method in ["tool/list", "session/attach", "session/show", "session/close"] {
            let answer = other.call(method, &json!({"key": "k"}));
            let told = answer.map_or_else(|error| kind(&error).to_owned(), |closed| closed["results"][0]["outcome"].to_string());
            assert!(told.contains("not_found"), "{method}: {told}");
        }
        assert_eq!(shows(&other, "k", &forged(&token)), "not_found");
        assert_eq!(shows(&other, "k", &token), "ok");
        let call = json!({"key": "k", "tool": "echo", "arguments": {"text": "x"}, "token": token});
        let error = other.call("tool/call", &call).expect_err("its server dies");
        let owners = connection.call("session/show", &json!({"key": "k"})).expect("the owner sees it");
        assert!(error["data"].get("stderr_tail").is_none() && error["data"].get("frames").is_none(), "{error:#}");
        assert_eq!(owners["key"], "k");
        daemon.cli(&["close", "k"]).ok();
        let token = opened(scene, &connection, "k", &polite());
        let guest = daemon.connect_as(scene, OTHER).expect("this is root");
        let attached = guest.call("session/attach", &json!({"key": "k", "token": token})).expect("it may");
        assert_eq!((&attached["key"], &attached["generation"]), (&json!("k"), &json!(2)));
        eventually("it is attached", SOON, || daemon.cli(&["show", "k"]).ok()["attached"] == 1);
        // Nothing but that.
        assert!(other.call("session/show", &json!({"key": "k", "token": token})).is_err());
        assert_closed(&close(&daemon, "k"), containment);
        assert_eq!(shows(&other, "k", &token), "stale_generation");
        drop((guest, other, connection));
        daemon.finish();
    };

    /// The end of a client that was attached so closes the session and revokes its token at once, long before the last process is gone.
    g41_a_detach_closes_and_revokes = |scene, containment| {
        let setup = Setup::on(containment).config("[timeouts]\nstdin_grace = \"1500ms\"\nterm_grace = \"300ms\"");
        let daemon = Daemon::start(scene, &setup);
        let connection = daemon.connect();
        let token = opened(scene, &connection, "k", &python("01-ignore-eof"));
        let file = written(scene, &token);
        let mut client = client(&daemon, scene, &["k", "--close-on-detach", "--token-file", &file.to_string_lossy()]);
        client.initialize();
        client.close_stdin();
        assert_eq!(client.wait(SOON).code(), Some(0), "it has ended first");
        assert_eq!(shows(&connection, "k", &token), "not_found", "revoked, while the server is still there");
        let waited = connection.call("session/wait", &json!({"key": "k", "deadline_ms": 20_000})).expect("it ends");
        assert_eq!(waited["certificate"]["reason"], "lease_ended", "{waited:#}");
        assert_closed(&waited["certificate"], containment);
        assert_eq!(shows(&connection, "k", &token), "not_found", "and nothing makes it known again");
        drop(connection);
        daemon.finish();
    };

    /// Against a close that runs it joins that, revokes the token all the same, and the client hears no more; others hear of the end.
    g41_b5_a_detach_that_loses = |scene, containment| {
        let setup = Setup::on(containment).config("[timeouts]\ndrain = \"20s\"\nstdin_grace = \"300ms\"");
        let daemon = Daemon::start(scene, &setup);
        let (connection, watcher) = (daemon.connect(), daemon.connect());
        let token = opened(scene, &connection, "k", &python("34-out-of-order"));
        watcher.call("event/subscribe", &json!({"key": "k"})).expect("it may");
        let mut client = client(&daemon, scene, &["k", "--close-on-detach"]);
        client.initialize();
        let call = json!({"key": "k", "tool": "echo", "arguments": {"text": "x", "delay_ms": 3000}});
        let call = connection.send("tool/call", &call);
        eventually("the call", SOON, || daemon.cli(&["show", "k"]).ok()["in_flight"] == 1);
        let closing = connection.send("session/close", &json!({"key": "k"}));
        eventually("the drain", SOON, || daemon.cli(&["show", "k"]).ok()["state"] == "draining");
        assert_eq!(shows(&connection, "k", &token), "session_closing", "it is valid as long as anything is left");
        client.close_stdin();
        assert_eq!(client.wait(SOON).code(), Some(0));
        let heard = client.bytes();
        assert_eq!(daemon.cli(&["show", "k"]).ok()["state"], "draining", "the close goes on as it was");
        assert_eq!(shows(&connection, "k", &token), "not_found");
        call.wait(SOON).expect("the call has its drain");
        let closed = closing.wait(SOON).expect("the close has its certificate")["results"][0].clone();
        assert_eq!((&closed["reason"], &closed["drained"]["finished"]), (&json!("requested"), &json!(1)));
        assert_closed(&closed, containment);
        let mut last = Value::Null;
        while last["params"]["kind"] != "session.closed" {
            last = watcher.next_other(SOON).expect("others are told of the end");
        }
        assert_eq!(client.bytes(), heard, "who has left hears nothing of it");
        drop((connection, watcher));
        daemon.finish();
    };
}
