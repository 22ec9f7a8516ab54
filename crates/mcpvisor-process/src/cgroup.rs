//! The cgroups of this daemon instance: `mcpvisor-INSTANCE/s-SESSION/v-LEAF`. Files are opened on demand, relative to one
//! descriptor of the instance's folder, which holds its lock too: see `claim`.
mod claim;
pub(crate) mod discover;
mod former;

pub(crate) use claim::PREFIX as INSTANCE;

use crate::procfs;
use crate::sys;
use crate::{InstanceId, ScopeId};
use discover::Place;
use rustix::fs::{AtFlags, Mode, OFlags, mkdirat, openat, statat, unlinkat};
use rustix::io::Errno;
use std::fs;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The instance's cgroup.
#[derive(Debug)]
pub(crate) struct Tree {
    dir: OwnedFd,
    path: PathBuf,
    /// The instance's cgroup as /proc/PID/cgroup tells it, with a slash at the end.
    prefix: String,
    controllers: Vec<&'static str>,
}

/// Limits of a scope; each is kept where its controller is there.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct CgroupLimits {
    pub(crate) memory_max: Option<u64>,
    pub(crate) pids_max: Option<u64>,
}

/// What a scope's cgroup has used.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Usage {
    pub(crate) peak_memory_bytes: Option<u64>,
    pub(crate) cpu: Option<Duration>,
}

const CONTROLLERS: [&str; 2] = ["memory", "pids"];

impl Tree {
    /// Makes the instance's cgroup and tries in it what we rely on. The error says what is missing; nothing is left then.
    pub(crate) fn new(instance: &InstanceId, below_own: bool) -> Result<Self, String> {
        let place = discover::place(below_own)?;
        let path = place.dir.join(format!("{}{}", claim::PREFIX, instance.0));
        let told = |what: &str, e: io::Error| format!("{what} {}: {e}", path.display());
        let dir = claim::make(&path).map_err(|e| told("can't make the cgroup", e))?;
        let result = Self::set_up(instance, &place, &path, dir);
        if result.is_err() {
            let _ = fs::remove_dir(path.join("probe"));
            let _ = fs::remove_dir(&path);
        }
        result
    }

    fn set_up(instance: &InstanceId, place: &Place, path: &Path, dir: OwnedFd) -> Result<Self, String> {
        let prefix = format!("{}/{}{}/", place.path, claim::PREFIX, instance.0);
        let mut tree = Self { dir, path: path.to_owned(), prefix, controllers: Vec::new() };
        tree.probe()?;
        tree.quiet(".");
        enable_controllers(place);
        tree.controllers = tree.enable("");
        Ok(tree)
    }

