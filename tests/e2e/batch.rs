//! Many sessions closed at once, and what is remembered of them.
use crate::support::{assert_closed, close, on_both, open, open_params, polite, python};
use mcpvisor_testkit::{Daemon, Setup};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

on_both! {
    /// C.4: one result for each, all at once, and `wait` on each tells the same; what is not there is told as such.
    g21_c4_each_of_a_batch_is_told = |scene, containment| {
        let setup = Setup::on(containment).config("[timeouts]\nstdin_grace = \"500ms\"\nterm_grace = \"500ms\"");
        let daemon = Daemon::start(scene, &setup);
        let connection = daemon.connect();
        let keys: Vec<String> = (0..8).map(|at| format!("b{at}")).collect();
        for (at, key) in keys.iter().enumerate() {
            let command = if at % 2 == 0 { polite() } else { python("02-ignore-sigterm") };
            let mut params = open_params(scene, key, &command, &[]);
            params["labels"] = json!({"batch": "yes"});
            connection.call("session/open", &params).expect("it opens");
        }
        open(&daemon, scene, "other", &polite(), &[]);
        let begin = Instant::now();
        let results = daemon.cli(&["close", "--label", "batch=yes"]).ok()["results"].clone();
        assert!(begin.elapsed() < Duration::from_millis(3_500), "four ladders of a second each at once: {:?}", begin.elapsed());
        let results = results.as_array().expect("a list");
        assert_eq!(results.iter().map(|result| result["key"].as_str()).collect::<Vec<_>>(), keys.iter().map(|key| Some(key.as_str())).collect::<Vec<_>>());
        for (key, result) in keys.iter().zip(results) {
            assert_closed(result, containment);
            let waited = daemon.cli(&["wait", key]).ok();
            assert_eq!((&waited["reached"], &waited["certificate"]), (&json!(true), result));
        }
        assert_eq!(daemon.cli(&["show", "other"]).ok()["state"], "ready");
        // A partial failure is told as such: 4 where some are not there.
        let some = daemon.cli(&["close", "other", "nobody", "b0@99"]);
        assert_eq!(some.status, 4, "{some:?}");
        let outcomes: Vec<Value> = some.json()["results"].as_array().expect("a list").iter().map(|result| result["outcome"].clone()).collect();
        assert_eq!(outcomes, ["closed", "not_found", "not_found"]);
        drop(connection);
        daemon.finish();
    };

    /// G20: what is remembered is bounded, and what is forgotten is unknown: it is never taken for closed.
    g20_what_is_forgotten_is_unknown = |scene, containment| {
        let setup = Setup::on(containment).quick().daemon("tombstones = 2\ntombstone_age = \"2s\"");
        let daemon = Daemon::start(scene, &setup);
        let mut certificates = Vec::new();
        for key in ["a", "b", "c"] {
            open(&daemon, scene, key, &polite(), &[]);
            certificates.push(close(&daemon, key));
        }
        let unknown = daemon.cli(&["wait", "a"]).fails(4);
        assert_eq!(unknown["kind"], "not_found", "{unknown:#}");
        assert_eq!(daemon.cli(&["wait", "b"]).ok()["certificate"], certificates[1]);
        let handle = format!("c@{}", certificates[2]["generation"]);
        assert_eq!(daemon.cli(&["close", &handle]).ok()["results"][0], certificates[2]);
        mcpvisor_testkit::eventually("the end of their age", mcpvisor_testkit::SOON, || daemon.cli(&["wait", "c"]).status == 4);
        assert_eq!(daemon.cli(&["close", &handle]).status, 4);
        daemon.finish();
    };
}
