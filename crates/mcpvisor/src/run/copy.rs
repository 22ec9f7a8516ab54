//! Copies bytes between two descriptors as far as they let it, driven by one poll loop.
use rustix::event::PollFlags;
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A pipe that is ready to be written takes this much without blocking (POSIX's PIPE_BUF).
const CHUNK: usize = 4096;
/// Terminals promise nothing, but their drivers say ready only with some room.
const TERMINAL_CHUNK: usize = 256;

/// One of the two descriptors.
#[derive(Debug)]
pub(crate) enum End {
    /// A standard stream: shared with others, so that its flags are left alone.
    Standard(BorrowedFd<'static>),
    /// A pipe of ours, closed when the copying is over.
    Ours(OwnedFd),
}

impl AsFd for End {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Standard(fd) => fd.as_fd(),
            Self::Ours(fd) => fd.as_fd(),
        }
    }
}

/// A copying in one direction. It holds at most one chunk; what is behind it waits in the source.
#[derive(Debug)]
pub(crate) struct Copy {
    source: Option<End>,
    target: Option<End>,
    buffer: Vec<u8>,
    chunk: usize,
}

impl Copy {
    /// From `source` to `target`. A target that is ours must be non-blocking; a standard one is written to only
    /// when it is ready.
    pub(crate) fn new(source: End, target: End) -> Self {
        let chunk = if rustix::termios::isatty(&target) { TERMINAL_CHUNK } else { CHUNK };
        Self { source: Some(source), target: Some(target), buffer: Vec::new(), chunk }
    }

    /// What to poll the source for; none while it is not to be read.
    pub(crate) fn source(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        let source = self.source.as_ref().filter(|_| self.buffer.is_empty())?;
        Some((source.as_fd(), PollFlags::IN))
    }

    /// What to poll the target for. It is polled even while there is nothing to write, to learn that nobody reads it
    /// any more.
    pub(crate) fn target(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        let flags = if self.buffer.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
        Some((self.target.as_ref()?.as_fd(), flags))
    }

    /// Everything up to the source's end is written, or can't be.
    #[cfg(test)]
    fn is_over(&self) -> bool {
        self.target.is_none()
    }

    /// Does what can be done now, given what poll said of the two; a descriptor that was not polled had nothing to
    /// say.
    pub(crate) fn advance(&mut self, source: PollFlags, target: PollFlags) {
        if target.intersects(PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL) {
            self.give_up();
        }
        if !source.is_empty() && self.buffer.is_empty() {
            self.read();
        }
        if target.contains(PollFlags::OUT) {
            self.write();
        }
    }

    /// Nothing is held, and the source has nothing more to give now. To be asked of a source that is ours, which is
    /// non-blocking.
    pub(crate) fn is_drained(&mut self) -> bool {
        if self.buffer.is_empty() {
            self.read();
        }
        self.buffer.is_empty()
    }

    fn read(&mut self) {
        let Some(source) = &self.source else { return };
        let mut chunk = [0; CHUNK];
        match rustix::io::read(source, &mut chunk[..self.chunk]) {
            Ok(0) => self.end(),
            Ok(count) => self.buffer.extend_from_slice(&chunk[..count]),
            Err(Errno::AGAIN | Errno::INTR) => {}
            // A terminal that is gone (EIO), a folder (EISDIR): nothing more will come.
            Err(_) => self.end(),
        }
    }

    /// The source has ended. The buffer is empty, since a source is read only then.
    fn end(&mut self) {
        self.source = None;
        self.target = None;
    }

    fn write(&mut self) {
        let Some(target) = &self.target else { return };
        match rustix::io::write(target, &self.buffer) {
            Ok(count) => drop(self.buffer.drain(..count)),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => self.give_up(),
        }
    }

    /// The target takes nothing any more. The source is closed too, so that its writer learns of it.
    pub(crate) fn give_up(&mut self) {
        self.buffer.clear();
        self.source = None;
        self.target = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, Timespec, poll};
    use rustix::pipe::{PipeFlags, pipe_with};

    fn pipe() -> (OwnedFd, OwnedFd) {
        pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).unwrap()
    }

    /// One turn of a poll loop that waits for nothing; false when nothing was ready.
    fn turn(copy: &mut Copy) -> bool {
        let no_time = Timespec::default();
        let ask = |polled: Option<(BorrowedFd<'_>, PollFlags)>| {
            polled.map_or(PollFlags::empty(), |(fd, flags)| {
                let mut fds = [PollFd::new(&fd, flags)];
                poll(&mut fds, Some(&no_time)).unwrap();
                fds[0].revents()
            })
        };
        let (source, target) = (ask(copy.source()), ask(copy.target()));
        copy.advance(source, target);
        !(source.is_empty() && target.is_empty())
    }

    fn read_all(fd: &OwnedFd) -> Vec<u8> {
        let mut all = Vec::new();
        let mut chunk = [0; 1 << 16];
        while let Ok(count @ 1..) = rustix::io::read(fd, &mut chunk) {
            all.extend_from_slice(&chunk[..count]);
        }
        all
    }

    #[test]
    fn loses_nothing_before_a_slow_reader_and_passes_the_end_on() {
        let ((input, feed), (drain, output)) = (pipe(), pipe());
        let mut copy = Copy::new(End::Ours(input), End::Ours(output));
        let text: Vec<u8> = (0..500_000_u32).map(|n| (n % 251) as u8).collect();
        let (mut fed, mut got) = (0, Vec::new());
        while fed < text.len() {
            match rustix::io::write(&feed, &text[fed..]) {
                Ok(count) => fed += count,
                Err(_) => {
                    while turn(&mut copy) {}
                    got.extend(read_all(&drain));
                }
            }
        }
        drop(feed);
        while !copy.is_over() {
            turn(&mut copy);
            got.extend(read_all(&drain));
        }
        assert!(got == text, "{} of {} bytes arrived, or other ones", got.len(), text.len());
        assert_eq!(rustix::io::read(&drain, &mut [0; 1]), Ok(0), "the end is passed on");
    }

    #[test]
    fn a_source_is_not_read_while_the_target_is_full() {
        let ((input, feed), (_drain, output)) = (pipe(), pipe());
        while rustix::io::write(&output, &[0; CHUNK]).is_ok() {}
        let mut copy = Copy::new(End::Ours(input), End::Ours(output));
        rustix::io::write(&feed, b"one").unwrap();
        assert!(turn(&mut copy));
        rustix::io::write(&feed, b"two").unwrap();
        drop(feed);
        assert!(copy.source().is_none(), "else poll would say ready for ever");
        assert!(!turn(&mut copy) && !copy.is_over() && !copy.is_drained());
    }

    #[test]
    fn a_reader_that_is_gone_ends_the_copying_and_tells_the_writer() {
        let ((input, feed), (drain, output)) = (pipe(), pipe());
        let mut copy = Copy::new(End::Ours(input), End::Ours(output));
        drop(drain);
        turn(&mut copy);
        assert!(copy.is_over());
        assert_eq!(rustix::io::write(&feed, b"x"), Err(Errno::PIPE));
    }

    #[test]
    fn drained_means_that_nothing_is_left_though_a_writer_remains() {
        let ((input, feed), (drain, output)) = (pipe(), pipe());
        let mut copy = Copy::new(End::Ours(input), End::Ours(output));
        rustix::io::write(&feed, b"last words").unwrap();
        assert!(!copy.is_drained());
        while !copy.is_drained() {
            turn(&mut copy);
        }
        assert_eq!(read_all(&drain), b"last words");
        assert!(!copy.is_over());
    }
}
