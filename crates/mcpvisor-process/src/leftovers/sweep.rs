//! The end of what dead daemons have left: one thread, which lives for as long as anything of it does.
//!
//! A session is gone when the kernel counts no process in its cgroup and two searches of /proc in a row have found no process that
//! carries its marker. Where a keeper had it, the search is all there is: it is no proof, and the report says so. What it can't
//! see is a process that has wiped its environment, or that we may not look into, once its keeper is dead too.
//!
//! Who is killed: what is in the dead instance's cgroup, by `cgroup.kill`; and what carries the dead instance's whole name in its
//! marker, by a pidfd, after a second look with the pidfd open. Numbers of processes are nowhere written down, so that none can
//! have come to mean a stranger. A keeper that lives is left alone for as long as it has somebody to end: it is its tree's parent,
//! and knows those that the search can't see.
//!
//! A process that hangs so that its memory can't be read (a dead mount) holds the search up, and with it the end of every
//! session here, but nothing else: their keys stay blocked.
use super::handle::{State, lock, tell_gone};
use super::marked::{Marked, marked};
use super::notes::{Former, is_session};
use super::{Left, LeftId};
use crate::cgroup::{INSTANCE, Tree};
use crate::command::nothing_known;
use crate::handle::SessionReports;
use crate::{ContainmentKind, InstanceId, ProcessRecord, Rung, ScopeId, ScopeReport, keeper, procfs};
use rustix::process::Signal;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Between two looks: the first one, and then twice as long each time, up to the last.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LAST_PAUSE: Duration = Duration::from_millis(500);
/// So many searches in a row must find nothing: in one alone, a process may be missed that is born while its parent ends.
const CLEAN: u32 = 2;
/// A keeper ends at once when nobody is left below it; one that has not after this time hangs, and is killed.
const KEEPER_PATIENCE: Duration = Duration::from_secs(3);
/// How many of the killed processes are told in the log.
const TOLD: usize = 64;

/// What one dead daemon has left.
struct Remains {
    former: Former,
    sessions: BTreeMap<Arc<str>, Session>,
}

#[derive(Default)]
struct Session {
    note: Option<String>,
    /// Everybody that was ever seen of it, keepers aside: leaf and command.
    seen: BTreeMap<u32, (Arc<str>, String)>,
    /// Somebody of it was seen outside of its cgroup.
    strayed: bool,
    clean: u32,
}

/// A process of a session that is left.
struct Found {
    pid: u32,
    leaf: Arc<str>,
    command: String,
    keeper: bool,
    /// It was outside of its instance's cgroup.
    strayed: bool,
}

impl Session {
    fn see(&mut self, found: &[Found]) {
        for found in found.iter().filter(|found| !found.keeper) {
            let seen = || (Arc::clone(&found.leaf), found.command.clone());
            self.seen.entry(found.pid).or_insert_with(seen);
        }
    }
}

impl Remains {
    fn new(former: Former) -> Self {
        let noted = former.sessions.iter().map(|(name, note)| {
            (Arc::from(name.as_str()), Session { note: note.clone(), ..Session::default() })
        });
        Self { sessions: noted.collect(), former }
    }

    fn kind(&self) -> ContainmentKind {
        if self.former.cgroup.is_some() { ContainmentKind::Cgroup } else { ContainmentKind::Keeper }
    }

    fn id(&self, session: &Arc<str>) -> LeftId {
        LeftId { instance: self.former.instance.clone(), session: Arc::clone(session) }
    }

    fn left(&self) -> Vec<Left> {
        let left = self.sessions.iter().map(|(name, session)| Left {
            id: self.id(name),
            note: session.note.clone(),
            containment: self.kind(),
        });
        left.collect()
    }

    /// Looks at who is in its cgroup, before they are killed.
    fn see(&mut self, tree: &Tree) {
        for session in tree.sessions().unwrap_or_default().into_iter().filter(|name| is_session(name)) {
            let inside = members(tree, &session).unwrap_or_default();
            self.sessions.entry(Arc::from(session)).or_default().see(&inside);
        }
    }

    /// Tells who was left.
    fn tell(&self) {
        for (of, session) in self.sessions.iter().filter(|(_, session)| !session.seen.is_empty()) {
            let name = |(pid, (_, command)): (&u32, &(Arc<str>, String))| format!("{pid} {command}");
            let processes: Vec<String> = session.seen.iter().take(TOLD).map(name).collect();
            let instance = &*self.former.instance.0;
            tracing::warn!(
                session = &**of,
                instance,
                ?processes,
                "a daemon that has died left processes; they are killed"
            );
        }
    }

