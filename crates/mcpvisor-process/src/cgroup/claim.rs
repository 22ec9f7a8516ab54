//! Whose an instance's cgroup is: a live daemon holds flock(2) on the folder; one whose lock can be taken belongs to a dead one.
//!
//! Why this can't go wrong between daemons that start at the same time. Only the holder of a folder's lock removes it, and only
//! after it has seen, with the lock held, that the name still leads to the folder that it has locked. So:
//!
//! - A folder whose lock is held is never touched. A daemon takes the lock before anything is born in its folder, and the lock
//!   goes with its last descriptor: with the daemon, however it dies.
//! - Between the making of a folder and the taking of its lock a sweep may take it for a dead one's. It is empty then, so nobody
//!   is killed. Its maker finds the lock held, or the name gone or leading elsewhere, and begins again.
//! - A sweep that has opened a folder which another sweep then removed, and which its maker then made anew, gets the old
//!   folder's lock only. It sees that the name leads to another one and lets go.
//!
//! Instances have random names, so that a guardian, which removes its own instance's folder without the lock, can meet no other's.
//! Where the file system knows no such lock, nobody gets one, and nothing is ever swept.
use super::{Tree, is_gone};
use crate::procfs;
use rustix::fs::{FlockOperation, Mode, OFlags, flock, fstat, open, stat};
use rustix::io::Errno;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// What the names of instances' cgroups begin with.
pub(crate) const PREFIX: &str = "mcpvisor-";
/// How long a sweep may hold the lock of a new folder before its maker gives up …
const LONGEST_CLAIM: Duration = Duration::from_secs(1);
/// … and between two tries.
const CLAIM_AGAIN: Duration = Duration::from_millis(2);
/// How long the sweep waits for what it has killed.
const LONGEST_SWEEP: Duration = Duration::from_secs(2);
/// How many of the killed processes are told.
const TOLD: usize = 64;

/// Makes the folder and takes its lock, which lives as long as the descriptor.
pub(super) fn make(path: &Path) -> io::Result<OwnedFd> {
    let end = Instant::now() + LONGEST_CLAIM;
    let mut made = false;
    loop {
        match fs::create_dir(path) {
            Ok(()) => made = true,
            // A sweep holds it and has not removed it yet.
            Err(error) if made && error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
        match claim(path) {
            Ok(Some(dir)) => return Ok(dir),
            Ok(None) => {}
            Err(error) if is_gone(&error) => {}
            Err(error) => return Err(error),
        }
        if Instant::now() >= end {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "its lock is held by somebody else"));
        }
        sleep(CLAIM_AGAIN);
    }
}

/// The folder, locked. None: somebody else holds the lock, or the name leads elsewhere by now.
fn claim(path: &Path) -> io::Result<Option<OwnedFd>> {
    let dir = open_dir(path)?;
    match flock(&dir, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => return Ok(None),
        Err(error) => {
            tracing::debug!(%error, "cgroups can't be locked here: what a dead daemon leaves is not swept");
            return Ok(Some(dir));
        }
    }
    let (held, named) = (fstat(&dir)?, stat(path)?);
    Ok(((held.st_dev, held.st_ino) == (named.st_dev, named.st_ino)).then_some(dir))
}

fn open_dir(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(open(path, flags, Mode::empty())?)
}

/// Kills what dead instances of this user have left below `base`, and removes their cgroups, but for those of `noted`. Waits for the
/// end of what it has killed, for two seconds at most; without such leftovers it costs the listing of one folder.
///
/// Nothing is known of their sessions: they served another socket, or a private client, or could not write their notes. So no key of
/// ours is blocked for them.
pub(super) fn sweep(base: &Path, noted: &[&Path]) {
    let mut dead = abandoned(base);
    dead.retain(|tree| !noted.contains(&tree.path.as_path()));
    for tree in &dead {
        let left = remains(tree);
        if !left.is_empty() {
            let cgroup = tree.path.display();
            tracing::warn!(%cgroup, processes = ?left, "a daemon that has died left processes; they are killed");
        }
        // Its error, if it lasts, is told below.
        let _ = tree.kill_all();
    }
    let end = Instant::now() + LONGEST_SWEEP;
    for tree in &dead {
        if let Err(error) = tree.clear(end) {
            let cgroup = tree.path.display();
            tracing::error!(%cgroup, %error, "what a dead daemon left can't be removed; the next start tries again");
        }
    }
}

/// The instances' cgroups below `base` that nobody holds, locked by us.
fn abandoned(base: &Path) -> Vec<Tree> {
    let Ok(entries) = fs::read_dir(base) else { return Vec::new() };
    let me = rustix::process::geteuid();
    let named =
        entries.flatten().filter(|entry| entry.file_name().as_encoded_bytes().starts_with(PREFIX.as_bytes()));
    let ours = named.filter(|entry| stat(entry.path()).is_ok_and(|stat| stat.st_uid == me.as_raw()));
    let claimed = ours.filter_map(|entry| {
        let path = entry.path();
        let dir = locked(&path)?;
        Some(Tree { dir, path, prefix: String::new(), controllers: Vec::new() })
    });
    claimed.collect()
}

/// As [`claim`], but never without a lock.
fn locked(path: &Path) -> Option<OwnedFd> {
    let dir = claim(path).ok()??;
    flock(&dir, FlockOperation::NonBlockingLockExclusive).ok()?;
    Some(dir)
}

/// The processes in it, as the kernel names them: their command lines lie in memory that may hang.
fn remains(tree: &Tree) -> Vec<String> {
    let pids = tree.everyone().unwrap_or_default();
    let name = |pid: &u32| format!("{pid} {}", procfs::stat(*pid).map(|stat| stat.name).unwrap_or_default());
    pids.iter().take(TOLD).map(name).collect()
}

#[cfg(test)]
mod tests;
