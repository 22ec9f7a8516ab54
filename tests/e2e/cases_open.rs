//! Every misbehaving server through `open`, `call` and `close`, on both containments: what its header asks for, a certificate
//! that is right, and nothing left.
use crate::support::{assert_closed, case, kind, on_both, record};
use mcpvisor_testkit::{Containment, Daemon, Output, SOON, Scene, Setup, Signal, eventually, procfs, until};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A daemon, and one session of it with one server.
struct Stage<'a> {
    scene: &'a Arc<Scene>,
    daemon: Daemon,
    containment: Containment,
}

impl<'a> Stage<'a> {
    fn new(scene: &'a Arc<Scene>, containment: Containment) -> Self {
        Self::with(scene, containment, &Setup::on(containment).quick())
    }

    fn with(scene: &'a Arc<Scene>, containment: Containment, setup: &Setup) -> Self {
        Self { scene, daemon: Daemon::start(scene, setup), containment }
    }

    /// Tries to open the session `case`.
    fn try_open(&self, name: &str, env: &[(&str, &str)]) -> Output {
        let mut command = self.daemon.command(self.scene, &["open", "case", "--", "python3"]).arg(case(name));
        for (name, value) in env {
            command = command.env(name, value);
        }
        command.output()
    }

    #[track_caller]
    fn open(&self, name: &str, env: &[(&str, &str)]) -> Value {
        let session = self.try_open(name, env).ok();
        assert_eq!(session["state"], "ready", "{session:#}");
        assert_eq!(session["containment"], self.containment.to_string(), "{session:#}");
        session
    }

    fn call(&self, tool: &str, arguments: &Value) -> Output {
        self.daemon.cli(&["call", "case", tool, &arguments.to_string()])
    }

    /// Calls a tool that must answer; returns the text.
    #[track_caller]
    fn text(&self, tool: &str, arguments: &Value) -> String {
        let result = self.call(tool, arguments).ok();
        result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text: {result}")).to_owned()
    }

    #[track_caller]
    fn echo(&self, text: &str) {
        assert_eq!(self.text("echo", &json!({"text": text})), text);
    }

    /// The number of the process that was noted in this role, the last one of several.
    #[track_caller]
    fn noted(&self, role: &str) -> u32 {
        let noted = self.scene.noted();
        let found = noted.iter().rev().find(|(known, _)| known == role);
        found.unwrap_or_else(|| panic!("no {role} was noted: {noted:?}")).1
    }

    /// Closes, and holds the certificate against what is true of any.
    #[track_caller]
    fn close(&self) -> Value {
        let told = self.daemon.cli(&["ps", "case"]).ok();
        let of_session = told["processes"].as_array().cloned().unwrap_or_default();
        let of_session = of_session.iter().filter_map(|process| u32::try_from(process["pid"].as_u64()?).ok());
        let of_session: Vec<u32> = of_session.collect();
        let certificate = crate::support::close(&self.daemon, "case");
        assert_closed(&certificate, self.containment);
        assert_eq!(certificate["reason"], "requested", "{certificate:#}");
        for pid in of_session {
            assert!(!procfs::exists(pid), "{pid} is still there after the acknowledgement");
        }
        certificate
    }

    /// Closes, and asserts on which rung the server's main process ended.
    #[track_caller]
    fn close_at(&self, stage: &str, exit: &Value) -> Value {
        let certificate = self.close();
        assert_eq!(certificate["servers"][0]["stage"], stage, "{certificate:#}");
        assert_eq!(certificate["servers"][0]["exit"], *exit, "{certificate:#}");
        let main = record(&certificate, self.noted("server"));
        assert_eq!((&main["ended_by"], &main["exit"]), (&json!(stage), exit), "{certificate:#}");
        certificate
    }

    fn stderr_of_case(&self) -> String {
        let lines = self.daemon.cli(&["logs", "case", "-n", "1000"]);
        assert_eq!(lines.status, 0, "{lines:?}");
        lines.text()
    }
}

/// The signals that this test ignores, as a mask: a shell's background job or `nohup` may have asked for that.
fn ignored_by_us() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

fn exit_0() -> Value {
    json!({"code": 0})
}

