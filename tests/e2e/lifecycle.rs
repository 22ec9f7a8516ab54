//! Opening, closing and waiting for one key, by many clients at once, some of which are cancelled or killed.
use crate::support::{
    assert_closed, close, kind, main_pid, on_both, open, open_params, polite, python, used,
};
use mcpvisor_testkit::{Daemon, Pending, Rpc, SOON, Scene, Setup, Signal, eventually, procfs, until};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// A server that never answers, and ignores the end of its input and SIGTERM: its start is stuck until it is killed.
fn stuck() -> Vec<String> {
    let script = "trap '' TERM HUP INT; echo server $$ >>\"$BUG_PIDS\"; while :; do sleep 1; done";
    ["sh", "-c", script].map(str::to_owned).to_vec()
}

/// The noted processes that live.
fn living(scene: &Scene) -> Vec<u32> {
    scene.noted().into_iter().map(|(_, pid)| pid).filter(|pid| procfs::is_alive(*pid)).collect()
}

fn send_close(connection: &Rpc, key: &str) -> Pending {
    connection.send("session/close", &json!({"key": key}))
}

#[track_caller]
fn certificate(answer: Result<Value, Value>) -> Value {
    answer.unwrap_or_else(|error| panic!("no certificate: {error:#}"))["results"][0].take()
}

