//! The test's end of the socket on which a daemon with gates takes its orders.
use mcpvisor_testkit::{SOON, until};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// A driver of gates. Removes the socket's file when dropped.
pub(crate) struct Gates {
    stream: UnixStream,
    lines: Receiver<String>,
    path: PathBuf,
    /// What was read while something else was waited for.
    early: Vec<String>,
}

impl Gates {
    #[track_caller]
    pub(crate) fn connect(path: &Path) -> Self {
        let stream = until(SOON, || UnixStream::connect(path).ok());
        let stream = stream.expect("a daemon with gates listens for orders");
        let reader = BufReader::new(stream.try_clone().expect("a descriptor can be copied"));
        let (line, lines) = channel();
        std::thread::spawn(move || {
            for text in reader.lines().map_while(Result::ok) {
                if line.send(text).is_err() {
                    return;
                }
            }
        });
        Self { stream, lines, path: path.to_owned(), early: Vec::new() }
    }

    /// Waits for a line; false where it does not come in time, or not any more.
    fn hears(&mut self, line: &str, budget: Duration) -> bool {
        if let Some(at) = self.early.iter().position(|early| early == line) {
            self.early.remove(at);
            return true;
        }
        let end = std::time::Instant::now() + budget;
        loop {
            match self.lines.recv_timeout(end.saturating_duration_since(std::time::Instant::now())) {
                Ok(heard) if heard == line => return true,
                Ok(heard) => self.early.push(heard),
                Err(_) => return false,
            }
        }
    }

    #[track_caller]
    fn order(&mut self, order: &str, answer: &str) {
        let _ = writeln!(self.stream, "{order}");
        assert!(self.hears(answer, SOON), "no `{answer}`; heard {:?}", self.early);
    }

    /// The next arrival at the gate will be held.
    #[track_caller]
    pub(crate) fn hold(&mut self, gate: &str) {
        self.early.clear();
        self.order(&format!("hold {gate}"), &format!("holding {gate}"));
    }

    /// The daemon stands at the gate.
    #[track_caller]
    pub(crate) fn reached(&mut self, gate: &str) {
        assert!(self.hears(&format!("reached {gate}"), SOON), "the daemon never came to {gate}");
    }

    /// Lets go what is held. A daemon that has ended meanwhile needs nothing.
    pub(crate) fn release(&mut self, gate: &str) {
        let _ = writeln!(self.stream, "release {gate}");
    }

    /// How often the gate was reached; None where the daemon is gone.
    pub(crate) fn count(&mut self, gate: &str) -> Option<u64> {
        let _ = writeln!(self.stream, "count {gate}");
        let prefix = format!("count {gate} ");
        loop {
            let line = self.lines.recv_timeout(SOON).ok()?;
            match line.strip_prefix(&prefix) {
                Some(count) => return count.parse().ok(),
                None => self.early.push(line),
            }
        }
    }

    /// All that the daemon has.
    #[track_caller]
    pub(crate) fn all(&mut self) -> Vec<String> {
        let _ = writeln!(self.stream, "gates");
        let line = self.lines.recv_timeout(SOON).expect("a daemon with gates knows them");
        line.split(' ').skip(1).map(str::to_owned).collect()
    }
}

impl Drop for Gates {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}
