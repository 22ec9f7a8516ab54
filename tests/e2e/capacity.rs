//! Limits, and the queue of opens that wait for a slot.
use crate::support::{assert_closed, close, kind, on_both, open, open_params, polite, python, used};
use mcpvisor_testkit::{Daemon, Pending, Rpc, SOON, Scene, Setup, eventually};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

fn queued(scene: &Scene, connection: &Rpc, key: &str, tenant: &str) -> Pending {
    let mut params = open_params(scene, key, &polite(), &[]);
    params["tenant"] = json!(tenant);
    params["queue_ms"] = json!(60_000);
    params["progress"] = json!(true);
    connection.send("session/open", &params)
}

/// The keys of those that wait, in the order of their turns.
fn waiting(connection: &Rpc) -> Vec<String> {
    let list = connection.call("session/list", &json!({})).expect("a list is always given");
    let all = list["queued"].as_array().cloned().unwrap_or_default();
    all.iter().map(|open| open["key"].as_str().unwrap_or_default().to_owned()).collect()
}

#[track_caller]
fn full(error: &Value, scope: &str, used: u64, limit: u64) {
    assert_eq!(kind(error), "capacity_exhausted", "{error:#}");
    let data = &error["data"];
    let told = (&data["scope"], &data["used"], &data["limit"]);
    assert_eq!(told, (&json!(scope), &json!(used), &json!(limit)), "{error:#}");
    assert!(data["retry_after_ms"].as_u64().is_some_and(|ms| ms > 0), "{error:#}");
}