on_both! {
    /// Concurrent opens of one key are one start: sixty-four clients, one process, one generation.
    g2_sixty_four_opens_are_one_start = |scene, containment| {
        let daemon = Daemon::start(scene, &Setup::on(containment).quick());
        let params = open_params(scene, "one", &python("09-init-slow"), &[("BUG_DELAY", "0.7")]);
        let connections: Vec<Rpc> = (0..64).map(|_| daemon.connect()).collect();
        let asked: Vec<Pending> = connections.iter().map(|c| c.send("session/open", &params)).collect();
        let mut told = BTreeSet::new();
        let mut created = 0;
        for pending in asked {
            let session = pending.wait(SOON).expect("every open is answered with the session");
            assert_eq!(session["state"], "ready");
            told.insert((session["generation"].as_u64(), main_pid(&session)));
            created += u32::from(session["created"] == true);
        }
        assert_eq!((told.len(), created), (1, 1), "{told:?}");
        assert_eq!(scene.noted().len(), 1, "one process was started");
        assert_eq!(used(&daemon), 1);
        drop(connections);
        assert_closed(&close(&daemon, "one"), containment);
        daemon.finish();
    };

    /// A close and a reopen race. Whatever the order: at no moment do two generations have a process.
    g1_close_and_reopen_race = |scene, containment| {
        let setup = Setup::on(containment).config("[timeouts]\nstdin_grace = \"60ms\"\nterm_grace = \"60ms\"");
        let daemon = Daemon::start(scene, &setup);
        let params = open_params(scene, "race", &python("02-ignore-sigterm"), &[]);
        let (closer, opener) = (daemon.connect(), daemon.connect());
        let mut outcomes = BTreeSet::new();
        for round in 0..24_u64 {
            let before = opener.call("session/open", &params).expect("it opens");
            let old = main_pid(&before);
            // Sweeps the reopen from just before the close to the middle of the teardown.
            let (closing, reopening) = if round % 4 == 0 {
                let reopening = opener.send("session/open", &params);
                (send_close(&closer, "race"), reopening)
            } else {
                let closing = send_close(&closer, "race");
                std::thread::sleep(Duration::from_millis(round * 5));
                (closing, opener.send("session/open", &params))
            };
            let after = reopening.wait(SOON);
            if let Ok(after) = &after {
                let renewed = after["generation"] != before["generation"];
                assert!(!renewed || !procfs::exists(old), "a new generation is served while {old} of the old one is there");
                outcomes.insert(if renewed { "reopened" } else { "joined" });
            }
            assert_eq!(certificate(closing.wait(SOON))["outcome"], "closed");
            assert!(!procfs::exists(old), "closed was said while {old} is there");
            assert!(living(scene).len() <= 1, "two generations have processes: {:?}", living(scene));
            let _ = closer.call("session/close", &json!({"key": "race", "now": true}));
        }
        assert!(outcomes.len() > 1, "the sweep saw one order only: {outcomes:?}");
        drop((closer, opener));
        daemon.finish();
    };

    /// The last of the joined closers gets what all get, however the others end, and none gets it before the end.
    g13_g14_closers_are_killed = |scene, containment| {
        let setup = Setup::on(containment).config("[timeouts]\nstdin_grace = \"700ms\"\nterm_grace = \"700ms\"");
        let daemon = Daemon::start(scene, &setup);
        let pid = main_pid(&open(&daemon, scene, "joint", &python("02-ignore-sigterm"), &[]));
        let begin = Instant::now();
        let mut closers: Vec<_> = (0..6).map(|_| daemon.command(scene, &["close", "joint"]).spawn()).collect();
        let state = || daemon.cli(&["show", "joint"]).json()["state"].clone();
        eventually("the teardown", SOON, || state() == "stopping");
        // Two are killed, one hangs up, one loses patience.
        for closer in closers.iter_mut().take(2) {
            closer.signal(Signal::KILL);
        }
        drop(send_close(&daemon.connect(), "joint"));
        let impatient = daemon.cli(&["--timeout", "50ms", "close", "joint"]).fails(3);
        assert_eq!(impatient["kind"], "deadline_exceeded", "{impatient:#}");
        assert!(procfs::is_alive(pid), "none of that hurried the teardown");
        let waiter = daemon.cli(&["wait", "joint", "--timeout", "20s"]).ok();
        assert!(!procfs::exists(pid));
        let joint = &waiter["certificate"];
        assert_closed(joint, containment);
        assert!(begin.elapsed() >= Duration::from_millis(1400), "both graces were kept");
        for mut closer in closers.into_iter().skip(2) {
            let mut stdout = closer.take_stdout().expect("a pipe");
            assert_eq!(closer.wait(SOON).code(), Some(0));
            let mut text = String::new();
            std::io::Read::read_to_string(&mut stdout, &mut text).expect("text");
            let told: Value = serde_json::from_str(&text).expect("JSON");
            assert_eq!(&told["results"][0], joint, "everyone gets the same certificate");
        }
        daemon.finish();
    };

    /// A closed generation gives its certificate again; any other use of it is stale; the key's new generation is untouched.
    g3_an_ended_generation = |scene, containment| {
        let daemon = Daemon::start(scene, &Setup::on(containment).quick());
        let old = open(&daemon, scene, "again", &polite(), &[]);
        let first = close(&daemon, "again");
        let new = open(&daemon, scene, "again", &polite(), &[]);
        let handle = format!("again@{}", old["generation"]);
        assert_eq!(daemon.cli(&["close", &handle]).ok()["results"][0], first);
        assert_eq!(daemon.cli(&["wait", &handle]).ok()["certificate"], first);
        for args in [&["show", &handle][..], &["tools", &handle], &["call", &handle, "echo", "text=x"], &["kill", &handle]] {
            let error = daemon.cli(args).fails(1);
            assert_eq!(error["kind"], "stale_generation", "{args:?}: {error:#}");
        }
        let now = daemon.cli(&["show", "again"]).ok();
        assert_eq!((&now["generation"], &now["state"], main_pid(&now)), (&new["generation"], &json!("ready"), main_pid(&new)));
        assert_ne!(now["generation"], old["generation"]);
        close(&daemon, "again");
        daemon.finish();
    };

    /// Stopped, still stopping and unknown are three answers.
    g20_wait_has_three_answers = |scene, containment| {
        let daemon = Daemon::start(scene, &Setup::on(containment).quick());
        let unknown = daemon.cli(&["wait", "nobody", "--timeout", "1s"]).fails(4);
        assert_eq!(unknown["kind"], "not_found");
        assert_eq!(daemon.cli(&["close", "nobody"]).status, 4);
        let pid = main_pid(&open(&daemon, scene, "k", &python("02-ignore-sigterm"), &[]));
        assert_eq!(daemon.cli(&["wait", "k", "--for", "ready"]).ok()["reached"], true);
        let not_yet = daemon.cli(&["wait", "k", "--timeout", "100ms"]);
        assert_eq!(not_yet.status, 3, "{not_yet:?}");
        assert_eq!(not_yet.json()["reached"], false);
        // While it is being torn down it is not stopped yet, and a wait that is asked then tells the end.
        let connection = daemon.connect();
        let closing = send_close(&connection, "k");
        let mut stopping = 0;
        let told = until(SOON, || {
            let told = connection.call("session/wait", &json!({"key": "k", "deadline_ms": 20})).expect("an answer");
            let there = procfs::exists(pid);
            if told["reached"] == true {
                assert!(!there, "stopped was said while {pid} is there");
                return Some(told);
            }
            stopping += 1;
            None
        });
        assert!(stopping > 0, "the wait was never asked too early");
        assert_closed(&told.expect("it ends")["certificate"], containment);
        assert_eq!(certificate(closing.wait(SOON))["outcome"], "closed");
        assert_eq!(daemon.cli(&["wait", "k"]).ok()["reached"], true);
        assert_eq!(daemon.cli(&["wait", "k", "--for", "ready"]).fails(1)["kind"], "session_closed");
        drop(connection);
        daemon.finish();
    };

    /// A failed session is told as failed to whoever waits for it to be ready.
    g20_wait_for_a_session_that_fails = |scene, containment| {
        let daemon = Daemon::start(scene, &Setup::on(containment).config("[timeouts]\nstart = \"1s\"\nstdin_grace = \"300ms\""));
        let command = daemon.command(scene, &["open", "failing", "--no-wait", "--"]).args(python("08-init-never"));
        assert_eq!(command.output().ok()["state"], "starting");
        let error = daemon.cli(&["wait", "failing", "--for", "ready", "--timeout", "20s"]).fails(1);
        assert_eq!(error["kind"], "session_failed", "{error:#}");
        let told = daemon.cli(&["wait", "failing"]).ok();
        assert_eq!((&told["state"], &told["certificate"]["reason"]), (&json!("failed"), &json!("start_failed")));
        daemon.finish();
    };

    /// A cancelled open ends its process and frees its slot once; a second cancel changes nothing.
    g7_a_cancelled_open = |scene, containment| {
        let daemon = Daemon::start(scene, &Setup::on(containment).quick());
        let connection = daemon.connect();
        let pending = connection.send("session/open", &open_params(scene, "c", &python("08-init-never"), &[]));
        eventually("the server", SOON, || living(scene).len() == 1);
        connection.cancel(&pending);
        connection.cancel(&pending);
        let error = pending.wait(SOON).expect_err("a cancelled open does not succeed");
        assert_eq!(kind(&error), "cancelled", "{error:#}");
        eventually("the free slot", SOON, || used(&daemon) == 0);
        assert_eq!(living(scene), Vec::<u32>::new());
        // The key is free again.
        open(&daemon, scene, "c", &polite(), &[]);
        close(&daemon, "c");
        drop(connection);
        daemon.finish();
    };

    /// While a cancelled start is still being torn down its slot is taken, and no second process starts behind it.
    g6_the_slot_of_a_cancelled_start_is_taken_until_it_is_reaped = |scene, containment| {
        let setup = Setup::on(containment).daemon("max_sessions = 1")
            .config("[timeouts]\nstdin_grace = \"500ms\"\nterm_grace = \"1s\"");
        let daemon = Daemon::start(scene, &setup);
        let connection = daemon.connect();
        let pending = connection.send("session/open", &open_params(scene, "first", &stuck(), &[]));
        eventually("the server", SOON, || living(scene).len() == 1);
        for _ in 0..5 {
            connection.cancel(&pending);
        }
        let second = open_params(scene, "second", &polite(), &[]);
        let refused = connection.call("session/open", &second).expect_err("the slot is taken");
        assert_eq!(kind(&refused), "capacity_exhausted", "{refused:#}");
        assert_eq!((&refused["data"]["used"], &refused["data"]["limit"]), (&json!(1), &json!(1)), "{refused:#}");
        assert!(refused["data"]["scope"].is_string() && refused["data"]["retry_after_ms"].is_u64(), "{refused:#}");
        assert_eq!(living(scene).len(), 1, "nothing was started for the refused one");
        assert_eq!(kind(&pending.wait(SOON).expect_err("cancelled")), "cancelled");
        eventually("the free slot", SOON, || used(&daemon) == 0);
        assert_eq!(living(scene), Vec::<u32>::new());
        connection.call("session/open", &second).expect("the slot is free");
        close(&daemon, "second");
        drop(connection);
        daemon.finish();
    };

    /// A requester that vanishes cancels its open; one that was joined goes on for the others until the last has gone.
    g24_the_last_requester_decides = |scene, containment| {
        let daemon = Daemon::start(scene, &Setup::on(containment).quick());
        let params = open_params(scene, "shared", &python("08-init-never"), &[]);
        let mut connections: Vec<Rpc> = (0..8).map(|_| daemon.connect()).collect();
        let asked: Vec<Pending> = connections.iter().map(|c| c.send("session/open", &params)).collect();
        eventually("the server", SOON, || living(scene).len() == 1);
        let last = connections.pop().expect("eight");
        connections.clear();
        // That they have gone has reached the daemon when a later request has been answered.
        daemon.status();
        assert_eq!(daemon.cli(&["show", "shared"]).ok()["state"], "starting", "one requester is left");
        drop(last);
        eventually("the end of the start", SOON, || used(&daemon) == 0);
        assert_eq!(living(scene), Vec::<u32>::new());
        drop(asked);
        daemon.finish();
    };

    /// A client that is killed in an open leaves nothing; with `--no-wait` the session is there without it.
    g7_an_opener_is_killed = |scene, containment| {
        let daemon = Daemon::start(scene, &Setup::on(containment).quick());
        let mut opener = daemon.command(scene, &["open", "killed", "--"]).args(python("08-init-never")).spawn();
        eventually("the server", SOON, || living(scene).len() == 1);
        opener.signal(Signal::KILL);
        eventually("the end of the start", SOON, || used(&daemon) == 0);
        assert_eq!(living(scene), Vec::<u32>::new());
        let command = daemon.command(scene, &["open", "stays", "--no-wait", "--"]).args(polite());
        command.output().ok();
        assert_eq!(daemon.cli(&["wait", "stays", "--for", "ready", "--timeout", "20s"]).ok()["reached"], true);
        close(&daemon, "stays");
        daemon.finish();
    };

    /// Limits per user and per tenant are told by their scope, and a refusal leaves no trace.
    g6_g9_limits = |scene, containment| {
        let setup = Setup::on(containment).quick().daemon("max_sessions_per_user = 3").daemon("max_sessions_per_tenant = 1");
        let daemon = Daemon::start(scene, &setup);
        let with_tenant = |key: &str, tenant: &str| {
            daemon.command(scene, &["open", key, "--tenant", tenant, "--"]).args(polite()).output()
        };
        with_tenant("a", "red").ok();
        let refused = with_tenant("b", "red").fails(5);
        assert_eq!((&refused["kind"], &refused["data"]["scope"]), (&json!("capacity_exhausted"), &json!("tenant")));
        with_tenant("c", "blue").ok();
        open(&daemon, scene, "d", &polite(), &[]);
        let refused = daemon.command(scene, &["open", "e", "--"]).args(polite()).output().fails(5);
        assert_eq!((&refused["kind"], &refused["data"]["scope"]), (&json!("capacity_exhausted"), &json!("user")));
        assert_eq!(daemon.cli(&["show", "e"]).status, 4);
        assert_eq!(used(&daemon), 3);
        let all = daemon.cli(&["close", "--tenant", "red"]).ok();
        assert_eq!(all["results"].as_array().map(Vec::len), Some(1));
        let all = daemon.cli(&["close", "--all"]).ok();
        assert_eq!(all["results"].as_array().map(Vec::len), Some(2));
        daemon.finish();
    };

    /// Another definition for a key that is open is refused; so is joining where that is not wanted.
    g6_another_definition = |scene, containment| {
        let daemon = Daemon::start(scene, &Setup::on(containment).quick());
        let session = open(&daemon, scene, "k", &polite(), &[]);
        let same = open(&daemon, scene, "k", &polite(), &[]);
        assert_eq!(main_pid(&same), main_pid(&session));
        let other = daemon.command(scene, &["open", "k", "--"]).args(python("01-ignore-eof")).output().fails(5);
        assert_eq!(other["kind"], "session_exists");
        let alone = daemon.command(scene, &["open", "k", "--if-open", "fail", "--"]).args(polite()).output().fails(5);
        assert_eq!(alone["kind"], "session_exists");
        close(&daemon, "k");
        daemon.finish();
    };

    /// A reopen in a teardown waits for it, or is refused where that is asked for.
    g1_a_reopen_waits_or_is_refused = |scene, containment| {
        let daemon = Daemon::start(scene, &Setup::on(containment).quick());
        let old = main_pid(&open(&daemon, scene, "k", &python("02-ignore-sigterm"), &[]));
        let connection = daemon.connect();
        let closing = send_close(&connection, "k");
        eventually("the teardown", SOON, || daemon.cli(&["show", "k"]).json()["state"] == "stopping");
        let refused = daemon.command(scene, &["open", "k", "--if-closing", "fail", "--"]).args(polite()).output().fails(5);
        assert_eq!(refused["kind"], "session_closing");
        let new = open(&daemon, scene, "k", &polite(), &[]);
        assert!(!procfs::exists(old), "the new generation is served while {old} is there");
        assert_ne!(main_pid(&new), old);
        assert_eq!(certificate(closing.wait(SOON))["outcome"], "closed");
        drop(connection);
        close(&daemon, "k");
        daemon.finish();
    };

    /// Closing during a start ends the start; the open says so, after the unwinding.
    g22_close_during_a_start = |scene, containment| {
        let daemon = Daemon::start(scene, &Setup::on(containment).quick());
        let connection = daemon.connect();
        let pending = connection.send("session/open", &open_params(scene, "k", &python("08-init-never"), &[]));
        eventually("the server", SOON, || living(scene).len() == 1);
        assert_closed(&close(&daemon, "k"), containment);
        let error = pending.wait(SOON).expect_err("it was closed");
        assert_eq!(kind(&error), "session_closed", "{error:#}");
        assert_eq!(living(scene), Vec::<u32>::new());
        open(&daemon, scene, "k", &polite(), &[]);
        close(&daemon, "k");
        drop(connection);
        daemon.finish();
    };

    /// Calls that were admitted finish in the drain; those of later are refused; each gets exactly one answer.
    g11_calls_race_a_close = |scene, containment| {
        let daemon = Daemon::start(scene, &Setup::on(containment).config("[timeouts]\ndrain = \"20s\""));
        open(&daemon, scene, "k", &python("34-out-of-order"), &[]);
        let (caller, closer) = (daemon.connect(), daemon.connect());
        let call = |n: usize| {
            let arguments = json!({"text": n.to_string(), "delay_ms": 300});
            caller.send("tool/call", &json!({"key": "k", "tool": "echo", "arguments": arguments}))
        };
        let mut asked: Vec<Pending> = (0..50).map(call).collect();
        // The first answer shows that calls are in flight.
        let first = asked.remove(0).wait(SOON).expect("an admitted call");
        assert_eq!(first["content"][0]["text"], "0");
        asked.extend((50..100).map(call));
        let closing = send_close(&closer, "k");
        asked.extend((100..150).map(call));
        let (mut finished, mut refused) = (0, 0);
        for pending in asked {
            match pending.wait(SOON) {
                Ok(_) => finished += 1,
                Err(error) => {
                    let kind = kind(&error).to_owned();
                    assert!(["session_closing", "session_closed", "not_found"].contains(&kind.as_str()), "{error:#}");
                    refused += 1;
                }
            }
        }
        assert_eq!(finished + refused, 149);
        let told = certificate(closing.wait(SOON));
        assert_closed(&told, containment);
        assert_eq!(told["drained"]["cancelled"], 0, "{told:#}");
        assert!(finished >= 49, "those that were in flight at the close were answered: {finished}");
        drop((caller, closer));
        daemon.finish();
    };

    /// A call that never ends is cancelled at the end of the drain, and the ladder's budgets are still whole.
    g16_a_call_that_outlasts_the_drain = |scene, containment| {
        let setup = Setup::on(containment)
            .config("[timeouts]\ndrain = \"400ms\"\nstdin_grace = \"400ms\"\nterm_grace = \"400ms\"");
        let daemon = Daemon::start(scene, &setup);
        // It never reads again after its first answer, and SIGTERM stays pending.
        open(&daemon, scene, "k", &python("24-sigstop"), &[]);
        let connection = daemon.connect();
        let call = json!({"key": "k", "tool": "echo", "arguments": {"text": "x"}});
        connection.call("tool/call", &call).expect("the first is answered");
        let stuck = connection.send("tool/call", &call);
        eventually("the call in flight", SOON, || daemon.cli(&["show", "k"]).ok()["in_flight"] == 1);
        let told = close(&daemon, "k");
        assert_closed(&told, containment);
        assert_eq!(told["drained"], json!({"finished": 0, "cancelled": 1}), "{told:#}");
        assert!(told["duration_ms"].as_f64().is_some_and(|ms| (1200.0..15_000.0).contains(&ms)), "{told:#}");
        let error = stuck.wait(SOON).expect_err("it is settled");
        assert!(["session_closing", "session_closed"].contains(&kind(&error)), "{error:#}");
        drop(connection);
        daemon.finish();
    };

    /// Whatever a session does, status, list and an open of another key answer promptly.
    g10_nothing_waits_on_a_stuck_session = |scene, containment| {
        let daemon = Daemon::start(scene, &Setup::on(containment).config("[timeouts]\nstdin_grace = \"2s\"\nterm_grace = \"2s\""));
        let connection = daemon.connect();
        open(&daemon, scene, "closing", &python("02-ignore-sigterm"), &[]);
        let starting = connection.send("session/open", &open_params(scene, "starting", &stuck(), &[]));
        let closing = send_close(&connection, "closing");
        for n in 0..5 {
            let begin = Instant::now();
            daemon.status();
            connection.call("session/list", &json!({})).expect("a list");
            let key = format!("other-{n}");
            connection.call("session/open", &open_params(scene, &key, &polite(), &[])).expect("another key");
            connection.call("session/close", &json!({"key": key})).expect("a close");
            assert!(begin.elapsed() < Duration::from_millis(1500), "{} ms", begin.elapsed().as_millis());
        }
        closing.wait_within(Duration::ZERO).expect_err("that one is still stuck");
        connection.cancel(&starting);
        daemon.cli(&["wait", "closing", "--timeout", "20s"]).ok();
        eventually("the end of both", SOON, || used(&daemon) == 0);
        drop(connection);
        daemon.finish();
    };
}

/// An exclusive lease on a connection: its end closes the session (G34).
#[test]
fn g34_a_connection_lease_ends_with_its_connection() {
    mcpvisor_testkit::scene(|scene| {
        let daemon = Daemon::start(scene, &Setup::new().quick());
        let connection = daemon.connect();
        let mut params = open_params(scene, "leased", &polite(), &[]);
        params["lease"] = json!("connection");
        let pid = main_pid(&connection.call("session/open", &params).expect("it opens"));
        drop(connection);
        let told = daemon.cli(&["wait", "leased", "--timeout", "20s"]).ok();
        assert_eq!(told["certificate"]["reason"], "lease_ended", "{told:#}");
        assert!(!procfs::exists(pid));
        daemon.finish();
    });
}
