//! A thread of its own writes the records, so that a terminal that is stopped or a pipe that is full never holds up the daemon.
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Records that wait at most; more are dropped and counted.
const LONGEST_QUEUE: usize = 4096;
/// How long the end waits for what is still queued.
const PATIENCE: Duration = Duration::from_secs(1);

/// Where lines are put.
#[derive(Debug, Clone)]
pub(crate) struct Queue {
    lines: SyncSender<Job>,
    dropped: Arc<AtomicU64>,
}

#[derive(Debug)]
enum Job {
    Line(String),
    End,
}

/// The thread; dropping it writes what is queued, for a second at most.
#[derive(Debug)]
pub(crate) struct Writer {
    queue: Queue,
    thread: Option<JoinHandle<()>>,
}

impl Queue {
    /// Never blocks.
    pub(crate) fn put(&self, line: String) {
        if let Err(TrySendError::Full(_)) = self.lines.try_send(Job::Line(line)) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Writer {
    pub(crate) fn start(to: impl Write + Send + 'static) -> io::Result<Self> {
        let (lines, jobs) = sync_channel(LONGEST_QUEUE);
        let dropped = Arc::new(AtomicU64::new(0));
        let queue = Queue { lines, dropped: Arc::clone(&dropped) };
        let thread =
            std::thread::Builder::new().name("log".into()).spawn(move || write(to, &jobs, &dropped))?;
        Ok(Self { queue, thread: Some(thread) })
    }

    pub(crate) fn queue(&self) -> Queue {
        self.queue.clone()
    }
}

fn write(mut to: impl Write, jobs: &Receiver<Job>, dropped: &AtomicU64) {
    while let Ok(Job::Line(line)) = jobs.recv() {
        // Where nobody reads any more there is nobody to tell.
        let _ = to.write_all(line.as_bytes());
        let lost = dropped.swap(0, Ordering::Relaxed);
        if lost > 0 {
            let _ = writeln!(to, "{lost} records were dropped here: nobody took them in time");
        }
    }
    let _ = to.flush();
}

impl Drop for Writer {
    fn drop(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        let Some(thread) = self.thread.take() else { return };
        // A full queue is emptied by the thread, unless nobody takes what it writes.
        while let Err(TrySendError::Full(_)) = self.queue.lines.try_send(Job::End) {
            if Instant::now() >= deadline {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        while !thread.is_finished() {
            if Instant::now() >= deadline {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let _ = thread.join();
    }
}
