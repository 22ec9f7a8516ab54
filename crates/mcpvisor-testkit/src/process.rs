//! Processes that a test starts itself.
use crate::procfs;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open, pidfd_send_signal};
use serde_json::Value;
use std::fmt;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, ExitStatus};
use std::time::{Duration, Instant};

pub use rustix::process::Signal;

/// A child of the test. Killed, by its own handle, when dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    name: String,
    ended: Option<ExitStatus>,
}

impl Process {
    pub(crate) fn new(child: Child, name: String) -> Self {
        Self { child, name, ended: None }
    }

    /// Its number.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal; nothing happens where it has ended.
    pub fn signal(&mut self, signal: Signal) {
        if self.ended.is_none() {
            send_signal(self.child.id(), signal);
        }
    }

    /// Our end of its standard input; None where it was taken or is no pipe.
    pub fn take_stdin(&mut self) -> Option<ChildStdin> {
        self.child.stdin.take()
    }

    /// Our end of its standard output; None where it was taken or is no pipe.
    pub fn take_stdout(&mut self) -> Option<ChildStdout> {
        self.child.stdout.take()
    }

    /// Our end of its standard error; None where it was taken or is no pipe.
    pub fn take_stderr(&mut self) -> Option<ChildStderr> {
        self.child.stderr.take()
    }

    /// Waits for its end; None where the budget is used up first.
    pub fn wait_within(&mut self, budget: Duration) -> Option<ExitStatus> {
        if self.ended.is_none() {
            if !ends_within(self.child.id(), budget) {
                return None;
            }
            self.ended = self.child.wait().ok();
        }
        self.ended
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// When it has not ended within the budget.
    #[track_caller]
    pub fn wait(&mut self, budget: Duration) -> ExitStatus {
        let name = self.name.clone();
        self.wait_within(budget)
            .unwrap_or_else(|| panic!("{name} has not ended within {} ms", budget.as_millis()))
    }

    /// Whether it has ended.
    pub fn has_ended(&mut self) -> bool {
        self.wait_within(Duration::ZERO).is_some()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.ended.is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Whether a process, a child of ours or not, ends within the budget.
#[must_use]
pub fn ends_within(pid: u32, budget: Duration) -> bool {
    let Some(raw) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return true };
    let Ok(handle) = pidfd_open(raw, PidfdFlags::empty()) else { return true };
    let end = Instant::now() + budget;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let timeout =
            Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: i64::from(left.subsec_nanos()) };
        let mut fds = [PollFd::new(&handle, PollFlags::IN)];
        match poll(&mut fds, Some(&timeout)) {
            Ok(0) => return false,
            Ok(_) => return true,
            Err(_) if left.is_zero() => return false,
            Err(_) => {}
        }
    }
}

/// A process, child of ours or not, that is held by a handle of the kernel's: never taken for a later one with its number.
#[derive(Debug)]
pub struct Held {
    /// Which.
    pub id: procfs::Identity,
    handle: OwnedFd,
}

impl Held {
    /// Takes hold of a process that lives; None where it has ended.
    #[must_use]
    pub fn take(pid: u32) -> Option<Self> {
        let raw = i32::try_from(pid).ok().and_then(Pid::from_raw)?;
        let handle = pidfd_open(raw, PidfdFlags::empty()).ok()?;
        // Looked at through the handle: what the number means now, it meant then, if the process still lives.
        let id = procfs::stat(pid)?.id;
        Some(Self { id, handle }).filter(Self::lives)
    }

    /// Whether it has not ended.
    #[must_use]
    pub fn lives(&self) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut fds = [PollFd::new(&self.handle, PollFlags::IN)];
        matches!(poll(&mut fds, Some(&now)), Ok(0))
    }
}

/// Signals a process by its number; one that has ended is passed over.
pub fn send_signal(pid: u32, signal: Signal) {
    if let Some(raw) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = rustix::process::kill_process(raw, signal);
    }
}

/// Kills exactly this process: the handle is opened first, and the identity looked at through it afterwards, so that a later
/// process with the same number is never hit.
pub(crate) fn kill_exactly(id: procfs::Identity) {
    let Some(raw) = i32::try_from(id.pid).ok().and_then(Pid::from_raw) else { return };
    let Ok(handle) = pidfd_open(raw, PidfdFlags::empty()) else { return };
    if procfs::stat(id.pid).is_some_and(|stat| stat.id == id) {
        let _ = pidfd_send_signal(&handle, Signal::KILL);
    }
}

