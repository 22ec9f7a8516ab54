//! The admission gate of a session: calls are admitted before the drain boundary, or refused (G11); and what has happened there, for
//! the session's idle limit. Nobody is told of a call for that: whoever wants to know looks.
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// Counts the calls in flight until it is closed, and those that end after. Cheap to clone; all clones are one gate.
#[derive(Clone, Default)]
pub(crate) struct Gate(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// Tells those who wait at the parked gate to look again.
    turned: Notify,
}

/// A call that was admitted. Dropped without a word it counts as cancelled, so that no path can lose it.
#[must_use = "a dropped permit counts as cancelled"]
pub(crate) struct Permit(Option<Gate>);

/// A client that is attached, until it is dropped.
#[must_use = "a client whose presence is dropped has gone"]
pub(crate) struct Presence(Gate);

/// Someone who waits at the parked gate, until it is dropped.
#[must_use = "who does not wait is not counted"]
pub(crate) struct Waits(Gate);

/// What has happened at a gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seen {
    /// When a call last began or ended, a client came or went, or someone touched it.
    pub(crate) last: Instant,
    /// A call is in flight, or a client attached.
    pub(crate) busy: bool,
}

/// Why a call was not admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shut {
    /// The gate is closed, for good.
    Closed,
    /// The session's servers do not run: it is to be woken. Nobody who is counted as busy ever hears this.
    Parked,
    /// They could not be started again, and the session is about to be closed.
    Refused,
}

/// How the calls ended that were in flight when the gate was closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Drained {
    pub(crate) finished: u64,
    pub(crate) cancelled: u64,
}

struct State {
    closed: bool,
    parked: bool,
    refused: bool,
    in_flight: usize,
    present: usize,
    /// At the parked gate. They are not busy: what they wait for is the end of the parking.
    waiting: usize,
    last: Instant,
    drained: Drained,
    on_empty: Vec<Box<dyn FnOnce() + Send>>,
    on_quiet: Option<Box<dyn FnOnce() + Send>>,
}

impl Default for State {
    fn default() -> Self {
        Self {
            closed: false,
            parked: false,
            refused: false,
            in_flight: 0,
            present: 0,
            waiting: 0,
            last: Instant::now(),
            drained: Drained::default(),
            on_empty: Vec::new(),
            on_quiet: None,
        }
    }
}

impl State {
    fn open(&mut self, now: Instant) -> Result<(), Shut> {
        match (self.closed, self.refused, self.parked) {
            (true, _, _) => Err(Shut::Closed),
            (_, true, _) => Err(Shut::Refused),
            (_, _, true) => Err(Shut::Parked),
            _ => {
                self.last = now;
                Ok(())
            }
        }
    }

    fn seen(&self) -> Seen {
        Seen { last: self.last, busy: self.in_flight + self.present > 0 }
    }
}

impl Gate {
    /// Admits a call, or says why not; nothing lies between.
    pub(crate) fn admit(&self) -> Result<Permit, Shut> {
        self.admit_at(Instant::now())
    }

    /// The same for one who admits many calls with one look at the clock.
    pub(crate) fn admit_at(&self, now: Instant) -> Result<Permit, Shut> {
        let mut state = self.state();
        state.open(now)?;
        state.in_flight += 1;
        Ok(Permit(Some(self.clone())))
    }

    /// Notes that a client is attached, or says why none can be; nothing lies between.
    pub(crate) fn enter(&self) -> Result<Presence, Shut> {
        let mut state = self.state();
        state.open(Instant::now())?;
        state.present += 1;
        Ok(Presence(self.clone()))
    }

    /// Someone uses the session otherwise.
    pub(crate) fn touch(&self) {
        self.state().last = Instant::now();
    }

    /// What has happened.
    pub(crate) fn seen(&self) -> Seen {
        self.state().seen()
    }

    /// The same. Where it is busy, `on_quiet` is called once when it is not any more, in the place of that of an earlier look, on the
    /// thread of the last permit or presence; it must not block.
    pub(crate) fn look(&self, on_quiet: Box<dyn FnOnce() + Send>) -> Seen {
        let mut state = self.state();
        let seen = state.seen();
        state.on_quiet = seen.busy.then_some(on_quiet);
        seen
    }

