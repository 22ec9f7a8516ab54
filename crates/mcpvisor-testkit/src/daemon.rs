//! A daemon in a scene.
use crate::binaries::binary;
use crate::oracle::{Leak, Spared};
use crate::process::{Output, Process, Signal};
use crate::procfs;
use crate::rpc::Rpc;
use crate::scene::{Invocation, Scene};
use crate::wait::until;
use serde_json::{Value, json};
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

/// Names the bug that the daemons of a test are to have, for the test to fail.
const SEEDED_BUG: &str = "MCPVISOR_SEEDED_BUG";

/// Which containment a daemon is to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Containment {
    /// Cgroups.
    Cgroup,
    /// Keepers.
    Keeper,
}

impl fmt::Display for Containment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cgroup => "cgroup",
            Self::Keeper => "keeper",
        })
    }
}

impl Containment {
    /// Whether this machine allows it, as seen from outside the product. Where `MCPVISOR_TEST_CGROUP=require` is set, a machine
    /// without cgroups fails the tests in place of leaving some out.
    ///
    /// # Panics
    /// See above.
    #[must_use]
    pub fn is_possible(self, scene: &Scene) -> bool {
        if self == Self::Keeper {
            return true;
        }
        let possible = scene.has_cgroup() && !Path::new("/run/systemd/system").exists();
        let required = std::env::var_os("MCPVISOR_TEST_CGROUP").is_some_and(|value| value == "require");
        assert!(possible || !required, "cgroups are required by MCPVISOR_TEST_CGROUP and can't be used here");
        if !possible {
            eprintln!("left out: this machine gives us no cgroups");
        }
        possible
    }
}

/// How a daemon is to be started.
#[derive(Debug, Clone)]
pub struct Setup {
    containment: Option<Containment>,
    program: Option<&'static str>,
    daemon: Vec<String>,
    more: String,
    args: Vec<String>,
    env: Vec<(String, String)>,
    allowed: Vec<String>,
    under: Vec<String>,
}

impl Setup {
    /// With the daemon's own choice of containment.
    #[must_use]
    pub fn new() -> Self {
        Self {
            containment: None,
            program: None,
            daemon: vec![],
            more: String::new(),
            args: vec![],
            env: vec![],
            allowed: vec![],
            under: vec![],
        }
    }

    /// With this containment.
    #[must_use]
    pub fn on(containment: Containment) -> Self {
        Self { containment: Some(containment), ..Self::new() }
    }

    /// The daemon of test builds, with gates at which a test holds it by orders over a socket at this path.
    #[must_use]
    pub fn gated(mut self, orders: &Path) -> Self {
        self.program = Some("mcpvisord-failpoints");
        self.env("MCPVISOR_FAILPOINTS", &orders.to_string_lossy())
    }

    /// A line of the `[daemon]` table.
    #[must_use]
    pub fn daemon(mut self, line: &str) -> Self {
        self.daemon.push(line.to_owned());
        self
    }

    /// Further tables of the configuration.
    #[must_use]
    pub fn config(mut self, toml: &str) -> Self {
        self.more.push_str(toml);
        self.more.push('\n');
        self
    }

    /// Graces of 300 ms each for standard input and SIGTERM, so that a whole ladder takes little time.
    #[must_use]
    pub fn quick(self) -> Self {
        self.config(
            "[timeouts]\nstdin_grace = \"300ms\"\nterm_grace = \"300ms\"\ndrain = \"1s\"\nstart = \"20s\"",
        )
    }

    /// One more argument.
    #[must_use]
    pub fn arg(mut self, word: &str) -> Self {
        self.args.push(word.to_owned());
        self
    }

    /// A variable of the daemon's environment.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The daemon is started by this command, to which its own words are added. It must become the daemon, and so keep its
    /// process number (`strace -D`).
    #[must_use]
    pub fn under(mut self, words: &[String]) -> Self {
        self.under = words.to_vec();
        self
    }

    /// A line with this text in it may stand in the log at level error.
    #[must_use]
    pub fn allow_error(mut self, text: &str) -> Self {
        self.allowed.push(text.to_owned());
        self
    }

    fn toml(&self) -> String {
        let mut text = String::from("[daemon]\n");
        if let Some(containment) = self.containment {
            text.push_str(&format!("containment = \"{containment}\"\n"));
        }
        for line in &self.daemon {
            text.push_str(line);
            text.push('\n');
        }
        text + "\n" + &self.more
    }
}

impl Default for Setup {
    fn default() -> Self {
        Self::new()
    }
}

/// A daemon that runs. Killed when dropped; [`Daemon::finish`] is the orderly way.
#[derive(Debug)]
pub struct Daemon {
    scene: Arc<Scene>,
    process: Process,
    socket: PathBuf,
    config: PathBuf,
    log: PathBuf,
    instance: String,
    descriptors: usize,
    allowed: Vec<String>,
}

