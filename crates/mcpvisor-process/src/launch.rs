//! The launch threads. The parent-death signal is bound to the thread that forks, so they live as long as the daemon.
//!
//! There is one of them, unless a start hangs in the kernel and holds it (CLONE_VFORK): then another takes over, and the old
//! one goes on when the kernel answers.
mod errors;
mod order;
mod streams;

pub(crate) use errors::{setup_error, spawn_error};
pub(crate) use order::{Cell, MARKER, Order};
pub(crate) use streams::{Ends, Streams, above_standard};

use crate::cgroup::Tree;
use crate::keeper;
use crate::leftovers::notes::Notes;
use crate::resolve::{Head, Resolved, error};
use crate::sys::{self, Stack};
use crate::{LaunchError, LaunchErrorKind, ScopeId, Stdio};
use mcpvisor_failpoints::{self as failpoints, Gate};
use rustix::fs::OFlags;
use std::collections::VecDeque;
use std::ffi::{CString, OsString};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A scope's number in the reaper's tables.
pub(crate) type Key = u64;

/// A program that is found and waits for its launch.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) key: Key,
    pub(crate) scope: ScopeId,
    /// `INSTANCE/SESSION/LEAF`.
    pub(crate) marker: String,
    pub(crate) cell: Arc<Cell>,
    pub(crate) resolved: Resolved,
}

/// How a launch went.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// In its cgroup, executing its program.
    Born { pid: u32, pidfd: OwnedFd, ends: Ends, at: Instant },
    /// A keeper has the order to start it, and will tell.
    Kept { keeper: u32, connection: keeper::Connection, ends: Ends, resolved: Box<Resolved>, at: Instant },
    /// A child was made that could not become the program; it has exited and waits to be reaped.
    Stillborn { pid: u32, error: LaunchError },
    /// No process was made.
    Failed(LaunchError),
}

/// The way to the launch threads.
#[derive(Clone)]
pub(crate) struct Launcher {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    work: Condvar,
    tree: Option<Arc<Tree>>,
    notes: Option<Arc<Notes>>,
    keeper_command: Vec<CString>,
    /// Tells the reaper.
    tell: Box<dyn Fn(Key, Outcome) + Send + Sync>,
}

/// What a launch thread does next.
enum Work {
    Launch(Job),
    /// Something else that is to be born.
    Call(Call),
}

type Call = Box<dyn FnOnce(&mut Stack) + Send>;

struct State {
    queue: VecDeque<Work>,
    /// The thread ids of the launch threads.
    threads: Vec<u32>,
    busy: usize,
    /// When a job was last taken or done with.
    progress: Instant,
    closed: bool,
}

/// After this time without progress a launch thread counts as held by the kernel.
const STUCK: Duration = Duration::from_millis(50);

