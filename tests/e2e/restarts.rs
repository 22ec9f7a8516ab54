//! What outlives one process of a server: its restarts, what it is told again then, breakers, and servers without which a session
//! does not go on. The server is `38-many-lives`, in a profile `p`.
use crate::support::{assert_closed, case, kind, on_both};
use mcpvisor_testkit::{Containment, Daemon, SOON, Scene, Setup, Stdio, eventually};
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

/// A daemon with servers of this case in a profile.
pub(crate) struct Lives<'a> {
    pub(crate) scene: &'a Arc<Scene>,
    pub(crate) daemon: Daemon,
    pub(crate) containment: Containment,
}

/// The tables of a profile: each server's name, and lines of its own.
pub(crate) fn profile(scene: &Scene, servers: &[(&str, &str)]) -> String {
    let mut text = String::from(
        "[timeouts]\nstdin_grace = \"300ms\"\nterm_grace = \"300ms\"\ndrain = \"1s\"\nstart = \"20s\"\n",
    );
    for (name, lines) in servers {
        let variables: Vec<String> = scene
            .environment()
            .iter()
            .map(|(name, value)| format!("{} = {:?}", name.to_string_lossy(), value.to_string_lossy()))
            .chain([format!("BUG_LOG = {:?}", log(scene, name).to_string_lossy())])
            .filter(|line| line.starts_with("BUG_"))
            .collect();
        text += &format!(
            "[profiles.p.servers.{name}]\ncommand = \"python3\"\nargs = [{:?}]\n{lines}\n[profiles.p.servers.{name}.env]\n{}\n",
            case("38-many-lives"),
            variables.join("\n")
        );
    }
    text
}

/// What the servers of this name have read.
fn log(scene: &Scene, name: &str) -> PathBuf {
    scene.path(&format!("{name}.log"))
}

impl<'a> Lives<'a> {
    pub(crate) fn new(
        scene: &'a Arc<Scene>,
        containment: Containment,
        servers: &[(&str, &str)],
        daemon: &[&str],
    ) -> Self {
        Self::with(scene, containment, &profile(scene, servers), daemon)
    }

    pub(crate) fn with(
        scene: &'a Arc<Scene>,
        containment: Containment,
        profile: &str,
        daemon: &[&str],
    ) -> Self {
        let setup = Setup::on(containment).config(profile);
        let setup = daemon.iter().fold(setup, |setup, line| setup.daemon(line));
        Self { scene, daemon: Daemon::start(scene, &setup), containment }
    }

    pub(crate) fn open(&self, key: &str) -> mcpvisor_testkit::Output {
        self.daemon.cli(&["open", key, "--profile", "p"])
    }

    pub(crate) fn server(&self, key: &str, name: &str) -> Value {
        let shown = self.daemon.cli(&["show", key]).ok();
        let servers = shown["servers"].as_array().expect("a session has servers").clone();
        servers.into_iter().find(|server| server["name"] == name).expect("it is one of them")
    }

    pub(crate) fn call(&self, key: &str, tool: &str, arguments: &str) -> mcpvisor_testkit::Output {
        self.daemon.cli(&["call", key, tool, arguments])
    }

    /// What each process of the server was told, in the order of their births.
    pub(crate) fn told(&self, name: &str) -> Vec<Vec<String>> {
        let text = fs::read_to_string(log(self.scene, name)).unwrap_or_default();
        let mut lives: Vec<(String, Vec<String>)> = Vec::new();
        for line in text.lines() {
            let (pid, what) = line.split_once(' ').expect("pid and method");
            match lives.iter_mut().find(|(known, _)| known == pid) {
                Some((_, told)) => told.push(what.to_owned()),
                None => lives.push((pid.to_owned(), vec![])),
            }
        }
        lives.into_iter().map(|(_, told)| told).collect()
    }

    pub(crate) fn runs_again(&self, key: &str, name: &str, restarts: u64) {
        eventually("it runs again", SOON, || {
            let server = self.server(key, name);
            server["state"] == "ready" && server["restarts"] == json!(restarts)
        });
    }

    #[track_caller]
    pub(crate) fn closes(self, key: &str) {
        let certificate = crate::support::close(&self.daemon, key);
        assert_closed(&certificate, self.containment);
        self.daemon.finish();
    }

    fn attach(&self, key: &str) -> Stdio {
        let socket = self.daemon.socket().to_string_lossy().into_owned();
        Stdio::start(self.scene.mcpvisor(&["--socket", &socket, "attach", key]))
    }
}

/// The first start of a session's server, which the daemon tells nothing more than this.
const HANDSHAKE: [&str; 3] = ["initialize", "notifications/initialized", "tools/list"];

