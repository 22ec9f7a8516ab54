//! Whoever waits for a call.
use crate::repeats::Gone;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use tokio::sync::watch;

/// Whoever waits for a call. That it has given up is known here at once, before any of its requests is taken back: so that of several
/// that are given up at one moment none is written with the room that another makes (G31).
#[derive(Debug, Clone)]
pub struct Requester {
    /// The process that asks. Processes take turns where calls wait for a server.
    pub process: u32,
    deadline: Option<Instant>,
    gone: watch::Receiver<Option<Gone>>,
    reached: Arc<AtomicBool>,
}

/// Why nobody waits for a call any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GivenUp {
    /// Its requester has gone, or said that it wants no answer.
    Gone,
    /// Its requester's patience has ended.
    Deadline,
}

impl Requester {
    /// Of one call. `gone` is written when it has gone; one whose sender is dropped has gone, too.
    #[must_use]
    pub fn new(process: u32, deadline: Option<Instant>, gone: watch::Receiver<Option<Gone>>) -> Self {
        Self { process, deadline, gone, reached: Arc::default() }
    }

    /// Why it does not wait any more; None while it does.
    pub(crate) fn given_up(&self) -> Option<GivenUp> {
        if self.gone.borrow().is_some() || self.gone.has_changed().is_err() {
            return Some(GivenUp::Gone);
        }
        self.deadline.filter(|at| *at <= Instant::now()).map(|_| GivenUp::Deadline)
    }

    /// Resolves when it does not wait any more.
    pub(crate) async fn gives_up(&self) -> GivenUp {
        let mut gone = self.gone.clone();
        let gone = async move {
            // Without the sender it has gone, too.
            let _ = gone.wait_for(Option::is_some).await;
        };
        match self.deadline {
            None => {
                gone.await;
                GivenUp::Gone
            }
            Some(at) => match tokio::time::timeout_at(at.into(), gone).await {
                Ok(()) => GivenUp::Gone,
                Err(_) => GivenUp::Deadline,
            },
        }
    }

    /// Its call was given up, and may have reached its server.
    pub(crate) fn note_reached(&self) {
        self.reached.store(true, Ordering::Relaxed);
    }

    /// Whether a call of its that was given up may have reached a server.
    pub(crate) fn has_reached(&self) -> bool {
        self.reached.load(Ordering::Relaxed)
    }
}
