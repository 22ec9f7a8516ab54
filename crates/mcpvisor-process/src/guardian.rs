//! The guardian: a small process that outlives the daemon by as long as it takes to kill what the daemon leaves.
//!
//! In cgroups it is the one that kills. Where there are keepers each of them is a guardian of its own, and the one process here is for
//! those that can't be: a keeper that its own server has stopped is woken, and for one that does not end, or was killed, its tree is
//! killed from here.
use crate::cgroup::{INSTANCE, Tree};
use crate::keeper;
use crate::leftovers::marked::{Marked, marked};
use crate::procfs;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{PidfdFlags, Signal, getppid, pidfd_open};
use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

/// What the daemon says before it ends in good order.
pub(crate) const DISMISSED: &[u8] = b"q";
/// How long the kill is repeated. What then still lives hangs in the kernel, where the kill waits for it; the cgroup is left for
/// the next start's sweep.
const LONGEST_END: Duration = Duration::from_secs(2);
/// Between two searches for those that have left it.
const KILL_AGAIN: Duration = Duration::from_millis(10);
/// How long keepers may take to end by themselves what they keep.
const KEEPER_PATIENCE: Duration = Duration::from_millis(300);
/// So many searches in a row must find nothing: in one alone, a process may be missed that is born while its parent ends.
const CLEAN: usize = 2;

/// The main function of a guardian process (see [`Options::keeper_command`](crate::Options::keeper_command)); never returns.
///
/// `guarded` is the folder of the instance's cgroup, or, where it has keepers, the instance's name. Descriptor 0 is the read end of
/// a pipe whose other end the daemon alone has. When it closes without a word, because the daemon is gone, everything in the cgroup
/// is killed, the cgroup is removed, and what has left it is searched for; or what keepers leave alive is killed.
pub fn guardian_main(guarded: &Path) -> ! {
    let done = match guarded.to_str() {
        Some(instance) if !guarded.is_absolute() => guard_keepers(instance),
        _ => guard_cgroup(guarded),
    };
    std::process::exit(i32::from(done.is_err()))
}

fn guard_keepers(instance: &str) -> io::Result<()> {
    if !is_dismissed(parent().as_ref())? {
        end_kept(instance);
    }
    Ok(())
}

/// Sees to it that keepers end what they keep, and ends it itself where they don't.
fn end_kept(instance: &str) {
    let begin = Instant::now();
    let mut clean = 0;
    while clean < CLEAN && begin.elapsed() < LONGEST_END {
        let (keepers, others): (Vec<Marked>, Vec<Marked>) =
            marked(|name| name == instance).into_iter().partition(|found| keeper::is_keeper(found.pid));
        clean = if keepers.is_empty() && others.is_empty() { clean + 1 } else { 0 };
        let impatient = begin.elapsed() > KEEPER_PATIENCE;
        let kept: HashSet<_> = keepers.iter().map(Marked::scope).collect();
        for keeper in &keepers {
            if impatient {
                end_keeper(keeper);
            } else if keeper.stat.state == 'T' {
                keeper.signal(Signal::CONT);
            }
        }
        for other in others.iter().filter(|other| impatient || !kept.contains(&other.scope())) {
            other.signal(Signal::KILL);
        }
        if clean < CLEAN {
            std::thread::sleep(KILL_AGAIN);
        }
    }
}

/// The tree first: those in it that carry no marker are known by their descent alone, which ends with the keeper.
fn end_keeper(found: &Marked) {
    keeper::kill_below(found.pid);
    let lives = |pid: &u32| procfs::stat(*pid).is_ok_and(|stat| !stat.is_dead());
    if (0..CLEAN).all(|_| !procfs::descendants(found.pid).iter().any(lives)) {
        found.signal(Signal::KILL);
    }
}

fn guard_cgroup(cgroup: &Path) -> io::Result<()> {
    let tree = Tree::of_instance(cgroup)?;
    // Opened now: when it is needed the machine may have no descriptor to give.
    let kill = tree.kill_all_file()?;
    let parent = parent();
    if is_dismissed(parent.as_ref())? {
        return Ok(());
    }
    // As soon as may be; `clear` repeats it. All threads of the daemon are gone, so that nothing more is born in there but by what
    // is killed here.
    let _ = rustix::io::write(&kill, b"1");
    let end = Instant::now() + LONGEST_END;
    let cleared = tree.clear(end);
    if let Some(instance) = cgroup.file_name().and_then(|name| name.to_str()?.strip_prefix(INSTANCE)) {
        kill_strays(instance, end);
    }
    cleared
}

/// Kills those that have left the cgroup (root may), as far as their marker tells.
fn kill_strays(instance: &str, end: Instant) {
    loop {
        let found = marked(|name| name == instance);
        found.iter().for_each(|stray| stray.signal(Signal::KILL));
        if found.is_empty() || Instant::now() >= end {
            return;
        }
        std::thread::sleep(KILL_AGAIN);
    }
}

/// The daemon, while it lives. A server that is being born holds a copy of the daemon's end of the pipe until it executes its
/// program; should it hang before that, this tells of the daemon's death all the same.
fn parent() -> Option<OwnedFd> {
    pidfd_open(getppid()?, PidfdFlags::empty()).ok()
}

/// Waits for the daemon's end. True: it ended in good order.
fn is_dismissed(parent: Option<&OwnedFd>) -> io::Result<bool> {
    let stdin = rustix::stdio::stdin();
    loop {
        let told = PollFd::from_borrowed_fd(stdin, PollFlags::IN);
        let mut all = vec![told];
        all.extend(parent.map(|parent| PollFd::from_borrowed_fd(parent.as_fd(), PollFlags::IN)));
        match poll(&mut all, None) {
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        }
        if all.first().is_some_and(|told| !told.revents().is_empty()) {
            let mut word = [0_u8; 1];
            return Ok(rustix::io::read(stdin, &mut word[..])? > 0);
        }
        if all.get(1).is_some_and(|parent| !parent.revents().is_empty()) {
            return Ok(false);
        }
    }
}
