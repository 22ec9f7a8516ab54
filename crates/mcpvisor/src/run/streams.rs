//! The shim's standard streams: which of them the server is born with, and which are bridged.
//!
//! Pipes and sockets are handed over as they are. Anything else (a terminal, a file, /dev/null) can't tell the daemon
//! of a hang-up, so the shim copies, from or to a pipe. The flags of descriptors 0, 1 and 2 are never
//! changed: they belong to whoever is at the other end, too.
use crate::run::copy::{Copy, End};
use rustix::fs::{FileType, OFlags, fstat};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::stdio::{stderr, stdin, stdout};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A stream of the server's, from the shim's side.
#[derive(Debug)]
enum Stream {
    /// The shim's own descriptor is handed over.
    Handed,
    /// The server's end of a pipe that the shim copies to or from; none once the daemon has it.
    Bridged(Option<OwnedFd>),
}

/// The server's streams and the copying that belongs to them.
#[derive(Debug)]
pub(crate) struct Streams {
    stdin: Stream,
    stdout: Stream,
    /// The write end of the pipe for stderr; none once the daemon has it.
    stderr: Option<OwnedFd>,
    /// From the shim's stdin to the server.
    pub(crate) input: Option<Copy>,
    /// From the server to the shim's stdout.
    pub(crate) output: Option<Copy>,
    /// From the server's stderr to the shim's.
    pub(crate) errors: Copy,
}

impl Streams {
    /// Looks at descriptors 0 and 1 and makes the pipes that are needed.
    ///
    /// # Errors
    /// Where a pipe can't be made.
    pub(crate) fn new() -> io::Result<Self> {
        let (stdin_stream, input) = if is_handed_over(stdin())? {
            (Stream::Handed, None)
        } else {
            let (theirs, ours) = pipe()?;
            set_non_blocking(&ours)?;
            (Stream::Bridged(Some(theirs)), Some(Copy::new(End::Standard(stdin()), End::Ours(ours))))
        };
        let (stdout_stream, output) = if is_handed_over(stdout())? {
            (Stream::Handed, None)
        } else {
            let (ours, theirs) = pipe()?;
            set_non_blocking(&ours)?;
            (Stream::Bridged(Some(theirs)), Some(Copy::new(End::Ours(ours), End::Standard(stdout()))))
        };
        // Of a pipe, each end has flags of its own. The daemon drops what does not fit into this one.
        let (ours, theirs) = pipe()?;
        set_non_blocking(&ours)?;
        set_non_blocking(&theirs)?;
        let errors = Copy::new(End::Ours(ours), End::Standard(stderr()));
        Ok(Self { stdin: stdin_stream, stdout: stdout_stream, stderr: Some(theirs), input, output, errors })
    }

    /// One of stdin and stdout is no pipe and no socket, so that nobody but this program can watch it.
    pub(crate) fn are_bridged(&self) -> bool {
        matches!(self.stdin, Stream::Bridged(_)) || matches!(self.stdout, Stream::Bridged(_))
    }

    /// The descriptors to send: stdin, stdout, stderr. None after [`Streams::let_go`].
    pub(crate) fn descriptors<'a>(&'a self) -> Option<[BorrowedFd<'a>; 3]> {
        let end = |stream: &'a Stream, own| match stream {
            Stream::Handed => Some(own),
            Stream::Bridged(theirs) => theirs.as_ref().map(AsFd::as_fd),
        };
        Some([end(&self.stdin, stdin())?, end(&self.stdout, stdout())?, self.stderr.as_ref()?.as_fd()])
    }

    /// The daemon has them: the shim must hold none of them any more. Else the client of a server that has died
    /// would get no EPIPE, and no end of file.
    ///
    /// # Errors
    /// Where /dev/null can't be opened.
    pub(crate) fn let_go(&mut self) -> io::Result<()> {
        self.stderr = None;
        let null = File::options().read(true).write(true).open("/dev/null")?;
        match &mut self.stdin {
            Stream::Handed => rustix::stdio::dup2_stdin(&null)?,
            Stream::Bridged(theirs) => *theirs = None,
        }
        match &mut self.stdout {
            Stream::Handed => rustix::stdio::dup2_stdout(&null)?,
            Stream::Bridged(theirs) => *theirs = None,
        }
        Ok(())
    }
}

fn is_handed_over(fd: BorrowedFd<'_>) -> io::Result<bool> {
    let kind = FileType::from_raw_mode(fstat(fd)?.st_mode);
    Ok(matches!(kind, FileType::Fifo | FileType::Socket))
}

fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(pipe_with(PipeFlags::CLOEXEC)?)
}

/// To be called with pipes of ours only.
fn set_non_blocking(fd: &OwnedFd) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(fd)?;
    Ok(rustix::fs::fcntl_setfl(fd, flags | OFlags::NONBLOCK)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pipes_and_sockets_are_handed_over_and_the_rest_is_not() {
        let (a, _b) = pipe().unwrap();
        let (socket, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        let null = File::open("/dev/null").unwrap();
        let file = File::open("/proc/self/status").unwrap();
        assert!(is_handed_over(a.as_fd()).unwrap());
        assert!(is_handed_over(socket.as_fd()).unwrap());
        assert!(!is_handed_over(null.as_fd()).unwrap());
        assert!(!is_handed_over(file.as_fd()).unwrap());
    }

    #[test]
    fn one_end_of_a_pipe_can_be_non_blocking_alone() {
        let (read, write) = pipe().unwrap();
        set_non_blocking(&write).unwrap();
        assert!(!rustix::fs::fcntl_getfl(&read).unwrap().contains(OFlags::NONBLOCK));
        assert!(rustix::fs::fcntl_getfl(&write).unwrap().contains(OFlags::NONBLOCK));
    }
}
