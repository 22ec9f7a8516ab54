//! The leak oracle: looks from outside for whatever a test has left.
//!
//! It believes nobody's bookkeeping. A process is found by any of five senses, a zombie by its parent, a cgroup by its
//! folder, a descriptor by /proc/PID/fd, a socket by its file.
use crate::process::kill_exactly;
use crate::procfs::{self, Identity, Stat};
use crate::scene::{MARKER, Scene};
use crate::wait::until;
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;
use std::time::Duration;

/// By what a process was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sense {
    /// The test's own variable is in its environment.
    Marker,
    /// `MCPVISOR_SCOPE` of a daemon of this test is in its environment.
    Scope,
    /// It is in the test's cgroup.
    Cgroup,
    /// It descends from something that the test started.
    Ancestry,
    /// A misbehaving server has noted it.
    Noted,
}

/// Something that a test has left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Leak {
    /// A process that lives.
    Process {
        /// Which.
        id: Identity,
        /// Its command line.
        command: String,
        /// By what it was found.
        senses: BTreeSet<Sense>,
    },
    /// A process that has ended and was not reaped.
    Zombie {
        /// Which.
        id: Identity,
        /// The process that should have reaped it.
        parent: u32,
        /// The kernel's name for it.
        name: String,
    },
    /// A cgroup.
    Cgroup(PathBuf),
    /// A daemon holds more descriptors than at its start.
    Descriptors {
        /// The daemon.
        pid: u32,
        /// How many there were.
        before: usize,
        /// What is open now, as `number → target`.
        now: Vec<String>,
    },
    /// A socket file that nobody serves any more.
    Socket(PathBuf),
}

impl fmt::Display for Leak {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process { id, command, senses } => {
                write!(f, "process {} {command} (seen by {senses:?})", id.pid)
            }
            Self::Zombie { id, parent, name } => write!(f, "zombie {} [{name}], a child of {parent}", id.pid),
            Self::Cgroup(path) => write!(f, "cgroup {}", path.display()),
            Self::Descriptors { pid, before, now } => {
                write!(f, "descriptors of {pid}: {before} before, {} now: {}", now.len(), now.join(", "))
            }
            Self::Socket(path) => write!(f, "socket {}", path.display()),
        }
    }
}

impl Leak {
    /// One line for each.
    #[must_use]
    pub fn describe(leaks: &[Self]) -> String {
        let mut text = format!("{} leaks", leaks.len());
        for leak in leaks {
            let _ = write!(text, "\n  {leak}");
        }
        text
    }
}

/// A process as it was last seen.
#[derive(Debug, Clone)]
struct Seen {
    senses: BTreeSet<Sense>,
    command: String,
}

/// What was ever seen of a scene.
#[derive(Debug, Default)]
pub(crate) struct Sightings {
    seen: BTreeMap<Identity, Seen>,
    /// Children that the test itself waits for.
    owned: BTreeSet<Identity>,
    /// Processes that were looked at and are not the scene's.
    strangers: BTreeSet<Identity>,
}

impl Sightings {
    /// Notes a child that the test waits for itself.
    pub(crate) fn own(&mut self, pid: u32) {
        if let Some(stat) = procfs::stat(pid) {
            self.owned.insert(stat.id);
            self.see(&stat, Sense::Ancestry);
        }
    }

    fn see(&mut self, stat: &Stat, sense: Sense) {
        let seen = self
            .seen
            .entry(stat.id)
            .or_insert_with(|| Seen { senses: BTreeSet::new(), command: String::new() });
        seen.senses.insert(sense);
        if !stat.is_zombie() {
            seen.command = procfs::command(stat.id.pid);
        }
    }

