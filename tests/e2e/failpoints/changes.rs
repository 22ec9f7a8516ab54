//! Adds, removes, restarts and replacements of one server of a session that lives, at a gate.
use super::stage::{CHANGED, KEY, Requester, Stage};
use super::sweep::What;
use crate::support::{kind, main_pid, polite};
use mcpvisor_testkit::{SOON, binary, eventually, until};
use serde_json::{Value, json};
use std::fs;
use std::time::Duration;

impl What {
    /// It changes the servers of a session and leaves the session.
    pub(crate) fn is_change(self) -> bool {
        matches!(self, Self::Add | Self::GiveUpAdd | Self::Remove | Self::Restart | Self::Reload)
    }
}

/// Ends on no rung before the kill, and has a helper that got away.
fn stubborn() -> Vec<String> {
    let client = binary("mcpvisor").to_string_lossy().into_owned();
    [client.as_str(), "demo-server", "stubborn"].map(str::to_owned).to_vec()
}

/// What starts and is never ready.
fn mute() -> Vec<String> {
    ["sh", "-c", "exec sleep 300"].map(str::to_owned).to_vec()
}

fn definition(stage: &Stage, command: &[String]) -> Value {
    let mut params = stage.open_params(KEY, command);
    let server = params.as_object_mut().and_then(|params| params.remove("servers"));
    let mut server = server.expect("an open has servers")[0].take();
    server["name"] = json!(CHANGED);
    params["server"] = server;
    params
}

/// Opens the session, and has its change come to the gate.
pub(crate) fn prepare(stage: &mut Stage, what: What, gate: &str, process: bool) -> Requester {
    let params = match what {
        What::Reload => json!({"key": KEY, "profile": "p"}),
        _ => stage.open_params(KEY, &polite()),
    };
    let mut opened = stage.other.call("session/open", &params).expect("a session opens");
    stage.generation = opened["generation"].take();
    stage.processes = stage.daemon.session_processes().len();
    if matches!(what, What::Remove | What::Restart) {
        let added =
            stage.other.call("server/add", &definition(stage, &stubborn())).expect("a server is added");
        stage.main = main_pid(&json!({"servers": [added["server"]]}));
    }
    if what == What::GiveUpAdd {
        let requester = stage.ask("server/add", &definition(stage, &mute()), process);
        eventually("a server that is being added", SOON, || {
            changed(stage).is_some_and(|server| server["pid"].is_number())
        });
        stage.gates.hold(gate);
        return requester;
    }
    if what == What::Reload {
        stage.main = main_pid(&opened);
        change_the_profile(stage);
    }
    stage.gates.hold(gate);
    let named = json!({"key": KEY, "name": CHANGED});
    match what {
        What::Remove => stage.ask("server/remove", &named, process),
        What::Restart => stage.ask("server/restart", &named, process),
        What::Reload => stage.ask("daemon/reload", &json!({}), process),
        _ => stage.ask("server/add", &definition(stage, &polite()), process),
    }
}

/// The server of the profile is another one from the next reload on.
fn change_the_profile(stage: &Stage) {
    let text = fs::read_to_string(stage.daemon.config()).expect("the daemon has a configuration");
    let (before, rest) = text.split_once("VERSION = \"").expect("the profile has a version");
    let (version, after) = rest.split_once('"').expect("the version is a string");
    let next = version.parse::<u64>().expect("versions are numbers") + 1;
    let text = format!("{before}VERSION = \"{next}\"{after}");
    fs::write(stage.daemon.config(), text).expect("the scene is ours");
}

/// The session's servers: its own, those that are added, and those that are ending.
fn servers(stage: &Stage) -> Vec<Value> {
    let sessions = stage.sessions();
    let session = sessions.iter().find(|session| session["key"] == KEY);
    session.and_then(|session| session["servers"].as_array().cloned()).unwrap_or_default()
}

fn changed(stage: &Stage) -> Option<Value> {
    servers(stage).into_iter().find(|server| server["name"] == CHANGED)
}

/// Whether nothing of an add is there although the gate is held; where nothing must be, that is waited for. While the session or the reaper
/// is held nobody can tell.
pub(crate) fn is_undone(stage: &Stage, must: bool) -> bool {
    let undone = || {
        (changed(stage).is_none() && stage.daemon.session_processes().len() == stage.processes).then_some(())
    };
    until(if must { SOON } else { Duration::ZERO }, undone).is_some()
}

/// What has come of the change in a session that lives; None where there is no such session.
#[track_caller]
pub(crate) fn outcome(stage: &Stage, what: What) -> Option<&'static str> {
    // Answered by the session after all that came before: what was let go has been done, or has begun.
    let nobody = stage.other.call("server/remove", &json!({"key": KEY, "name": "nobody"}));
    let nobody = nobody.expect_err("there is no such server");
    if kind(&nobody) != "invalid_request" {
        eventually("the end of the session", SOON, || stage.sessions().is_empty());
        return None;
    }
    let mut all = Vec::new();
    eventually("the end of what was begun", SOON, || {
        all = servers(stage);
        all.iter().all(|server| server["state"] == "ready" && server["aside"] != true)
    });
    let left = all.iter().find(|server| server["name"] == CHANGED);
    Some(match (what, left) {
        (What::Restart, Some(server)) if server["pid"] == stage.main => "stays",
        (What::Restart, Some(_)) => "restarted",
        (What::Reload, Some(server)) if server["pid"] == stage.main => "stays",
        (What::Reload, Some(_)) => "replaced",
        (What::Remove, Some(_)) => "stays",
        (_, Some(_)) => "added",
        (What::Remove, None) => "removed",
        (_, None) => "undone",
    })
}

/// Whatever has come of the change, it is whole: the tools are those of the servers that are left, a name that is free can be taken,
/// and one that is ended had its time (G14, G16, G26).
#[track_caller]
pub(crate) fn assert_whole(stage: &Stage, outcome: &str) {
    let mut names: Vec<Value> = servers(stage).iter().map(|server| server["name"].clone()).collect();
    let listed = stage.other.call("tool/list", &json!({"key": KEY})).expect("the tools are listed");
    let mut owners: Vec<Value> =
        listed["tools"].as_array().expect("a list").iter().map(|tool| tool["server"].clone()).collect();
    for list in [&mut names, &mut owners] {
        list.sort_by_key(Value::to_string);
        list.dedup();
    }
    assert_eq!(owners, names, "whose the tools are, and who is there");
    if outcome == "undone" {
        let again = stage.other.call("server/add", &definition(stage, &polite()));
        again.unwrap_or_else(|error| panic!("the name of what was undone is taken: {error:#}"));
    }
    let closed = stage.close(KEY).wait(SOON);
    stage.closed(closed.clone());
    if matches!(outcome, "removed" | "restarted") {
        let certificate = closed.expect("a certificate")["results"][0].take();
        let all = certificate["servers"].as_array().expect("a list").clone();
        let ended = all.iter().find(|server| server["name"] == CHANGED);
        let ended = ended.unwrap_or_else(|| panic!("its end is not told: {certificate:#}"));
        let took = ended["duration_ms"].as_f64().unwrap_or_default();
        assert!(took >= stage.least_ms(), "its end was hurried: it took {took} ms: {certificate:#}");
    }
    assert_late(stage);
}

/// What comes when the session is over is refused by a word of its own, and leaves nothing (D.3).
#[track_caller]
pub(crate) fn assert_late(stage: &Stage) {
    let late = stage.other.call("server/add", &definition(stage, &polite()));
    assert_eq!(late.as_ref().map_err(kind), Err("session_closed"), "an add that comes late");
    stage.daemon.assert_at_rest();
}
