//! A daemon's containment, and what a test asks of it. At its end nothing may be left: no process, no zombie, no cgroup.
use mcpvisor_process::{
    Containment, ContainmentKind, Cwd, InstanceId, LaunchError, LaunchSpec, Launched, Options, ProcessRecord,
    ScopeFact, ScopeId, ScopeReport, Stdio, Threads, start,
};
use std::ffi::CString;
use std::fs::{self, File};
use std::io::{ErrorKind, Read as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// How long anything may take before a test gives up.
pub(crate) const BUDGET: Duration = Duration::from_secs(30);

pub(crate) struct World {
    threads: Option<Threads>,
    pub(crate) containment: Containment,
    pub(crate) kind: ContainmentKind,
    pub(crate) instance: String,
    next: AtomicU32,
}

impl World {
    pub(crate) fn start(kind: ContainmentKind) -> Self {
        Self::start_in(kind, None)
    }

    /// Starts one that notes its sessions in this folder.
    pub(crate) fn start_in(kind: ContainmentKind, state: Option<PathBuf>) -> Self {
        let instance = format!("test-{}", std::process::id());
        let me = std::env::current_exe().unwrap();
        let options = Options {
            instance: InstanceId(Arc::from(instance.as_str())),
            containment: Some(kind),
            private: false,
            keeper_command: vec![me.into(), "keeper".into()],
            state,
        };
        let (threads, containment) = start(options).unwrap();
        assert_eq!(containment.kind(), kind);
        Self { threads: Some(threads), containment, kind, instance, next: AtomicU32::new(0) }
    }

    pub(crate) fn new_scope(&self) -> ScopeId {
        let number = self.next.fetch_add(1, Ordering::SeqCst);
        ScopeId { session: Arc::from(format!("0-{number}")), leaf: Arc::from("0-1") }
    }

    /// Launches in a scope of its own and does not wait.
    pub(crate) fn begin(&self, spec: LaunchSpec) -> Launching {
        self.begin_in(self.new_scope(), spec)
    }

    pub(crate) fn begin_in(&self, scope: ScopeId, spec: LaunchSpec) -> Launching {
        let (fact, facts) = channel();
        let (told, outcome) = channel();
        self.containment.launch(
            scope.clone(),
            spec,
            Arc::new(move |f| drop(fact.send((Instant::now(), f)))),
            Box::new(move |result| drop(told.send(result))),
        );
        Launching { scope, facts, outcome }
    }

    pub(crate) fn launch(&self, spec: LaunchSpec) -> Server {
        self.begin(spec).ready().unwrap()
    }

    pub(crate) fn report(&self, scope: &ScopeId) -> ScopeReport {
        let (told, report) = channel();
        self.containment.report(scope, Box::new(move |r| told.send(r).unwrap()));
        report.recv_timeout(BUDGET).unwrap()
    }

    /// The instance's cgroup.
    pub(crate) fn cgroup(&self) -> Option<PathBuf> {
        (self.kind == ContainmentKind::Cgroup)
            .then(|| own_cgroup().join(format!("mcpvisor-{}", self.instance)))
    }

    /// Ends the threads and checks that nothing is left.
    pub(crate) fn end(mut self) {
        let cgroup = self.cgroup();
        self.threads.take().unwrap().end();
        if let Some(cgroup) = cgroup {
            assert!(!cgroup.exists(), "{} is left", cgroup.display());
        }
        assert_eq!(all_children(), Vec::<u32>::new(), "children are left");
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // A test that failed leaves nothing either.
        if let Some(threads) = self.threads.take() {
            threads.end();
        }
    }
}

pub(crate) struct Launching {
    pub(crate) scope: ScopeId,
    pub(crate) facts: Receiver<(Instant, ScopeFact)>,
    pub(crate) outcome: Receiver<Result<Launched, LaunchError>>,
}

impl Launching {
    pub(crate) fn outcome(&self) -> Result<Launched, LaunchError> {
        self.outcome.recv_timeout(BUDGET).unwrap()
    }

    pub(crate) fn ready(self) -> Result<Server, LaunchError> {
        let launched = self.outcome()?;
        Ok(Server { scope: self.scope, facts: self.facts, launched })
    }
}

pub(crate) struct Server {
    pub(crate) scope: ScopeId,
    pub(crate) facts: Receiver<(Instant, ScopeFact)>,
    pub(crate) launched: Launched,
}

impl Server {
    pub(crate) fn fact(&self) -> ScopeFact {
        self.facts.recv_timeout(BUDGET).unwrap().1
    }

    /// The report, once the scope is empty.
    pub(crate) fn empty(&self) -> Arc<ScopeReport> {
        loop {
            if let ScopeFact::Empty { report } = self.fact() {
                return report;
            }
        }
    }

    /// Reads stdout up to this text; all of it.
    pub(crate) fn read_until(&self, text: &str) -> String {
        let mut stdout = file(self.launched.stdout.as_ref().unwrap());
        let mut seen = String::new();
        eventually(text, || {
            let mut buffer = [0; 4096];
            match stdout.read(&mut buffer) {
                Ok(length) => seen.push_str(std::str::from_utf8(&buffer[..length]).unwrap()),
                Err(e) => assert_eq!(e.kind(), ErrorKind::WouldBlock),
            }
            seen.contains(text)
        });
        seen
    }

    /// Reads stdout up to its end.
    pub(crate) fn read_all(&self) -> String {
        let mut seen = Vec::new();
        read_to_end(self.launched.stdout.as_ref().unwrap(), &mut seen);
        String::from_utf8(seen).unwrap()
    }
}

/// A descriptor's copy as a file.
pub(crate) fn file(fd: &OwnedFd) -> File {
    File::from(fd.try_clone().unwrap())
}

pub(crate) fn read_to_end(fd: &OwnedFd, seen: &mut Vec<u8>) {
    let mut file = file(fd);
    eventually("end of file", || {
        let mut buffer = [0; 4096];
        match file.read(&mut buffer) {
            Ok(0) => true,
            Ok(length) => {
                seen.extend_from_slice(&buffer[..length]);
                false
            }
            Err(e) => {
                assert_eq!(e.kind(), ErrorKind::WouldBlock);
                false
            }
        }
    });
}

/// Waits for a condition.
pub(crate) fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !condition() {
        assert!(begin.elapsed() < BUDGET, "waited in vain for {what:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A program with arguments and a plain environment.
pub(crate) fn program(program: &str, arguments: &[&str]) -> LaunchSpec {
    let c = |text: &str| CString::new(text).unwrap();
    LaunchSpec {
        program: c(program),
        args: std::iter::once(program).chain(arguments.iter().copied()).map(c).collect(),
        env: vec![c("PATH=/usr/local/bin:/usr/bin:/bin")],
        cwd: Cwd::Inherit,
        stdio: Stdio::Piped,
        umask: None,
        limits: Vec::new(),
        nice: None,
        ignored_signals: Vec::new(),
        credentials: None,
        no_new_privs: false,
        memory_max: None,
        pids_max: None,
        note: None,
        deadline: Duration::from_secs(20),
    }
}

/// A shell script.
pub(crate) fn sh(script: &str) -> LaunchSpec {
    program("/bin/sh", &["-c", script])
}

/// Our own cgroup's folder.
pub(crate) fn own_cgroup() -> PathBuf {
    let text = fs::read_to_string("/proc/self/cgroup").unwrap();
    let path = text.lines().find_map(|line| line.strip_prefix("0::/")).unwrap().to_owned();
    cgroup_mount().join(path)
}

/// Where the cgroups are mounted.
pub(crate) fn cgroup_mount() -> PathBuf {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let mount = mounts.lines().find(|line| line.contains(" - cgroup2 ")).unwrap();
    PathBuf::from(mount.split(' ').nth(4).unwrap())
}

/// Our own children, whoever adopted them, but for our guardian.
pub(crate) fn children() -> Vec<u32> {
    all_children().into_iter().filter(|pid| !is_guardian(*pid)).collect()
}

/// Our guardian.
pub(crate) fn guardian() -> Option<u32> {
    all_children().into_iter().find(|pid| is_guardian(*pid))
}

fn is_guardian(pid: u32) -> bool {
    let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    command.split(|byte| *byte == 0).nth(1) == Some(b"guardian")
}

fn all_children() -> Vec<u32> {
    let threads = fs::read_dir("/proc/self/task").unwrap();
    let lists = threads.filter_map(|task| fs::read_to_string(task.unwrap().path().join("children")).ok());
    let mut all: Vec<u32> = lists
        .flat_map(|list| list.split_whitespace().map(|pid| pid.parse().unwrap()).collect::<Vec<_>>())
        .collect();
    all.sort_unstable();
    all
}

/// A process of that number exists, a zombie too.
pub(crate) fn exists(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

/// A field of /proc/PID/status.
pub(crate) fn status(text: &str, field: &str) -> String {
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("no {field} in {text}")).trim().to_owned()
}

pub(crate) fn record(report: &ScopeReport, pid: u32) -> &ProcessRecord {
    let found = report.processes.iter().find(|record| record.pid == pid);
    found.unwrap_or_else(|| panic!("no {pid} in {:?}", report.processes))
}

/// The numbers that a script has printed, one on each line after this word.
pub(crate) fn numbers(text: &str, word: &str) -> Vec<u32> {
    let lines = text.lines().filter_map(|line| line.strip_prefix(word)?.strip_prefix(' '));
    lines.map(|number| number.trim().parse().unwrap()).collect()
}

/// We run as root, and so may do what some tests need.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The other programs that this one can be.
pub(crate) fn play(role: &str) -> ! {
    match role {
        "daemon" => crate::keepers::play_daemon(crate::keepers::ESCAPEE),
        "stopping" => crate::keepers::play_daemon(crate::keepers::STOPPER),
        "guarded" => crate::guarding::play_daemon(),
        "noting" => crate::leftovers::play_noting(),
        "finding" => crate::leftovers::play_finding(),
        "inheriting" => crate::cgroups::play_inheriting(),
        "detach" => crate::asking::play_detach(),
        other => panic!("no role {other}"),
    }
}