fn killed_by(signal: &str) -> Value {
    json!({"signal": signal})
}

/// The time that a certificate states, in milliseconds.
fn milliseconds(certificate: &Value) -> f64 {
    certificate["duration_ms"].as_f64().expect("a certificate states its time")
}

on_both! {
    ignores_eof = |scene, containment| {
        let stage = Stage::new(scene, containment);
        stage.open("01-ignore-eof", &[]);
        stage.echo("hello");
        let certificate = stage.close_at("sigterm", &killed_by("TERM"));
        assert!(milliseconds(&certificate) >= 300.0, "the grace of standard input was cut: {certificate:#}");
        stage.daemon.finish();
    };

    /// G16: each rung has its own budget, and a close ends in a known time.
    g16_ignores_sigterm = |scene, containment| {
        let stage = Stage::new(scene, containment);
        stage.open("02-ignore-sigterm", &[]);
        stage.echo("hello");
        let certificate = stage.close_at("sigkill", &killed_by("KILL"));
        let time = milliseconds(&certificate);
        assert!((600.0..10_000.0).contains(&time), "{time} ms for two graces of 300: {certificate:#}");
        stage.daemon.finish();
    };

    /// G12: an escapee in a session of its own, whose parent has gone, is found, killed and told.
    g12_double_fork = |scene, containment| {
        let stage = Stage::new(scene, containment);
        stage.open("03-double-fork-daemon", &[]);
        stage.echo("hello");
        let (helper, server) = (stage.noted("helper"), stage.noted("server"));
        let told = stage.daemon.cli(&["ps", "case"]).ok();
        let listed = |pid: u32| {
            let all = told["processes"].as_array().cloned().unwrap_or_default();
            all.into_iter().find(|process| process["pid"] == json!(pid)).unwrap_or_else(|| panic!("{pid} not in {told:#}"))
        };
        assert_eq!(listed(helper)["escaped"], true);
        assert_eq!(listed(server)["escaped"], false);
        let certificate = stage.close_at("stdin", &exit_0());
        let helper = record(&certificate, helper);
        assert_eq!(helper["escaped"], true, "{certificate:#}");
        assert_eq!(helper["ended_by"], "sigkill", "{certificate:#}");
        assert_eq!(helper["exit"], killed_by("KILL"), "{certificate:#}");
        stage.daemon.finish();
    };

    behind_a_shell = |scene, containment| {
        let stage = Stage::new(scene, containment);
        stage.open("04-sh-wrapper", &[]);
        stage.echo("hello");
        let certificate = stage.close();
        assert_eq!(certificate["servers"][0]["stage"], "sigterm", "{certificate:#}");
        for role in ["wrapper", "server"] {
            let process = record(&certificate, stage.noted(role));
            assert_eq!((&process["ended_by"], &process["escaped"]), (&json!("sigterm"), &json!(false)), "{certificate:#}");
        }
        stage.daemon.finish();
    };

    /// G30: noise is passed over, counted and shown.
    g30_banner = |scene, containment| {
        let stage = Stage::new(scene, containment);
        stage.open("05-stdout-banner", &[]);
        stage.echo("hello");
        stage.echo("again");
        stage.close_at("stdin", &exit_0());
        stage.daemon.finish();
    };

    /// A banner without newline makes the first answer unreadable: the timeout shows the line.
    glued_banner = |scene, containment| {
        let setup = Setup::on(containment).config("[timeouts]\nstart = \"3s\"\nstdin_grace = \"300ms\"");
        let stage = Stage::with(scene, containment, &setup);
        let error = stage.try_open("05-stdout-banner", &[("BUG_GLUE", "1")]).fails(1);
        assert_eq!(error["kind"], "start_timeout", "{error:#}");
        assert!(error.to_string().contains("Starting server..."), "the line is not shown: {error:#}");
        stage.daemon.finish();
    };

    crlf_and_bom = |scene, containment| {
        let stage = Stage::new(scene, containment);
        stage.open("06-crlf-bom", &[]);
        stage.echo("hello");
        stage.close_at("stdin", &exit_0());
        stage.daemon.finish();
    };

    huge_line = |scene, containment| {
        let stage = Stage::new(scene, containment);
        stage.open("07-huge-line", &[]);
        assert_eq!(stage.text("echo", &json!({})).len(), 32 << 20);
        stage.close_at("stdin", &exit_0());
        stage.daemon.finish();
    };

    /// G30: over the limit the one request fails, and the stream goes on.
    g30_line_over_the_limit = |scene, containment| {
        let stage = Stage::with(scene, containment, &Setup::on(containment).quick().daemon("max_line = \"1M\""));
        stage.open("07-huge-line", &[]);
        let error = stage.call("echo", &json!({"bytes": 4 << 20})).fails(1);
        let told = error["message"].as_str().unwrap_or_default().to_owned();
        assert!(told.contains("limit") || told.contains("long"), "{error:#}");
        assert_eq!(stage.text("echo", &json!({"bytes": 1000})).len(), 1000);
        assert_eq!(stage.scene.noted().len(), 1, "the server was not started again");
        stage.close_at("stdin", &exit_0());
        stage.daemon.finish();
    };

    /// G25: the timeout of a start tells the tail of stderr, and frees the slot.
    g25_never_answers = |scene, containment| {
        let setup = Setup::on(containment).config("[timeouts]\nstart = \"3s\"\nstdin_grace = \"300ms\"\nterm_grace = \"300ms\"");
        let stage = Stage::with(scene, containment, &setup);
        let error = stage.try_open("08-init-never", &[]).fails(1);
        assert_eq!(error["kind"], "start_timeout", "{error:#}");
        let tail = error["data"]["stderr_tail"].as_str().unwrap_or_default();
        assert!(tail.contains("still loading the index..."), "{error:#}");
        assert!(!procfs::exists(stage.noted("server")), "it was reaped before the answer");
        assert_eq!(crate::support::used(&stage.daemon), 0);
        stage.daemon.finish();
    };

    /// G8: a slow start is waited for, once, and delays nobody else.
    g8_slow_start = |scene, containment| {
        let stage = Stage::new(scene, containment);
        let connection = stage.daemon.connect();
        let slow = crate::support::open_params(scene, "slow", &crate::support::python("09-init-slow"), &[("BUG_DELAY", "2.5")]);
        let slow = connection.send("session/open", &slow);
        eventually("the slow server", SOON, || !stage.scene.noted().is_empty());
        stage.open("20-tiny-writes", &[("BUG_DELAY", "0")]);
        let slow = slow.wait_within(Duration::ZERO).expect_err("the other session is open before the slow one");
        assert_eq!(stage.daemon.cli(&["show", "slow"]).ok()["state"], "starting");
        let session = slow.wait(SOON).expect("the slow one is opened in the end");
        assert_eq!(session["servers"][0]["restarts"], 0);
        assert_eq!(stage.scene.noted().len(), 2, "one process each");
        stage.daemon.cli(&["close", "slow"]).ok();
        stage.close();
        drop(connection);
        stage.daemon.finish();
    };

    /// The open fails at once, with the exit status and all of stderr.
    exits_at_once = |scene, containment| {
        let stage = Stage::new(scene, containment);
        for _ in 0..10 {
            let start = Instant::now();
            let error = stage.try_open("10-exit-at-once", &[]).fails(1);
            assert!(start.elapsed() < Duration::from_secs(10), "not by a timeout");
            assert_eq!(error["kind"], "start_failed", "{error:#}");
            assert_eq!(error["data"]["exit"], json!({"code": 3}), "{error:#}");
            let tail = error["data"]["stderr_tail"].as_str().unwrap_or_default();
            assert!(tail.contains("FATAL: EXAMPLE_API_KEY is not set"), "{error:#}");
        }
        assert_eq!(stage.scene.noted().len(), 10, "a failed first start is not repeated");
        stage.daemon.finish();
    };

    /// G31: the call fails at once, says how the server died, and is not sent again.
    g31_dies_in_a_call = |scene, containment| {
        let stage = Stage::new(scene, containment);
        stage.open("11-dies-mid-call", &[]);
        for (round, arguments) in [json!({}), json!({"partial": true})].iter().enumerate() {
            let first = stage.noted("server");
            let error = stage.call("echo", arguments).fails(1);
            assert_eq!(error["kind"], "server_exited", "{error:#}");
            assert_eq!(error["data"]["exit"], killed_by("KILL"), "{error:#}");
            assert!(error["message"].as_str().unwrap_or_default().contains("KILL"), "{error:#}");
            eventually("the restart", SOON, || {
                let session = stage.daemon.cli(&["show", "case"]).ok();
                session["state"] == "ready" && session["servers"][0]["restarts"] == round + 1
            });
            assert!(!procfs::exists(first), "the dead one is reaped");
            let deaths = stage.stderr_of_case().matches("about to die").count();
            assert_eq!(deaths, 1, "the call was sent once: the stderr of the last process and this one is kept");
        }
        stage.close();
        stage.daemon.finish();
    };

    stderr_flood = |scene, containment| {
        let stage = Stage::new(scene, containment);
        stage.open("12-stderr-flood", &[]);
        stage.echo("hello");
        let memory = procfs::anonymous_kib(stage.daemon.pid()).expect("the daemon lives");
        assert!(memory < 64 << 10, "{memory} KiB after 100 MB of stderr");
        assert!(stage.stderr_of_case().len() < 4 << 20, "the tail is bounded");
        assert!(stage.daemon.log().len() < 1 << 20, "the daemon's own log is bounded");
        stage.close_at("stdin", &exit_0());
        stage.daemon.finish();
    };

    notification_flood = |scene, containment| {
        let stage = Stage::new(scene, containment);
        stage.open("13-notify-flood", &[]);
        for _ in 0..5 {
            stage.echo("in the flood");
        }
        let memory = procfs::anonymous_kib(stage.daemon.pid()).expect("the daemon lives");
        assert!(memory < 64 << 10, "{memory} KiB in a flood of notifications");
        stage.close();
        stage.daemon.finish();
    };

    ids_of_another_type = |scene, containment| {
        let stage = Stage::new(scene, containment);
        stage.open("14-string-id", &[]);
        stage.echo("hello");
        stage.close_at("stdin", &exit_0());
        stage.daemon.finish();
    };

    /// A ping is answered, and what no client is there for is refused at once.
    requests_of_its_own = |scene, containment| {
        let stage = Stage::new(scene, containment);
        stage.open("15-server-requests", &[]);
        let told: Value = serde_json::from_str(&stage.text("echo", &json!({}))).expect("the case tells JSON");
        let refused = "error -32601";
        assert_eq!(told, json!({"srv-ping": "result", "srv-roots": refused, "srv-sample": refused, "srv-elicit": refused}));
        stage.close_at("stdin", &exit_0());
        stage.daemon.finish();
    };

    /// The caller is free at once, the server lives on, and the late answer is nobody's.
    ignores_cancel = |scene, containment| {
        let stage = Stage::new(scene, containment);
        let session = stage.open("16-ignore-cancel", &[("BUG_DELAY", "1.5")]);
        let error = stage.daemon.cli(&["--timeout", "300ms", "call", "case", "echo", "text=late"]).fails(3);
        assert_eq!(error["kind"], "deadline_exceeded", "{error:#}");
        eventually("the cancellation", SOON, || stage.stderr_of_case().contains("ignoring the cancel of"));
        assert_eq!(stage.text("echo", &json!({"text": "next", "delay": 1.6})), "next");
        let now = stage.daemon.cli(&["show", "case"]).ok();
        assert_eq!(now["servers"][0]["pid"], session["servers"][0]["pid"], "the same process");
        assert_eq!(now["in_flight"], 0, "{now:#}");
        stage.close_at("stdin", &exit_0());
        stage.daemon.finish();
    };

    /// G30: the end of standard output is the end of the server.
    g30_closes_its_stdout = |scene, containment| {
        let stage = Stage::new(scene, containment);
        stage.open("18-close-stdout", &[]);
        let first = stage.noted("server");
        stage.echo("last words");
        eventually("the end of the server", SOON, || !procfs::exists(first));
        eventually("another one", SOON, || stage.daemon.cli(&["show", "case"]).ok()["state"] == "ready");
        assert_ne!(stage.noted("server"), first);
        let told = stage.daemon.cli(&["show", "case"]).ok()["servers"][0]["last_error"].clone();
        assert_eq!(told, "it closed its stdout while it ran", "and not how we have ended it then");
        stage.close();
        stage.daemon.finish();
    };

    /// G25: the same of a keeper that was killed.
    g25_loses_its_keeper = |scene, containment| {
        if containment == Containment::Keeper {
            let stage = Stage::new(scene, containment);
            stage.open("34-out-of-order", &[]);
            let keeper = procfs::stat(stage.noted("server")).expect("the server lives").ppid;
            mcpvisor_testkit::send_signal(keeper, Signal::KILL);
            eventually("another one", SOON, || {
                let session = stage.daemon.cli(&["show", "case"]).ok();
                session["state"] == "ready" && session["servers"][0]["restarts"] == 1
            });
            let told = stage.daemon.cli(&["show", "case"]).ok()["servers"][0]["last_error"].clone();
            assert_eq!(told, "the keeper that contained it was killed");
            let closed = stage.daemon.cli(&["close", "case"]).ok()["results"][0].clone();
            assert_eq!((&closed["outcome"], &closed["proof"]), (&json!("closed"), &json!("none")), "{closed:#}");
            stage.daemon.finish();
        }
    };

    /// While a server waits for its next start its tools are known, and calls of them say that it does not run.
    keeps_its_tools_in_backoff = |scene, containment| {
        let stage = Stage::new(scene, containment);
        stage.open("11-dies-mid-call", &[]);
        let connection = stage.daemon.connect();
        let call = json!({"key": "case", "tool": "echo"});
        // The pause doubles: after the third death there is time to look.
        for round in 1..=2 {
            stage.call("echo", &json!({})).fails(1);
            eventually("the restart", SOON, || {
                let session = stage.daemon.cli(&["show", "case"]).ok();
                session["state"] == "ready" && session["servers"][0]["restarts"] == round
            });
        }
        connection.call("tool/call", &call).expect_err("it dies");
        let refused = until(SOON, || {
            let error = connection.call("tool/call", &call).expect_err("it does not run");
            assert_eq!(kind(&error), "server_exited", "{error:#}");
            error["data"]["retry_after_ms"].is_u64().then_some(error)
        });
        let refused = refused.expect("it is told when it is started again");
        assert!(refused["message"].as_str().is_some_and(|text| text.contains("is started again in")), "{refused:#}");
        let listed = connection.call("tool/list", &json!({"key": "case"})).expect("what is known");
        assert_eq!(listed["tools"], json!([]), "{listed:#}");
        assert_eq!(listed["down"][0]["state"], "backoff", "{listed:#}");
        let unknown = json!({"key": "case", "tool": "no-such"});
        let unknown = connection.call("tool/call", &unknown).expect_err("nobody has it");
        assert_eq!(kind(&unknown), "invalid_request", "{unknown:#}");
        eventually("the restart", SOON, || stage.daemon.cli(&["show", "case"]).ok()["state"] == "ready");
        let listed = connection.call("tool/list", &json!({"key": "case"})).expect("its tools");
        assert_eq!((&listed["tools"][0]["name"], &listed["down"]), (&json!("echo"), &json!(null)), "{listed:#}");
        drop(connection);
        stage.close();
        stage.daemon.finish();
    };

    tiny_writes = |scene, containment| {
        let stage = Stage::new(scene, containment);
        stage.open("20-tiny-writes", &[]);
        assert_eq!(stage.text("echo", &json!({"text": "né"})), "né \u{e9}\u{6f22}\u{1f389}");
        stage.close_at("stdin", &exit_0());
        stage.daemon.finish();
    };

    several_in_one_write = |scene, containment| {
        let stage = Stage::new(scene, containment);
        stage.open("21-two-in-one-write", &[]);
        stage.echo("one");
        stage.echo("two");
        stage.close_at("stdin", &exit_0());
        stage.daemon.finish();
    };

    /// No stale list of tools.
    list_changed = |scene, containment| {
        let stage = Stage::new(scene, containment);
        stage.open("23-list-changed", &[]);
        let names = || {
            let told = stage.daemon.cli(&["tools", "case"]).ok();
            let tools = told["tools"].as_array().cloned().unwrap_or_default();
            tools.iter().map(|tool| tool["name"].as_str().unwrap_or_default().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(names(), ["echo"]);
        stage.echo("one");
        assert_eq!(names(), ["echo", "extra1"]);
        stage.echo("two");
        assert_eq!(names(), ["echo", "extra1", "extra2"]);
        stage.close_at("stdin", &exit_0());
        stage.daemon.finish();
    };

    /// A stopped process: the next call times out, the close goes on to SIGKILL, the daemon answers all the while.
    stops_itself = |scene, containment| {
        let stage = Stage::new(scene, containment);
        stage.open("24-sigstop", &[]);
        stage.echo("before the stop");
        let error = stage.daemon.cli(&["--timeout", "500ms", "call", "case", "echo", "text=after"]).fails(3);
        assert_eq!(error["kind"], "deadline_exceeded", "{error:#}");
        assert_eq!(stage.daemon.cli(&["list"]).ok()["sessions"][0]["key"], "case");
        stage.close_at("sigkill", &killed_by("KILL"));
        stage.daemon.finish();
    };

    /// The error names both versions.
    odd_protocol = |scene, containment| {
        let stage = Stage::new(scene, containment);
        let error = stage.try_open("28-odd-protocol", &[]).fails(1);
        assert_eq!(error["kind"], "start_failed", "{error:#}");
        let message = error["message"].as_str().unwrap_or_default();
        assert!(message.contains("1999-01-01") && message.contains("2025-11-25"), "{error:#}");
        assert!(!procfs::exists(stage.noted("server")));
        stage.daemon.finish();
    };

    /// Only descriptors 0 to 2, no signal blocked or ignored, a session of its own, the client's directory and environment.
    probed = |scene, containment| {
        let stage = Stage::new(scene, containment);
        stage.open("29-probe", &[("EXTRA", "1"), ("MCPVISOR_SECRET", "x")]);
        let told: Value = serde_json::from_str(&stage.text("probe", &json!({}))).expect("the probe tells JSON");
        let fds: Vec<&String> = told["fds"].as_object().expect("descriptors").keys().collect();
        assert_eq!(fds, ["0", "1", "2"], "{told:#}");
        assert_eq!(told["sigblk"], "0000000000000000", "{told:#}");
        // What the client itself was born ignoring is ignored too; the rest is what python itself ignores. (32 and 33 belong
        // to the C library.)
        let ignored = told["sigign"].as_str().and_then(|mask| u64::from_str_radix(mask, 16).ok());
        let own = !0x1_8000_0000;
        assert_eq!(ignored.map(|mask| mask & own), Some((ignored_by_us() | 0x0100_1000) & own), "{told:#}");
        assert_eq!((&told["pid"], &told["pid"]), (&told["pgid"], &told["sid"]), "{told:#}");
        let cwd = scene.dir().canonicalize().expect("the scene's folder");
        assert_eq!(told["cwd"], cwd.to_string_lossy().as_ref());
        let env: Vec<&str> = told["env"].as_array().expect("names").iter().filter_map(Value::as_str).collect();
        assert!(env.contains(&"EXTRA") && env.contains(&"MCPVISOR_SCOPE") && env.contains(&"PATH"), "{env:?}");
        assert!(!env.contains(&"MCPVISOR_SECRET"), "{env:?}");
        if containment == Containment::Cgroup {
            let inside = format!("mcpvisor-{}/s-", stage.daemon.instance());
            assert!(told["cgroup"].to_string().contains(&inside), "{told:#}");
        }
        stage.close_at("stdin", &exit_0());
        stage.daemon.finish();
    };

    /// The grace is kept, and many sessions end side by side.
    saves_at_its_end = |scene, containment| {
        let setup = Setup::on(containment).config("[timeouts]\nstdin_grace = \"20s\"");
        let stage = Stage::with(scene, containment, &setup);
        let mark = scene.path("mark").to_string_lossy().into_owned();
        let keys: Vec<String> = (0..4).map(|n| format!("save-{n}")).collect();
        for key in &keys {
            let env = [("BUG_DELAY", "1.5"), ("BUG_MARK", &format!("{mark}-{key}"))];
            crate::support::open(&stage.daemon, scene, key, &crate::support::python("30-slow-exit"), &env);
        }
        let start = Instant::now();
        let all = stage.daemon.cli(&["close", "--all"]).ok();
        assert!(start.elapsed() < Duration::from_millis(5000), "one after the other: {} ms", start.elapsed().as_millis());
        let results = all["results"].as_array().expect("results");
        assert_eq!(results.len(), 4);
        for result in results {
            assert_closed(result, containment);
            assert_eq!(result["servers"][0]["stage"], "stdin", "{result:#}");
        }
        for key in &keys {
            assert_eq!(std::fs::read_to_string(format!("{mark}-{key}")).ok().as_deref(), Some("saved\n"));
        }
        stage.daemon.finish();
    };

    grows = |scene, containment| {
        let stage = Stage::new(scene, containment);
        crate::support::open(&stage.daemon, scene, "other", &crate::support::python("20-tiny-writes"), &[("BUG_DELAY", "0")]);
        stage.open("32-mem-grow", &[("BUG_MB", "8")]);
        for round in 1..=4 {
            assert_eq!(stage.text("echo", &json!({})), format!("{round} blocks kept"));
        }
        stage.close();
        assert_eq!(stage.daemon.cli(&["show", "other"]).ok()["state"], "ready", "the other session is left alone");
        stage.daemon.cli(&["close", "other"]).ok();
        stage.daemon.finish();
    };

    /// Answers are matched by id, and a slow call holds up no fast one.
    answers_out_of_order = |scene, containment| {
        let stage = Stage::new(scene, containment);
        stage.open("34-out-of-order", &[]);
        let connection = stage.daemon.connect();
        let ask = |text: &str, delay: u64| {
            let arguments = json!({"text": text, "delay_ms": delay});
            connection.send("tool/call", &json!({"key": "case", "tool": "echo", "arguments": arguments}))
        };
        let slow = ask("slow", 3000);
        for n in 0..20 {
            let text = format!("fast {n}");
            let result = ask(&text, 0).wait(SOON).expect("a fast one is answered");
            assert_eq!(result["content"][0]["text"], text.as_str());
        }
        let slow = slow.wait_within(Duration::ZERO).expect_err("the fast ones are answered first");
        assert_eq!(slow.wait(SOON).expect("the slow one is answered")["content"][0]["text"], "slow");
        drop(connection);
        stage.close_at("stdin", &exit_0());
        stage.daemon.finish();
    };

    /// A result that no client could use is the server's error, fails its call alone, and shows what came, escaped and cut.
    bad_result = |scene, containment| {
        let stage = Stage::new(scene, containment);
        stage.open("37-bad-result", &[]);
        for (kind, beginning) in [
            ("array", "[1]"),
            ("null", "null"),
            ("deep", "{\"content\":[],\"structuredContent\":[[[["),
            ("control", "\\u001b]0;owned"),
        ] {
            let error = stage.call("echo", &json!({"kind": kind})).fails(1);
            assert_eq!((&error["kind"], &error["data"]["server"]), (&json!("server_error"), &json!("main")), "{error:#}");
            let message = error["message"].as_str().unwrap_or_default();
            assert!(message.contains(beginning), "what came is not shown: {error:#}");
            assert!(message.len() < 600 && !message.contains(char::is_control), "{error:#}");
            stage.echo("the stream goes on");
        }
        assert_eq!(stage.scene.noted().len(), 1, "the server was not started again");
        stage.close_at("stdin", &exit_0());
        stage.daemon.finish();
    };

    modern_only = |scene, containment| {
        let stage = Stage::new(scene, containment);
        let session = stage.open("36-modern-only", &[]);
        assert_eq!(session["servers"][0]["era"], "modern", "{session:#}");
        stage.echo("stateless");
        stage.close_at("stdin", &exit_0());
        stage.daemon.finish();
    };
}
