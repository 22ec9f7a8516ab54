//! The shim's poll loop: the connection, the signals, and the copying that goes on meanwhile.
use crate::run::copy::Copy;
use crate::run::link::Link;
use crate::run::signals::Signals;
use crate::run::streams::Streams;
use mcpvisor_control::Message;
use mcpvisor_control::blocking::Received;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// For so long the shim waits at the end for a reader of its stderr that has stopped reading. What the server wrote to
/// stdout is waited for without end, as the server itself would have.
const LAST_ERRORS: Duration = Duration::from_millis(500);

/// What the shim acts on.
#[derive(Debug)]
pub(crate) enum Event {
    /// The daemon says something.
    Message(Message),
    /// The daemon is gone.
    Disconnected,
    /// The shim is to leave.
    Signal(u8),
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Watch {
    pub(crate) link: Link,
    pub(crate) streams: Streams,
    signals: Signals,
}

impl Watch {
    pub(crate) fn new(link: Link, streams: Streams, signals: Signals) -> Self {
        Self { link, streams, signals }
    }

    /// Copies until there is something to act on. A signal comes before all else.
    ///
    /// # Errors
    /// Where the kernel refuses to poll, or descriptors that came with a message were lost.
    pub(crate) fn next(&mut self) -> io::Result<Event> {
        loop {
            if let Some(signal) = self.signals.received() {
                return Ok(Event::Signal(signal));
            }
            match self.link.connection.next_message() {
                Ok(Some(message)) => return Ok(Event::Message(message)),
                Ok(None) => {}
                Err(error) => return Err(io::Error::other(error)),
            }
            if self.turn(true, None)? && self.link.connection.receive(false)? == Received::End {
                return Ok(Event::Disconnected);
            }
        }
    }

    /// Nothing of the session is left, or the daemon is gone: delivers what is still on its way, and gives back the
    /// signal that cut it short, if one did.
    pub(crate) fn deliver(&mut self) -> Option<u8> {
        self.streams.input = None;
        let errors_until = Instant::now() + LAST_ERRORS;
        loop {
            if let Some(signal) = self.signals.received() {
                return Some(signal);
            }
            if self.streams.output.as_mut().is_some_and(Copy::is_drained) {
                self.streams.output = None;
            }
            let patience = errors_until.saturating_duration_since(Instant::now());
            let errors_told = self.streams.errors.is_drained() || patience.is_zero();
            if errors_told {
                self.streams.errors.give_up();
            }
            if errors_told && self.streams.output.is_none() {
                return None;
            }
            let timeout = (!errors_told).then_some(patience);
            if self.turn(false, timeout).is_err() {
                return None;
            }
        }
    }

    /// Waits until a descriptor is ready and does what copying can be done. True when the connection is.
    fn turn(&mut self, connection: bool, timeout: Option<Duration>) -> io::Result<bool> {
        let mut fds: Vec<PollFd<'_>> = Vec::with_capacity(8);
        fds.push(PollFd::from_borrowed_fd(self.signals.descriptor(), PollFlags::IN));
        let connection = add(&mut fds, connection.then(|| (self.link.connection.as_fd(), PollFlags::IN)));
        let streams = &self.streams;
        let places: Vec<_> = [streams.input.as_ref(), streams.output.as_ref(), Some(&streams.errors)]
            .map(|copy| {
                (add(&mut fds, copy.and_then(Copy::source)), add(&mut fds, copy.and_then(Copy::target)))
            })
            .into();
        let timeout = timeout.map(Timespec::try_from).transpose().map_err(io::Error::other)?;
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) => {}
            // The signal that interrupted is seen by the caller's loop.
            Err(Errno::INTR) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        let said: Vec<PollFlags> = fds.iter().map(PollFd::revents).collect();
        drop(fds);
        let of = |place: Option<usize>| place.map_or(PollFlags::empty(), |place| said[place]);
        let streams = &mut self.streams;
        let copies = [streams.input.as_mut(), streams.output.as_mut(), Some(&mut streams.errors)];
        for (copy, (source, target)) in copies.into_iter().zip(places) {
            if let Some(copy) = copy {
                copy.advance(of(source), of(target));
            }
        }
        Ok(!of(connection).is_empty())
    }
}

/// Puts a descriptor on the list; its place there.
fn add<'a>(fds: &mut Vec<PollFd<'a>>, polled: Option<(BorrowedFd<'a>, PollFlags)>) -> Option<usize> {
    let (fd, flags) = polled?;
    fds.push(PollFd::from_borrowed_fd(fd, flags));
    Some(fds.len() - 1)
}