/// After a restart the server is told again all that it must know, and its client that lists may be others now.
fn told_again(scene: &Arc<Scene>, containment: Containment) {
    let lives = Lives::new(scene, containment, &[("main", "")], &[]);
    lives.open("k").ok();
    let mut client = lives.attach("k");
    client.initialize();
    for (method, params) in [
        ("logging/setLevel", json!({"level": "debug"})),
        ("resources/subscribe", json!({"uri": "file:///a"})),
        ("resources/subscribe", json!({"uri": "file:///b"})),
        ("resources/unsubscribe", json!({"uri": "file:///a"})),
    ] {
        let id = client.request(method, params);
        let answer = client.answer(id, SOON).expect("it is answered");
        assert!(answer.get("result").is_some(), "{method}: {answer}");
    }
    let answer = client.call_tool("die", &json!({}));
    assert_eq!(kind(&answer["error"]), "server_exited", "{answer}");
    for list in ["tools", "prompts", "resources"] {
        let text = format!("notifications/{list}/list_changed");
        let heard = |bytes: &[u8]| String::from_utf8_lossy(bytes).contains(&text).then_some(());
        assert!(client.wait_for(SOON, heard).is_some(), "{text}");
    }
    let answer = client.call_tool("echo", &json!({"text": "again"}));
    assert_eq!(answer["result"]["content"][0]["text"], "again", "{answer}");
    assert_eq!(lives.told("main").len(), 2);
    is_told_all(&lives, 1);
    // And after a restart by hand.
    lives.daemon.cli(&["server", "restart", "k", "main"]).ok();
    let twice = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes);
        (text.matches("notifications/tools/list_changed").count() == 2).then_some(())
    };
    assert!(client.wait_for(SOON, twice).is_some(), "lists may be others now");
    let answer = client.call_tool("echo", &json!({"text": "by hand"}));
    assert_eq!(answer["result"]["content"][0]["text"], "by hand", "{answer}");
    assert_eq!(lives.told("main").len(), 3);
    is_told_all(&lives, 2);
    client.close_stdin();
    client.wait(SOON);
    lives.closes("k");
}

/// What a process that is not the first one was told before the one call that came.
#[track_caller]
fn is_told_all(lives: &Lives<'_>, life: usize) {
    let told = lives.told("main").swap_remove(life);
    assert_eq!(told[..3], HANDSHAKE, "the handshake is redone: {told:?}");
    let rest: Vec<&str> = told[3..].iter().map(String::as_str).collect();
    let call = rest.iter().position(|what| *what == "tools/call").expect("the call came");
    assert!(rest[..call].contains(&"logging/setLevel debug"), "{told:?}");
    assert!(rest[..call].contains(&"resources/subscribe file:///b"), "{told:?}");
    assert!(!rest.contains(&"resources/subscribe file:///a"), "it was taken back: {told:?}");
    assert_eq!(rest.iter().filter(|what| **what == "tools/call").count(), 1, "G31: no call is replayed");
}

/// `permanent`, `transient` and `temporary`, after an exit with 0 and after a crash.
fn policies(scene: &Arc<Scene>, containment: Containment) {
    let optional = |word: &str| format!("restart = \"{word}\"\nrequired = false");
    let (always, unless, never) = (optional("permanent"), optional("transient"), optional("temporary"));
    let servers = [("always", &*always), ("unless", &*unless), ("never", &*never), ("stays", "")];
    let lives = Lives::new(scene, containment, &servers, &[]);
    lives.open("k").ok();
    let all = ["always", "unless", "never"];
    eventually("all are ready", SOON, || all.iter().all(|name| lives.server("k", name)["state"] == "ready"));
    for name in all {
        lives.call("k", &format!("{name}__leave"), "{}");
    }
    lives.runs_again("k", "always", 1);
    for name in ["unless", "never"] {
        eventually("it has ended normally", SOON, || lives.server("k", name)["state"] == "stopped");
    }
    lives.call("k", "always__die", "{}");
    lives.runs_again("k", "always", 2);
    assert_eq!(lives.daemon.cli(&["show", "k"]).ok()["state"], "degraded");
    lives.daemon.cli(&["close", "k"]).ok();
    lives.open("k").ok();
    eventually("all are ready", SOON, || all.iter().all(|name| lives.server("k", name)["state"] == "ready"));
    for name in all {
        lives.call("k", &format!("{name}__die"), "{}");
    }
    lives.runs_again("k", "always", 1);
    lives.runs_again("k", "unless", 1);
    eventually("it has failed", SOON, || lives.server("k", "never")["state"] == "failed");
    lives.closes("k");
}

