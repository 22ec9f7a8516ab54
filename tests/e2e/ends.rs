//! How sessions end, by every way at once, in how long, and whatever hangs beside them (B, C.3, G23).
use crate::frozen::Freezer;
use crate::support::{
    assert_closed, close, kind, main_pid, on_both, open, open_params, polite, processes, used,
};
use mcpvisor_testkit::{Daemon, Pending, Rpc, SOON, Scene, Setup, Signal, binary, eventually, procfs};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

/// Ends on no rung before the kill, and has a helper that got away.
fn stubborn() -> Vec<String> {
    let client = binary("mcpvisor").to_string_lossy().into_owned();
    [client.as_str(), "demo-server", "stubborn"].map(str::to_owned).to_vec()
}

/// Opens a session, and begins its end in this way. The session that was opened, its opener's connection where that stays, and who is to be told of the end.
fn begin(daemon: &Daemon, scene: &Scene, way: &str) -> (Value, Option<Rpc>, Option<Pending>) {
    let mut params = open_params(scene, "k", &stubborn(), &[]);
    params["labels"] = json!({"l": "1"});
    match way {
        "lease_ended" => params["lease"] = json!("connection"),
        "idle" => params["idle_ms"] = json!(200),
        "ttl" => params["ttl_ms"] = json!(200),
        _ => {}
    }
    let owner = daemon.connect();
    let opened = owner.call("session/open", &params).expect("it opens");
    match way {
        "lease_ended" => (opened, None, None),
        "requested" => {
            let asked = owner.send("session/close", &json!({"key": "k"}));
            (opened, Some(owner), Some(asked))
        }
        _ => (opened, Some(owner), None),
    }
}

/// A server whose call is answered by nobody: it stops itself in it, and heeds nothing before.
const PARKED: &str = r#"
import json, os, signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
def send(rid, result): print(json.dumps({"jsonrpc": "2.0", "id": rid, "result": result}), flush=True)
while True:
    line = sys.stdin.readline()
    if not line: signal.pause()
    message = json.loads(line)
    method, rid = message.get("method"), message.get("id")
    if method == "initialize":
        send(rid, {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "p", "version": "1"}})
    elif method == "tools/list":
        send(rid, {"tools": [{"name": "park", "inputSchema": {"type": "object"}}]})
    elif method == "tools/call":
        os.kill(os.getpid(), signal.SIGSTOP)
"#;

/// Fills a pipe that nobody reads. It stays full for as long as what is returned is held.
fn full_pipe(scene: &Scene, path: &Path) -> File {
    assert_eq!(scene.command("mkfifo").arg(path).output().status, 0);
    const NONBLOCK: i32 = 0o4000;
    let pipe = fs::OpenOptions::new().read(true).write(true).custom_flags(NONBLOCK).open(path);
    let mut pipe = pipe.expect("a pipe can be opened on both ends");
    while pipe.write(&[b'x'; 4096]).is_ok() {}
    while pipe.write(b"x").is_ok() {}
    pipe
}

