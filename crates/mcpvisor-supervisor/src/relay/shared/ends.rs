//! How a connection comes to its end: what becomes of the calls that wait, and of those in flight.
use super::{Shared, State, lock};
use crate::relay::{CallError, ConnectionStats};
use mcpvisor_mcp::HandshakeError;
use std::sync::Arc;

impl Shared {
    pub(in crate::relay) fn close_stdin(&self) {
        let mut state = lock(&self.state);
        state.over.get_or_insert_with(|| CallError::Settled("the server is being stopped".into()));
        for waiter in state.peer.stop_waiting() {
            state.failed.push((waiter, CallError::NotWritten));
        }
        state.outbox.close();
        self.write(&mut state);
        self.unlock(state);
    }

    pub(in crate::relay) fn retire(&self, error: CallError, on_quiet: Box<dyn FnOnce() + Send>) {
        let mut state = lock(&self.state);
        state.over.get_or_insert(error);
        state.on_quiet.get_or_insert(on_quiet);
        self.unlock(state);
    }

    /// `error` is that of each call, and of all that come.
    pub(in crate::relay) fn settle(&self, error: &CallError) -> usize {
        let reason: Arc<str> = error.to_string().into();
        let mut state = lock(&self.state);
        state.over.get_or_insert_with(|| error.clone());
        let own = [state.own.take(), state.health.take()];
        let mut count = 0;
        let unwritten = error.unwritten();
        for waiter in state.peer.stop_waiting() {
            count += 1;
            state.failed.push((waiter, unwritten.clone()));
        }
        for cancelled in state.peer.settle(&reason) {
            if !state.outbox.withdraw(cancelled.number) {
                state.outbox.push(cancelled.line, None);
            }
            count += usize::from(!own.contains(&Some(cancelled.number)));
            state.failed.push((cancelled.token, error.clone()));
        }
        self.handshake_over(Err(HandshakeError::Settled(reason)));
        self.write(&mut state);
        self.unlock(state);
        count
    }

    /// The server's output has ended: nothing will be answered any more.
    pub(in crate::relay) fn output_ended(&self, state: &mut State) {
        // A reason that was given before is the better one.
        state.over.get_or_insert(CallError::ServerExited);
        let waited = state.peer.stop_waiting();
        state.failed.extend(waited.into_iter().map(|waiter| (waiter, CallError::NotWritten)));
        let pending = state.peer.fail_all();
        state.failed.extend(pending.into_iter().map(|waiter| (waiter, CallError::ServerExited)));
        (state.own, state.health) = (None, None);
        self.handshake_over(Err(HandshakeError::ServerExited));
    }

    pub(in crate::relay) fn end(&self) {
        self.finish_reading();
        let mut state = lock(&self.state);
        self.output_ended(&mut state);
        state.outbox.abandon();
        self.unlock(state);
        self.rewound.notify_one();
        for client in self.slot.clients().iter() {
            client.server_gone(self.slot.server());
        }
        let tasks = std::mem::take(&mut *lock(&self.tasks));
        if !tasks.is_empty() {
            let ConnectionStats { passed_over, torn_bytes, unwritten_lines, .. } = self.stats();
            let _entered = self.span.enter();
            tracing::debug!(?passed_over, torn_bytes, unwritten_lines, "the connection has ended");
        }
        for task in tasks {
            task.abort();
        }
    }
}