impl Daemon {
    /// Starts one, and returns when it answers.
    ///
    /// # Panics
    /// When it does not start.
    #[must_use]
    #[track_caller]
    pub fn start(scene: &Arc<Scene>, setup: &Setup) -> Self {
        let number = scene.number();
        let dir = scene.path(&format!("d{number}"));
        std::fs::create_dir(&dir).expect("a folder in the scene's folder");
        Self::start_in(scene, setup, &dir.join("control.sock"), &format!("d{number}"))
    }

    /// Starts one at a socket that the test names. `name` is for its log.
    ///
    /// # Panics
    /// When it does not start.
    #[must_use]
    #[track_caller]
    pub fn start_in(scene: &Arc<Scene>, setup: &Setup, socket: &Path, name: &str) -> Self {
        Self::try_start_in(scene, setup, socket, name).unwrap_or_else(|status| {
            let log = std::fs::read_to_string(scene.path(&format!("{name}.log"))).unwrap_or_default();
            panic!("the daemon did not start ({status}):\n{log}")
        })
    }

    /// The same of one that may end before it answers.
    ///
    /// # Errors
    /// Its exit status, where it has ended.
    ///
    /// # Panics
    /// When it neither answers nor ends.
    #[track_caller]
    pub fn try_start_in(
        scene: &Arc<Scene>,
        setup: &Setup,
        socket: &Path,
        name: &str,
    ) -> Result<Self, ExitStatus> {
        let config = scene.path(&format!("{name}.toml"));
        std::fs::write(&config, setup.toml()).expect("a file in the scene's folder");
        let log = scene.path(&format!("{name}.log"));
        let file = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(&log)
            .expect("a log in the scene's folder");
        let copy = file.try_clone().expect("a descriptor can be copied");
        // With a bug on purpose in a negative control (`cargo xtask negative-controls`).
        let bug = std::env::var_os(SEEDED_BUG);
        let daemon = binary(match setup.program {
            Some(program) => program,
            None if bug.is_some() => "mcpvisord-seeded",
            None => "mcpvisord",
        });
        let mut command = match setup.under.split_first() {
            Some((first, rest)) => scene.command(first).args(rest).arg(&daemon),
            None => scene.command(&daemon),
        };
        command = command.arg("--socket").arg(socket).arg("--config").arg(&config).args(&setup.args);
        for (name, value) in &setup.env {
            command = command.env(name, value);
        }
        if let Some(bug) = bug {
            command = command.env(SEEDED_BUG, bug);
        }
        let mut process = command.streams(std::process::Stdio::null(), copy.into(), file.into()).spawn();
        scene.know_log(log.clone());
        // None: it has ended. One that hangs up may be a former daemon, whose socket was open for a moment longer in a child that
        // was being born.
        let greeted = until(crate::SOON, || {
            if process.has_ended() {
                return Some(None);
            }
            let connection = Rpc::connect(socket).ok()?;
            let hello = connection.call("daemon/hello", &json!({})).ok()?;
            Some(Some((connection, hello)))
        });
        let greeted = greeted.unwrap_or_else(|| panic!("no daemon answers at {}", socket.display()));
        let Some((connection, hello)) = greeted else { return Err(process.wait(crate::SOON)) };
        let instance = hello["instance"].as_str().expect("hello names the instance").to_owned();
        scene.know_instance(&instance);
        // It serves before its guardian is there, whose pipe it holds for as long as it lives.
        let pid = process.pid();
        let guarded = || procfs::children(pid).into_iter().any(crate::oracle::is_guardian);
        let _ = until(crate::SOON, || (process.has_ended() || guarded()).then_some(()));
        // At rest there is one connection less.
        let descriptors = procfs::descriptors(process.pid()).len().saturating_sub(1);
        drop(connection);
        let (scene, socket, allowed) = (scene.clone(), socket.to_owned(), setup.allowed.clone());
        Ok(Self { scene, process, socket, config, log, instance, descriptors, allowed })
    }

    /// Its process number.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Its process.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Its socket.
    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Its configuration file.
    #[must_use]
    pub fn config(&self) -> &Path {
        &self.config
    }

    /// Its instance id.
    #[must_use]
    pub fn instance(&self) -> &str {
        &self.instance
    }

