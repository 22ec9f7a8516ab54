//! Watching the client's end of a server's input, in direct mode.
//!
//! The daemon keeps a copy of the descriptor that is the server's stdin. It must learn that the client has hung up without
//! reading from it, without waking for each message, and without touching its flags, which it shares with the server. So the copy
//! is watched edge-triggered, for hang-ups alone, in an epoll set of its own, and that set is what the runtime watches.
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// The shortest and the longest wait between two looks at what a client that has hung up left unread.
const FIRST_LOOK: Duration = Duration::from_millis(1);
const LONGEST_LOOK: Duration = Duration::from_millis(50);

/// A copy of a server's stdin. Dropping it closes the copy, and must happen as soon as the server's main process has ended: a
/// client that writes to a dead server gets EPIPE only when nobody holds the other end.
#[derive(Debug)]
pub(crate) struct HangUp {
    watch: AsyncFd<OwnedFd>,
    input: OwnedFd,
}

impl HangUp {
    /// Takes a pipe or a socket. Must be called on a runtime.
    ///
    /// # Errors
    /// If the descriptor can't be watched (a regular file), or descriptors have run out.
    pub(crate) fn new(input: OwnedFd) -> io::Result<Self> {
        let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let flags = epoll::EventFlags::RDHUP | epoll::EventFlags::HUP | epoll::EventFlags::ET;
        epoll::add(&set, &input, epoll::EventData::new_u64(0), flags)?;
        Ok(Self { watch: watch(set)?, input })
    }

    /// Resolves when the client's end is closed, or half-closed; what the client wrote before may still be unread. Cancel safe,
    /// and any number may wait.
    pub(crate) async fn hung_up(&self) {
        while !self.is_hung_up() {
            // The runtime's own driver is gone only with the runtime, which drops this future too.
            let Ok(mut ready) = self.watch.readable().await else { return std::future::pending().await };
            // Emptied before the state is looked at, so that a hang-up in between makes the set ready anew.
            self.empty_the_set();
            if !self.is_hung_up() {
                ready.clear_ready();
            }
        }
    }

    /// Bytes that the server has not read yet.
    pub(crate) fn unread(&self) -> usize {
        // A descriptor that can't tell has nothing that is worth waiting for.
        rustix::io::ioctl_fionread(&self.input)
            .map_or(0, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX))
    }

    /// Resolves when nothing is left unread. The kernel has no event for this, so it is looked at with growing pauses of up to
    /// 50 ms: to be used after [`HangUp::hung_up`] only. Cancel safe.
    pub(crate) async fn drained(&self) {
        let mut pause = FIRST_LOOK;
        while self.unread() > 0 {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_LOOK);
        }
    }

    /// The state itself and not the event, so that any number may ask.
    pub(crate) fn is_hung_up(&self) -> bool {
        let mut input = [PollFd::new(&self.input, PollFlags::RDHUP)];
        let told = poll(&mut input, Some(&Timespec::default())).is_ok_and(|count| count > 0);
        told && input[0].revents().intersects(PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR)
    }

    fn empty_the_set(&self) {
        let mut events =
            [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }];
        let _ = epoll::wait(self.watch.get_ref(), &mut events, Some(&Timespec::default()));
    }
}

#[expect(
    deprecated,
    reason = "deprecated for types whose descriptor may change under it, which an OwnedFd's can't; what replaces it is unsafe"
)]
fn watch(set: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(set, Interest::READABLE)
}

#[cfg(test)]
mod tests;
