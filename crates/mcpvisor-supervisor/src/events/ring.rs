//! The newest events of one user, within bounds.
use super::{Event, EventLimits};
use std::collections::VecDeque;
use std::sync::Arc;

/// See the module. Numbers begin with 1 and have no gap, so that an event's place follows from its number.
#[derive(Debug)]
pub(super) struct Ring {
    events: VecDeque<Arc<Event>>,
    bytes: usize,
    /// The number of the next event.
    next: u64,
}

impl Default for Ring {
    fn default() -> Self {
        Self { events: VecDeque::new(), bytes: 0, next: 1 }
    }
}

impl Ring {
    /// The number of the next event.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// The number of the oldest event that is kept; that of the next where there is none.
    pub(super) fn oldest(&self) -> u64 {
        self.next - self.events.len() as u64
    }

    /// Takes an event whose number is [`next`](Self::next).
    pub(super) fn push(&mut self, event: Arc<Event>, limits: EventLimits) {
        debug_assert_eq!(event.seq, self.next, "events are numbered without gaps");
        self.next += 1;
        self.bytes += event.cost();
        self.events.push_back(event);
        while self.events.len() > limits.events || self.bytes > limits.bytes {
            let Some(oldest) = self.events.pop_front() else { break };
            self.bytes -= oldest.cost();
        }
    }

    /// The event of this number, if it is kept still.
    pub(super) fn get(&self, seq: u64) -> Option<&Arc<Event>> {
        let place = seq.checked_sub(self.oldest())?;
        self.events.get(usize::try_from(place).ok()?)
    }
}
