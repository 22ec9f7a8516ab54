//! Turns of calls: what a session's servers have together, and the clock of those that wait or take too long.
//!
//! Whose turn it is at one server is decided by its conversation's machine ([`mcpvisor_mcp::peer::turns`]), under the lock that a call
//! takes anyway. Here is what that machine can't know: the session's own limit, and the time.
use super::CallError;
use super::exclusive::End;
use super::shared::{Shared, State, Waiter, lock};
use mcpvisor_mcp::peer::turns::{Due, Late, Overdue, Started};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, Weak};
use std::time::Instant;

/// The calls that all servers of a session may have in flight together.
#[derive(Default)]
pub(crate) struct Together {
    /// None: as many as the servers take.
    limit: Option<usize>,
    running: AtomicUsize,
    /// Somebody found no place since one was last given back.
    starved: AtomicBool,
    /// Where the next round begins.
    round: AtomicUsize,
    members: Mutex<Vec<Weak<Shared>>>,
}

impl Together {
    pub(crate) fn new(limit: Option<usize>) -> Self {
        Self { limit, ..Self::default() }
    }

    /// A connection whose calls count.
    pub(super) fn join(&self, member: &Arc<Shared>) {
        if self.limit.is_some() {
            let mut members = lock(&self.members);
            members.retain(|known| known.strong_count() > 0);
            members.push(Arc::downgrade(member));
        }
    }

    /// Takes a place. Whoever finds none is woken when one is given back.
    pub(super) fn take(&self) -> bool {
        let Some(limit) = self.limit else { return true };
        let take = || {
            let more = |running: usize| (running < limit).then_some(running + 1);
            self.running.fetch_update(SeqCst, SeqCst, more).is_ok()
        };
        // A place that was given back before the flag could be seen is found by the second look.
        take() || {
            self.starved.store(true, SeqCst);
            take()
        }
    }

    /// Gives places back; whether somebody waits for one ([`Together::wake`]).
    fn give(&self, count: usize) -> bool {
        if count == 0 || self.limit.is_none() {
            return false;
        }
        self.running.fetch_sub(count, SeqCst);
        self.starved.swap(false, SeqCst)
    }

    /// Lets each connection begin what waits, another one first each time. Not to be called under a connection's `state`.
    pub(super) fn wake(&self) {
        let mut members: Vec<Arc<Shared>> = lock(&self.members).iter().filter_map(Weak::upgrade).collect();
        if members.is_empty() {
            return;
        }
        let first = self.round.fetch_add(1, SeqCst) % members.len();
        members.rotate_left(first);
        members.iter().for_each(|member| member.flush());
    }
}

impl State {
    /// Gives back the session's places of calls that have ended.
    pub(super) fn give_back(&mut self, together: &Together) {
        self.wake |= together.give(self.peer.take_freed());
    }
}

impl Shared {
    /// Begins calls whose turn has come and writes what fits. The pipe, if it is full.
    pub(super) fn push_out(&self, state: &mut State) -> Option<End> {
        let together = &self.slot.together;
        loop {
            let mut begun = false;
            if state.peer.queued() > 0 {
                state.give_back(together);
                let State { peer, outbox, failed, .. } = &mut *state;
                while let Some(due) = peer.next_turn(
                    Instant::now,
                    Waiter::is_wanted,
                    |bytes| outbox.has_room(bytes),
                    || together.take(),
                ) {
                    match due {
                        Due::Begins(Started { number, method, line }) => {
                            outbox.push(line, Some((number, &method)));
                            begun = true;
                        }
                        Due::Unwanted(waiter) => failed.push((waiter, CallError::GivenUp)),
                    }
                }
            }
            if begun {
                self.wind(state);
            }
            let blocked = state.flush();
            // What was written may have made room for more.
            if !begun || state.peer.queued() == 0 {
                return blocked;
            }
        }
    }

    /// A call's time has begun: the clock looks at it in time.
    pub(super) fn wind(&self, state: &mut State) {
        match (state.clock, self.next_look(state)) {
            (_, None) => {}
            (Some(at), Some(next)) if at <= next => {}
            (Some(_), next) => {
                state.clock = next;
                self.rewound.notify_one();
            }
            (None, next) => {
                state.clock = next;
                if let Some(shared) = self.me.upgrade() {
                    tokio::spawn(keep_time(shared));
                }
            }
        }
    }

    /// When a call that begins now is over at the earliest. The machine knows exactly and has to look through all that is pending for it;
    /// so the clock asks it when it looks, and who begins a call says no more than this.
    fn next_look(&self, state: &State) -> Option<Instant> {
        let limits = &self.options.calls;
        let queue = (state.peer.queued() > 0).then_some(limits.queue_timeout);
        let call = limits.call_timeout.map(|timeout| timeout.min(limits.call_timeout_max));
        let span = queue.into_iter().chain(call).min()?;
        Instant::now().checked_add(span)
    }

    /// Fails the calls whose time is over.
    fn time_is_over(&self) {
        let mut state = lock(&self.state);
        for Overdue { number, token, why } in state.peer.overdue(Instant::now()) {
            let error = match why {
                Late::Queued { load, after } => CallError::QueueTimeout { load, after },
                Late::Unanswered { overrun, line } => {
                    if !state.outbox.withdraw(number) {
                        state.outbox.push(line, None);
                    }
                    CallError::TimedOut(overrun)
                }
            };
            state.failed.push((token, error));
        }
        self.write(&mut state);
        self.unlock(state);
    }

    /// Nothing waits for its turn any more, now or later: who waited hears that the session is being closed.
    pub(super) fn stop_waiting(&self) {
        let mut state = lock(&self.state);
        for waiter in state.peer.stop_waiting() {
            state.failed.push((waiter, CallError::Closing));
        }
        self.unlock(state);
    }
}

/// Sleeps until a call's time may be over, for as long as there is one.
async fn keep_time(shared: Arc<Shared>) {
    loop {
        let at = {
            let mut state = lock(&shared.state);
            state.clock = state.peer.next_timeout();
            let Some(at) = state.clock else { return };
            at
        };
        tokio::select! {
            () = tokio::time::sleep_until(at.into()) => shared.time_is_over(),
            () = shared.rewound.notified() => {}
        }
    }
}

#[cfg(test)]
mod tests;
