//! The copy of a server's stderr to its client's.
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::os::fd::OwnedFd;

/// A pipe that polls as writable takes at least this much without waiting (PIPE_BUF).
const PIPE_BUF: usize = 4096;

/// Another's descriptor, which is shared with others: it is used as it is, and never waited for.
#[derive(Debug)]
pub(super) struct Tee {
    fd: Option<OwnedFd>,
    dropped: u64,
}

impl Tee {
    /// One that would block is not used: a client that does not read would hold up the daemon (G39).
    pub(super) fn new(fd: Option<OwnedFd>) -> Self {
        Self { fd: fd.filter(is_nonblocking), dropped: 0 }
    }

    /// Writes what there is room for; the rest is dropped and counted.
    pub(super) fn write(&mut self, mut bytes: &[u8]) {
        while let Some(fd) = &self.fd
            && !bytes.is_empty()
        {
            // The client could make it blocking at any time, so nothing is written that it has no room for.
            let mut out = [PollFd::new(fd, PollFlags::OUT)];
            match poll(&mut out, Some(&Timespec::default())) {
                Ok(0) => break,
                Err(Errno::INTR) => continue,
                Ok(_) if out[0].revents().intersects(PollFlags::ERR | PollFlags::NVAL) => self.fd = None,
                Ok(_) if !is_nonblocking(fd) => self.fd = None,
                Ok(_) => match rustix::io::write(fd, &bytes[..bytes.len().min(PIPE_BUF)]) {
                    Ok(count) => bytes = &bytes[count..],
                    Err(Errno::INTR) => {}
                    Err(Errno::AGAIN) => break,
                    Err(_) => self.fd = None,
                },
                Err(_) => self.fd = None,
            }
        }
        self.dropped += bytes.len() as u64;
    }

    /// Nothing more is copied.
    pub(super) fn close(&mut self) {
        self.fd = None;
    }

    /// Bytes that were not copied.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped
    }
}

fn is_nonblocking(fd: &OwnedFd) -> bool {
    rustix::fs::fcntl_getfl(fd).is_ok_and(|flags| flags.contains(rustix::fs::OFlags::NONBLOCK))
}
