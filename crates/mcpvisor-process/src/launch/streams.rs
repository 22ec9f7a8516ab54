//! A child's standard streams, and our ends of them.
use super::spawn_error;
use crate::{LaunchError, Stdio};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::pipe::{PipeFlags, pipe_with};
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};

/// Our ends: non-blocking and close-on-exec.
#[derive(Debug)]
pub(crate) struct Ends {
    pub(crate) stdin: Option<OwnedFd>,
    pub(crate) stdout: Option<OwnedFd>,
    pub(crate) stderr: OwnedFd,
}

/// Both sides of the streams of a child that is to be born.
#[derive(Debug)]
pub(crate) struct Streams {
    /// stdin, stdout and stderr of the child; none is numbered 0, 1 or 2 here.
    pub(crate) child: [OwnedFd; 3],
    pub(crate) ours: Ends,
}

impl Streams {
    pub(crate) fn open(stdio: Stdio) -> Result<Self, LaunchError> {
        Self::try_open(stdio).map_err(|e| spawn_error("can't make its pipes", &e))
    }

    fn try_open(stdio: Stdio) -> io::Result<Self> {
        let (stderr, child_err) = pipe_with(PipeFlags::CLOEXEC)?;
        non_blocking(&stderr)?;
        let (child_in, child_out, stdin, stdout) = match stdio {
            Stdio::Given { stdin, stdout } => (stdin, stdout, None, None),
            Stdio::Piped => {
                let (child_in, stdin) = pipe_with(PipeFlags::CLOEXEC)?;
                let (stdout, child_out) = pipe_with(PipeFlags::CLOEXEC)?;
                // Of our ends alone: the two ends of a pipe have flags of their own.
                non_blocking(&stdin)?;
                non_blocking(&stdout)?;
                (child_in, child_out, Some(stdin), Some(stdout))
            }
        };
        let child = [above_standard(child_in)?, above_standard(child_out)?, above_standard(child_err)?];
        Ok(Self { child, ours: Ends { stdin, stdout, stderr } })
    }
}

fn non_blocking(fd: &OwnedFd) -> io::Result<()> {
    Ok(fcntl_setfl(fd, fcntl_getfl(fd)? | OFlags::NONBLOCK)?)
}

/// The descriptor, moved away from 0, 1 and 2 where a daemon that was started without these would have it.
pub(crate) fn above_standard(fd: OwnedFd) -> io::Result<OwnedFd> {
    if fd.as_raw_fd() > 2 { Ok(fd) } else { Ok(rustix::io::fcntl_dupfd_cloexec(&fd, 3)?) }
}
