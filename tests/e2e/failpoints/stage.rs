//! A daemon with gates, and what is done to it at one of them.
use super::gates::Gates;
use super::table::Action;
use crate::support::{assert_closed, kind, open_params, polite};
use mcpvisor_testkit::{
    Containment, Daemon, Pending, Process, Rpc, SOON, Scene, Setup, Signal, binary, procfs,
};
use serde_json::{Value, json};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

/// The key of the session that everything is done to.
pub(crate) const KEY: &str = "held";
/// The server that is added, removed, restarted or replaced.
pub(crate) const CHANGED: &str = "changed";
/// How many sessions the daemon admits.
const LIMIT: usize = 2;
/// Each grace of a server of the sweep: short, so that a whole ladder takes little time.
pub(crate) const GRACE: Duration = Duration::from_millis(60);
/// How many answers to others show that the daemon had its time to answer: each takes it a few turns, as the one that is waited for.
const TURNS: usize = 4;

/// A daemon that stands, or will stand, at a gate.
pub(crate) struct Stage {
    pub(crate) scene: Arc<Scene>,
    pub(crate) containment: Containment,
    pub(crate) daemon: Daemon,
    pub(crate) gates: Gates,
    /// The other client.
    pub(crate) other: Rpc,
    /// The generation that was opened last before the daemon was held.
    pub(crate) generation: Value,
    /// Its server's main process.
    pub(crate) main: u32,
    /// How many processes it had, its keeper among them.
    pub(crate) processes: usize,
    /// Of standard input and of SIGTERM.
    grace: Duration,
}

/// Who has asked for what is held.
pub(crate) enum Requester {
    /// The test itself.
    Test(Rpc, Pending),
    /// A process that only holds the connection.
    Process(Process),
    /// Nobody: it was a signal.
    Signal,
}

impl Stage {
    /// One whose servers have these graces, and with a bug on purpose where one is named.
    pub(crate) fn set(
        scene: &Arc<Scene>,
        containment: Containment,
        grace: Duration,
        bug: Option<&str>,
    ) -> Self {
        let orders = scene.path(&format!("gates-{}", next()));
        let ms = grace.as_millis();
        // A stuck machine must not be taken for a stuck daemon: what is not to run out is long.
        let program = binary("mcpvisor");
        // One session of a tenant: a second one waits. A profile whose definition a test can change.
        let profile = format!(
            "[profiles.p.servers.{CHANGED}]\ncommand = {program:?}\nargs = [\"demo-server\", \"polite\"]\nenv = {{ VERSION = \"0\" }}"
        );
        let timeouts = format!(
            "[timeouts]\nstdin_grace = \"{ms}ms\"\nterm_grace = \"{ms}ms\"\nkill_wait = \"20s\"\nstart = \"20s\""
        );
        let mut setup = Setup::on(containment)
            .gated(&orders)
            .daemon(&format!("max_sessions = {LIMIT}\nmax_sessions_per_tenant = 1"))
            .config(&timeouts)
            .config(&profile);
        if let Some(bug) = bug {
            setup = setup.env("MCPVISOR_SEEDED_BUG", bug);
        }
        let mut daemon = Daemon::start(scene, &setup);
        let mut gates = Gates::connect(&orders);
        // Both connections are the daemon's by the time that it has answered on them, and that of its start is gone.
        assert!(!gates.all().is_empty());
        let other = daemon.connect();
        for _ in 0..TURNS {
            let _ = other.call("daemon/hello", &json!({}));
        }
        daemon.rests_now();
        let (scene, generation) = (scene.clone(), Value::Null);
        Self { scene, containment, daemon, gates, other, generation, main: 0, processes: 0, grace }
    }

    pub(crate) fn open_params(&self, key: &str, command: &[String]) -> Value {
        open_params(&self.scene, key, command, &[])
    }

    /// Asks on a connection of its own: of the test where its answer matters, of another process where that will be killed.
    pub(crate) fn ask(&self, method: &str, params: &Value, by_process: bool) -> Requester {
        if !by_process {
            let connection = self.daemon.connect();
            let pending = connection.send(method, params);
            return Requester::Test(connection, pending);
        }
        let line = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string();
        let mut stream = UnixStream::connect(self.daemon.socket()).expect("the daemon accepts connections");
        stream.write_all(format!("{line}\n").as_bytes()).expect("the daemon reads");
        // From here on the connection is that process's alone.
        let holder = self.scene.command("/bin/sleep").arg("300");
        Requester::Process(holder.streams(Stdio::null(), OwnedFd::from(stream).into(), Stdio::null()).spawn())
    }