    /// The cgroup of an instance that is another process, for its guardian: no lock is taken.
    pub(crate) fn of_instance(path: &Path) -> io::Result<Self> {
        let named = path
            .file_name()
            .is_some_and(|name| name.as_encoded_bytes().starts_with(claim::PREFIX.as_bytes()));
        if !named {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no instance's cgroup"));
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::open(path, flags, Mode::empty())?;
        Ok(Self { dir, path: path.to_owned(), prefix: String::new(), controllers: Vec::new() })
    }

    /// Kills what dead instances have left where ours are made, and removes their cgroups; see `claim`. Takes two seconds at most.
    /// The instances of `noted` are left to `leftovers`.
    pub(crate) fn sweep(noted: &[&Path]) {
        // Where there is no such place there is nothing that we could have left in it.
        if let Ok(place) = discover::place(false) {
            claim::sweep(&place.dir, noted);
        }
    }

    /// The instance's folder.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Tries to make a child inside a cgroup and to kill one.
    fn probe(&self) -> Result<(), String> {
        let told = |what: &'static str| move |e: io::Error| format!("{what}: {e}");
        mkdirat(&self.dir, "probe", Mode::from_raw_mode(0o755))
            .map_err(|e| format!("can't make a cgroup: {e}"))?;
        let leaf =
            self.open("probe", OFlags::PATH | OFlags::DIRECTORY).map_err(told("can't open a cgroup"))?;
        sys::probe_clone(Some(leaf.as_fd()))
            .map_err(told("no child can be born in a cgroup (Linux 5.7 can)"))?;
        self.write("probe/cgroup.kill", "1").map_err(told("no cgroup.kill (Linux 5.14 has it)"))?;
        self.remove_dir("probe").map_err(told("can't remove a cgroup"))
    }

    /// The controllers that scopes have.
    pub(crate) fn controllers(&self) -> &[&'static str] {
        &self.controllers
    }

    fn session_dir(session: &str) -> String {
        format!("s-{session}")
    }

    fn leaf_dir(scope: &ScopeId) -> String {
        format!("s-{}/v-{}", scope.session, scope.leaf)
    }

    /// Makes the scope's cgroup, and the session's where need be; a descriptor to be born into.
    pub(crate) fn create(&self, scope: &ScopeId, limits: CgroupLimits) -> io::Result<OwnedFd> {
        let mode = Mode::from_raw_mode(0o755);
        let (session, leaf) = (Self::session_dir(&scope.session), Self::leaf_dir(scope));
        let mut tries = 3;
        loop {
            match mkdirat(&self.dir, leaf.as_str(), mode) {
                Ok(()) => break,
                // The session's first scope; or its folder is removed at this moment, with its last one.
                Err(Errno::NOENT) if tries > 0 => {
                    tries -= 1;
                    match mkdirat(&self.dir, session.as_str(), mode) {
                        Ok(()) => {
                            self.quiet(&session);
                            if !self.controllers.is_empty() {
                                self.enable(&session);
                            }
                        }
                        Err(Errno::EXIST) => {}
                        Err(error) => return Err(error.into()),
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
        self.quiet(&leaf);
        let made =
            self.limit(&leaf, limits).and_then(|()| self.open(&leaf, OFlags::PATH | OFlags::DIRECTORY));
        if made.is_err() {
            let _ = self.remove_dir(&leaf);
        }
        made
    }

    /// Turns the kernel's accounting of pressure off for one cgroup (Linux 6.1): it costs at each switch to a process in it, and
    /// that of the cgroups above goes on. Where it can't be turned off, it stays on.
    fn quiet(&self, dir: &str) {
        let _ = self.write(&format!("{dir}/cgroup.pressure"), "0");
    }

    fn limit(&self, leaf: &str, limits: CgroupLimits) -> io::Result<()> {
        let wanted = [("memory", "memory.max", limits.memory_max), ("pids", "pids.max", limits.pids_max)];
        for (controller, file, value) in wanted {
            if let Some(value) = value
                && self.controllers.contains(&controller)
            {
                self.write(&format!("{leaf}/{file}"), &value.to_string())?;
            }
        }
        Ok(())
    }

    /// Kills every process of the scope, those in cgroups that it made below its own too. One that is gone has none.
    pub(crate) fn kill(&self, scope: &ScopeId) -> io::Result<()> {
        match self.write(&format!("{}/cgroup.kill", Self::leaf_dir(scope)), "1") {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    /// The file that kills the scope.
    pub(crate) fn kill_file(&self, scope: &ScopeId) -> io::Result<OwnedFd> {
        self.open(&format!("{}/cgroup.kill", Self::leaf_dir(scope)), OFlags::WRONLY)
    }

    /// The file that kills the whole instance.
    pub(crate) fn kill_all_file(&self) -> io::Result<OwnedFd> {
        self.open("cgroup.kill", OFlags::WRONLY)
    }

    /// Kills every process of the instance. One that is gone has none.
    pub(crate) fn kill_all(&self) -> io::Result<()> {
        match self.write("cgroup.kill", "1") {
            Err(error) if is_gone(&error) => Ok(()),
            other => other,
        }
    }

    /// Kills every process of the instance, again and again until none is left, and removes its cgroup. Gives up at `end`.
    pub(crate) fn clear(&self, end: Instant) -> io::Result<()> {
        let mut pause = Duration::from_millis(1);
        loop {
            let cleared = self.kill_all().and_then(|()| self.populated_at(".")).and_then(|populated| {
                let busy = || Err(io::Error::new(io::ErrorKind::TimedOut, "its processes do not end"));
                if populated { busy() } else { self.remove_all() }
            });
            if cleared.is_ok() || Instant::now() >= end {
                return cleared;
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(50));
        }
    }

    /// Every process of the instance that has not exited.
    pub(crate) fn everyone(&self) -> io::Result<Vec<u32>> {
        self.processes_at(".")
    }

    /// Whether the scope has a process that has not exited.
    pub(crate) fn populated(&self, scope: &ScopeId) -> io::Result<bool> {
        self.populated_at(&Self::leaf_dir(scope))
    }

    fn populated_at(&self, dir: &str) -> io::Result<bool> {
        match self.read(&format!("{dir}/cgroup.events")) {
            Ok(text) => Ok(text.lines().any(|line| line == "populated 1")),
            Err(error) if is_gone(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The scope's processes that have not exited, those in cgroups below it too.
    pub(crate) fn processes(&self, scope: &ScopeId) -> io::Result<Vec<u32>> {
        self.processes_at(&Self::leaf_dir(scope))
    }

    fn processes_at(&self, dir: &str) -> io::Result<Vec<u32>> {
        let mut found = Vec::new();
        self.visit(dir, 0, &mut |dir| found.extend(self.members(dir)))?;
        Ok(found)
    }

    /// The processes of one cgroup, without those below it. A threaded one refuses; its processes are told by the one above.
    fn members(&self, dir: &str) -> Vec<u32> {
        let text = self.read(&format!("{dir}/cgroup.procs")).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).filter(|pid| *pid != 0).collect()
    }

    /// The file whose change tells that a scope has become empty.
    pub(crate) fn events_file(&self, scope: &ScopeId) -> PathBuf {
        self.path.join(Self::leaf_dir(scope)).join("cgroup.events")
    }

    pub(crate) fn usage(&self, scope: &ScopeId) -> Usage {
        let leaf = Self::leaf_dir(scope);
        let peak = self.controllers.contains(&"memory").then(|| self.read(&format!("{leaf}/memory.peak")));
        let peak_memory_bytes = peak.and_then(|text| text.ok()?.trim().parse().ok());
        let cpu = self.read(&format!("{leaf}/cpu.stat")).ok().and_then(|text| {
            let micros = text.lines().find_map(|line| line.strip_prefix("usage_usec "))?.parse().ok()?;
            Some(Duration::from_micros(micros))
        });
        Usage { peak_memory_bytes, cpu }
    }

    /// Removes the cgroup of an empty scope, and those that its processes made below it.
    pub(crate) fn remove(&self, scope: &ScopeId) -> io::Result<()> {
        self.remove_tree(&Self::leaf_dir(scope))
    }

    /// Removes the cgroup of a session without scopes.
    pub(crate) fn remove_session(&self, session: &str) -> io::Result<()> {
        self.remove_dir(&Self::session_dir(session))
    }

    /// Removes the instance's cgroup and what is left in it.
    pub(crate) fn remove_all(&self) -> io::Result<()> {
        let mut below = Vec::new();
        self.visit(".", 0, &mut |dir| below.push(dir.to_owned()))?;
        for dir in below.iter().rev().filter(|dir| *dir != ".") {
            self.remove_dir(dir)?;
        }
        match fs::remove_dir(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    /// The scope that a cgroup path of /proc/PID/cgroup lies in.
    pub(crate) fn scope_of(&self, path: &str) -> Option<ScopeId> {
        let mut parts = path.strip_prefix(&self.prefix)?.split('/');
        let session = parts.next()?.strip_prefix("s-")?;
        let leaf = parts.next()?.strip_prefix("v-")?;
        Some(ScopeId { session: Arc::from(session), leaf: Arc::from(leaf) })
    }

    fn remove_tree(&self, dir: &str) -> io::Result<()> {
        match self.remove_dir(dir) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {}
            other => return other,
        }
        let mut below = Vec::new();
        self.visit(dir, 0, &mut |dir| below.push(dir.to_owned()))?;
        below.iter().rev().try_for_each(|dir| self.remove_dir(dir))
    }

    fn remove_dir(&self, dir: &str) -> io::Result<()> {
        match unlinkat(&self.dir, dir, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Calls `each` with the cgroup and all below it, from above.
    fn visit(&self, dir: &str, depth: usize, each: &mut dyn FnMut(&str)) -> io::Result<()> {
        const DEEPEST: usize = 64;
        each(dir);
        // The kernel counts folders as links, so that most cgroups need no listing.
        let links = match statat(&self.dir, dir, AtFlags::empty()) {
            Ok(stat) => stat.st_nlink,
            Err(Errno::NOENT) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        if links <= 2 || depth >= DEEPEST {
            return Ok(());
        }
        let listing = self.open(dir, OFlags::RDONLY | OFlags::DIRECTORY)?;
        for entry in rustix::fs::Dir::new(listing)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy();
            if entry.file_type().is_dir() && name != "." && name != ".." {
                self.visit(&format!("{dir}/{name}"), depth + 1, each)?;
            }
        }
        Ok(())
    }

    /// Hands the controllers that a cgroup has on to those below it; tells which.
    fn enable(&self, dir: &str) -> Vec<&'static str> {
        let file = |name: &str| if dir.is_empty() { name.to_owned() } else { format!("{dir}/{name}") };
        let there = self.read(&file("cgroup.controllers")).unwrap_or_default();
        let there: Vec<&str> = there.split_ascii_whitespace().collect();
        CONTROLLERS
            .into_iter()
            .filter(|controller| there.contains(controller))
            .filter(|controller| {
                self.write(&file("cgroup.subtree_control"), &format!("+{controller}")).is_ok()
            })
            .collect()
    }

    fn open(&self, path: &str, flags: OFlags) -> io::Result<OwnedFd> {
        Ok(openat(&self.dir, path, flags | OFlags::CLOEXEC, Mode::empty())?)
    }

    fn read(&self, path: &str) -> io::Result<String> {
        let text = procfs::contents(fs::File::from(self.open(path, OFlags::RDONLY)?))?;
        String::from_utf8(text).map_err(|_| io::Error::from(io::ErrorKind::InvalidData))
    }

    fn write(&self, path: &str, text: &str) -> io::Result<()> {
        let file = self.open(path, OFlags::WRONLY)?;
        rustix::io::write(&file, text.as_bytes())?;
        Ok(())
    }
}

/// Makes the controllers available below a delegated place. The kernel allows that only for a cgroup without processes of its
/// own, so that we move into one below first. Where it can't be done, there are no limits, and nothing else is lost.
fn enable_controllers(place: &Place) {
    if !place.delegated {
        return;
    }
    let words = |file: &str| fs::read_to_string(place.dir.join(file)).unwrap_or_default();
    let (there, enabled) = (words("cgroup.controllers"), words("cgroup.subtree_control"));
    let has = |text: &str, controller: &str| text.split_ascii_whitespace().any(|word| word == controller);
    let missing: Vec<&str> =
        CONTROLLERS.into_iter().filter(|c| has(&there, c) && !has(&enabled, c)).collect();
    if missing.is_empty() {
        return;
    }
    if place.inside {
        let leaf = place.dir.join("daemon");
        let moved = match fs::create_dir(&leaf) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => fs::write(leaf.join("cgroup.procs"), "0"),
        };
        if let Err(error) = moved {
            tracing::warn!(%error, "can't move into a cgroup below our own: servers have no memory and process limits");
            return;
        }
    }
    for controller in missing {
        if let Err(error) = fs::write(place.dir.join("cgroup.subtree_control"), format!("+{controller}")) {
            tracing::warn!(%error, controller, "can't enable a cgroup controller: servers have no such limit");
        }
    }
}

/// A file of a cgroup that was removed, before or after it was opened.
fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENODEV))
}