    /// Looks at all processes of the machine. A `thorough` look also takes those again that were strangers before (they may
    /// have become somebody else by exec).
    pub(crate) fn look(&mut self, scene: &Scene, thorough: bool) -> Vec<Stat> {
        let own = std::process::id();
        let stats: Vec<Stat> =
            procfs::pids().into_iter().filter(|pid| *pid != own).filter_map(procfs::stat).collect();
        if thorough {
            self.strangers.clear();
        }
        let noted: BTreeSet<u32> = scene.noted().into_iter().map(|(_, pid)| pid).collect();
        let since = self.owned.iter().map(|id| id.started).min().unwrap_or(0);
        for stat in &stats {
            // A number that was noted is the noted process only if that was born after the test began.
            if noted.contains(&stat.id.pid) && stat.id.started >= since {
                self.see(stat, Sense::Noted);
            }
            if scene.cgroup.as_ref().is_some_and(|cgroup| cgroup.holds(stat.id.pid)) {
                self.see(stat, Sense::Cgroup);
            }
            if self.strangers.contains(&stat.id) {
                continue;
            }
            let senses = environment_senses(scene, stat.id.pid);
            if senses.is_empty() && !self.seen.contains_key(&stat.id) {
                self.strangers.insert(stat.id);
            }
            for sense in senses {
                self.see(stat, sense);
            }
        }
        self.look_at_ancestry(&stats);
        stats
    }

    /// Whoever has a parent that is the scene's is the scene's. Repeated, since parents need not come first.
    fn look_at_ancestry(&mut self, stats: &[Stat]) {
        loop {
            let parents: BTreeSet<u32> = stats
                .iter()
                .filter(|stat| self.seen.contains_key(&stat.id))
                .map(|stat| stat.id.pid)
                .collect();
            let mut more = false;
            for stat in stats.iter().filter(|stat| parents.contains(&stat.ppid)) {
                more |= !self.seen.contains_key(&stat.id);
                if self.seen.get(&stat.id).is_none_or(|seen| !seen.senses.contains(&Sense::Ancestry)) {
                    self.see(stat, Sense::Ancestry);
                }
            }
            if !more {
                return;
            }
        }
    }

    /// Reaps orphans that came back to the test as their subreaper: what has ended in peace is no leak.
    fn reap_adopted(&self, stats: &[Stat]) {
        let own = std::process::id();
        let adopted = |stat: &&Stat| {
            stat.ppid == own
                && stat.is_zombie()
                && self.seen.contains_key(&stat.id)
                && !self.owned.contains(&stat.id)
        };
        for stat in stats.iter().filter(adopted) {
            if let Some(pid) = i32::try_from(stat.id.pid).ok().and_then(Pid::from_raw) {
                let _ = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
            }
        }
    }

    /// The living processes of the scene, for people.
    pub(crate) fn living(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (id, seen) in &self.seen {
            if let Some(stat) = procfs::stat(id.pid).filter(|stat| stat.id == *id) {
                lines.push(format!(
                    "{} ({}) child of {}: {} {:?}",
                    id.pid, stat.state, stat.ppid, seen.command, seen.senses
                ));
            }
        }
        lines
    }

    /// Ends what is left of the scene, each by its own handle, so that the next test finds a clean machine.
    pub(crate) fn end_all(&mut self, scene: &Scene) {
        until(Duration::from_secs(5), || {
            let stats = self.look(scene, true);
            self.reap_adopted(&stats);
            let mine = |stat: &&Stat| !stat.is_zombie() && self.seen.contains_key(&stat.id);
            let left: Vec<Identity> = stats.iter().filter(mine).map(|stat| stat.id).collect();
            left.iter().for_each(|id| kill_exactly(*id));
            left.is_empty().then_some(())
        });
    }
}

/// Which of the two variables the process carries.
fn environment_senses(scene: &Scene, pid: u32) -> Vec<Sense> {
    let instances = scene.instances.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let environment = procfs::environment(pid);
    let value = |name: &str| {
        environment.iter().find_map(|line| line.strip_prefix(name)?.strip_prefix('=')).map(str::to_owned)
    };
    let mut senses = Vec::new();
    if value(MARKER).is_some_and(|mark| mark == scene.mark) {
        senses.push(Sense::Marker);
    }
    let instance = value("MCPVISOR_SCOPE").and_then(|scope| scope.split('/').next().map(str::to_owned));
    if instance.is_some_and(|instance| instances.contains(&instance)) {
        senses.push(Sense::Scope);
    }
    senses
}

