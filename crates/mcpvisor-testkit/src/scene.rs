//! A scene: the world of one test, with everything that was started in it marked, watched, and looked for at the end.
use crate::cgroup::TestCgroup;
use crate::oracle::{Leak, Sightings};
use crate::process::{self, Output, Process};
use crate::wait::until;
use crate::{binary, procfs, target_dir};
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::time::Duration;

/// The name of the marker. It does not begin with `MCPVISOR_`, since `mcpvisor run` rightly takes such variables away.
pub(crate) const MARKER: &str = "LEAK_ORACLE_MARK";

/// How long the oracle gives what is being torn down when a scene ends: a whole ladder with the default graces, and some.
const LAST_LOOK: Duration = Duration::from_secs(20);

/// The world of one test.
#[derive(Debug)]
pub struct Scene {
    pub(crate) mark: String,
    pub(crate) cgroup: Option<TestCgroup>,
    pub(crate) sightings: Mutex<Sightings>,
    /// Instance ids of the daemons of this scene.
    pub(crate) instances: Mutex<BTreeSet<String>>,
    logs: Mutex<Vec<PathBuf>>,
    counter: AtomicU32,
    over: AtomicBool,
    dir: tempfile::TempDir,
}

/// Plays a scene of at most two minutes. See [`scene_within`].
///
/// # Panics
/// When the test fails, does not end, or leaves anything behind.
pub fn scene(play: impl FnOnce(&Arc<Scene>) + Send + 'static) {
    scene_within(Duration::from_secs(120), play);
}

/// Plays a scene that needs the machine for itself: no other heavy scene runs at the same time, in this process or another.
///
/// # Panics
/// As [`scene_within`].
pub fn heavy_scene(limit: Duration, play: impl FnOnce(&Arc<Scene>) + Send + 'static) {
    let path = target_dir().join("heavy-tests.lock");
    let lock = std::fs::File::create(&path).expect("the target folder can be written");
    lock.lock().expect("a local file can be locked");
    scene_within(limit, play);
}

/// Plays a scene: runs the test on a thread of its own, ends it at the limit, and then looks for leaks.
///
/// # Panics
/// When the test fails, does not end within the limit, or leaves anything behind.
pub fn scene_within(limit: Duration, play: impl FnOnce(&Arc<Scene>) + Send + 'static) {
    stage(limit, LAST_LOOK, play);
}

pub(crate) fn stage(limit: Duration, last_look: Duration, play: impl FnOnce(&Arc<Scene>) + Send + 'static) {
    let scene = Scene::new();
    let watch = scene.watch();
    let (done, ended) = channel::<()>();
    let stage = scene.clone();
    let actor = std::thread::Builder::new().name("scene".to_owned()).spawn(move || {
        play(&stage);
        // Dropped last, so that a failure is told by the channel's end.
        drop(done);
    });
    let actor = actor.expect("a thread can be started");
    let result = match ended.recv_timeout(limit) {
        Err(RecvTimeoutError::Timeout) => {
            scene.tell();
            scene.end(watch);
            // Nothing that the test may wait for lives any more: it ends, and its folder and cgroup go with it.
            until(crate::SOON, || actor.is_finished().then_some(()));
            panic!("the test has not ended within {} s", limit.as_secs());
        }
        _ => actor.join(),
    };
    if let Err(failure) = result {
        scene.tell();
        scene.end(watch);
        std::panic::resume_unwind(failure);
    }
    let leaks = scene.leaks(last_look);
    if !leaks.is_empty() {
        scene.tell();
    }
    scene.end(watch);
    assert!(leaks.is_empty(), "{}", Leak::describe(&leaks));
}

impl Scene {
    /// A scene without an end of its own; for tests of the oracle itself.
    ///
    /// # Panics
    /// When no temporary folder can be made.
    #[must_use]
    pub fn new() -> Arc<Self> {
        static SUBREAPER: Once = Once::new();
        // Orphans of killed clients come back to the test, which can then see and reap them.
        SUBREAPER.call_once(|| {
            rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
                .expect("every process may become a subreaper");
        });
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let own = procfs::stat(std::process::id()).map_or(0, |stat| stat.id.started);
        let mark = format!("{}-{own}-{number}", std::process::id());
        let dir = tempfile::Builder::new().prefix("mcpv-").tempdir().expect("a temporary folder can be made");
        std::fs::create_dir(dir.path().join("run")).expect("a folder in a new folder");
        Arc::new(Self {
            cgroup: TestCgroup::create(&format!("test-{mark}")),
            mark,
            sightings: Mutex::default(),
            instances: Mutex::default(),
            logs: Mutex::default(),
            counter: AtomicU32::new(0),
            over: AtomicBool::new(false),
            dir,
        })
    }

