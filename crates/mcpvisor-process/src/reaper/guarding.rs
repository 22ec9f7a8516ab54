//! The guardian, as the daemon sees it: a child that is in no scope, started before the first server and started again when it dies.
use super::Reaper;
use super::stopping::open_process;
use super::timers::Timer;
use crate::command::{Command, answer_without_reaper};
use crate::guardian::DISMISSED;
use crate::launch::above_standard;
use crate::reaper::scope;
use crate::{keeper, sys};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Signal, pidfd_send_signal};
use std::ffi::CString;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

/// The first new start comes at once, the next after a pause that doubles up to this …
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// … and is forgotten when one has lived so long.
const SETTLED: Duration = Duration::from_secs(60);
/// How long a guardian may take to go when it is told to.
const LONGEST_FAREWELL: Duration = Duration::from_secs(1);

/// What guards this daemon.
#[derive(Debug, Default)]
pub(super) struct Guard {
    /// The program and its arguments; None: nothing needs a guardian, or nobody can be one.
    command: Option<Vec<CString>>,
    /// Its pid, set by the kernel at its birth; 0: there is none. One for each guardian.
    born: Arc<AtomicI32>,
    /// Its birth is not told yet.
    starting: bool,
    /// The only write end of its pipe.
    pipe: Option<OwnedFd>,
    since: Option<Instant>,
    pause: Duration,
}

impl Guard {
    pub(super) fn new(command: Option<Vec<CString>>) -> Self {
        Self { command, ..Self::default() }
    }

    /// It is ordered, and perhaps born already.
    pub(super) fn is_starting(&self) -> bool {
        self.starting
    }

    pub(super) fn pid(&self) -> Option<u32> {
        u32::try_from(self.born.load(Ordering::SeqCst)).ok().filter(|pid| *pid != 0)
    }
}

impl Reaper {
    /// Orders a guardian. A launch thread makes it, and before the first server, since its orders are obeyed in turn; so the
    /// start waits for nobody, and no server is ever without a guardian unless one has died.
    pub(super) fn start_guardian(&mut self) {
        let Some(command) = self.guard.command.clone() else { return };
        let born = Arc::new(AtomicI32::new(0));
        self.guard.born = Arc::clone(&born);
        self.guard.starting = true;
        self.guard.since = Some(Instant::now());
        let mailbox = self.mailbox.clone();
        self.launcher.call(Box::new(move |stack| {
            let result = spawn(stack, &command, &born);
            mailbox.send(Command::Guarded { born, result });
        }));
    }

    /// A guardian was born, or not.
    pub(super) fn guarded(&mut self, born: &Arc<AtomicI32>, result: io::Result<OwnedFd>) {
        if !Arc::ptr_eq(born, &self.guard.born) {
            // It has died meanwhile.
            return;
        }
        self.guard.starting = false;
        match result {
            Ok(pipe) => self.guard.pipe = Some(pipe),
            Err(error) => {
                tracing::warn!(%error, "the guardian can't be started: should this daemon be killed, only the next start cleans up");
                // One that was born and could not execute its program is told of by its exit.
                if self.guard.pid().is_none() {
                    self.guard_again();
                }
            }
        }
    }

    /// This child of ours is the guardian, and in no scope.
    pub(super) fn is_guardian(&self, pid: u32) -> bool {
        self.guard.pid() == Some(pid)
    }

    /// The guardian has exited, before it should.
    pub(super) fn guardian_exited(&mut self, pid: u32) {
        let exit = sys::reap(pid);
        let exit = exit.map(|reaped| reaped.map(|reaped| reaped.exit));
        tracing::warn!(pid, ?exit, "the guardian has died; another one is started");
        self.guard_again();
    }

    fn guard_again(&mut self) {
        let guard = &mut self.guard;
        guard.born = Arc::default();
        guard.starting = false;
        guard.pipe = None;
        let now = Instant::now();
        if guard.since.is_some_and(|since| now.duration_since(since) >= SETTLED) {
            guard.pause = Duration::ZERO;
        }
        self.timers.set(now + guard.pause, Timer::Guard);
        guard.pause = (guard.pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
    }

    /// Tells the guardian that this is an end in good order, and waits until it is gone. Nothing else is to be done after it.
    pub(super) fn dismiss_guardian(&mut self) {
        let end = Instant::now() + LONGEST_FAREWELL;
        // One whose birth is not told yet would be left behind.
        while self.guard.starting {
            match self.parts.commands.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(Command::Guarded { born, result }) => self.guarded(&born, result),
                Ok(other) => scope::guarded("an answer", || answer_without_reaper(other)),
                Err(_) => break,
            }
        }
        if let Some(pipe) = self.guard.pipe.take() {
            // The pipe is empty, and a guardian that is dead needs no word.
            let _ = rustix::io::write(&pipe, DISMISSED);
        }
        let Some(pid) = self.guard.pid() else { return };
        // It is our child and not reaped, so the number is still its own.
        let waited = self.parts.reserve.with(|| {
            let guardian = open_process(pid)?;
            if !exits(&guardian, end)? {
                pidfd_send_signal(&guardian, Signal::KILL)?;
                exits(&guardian, Instant::now() + LONGEST_FAREWELL)?;
            }
            Ok(())
        });
        if let Err(error) = waited.and_then(|()| sys::reap(pid).map(drop)) {
            tracing::warn!(pid, %error, "the guardian's end was not seen");
        }
    }
}

/// Waits until a process has exited.
pub(super) fn exits(pidfd: &OwnedFd, end: Instant) -> io::Result<bool> {
    loop {
        let left = Timespec::try_from(end.saturating_duration_since(Instant::now())).ok();
        match poll(&mut [PollFd::new(pidfd, PollFlags::IN)], left.as_ref()) {
            Ok(ready) => return Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Makes a guardian; the write end of its pipe. It is born into the daemon's own cgroup and a session of its own.
fn spawn(stack: &mut sys::Stack, command: &[CString], born: &AtomicI32) -> io::Result<OwnedFd> {
    let program = command.first().ok_or(io::ErrorKind::InvalidInput)?.clone();
    let (told, ours) = pipe_with(PipeFlags::CLOEXEC)?;
    let ours = above_standard(ours)?;
    let null = || rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
    let streams = [above_standard(told)?, above_standard(null()?)?, above_standard(null()?)?];
    // No parent-death signal, and deaf to what is sent to everybody who belongs to the daemon: it must outlive the daemon.
    let plan = sys::Plan::new(program, command.to_vec(), keeper::plain_environment(), streams).ignored(&[
        libc::SIGTERM,
        libc::SIGINT,
        libc::SIGHUP,
        libc::SIGQUIT,
        libc::SIGPIPE,
        libc::SIGUSR1,
        libc::SIGUSR2,
    ]);
    let spawned = sys::spawn(stack, &plan, None, born)?;
    match spawned.failure {
        None => Ok(ours),
        Some((_, errno)) => Err(io::Error::from_raw_os_error(errno)),
    }
}
