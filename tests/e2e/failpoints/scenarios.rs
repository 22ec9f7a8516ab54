//! Races of creation (A) and of old generations (B.5) that need the daemon to stand still in their midst.
use super::gates::Gates;
use crate::support::{assert_closed, kind, main_pid, on_both, open_params, polite, used};
use mcpvisor_testkit::{Containment, Daemon, Pending, Rpc, SOON, Scene, Setup, eventually, procfs};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;

/// No launch that has come there can be withdrawn, and nothing is born.
const STUCK: &str = "launch.birth";

struct Stage {
    daemon: Daemon,
    gates: Gates,
    one: Rpc,
    two: Rpc,
}

fn stage(scene: &Arc<Scene>, containment: Containment, limit: usize) -> Stage {
    let orders = scene.path("gates");
    let timeouts =
        "[timeouts]\nstdin_grace = \"60ms\"\nterm_grace = \"60ms\"\nkill_wait = \"20s\"\nstart = \"20s\"";
    let setup =
        Setup::on(containment).gated(&orders).daemon(&format!("max_sessions = {limit}")).config(timeouts);
    let mut daemon = Daemon::start(scene, &setup);
    let mut gates = Gates::connect(&orders);
    let (one, two) = (daemon.connect(), daemon.connect());
    // All of these are the daemon's by the time that it has answered on them.
    assert!(!gates.all().is_empty());
    for connection in [&one, &two] {
        connection.call("daemon/hello", &json!({})).expect("it is greeted");
    }
    daemon.rests_now();
    Stage { daemon, gates, one, two }
}

impl Stage {
    /// How often a gate was passed since it was counted last.
    fn since(&mut self, gate: &str, before: u64) -> u64 {
        self.gates.count(gate).expect("the daemon lives") - before
    }

    fn finish(self) {
        let Self { daemon, gates, one, two } = self;
        drop((gates, one, two));
        daemon.finish();
    }
}

#[track_caller]
fn assert_cancelled(pending: Pending) {
    let error = pending.wait(SOON).expect_err("a cancelled open does not succeed");
    assert_eq!(kind(&error), "cancelled", "{error:#}");
}

/// A program that is there, and can't be executed: its interpreter is not.
fn fails_at_birth(scene: &Scene) -> Vec<String> {
    let path = scene.path("fails-at-birth");
    fs::write(&path, "#!/no/such/interpreter\n").expect("the scene is ours");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("the file is ours");
    vec![path.to_string_lossy().into_owned()]
}

/// Says that it can't shake hands, and then ends on no rung before the kill.
const REFUSES: &str = r#"
import json, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for line in sys.stdin:
    rid = json.loads(line).get("id")
    if rid is not None:
        print(json.dumps({"jsonrpc": "2.0", "id": rid, "error": {"code": -32603, "message": "not today"}}), flush=True)
while True: time.sleep(60)
"#;