    /// Closes the gate if it is `over` with what has happened there; nothing lies between. The session is to be closed then.
    pub(crate) fn retire(&self, over: impl FnOnce(Seen) -> bool) -> bool {
        let mut state = self.state();
        let retired = !state.closed && over(state.seen());
        state.closed |= retired;
        retired
    }

    /// Parks the gate if nothing is in flight, nobody attached, and it is `over` with what has happened there; nothing lies between.
    pub(crate) fn park(&self, over: impl FnOnce(Seen) -> bool) -> bool {
        let mut state = self.state();
        let seen = state.seen();
        let parked = !state.closed && !seen.busy && over(seen);
        state.parked |= parked;
        parked
    }

    /// The servers run again: whoever waits is admitted.
    pub(crate) fn unpark(&self) {
        {
            let mut state = self.state();
            state.parked = false;
            state.last = Instant::now();
        }
        self.0.turned.notify_waiters();
    }

    /// They do not, and will not.
    pub(crate) fn refuse(&self) {
        self.state().refused = true;
        self.0.turned.notify_waiters();
    }

    pub(crate) fn is_parked(&self) -> bool {
        let state = self.state();
        state.parked && !state.closed
    }

    /// Counts one who waits for the servers to run again.
    pub(crate) fn wait(&self) -> Waits {
        self.state().waiting += 1;
        Waits(self.clone())
    }

    /// How many wait for that.
    pub(crate) fn waiting(&self) -> usize {
        self.state().waiting
    }

    /// Resolves when there is reason to try again. To be enabled before the try.
    pub(crate) fn turned(&self) -> Notified<'_> {
        self.0.turned.notified()
    }

    /// Closes the gate in one step: what is admitted by then is all that will ever be. `on_empty` is called exactly once when
    /// none of it is left, perhaps at once on this thread, else on that of the last permit; it must not block. Each further
    /// close adds another such call.
    pub(crate) fn close(&self, on_empty: Box<dyn FnOnce() + Send>) {
        let mut state = self.state();
        state.closed = true;
        state.on_empty.push(on_empty);
        Self::tell_if_empty(state);
        self.0.turned.notify_waiters();
    }

    /// Calls that are admitted and have not ended.
    pub(crate) fn in_flight(&self) -> usize {
        self.state().in_flight
    }

    /// How calls ended since the gate was closed.
    pub(crate) fn drained(&self) -> Drained {
        self.state().drained
    }

    /// These calls, all of this gate, have had their answers: as [`Permit::finish`] of each, in one step.
    pub(crate) fn finish(&self, permits: &mut Vec<Permit>) {
        let count = permits.len();
        if count == 0 {
            return;
        }
        for mut permit in permits.drain(..) {
            let gate = permit.0.take();
            debug_assert!(
                gate.is_some_and(|gate| Arc::ptr_eq(&gate.0, &self.0)),
                "the permit is another gate's"
            );
        }
        self.leave(count, |drained| drained.finished += count as u64);
    }

    fn leave(&self, calls: usize, count: impl FnOnce(&mut Drained)) {
        let mut state = self.state();
        state.in_flight -= calls;
        state.last = Instant::now();
        if state.closed {
            count(&mut state.drained);
        }
        let quiet = Self::quiet(&mut state);
        Self::tell_if_empty(state);
        if let Some(on_quiet) = quiet {
            on_quiet();
        }
    }

    fn quiet(state: &mut State) -> Option<Box<dyn FnOnce() + Send>> {
        if state.seen().busy { None } else { state.on_quiet.take() }
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
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Permit {
    /// The call has had its answer.
    pub(crate) fn finish(mut self) {
        if let Some(gate) = self.0.take() {
            gate.leave(1, |drained| drained.finished += 1);
        }
    }

    /// There was no call after all: it counts as nothing.
    pub(crate) fn withdraw(mut self) {
        if let Some(gate) = self.0.take() {
            gate.leave(1, |_| ());
        }
    }

    /// The call was given up, by its caller or by the drain.
    pub(crate) fn cancel(self) {
        drop(self);
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        self.0.state().waiting -= 1;
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.present -= 1;
        state.last = Instant::now();
        let quiet = Gate::quiet(&mut state);
        drop(state);
        if let Some(on_quiet) = quiet {
            on_quiet();
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(gate) = self.0.take() {
            gate.leave(1, |drained| drained.cancelled += 1);
        }
    }
}

#[cfg(test)]
mod tests;
