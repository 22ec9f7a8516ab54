//! A stdio MCP client as small as can be: one program, one request at a time.
use crate::options::Options;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

/// A program that speaks MCP on its standard streams. Killed when dropped, if it still runs then.
pub(crate) struct Client {
    child: Child,
    /// None once it is closed.
    stdin: Option<ChildStdin>,
    lines: Lines<ChildStdout>,
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
        Ok(Self { child, stdin, lines: Lines::new(stdout) })
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