    /// Its cgroup. None: there is none, or not any more.
    fn tree(&self) -> io::Result<Option<Tree>> {
        let Some(path) = &self.former.cgroup else { return Ok(None) };
        match Tree::of_instance(path) {
            Ok(tree) => Ok(Some(tree)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

pub(super) struct Sweep {
    remains: Vec<Remains>,
    state: Arc<Mutex<State>>,
    looks: u32,
    /// Keepers that have nobody to end, since when.
    idle_keepers: HashMap<u32, Instant>,
}

impl Sweep {
    pub(super) fn new(former: Vec<Former>, state: Arc<Mutex<State>>) -> Self {
        let remains = former.into_iter().map(Remains::new).collect();
        Self { remains, state, looks: 0, idle_keepers: HashMap::new() }
    }

    /// The sessions that are not gone.
    pub(super) fn left(&self) -> Vec<Left> {
        self.remains.iter().flat_map(Remains::left).collect()
    }

    /// The thread's whole life. `told` hears of what is left after the first look, and `woken` of who wants another one.
    pub(super) fn run(mut self, woken: &Receiver<()>, told: &Sender<Vec<Left>>) {
        for _ in 0..CLEAN {
            self.look();
        }
        let _ = told.send(self.left());
        let mut pause = FIRST_PAUSE;
        while !self.remains.is_empty() {
            match woken.recv_timeout(pause) {
                Ok(()) => pause = FIRST_PAUSE,
                Err(RecvTimeoutError::Timeout) => pause = (pause * 2).min(LAST_PAUSE),
                // The daemon ends. What is left is for the next one.
                Err(RecvTimeoutError::Disconnected) => return,
            }
            self.look();
        }
    }

    /// Kills what there is, and tells what is gone.
    fn look(&mut self) {
        for remains in &mut self.remains {
            if let Ok(Some(tree)) = remains.tree() {
                if self.looks == 0 {
                    remains.see(&tree);
                }
                // Its error, if it lasts, is that something is left.
                let _ = tree.kill_all();
            }
        }
        let mut found = self.search();
        let mut gone = Vec::new();
        for remains in &mut self.remains {
            let searched = found.remove(&remains.former.instance).unwrap_or_default();
            let (tree, readable) = match remains.tree() {
                Ok(tree) => (tree, true),
                Err(error) if self.looks > 0 => {
                    tracing::debug!(%error, "the cgroup of a former daemon can't be opened yet");
                    (None, false)
                }
                Err(error) => {
                    tracing::warn!(%error, "the cgroup of a former daemon can't be opened; its keys stay blocked");
                    (None, false)
                }
            };
            gone.extend(look_at(remains, tree.as_ref(), readable, searched, &self.state));
            if self.looks == 0 {
                remains.tell();
            }
        }
        self.looks = self.looks.saturating_add(1);
        self.remains.retain(|remains| {
            let over = remains.sessions.is_empty();
            if over {
                remains.end();
            }
            !over
        });
        // Last, since the daemon may end with it.
        for (id, reports) in gone {
            tell_gone(&self.state, &id, &reports);
        }
    }

    /// Searches for the marked, by instance and session, and kills them.
    fn search(&mut self) -> HashMap<InstanceId, HashMap<Arc<str>, Vec<Found>>> {
        let mut all: HashMap<InstanceId, HashMap<Arc<str>, Vec<Found>>> = HashMap::new();
        let mut keepers = HashMap::new();
        let is_dead = |name: &str| self.remains.iter().any(|remains| &*remains.former.instance.0 == name);
        for marked in marked(is_dead) {
            let Marked { pid, instance, session, leaf, stat, .. } = &marked;
            let instance = InstanceId(Arc::from(instance.as_str()));
            let kept = self.had_keepers(&instance);
            let keeper = kept && keeper::is_keeper(*pid);
            let strayed = !kept && is_outside(*pid, &instance);
            let found = all.entry(instance).or_default().entry(Arc::clone(session)).or_default();
            if keeper {
                let below = procfs::descendants(*pid);
                if stat.state == 'T' {
                    marked.signal(Signal::CONT);
                }
                if below.is_empty() {
                    let since = self.idle_keepers.get(pid).copied().unwrap_or_else(Instant::now);
                    keepers.insert(*pid, since);
                    if since.elapsed() > KEEPER_PATIENCE {
                        marked.signal(Signal::KILL);
                    }
                }
                found.extend(below.into_iter().filter_map(|pid| describe(pid, leaf)));
            } else {
                marked.signal(Signal::KILL);
            }
            let command = procfs::command(*pid).unwrap_or_else(|| stat.name.clone());
            found.push(Found { pid: *pid, leaf: Arc::clone(leaf), command, keeper, strayed });
        }
        self.idle_keepers = keepers;
        all
    }

    fn had_keepers(&self, instance: &InstanceId) -> bool {
        let of = |remains: &&Remains| remains.former.instance == *instance;
        self.remains.iter().find(of).is_some_and(|remains| remains.kind() == ContainmentKind::Keeper)
    }
}

/// Whether a process has left the cgroup of its instance (root may). One that has exited meanwhile has not.
fn is_outside(pid: u32, instance: &InstanceId) -> bool {
    let inside = format!("/{INSTANCE}{}/", instance.0);
    procfs::cgroup(pid).is_ok_and(|path| !path.contains(&inside))
}

fn describe(pid: u32, leaf: &Arc<str>) -> Option<Found> {
    let stat = procfs::stat(pid).ok().filter(|stat| !stat.is_dead())?;
    let command = procfs::command(pid).unwrap_or(stat.name);
    Some(Found { pid, leaf: Arc::clone(leaf), command, keeper: false, strayed: false })
}

/// Who is in the cgroup of a session.
fn members(tree: &Tree, session: &str) -> io::Result<Vec<Found>> {
    let all = tree.session_processes(session)?;
    Ok(all.into_iter().filter_map(|(leaf, pid)| describe(pid, &Arc::from(leaf))).collect())
}

/// Puts together what is left of one daemon's sessions, and ends those of which nothing is.
fn look_at(
    remains: &mut Remains,
    tree: Option<&Tree>,
    readable: bool,
    mut searched: HashMap<Arc<str>, Vec<Found>>,
    state: &Mutex<State>,
) -> Vec<(LeftId, SessionReports)> {
    // Those that are not noted: the note could not be written.
    let unnoted = tree.and_then(|tree| tree.sessions().ok()).unwrap_or_default();
    for session in unnoted.into_iter().map(Arc::from).chain(searched.keys().cloned()) {
        if is_session(&session) {
            lock(state).entry(remains.id(&session)).or_default();
            remains.sessions.entry(session).or_default();
        }
    }
    let mut gone = Vec::new();
    let names: Vec<Arc<str>> = remains.sessions.keys().cloned().collect();
    for name in names {
        let id = remains.id(&name);
        let inside = tree.map_or(Ok(Vec::new()), |tree| members(tree, &name)).unwrap_or_default();
        let populated = tree.map_or(Ok(false), |tree| tree.session_populated(&name));
        let Some(session) = remains.sessions.get_mut(&name) else { continue };
        let mut left = searched.remove(&name).unwrap_or_default();
        session.strayed |= left.iter().any(|found| found.strayed);
        left.extend(inside);
        session.see(&left);
        let over = readable && left.is_empty() && matches!(populated, Ok(false));
        session.clean = if over { session.clean + 1 } else { 0 };
        let remaining: BTreeMap<u32, String> =
            left.into_iter().map(|found| (found.pid, found.command)).collect();
        let remaining: Vec<(u32, String)> = remaining.into_iter().collect();
        lock(state).entry(id).or_default().remaining = remaining;
        if session.clean < CLEAN {
            continue;
        }
        let Some(session) = remains.sessions.remove(&name) else { continue };
        if let Some(Err(error)) = tree.map(|tree| tree.remove_former(&name)) {
            tracing::debug!(%error, "a former daemon's empty cgroup is not removed yet");
        }
        remains.former.remove(&name);
        let proven = remains.former.cgroup.is_some() && !session.strayed;
        gone.push((remains.id(&name), reports(&name, session, proven)));
    }
    gone
}

/// One report for each leaf that somebody was seen of.
fn reports(name: &Arc<str>, session: Session, proven: bool) -> SessionReports {
    let mut leaves: BTreeMap<Arc<str>, Vec<ProcessRecord>> = BTreeMap::new();
    for (pid, (leaf, command)) in session.seen {
        let (ended_by, exit) = (Some(Rung::Sigkill), None);
        let record = ProcessRecord { pid, command, ended_by, exit, escaped: false };
        leaves.entry(leaf).or_default().push(record);
    }
    if leaves.is_empty() {
        leaves.insert(Arc::from(""), Vec::new());
    }
    let all = leaves.into_iter().map(|(leaf, processes)| {
        let report = ScopeReport { processes, proven, ..nothing_known() };
        (ScopeId { session: Arc::clone(name), leaf }, Arc::new(report))
    });
    all.collect()
}

impl Remains {
    /// Nothing of it is left.
    fn end(&self) {
        match self.tree() {
            Ok(Some(tree)) => {
                if let Err(error) = tree.remove_all() {
                    let cgroup = tree.path().display();
                    tracing::error!(%cgroup, %error, "an empty cgroup of a former daemon can't be removed");
                }
            }
            Ok(None) => {}
            Err(error) => tracing::warn!(%error, "the cgroup of a former daemon can't be opened"),
        }
        self.former.close();
    }
}
