//! A process on whose life something of a client's depends. It is held by its pidfd: whoever gets its number after it is a stranger.
use crate::command::{Command, Mailbox};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};

/// A process that lived when it was opened. Costs one descriptor.
#[derive(Debug)]
pub struct Holder {
    pid: u32,
    pub(crate) pidfd: OwnedFd,
}

/// Why a process can't be held to.
#[derive(Debug, thiserror::Error)]
pub enum HolderError {
    /// It has ended, or there never was one, or the number is that of a thread.
    #[error("there is no process {0}")]
    NotFound(u32),
    /// The kernel, or a limit on descriptors, does not allow it.
    #[error("process {pid} can't be watched: {cause}")]
    Failed {
        /// Which one.
        pid: u32,
        /// What the system said.
        cause: io::Error,
    },
}

impl Holder {
    /// The process that has this number now, in this process's pid namespace.
    ///
    /// # Errors
    /// See [`HolderError`]. One that has exited and was not waited for yet has ended.
    pub fn open(pid: u32) -> Result<Self, HolderError> {
        let number = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(HolderError::NotFound(pid))?;
        let pidfd = pidfd_open(number, PidfdFlags::empty()).map_err(|errno| match errno {
            Errno::SRCH | Errno::INVAL | Errno::NOENT => HolderError::NotFound(pid),
            errno => HolderError::Failed { pid, cause: errno.into() },
        })?;
        let holder = Self { pid, pidfd };
        if holder.has_ended() { Err(HolderError::NotFound(pid)) } else { Ok(holder) }
    }

    /// Its number.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Its real uid; none where it has ended.
    #[must_use]
    pub fn uid(&self) -> Option<u32> {
        let status = std::fs::read(format!("/proc/{}/status", self.pid)).ok()?;
        let status = String::from_utf8_lossy(&status);
        let uids = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
        let uid = uids.split_whitespace().next()?.parse().ok()?;
        // What was read was read of this process only if it is still there.
        (!self.has_ended()).then_some(uid)
    }

    fn has_ended(&self) -> bool {
        let mut fds = [PollFd::new(&self.pidfd, PollFlags::IN)];
        matches!(poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(1..))
    }
}

/// A process that is watched. Dropping this ends the watch and closes its descriptor.
pub struct HolderWatch {
    mailbox: Mailbox,
    number: u64,
}

impl fmt::Debug for HolderWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HolderWatch").field("number", &self.number).finish_non_exhaustive()
    }
}

impl HolderWatch {
    pub(crate) fn start(mailbox: Mailbox, holder: Holder, ended: Box<dyn FnOnce() + Send>) -> Self {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        mailbox.send(Command::Hold { number, pidfd: holder.pidfd, ended });
        Self { mailbox, number }
    }
}

impl Drop for HolderWatch {
    fn drop(&mut self) {
        self.mailbox.send(Command::LetGo { number: self.number });
    }
}