    /// The scene's own folder, removed at the end.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// A path in the scene's folder.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The file in which the misbehaving servers note whom they start.
    #[must_use]
    pub fn pids_file(&self) -> PathBuf {
        self.path("pids")
    }

    /// The processes that the misbehaving servers have noted, as role and number, in order.
    #[must_use]
    pub fn noted(&self) -> Vec<(String, u32)> {
        let text = std::fs::read_to_string(self.pids_file()).unwrap_or_default();
        text.lines()
            .filter_map(|line| line.split_once(' '))
            .filter_map(|(role, pid)| Some((role.to_owned(), pid.trim().parse().ok()?)))
            .collect()
    }

    /// Whether processes of this scene are in a cgroup of their own.
    #[must_use]
    pub fn has_cgroup(&self) -> bool {
        self.cgroup.is_some()
    }

    /// A number that is new in this scene.
    pub(crate) fn number(&self) -> u32 {
        self.counter.fetch_add(1, Ordering::Relaxed)
    }

    /// A command to be run in this scene.
    #[must_use]
    pub fn command(&self, program: impl AsRef<OsStr>) -> Invocation<'_> {
        Invocation {
            scene: self,
            words: vec![program.as_ref().to_owned()],
            env: self.environment(),
            dir: self.dir().to_owned(),
            prelude: String::new(),
            input: None,
            streams: None,
        }
    }

    /// The client of this workspace, to be run in this scene.
    #[must_use]
    pub fn mcpvisor(&self, args: &[&str]) -> Invocation<'_> {
        self.command(binary("mcpvisor")).args(args)
    }

    /// The environment of what is run in this scene. Small and always the same, whatever the developer has set.
    #[must_use]
    pub fn environment(&self) -> Vec<(OsString, OsString)> {
        let mut env: Vec<(OsString, OsString)> = Vec::new();
        for name in ["PATH", "HOME", "USER", "LOGNAME"] {
            if let Some(value) = std::env::var_os(name) {
                env.push((name.into(), value));
            }
        }
        let run = self.path("run");
        let pids = self.pids_file();
        for (name, value) in [
            ("LANG", OsStr::new("C.UTF-8")),
            ("SHELL", OsStr::new("/bin/sh")),
            ("TERM", OsStr::new("dumb")),
            ("XDG_RUNTIME_DIR", run.as_os_str()),
            ("BUG_PIDS", pids.as_os_str()),
            (MARKER, OsStr::new(&self.mark)),
        ] {
            env.push((name.into(), value.to_owned()));
        }
        env
    }

    /// Makes a daemon known to the oracle.
    pub(crate) fn know_instance(&self, instance: &str) {
        self.instances.lock().unwrap_or_else(PoisonError::into_inner).insert(instance.to_owned());
    }

    /// A log that is shown when the test fails.
    pub(crate) fn know_log(&self, path: PathBuf) {
        self.logs.lock().unwrap_or_else(PoisonError::into_inner).push(path);
    }

    pub(crate) fn sightings(&self) -> std::sync::MutexGuard<'_, Sightings> {
        self.sightings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts to write down what runs in the scene, so that ancestry is known of what has lost its ancestors.
    fn watch(self: &Arc<Self>) -> std::thread::JoinHandle<()> {
        let scene = self.clone();
        std::thread::spawn(move || {
            while !scene.over.load(Ordering::Relaxed) {
                scene.sightings().look(&scene, false);
                std::thread::park_timeout(Duration::from_millis(40));
            }
        })
    }

    /// Removes the empty cgroups of the scene; for a test in which a daemon has ended without being able to.
    pub fn sweep_cgroups(&self) {
        for dir in self.cgroup.iter().flat_map(TestCgroup::below) {
            let _ = std::fs::remove_dir(dir);
        }
    }

    /// Ends everything that runs in the scene; for what a test has started without mcpvisor, to compare.
    pub fn discard(&self) {
        self.sightings().end_all(self);
        let _ = std::fs::remove_file(self.pids_file());
    }

    fn end(&self, watch: std::thread::JoinHandle<()>) {
        self.over.store(true, Ordering::Relaxed);
        watch.thread().unpark();
        let _ = watch.join();
        self.sightings().end_all(self);
    }

    /// Prints what helps to understand a failure.
    fn tell(&self) {
        let mut text = String::new();
        for path in self.logs.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            let log = std::fs::read_to_string(path).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            let first = lines.len().saturating_sub(200);
            let _ = writeln!(text, "--- {} (last {} lines)", path.display(), lines.len() - first);
            for line in &lines[first..] {
                let _ = writeln!(text, "{line}");
            }
        }
        let _ = writeln!(text, "--- processes of the scene");
        let mut sightings = self.sightings();
        sightings.look(self, true);
        for seen in sightings.living() {
            let _ = writeln!(text, "{seen}");
        }
        eprintln!("{text}");
    }
}

