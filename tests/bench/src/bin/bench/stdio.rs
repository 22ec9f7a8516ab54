//! A stdio MCP client as small as can be: one program, one request at a time.
use crate::options::Options;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A program that speaks MCP on its standard streams. Killed when dropped, if it still runs then.
pub(crate) struct Client {
    child: Child,
    /// None once it is closed.
    stdin: Option<std::fs::File>,
    lines: Lines<OwnedFd>,
}

impl Client {
    pub(crate) fn start<I, S>(program: &OsStr, args: I) -> io::Result<Self>
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        let mut child =
            Command::new(program).args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let stdout = stdout.ok_or_else(|| io::Error::other("the program has no output"))?;
        let stdin = stdin.map(|stdin| std::fs::File::from(OwnedFd::from(stdin)));
        Ok(Self { child, stdin, lines: Lines::new(stdout.into()) })
    }

    /// Starts a program that speaks MCP on the first connection of a socket.
    pub(crate) fn start_on(socket: &Path, mut command: Command) -> io::Result<Self> {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn()?;
        let end = Instant::now() + Options::PATIENCE;
        let stream = loop {
            match UnixStream::connect(socket) {
                Ok(stream) => break stream,
                Err(error) if Instant::now() > end || child.try_wait()?.is_some() => return Err(error),
                Err(_) => std::thread::sleep(Duration::from_millis(2)),
            }
        };
        let stdin = Some(std::fs::File::from(OwnedFd::from(stream.try_clone()?)));
        Ok(Self { child, stdin, lines: Lines::new(stream.into()) })
    }

    /// Sends one line and gives back the next, which must hold `expected`.
    pub(crate) fn exchange(&mut self, request: &str, expected: &str) -> io::Result<()> {
        self.send(request)?;
        let line = self.lines.next()?;
        check(line, expected)
    }

    pub(crate) fn send(&mut self, line: &str) -> io::Result<()> {
        let stdin = self.stdin.as_mut().ok_or_else(|| io::Error::other("the client is closed"))?;
        stdin.write_all(line.as_bytes())
    }

    /// `initialize` and its answer.
    pub(crate) fn initialize(&mut self) -> io::Result<()> {
        self.exchange(INITIALIZE, "protocolVersion")
    }

    /// What a client does before its first call.
    pub(crate) fn handshake(&mut self) -> io::Result<()> {
        self.initialize()?;
        self.send("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n")?;
        self.exchange("{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"tools/list\"}\n", "\"echo\"")
    }

    /// So many calls, `window` of them in flight: what is due is written at once, and the next ones follow what was answered.
    pub(crate) fn pipeline(&mut self, calls: usize, window: usize, id: &mut u64) -> io::Result<()> {
        let (mut sent, mut answered) = (0, 0);
        while answered < calls {
            let mut due = String::new();
            while sent < calls && sent - answered < window {
                *id += 1;
                due.push_str(&crate::call::request(*id, "some twenty bytes ab"));
                sent += 1;
            }
            if !due.is_empty() {
                self.send(&due)?;
            }
            // One answer is waited for, and what came with it is taken, too.
            answered += self.lines.skip()?;
        }
        Ok(())
    }

    /// Ends it, whatever its status is.
    pub(crate) fn finish_anyhow(mut self) -> io::Result<()> {
        drop(self.stdin.take());
        // Of a socket there is a second descriptor.
        let _ = rustix::net::shutdown(self.lines.source(), rustix::net::Shutdown::Write);
        while !self.lines.next()?.is_empty() {}
        self.child.wait()?;
        Ok(())
    }

    /// Ends it as a client does: end of file, and then patience.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        drop(self.stdin.take());
        // The end of its output comes with its exit, or just before.
        while !self.lines.next()?.is_empty() {}
        let status = self.child.wait()?;
        if status.success() {
            Ok(())
        } else {
            Err(io::Error::other(format!("the program ended with {status}")))
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // After `finish` the child is reaped, and both do nothing.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const INITIALIZE: &str = concat!(
    r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","#,
    r#""capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}"#,
    "\n"
);

fn check(line: &[u8], expected: &str) -> io::Result<()> {
    let text = String::from_utf8_lossy(line);
    if text.contains(expected) {
        return Ok(());
    }
    let seen: String = text.chars().take(400).collect();
    Err(io::Error::other(format!("expected {expected:?}, got {seen:?}")))
}

/// Lines from a descriptor.
pub(crate) struct Lines<F> {
    source: F,
    buffer: Vec<u8>,
    /// How much of the buffer was given out.
    used: usize,
}

impl<F: AsFd> Lines<F> {
    pub(crate) fn new(source: F) -> Self {
        Self { source, buffer: Vec::with_capacity(64 * 1024), used: 0 }
    }

    pub(crate) fn source(&self) -> &F {
        &self.source
    }

    pub(crate) fn into_source(self) -> F {
        self.source
    }

    /// Takes all lines that are there, at least one, and looks at none: how many.
    pub(crate) fn skip(&mut self) -> io::Result<usize> {
        if self.next()?.is_empty() {
            return Err(io::Error::other("the program has ended"));
        }
        let rest = &self.buffer[self.used..];
        let more = rest.iter().filter(|byte| **byte == b'\n').count();
        if let Some(last) = rest.iter().rposition(|byte| *byte == b'\n') {
            self.used += last + 1;
        }
        Ok(1 + more)
    }

    /// The next line with its newline; empty at end of file.
    ///
    /// The read blocks without a poll before it, as a client's would: a poll for the sake of a deadline would be
    /// measured too. A run that hangs is ended by whoever started it.
    pub(crate) fn next(&mut self) -> io::Result<&[u8]> {
        self.buffer.drain(..self.used);
        self.used = 0;
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                self.used = end + 1;
                return Ok(&self.buffer[..=end]);
            }
            let mut chunk = [0_u8; 64 * 1024];
            match rustix::io::read(&self.source, &mut chunk) {
                Ok(0) => return Ok(&[]),
                Ok(count) => self.buffer.extend_from_slice(&chunk[..count]),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Waits until the descriptor is readable; false when `Options::PATIENCE` is over.
pub(crate) fn readable(descriptor: impl AsFd, patience: Duration) -> io::Result<bool> {
    let timeout = Timespec::try_from(patience.min(Options::PATIENCE)).map_err(io::Error::other)?;
    loop {
        match poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], Some(&timeout)) {
            Ok(count) => return Ok(count > 0),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