impl Launcher {
    /// Starts the first thread.
    pub(crate) fn start(
        tree: Option<Arc<Tree>>,
        notes: Option<Arc<Notes>>,
        keeper_command: Vec<OsString>,
        tell: Box<dyn Fn(Key, Outcome) + Send + Sync>,
    ) -> io::Result<Self> {
        let keeper_command = keeper_command
            .into_iter()
            .map(|word| CString::new(word.into_vec()))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|_| {
                io::Error::new(io::ErrorKind::InvalidInput, "the keeper's command has a zero byte")
            })?;
        let state = State {
            queue: VecDeque::new(),
            threads: Vec::new(),
            busy: 0,
            progress: Instant::now(),
            closed: false,
        };
        let (state, work) = (Mutex::new(state), Condvar::new());
        let shared = Arc::new(Shared { state, work, tree, notes, keeper_command, tell });
        let launcher = Self { shared };
        launcher.add_thread()?;
        Ok(launcher)
    }

    fn add_thread(&self) -> io::Result<()> {
        let stack = Stack::new()?;
        let shared = Arc::clone(&self.shared);
        std::thread::Builder::new()
            .name("mcpvisor-launch".into())
            .spawn(move || shared.serve(stack))
            .map(drop)
    }

    pub(crate) fn submit(&self, job: Job) {
        self.push(Work::Launch(job));
    }

    /// Has something else done that needs a launch thread, after what was submitted before.
    pub(crate) fn call(&self, call: Call) {
        self.push(Work::Call(call));
    }

    fn push(&self, work: Work) {
        self.shared.lock().queue.push_back(work);
        self.shared.work.notify_one();
    }

    /// Adds a thread where jobs wait and all threads are held. True: jobs wait, so ask again.
    pub(crate) fn relieve(&self) -> bool {
        let state = self.shared.lock();
        let waiting = !state.queue.is_empty();
        let held = state.busy >= state.threads.len() && state.progress.elapsed() >= STUCK;
        drop(state);
        if waiting && held {
            tracing::warn!("a start hangs in the kernel; another launch thread takes over");
            if let Err(error) = self.add_thread() {
                tracing::error!(%error, "no launch thread can be started");
            }
        }
        waiting
    }

    /// The thread ids of the launch threads: they are the parents of what was launched.
    pub(crate) fn threads(&self) -> Vec<u32> {
        self.shared.lock().threads.clone()
    }

    /// Lets the threads end; what they launched must be gone, since it dies with them.
    pub(crate) fn close(&self) {
        self.shared.lock().closed = true;
        self.shared.work.notify_all();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing that can panic runs under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self, mut stack: Stack) {
        let tid = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
        let mut state = self.lock();
        state.threads.push(tid);
        loop {
            if let Some(work) = state.queue.pop_front() {
                state.busy += 1;
                state.progress = Instant::now();
                drop(state);
                // A panic here would end the thread, and with it every process that it has started.
                match work {
                    Work::Launch(job) => {
                        let key = job.key;
                        let launch = std::panic::AssertUnwindSafe(|| self.launch(&mut stack, job));
                        let outcome = std::panic::catch_unwind(launch).unwrap_or_else(|_| {
                            Some(Outcome::Failed(error(LaunchErrorKind::Other, "the launch thread panicked")))
                        });
                        if let Some(outcome) = outcome {
                            (self.tell)(key, outcome);
                        }
                    }
                    Work::Call(call) => {
                        let call = std::panic::AssertUnwindSafe(|| call(&mut stack));
                        if std::panic::catch_unwind(call).is_err() {
                            tracing::error!("a launch thread's work panicked");
                        }
                    }
                }
                state = self.lock();
                state.busy -= 1;
                state.progress = Instant::now();
            } else if state.closed {
                state.threads.retain(|other| *other != tid);
                return;
            } else {
                state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    /// None: the launch was withdrawn in time.
    fn launch(&self, stack: &mut Stack, job: Job) -> Option<Outcome> {
        failpoints::pass_thread(Gate::LaunchJob);
        let (mut order, stdio) = job.cell.take()?;
        // Before anything is born: whatever becomes of us then, the next daemon knows whose it was.
        if let (Some(notes), Some(note)) = (&self.notes, order.note.take())
            && let Err(error) = notes.write(&job.scope.session, &note)
        {
            let session = &*job.scope.session;
            tracing::warn!(%error, session, "a session can't be noted: should this daemon be killed, its key is not blocked");
        }
        let result = match &self.tree {
            Some(tree) => into_cgroup(tree, stack, job, order, stdio),
            None => self.with_keeper(stack, job, order, stdio),
        };
        failpoints::pass_thread(Gate::LaunchBorn);
        Some(result.unwrap_or_else(Outcome::Failed))
    }

    fn with_keeper(
        &self,
        stack: &mut Stack,
        job: Job,
        order: Order,
        stdio: Stdio,
    ) -> Result<Outcome, LaunchError> {
        let broken = |what: &str, e: &dyn std::fmt::Display| {
            error(
                LaunchErrorKind::Other,
                format!("can't start the keeper that would contain it: {what}: {e}"),
            )
        };
        let Some(program) = self.keeper_command.first() else {
            return Err(broken("no command", &"the daemon's options name none"));
        };
        let Streams { child, ours } = Streams::open(stdio)?;
        let (connection, far) = keeper::Connection::pair().map_err(|e| broken("socketpair", &e))?;
        let null = || {
            let flags = OFlags::RDWR | OFlags::CLOEXEC;
            rustix::fs::open("/dev/null", flags, rustix::fs::Mode::empty()).map_err(io::Error::from)
        };
        let streams = (|| Ok([above_standard(far)?, above_standard(null()?)?, above_standard(null()?)?]))()
            .map_err(|e: io::Error| spawn_error("descriptors", &e))?;
        let env = keeper::environment(&job.marker);
        // No parent-death signal: the keeper must outlive us for as long as it has something to kill.
        let plan = sys::Plan::new(program.clone(), self.keeper_command.clone(), env, streams);
        failpoints::pass_thread(Gate::LaunchBirth);
        let spawned = sys::spawn(stack, &plan, None, &job.cell.born).map_err(|e| spawn_error("clone", &e))?;
        drop(plan);
        if let Some((_, errno)) = spawned.failure {
            let _ = sys::wait_exited(spawned.pid);
            let text = io::Error::from_raw_os_error(errno);
            let error = broken(&program.to_string_lossy(), &text);
            return Ok(Outcome::Stillborn { pid: spawned.pid, error });
        }
        let order = order.for_keeper(&job.resolved, &job.marker);
        let [stdin, stdout, stderr] = &child;
        let mut passed = vec![stdin.as_fd(), stdout.as_fd(), stderr.as_fd()];
        passed.extend(job.resolved.cwd.as_ref().map(|cwd| cwd.as_fd()));
        // A keeper that is dead already is noticed by the reaper, as the end of the connection.
        if let Err(error) = connection.send(&keeper::ToKeeper::Launch(Box::new(order)), &passed) {
            tracing::debug!(%error, "the order did not reach the keeper");
        }
        let ready = connection.set_nonblocking();
        let kept = Outcome::Kept {
            keeper: spawned.pid,
            connection,
            ends: ours,
            resolved: Box::new(job.resolved),
            at: Instant::now(),
        };
        if let Err(error) = ready {
            tracing::error!(%error, "the keeper's socket can't be made non-blocking");
        }
        Ok(kept)
    }
}

fn into_cgroup(
    tree: &Tree,
    stack: &mut Stack,
    job: Job,
    order: Order,
    stdio: Stdio,
) -> Result<Outcome, LaunchError> {
    let Streams { child, ours } = Streams::open(stdio)?;
    let limits = order.cgroup;
    let Job { scope, marker, cell, mut resolved, .. } = job;
    let cwd = resolved.cwd.take();
    let plan = order
        .plan(&resolved.program, resolved.head == Head::Binary, cwd, &marker, child)
        .die_with(std::process::id());
    let leaf = tree.create(&scope, limits).map_err(|e| spawn_error("can't make its cgroup", &e))?;
    failpoints::pass_thread(Gate::LaunchBirth);
    let spawned = match sys::spawn(stack, &plan, Some(leaf.as_fd()), &cell.born) {
        Ok(spawned) => spawned,
        Err(error) => {
            let _ = tree.remove(&scope);
            return Err(spawn_error("clone", &error));
        }
    };
    let at = Instant::now();
    if let Some((stage, errno)) = spawned.failure {
        // It is exiting. The reaper alone reaps.
        let _ = sys::wait_exited(spawned.pid);
        return Ok(Outcome::Stillborn { pid: spawned.pid, error: setup_error(stage, errno, &resolved) });
    }
    Ok(Outcome::Born { pid: spawned.pid, pidfd: spawned.pidfd, ends: ours, at })
}
