//! What is alive of which session, seen from outside: by the kernel's cgroups, or by descent from the daemon.
use mcpvisor_testkit::{Containment, Daemon, procfs};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The variable that tells a session's key to whoever looks at its processes.
pub(crate) const KEY: &str = "HISTORY_KEY";

/// Living processes by generation, with the key that their environment names.
pub(crate) type Alive = BTreeMap<u64, BTreeSet<(procfs::Identity, Option<String>)>>;

/// Where to look.
#[derive(Debug, Clone)]
pub(crate) struct Outside {
    daemon: u32,
    instance: String,
    /// The cgroup of the instance; none with keepers.
    cgroup: Option<PathBuf>,
}

impl Outside {
    pub(crate) fn of(daemon: &Daemon, containment: Containment) -> Self {
        Self::find(daemon, containment).expect("the daemon lives and has its cgroup")
    }

    /// None where the daemon is gone.
    pub(crate) fn find(daemon: &Daemon, containment: Containment) -> Option<Self> {
        let name = format!("mcpvisor-{}", daemon.instance());
        let cgroup = match containment {
            Containment::Keeper => None,
            Containment::Cgroup => {
                let own = procfs::cgroup(daemon.pid())?;
                let own = procfs::cgroup_mount()?.join(own.trim_start_matches('/'));
                Some(own.ancestors().map(|dir| dir.join(&name)).find(|dir| dir.is_dir())?)
            }
        };
        Some(Self { daemon: daemon.pid(), instance: daemon.instance().to_owned(), cgroup })
    }

    /// All that lives now. A process that is being born and has no environment of its own yet is left out.
    pub(crate) fn alive(&self) -> Alive {
        let mut alive = Alive::new();
        for pid in self.candidates() {
            let Some(stat) = procfs::stat(pid).filter(|stat| !stat.is_zombie()) else { continue };
            let environment = procfs::environment(pid);
            let value =
                |name: &str| environment.iter().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
            let Some(generation) = value("MCPVISOR_SCOPE").and_then(|scope| self.generation(scope)) else {
                continue;
            };
            // It is still the one that was looked at.
            if procfs::stat(pid).is_some_and(|now| now.id == stat.id && !now.is_zombie()) {
                let key = value(KEY).map(str::to_owned);
                alive.entry(generation).or_default().insert((stat.id, key));
            }
        }
        alive
    }

    /// `INSTANCE/UID-GENERATION/LEAF`.
    fn generation(&self, scope: &str) -> Option<u64> {
        let rest = scope.strip_prefix(&self.instance)?.strip_prefix('/')?;
        rest.split('/').next()?.rsplit('-').next()?.parse().ok()
    }

    fn candidates(&self) -> Vec<u32> {
        let mut found = Vec::new();
        match &self.cgroup {
            Some(dir) => members(dir, &mut found),
            None => descendants(self.daemon, &mut found),
        }
        found
    }
}

fn members(dir: &Path, found: &mut Vec<u32>) {
    let inside = std::fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
    found.extend(inside.lines().filter_map(|line| line.parse::<u32>().ok()));
    let Ok(entries) = std::fs::read_dir(dir) else { return };
    for entry in entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        members(&entry.path(), found);
    }
}

fn descendants(pid: u32, found: &mut Vec<u32>) {
    for child in procfs::children(pid) {
        found.push(child);
        descendants(child, found);
    }
}

/// The generations that have a process in both looks: these lived at the same time, between the two.
pub(crate) fn in_both(before: &Alive, after: &Alive) -> BTreeSet<u64> {
    let lasts = |(generation, processes): (&u64, &BTreeSet<_>)| {
        after.get(generation).is_some_and(|now| !now.is_disjoint(processes)).then_some(*generation)
    };
    before.iter().filter_map(lasts).collect()
}