/// What is right to be there while a scene goes on.
#[derive(Debug, Default)]
pub(crate) struct Spared {
    /// A daemon that lives, and how many descriptors it had at rest.
    pub(crate) daemon: Option<(u32, usize)>,
    /// Spares the test's own children and what is no session's process: a daemon, and its guardian.
    pub(crate) running: bool,
}

impl Scene {
    /// What is left of the scene when everything should be gone: waits for that within the budget, and returns what has not
    /// gone by then.
    #[must_use]
    pub fn leaks(&self, budget: Duration) -> Vec<Leak> {
        self.wait_for_none(&Spared::default(), budget)
    }

    pub(crate) fn wait_for_none(&self, spared: &Spared, budget: Duration) -> Vec<Leak> {
        let mut last = Vec::new();
        until(budget, || {
            last = self.look_for_leaks(spared);
            last.is_empty().then_some(())
        });
        last
    }

    fn look_for_leaks(&self, spared: &Spared) -> Vec<Leak> {
        let mut sightings = self.sightings();
        let stats = sightings.look(self, true);
        sightings.reap_adopted(&stats);
        let mut leaks = Vec::new();
        for stat in stats.iter().filter(|stat| sightings.seen.contains_key(&stat.id)) {
            // What was reaped since the look is gone.
            let Some(stat) = procfs::stat(stat.id.pid).filter(|now| now.id == stat.id) else { continue };
            let seen = &sightings.seen[&stat.id];
            let own = sightings.owned.contains(&stat.id);
            if spared.running && (own || is_support(spared, &stat)) {
                continue;
            }
            if stat.is_zombie() {
                leaks.push(Leak::Zombie { id: stat.id, parent: stat.ppid, name: stat.name });
            } else {
                leaks.push(Leak::Process {
                    id: stat.id,
                    command: seen.command.clone(),
                    senses: seen.senses.clone(),
                });
            }
        }
        drop(sightings);
        leaks.extend(self.left_cgroups(spared).into_iter().map(Leak::Cgroup));
        if let Some((pid, before)) = spared.daemon {
            let now = procfs::descriptors(pid);
            if now.len() > before {
                let now = now.into_iter().map(|(number, target)| format!("{number} → {target}")).collect();
                leaks.push(Leak::Descriptors { pid, before, now });
            }
        }
        if !spared.running {
            let mut sockets = Vec::new();
            find_sockets(self.dir(), &mut sockets);
            leaks.extend(sockets.into_iter().map(Leak::Socket));
        }
        leaks
    }

    fn left_cgroups(&self, spared: &Spared) -> Vec<PathBuf> {
        let Some(cgroup) = &self.cgroup else { return Vec::new() };
        let is_session = |path: &PathBuf| {
            path.components().any(|part| part.as_os_str().to_string_lossy().starts_with("s-"))
        };
        cgroup.below().into_iter().filter(|path| !spared.running || is_session(path)).collect()
    }
}

/// Whether a process is a daemon's helper and no session's: a guardian, which lives as long as its daemon.
fn is_support(spared: &Spared, stat: &Stat) -> bool {
    let Some((daemon, _)) = spared.daemon else { return false };
    stat.ppid == daemon && !stat.is_zombie() && is_guardian(stat.id.pid)
}

pub(crate) fn is_guardian(pid: u32) -> bool {
    procfs::command(pid).split(' ').any(|word| word == "guardian")
}

fn find_sockets(dir: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(dir) else { return };
    for entry in entries.flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => find_sockets(&entry.path(), found),
            Ok(kind) if kind.is_socket() => found.push(entry.path()),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
