//! Requests that are sent again: one id is carried out once, and everyone has the first answer.
use crate::support::{assert_closed, close, kind, main_pid, on_both, open_params, polite, python, used};
use mcpvisor_testkit::{Daemon, Rpc, SOON, Scene, Setup, eventually, procfs};
use serde_json::{Value, json};

/// The parameters of an open with an id.
fn named(scene: &Scene, key: &str, command: &[String], id: &str) -> Value {
    let mut params = open_params(scene, key, command, &[("BUG_DELAY", "0.5")]);
    params["request_id"] = json!(id);
    params
}

#[track_caller]
fn refused(connection: &Rpc, method: &str, params: &Value) -> String {
    let error = connection.call(method, params).expect_err("it is refused");
    kind(&error).to_owned()
}

on_both! {
    /// E.4: the same id twice, side by side, later, and when the session is gone: one session, and one answer.
    e4_one_id_is_one_session_and_one_answer = |scene, containment| {
        let daemon = Daemon::start(scene, &Setup::on(containment).quick());
        let (one, two) = (daemon.connect(), daemon.connect());
        let mut params = named(scene, "one", &python("09-init-slow"), "r-1");
        params.as_object_mut().expect("an object").remove("key");
        let asked: Vec<_> = [&one, &two, &one].iter().map(|c| c.send("session/open", &params)).collect();
        let answers: Vec<Value> = asked.into_iter().map(|asked| asked.wait(SOON).expect("it opens")).collect();
        assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:#?}");
        assert_eq!((scene.noted().len(), used(&daemon)), (1, 1), "it was started once");
        // Another patience is the same request, other words are not.
        params["deadline_ms"] = json!(5000);
        assert_eq!(two.call("session/open", &params).expect("it is answered"), answers[0]);
        let mut other = params.clone();
        other["labels"] = json!({"a": "b"});
        assert_eq!(refused(&two, "session/open", &other), "invalid_request");
        let key = answers[0]["key"].as_str().expect("a key was made up");
        assert_eq!(refused(&two, "session/close", &json!({"key": key, "request_id": "r-1"})), "invalid_request");
        assert_closed(&close(&daemon, key), containment);
        assert_eq!(one.call("session/open", &params).expect("it is answered"), answers[0], "the first answer");
        assert_eq!((scene.noted().len(), used(&daemon)), (1, 0), "nothing was started again");
        drop((one, two));
        daemon.finish();
    };

    /// A close that is sent again, with other sessions of that key meanwhile, gives the first certificate and touches nothing.
    g13_a_close_that_is_sent_again = |scene, containment| {
        let setup = Setup::on(containment).config("[timeouts]\nstdin_grace = \"300ms\"\nterm_grace = \"300ms\"");
        let daemon = Daemon::start(scene, &setup);
        let (one, two) = (daemon.connect(), daemon.connect());
        let params = open_params(scene, "again", &python("02-ignore-sigterm"), &[]);
        one.call("session/open", &params).expect("it opens");
        let closing = json!({"key": "again", "request_id": "c-1"});
        // The first gives up, or is gone: the close goes on, and its retry joins it.
        drop(one.send("session/close", &closing));
        let impatient = json!({"key": "again", "request_id": "c-1", "deadline_ms": 30});
        assert_eq!(refused(&two, "session/close", &impatient), "deadline_exceeded");
        drop(one);
        let first = two.call("session/close", &closing).expect("a certificate");
        assert_closed(&first["results"][0], containment);
        let now = two.call("session/open", &params).expect("it opens again");
        assert_eq!(two.call("session/close", &closing).expect("a certificate"), first);
        assert!(procfs::is_alive(main_pid(&now)), "the new generation is untouched");
        let cli = daemon.cli(&["close", "again", "--request-id", "c-1"]).ok();
        assert_eq!(cli, first);
        let later = daemon.cli(&["close", "again", "--request-id", "c-2"]).ok();
        assert_eq!(later["results"][0]["generation"], now["generation"]);
        let nothing = json!({"key": "nobody", "request_id": "c-3"});
        let unknown = two.call("session/close", &nothing).expect("an outcome");
        assert_eq!(unknown["results"][0]["outcome"], "not_found");
        drop(two);
        daemon.finish();
    };

    /// An opener whose connection breaks comes back within the grace, and finds its session where it was.
    g24_a_retry_over_another_connection = |scene, containment| {
        let daemon = Daemon::start(scene, &Setup::on(containment).quick());
        let mut params = named(scene, "back", &python("09-init-slow"), "r-2");
        params["lease"] = json!("connection");
        let first = daemon.connect();
        let asked = first.send("session/open", &params);
        eventually("the start", SOON, || scene.noted().len() == 1);
        drop((asked, first));
        let second = daemon.connect();
        let opened = second.call("session/open", &params).expect("the first one's session");
        assert_eq!((scene.noted().len(), &opened["created"]), (1, &json!(true)));
        assert_eq!(u64::from(main_pid(&opened)), u64::from(scene.noted()[0].1));
        // The lease is that of the connection that has the answer.
        assert_eq!(daemon.cli(&["show", "back"]).ok()["state"], "ready");
        drop(second);
        let ended = daemon.cli(&["wait", "back", "--timeout", "20s"]).ok();
        assert_eq!(ended["certificate"]["reason"], "lease_ended");
        daemon.finish();
    };

    /// An opener that vanishes for good takes nothing from who has joined its session, uses it, or opened another below it, meanwhile.
    g7_g24_who_joined_keeps_the_session = |scene, containment| {
        let daemon = Daemon::start(scene, &Setup::on(containment).quick());
        let (gone, here) = (daemon.connect(), daemon.connect());
        let keys = ["joined", "attached", "above", "nobodys"];
        let opens = keys.map(|key| named(scene, key, &python("09-init-slow"), key));
        let asked: Vec<_> = opens.iter().map(|open| gone.send("session/open", open)).collect();
        eventually("the starts", SOON, || scene.noted().len() == keys.len());
        drop((asked, gone));
        eventually("all are ready", SOON, || {
            keys.iter().all(|key| daemon.cli(&["show", key]).ok()["state"] == "ready")
        });
        let mut joins = opens[0].clone();
        joins.as_object_mut().expect("an object").remove("request_id");
        assert_eq!(here.call("session/open", &joins).expect("it joins")["created"], false);
        let attached = daemon.connect();
        attached.call("session/attach", &json!({"key": "attached"})).expect("it is attached");
        let mut child = open_params(scene, "child", &polite(), &[]);
        child["parent"] = json!("above");
        here.call("session/open", &child).expect("it opens");
        let ended = daemon.cli(&["wait", "nobodys", "--timeout", "30s"]).ok();
        assert_eq!(ended["certificate"]["reason"], "start_cancelled", "{ended:#}");
        for key in &keys[..3] {
            assert_eq!(daemon.cli(&["show", key]).ok()["state"], "ready", "{key}");
        }
        for key in &keys[..3] {
            close(&daemon, key);
        }
        drop((attached, here));
        daemon.finish();
    };

    /// Each connection that was given the answer holds the lease.
    g34_the_last_connection_ends_the_lease = |scene, containment| {
        let daemon = Daemon::start(scene, &Setup::on(containment).quick());
        let (one, two) = (daemon.connect(), daemon.connect());
        let mut params = named(scene, "held", &polite(), "r-7");
        params["lease"] = json!("connection");
        let other = open_params(scene, "other", &polite(), &[]);
        let other = json!({"lease": "connection", "key": "other", "servers": other["servers"], "environment": other["environment"]});
        one.call("session/open", &other).expect("it opens");
        let opened = one.call("session/open", &params).expect("it opens");
        assert_eq!(two.call("session/open", &params).expect("it is answered"), opened);
        drop(one);
        let ended = daemon.cli(&["wait", "other", "--timeout", "20s"]).ok();
        assert_eq!(ended["certificate"]["reason"], "lease_ended");
        assert_eq!(daemon.cli(&["show", "held"]).ok()["state"], "ready");
        drop(two);
        let ended = daemon.cli(&["wait", "held", "--timeout", "20s"]).ok();
        assert_eq!(ended["certificate"]["reason"], "lease_ended");
        daemon.finish();
    };

    /// A cancel gives up at once, unless somebody else waits; who vanishes for good is waited for, and then nothing is left.
    g24_nobody_comes_back = |scene, containment| {
        let daemon = Daemon::start(scene, &Setup::on(containment).quick());
        let (one, two) = (daemon.connect(), daemon.connect());
        let hangs = named(scene, "stuck", &python("08-init-never"), "r-3");
        let asked = one.send("session/open", &hangs);
        eventually("the start", SOON, || scene.noted().len() == 1);
        let other = two.send("session/open", &hangs);
        one.cancel(&asked);
        let error = asked.wait(SOON).expect_err("it was cancelled");
        assert_eq!(kind(&error), "cancelled");
        assert_eq!(used(&daemon), 1, "another one waits");
        two.cancel(&other);
        assert_eq!(kind(&other.wait(SOON).expect_err("it was cancelled")), "cancelled");
        eventually("the end of the start", SOON, || used(&daemon) == 0);
        // The id is free again, and this time its requester vanishes.
        let begin = std::time::Instant::now();
        let asked = one.send("session/open", &hangs);
        eventually("the second start", SOON, || scene.noted().len() == 2);
        drop((asked, one));
        let gone = std::time::Instant::now();
        eventually("the end of the grace", SOON, || used(&daemon) == 0);
        assert!(gone.elapsed().as_secs() >= 9, "after {:?} of {:?}", gone.elapsed(), begin.elapsed());
        drop(two);
        daemon.finish();
    };

    /// A refusal leaves nothing, not even under its id: the retry finds room. A start that failed is remembered.
    g9_a_refusal_is_not_remembered = |scene, containment| {
        let daemon = Daemon::start(scene, &Setup::on(containment).quick().daemon("max_sessions = 1"));
        let connection = daemon.connect();
        let params = named(scene, "full", &polite(), "r-4");
        connection.call("session/open", &open_params(scene, "other", &polite(), &[])).expect("it opens");
        assert_eq!(refused(&connection, "session/open", &params), "capacity_exhausted");
        close(&daemon, "other");
        let opened = connection.call("session/open", &params).expect("there is room now");
        assert_eq!(opened["created"], true);
        close(&daemon, "full");
        let fails = named(scene, "fails", &python("10-exit-at-once"), "r-5");
        let first = connection.call("session/open", &fails).expect_err("it fails");
        assert_eq!(kind(&first), "start_failed");
        assert_eq!(connection.call("session/open", &fails).expect_err("it has failed"), first);
        assert_eq!(daemon.status()["counters"]["sessions_failed"], 1, "it was tried once");
        drop(connection);
        daemon.finish();
    };
}
