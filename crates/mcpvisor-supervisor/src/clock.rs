//! The one clock of the actors, and the one timer that each of them has.
use mcpvisor_lifecycle::Moment;
use ractor::{ActorRef, Message};
use std::time::Instant;
use tokio::task::AbortHandle;

/// Turns the kernel's monotonic clock into the machines' moments.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    start: Instant,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self { start: Instant::now() }
    }

    pub(crate) fn now(self) -> Moment {
        self.moment(Instant::now())
    }

    pub(crate) fn moment(self, at: Instant) -> Moment {
        let span = at.saturating_duration_since(self.start);
        Moment(u64::try_from(span.as_micros()).unwrap_or(u64::MAX))
    }

    pub(crate) fn uptime(self) -> std::time::Duration {
        self.start.elapsed()
    }

    pub(crate) fn instant(self, moment: Moment) -> Option<Instant> {
        self.start.checked_add(std::time::Duration::from_micros(moment.0))
    }
}

/// An actor's timer: armed for the machine's `next_timeout()`, re-armed only where that has changed.
#[derive(Debug, Default)]
pub(crate) struct Alarm {
    armed: Option<Moment>,
    task: Option<AbortHandle>,
}

impl Alarm {
    /// Arms the timer for `next`; `ring` is cast to `actor` when it comes, at or after that moment.
    pub(crate) fn set<M: Message>(
        &mut self,
        next: Option<Moment>,
        clock: Clock,
        actor: &ActorRef<M>,
        ring: impl FnOnce() -> M + Send + 'static,
    ) {
        if next == self.armed && self.task.as_ref().is_none_or(|task| !task.is_finished()) {
            return;
        }
        self.cancel();
        self.armed = next;
        // A moment past the end of the clock never comes.
        let Some(at) = next.and_then(|moment| clock.instant(moment)) else { return };
        let actor = actor.clone();
        let task = tokio::spawn(async move {
            tokio::time::sleep_until(at.into()).await;
            // An actor that has ended has no use for its timer.
            let _ = actor.send_message(ring());
        });
        self.task = Some(task.abort_handle());
    }

    fn cancel(&mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
        }
        self.armed = None;
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        self.cancel();
    }
}