on_both! {
    /// B.2 (G13): whatever has begun the end of a session, all who close it meanwhile, by key and in a batch, and who waits, get the one report, at
    /// the end of the teardown.
    b2_whatever_began_the_end_all_get_one_report = |scene, containment| {
        let daemon = Daemon::start(scene, &Setup::on(containment).quick());
        for way in ["requested", "lease_ended", "idle", "ttl"] {
            let (opened, owner, asked) = begin(&daemon, scene, way);
            let main = main_pid(&opened);
            eventually("its teardown", SOON, || daemon.cli(&["show", "k"]).json()["state"] == "stopping");
            let (one, two, three) = (daemon.connect(), daemon.connect(), daemon.connect());
            let by_key = one.send("session/close", &json!({"key": "k"}));
            let now = two.send("session/close", &json!({"key": "k", "generation": opened["generation"]}));
            let waiting = three.send("session/wait", &json!({"key": "k"}));
            let batch = daemon.cli(&["close", "--label", "l=1"]).ok();
            assert!(!procfs::exists(main), "{way}: a batch says closed of what is there");
            let report = batch["results"][0].clone();
            assert_closed(&report, containment);
            assert_eq!(report["reason"], way, "{report:#}");
            for joined in [by_key, now] {
                assert_eq!(joined.wait(SOON).expect("a report")["results"][0], report, "{way}");
            }
            assert_eq!(waiting.wait(SOON).expect("a report")["certificate"], report, "{way}");
            if let Some(asked) = asked {
                assert_eq!(asked.wait(SOON).expect("a report")["results"][0], report, "{way}");
            }
            let named = format!("k@{}", opened["generation"]);
            assert_eq!(daemon.cli(&["close", &named]).ok()["results"][0], report, "{way}: later");
            drop(owner);
        }
        daemon.finish();
    };

    /// B.7 (G35): a shutdown ends one session that resists while another one starts, that resists as well: nothing is published, and all takes one budget and
    /// not two.
    b7_a_shutdown_takes_one_budget = |scene, containment| {
        const GRACE: Duration = Duration::from_millis(1_500);
        let grace = GRACE.as_millis();
        let timeouts = format!("[timeouts]\nstdin_grace = \"{grace}ms\"\nterm_grace = \"{grace}ms\"\nstart = \"60s\"");
        let mut daemon = Daemon::start(scene, &Setup::on(containment).config(&timeouts));
        let mute = ["python3".to_owned(), "-c".to_owned(), "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint(flush=True)\ntime.sleep(600)".to_owned()];
        let connection = daemon.connect();
        let live = connection.call("session/open", &open_params(scene, "live", &stubborn(), &[])).expect("it opens");
        let starting = connection.send("session/open", &open_params(scene, "starting", &mute, &[]));
        let mut pid = 0;
        eventually("its start", SOON, || {
            let shown = daemon.cli(&["show", "starting"]);
            pid = shown.json()["servers"][0]["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok()).unwrap_or_default();
            pid != 0
        });
        let since = Instant::now();
        daemon.process().signal(Signal::TERM);
        let refused = starting.wait(SOON).expect_err("it is not published");
        assert_eq!(kind(&refused), "session_closed", "{refused:#}");
        let status = daemon.process().wait(SOON);
        let took = since.elapsed();
        assert_eq!(status.code(), Some(0));
        assert!(!procfs::exists(main_pid(&live)) && !procfs::exists(pid));
        assert!(took >= 2 * GRACE, "the live one had its time: {took:?}");
        assert!(took < 4 * GRACE, "one after the other: {took:?}");
        drop(connection);
    };

    /// B.8 (G5, G39): what is written down of a close can't be written: the log is a pipe that is full, a hook hangs, and who follows the events has stopped. The
    /// teardown is whole, the hook's failure is told, the key is free, and the daemon ends.
    b8_records_that_can_not_be_written = |scene, containment| {
        let pipe = scene.path("log-that-is-full");
        let held = full_pipe(scene, &pipe);
        let words = ["/bin/sh", "-c", "exec \"$@\" 2>\"$0\"", &pipe.to_string_lossy()].map(str::to_owned);
        let hook = "[[hooks]]\nname = \"hangs\"\non = [\"session.closed\"]\ncommand = \"sleep\"\nargs = [\"600\"]\ntimeout = \"700ms\"";
        let setup = Setup::on(containment).quick().config(hook).daemon("log_level = \"debug\"").under(&words);
        let mut daemon = Daemon::start(scene, &setup);
        let mut follower = daemon.command(scene, &["events", "-f"]).spawn();
        open(&daemon, scene, "first", &polite(), &[]);
        close(&daemon, "first");
        follower.signal(Signal::STOP);
        for _ in 0..3 {
            open(&daemon, scene, "k", &stubborn(), &[]);
            assert_closed(&close(&daemon, "k"), containment);
        }
        let failed = || daemon.cli(&["events", "--since", "0"]).text().contains("hook.ended");
        eventually("the failure of the hook", SOON, failed);
        assert_eq!(used(&daemon), 0);
        follower.signal(Signal::KILL);
        let _ = follower.wait(SOON);
        daemon.assert_at_rest();
        daemon.process().signal(Signal::TERM);
        assert_eq!(daemon.process().wait(SOON).code(), Some(0), "it does not wait for its log");
        drop(held);
    };

    /// C.3 (G16): a call is parked in a server that ignores SIGTERM and has stopped itself. The call has one answer, and the whole takes the sum of the budgets.
    c3_a_call_parked_in_a_stopped_server = |scene, containment| {
        let timeouts = "[timeouts]\ndrain = \"500ms\"\nstdin_grace = \"400ms\"\nterm_grace = \"400ms\"\nkill_wait = \"5s\"";
        let daemon = Daemon::start(scene, &Setup::on(containment).config(timeouts));
        let script = scene.path("parked.py");
        fs::write(&script, PARKED).expect("the scene is ours");
        open(&daemon, scene, "k", &["python3".to_owned(), script.to_string_lossy().into_owned()], &[]);
        let connection = daemon.connect();
        let parked = connection.send("tool/call", &json!({"key": "k", "tool": "park", "arguments": {}}));
        eventually("the call", SOON, || daemon.cli(&["show", "k"]).ok()["in_flight"] == json!(1));
        let since = Instant::now();
        let certificate = close(&daemon, "k");
        let took = since.elapsed();
        assert_closed(&certificate, containment);
        assert_eq!(certificate["servers"][0]["stage"], "sigkill", "{certificate:#}");
        assert_eq!(certificate["drained"]["cancelled"], 1, "{certificate:#}");
        assert!(took >= Duration::from_millis(1_300), "each budget was whole: {took:?}");
        assert!(took < Duration::from_millis(1_300 + 5_000), "{took:?}");
        let error = parked.wait(SOON).expect_err("it was given up");
        assert_eq!(kind(&error), "session_closing", "{error:#}");
        drop(connection);
        daemon.finish();
    };

    /// G23: a start fails, and what it has begun can't be killed: the session is visible with its processes and its cause, the opener is told, and the key is blocked
    /// until the kernel lets go.
    g23_a_failed_start_that_can_not_be_cleaned_up = |scene, containment| {
        let Some(freezer) = Freezer::create(&format!("g23-{containment}")) else { return };
        let setup = Setup::on(containment)
            .allow_error("session is quarantined")
            .config("[timeouts]\nstart = \"2s\"\nstdin_grace = \"200ms\"\nterm_grace = \"200ms\"\nkill_wait = \"500ms\"");
        let daemon = Daemon::start(scene, &setup);
        let connection = daemon.connect();
        let mute = ["sh", "-c", "echo what it said last >&2; exec sleep 600"].map(str::to_owned);
        let opening = connection.send("session/open", &open_params(scene, "k", &mute, &[]));
        let mut pid = 0;
        eventually("its start", SOON, || {
            let shown = daemon.cli(&["show", "k"]);
            pid = shown.json()["servers"][0]["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok()).unwrap_or_default();
            pid != 0 && procfs::command(pid).contains("sleep")
        });
        freezer.freeze(pid);
        let failed = opening.wait(SOON).expect_err("it never answers");
        assert_eq!(kind(&failed), "start_timeout", "{failed:#}");
        assert!(failed["data"]["stderr_tail"].as_str().is_some_and(|tail| tail.contains("said last")), "{failed:#}");
        let shown = daemon.cli(&["show", "k"]).ok();
        assert_eq!(shown["state"], "quarantined", "{shown:#}");
        assert!(shown.to_string().contains(&format!("\"pid\":{pid}")), "{shown:#}");
        let listed = daemon.cli(&["list"]).ok();
        assert_eq!(listed["sessions"][0]["state"], "quarantined", "{listed:#}");
        let counts = daemon.status()["sessions"].clone();
        assert_eq!((&counts["used"], &counts["quarantined"]), (&json!(1), &json!(1)), "{counts:#}");
        let blocked = daemon.command(scene, &["open", "k", "--"]).args(polite()).output().fails(8);
        assert_eq!(blocked["kind"], "quarantined", "{blocked:#}");
        let told = daemon.cli(&["close", "k"]);
        assert_eq!(told.status, 8, "{told:?}");
        assert_eq!(told.json()["results"][0]["remaining"][0]["pid"], pid, "{told:?}");
        freezer.thaw();
        let _ = daemon.cli(&["kill", "k"]);
        let waited = daemon.cli(&["wait", "k", "--timeout", "20s"]).ok();
        assert_closed(&waited["certificate"], containment);
        assert_eq!(waited["certificate"]["reason"], "start_failed", "{waited:#}");
        assert!(!procfs::exists(pid) && processes(&waited["certificate"]).iter().any(|process| process["pid"] == pid));
        open(&daemon, scene, "k", &polite(), &[]);
        close(&daemon, "k");
        drop((connection, freezer));
        daemon.finish();
    };
}
