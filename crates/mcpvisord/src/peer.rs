//! Who is at the other end of a connection: taken once, at accept, and carried from then on.
mod proc;

use nix::sys::socket::{getsockopt, sockopt};
use rustix::event::{PollFd, PollFlags, poll};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::OnceLock;

/// The process that connected.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// 0 where the process is in a pid namespace that this one can't see into.
    pub(crate) pid: u32,
    /// Keeps the pid from meaning another process; None where the kernel is older than 6.5.
    pidfd: Option<OwnedFd>,
    /// Where it stands, once that was looked up. It does not change as long as the process lives: nobody gets new ancestors
    /// below one of our servers, or into our cgroups or other namespaces, from outside.
    place: OnceLock<Result<(), Confined>>,
}

/// Why a peer may not run commands of its own. The text completes "…: ".
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Confined {
    #[error("the client runs inside a session of this daemon")]
    InSession,
    #[error("the client is in another {0} namespace than the daemon")]
    Namespace(&'static str),
    #[error("it can't be told where the client runs")]
    Unknown,
    #[error("the process that connected is gone")]
    Gone,
}

impl Peer {
    /// Asks the kernel about a connected socket.
    pub(crate) fn of(socket: &impl AsFd) -> io::Result<Self> {
        let credentials = getsockopt(socket, sockopt::PeerCredentials)?;
        // A process that has ended by now, or an old kernel, has none.
        let pidfd = getsockopt(socket, sockopt::PeerPidfd).ok();
        Ok(Self {
            uid: credentials.uid(),
            gid: credentials.gid(),
            pid: u32::try_from(credentials.pid()).unwrap_or(0),
            pidfd,
            place: OnceLock::new(),
        })
    }

    pub(crate) fn is_root(&self) -> bool {
        self.uid == 0
    }

    /// Whether the peer stands where its commands may be run for it: outside of our sessions, and in our namespaces. `instance` is
    /// this daemon's, as it stands in the names of its cgroups.
    pub(crate) fn confined(&self, instance: &str) -> Result<(), Confined> {
        if self.pid == 0 {
            return Err(Confined::Namespace("pid"));
        }
        let place = self.place.get_or_init(|| proc::check(self.pid, instance));
        (*place)?;
        // What was read was read of this process only if it is still there.
        if self.has_ended() { Err(Confined::Gone) } else { Ok(()) }
    }

    /// The groups of the process, for what is started in its name.
    pub(crate) fn groups(&self) -> Option<Vec<u32>> {
        let groups = proc::groups(self.pid, self.uid)?;
        (!self.has_ended()).then_some(groups)
    }

    /// The limits that the process itself could pass on: of each resource the hard one. None where it is not there any more.
    pub(crate) fn hard_limits(&self) -> Option<Vec<(u32, Option<u64>)>> {
        let limits = proc::hard_limits(self.pid)?;
        (!self.has_ended()).then_some(limits)
    }

    fn has_ended(&self) -> bool {
        let Some(pidfd) = &self.pidfd else { return false };
        let mut fds = [PollFd::new(pidfd, PollFlags::IN)];
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        matches!(poll(&mut fds, Some(&now)), Ok(1..))
    }
}

#[cfg(test)]
impl Peer {
    /// This process's parent, as if it were of another user.
    pub(crate) fn pretend(uid: u32) -> Self {
        let parent = rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get());
        Self { uid, gid: uid, pid: u32::try_from(parent).unwrap_or(0), pidfd: None, place: OnceLock::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn this_process_is_itself_and_not_confined() {
        let (a, _b) = UnixStream::pair().unwrap();
        let peer = Peer::of(&a).unwrap();
        assert_eq!(peer.pid, std::process::id());
        assert_eq!(peer.uid, rustix::process::getuid().as_raw());
        // The test's own process is its own ancestor, so the check of ancestry is told of a daemon elsewhere.
        assert_eq!(proc::check_against(peer.pid, "0123456789abcdef", u32::MAX), Ok(()));
        assert!(peer.groups().is_some());
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "the test needs a child of its own")]
    fn a_child_of_the_daemon_is_in_a_session() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let told = proc::check(child.id(), "0123456789abcdef");
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(told, Err(Confined::InSession));
        assert_eq!(proc::check(child.id(), "0123456789abcdef"), Err(Confined::Gone));
    }
}
