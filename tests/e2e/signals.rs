//! The daemon's own end, in order and otherwise, and what can't be killed.
use crate::frozen::Freezer;
use crate::support::{assert_closed, close, kind, main_pid, on_both, open, open_params, polite, python};
use mcpvisor_testkit::{
    Daemon, Process, Rpc, SOON, Scene, Setup, Signal, Stdio, binary, ends_within, eventually, procfs, scene,
    until,
};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// No process that was noted exists.
#[track_caller]
fn assert_none_noted(scene: &Scene) {
    for (role, pid) in scene.noted() {
        assert!(!procfs::is_alive(pid), "{role} {pid} is left");
    }
}

on_both! {
    /// SIGTERM tears everything down at once, and the daemon ends well.
    g35_sigterm_ends_every_session = |scene, containment| {
        let mut daemon = Daemon::start(scene, &Setup::on(containment).quick());
        for (n, name) in ["01-ignore-eof", "02-ignore-sigterm", "03-double-fork-daemon", "04-sh-wrapper"].iter().enumerate() {
            open(&daemon, scene, &format!("k{n}"), &python(name), &[]);
        }
        let starting = daemon.connect();
        let pending = starting.send("session/open", &open_params(scene, "starting", &python("08-init-never"), &[]));
        eventually("the fifth server", SOON, || scene.noted().len() >= 7);
        let begin = Instant::now();
        daemon.process().signal(Signal::TERM);
        let error = pending.wait(SOON).expect_err("it is not opened any more");
        assert!(error["hung_up"] == true || ["session_closed", "draining"].contains(&kind(&error)), "{error:#}");
        assert_eq!(daemon.process().wait(SOON).code(), Some(0));
        assert!(begin.elapsed() < Duration::from_secs(10), "side by side: {} ms", begin.elapsed().as_millis());
        assert_none_noted(scene);
        assert_eq!(daemon.complaints(), Vec::<String>::new());
        assert!(!daemon.socket().exists());
    };

    /// A call that is in flight at SIGTERM is answered; nothing new is admitted.
    g35_a_call_finishes_in_the_drain = |scene, containment| {
        let mut daemon = Daemon::start(scene, &Setup::on(containment).config("[timeouts]\ndrain = \"20s\""));
        open(&daemon, scene, "k", &python("34-out-of-order"), &[]);
        let connection = daemon.connect();
        let arguments = json!({"text": "in time", "delay_ms": 1500});
        let call = connection.send("tool/call", &json!({"key": "k", "tool": "echo", "arguments": arguments}));
        eventually("the call in flight", SOON, || daemon.cli(&["show", "k"]).ok()["in_flight"] == 1);
        daemon.process().signal(Signal::TERM);
        eventually("the fence", SOON, || daemon.status()["state"] == "draining");
        let refused = connection.call("session/open", &open_params(scene, "late", &polite(), &[])).expect_err("fenced");
        assert_eq!(kind(&refused), "draining", "{refused:#}");
        assert_eq!(call.wait(SOON).expect("it is answered")["content"][0]["text"], "in time");
        assert_eq!(daemon.process().wait(SOON).code(), Some(0));
        assert_none_noted(scene);
    };

    /// A second SIGTERM skips the drain.
    g35_a_second_sigterm_skips_the_drain = |scene, containment| {
        let setup = Setup::on(containment).config("[timeouts]\ndrain = \"60s\"\nstdin_grace = \"1s\"");
        let mut daemon = Daemon::start(scene, &setup);
        open(&daemon, scene, "k", &python("34-out-of-order"), &[]);
        let connection = daemon.connect();
        let arguments = json!({"text": "too late", "delay_ms": 60_000});
        let call = connection.send("tool/call", &json!({"key": "k", "tool": "echo", "arguments": arguments}));
        eventually("the call in flight", SOON, || daemon.cli(&["show", "k"]).ok()["in_flight"] == 1);
        daemon.process().signal(Signal::TERM);
        eventually("the drain", SOON, || daemon.cli(&["show", "k"]).json()["state"] == "draining");
        let call = call.wait_within(Duration::from_millis(300)).expect_err("the drain waits for it");
        daemon.process().signal(Signal::TERM);
        let error = call.wait(SOON).expect_err("it is settled");
        assert!(error["hung_up"] == true || ["session_closing", "session_closed"].contains(&kind(&error)), "{error:#}");
        assert_eq!(daemon.process().wait(SOON).code(), Some(0));
        assert_none_noted(scene);
    };

    /// A third goes straight to the kill, whatever the graces are.
    g35_a_third_sigterm_kills = |scene, containment| {
        let setup = Setup::on(containment).config("[timeouts]\nstdin_grace = \"60s\"\nterm_grace = \"60s\"");
        let mut daemon = Daemon::start(scene, &setup);
        let pid = main_pid(&open(&daemon, scene, "k", &python("02-ignore-sigterm"), &[]));
        let state = |wanted: &str| daemon.cli(&["show", "k"]).json()["state"] == wanted;
        let signal = || mcpvisor_testkit::send_signal(daemon.pid(), Signal::TERM);
        signal();
        eventually("the teardown", SOON, || state("stopping"));
        signal();
        assert!(!ends_within(pid, Duration::from_millis(500)), "the second one does not cut the ladder");
        signal();
        assert_eq!(daemon.process().wait(SOON).code(), Some(0));
        assert_none_noted(scene);
    };

    /// `drain` admits nothing more and leaves what is there; `shutdown` ends it.
    g35_drain_and_shutdown_by_request = |scene, containment| {
        let mut daemon = Daemon::start(scene, &Setup::on(containment).quick());
        open(&daemon, scene, "k", &polite(), &[]);
        daemon.cli(&["drain"]).ok();
        let refused = daemon.command(scene, &["open", "late", "--"]).args(polite()).output().fails(5);
        assert_eq!(refused["kind"], "draining");
        let result = daemon.cli(&["call", "k", "echo", "message=still here"]).ok();
        assert_eq!(result["content"][0]["text"], "still here");
        assert_eq!(daemon.cli(&["shutdown"]).status, 0);
        assert_eq!(daemon.process().wait(SOON).code(), Some(0));
        assert_eq!(daemon.complaints(), Vec::<String>::new());
    };

    /// G4: what can't be killed is quarantined: visible, counted, its key blocked, until a retry that succeeds.
    g4_quarantine = |scene, containment| {
        let Some(freezer) = Freezer::create(&format!("g4-{containment}")) else { return };
        let setup = Setup::on(containment)
            .allow_error("session is quarantined")
            .config("[timeouts]\nstdin_grace = \"200ms\"\nterm_grace = \"200ms\"\nkill_wait = \"500ms\"");
        let daemon = Daemon::start(scene, &setup);
        let pid = main_pid(&open(&daemon, scene, "k", &polite(), &[]));
        freezer.freeze(pid);
        let output = daemon.cli(&["close", "k"]);
        assert_eq!(output.status, 8, "{output:?}");
        let told = output.json()["results"][0].clone();
        assert_eq!(told["outcome"], "quarantined", "{told:#}");
        assert_eq!(told["remaining"][0]["pid"], pid, "{told:#}");
        assert!(told["remaining"][0]["command"].as_str().is_some_and(|text| text.contains("demo-server")), "{told:#}");
        let session = daemon.cli(&["show", "k"]).ok();
        assert_eq!(session["state"], "quarantined", "{session:#}");
        let counts = daemon.status()["sessions"].clone();
        assert_eq!((&counts["used"], &counts["quarantined"]), (&json!(1), &json!(1)), "{counts:#}");
        let blocked = daemon.command(scene, &["open", "k", "--"]).args(polite()).output().fails(8);
        assert_eq!(blocked["kind"], "quarantined", "{blocked:#}");
        let again = daemon.cli(&["kill", "k"]);
        assert_eq!(again.status, 8, "{again:?}");
        let waited = daemon.cli(&["wait", "k", "--timeout", "200ms"]);
        assert_eq!(waited.status, 3, "it is not stopped: {waited:?}");
        freezer.thaw();
        let retried = daemon.cli(&["kill", "k"]);
        // The kernel may be faster than the retry: then it has ended by itself meanwhile.
        if retried.status == 0 {
            assert_closed(&retried.json()["results"][0], containment);
        }
        let waited = daemon.cli(&["wait", "k", "--timeout", "20s"]).ok();
        assert_closed(&waited["certificate"], containment);
        assert!(!procfs::exists(pid));
        // Each failed attempt and the end of the quarantine are events.
        let events = daemon.cli(&["events", "k"]).text();
        let events: Vec<Value> =
            events.lines().map(|line| serde_json::from_str(line).expect("it is JSON")).collect();
        let quarantined: Vec<_> = events.iter().filter(|event| event["kind"] == "session.quarantined").collect();
        assert!(quarantined.len() >= 2, "{events:#?}");
        assert_eq!(quarantined[0]["data"]["remaining"][0]["pid"], pid, "{events:#?}");
        assert_eq!(events.last().map(|event| &event["kind"]), Some(&json!("session.closed")), "{events:#?}");
        open(&daemon, scene, "k", &polite(), &[]);
        close(&daemon, "k");
        drop(freezer);
        daemon.finish();
    };

    /// G39: a shim does not wait for the kernel: it leaves when its session is quarantined, and says what is left.
    g39_a_shim_leaves_a_quarantined_session = |scene, containment| {
        let Some(freezer) = Freezer::create(&format!("g39-{containment}")) else { return };
        let setup = Setup::on(containment)
            .allow_error("session is quarantined")
            .config("[timeouts]\nstdin_grace = \"200ms\"\nterm_grace = \"200ms\"\nkill_wait = \"500ms\"");
        let daemon = Daemon::start(scene, &setup);
        let mut shim = Stdio::start(daemon.run(scene, &["sleep", "300"]));
        // With a keeper there are two processes.
        let server = || daemon.session_processes().into_iter().find(|pid| procfs::command(*pid).starts_with("sleep"));
        let pid = until(SOON, server).expect("the server runs");
        freezer.freeze(pid);
        shim.close_stdin();
        assert_eq!(shim.wait(SOON).code(), Some(125));
        assert!(shim.stderr_to_its_end().contains(&pid.to_string()), "it names what is left");
        assert_eq!(daemon.status()["sessions"]["quarantined"], 1);
        drop(freezer);
        eventually("the end of what was frozen", SOON, || daemon.status()["sessions"]["used"] == 0);
        daemon.finish();
    };

    /// The exit status tells of what is left.
    g35_the_exit_status_tells_of_leftovers = |scene, containment| {
        let Some(freezer) = Freezer::create(&format!("g35-{containment}")) else { return };
        let setup = Setup::on(containment).allow_error("quarantine")
            .config("[timeouts]\nstdin_grace = \"200ms\"\nterm_grace = \"200ms\"\nkill_wait = \"500ms\"");
        let mut daemon = Daemon::start(scene, &setup);
        let pid = main_pid(&open(&daemon, scene, "k", &polite(), &[]));
        open(&daemon, scene, "other", &polite(), &[]);
        freezer.freeze(pid);
        daemon.process().signal(Signal::TERM);
        assert_eq!(daemon.process().wait(SOON).code(), Some(8));
        assert!(procfs::is_alive(pid), "it can't be killed while it is frozen");
        freezer.thaw();
        assert!(ends_within(pid, SOON), "the kill was pending");
        drop(freezer);
        // The daemon is gone: its folder among the cgroups, kept for the leftover, is swept by the next start, or by us.
        let _ = std::fs::remove_file(daemon.socket());
        scene.sweep_cgroups();
    };

    /// G36: what the daemon's sessions have started is gone two seconds after its death, escapees included, and the next daemon
    /// finds nothing of it left.
    g36_the_daemon_is_killed = |scene, containment| {
        let mut daemon = Daemon::start(scene, &Setup::on(containment).quick());
        for (n, name) in ["01-ignore-eof", "02-ignore-sigterm", "03-double-fork-daemon", "04-sh-wrapper"].iter().enumerate() {
            open(&daemon, scene, &format!("k{n}"), &python(name), &[]);
        }
        daemon.process().signal(Signal::KILL);
        daemon.process().wait(SOON);
        let begin = Instant::now();
        for (role, pid) in scene.noted() {
            let left = Duration::from_secs(2).saturating_sub(begin.elapsed());
            assert!(ends_within(pid, left), "{role} {pid} outlives the daemon by two seconds");
        }
        let next = Daemon::start_in(scene, &Setup::on(containment).quick(), daemon.socket(), "next");
        open(&next, scene, "k0", &polite(), &[]);
        close(&next, "k0");
        next.finish();
    };
}

