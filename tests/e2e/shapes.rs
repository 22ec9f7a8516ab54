//! The shapes of answers are those that hosts rely on: every documented field is there, null where it can't be known.
use crate::support::{assert_closed, close, main_pid, on_both, open, polite};
use mcpvisor_testkit::{Daemon, Setup};
use serde_json::{Value, json};

/// Asserts that an object has these fields (others may be there too).
#[track_caller]
fn has(value: &Value, fields: &[&str]) {
    for field in fields {
        assert!(value.get(field).is_some(), "{field} is missing in {value:#}");
    }
}

const SESSION: &[&str] = &[
    "key",
    "generation",
    "state",
    "owner",
    "tenant",
    "labels",
    "parent",
    "created_at",
    "lease",
    "attached",
    "in_flight",
    "containment",
    "servers",
];
const SERVER: &[&str] =
    &["name", "state", "mode", "pid", "restarts", "era", "protocol", "tools", "in_flight", "last_error"];

on_both! {
    answers_have_their_shapes = |scene, containment| {
        let daemon = Daemon::start(scene, &Setup::on(containment).quick());
        let words = polite().join(" ");
        let options = ["open", "alice-1", "--label", "team=red", "--label", "n=1", "--tenant", "acme"];
        let command = daemon.command(scene, &options).args(["--server", &format!("one={words}"), "--server", &format!("two={words}")]);
        let session = command.output().ok();
        has(&session, SESSION);
        assert_eq!((&session["key"], &session["state"], &session["tenant"]), (&json!("alice-1"), &json!("ready"), &json!("acme")));
        assert_eq!((&session["labels"], &session["lease"]), (&json!({"team": "red", "n": "1"}), &json!("none")));
        assert_eq!(session["owner"]["uid"].as_u64(), Some(u64::from(owner())));
        let created = session["created_at"].as_str().expect("a time");
        assert!(created.len() == 24 && created.ends_with('Z') && &created[10..11] == "T", "{created}");
        for (server, name) in session["servers"].as_array().expect("servers").iter().zip(["one", "two"]) {
            has(server, SERVER);
            assert_eq!((&server["name"], &server["state"], &server["mode"]), (&json!(name), &json!("ready"), &json!("shared")));
            assert_eq!((&server["era"], &server["restarts"]), (&json!("legacy"), &json!(0)));
        }
        let shown = daemon.cli(&["show", "alice-1"]).ok();
        assert_eq!((&shown["generation"], main_pid(&shown)), (&session["generation"], main_pid(&session)));
        let listed = daemon.cli(&["list"]).ok();
        assert_eq!(listed["sessions"].as_array().map(Vec::len), Some(1));
        has(&listed["sessions"][0], SESSION);
        let tools = daemon.cli(&["tools", "alice-1"]).ok();
        has(&tools["tools"][0], &["name", "server", "title", "description", "inputSchema"]);
        let told = daemon.cli(&["ps"]).ok();
        for process in told["processes"].as_array().expect("processes") {
            has(process, &["pid", "ppid", "session", "server", "command", "memory_bytes", "cpu_ms", "escaped"]);
        }
        assert_eq!(told["processes"].as_array().map(Vec::len), Some(2), "{told:#}");
        let status = daemon.cli(&["status"]).ok();
        has(&status, &["version", "instance", "state", "sessions", "processes", "containment", "uptime_ms", "counters"]);
        has(&status["sessions"], &["used", "starting", "live", "dying", "quarantined", "limit"]);
        assert_eq!((&status["state"], &status["containment"]), (&json!("running"), &json!(containment.to_string())));
        assert_eq!(status["instance"], daemon.instance());
        let stopping = daemon.cli(&["close", "alice-1", "--no-wait"]).ok();
        assert_eq!(stopping["results"][0]["outcome"], "stopping", "{stopping:#}");
        let waited = daemon.cli(&["wait", "alice-1", "--timeout", "20s"]).ok();
        has(&waited, &["key", "generation", "state", "reached", "certificate"]);
        let certificate = &waited["certificate"];
        let fields = ["key", "generation", "outcome", "proof", "reason", "drained", "duration_ms", "servers", "remaining"];
        has(certificate, &fields);
        assert_closed(certificate, containment);
        for server in certificate["servers"].as_array().expect("servers") {
            has(server, &["name", "stage", "exit", "duration_ms", "processes", "peak_memory_bytes", "cpu_ms"]);
            has(&server["processes"][0], &["pid", "command", "ended_by", "exit", "escaped"]);
        }
        assert_eq!(daemon.cli(&["list"]).ok(), json!({"sessions": []}));
        daemon.finish();
    };

    /// Batches: by label, and of what is not there.
    close_by_label = |scene, containment| {
        let daemon = Daemon::start(scene, &Setup::on(containment).quick());
        for (key, label) in [("a", "x=1"), ("b", "x=1"), ("c", "x=2")] {
            daemon.command(scene, &["open", key, "--label", label, "--"]).args(polite()).output().ok();
        }
        let closed = daemon.cli(&["close", "--label", "x=1"]).ok();
        let results = closed["results"].as_array().expect("results");
        assert_eq!(results.len(), 2, "{closed:#}");
        results.iter().for_each(|result| assert_closed(result, containment));
        let mixed = daemon.cli(&["close", "c", "nobody"]);
        assert_eq!(mixed.status, 4, "{mixed:?}");
        let outcomes: Vec<Value> =
            mixed.json()["results"].as_array().expect("results").iter().map(|result| result["outcome"].clone()).collect();
        assert_eq!(outcomes, ["closed", "not_found"]);
        daemon.finish();
    };

    /// A key is made up where none is given, and two of those don't meet.
    keys_are_made_up = |scene, containment| {
        let daemon = Daemon::start(scene, &Setup::on(containment).quick());
        let made_up = || {
            let session = daemon.command(scene, &["open", "--"]).args(polite()).output().ok();
            session["key"].as_str().expect("a key").to_owned()
        };
        let (one, two) = (made_up(), made_up());
        assert_ne!(one, two);
        close(&daemon, &one);
        close(&daemon, &two);
        daemon.finish();
    };

    /// A profile of the configuration: its variables are expanded, its environment is clean, its arguments come with the open.
    profiles = |scene, containment| {
        let python = "\"-c\", \"import json,os,sys; open(sys.argv[1],'w').write(json.dumps(dict(os.environ))); os.execvp(sys.argv[2], sys.argv[2:])\"";
        let server = polite().iter().map(|word| format!("{word:?}")).collect::<Vec<_>>().join(", ");
        let profile = format!(
            "[profiles.work.servers.one]\ncommand = \"python3\"\nargs = [{python}, \"${{arg:out}}\", {server}]\nenv = {{ TOKEN = \"${{env:FROM_DAEMON:-none}}\" }}"
        );
        let setup = Setup::on(containment).quick().config(&profile).env("FROM_DAEMON", "secret").env("NOT_NAMED", "1");
        let daemon = Daemon::start(scene, &setup);
        let out = scene.path("environment");
        let argument = format!("out={}", out.display());
        let session = daemon.cli(&["open", "p", "--profile", "work", "--arg", &argument]).ok();
        assert_eq!(session["servers"][0]["name"], "one", "{session:#}");
        let told: Value = serde_json::from_str(&std::fs::read_to_string(&out).expect("it was written")).expect("JSON");
        assert_eq!(told["TOKEN"], "secret", "{told:#}");
        assert!(told.get("NOT_NAMED").is_none() && told.get("MCPVISOR_SCOPE").is_some(), "{told:#}");
        let missing = daemon.cli(&["open", "q", "--profile", "work"]);
        assert_ne!(missing.status, 0, "{missing:?}");
        assert!(missing.json()["error"]["message"].as_str().is_some_and(|text| text.contains("out")), "{missing:?}");
        let unknown = daemon.cli(&["open", "q", "--profile", "nothing"]);
        assert_ne!(unknown.status, 0, "{unknown:?}");
        assert!(unknown.json()["error"]["message"].as_str().is_some_and(|text| text.contains("nothing")), "{unknown:?}");
        close(&daemon, "p");
        daemon.finish();
    };
}

/// Who owns what we start.
fn owner() -> u32 {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").expect("a process has a folder in /proc").uid()
}

/// A session of several servers fails as a whole where one that is required does not start, and leaves nothing.
#[test]
fn g9_one_of_several_servers_does_not_start() {
    mcpvisor_testkit::scene(|scene| {
        let daemon = Daemon::start(scene, &Setup::new().quick());
        let words = polite().join(" ");
        let command = daemon.command(
            scene,
            &["open", "k", "--server", &format!("good={words}"), "--server", "bad=/no/such/program"],
        );
        let error = command.output().fails(1);
        assert_eq!(
            (&error["kind"], &error["data"]["server"]),
            (&json!("start_failed"), &json!("bad")),
            "{error:#}"
        );
        assert_eq!(daemon.session_processes(), Vec::<u32>::new());
        open(&daemon, scene, "k", &polite(), &[]);
        close(&daemon, "k");
        daemon.finish();
    });
}
