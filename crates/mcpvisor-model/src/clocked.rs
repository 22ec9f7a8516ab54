//! A machine with a clock of its own. See "Time" in `docs/model.md`.
use crate::shared::Part;
use mcpvisor_lifecycle::Moment;
use mcpvisor_lifecycle::registry::{Registry, RegistryEffect, RegistryEvent};
use mcpvisor_lifecycle::server::{Server, ServerEffect, ServerEvent};
use mcpvisor_lifecycle::session::{Session, SessionEffect, SessionEvent};
use std::hash::Hash;

/// Timers behind this are not waited for: memory of ended sessions outlasts a history, unless a configuration says otherwise.
const HORIZON: Moment = Moment(1_000_000_000_000);

/// What the three machines have in common.
pub(crate) trait Machine: Clone + Eq + Hash {
    type Event;
    type Effect;
    const TIMEOUT: Self::Event;
    fn advance(&mut self, now: Moment, event: Self::Event) -> Vec<Self::Effect>;
    fn due(&self) -> Option<Moment>;
}

macro_rules! machine {
    ($machine:ident, $event:ident, $effect:ident) => {
        impl Machine for $machine {
            type Event = $event;
            type Effect = $effect;
            const TIMEOUT: $event = $event::Timeout;
            fn advance(&mut self, now: Moment, event: $event) -> Vec<$effect> {
                self.step(now, event)
            }
            fn due(&self) -> Option<Moment> {
                self.next_timeout()
            }
        }
    };
}
machine!(Registry, RegistryEvent, RegistryEffect);
machine!(Session, SessionEvent, SessionEffect);
machine!(Server, ServerEvent, ServerEffect);

/// The clock stands still until the machine's own timer fires.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Clocked<M> {
    pub(crate) machine: M,
    pub(crate) clock: Moment,
}

impl<M: Machine> Part for Clocked<M> {}

impl<M: Machine> Clocked<M> {
    pub(crate) fn new(machine: M) -> Self {
        Self { machine, clock: Moment(0) }
    }

    pub(crate) fn step(&mut self, event: M::Event) -> Vec<M::Effect> {
        self.machine.advance(self.clock, event)
    }

    /// The moment at which the armed timer is due, if it is worth waiting for.
    pub(crate) fn due(&self) -> Option<Moment> {
        self.machine.due().filter(|due| *due < HORIZON)
    }

    /// The armed timer fires.
    pub(crate) fn fire(&mut self) -> Vec<M::Effect> {
        self.clock = self.machine.due().map_or(self.clock, |due| due.max(self.clock));
        self.machine.advance(self.clock, M::TIMEOUT)
    }
}