/// A daemon, as soon as its socket accepts connections and not later.
fn just_listening(scene: &Arc<Scene>, n: usize, config: &Path) -> (Process, PathBuf) {
    let socket = scene.path(&format!("early{n}.sock"));
    let log = || {
        std::process::Stdio::from(
            fs::File::create(socket.with_extension("log")).expect("a log in the scene's folder"),
        )
    };
    let command = scene.command(binary("mcpvisord")).arg("--socket").arg(&socket).arg("--config").arg(config);
    let mut daemon = command.streams(std::process::Stdio::null(), log(), log()).spawn();
    let begin = Instant::now();
    while UnixStream::connect(&socket).is_err() {
        assert!(!daemon.has_ended() && begin.elapsed() < SOON, "it does not listen");
        std::hint::spin_loop();
    }
    (daemon, socket)
}

/// Who can connect can signal, too: the daemon heeds that once it is up. Negative control: with signals that are received from the
/// end of the start on, each of these ended the daemon by the signal.
#[test]
fn g35_signals_from_the_first_connection_on() {
    scene(|scene| {
        let config = scene.path("early.toml");
        let signals = [Signal::TERM, Signal::INT, Signal::HUP];
        for (n, signal) in signals.into_iter().cycle().take(6).enumerate() {
            fs::write(&config, "[daemon]\nmax_sessions = 5\n").expect("a file in the scene's folder");
            let (mut daemon, socket) = just_listening(scene, n, &config);
            if signal == Signal::HUP {
                fs::write(&config, "[daemon]\nmax_sessions = 2\n").expect("a file in the scene's folder");
            }
            daemon.signal(signal);
            if signal == Signal::HUP {
                eventually("the new limit", SOON, || {
                    let connection = Rpc::connect(&socket).expect("it goes on");
                    connection.call("daemon/status", &json!({})).expect("a status")["sessions"]["limit"] == 2
                });
                daemon.signal(Signal::TERM);
            }
            assert_eq!(daemon.wait(SOON).code(), Some(0), "{signal:?}");
        }
    });
}
