//! In which era a server is asked first: what was negotiated is remembered, what was wrong is forgotten, and a server that has locked on the
//! wrong one is started once more. The server is `38-many-lives`, with every kind of `BUG_ERA`.
use crate::restarts::{Lives, profile};
use crate::support::on_both;
use mcpvisor_testkit::{Containment, Scene};
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

/// A server `main` whose kind is read from a file at each birth, so that it can change while what is known of it stays.
struct Stage<'a> {
    lives: Lives<'a>,
    kind: PathBuf,
    more: &'static str,
}

impl<'a> Stage<'a> {
    fn new(scene: &'a Arc<Scene>, containment: Containment, kind: &str, more: &'static str) -> Self {
        let file = scene.path("kind");
        fs::write(&file, kind).expect("the scene's folder is ours");
        let config =
            profile(scene, &[("main", more)]) + &format!("BUG_ERA_FILE = {:?}\n", file.to_string_lossy());
        Self { lives: Lives::with(scene, containment, &config, &[]), kind: file, more }
    }

    fn becomes(&self, kind: &str) {
        fs::write(&self.kind, kind).expect("the scene's folder is ours");
    }

    /// Opens, calls, and closes: what each process that was born was asked before its tools were listed.
    #[track_caller]
    fn opens(&self, era: &str) -> Vec<Vec<String>> {
        let before = self.lives.told("main").len();
        let session = self.lives.open("k").ok();
        let server: &Value = &session["servers"][0];
        assert_eq!((&server["era"], &server["restarts"]), (&json!(era), &json!(0)), "{session:#}");
        assert_eq!(server["last_error"], json!(null), "{session:#}");
        let answer = self.lives.call("k", "echo", "{\"text\": \"x\"}").ok();
        assert_eq!(answer["content"][0]["text"], "x");
        self.lives.daemon.cli(&["close", "k"]).ok();
        self.asked(before)
    }

    fn fails(&self) -> (Value, Vec<Vec<String>>) {
        let before = self.lives.told("main").len();
        let error = self.lives.open("k").fails(1);
        (error, self.asked(before))
    }

    fn asked(&self, before: usize) -> Vec<Vec<String>> {
        let told = self.lives.told("main").split_off(before);
        let handshake = |what: &String| matches!(what.as_str(), "initialize" | "server/discover");
        told.into_iter().map(|one| one.into_iter().filter(handshake).collect()).collect()
    }
}

const INITIALIZE: &str = "initialize";
const DISCOVER: &str = "server/discover";

/// The first time a server is asked with `initialize`; one that was modern then with `server/discover` the next time.
fn remembered(scene: &Arc<Scene>, containment: Containment) {
    let stage = Stage::new(scene, containment, "modern", "");
    assert_eq!(stage.opens("modern"), [[INITIALIZE, DISCOVER]]);
    assert_eq!(stage.opens("modern"), [[DISCOVER]], "it is remembered");
    // A restart asks in the right era first, too.
    stage.lives.open("k").ok();
    stage.lives.call("k", "die", "{}");
    stage.lives.runs_again("k", "main", 1);
    assert_eq!(stage.asked(stage.lives.told("main").len() - 1), [[DISCOVER]]);
    stage.lives.daemon.cli(&["server", "restart", "k", "main"]).ok();
    assert_eq!(stage.asked(stage.lives.told("main").len() - 1), [[DISCOVER]]);
    stage.lives.daemon.cli(&["close", "k"]).ok();
    // A legacy server in its place says so in the same process; and is asked the usual way then.
    stage.becomes("legacy");
    assert_eq!(stage.opens("legacy"), [[DISCOVER, INITIALIZE]]);
    assert_eq!(stage.opens("legacy"), [[INITIALIZE]], "what was wrong is forgotten");
    // A server of both eras is legacy, as it is first asked.
    stage.becomes("dual");
    assert_eq!(stage.opens("legacy"), [[INITIALIZE]]);
    stage.lives.daemon.finish();
}

/// A server that locks on the wrong era is started once more, within the same start, and that is no restart.
fn locked(scene: &Arc<Scene>, containment: Containment) {
    let stage = Stage::new(scene, containment, "locks", "");
    assert_eq!(stage.opens("modern"), [vec![INITIALIZE, DISCOVER], vec![DISCOVER]]);
    assert_eq!(stage.opens("modern"), [[DISCOVER]], "it is remembered");
    // The other way round: what is remembered is wrong, and the process is of no more use, since it refuses everything, or has ended.
    stage.becomes("shuts");
    assert_eq!(stage.opens("legacy"), [vec![DISCOVER, INITIALIZE], vec![INITIALIZE]]);
    stage.becomes("locks");
    assert_eq!(stage.opens("modern"), [vec![INITIALIZE, DISCOVER], vec![DISCOVER]]);
    stage.becomes("strict");
    assert_eq!(stage.opens("legacy"), [vec![DISCOVER], vec![INITIALIZE]]);
    assert_eq!(stage.opens("legacy"), [[INITIALIZE]], "what was wrong is forgotten");
    stage.lives.daemon.finish();
}

/// A server that refuses both eras is started twice and no more, and its own words are told. One whose era is configured is asked in that alone.
fn refuses_both(scene: &Arc<Scene>, containment: Containment) {
    let stage = Stage::new(scene, containment, "neither", "");
    let (error, asked) = stage.fails();
    assert_eq!(error["data"]["reason"], "handshake", "{error:#}");
    assert!(error["message"].as_str().is_some_and(|text| text.contains("speaks neither")), "{error:#}");
    assert_eq!(asked, [[INITIALIZE, DISCOVER], [DISCOVER, INITIALIZE]]);
    stage.lives.daemon.finish();
    for (era, method) in [("legacy", INITIALIZE), ("modern", DISCOVER)] {
        let more = if era == "legacy" { "era = \"legacy\"" } else { "era = \"modern\"" };
        let stage = Stage::new(scene, containment, "neither", more);
        assert_eq!(stage.fails().1, [[method]], "{}", stage.more);
        stage.lives.daemon.finish();
    }
}

on_both! {
    what_was_negotiated_is_remembered = remembered;
    a_server_that_locks_is_started_once_more = locked;
    a_server_that_refuses_both_eras = refuses_both;
}
