//! One end of a stream that bytes pass through: a pipe or a socket.
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, Mode, OFlags, fcntl_getfl, fstat, open};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, send, sendmsg};
use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// An end that is read, or one that is written. It never waits, whatever the flags of the descriptor are, and never changes them:
/// they belong to whoever else has it.
///
/// Cheap to clone; all clones are one descriptor.
#[derive(Clone)]
pub(crate) struct End {
    fd: Arc<AsyncFd<OwnedFd>>,
    socket: bool,
}

impl End {
    /// An end to read from. Must be called on a runtime.
    ///
    /// # Errors
    /// `Unsupported` of anything but a pipe or a socket; where a pipe of another user can't be opened anew.
    pub(crate) fn reading(fd: OwnedFd) -> io::Result<Self> {
        Self::new(fd, Interest::READABLE, OFlags::RDONLY)
    }

    /// An end to write to. Must be called on a runtime.
    ///
    /// # Errors
    /// As [`End::reading`].
    pub(crate) fn writing(fd: OwnedFd) -> io::Result<Self> {
        Self::new(fd, Interest::WRITABLE | Interest::ERROR, OFlags::WRONLY)
    }

    /// A socket to read from and to write to. Must be called on a runtime.
    ///
    /// # Errors
    /// As [`End::reading`]; `Unsupported` of a pipe.
    pub(crate) fn both_ways(fd: OwnedFd) -> io::Result<Self> {
        let end = Self::new(fd, Interest::READABLE | Interest::WRITABLE | Interest::ERROR, OFlags::RDWR)?;
        if end.socket { Ok(end) } else { Err(io::Error::new(io::ErrorKind::Unsupported, "no socket")) }
    }

    fn new(fd: OwnedFd, interest: Interest, access: OFlags) -> io::Result<Self> {
        let kind = FileType::from_raw_mode(fstat(&fd)?.st_mode);
        let fd = match kind {
            FileType::Socket => fd,
            FileType::Fifo if fcntl_getfl(&fd)?.contains(OFlags::NONBLOCK) => fd,
            // Opened anew, it has flags of its own.
            FileType::Fifo => {
                let flags = access | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
                open(format!("/proc/self/fd/{}", fd.as_raw_fd()), flags, Mode::empty())?
            }
            _ => return Err(io::Error::new(io::ErrorKind::Unsupported, "neither a pipe nor a socket")),
        };
        Ok(Self { fd: Arc::new(watch(fd, interest)?), socket: kind == FileType::Socket })
    }

    /// Reads what is there: `WouldBlock` where that is nothing, 0 at the end.
    pub(in crate::relay) fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let got = if self.socket {
                recv(self.fd.get_ref(), &mut *buffer, RecvFlags::DONTWAIT).map(|(count, _)| count)
            } else {
                rustix::io::read(self.fd.get_ref(), &mut *buffer)
            };
            match got {
                Err(Errno::INTR) => {}
                // A socket whose other side has gone with our bytes unread.
                Err(Errno::CONNRESET) => return Ok(0),
                other => return other.map_err(Into::into),
            }
        }
    }

    /// Writes what fits now; `WouldBlock` where that is nothing.
    pub(in crate::relay) fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            let got = if self.socket {
                send(self.fd.get_ref(), bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)
            } else {
                rustix::io::write(self.fd.get_ref(), bytes)
            };
            match got {
                Err(Errno::INTR) => {}
                other => return other.map_err(Into::into),
            }
        }
    }

    /// As [`End::write`], of several pieces one after the other.
    pub(in crate::relay) fn write_vectored(&self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        loop {
            let got = if self.socket {
                let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
                sendmsg(self.fd.get_ref(), pieces, &mut SendAncillaryBuffer::default(), flags)
            } else {
                rustix::io::writev(self.fd.get_ref(), pieces)
            };
            match got {
                Err(Errno::INTR) => {}
                other => return other.map_err(Into::into),
            }
        }
    }

    /// Resolves when there may be something to read; `read` is tried then, and what it gave is told by the second step. Cancel safe.
    pub(in crate::relay) async fn readable(&self, read: impl FnOnce(&Self) -> Read) -> Read {
        let Ok(mut ready) = self.fd.readable().await else { return Read::Ended };
        let read = read(self);
        // What was read short has no more: the next byte is a new event. The end stays known.
        if matches!(read, Read::Nothing | Read::All) {
            ready.clear_ready();
        }
        read
    }

    /// Resolves when there is room, or an error that a write will tell. Cancel safe.
    pub(in crate::relay) async fn writable(&self) {
        loop {
            // Without the runtime's driver there is no runtime.
            let Ok(mut ready) = self.fd.writable().await else { return std::future::pending().await };
            if self.is(PollFlags::OUT | PollFlags::ERR | PollFlags::HUP) {
                return;
            }
            ready.clear_ready();
        }
    }

    /// Resolves when nobody reads any more what is written here. Cancel safe.
    pub(in crate::relay) async fn unheard(&self) {
        loop {
            let Ok(mut ready) = self.fd.ready(Interest::ERROR).await else {
                return std::future::pending().await;
            };
            if self.is(PollFlags::ERR | PollFlags::HUP) {
                return;
            }
            ready.clear_ready();
        }
    }

    /// Resolves when whoever writes has closed the other side, whatever it has left to be read. Cancel safe.
    pub(in crate::relay) async fn hung_up(&self) {
        loop {
            let Ok(mut ready) = self.fd.readable().await else { return std::future::pending().await };
            if self.is(PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR) {
                return;
            }
            ready.clear_ready();
        }
    }

    /// Nobody reads any more what is written here, as far as that can be told.
    pub(in crate::relay) fn is_unheard(&self) -> bool {
        self.is(PollFlags::ERR | PollFlags::HUP)
    }

    fn is(&self, flags: PollFlags) -> bool {
        let mut fds = [PollFd::new(self.fd.get_ref(), flags)];
        poll(&mut fds, Some(&Timespec::default())).is_ok_and(|count| count > 0)
            && fds[0].revents().intersects(flags)
    }
}

/// What an attempt to read gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::relay) enum Read {
    /// There was nothing.
    Nothing,
    /// There may be more.
    Some,
    /// All that there was.
    All,
    Ended,
}

impl Read {
    /// Of a read into a buffer of `size` bytes.
    pub(in crate::relay) fn of(read: &io::Result<usize>, size: usize) -> Self {
        match read {
            Ok(0) => Self::Ended,
            Ok(count) if *count < size => Self::All,
            Ok(_) => Self::Some,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Self::Nothing,
            Err(_) => Self::Ended,
        }
    }
}

#[expect(
    deprecated,
    reason = "deprecated for types whose descriptor may change under it, which an OwnedFd's can't; what replaces it is unsafe"
)]
fn watch(fd: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(fd, interest)
}