    /// Gives the daemon time to answer, by having it answer others.
    pub(crate) fn turns(&self) {
        for _ in 0..TURNS {
            let _ = self.other.call("daemon/hello", &json!({}));
        }
    }

    /// The sessions that hold a key.
    pub(crate) fn sessions(&self) -> Vec<Value> {
        let list = self.other.call("session/list", &json!({})).expect("a list is always given");
        list["sessions"].as_array().cloned().unwrap_or_default()
    }

    pub(crate) fn close(&self, key: &str) -> Pending {
        self.other.send("session/close", &json!({"key": key}))
    }

    /// Nothing is left, every slot is free, the key can be opened again, and all of that leaves nothing either.
    #[track_caller]
    pub(crate) fn assert_free(&self) {
        self.daemon.assert_at_rest();
        let keys: Vec<String> =
            std::iter::once(KEY.to_owned()).chain((1..LIMIT).map(|n| format!("fill-{n}"))).collect();
        let open = |key: &String| self.other.send("session/open", &self.open_params(key, &polite()));
        let asked: Vec<Pending> = keys.iter().map(open).collect();
        for pending in asked {
            pending.wait(SOON).unwrap_or_else(|error| panic!("a free slot is not given: {error:#}"));
        }
        let refused = self.other.call("session/open", &self.open_params("too-many", &polite()));
        assert_eq!(refused.as_ref().map_err(kind), Err("capacity_exhausted"), "a slot was returned twice");
        let asked: Vec<Pending> = keys.iter().map(|key| self.close(key)).collect();
        for pending in asked {
            self.closed(pending.wait(SOON));
        }
        self.daemon.assert_at_rest();
    }

    /// Asserts that a close was answered with a certificate that is true.
    #[track_caller]
    pub(crate) fn closed(&self, answer: Result<Value, Value>) {
        let answer = answer.unwrap_or_else(|error| panic!("no certificate: {error:#}"));
        assert_closed(&answer["results"][0], self.containment);
    }

    /// What a wait was answered is true (G20): the session is over, or the daemon hung up.
    #[track_caller]
    pub(crate) fn assert_waited(&self, answer: &Result<Value, Value>) {
        match answer {
            Ok(waited) => {
                assert_eq!(waited["reached"], true, "{waited:#}");
                assert!(!procfs::exists(self.main), "a wait says closed while {} is there", self.main);
            }
            Err(error) => assert_eq!(error["hung_up"], true, "{error:#}"),
        }
    }

    /// The session that was closed has its certificate, and its server had all its time before it was killed (G14, G16).
    #[track_caller]
    pub(crate) fn assert_closed_in_its_time(&self) {
        let target = json!({"key": KEY, "generation": self.generation});
        let answer = self.other.call("session/close", &target);
        self.closed(answer.clone());
        let took = answer.expect("it was closed")["results"][0]["duration_ms"].as_f64().unwrap_or_default();
        let least = self.least_ms();
        assert!(took >= least, "the teardown was hurried: it took {took} ms of {least}");
    }

    /// The graces of a server that resists, in ms.
    pub(crate) fn least_ms(&self) -> f64 {
        2.0 * self.grace.as_secs_f64() * 1e3
    }

    /// The daemon has ended, with nothing left.
    #[track_caller]
    pub(crate) fn assert_ended(mut self) {
        let status = self.daemon.process().wait(SOON);
        assert_eq!(status.code(), Some(0), "the daemon's exit status");
        assert_eq!(
            self.daemon.session_processes(),
            Vec::<u32>::new(),
            "processes of a daemon that has ended"
        );
        assert_eq!(self.daemon.complaints(), Vec::<String>::new());
    }
}

impl Requester {
    /// Does what is asked for to the requester itself. False: there is nobody to do it to.
    pub(crate) fn suffer(&mut self, action: Action) {
        match (action, self) {
            (Action::Cancel, Self::Test(connection, pending)) => connection.cancel(pending),
            (Action::Kill, Self::Process(process)) => {
                process.signal(Signal::KILL);
                let _ = process.wait(SOON);
            }
            (action, _) => panic!("nobody is there for {action:?}"),
        }
    }
}

/// A number that is new in this process.
fn next() -> usize {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    NUMBER.fetch_add(1, Ordering::Relaxed)
}