on_both! {
    /// Who waits gets the slot in the step that frees it, in turn with other tenants, and is told where it stands.
    g6_the_queue_is_fair = |scene, containment| {
        let daemon = Daemon::start(scene, &Setup::on(containment).quick().daemon("max_sessions = 1"));
        let (flood, quiet, look) = (daemon.connect(), daemon.connect(), daemon.connect());
        open(&daemon, scene, "first", &polite(), &[]);
        let mut flooding: Vec<Pending> = Vec::new();
        for at in 0..4_usize {
            flooding.push(queued(scene, &flood, &format!("f{at}"), "flood"));
            eventually("the queue", SOON, || waiting(&look).len() == at + 1);
        }
        let asked = queued(scene, &quiet, "quiet", "quiet");
        eventually("the queue", SOON, || waiting(&look).len() == 5);
        assert_eq!(waiting(&look), ["f0", "quiet", "f1", "f2", "f3"]);
        let note = quiet.next_other(SOON).expect("it is told where it stands");
        assert_eq!((&note["method"], &note["params"]["progress"]["position"]), (&json!("notifications/progress"), &json!(2)));
        let status = daemon.status();
        assert_eq!((&status["sessions"]["queued"], &status["sessions"]["used"]), (&json!(5), &json!(1)));
        assert_eq!(scene.noted().len(), 0, "nothing is started for them");
        // One gives up, and its place is free at once.
        flood.cancel(&flooding[1]);
        assert_eq!(kind(&flooding.remove(1).wait(SOON).expect_err("it was cancelled")), "cancelled");
        assert_eq!(waiting(&look), ["f0", "quiet", "f2", "f3"]);
        close(&daemon, "first");
        flooding.remove(0).wait(SOON).expect("it has its turn");
        assert_eq!(quiet.next_other(SOON).expect("it has moved")["params"]["progress"]["position"], 1);
        close(&daemon, "f0");
        let opened = asked.wait(SOON).expect("it has its turn");
        assert_eq!((&opened["state"], used(&daemon)), (&json!("ready"), 1));
        // A client that goes leaves the queue; so do the others at the end of the daemon.
        drop((flooding.pop(), flood));
        eventually("the end of the queue", SOON, || waiting(&look).is_empty());
        let last = queued(scene, &quiet, "last", "quiet");
        eventually("the queue", SOON, || waiting(&look) == ["last"]);
        look.call("daemon/drain", &json!({})).expect("it drains");
        assert_eq!(kind(&last.wait(SOON).expect_err("nothing is admitted any more")), "draining");
        // Each came into the queue once, and left it once.
        let all = look.call("event/subscribe", &json!({"since": 1, "follow": false})).expect("events");
        let of = |key: &str| -> Vec<String> {
            let of_key = all["events"].as_array().into_iter().flatten().filter(|event| event["key"] == key);
            of_key.filter_map(|event| event["kind"].as_str()).take(3).map(str::to_owned).collect()
        };
        assert_eq!(of("quiet"), ["capacity.queued", "capacity.admitted", "session.starting"]);
        assert_eq!(of("f1"), ["capacity.queued", "capacity.left"], "it was cancelled");
        assert_eq!(of("last"), ["capacity.queued", "capacity.left", "session.refused"]);
        assert_closed(&close(&daemon, "quiet"), containment);
        drop((flooding, quiet, look));
        daemon.finish();
    };

    /// A wait for a slot has its end; a reopen of the key that frees the slot comes first.
    g6_a_wait_for_a_slot_has_its_end = |scene, containment| {
        let setup = Setup::on(containment)
            .config("[timeouts]\nstdin_grace = \"400ms\"\nterm_grace = \"100ms\"")
            .daemon("max_sessions = 1\nmax_queued_per_user = 1");
        let daemon = Daemon::start(scene, &setup);
        let connection = daemon.connect();
        open(&daemon, scene, "held", &python("01-ignore-eof"), &[]);
        let begin = Instant::now();
        let refused = daemon.command(scene, &["open", "late", "--wait", "300ms", "--"]).args(polite()).output().fails(5);
        full(&json!({"data": {"kind": refused["kind"], "scope": refused["data"]["scope"], "used": refused["data"]["used"],
            "limit": refused["data"]["limit"], "retry_after_ms": refused["data"]["retry_after_ms"]}}), "total", 1, 1);
        assert!(begin.elapsed() >= Duration::from_millis(300));
        let waits = queued(scene, &connection, "waits", "t");
        eventually("the queue", SOON, || waiting(&connection) == ["waits"]);
        let mut more = open_params(scene, "more", &polite(), &[]);
        more["queue_ms"] = json!(60_000);
        full(&connection.call("session/open", &more).expect_err("the queue is full"), "queue", 1, 1);
        let closing = connection.send("session/close", &json!({"key": "held"}));
        let reopening = connection.send("session/open", &open_params(scene, "held", &polite(), &[]));
        closing.wait(SOON).expect("a certificate");
        reopening.wait(SOON).expect("its predecessor's slot is its own");
        assert_eq!(waiting(&connection), ["waits"]);
        close(&daemon, "held");
        waits.wait(SOON).expect("it has its turn");
        close(&daemon, "waits");
        drop(connection);
        daemon.finish();
    };

    /// Limits of a profile, and of processes; what is refused leaves nothing.
    g6_g9_limits_of_profiles_and_processes = |scene, containment| {
        let command = serde_json::to_string(&polite()[0]).expect("text is JSON");
        let profile = format!(
            "[profiles.p]\nmax_sessions = 1\n[profiles.p.servers.s]\ncommand = {command}\nargs = [\"demo-server\", \"polite\"]"
        );
        let setup = Setup::on(containment).quick().config(&profile).daemon("max_processes = 3\nmax_processes_per_session = 2");
        let daemon = Daemon::start(scene, &setup);
        let connection = daemon.connect();
        connection.call("session/open", &json!({"key": "one", "profile": "p"})).expect("it opens");
        let refused = connection.call("session/open", &json!({"key": "two", "profile": "p"}));
        full(&refused.expect_err("the profile's limit"), "profile", 1, 1);
        let servers = |count: usize| {
            let mut params = open_params(scene, &format!("s{count}"), &polite(), &[]);
            let servers = (0..count).map(|at| json!({"name": format!("n{at}"), "command": polite()}));
            params["servers"] = servers.collect();
            params
        };
        let refused = connection.call("session/open", &servers(3)).expect_err("three are too many for one");
        full(&refused, "session_processes", 3, 2);
        connection.call("session/open", &servers(2)).expect("it opens");
        let refused = connection.call("session/open", &servers(1)).expect_err("three of three are in use");
        full(&refused, "processes", 3, 3);
        assert_eq!(used(&daemon), 2);
        let processes = connection.call("process/list", &json!({})).expect("a list");
        assert_eq!(processes["processes"].as_array().map(Vec::len), Some(3), "{processes:#}");
        close(&daemon, "one");
        connection.call("session/open", &servers(1)).expect("there is room");
        close(&daemon, "s1");
        close(&daemon, "s2");
        drop(connection);
        daemon.finish();
    };

    /// The session of the same user that nobody uses for longest makes room; what is used, or has no idle limit, does not.
    g6_an_eviction_makes_room = |scene, containment| {
        let setup = Setup::on(containment).quick().daemon("max_sessions = 3\nwhen_full = \"evict\"\nevict_after = \"300ms\"");
        let daemon = Daemon::start(scene, &setup);
        let connection = daemon.connect();
        open(&daemon, scene, "old", &python("01-ignore-eof"), &[]);
        open(&daemon, scene, "young", &polite(), &[]);
        daemon.command(scene, &["open", "kept", "--idle", "0s", "--"]).args(polite()).output().ok();
        let idle = |key: &str| daemon.cli(&["show", key]).ok()["idle_ms"].as_u64().unwrap_or_default();
        eventually("both are idle for long enough", SOON, || idle("old") > 300 && idle("young") > 300);
        daemon.cli(&["tools", "young"]).ok();
        let opened = connection.call("session/open", &open_params(scene, "new", &polite(), &[])).expect("room is made");
        assert_eq!((&opened["state"], used(&daemon)), (&json!("ready"), 3));
        let gone = daemon.cli(&["wait", "old"]).ok();
        assert_eq!((&gone["certificate"]["reason"], &gone["state"]), (&json!("evicted"), &json!("closed")), "{gone:#}");
        assert_closed(&gone["certificate"], containment);
        let events = connection.call("event/subscribe", &json!({"since": 1, "follow": false})).expect("events");
        let at = |kind: &str, key: &str| {
            let of = |event: &&Value| event["kind"] == kind && event["key"] == key;
            events["events"].as_array().and_then(|all| all.iter().find(of)).map(|event| event["seq"].as_u64())
        };
        assert!(at("session.closed", "old") < at("session.starting", "new"), "{events:#}");
        // Nobody is left that may be closed: one is attached to, the other was just opened, the third is kept.
        let client = daemon.connect();
        client.call("session/attach", &json!({"key": "young"})).expect("it can be attached to");
        eventually("it is attached", SOON, || daemon.cli(&["show", "young"]).ok()["attached"] == 1);
        daemon.cli(&["tools", "new"]).ok();
        let refused = connection.call("session/open", &open_params(scene, "more", &polite(), &[]));
        full(&refused.expect_err("all are used"), "total", 3, 3);
        drop(client);
        // With time to live the refusal says when there may be room.
        daemon.cli(&["close", "--all"]).ok();
        for key in ["a", "b", "c"] {
            daemon.command(scene, &["open", key, "--idle", "0s", "--ttl", "20s", "--"]).args(polite()).output().ok();
        }
        let refused = connection.call("session/open", &open_params(scene, "more", &polite(), &[]));
        let refused = refused.expect_err("nobody may be closed");
        full(&refused, "total", 3, 3);
        let after = refused["data"]["retry_after_ms"].as_u64().unwrap_or_default();
        assert!((2_000..=20_000).contains(&after), "its time to live: {refused:#}");
        daemon.cli(&["close", "--all"]).ok();
        drop(connection);
        daemon.finish();
    };

    /// Calls and opens that meet: a call keeps its session, or is refused; there is never more than one.
    g32_evictions_race_calls = |scene, containment| {
        let setup = Setup::on(containment).quick().daemon("max_sessions = 1\nwhen_full = \"evict\"\nevict_after = \"0s\"");
        let daemon = Daemon::start(scene, &setup);
        let (caller, opener) = (daemon.connect(), daemon.connect());
        let mut held = 0;
        let params = |number: u64| open_params(scene, &format!("k{number}"), &python("34-out-of-order"), &[]);
        opener.call("session/open", &params(held)).expect("there is room");
        let (mut opened, mut refused) = (0, 0);
        for round in 0..24_u64 {
            // Some are in flight for certain when the open comes.
            let certain = round % 12 == 11;
            let delay = if certain { 3000 } else { 20 * (round % 3) };
            let arguments = json!({"text": "x", "delay_ms": delay});
            let call = json!({"key": format!("k{held}"), "tool": "echo", "arguments": arguments});
            let call = caller.send("tool/call", &call);
            let in_flight = || daemon.cli(&["show", &format!("k{held}")]).ok()["in_flight"] == 1;
            if certain {
                eventually("the call", SOON, in_flight);
            }
            let asked = opener.send("session/open", &params(held + 1));
            match call.wait(SOON) {
                Ok(result) => assert!(result["content"].is_array(), "{result:#}"),
                Err(error) => assert!(matches!(kind(&error), "session_closing" | "not_found"), "{error:#}"),
            }
            match asked.wait(SOON) {
                Ok(_) => (opened, held) = (opened + 1, held + 1),
                Err(error) => {
                    full(&error, "total", 1, 1);
                    refused += 1;
                }
            }
            assert_eq!(used(&daemon), 1);
        }
        assert!(opened > 0 && refused > 0, "{opened} opened, {refused} refused");
        daemon.cli(&["close", "--all"]).ok();
        drop((caller, opener));
        daemon.finish();
    };
}