/// The end of a significant server, a normal one too, closes the session; the open did not wait for it.
fn significant(scene: &Arc<Scene>, containment: Containment) {
    let servers = [("main", ""), ("side", "required = false\nsignificant = true")];
    let lives = Lives::new(scene, containment, &servers, &[]);
    for (restart, tool, reason, state) in [
        ("transient", "side__leave", "servers_ended", "closed"),
        ("temporary", "side__die", "servers_failed", "failed"),
    ] {
        let lines = format!("required = false\nsignificant = true\nrestart = \"{restart}\"");
        let config = profile(scene, &[("main", ""), ("side", &lines)]);
        let daemon = format!("[daemon]\ncontainment = \"{containment}\"\n");
        fs::write(lives.daemon.config(), daemon + &config).expect("the configuration is ours");
        lives.daemon.cli(&["reload"]).ok();
        let generation = lives.open("k").ok()["generation"].clone();
        eventually("it is ready", SOON, || lives.server("k", "side")["state"] == "ready");
        lives.call("k", tool, "{}");
        let target = format!("k@{generation}");
        let waited = lives.daemon.cli(&["wait", &target]).ok();
        assert_eq!((&waited["reached"], &waited["state"]), (&json!(true), &json!(state)), "{waited:#}");
        assert_closed(&waited["certificate"], containment);
        assert_eq!(waited["certificate"]["reason"], reason, "{waited:#}");
    }
    lives.daemon.finish();
}

/// G29: a server whose starts fail over and over is not started for a while; then one open tries, and a good start closes the breaker.
fn breaker(scene: &Arc<Scene>, containment: Containment) {
    let needed = scene.path("needed");
    let config = profile(scene, &[("main", "")]) + &format!("BUG_NEEDS = {:?}\n", needed.to_string_lossy());
    let daemon = ["breaker_failures = 2", "breaker_wait = \"2s\""];
    let lives = Lives::with(scene, containment, &config, &daemon);
    for key in ["a", "b"] {
        let error = lives.open(key).fails(1);
        assert_eq!((&error["kind"], &error["data"]["reason"]), (&json!("start_failed"), &json!("exited")));
    }
    let births = scene.noted().len();
    let status = lives.daemon.status();
    assert_eq!(status["counters"]["breakers_open"], 1, "{status:#}");
    let error = lives.open("c").fails(1);
    let data = &error["data"];
    assert_eq!((&error["kind"], &data["reason"]), (&json!("start_failed"), &json!("breaker")), "{error:#}");
    assert_eq!((&data["breaker"], &data["last_reason"]), (&json!("open"), &json!("exited")), "{error:#}");
    assert_eq!((&data["server"], &data["exit"]), (&json!("main"), &json!({"code": 3})), "{error:#}");
    assert!(data["stderr_tail"].as_str().is_some_and(|tail| tail.contains("is missing")), "{error:#}");
    let wait = data["retry_after_ms"].as_u64().expect("it says when to ask again");
    assert!((1..=2000).contains(&wait), "{error:#}");
    assert_eq!(scene.noted().len(), births, "G9: nothing was started");
    assert_eq!(lives.daemon.cli(&["show", "c"]).fails(4)["kind"], "not_found", "G9: no trace");
    // A client's own commands have none, where the configuration says no more.
    for _ in 0..3 {
        let error = lives.daemon.cli(&["open", "own", "--", "false"]).fails(1);
        assert_eq!(error["data"]["reason"], "exited", "{error:#}");
    }
    // The one that may try fails as well: the breaker is open again. Then what was missing is there.
    let tried = |reason: &str| {
        eventually("an open is tried", SOON, || lives.open("d").fails(1)["data"]["reason"] == reason);
    };
    tried("exited");
    tried("breaker");
    fs::write(&needed, "").expect("the scene's folder is ours");
    eventually("an open is tried", SOON, || lives.open("d").status == 0);
    assert_eq!(lives.daemon.status()["counters"]["breakers_open"], 0);
    lives.open("e").ok();
    lives.daemon.cli(&["close", "d"]).ok();
    lives.closes("e");
}

/// A reload closes every breaker, and the configuration can do without them.
fn reload(scene: &Arc<Scene>, containment: Containment) {
    let needed = scene.path("needed");
    let config = profile(scene, &[("main", "")]) + &format!("BUG_NEEDS = {:?}\n", needed.to_string_lossy());
    let lives = Lives::with(scene, containment, &config, &["breaker_failures = 1"]);
    let reason = || lives.open("k").fails(1)["data"]["reason"].clone();
    assert_eq!((reason(), reason()), (json!("exited"), json!("breaker")));
    lives.daemon.cli(&["reload"]).ok();
    assert_eq!((reason(), reason()), (json!("exited"), json!("breaker")));
    let daemon = format!("[daemon]\ncontainment = \"{containment}\"\nbreaker = \"off\"\n");
    fs::write(lives.daemon.config(), daemon + &config).expect("the configuration is ours");
    lives.daemon.cli(&["reload"]).ok();
    assert!((0..7).all(|_| reason() == "exited"));
    lives.daemon.finish();
}

on_both! {
    g31_what_a_server_is_told_again = told_again;
    g29_the_three_policies = policies;
    a_significant_server = significant;
    g29_g9_a_breaker = breaker;
    a_reload_closes_breakers = reload;
}
