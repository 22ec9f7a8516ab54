//! The stop command: what ends things that another daemon started on a server's behalf, in the ladder before the kill.
use crate::support::{assert_closed, main_pid, on_both, polite};
use mcpvisor_testkit::{Daemon, SOON, Scene, Setup, Signal, eventually, procfs, send_signal};
use serde_json::{Value, json};

/// A profile with one server, and a stop command of the shell's.
fn profile(server: &[String], script: &str, more: &str) -> String {
    let (program, args) = server.split_first().expect("a command");
    let args = serde_json::to_string(args).expect("words are JSON, and TOML");
    format!(
        "[profiles.p.servers.main]\ncommand = {program:?}\nargs = {args}\n\
         stop_command = [\"/bin/sh\", \"-c\", '''{script}''', \"stop\", \"${{arg:name:-none}}\"]\n{more}\n"
    )
}

/// Ignores the end of its input and SIGTERM.
fn stubborn() -> Vec<String> {
    let mut command = polite();
    "stubborn".clone_into(command.last_mut().expect("it has words"));
    command
}

fn lines(scene: &Scene, name: &str) -> Vec<String> {
    let text = std::fs::read_to_string(scene.path(name)).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn open(daemon: &Daemon, name: &str) -> Value {
    daemon.cli(&["open", "k", "--profile", "p", "--arg", &format!("name={name}")]).ok()
}

fn end(certificate: &Value) -> &Value {
    &certificate["servers"][0]["stop_command"]
}

on_both! {
    /// G15: it runs once, with the arguments of the open and the name of what it stops, also for a server that leaves by itself at the end of its
    /// input; the certificate says how it ended, and waits for it.
    g15_once_for_each_incarnation = |scene, containment| {
        let told = scene.path("told");
        let script = format!("echo \"$1 $MCPVISOR_STOPPED\" >> {}; echo done >&2; sleep 0.2", told.display());
        let daemon = Daemon::start(scene, &Setup::on(containment).quick().config(&profile(&polite(), &script, "")));
        let session = open(&daemon, "box");
        send_signal(main_pid(&session), Signal::KILL);
        eventually("the restart", SOON, || {
            let server = daemon.cli(&["show", "k"]).ok()["servers"][0].clone();
            server["restarts"] == 1 && server["state"] == "ready"
        });
        assert_eq!(lines(scene, "told").len(), 1, "before the next incarnation");
        let certificate = daemon.cli(&["close", "k"]).ok()["results"][0].clone();
        assert_closed(&certificate, containment);
        let told = lines(scene, "told");
        assert_eq!(told.len(), 2, "{told:?}");
        let ends = [("0-1"), ("0-2")];
        for (line, of) in told.iter().zip(ends) {
            let (name, scope) = line.split_once(' ').expect("two words");
            assert_eq!(name, "box");
            assert!(scope.ends_with(&format!("/{of}")), "{scope}");
        }
        let end = end(&certificate);
        assert_eq!((&end["ok"], &end["exit"], &end["killed"]), (&json!(true), &json!({"code": 0}), &json!(false)), "{end:#}");
        assert_eq!(end["stderr_tail"], "done");
        assert!(end["duration_ms"].as_f64().is_some_and(|ms| ms >= 200.0), "{end:#}");
        assert_eq!(certificate["servers"][0]["exit"], json!({"code": 0}), "{certificate:#}");
        daemon.finish();
    };

    /// G16, G18: one that hangs, with children that ignore every signal, is killed when its time is up, and the server's own kill comes all the
    /// same; one that fails, or can't be started, stops nothing. Each is told.
    g16_g18_one_that_hangs_or_fails = |scene, containment| {
        let pids = scene.path("pids");
        let hangs = format!(
            "trap '' TERM; echo $$ >> {0}; setsid sh -c 'trap \"\" TERM; echo $$ >> {0}; sleep 300' & sleep 300",
            pids.display()
        );
        let script = format!("exec /bin/sh {}", scene.path("hangs.sh").display());
        std::fs::write(scene.path("hangs.sh"), hangs).expect("a file in the scene's folder");
        let setup = Setup::on(containment)
            .quick()
            .config(&profile(&stubborn(), &script, "stop_command_timeout = \"1s\""))
            .config("[profiles.bad.servers.main]")
            .config(&format!("command = {:?}\nargs = {}", polite()[0], serde_json::to_string(&polite()[1..]).expect("JSON")))
            .config("stop_command = [\"/nonexistent\"]");
        let daemon = Daemon::start(scene, &setup);
        open(&daemon, "x");
        let certificate = daemon.cli(&["close", "k"]).ok()["results"][0].clone();
        assert_closed(&certificate, containment);
        let hung = end(&certificate);
        assert_eq!((&hung["ok"], &hung["killed"], &hung["exit"]), (&json!(false), &json!(true), &json!({"signal": "KILL"})), "{hung:#}");
        assert_eq!(certificate["servers"][0]["stage"], "sigkill", "{certificate:#}");
        let pids = lines(scene, "pids");
        assert_eq!(pids.len(), 2, "{pids:?}");
        for pid in pids.iter().filter_map(|pid| pid.parse().ok()) {
            assert!(!procfs::exists(pid), "{pid} is left");
        }
        daemon.cli(&["open", "b", "--profile", "bad"]).ok();
        let certificate = daemon.cli(&["close", "b"]).ok()["results"][0].clone();
        assert_closed(&certificate, containment);
        let none = end(&certificate);
        assert_eq!((&none["ok"], &none["exit"]), (&json!(false), &Value::Null), "{none:#}");
        assert!(none["message"].as_str().is_some_and(|text| text.contains("no such")), "{none:#}");
        assert_eq!(certificate["servers"][0]["stage"], "stdin", "the server had its own end: {certificate:#}");
        daemon.finish();
    };

    /// A start that fails runs it where a process was there, and not where none was.
    what_never_ran_needs_none = |scene, containment| {
        let told = scene.path("told");
        let script = format!("echo run >> {}", told.display());
        let nothing = vec!["/nonexistent".to_owned()];
        let daemon = Daemon::start(scene, &Setup::on(containment).quick().config(&profile(&nothing, &script, "")));
        let refused = daemon.cli(&["open", "k", "--profile", "p"]).fails(1);
        assert_eq!(refused["kind"], "start_failed");
        assert_eq!(lines(scene, "told"), Vec::<String>::new());
        daemon.finish();
        let exits = vec!["/bin/false".to_owned()];
        let daemon = Daemon::start(scene, &Setup::on(containment).quick().config(&profile(&exits, &script, "")));
        let _ = daemon.cli(&["open", "k", "--profile", "p"]).fails(1);
        assert_eq!(lines(scene, "told"), ["run"]);
        daemon.finish();
    };

    /// G35: the third signal cuts a stop command that runs, and begins none; without it the daemon waits a minute for it. While it runs, the server
    /// that has ended has no pid.
    g35_the_third_signal_skips_it = |scene, containment| {
        let told = scene.path("told");
        let slow = format!("echo run >> {}; exec sleep 300", told.display());
        let stop = |daemon: &mut Daemon, urgencies: &[&str]| {
            for urgency in urgencies {
                daemon.process().signal(Signal::TERM);
                let heard = || daemon.log().to_lowercase().contains(&format!("urgency={urgency}"));
                eventually("the signal", SOON, heard);
            }
        };
        for (server, times) in [(polite(), "term_grace = \"1m\""), (stubborn(), "term_grace = \"1m\"\nstdin_grace = \"1m\"")] {
            let runs = server == polite();
            let config = profile(&server, &slow, "stop_command_timeout = \"5m\"");
            let mut daemon = Daemon::start(scene, &Setup::on(containment).config(&format!("[timeouts]\n{times}")).config(&config));
            let pid = main_pid(&open(&daemon, "x"));
            let _ = std::fs::remove_file(&told);
            stop(&mut daemon, &["drain", "hurry"]);
            if runs {
                eventually("the stop command", SOON, || !lines(scene, "told").is_empty());
                let shown = daemon.cli(&["show", "k"]).ok()["servers"][0].clone();
                assert_eq!((&shown["pid"], &shown["state"]), (&Value::Null, &json!("stopping")), "{shown:#}");
                assert!(shown["waits_for"]["what"].as_str().is_some_and(|text| text.contains("stop command")), "{shown:#}");
            }
            stop(&mut daemon, &["kill"]);
            assert_eq!(daemon.process().wait(SOON).code(), Some(0));
            assert!(!procfs::exists(pid));
            assert_eq!(lines(scene, "told").len(), usize::from(runs), "none is begun any more");
        }
    };
}