on_both! {
    /// A.2 (G6, G7): a start is stuck, there is one slot, and its requester cancels five times. The slot stays taken until what comes late, a process or a
    /// failure, is over; then it is free, once.
    a2_cancelled_five_times = |scene, containment| {
        let mut stage = stage(scene, containment, 1);
        for (round, command) in (0..).zip([polite(), fails_at_birth(scene)]) {
            stage.gates.hold(STUCK);
            let opening = stage.one.send("session/open", &open_params(scene, "k", &command, &[]));
            stage.gates.reached(STUCK);
            for _ in 0..5 {
                stage.one.cancel(&opening);
            }
            assert_cancelled(opening);
            let other = open_params(scene, "other", &polite(), &[]);
            let refused = stage.two.call("session/open", &other).expect_err("the slot is taken");
            assert_eq!((kind(&refused), &refused["data"]["used"]), ("capacity_exhausted", &json!(1)), "{refused:#}");
            for _ in 0..2 {
                let closed = stage.two.call("session/close", &json!({"key": "nobody"})).expect("an outcome");
                assert_eq!(closed["results"][0]["outcome"], "not_found");
                assert_eq!(used(&stage.daemon), 1, "it changes no count");
            }
            assert_eq!(stage.daemon.session_processes(), Vec::<u32>::new(), "nothing is born yet");
            stage.gates.release(STUCK);
            eventually("the free slot", SOON, || used(&stage.daemon) == 0);
            stage.daemon.assert_at_rest();
            // Each session is let go of once: this one, and the other one of each round.
            eventually("its one release", SOON, || stage.since("reaper.release", 0) == 2 * round + 1);
            stage.two.call("session/open", &other).expect("the slot is free");
            let closed = stage.two.call("session/close", &json!({"key": "other"})).expect("it closes");
            assert_closed(&closed["results"][0], containment);
            eventually("the other's release", SOON, || stage.since("reaper.release", 0) == 2 * round + 2);
        }
        stage.finish();
    };

    /// A.3 (G6, G8): beside a stuck start that was cancelled, twenty opens take the other slot and give it back at once, and no process is started
    /// behind the first.
    a3_twenty_opens_beside_a_stuck_start = |scene, containment| {
        let mut stage = stage(scene, containment, 2);
        stage.gates.hold(STUCK);
        let first = stage.one.send("session/open", &open_params(scene, "first", &polite(), &[]));
        stage.gates.reached(STUCK);
        stage.one.cancel(&first);
        assert_cancelled(first);
        assert_eq!(used(&stage.daemon), 1);
        let mute = ["sh", "-c", "exec sleep 600"].map(str::to_owned);
        for _ in 0..20 {
            let second = stage.one.send("session/open", &open_params(scene, "second", &mute, &[]));
            eventually("the second slot", SOON, || used(&stage.daemon) == 2);
            stage.one.cancel(&second);
            assert_cancelled(second);
            eventually("the free slot", SOON, || used(&stage.daemon) == 1);
            assert_eq!(stage.daemon.session_processes(), Vec::<u32>::new(), "nothing is left, or was started behind the first");
        }
        stage.gates.release(STUCK);
        eventually("the free slot", SOON, || used(&stage.daemon) == 0);
        stage.finish();
    };

    /// A.1, A.5 (G15): a server whose handshake has failed is being ended, and its requester cancels, once and again. It is killed once, and nothing is left.
    a5_a_cancel_while_a_failed_server_is_ended = |scene, containment| {
        let mut stage = stage(scene, containment, 1);
        let script = scene.path("refuses.py");
        fs::write(&script, REFUSES).expect("the scene is ours");
        let command = ["python3".to_owned(), script.to_string_lossy().into_owned()];
        for gate in ["reaper.term", "reaper.kill"] {
            let (kills, ends) = (stage.gates.count("reaper.kill"), stage.gates.count("server.empty"));
            stage.gates.hold(gate);
            let opening = stage.one.send("session/open", &open_params(scene, "k", &command, &[]));
            stage.gates.reached(gate);
            stage.one.cancel(&opening);
            stage.one.cancel(&opening);
            assert_cancelled(opening);
            assert!(!stage.daemon.session_processes().is_empty(), "it is being ended");
            stage.gates.release(gate);
            eventually("the free slot", SOON, || used(&stage.daemon) == 0);
            stage.daemon.assert_at_rest();
            assert_eq!(stage.since("reaper.kill", kills.expect("the daemon lives")), 1, "killed once");
            assert_eq!(stage.since("server.empty", ends.expect("the daemon lives")), 1, "ended once");
        }
        stage.finish();
    };

    /// B.5 (G3): what was asked of a generation and comes when the next one has opened is refused or dropped, and the next one is untouched.
    b5_what_is_late_leaves_the_next_generation_alone = |scene, containment| {
        let mut stage = stage(scene, containment, 2);
        let params = |command: &[String]| open_params(scene, "k", command, &[]);
        let add = |name: &str| {
            let open = params(&polite());
            let server = json!({"name": name, "command": polite()});
            json!({"key": "k", "server": server, "environment": open["environment"], "cwd": open["cwd"]})
        };
        let opening = stage.one.send("session/open", &params(&polite()));
        let opened_id = opening.id;
        let old = opening.wait(SOON).expect("it opens");
        // An add that has found its session, one in its handshake, and an exit note.
        stage.gates.hold("change.found");
        let found = stage.one.send("server/add", &add("found"));
        stage.gates.reached("change.found");
        stage.gates.hold("handshake.listed");
        // On a connection of its own: one connection's changes are done in their order.
        let three = stage.daemon.connect();
        let shaking = three.send("server/add", &add("shaking"));
        stage.gates.reached("handshake.listed");
        let certificate = stage.two.call("session/close", &json!({"key": "k"})).expect("it closes");
        assert_closed(&certificate["results"][0], containment);
        let refused = shaking.wait(SOON).expect_err("the close has fenced it");
        assert_eq!(kind(&refused), "session_closed", "{refused:#}");
        let mut next = params(&polite());
        next["idle_ms"] = json!(1_800_000);
        let new = stage.two.call("session/open", &next).expect("the key is free");
        assert_ne!(new["generation"], old["generation"]);
        let shown = |stage: &Stage| {
            let mut shown = stage.two.call("session/show", &json!({"key": "k"})).expect("it is there");
            // It is another at each look.
            if let Some(members) = shown.as_object_mut() {
                members.retain(|name, _| !name.contains("idle"));
            }
            shown
        };
        let before = shown(&stage);
        stage.gates.release("change.found");
        stage.gates.release("handshake.listed");
        let refused = found.wait(SOON).expect_err("its session is over");
        assert_eq!(kind(&refused), "session_closed", "{refused:#}");
        let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": opened_id}});
        stage.one.send_line(&cancel.to_string());
        let old_one = json!({"key": "k", "generation": old["generation"]});
        let with = |more: &[(&str, Value)]| {
            let mut params = old_one.clone();
            more.iter().for_each(|(name, value)| params[*name] = value.clone());
            params
        };
        let late = [
            ("session/show", with(&[])),
            ("session/kill", with(&[])),
            ("session/attach", with(&[])),
            ("tool/list", with(&[])),
            ("tool/call", with(&[("tool", json!("echo")), ("arguments", json!({"message": "x"}))])),
            ("server/add", with(&[("server", json!({"name": "late", "command": polite()}))])),
            ("server/remove", with(&[("name", json!("main"))])),
            ("server/restart", with(&[("name", json!("main"))])),
            ("log/read", with(&[])),
            ("process/list", with(&[])),
        ];
        for (method, params) in late {
            // An attached connection speaks MCP: each has its own.
            let refused = stage.daemon.connect().call(method, &params);
            assert_eq!(refused.as_ref().map_err(kind), Err("stale_generation"), "{method}");
        }
        let again = stage.two.call("session/close", &old_one).expect("its certificate");
        assert_eq!(again["results"], certificate["results"]);
        assert_eq!(shown(&stage), before, "the next generation was touched");
        assert!(procfs::is_alive(main_pid(&new)));
        let called = json!({"key": "k", "tool": "echo", "arguments": {"message": "still here"}});
        stage.two.call("tool/call", &called).expect("it can be called");
        let closed = stage.two.call("session/close", &json!({"key": "k"})).expect("it closes");
        assert_closed(&closed["results"][0], containment);
        stage.finish();
    };
}
