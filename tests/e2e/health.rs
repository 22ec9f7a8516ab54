//! Servers that are looked after: deaf ones are started again, busy ones are left alone; and starts that run out of time say what they
//! waited for. The server is `38-many-lives`.
use crate::restarts::{Lives, profile};
use crate::support::on_both;
use mcpvisor_testkit::{Containment, SOON, Scene, eventually};
use serde_json::json;
use std::sync::Arc;

const QUICK: &str = "health_interval = \"200ms\"\nhealth_timeout = \"300ms\"\nhealth_misses = 2";

/// G29: a call may take as long as it likes, and a server that is spoken to is not asked; an idle one is, and goes on.
fn busy(scene: &Arc<Scene>, containment: Containment) {
    let lives = Lives::new(scene, containment, &[("main", QUICK)], &[]);
    lives.open("k").ok();
    let asked = || lives.told("main")[0].iter().filter(|what| *what == "ping").count();
    eventually("it is asked", SOON, || asked() >= 2);
    // As long as an interval and four missed answers: it reads nothing meanwhile, and would be deaf if it were idle.
    let answer = lives.call("k", "busy", "{\"ms\": 2500, \"text\": \"done\"}").ok();
    assert_eq!(answer["content"][0]["text"], "done");
    let told = lives.told("main");
    assert_eq!(told.len(), 1, "the same process: {told:?}");
    let call = told[0].iter().position(|what| what == "tools/call").expect("the call came");
    // At most one question was on its way when the call came.
    let after = told[0][call..].iter().filter(|what| *what == "ping").count();
    assert!(after <= 1, "{told:?}");
    let before = asked();
    eventually("it is asked again", SOON, || asked() >= before + 2);
    let server = lives.server("k", "main");
    let healthy = (&server["state"], &server["restarts"], &server["last_error"]);
    assert_eq!(healthy, (&json!("ready"), &json!(0), &json!(null)));
    lives.closes("k");
}

/// G29: a deaf server is ended and started again, and `show` says why. In either era.
fn deaf(scene: &Arc<Scene>, containment: Containment) {
    for (key, era, question) in [("legacy", "legacy", "ping"), ("modern", "modern", "server/discover")] {
        let config = profile(scene, &[(key, QUICK)]) + &format!("BUG_ERA = \"{era}\"\n");
        let lives = Lives::with(scene, containment, &config, &[]);
        lives.open("k").ok();
        eventually("it is asked", SOON, || {
            lives.told(key)[0]
                .iter()
                .rev()
                .take_while(|what| *what != "tools/list")
                .any(|what| what == question)
        });
        lives.call("k", "deaf", "{}").ok();
        lives.runs_again("k", key, 1);
        let server = lives.server("k", key);
        let error = server["last_error"].as_str().expect("it says why");
        assert!(error.contains(&format!("did not answer `{question}` 2 times")), "{server:#}");
        assert_eq!(server["last_failure"]["reason"], "unhealthy", "{server:#}");
        lives.call("k", "echo", "{\"text\": \"again\"}").ok();
        lives.closes("k");
    }
}

/// A deaf server that is never started again fails for good.
fn temporary(scene: &Arc<Scene>, containment: Containment) {
    let lives =
        Lives::new(scene, containment, &[("main", &format!("{QUICK}\nrestart = \"temporary\""))], &[]);
    let generation = lives.open("k").ok()["generation"].clone();
    lives.call("k", "deaf", "{}").ok();
    let waited = lives.daemon.cli(&["wait", &format!("k@{generation}")]).ok();
    assert_eq!(waited["certificate"]["reason"], "servers_failed", "{waited:#}");
    assert_eq!(waited["certificate"]["failure"]["reason"], "unhealthy", "{waited:#}");
    lives.daemon.finish();
}

/// G25: a start that runs out of time says which answer it waited for, in the error, in `show` meanwhile and afterwards, with the end of stderr.
fn slow_starts(scene: &Arc<Scene>, containment: Containment) {
    for (name, variables, waited) in [
        ("one", "BUG_SILENT = \"initialize\"", "initialize"),
        ("two", "BUG_SILENT = \"server/discover\"\nBUG_ERA = \"modern\"", "server/discover"),
        ("three", "BUG_SILENT = \"tools/list\"", "tools/list"),
        ("four", "BUG_SILENT = \"tools/list\"\nBUG_SILENT_PAGE = \"3\"", "tools/list, page 3"),
    ] {
        let config = profile(scene, &[(name, "timeouts = { start = \"1500ms\" }")]) + variables + "\n";
        let lives = Lives::with(scene, containment, &config, &[]);
        lives.daemon.cli(&["open", "k", "--profile", "p", "--no-wait"]).ok();
        eventually("it waits for that", SOON, || {
            let waits = &lives.server("k", name)["waits_for"];
            waits["what"] == format!("the answer to {waited}") && waits["left_ms"].is_u64()
        });
        let error = lives.open("k").fails(1);
        let data = &error["data"];
        assert_eq!(
            (&error["kind"], &data["reason"]),
            (&json!("start_timeout"), &json!("timeout")),
            "{error:#}"
        );
        assert_eq!(data["waited_for"], waited, "{error:#}");
        let text = format!("it was not ready within 1500 ms: it did not answer `{waited}`");
        assert!(error["message"].as_str().is_some_and(|message| message.contains(&text)), "{error:#}");
        assert!(data["stderr_tail"].as_str().is_some_and(|tail| tail.contains("no answer")), "{error:#}");
        let shown = lives.server("k", name);
        assert!(shown["last_error"].as_str().is_some_and(|error| error.contains(&text)), "{shown:#}");
        assert_eq!(shown["last_failure"]["waited_for"], waited, "{shown:#}");
        lives.daemon.finish();
    }
}

on_both! {
    g29_a_busy_server_is_not_sick = busy;
    g29_a_deaf_server_is_started_again = deaf;
    a_deaf_server_that_is_not_started_again = temporary;
    g25_starts_that_run_out_of_time = slow_starts;
}
