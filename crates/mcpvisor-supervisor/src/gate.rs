//! The admission gate of a session: calls are admitted before the drain boundary, or refused (G11).
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Counts the calls in flight until it is closed, and those that end after. Cheap to clone; all clones are one gate.
#[derive(Clone, Default)]
pub(crate) struct Gate(Arc<Mutex<State>>);

/// A call that was admitted. Dropped without a word it counts as cancelled, so that no path can lose it.
#[must_use = "a dropped permit counts as cancelled"]
pub(crate) struct Permit(Option<Gate>);

/// The gate is closed: the call was not admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Closed;

/// How the calls ended that were in flight when the gate was closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Drained {
    pub(crate) finished: u64,
    pub(crate) cancelled: u64,
}

#[derive(Default)]
struct State {
    closed: bool,
    in_flight: usize,
    drained: Drained,
    on_empty: Vec<Box<dyn FnOnce() + Send>>,
}

impl Gate {
    /// Admits a call, or says that the gate is closed; nothing lies between.
    pub(crate) fn admit(&self) -> Result<Permit, Closed> {
        let mut state = self.state();
        if state.closed {
            return Err(Closed);
        }
        state.in_flight += 1;
        Ok(Permit(Some(self.clone())))
    }

    /// Closes the gate in one step: what is admitted by then is all that will ever be. `on_empty` is called exactly once when
    /// none of it is left, perhaps at once on this thread, else on that of the last permit; it must not block. Each further
    /// close adds another such call.
    pub(crate) fn close(&self, on_empty: Box<dyn FnOnce() + Send>) {
        let mut state = self.state();
        state.closed = true;
        state.on_empty.push(on_empty);
        Self::tell_if_empty(state);
    }

    /// Calls that are admitted and have not ended.
    pub(crate) fn in_flight(&self) -> usize {
        self.state().in_flight
    }

    /// How calls ended since the gate was closed.
    pub(crate) fn drained(&self) -> Drained {
        self.state().drained
    }

    fn leave(&self, count: impl FnOnce(&mut Drained)) {
        let mut state = self.state();
        state.in_flight -= 1;
        if state.closed {
            count(&mut state.drained);
        }
        Self::tell_if_empty(state);
    }

    /// In the same step that found it empty the callbacks are taken, so each is called once; they run without the lock.
    fn tell_if_empty(mut state: MutexGuard<'_, State>) {
        if state.closed && state.in_flight == 0 {
            let told = std::mem::take(&mut state.on_empty);
            drop(state);
            for on_empty in told {
                on_empty();
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No code that can panic runs under the lock, so a poisoned one is whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Permit {
    /// The call has had its answer.
    pub(crate) fn finish(mut self) {
        if let Some(gate) = self.0.take() {
            gate.leave(|drained| drained.finished += 1);
        }
    }

    /// There was no call after all: it counts as nothing.
    pub(crate) fn withdraw(mut self) {
        if let Some(gate) = self.0.take() {
            gate.leave(|_| ());
        }
    }

    /// The call was given up, by its caller or by the drain.
    pub(crate) fn cancel(self) {
        drop(self);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(gate) = self.0.take() {
            gate.leave(|drained| drained.cancelled += 1);
        }
    }
}

#[cfg(test)]
mod tests;
