//! The signals that make a command leave.
use rustix::net::{RecvFlags, recv};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Tells of SIGTERM, SIGINT and SIGHUP: a descriptor that becomes readable, and which it was.
#[derive(Debug)]
pub(crate) struct Signals {
    wake: UnixStream,
    last: Arc<AtomicUsize>,
}

impl Signals {
    /// Takes the three over, but for those that the caller had ignored (`nohup`, background jobs of a shell): they
    /// stay so.
    ///
    /// # Errors
    /// Where a handler can't be installed.
    pub(crate) fn catch(ignored: &[i32]) -> io::Result<Self> {
        let (wake, waker) = UnixStream::pair()?;
        let last = Arc::new(AtomicUsize::new(0));
        for signal in [SIGTERM, SIGINT, SIGHUP] {
            if ignored.contains(&signal) {
                continue;
            }
            // The number is stored before the pipe is written: actions run in the order of their registration.
            let number = usize::try_from(signal).expect("the numbers of signals are positive");
            signal_hook::flag::register_usize(signal, Arc::clone(&last), number)?;
            signal_hook::low_level::pipe::register(signal, waker.try_clone()?)?;
        }
        Ok(Self { wake, last })
    }

    /// Readable once a signal has come.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// [`Self::descriptor`] is readable again only when another signal has come.
    pub(crate) fn forget(&self) {
        let mut bytes = [0; 16];
        while recv(&self.wake, &mut bytes, RecvFlags::DONTWAIT).is_ok_and(|(count, _)| count == bytes.len()) {
        }
    }

    /// The last one that came.
    pub(crate) fn received(&self) -> Option<u8> {
        u8::try_from(self.last.load(Ordering::SeqCst)).ok().filter(|signal| *signal != 0)
    }
}
