//! A thread of its own writes the records, so that a terminal that is stopped or a pipe that is full never holds up the daemon.
use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Records that wait at most; more are dropped and counted.
const LONGEST_QUEUE: usize = 4096;
/// How long the end waits for what is still queued.
const PATIENCE: Duration = Duration::from_secs(1);

/// Where lines are put.
#[derive(Debug, Clone)]
pub(crate) struct Queue {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    filled: Condvar,
}

#[derive(Debug, Default)]
struct State {
    lines: VecDeque<String>,
    /// Since the last line that is queued.
    dropped: u64,
    ended: bool,
}

/// The thread; dropping it writes what is queued, for a second at most.
#[derive(Debug)]
pub(crate) struct Writer {
    queue: Queue,
    done: Receiver<()>,
}

impl Queue {
    /// Never blocks for longer than a line takes to be queued.
    pub(crate) fn put(&self, line: String) {
        let mut state = self.state();
        if state.lines.len() < LONGEST_QUEUE {
            state.lines.push_back(line);
        } else {
            state.dropped += 1;
        }
        // Not under the lock: the thread that is woken needs it.
        drop(state);
        self.shared.filled.notify_one();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next line, with what was dropped after it; None at the end.
    fn next(&self) -> Option<(String, u64)> {
        let mut state = self.state();
        loop {
            if let Some(line) = state.lines.pop_front() {
                let dropped = if state.lines.is_empty() { std::mem::take(&mut state.dropped) } else { 0 };
                return Some((line, dropped));
            }
            if state.ended {
                return None;
            }
            state = self.shared.filled.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Writer {
    pub(crate) fn start(mut to: impl Write + Send + 'static) -> io::Result<Self> {
        let queue = Queue { shared: Arc::default() };
        let (tell, done) = channel();
        let lines = queue.clone();
        std::thread::Builder::new().name("log".into()).spawn(move || {
            while let Some((line, dropped)) = lines.next() {
                // Where nobody reads any more there is nobody to tell.
                let _ = to.write_all(line.as_bytes());
                if dropped > 0 {
                    let _ = writeln!(to, "{dropped} records were dropped here: nobody took them in time");
                }
            }
            let _ = to.flush();
            let _ = tell.send(());
        })?;
        Ok(Self { queue, done })
    }

    pub(crate) fn queue(&self) -> Queue {
        self.queue.clone()
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.queue.state().ended = true;
        self.queue.shared.filled.notify_one();
        // A thread that is stuck in a write is left behind.
        let _ = self.done.recv_timeout(PATIENCE);
    }
}
