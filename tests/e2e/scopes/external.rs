//! Servers that someone else runs: `39-behind-a-socket`, which notes every signal that it gets.
use crate::support::{case, close, on_both};
use mcpvisor_testkit::{Containment, Daemon, Process, SOON, Scene, Setup, Signal, eventually};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::Arc;

/// The server, and what it has noted.
struct Outside {
    process: Process,
    socket: PathBuf,
    log: PathBuf,
}

impl Outside {
    fn start(scene: &Arc<Scene>, env: &[(&str, &str)]) -> Self {
        let (socket, log) = (scene.path("outside.sock"), scene.path("outside.log"));
        let command = scene.command("python3").arg(case("39-behind-a-socket"));
        let command = env.iter().fold(command, |command, (name, value)| command.env(name, value));
        let process = command.env("BUG_SOCKET", &socket).env("BUG_LOG", &log).spawn();
        eventually("it listens", SOON, || socket.exists());
        Self { process, socket, log }
    }

    fn noted(&self, what: &str) -> usize {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        text.lines().filter(|line| line.starts_with(what)).count()
    }

    /// It lives, and was never signalled.
    #[track_caller]
    fn is_unharmed(&mut self) {
        assert!(!self.process.has_ended(), "it was not ours to end");
        assert_eq!(self.noted("signal"), 0, "it was signalled");
    }

    fn end(mut self) {
        self.process.signal(Signal::KILL);
        self.process.wait(SOON);
        std::fs::remove_file(&self.socket).expect("the scene's folder is ours");
    }
}

fn setup(containment: Containment, outside: &Outside, lines: &str) -> Setup {
    let text = format!(
        "[timeouts]\ndrain = \"1s\"\n[profiles.p.servers.main]\nscope = \"external\"\nsocket = {:?}\n{lines}\n",
        outside.socket.to_string_lossy()
    );
    Setup::on(containment).config(&text)
}

fn server(daemon: &Daemon, key: &str) -> Value {
    daemon.cli(&["show", key]).ok()["servers"][0].clone()
}

on_both! {
    /// It is called, and detached from by a close, a shutdown and the daemon's death; never signalled.
    g28_d4_never_signalled = |scene, containment| {
        let mut outside = Outside::start(scene, &[]);
        let daemon = Daemon::start(scene, &setup(containment, &outside, ""));
        for key in ["a", "b"] {
            daemon.cli(&["open", key, "--profile", "p"]).ok();
        }
        let shown = server(&daemon, "a");
        assert_eq!((&shown["scope"], &shown["pid"], &shown["state"]), (&json!("external"), &Value::Null, &json!("ready")));
        let answer = daemon.cli(&["call", "a", "echo", "{\"text\":\"x\"}"]).ok();
        assert_eq!(answer["content"][0]["text"], "x", "{answer:#}");
        assert_eq!(daemon.cli(&["ps"]).ok()["processes"], json!([]), "no process is the daemon's");
        // A call that never ends is cancelled there.
        let connection = daemon.connect();
        let call = connection.send("tool/call", &json!({"key": "a", "tool": "hang", "arguments": {}}));
        eventually("the call is in flight", SOON, || server(&daemon, "a")["in_flight"] == 1);
        let certificate = close(&daemon, "a");
        call.wait(SOON).expect_err("the session is closed");
        drop(connection);
        eventually("it is told", SOON, || outside.noted("cancelled") == 1);
        let told = &certificate["servers"][0];
        assert_eq!((&certificate["outcome"], &told["detached"], &told["scope"]), (&json!("closed"), &json!(true), &json!("external")), "{certificate:#}");
        assert_eq!((&told["stage"], &told["processes"]), (&Value::Null, &json!([])), "{certificate:#}");
        assert_eq!(certificate["proof"], Value::Null, "no process was its own: {certificate:#}");
        crate::scopes::told::is_told_as_detached(&daemon, "a", "external");
        outside.is_unharmed();
        close(&daemon, "b");
        eventually("both connections are closed", SOON, || outside.noted("closed") == 2);
        daemon.cli(&["open", "a", "--profile", "p"]).ok();
        close(&daemon, "a");
        daemon.finish();
        outside.is_unharmed();
        // A daemon that is killed, with a session open.
        let mut killed = Daemon::start(scene, &setup(containment, &outside, ""));
        killed.cli(&["open", "a", "--profile", "p"]).ok();
        killed.process().signal(Signal::KILL);
        killed.process().wait(SOON);
        eventually("its connection is closed", SOON, || outside.noted("closed") == 4);
        outside.is_unharmed();
        let next = Daemon::start_in(scene, &setup(containment, &outside, ""), killed.socket(), "next");
        next.cli(&["open", "a", "--profile", "p"]).ok();
        close(&next, "a");
        next.finish();
        outside.is_unharmed();
        outside.end();
    };

    /// The end of a connection is a server's end: it is connected to again, by the restart policy.
    g28_g29_connected_again = |scene, containment| {
        let mut outside = Outside::start(scene, &[]);
        let daemon = Daemon::start(scene, &setup(containment, &outside, "restart_intensity = 2"));
        daemon.cli(&["open", "a", "--profile", "p"]).ok();
        for restarts in 1..=2 {
            let error = daemon.cli(&["call", "a", "hangup", "{}"]).fails(1);
            assert_eq!(error["kind"], "server_exited", "{error:#}");
            eventually("it is connected to again", SOON, || {
                let server = server(&daemon, "a");
                server["state"] == "ready" && server["restarts"] == json!(restarts)
            });
        }
        daemon.cli(&["call", "a", "hangup", "{}"]).fails(1);
        let waited = daemon.cli(&["wait", "a"]).ok();
        assert_eq!((&waited["state"], &waited["certificate"]["reason"]), (&json!("failed"), &json!("servers_failed")), "{waited:#}");
        assert_eq!(waited["certificate"]["servers"][0]["detached"], json!(true), "{waited:#}");
        daemon.finish();
        outside.is_unharmed();
        outside.end();
    };

    /// Nobody there, nobody who answers, nobody who accepts: each fails its own open in its time, and hangs nothing.
    g28_g8_starts_that_fail = |scene, containment| {
        let mut outside = Outside::start(scene, &[("BUG_FULL", "1")]);
        let text = "[timeouts]\nstart = \"700ms\"\n[profiles.p.servers.main]\nscope = \"external\"\nsocket = \"${arg:socket}\"\n";
        let daemon = Daemon::start(scene, &Setup::on(containment).config(text));
        let open = |key: &str, socket: &str| {
            daemon.cli(&["open", key, "--profile", "p", "--arg", &format!("socket={socket}")])
        };
        let nobody = open("a", &scene.path("nobody.sock").to_string_lossy()).fails(1);
        assert_eq!((&nobody["kind"], &nobody["data"]["reason"]), (&json!("start_failed"), &json!("connect")), "{nobody:#}");
        assert_eq!(open("a", "relative").fails(2)["kind"], "invalid_request");
        let full = outside.socket.to_string_lossy().into_owned();
        for key in ["b", "c", "d"] {
            let error = open(key, &full).fails(1);
            assert_eq!(error["kind"], "start_timeout", "{error:#}");
        }
        daemon.finish();
        outside.is_unharmed();
        outside.end();
    };
}
