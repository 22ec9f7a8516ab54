//! What this machine allows, for `doctor`.
use crate::cgroup::Tree;
use crate::cgroup::discover;
use crate::{InstanceId, sys};
use std::sync::Arc;

/// Tries what containment relies on, and tells what each trial gave: what was found, or what is missing and why that matters.
/// Makes and removes a cgroup and two short-lived children. Blocks for some milliseconds at most.
#[must_use]
pub fn probe() -> Vec<(&'static str, Result<String, String>)> {
    let membership = discover::membership();
    let found = membership.map(|own| format!("{} mounted at {}", own.path, own.mount.display()));
    let place = discover::place(false).map(|place| {
        let why = if place.delegated { "delegated by systemd" } else { "no systemd manages it" };
        format!("{} ({why})", place.dir.display())
    });
    let instance = InstanceId(Arc::from(format!("probe-{}", std::process::id())));
    let tree = Tree::new(&instance, false);
    let controllers = match &tree {
        Ok(tree) if tree.controllers().is_empty() => {
            Err("none: limits of memory and processes are not kept, and peak memory is not told".to_owned())
        }
        Ok(tree) => Ok(tree.controllers().join(", ")),
        Err(_) => Err("no cgroup of ours".to_owned()),
    };
    let usable = match &tree {
        Ok(tree) => tree
            .remove_all()
            .map(|()| "children are born inside, and killed together".to_owned())
            .map_err(|e| format!("the trial's cgroup can't be removed: {e}")),
        Err(reason) => Err(format!("{reason}; keepers are used instead")),
    };
    let clone = sys::probe_clone(None).map(|()| "clone3 with pidfd".to_owned());
    let me = std::process::id();
    let lists = crate::procfs::children_of_thread(me, me).map(|_| "lists of children in /proc".to_owned());
    vec![
        ("cgroup version 2", found),
        ("place for our cgroups", place),
        ("cgroup containment", usable),
        ("cgroup controllers", controllers),
        ("process creation", clone.map_err(|e| format!("clone3 (Linux 5.3): {e}; no server can be started"))),
        ("process tree", lists.map_err(|e| format!("CONFIG_PROC_CHILDREN: {e}; /proc is searched instead"))),
    ]
}