/// What a command that has ended left.
#[derive(Clone, PartialEq, Eq)]
pub struct Output {
    /// The exit status; 128 + N for a signal, as shells tell it.
    pub status: i32,
    /// Standard output.
    pub stdout: Vec<u8>,
    /// Standard error, as text.
    pub stderr: String,
    command: String,
}

impl fmt::Debug for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = &self.stdout[..self.stdout.len().min(4000)];
        write!(
            f,
            "`{}` exited {}\n--- stdout\n{}\n--- stderr\n{}",
            self.command,
            self.status,
            String::from_utf8_lossy(shown),
            self.stderr
        )
    }
}

impl Output {
    /// Standard output as text.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Standard output as one JSON document.
    ///
    /// # Panics
    /// When it is none.
    #[must_use]
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.stdout)
            .unwrap_or_else(|error| panic!("not one JSON document ({error}): {self:?}"))
    }

    /// The result of a command that must have succeeded.
    ///
    /// # Panics
    /// When the status is not 0.
    #[track_caller]
    pub fn ok(&self) -> Value {
        assert_eq!(self.status, 0, "{self:?}");
        self.json()
    }

    /// The error object of a command that must have failed with this status: `kind`, `message`, `data`.
    ///
    /// # Panics
    /// When the status is another, or there is no error object.
    #[track_caller]
    pub fn fails(&self, status: i32) -> Value {
        assert_eq!(self.status, status, "{self:?}");
        let error = self.json()["error"].clone();
        assert!(error["kind"].is_string() && error["message"].is_string(), "no error object: {self:?}");
        error
    }
}

/// Lets a child run to its end and collects what it says.
pub(crate) fn collect(mut process: Process, input: Option<Vec<u8>>, budget: Duration) -> Output {
    let command = process.name.clone();
    let stdin = process.take_stdin();
    let writer = std::thread::spawn(move || {
        if let (Some(mut stdin), Some(input)) = (stdin, input) {
            // A program that ends without reading its input is no fault here.
            let _ = std::io::Write::write_all(&mut stdin, &input);
        }
    });
    let stdout = drain(process.take_stdout());
    let stderr = drain(process.take_stderr());
    let ended = process.wait_within(budget);
    if ended.is_none() {
        drop(process);
        let (out, err) = (receive(&stdout), receive(&stderr));
        panic!(
            "`{command}` has not ended within {} ms\n--- stdout\n{}\n--- stderr\n{}",
            budget.as_millis(),
            String::from_utf8_lossy(&out),
            String::from_utf8_lossy(&err)
        );
    }
    let status = ended.map_or(-1, shell_status);
    // What it left behind may hold the pipes open: so its output is waited for with a bound.
    let (stdout, stderr) = (receive(&stdout), receive(&stderr));
    drop(writer);
    Output { status, stdout, stderr: String::from_utf8_lossy(&stderr).into_owned(), command }
}

/// The exit status as a shell tells it.
#[must_use]
pub fn shell_status(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

type Drained = std::sync::Arc<(std::sync::Mutex<(Vec<u8>, bool)>, std::sync::Condvar)>;

/// Reads a stream to its end on a thread.
fn drain(stream: Option<impl Read + Send + 'static>) -> Drained {
    let shared = Drained::default();
    let Some(mut stream) = stream else {
        if let Ok(mut state) = shared.0.lock() {
            state.1 = true;
        }
        return shared;
    };
    let ours = shared.clone();
    std::thread::spawn(move || {
        let mut buffer = vec![0; 1 << 16];
        loop {
            let count = stream.read(&mut buffer).unwrap_or(0);
            let Ok(mut state) = ours.0.lock() else { return };
            state.0.extend_from_slice(&buffer[..count]);
            state.1 = count == 0;
            ours.1.notify_all();
            if count == 0 {
                return;
            }
        }
    });
    shared
}

fn receive(drained: &Drained) -> Vec<u8> {
    let Ok(state) = drained.0.lock() else { return Vec::new() };
    match drained.1.wait_timeout_while(state, Duration::from_secs(5), |state| !state.1) {
        Ok((state, _)) => state.0.clone(),
        Err(_) => Vec::new(),
    }
}
