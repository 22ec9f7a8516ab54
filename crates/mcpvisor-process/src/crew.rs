//! Disposable threads for work that may hang in the kernel: opening files, reading other processes' memory.
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

type Work = Box<dyn FnOnce() + Send>;

/// A pool that starts a thread whenever none is idle, since any of them may be stuck for ever, and keeps a few idle ones.
#[derive(Clone)]
pub(crate) struct Crew {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    work: Condvar,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Work>,
    idle: usize,
    closed: bool,
}

impl fmt::Debug for Crew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Crew").finish_non_exhaustive()
    }
}

impl Crew {
    /// How many threads wait for more work.
    const IDLE: usize = 2;

    pub(crate) fn new() -> Self {
        Self { shared: Arc::new(Shared { state: Mutex::default(), work: Condvar::new() }) }
    }

    /// Has the work done on some thread. Fails where no thread can be started.
    pub(crate) fn run(&self, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let mut state = self.shared.lock();
        if state.idle > state.queue.len() {
            state.queue.push_back(Box::new(work));
            // Not under the lock: the thread that is woken needs it.
            drop(state);
            self.shared.work.notify_one();
            return Ok(());
        }
        drop(state);
        let shared = Arc::clone(&self.shared);
        let thread = std::thread::Builder::new().name("mcpvisor-open".into()).stack_size(128 * 1024);
        thread.spawn(move || shared.serve(Box::new(work))).map(drop)
    }

    /// Lets idle threads end.
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

    fn serve(&self, first: Work) {
        let mut next = Some(first);
        loop {
            if let Some(work) = next.take()
                && std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).is_err()
            {
                tracing::error!("a disposable thread's work panicked");
            }
            let mut state = self.lock();
            while state.queue.is_empty() {
                if state.closed || state.idle >= Crew::IDLE {
                    return;
                }
                state.idle += 1;
                state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.idle -= 1;
            }
            next = state.queue.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    #[test]
    fn stuck_work_holds_up_no_other() {
        let crew = Crew::new();
        let (release, gate) = channel::<()>();
        let gate = Arc::new(Mutex::new(gate));
        for _ in 0..3 {
            let gate = Arc::clone(&gate);
            crew.run(move || {
                let _ = gate.lock().unwrap().recv();
            })
            .unwrap();
        }
        let (sender, done) = channel();
        crew.run(move || sender.send(7).unwrap()).unwrap();
        assert_eq!(done.recv_timeout(Duration::from_secs(10)).unwrap(), 7);
        drop(release);
        crew.close();
    }
}