/// Something to be run in a scene.
#[derive(Debug)]
pub struct Invocation<'a> {
    scene: &'a Scene,
    words: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    dir: PathBuf,
    prelude: String,
    input: Option<Vec<u8>>,
    streams: Option<[Stdio; 3]>,
}

impl Invocation<'_> {
    /// One more argument.
    #[must_use]
    pub fn arg(mut self, word: impl AsRef<OsStr>) -> Self {
        self.words.push(word.as_ref().to_owned());
        self
    }

    /// More arguments.
    #[must_use]
    pub fn args(mut self, words: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        self.words.extend(words.into_iter().map(|word| word.as_ref().to_owned()));
        self
    }

    /// Sets a variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.env.retain(|(known, _)| known != name);
        self.env.push((name.into(), value.as_ref().to_owned()));
        self
    }

    /// Takes a variable away.
    #[must_use]
    pub fn without_env(mut self, name: &str) -> Self {
        self.env.retain(|(known, _)| known != name);
        self
    }

    /// The working directory; the scene's folder where none is named.
    #[must_use]
    pub fn cwd(mut self, dir: impl AsRef<Path>) -> Self {
        dir.as_ref().clone_into(&mut self.dir);
        self
    }

    /// A line of shell that is run first in the same process: `umask 027`, `ulimit -n 100`, `trap '' HUP`.
    #[must_use]
    pub fn prelude(mut self, shell: &str) -> Self {
        self.prelude = format!("{} {shell};", self.prelude);
        self
    }

    /// What is written to its standard input before that is closed.
    #[must_use]
    pub fn input(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.input = Some(bytes.into());
        self
    }

    /// Its standard streams; pipes to the test where none are named.
    #[must_use]
    pub fn streams(mut self, stdin: Stdio, stdout: Stdio, stderr: Stdio) -> Self {
        self.streams = Some([stdin, stdout, stderr]);
        self
    }

    /// The command itself, for a test that starts it through another program.
    #[must_use]
    pub fn words(self) -> Vec<OsString> {
        self.words
    }

    /// Starts it.
    ///
    /// # Panics
    /// When there is no shell.
    #[must_use]
    pub fn spawn(self) -> Process {
        let shown: Vec<_> = self.words.iter().map(|word| word.to_string_lossy()).collect();
        let name = shown.join(" ");
        // The shell enters the cgroup and then becomes the program: its number is the program's.
        let enter = match &self.scene.cgroup {
            Some(cgroup) => format!("echo $$ >'{}/cgroup.procs' || exit 125;", cgroup.dir().display()),
            None => String::new(),
        };
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg(format!("{enter} {} exec \"$@\"", self.prelude)).arg("sh").args(&self.words);
        command.env_clear().envs(self.env).current_dir(&self.dir);
        let [stdin, stdout, stderr] =
            self.streams.unwrap_or([Stdio::piped(), Stdio::piped(), Stdio::piped()]);
        command.stdin(stdin).stdout(stdout).stderr(stderr);
        let child = command.spawn().unwrap_or_else(|error| panic!("failed to start `{name}`: {error}"));
        self.scene.sightings().own(child.id());
        Process::new(child, name)
    }

    /// Starts it, gives it its input, and waits for its end.
    ///
    /// # Panics
    /// When it has not ended within a minute.
    #[must_use]
    pub fn output(self) -> Output {
        self.output_within(Duration::from_secs(60))
    }

    /// Starts it, gives it its input, and waits for its end.
    ///
    /// # Panics
    /// When it has not ended within the budget.
    #[must_use]
    pub fn output_within(mut self, budget: Duration) -> Output {
        let input = self.input.take();
        if input.is_none() && self.streams.is_none() {
            self.streams = Some([Stdio::null(), Stdio::piped(), Stdio::piped()]);
        }
        process::collect(self.spawn(), input, budget)
    }
}