    /// What it has logged so far.
    #[must_use]
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// The client, speaking to this daemon, with `--json`.
    #[must_use]
    pub fn command<'a>(&self, scene: &'a Scene, args: &[&str]) -> Invocation<'a> {
        scene.command(binary("mcpvisor")).arg("--socket").arg(&self.socket).arg("--json").args(args)
    }

    /// Runs the client with `--json` to its end.
    #[must_use]
    #[track_caller]
    pub fn cli(&self, args: &[&str]) -> Output {
        self.command(&self.scene, args).output()
    }

    /// `mcpvisor run -- COMMAND…` with this daemon.
    #[must_use]
    pub fn run<'a>(&self, scene: &'a Scene, command: &[&str]) -> Invocation<'a> {
        scene.command(binary("mcpvisor")).arg("--socket").arg(&self.socket).args(["run", "--"]).args(command)
    }

    /// A new connection.
    ///
    /// # Panics
    /// When nobody answers.
    #[must_use]
    #[track_caller]
    pub fn connect(&self) -> Rpc {
        Rpc::connect(&self.socket).expect("the daemon accepts connections")
    }

    /// A new connection of another user; none where this process is not root, and can't be anyone else. The scene's folder and the socket's
    /// are opened to everybody.
    ///
    /// # Panics
    /// When nobody answers.
    #[must_use]
    #[track_caller]
    pub fn connect_as(&self, scene: &Scene, uid: u32) -> Option<Rpc> {
        if !rustix::process::geteuid().is_root() {
            return None;
        }
        for folder in [Some(scene.dir()), self.socket.parent()].into_iter().flatten() {
            let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            std::fs::set_permissions(folder, open).expect("the folder is this user's");
        }
        let socket = self.socket.clone();
        // The kernel's word for who connects is the thread's; the thread ends, and with it who it was.
        let connected = std::thread::spawn(move || {
            let uid = rustix::thread::Uid::from_raw(uid);
            rustix::thread::set_thread_res_uid(uid, uid, uid).map_err(std::io::Error::from)?;
            Rpc::connect(&socket)
        });
        Some(connected.join().expect("nothing panics there").expect("the daemon accepts connections"))
    }

    /// `daemon/status`.
    ///
    /// # Panics
    /// When it is not answered.
    #[track_caller]
    pub fn status(&self) -> Value {
        self.connect().call("daemon/status", &json!({})).expect("a status is always given")
    }

    /// The processes that are in a session of this daemon now: in one of its scopes by environment or cgroup.
    #[must_use]
    pub fn session_processes(&self) -> Vec<u32> {
        let inside = |pid: &u32| {
            let scope = format!("MCPVISOR_SCOPE={}/", self.instance);
            let in_scope = || procfs::environment(*pid).iter().any(|line| line.starts_with(&scope));
            let in_cgroup = || {
                procfs::cgroup(*pid)
                    .is_some_and(|path| path.contains(&format!("mcpvisor-{}/s-", self.instance)))
            };
            procfs::is_alive(*pid) && (in_cgroup() || in_scope())
        };
        procfs::pids().into_iter().filter(inside).collect()
    }

    /// Takes what the daemon holds now as its state of rest, in place of what it held when it had just started.
    pub fn rests_now(&mut self) {
        let connection = self.connect();
        let _ = connection.call("daemon/hello", &json!({}));
        self.descriptors = procfs::descriptors(self.pid()).len() - 1;
    }

    /// What is left although no session is open: processes, zombies, cgroups, descriptors. Waits for none within the budget.
    #[must_use]
    pub fn leaks(&self, budget: Duration) -> Vec<Leak> {
        let spared = Spared { daemon: Some((self.pid(), self.descriptors)), running: true };
        self.scene.wait_for_none(&spared, budget)
    }

    /// Asserts that nothing is left although the daemon runs. No session may be open.
    ///
    /// # Panics
    /// When something is left.
    #[track_caller]
    pub fn assert_at_rest(&self) {
        let leaks = self.leaks(crate::SOON);
        assert!(leaks.is_empty(), "{}", Leak::describe(&leaks));
        let used = &self.status()["sessions"]["used"];
        assert_eq!(*used, json!(0), "the daemon still counts sessions");
    }

    /// The lines of the log that tell of a broken promise.
    #[must_use]
    pub fn complaints(&self) -> Vec<String> {
        let bad = |line: &&str| {
            line.contains("panicked at") || line.contains(" ERROR ") || line.contains("\"level\":\"ERROR\"")
        };
        let allowed = |line: &&str| !self.allowed.iter().any(|text| line.contains(text));
        self.log().lines().filter(bad).filter(allowed).map(str::to_owned).collect()
    }

    /// Asserts that nothing is left, ends the daemon with SIGTERM, and asserts that it ends well and has not complained.
    ///
    /// # Panics
    /// See above.
    #[track_caller]
    pub fn finish(mut self) {
        self.assert_at_rest();
        self.process.signal(Signal::TERM);
        let status = self.process.wait(crate::SOON);
        assert_eq!(status.code(), Some(0), "the daemon's exit status");
        assert_eq!(self.complaints(), Vec::<String>::new());
    }
}
