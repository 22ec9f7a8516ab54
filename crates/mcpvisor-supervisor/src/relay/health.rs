//! Whether the server is still there, and what a start waits for.
use super::Connection;
use super::shared::{State, Waiter, lock};
use mcpvisor_mcp::{Era, ListKind, RequestNumber};
use std::sync::atomic::Ordering;

/// What is known of a server's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Look {
    /// A byte has come since the last look.
    pub(crate) heard: bool,
    /// A call is in flight.
    pub(crate) busy: bool,
}

impl Connection {
    /// Looks, and forgets what was heard.
    pub(crate) fn look(&self) -> Look {
        let heard = self.shared.heard.swap(false, Ordering::Relaxed);
        Look { heard, busy: lock(&self.shared.state).is_busy() }
    }

    /// Asks whether the server is still there; a question that has had no answer is given up. The method that is asked.
    pub(crate) fn ask_health(&self) -> &'static str {
        let mut state = lock(&self.shared.state);
        let method = state.ask_health();
        self.shared.write(&mut state);
        self.shared.unlock(state);
        method
    }

    /// The answer that a start waits for.
    pub(crate) fn waits_for(&self) -> Option<String> {
        let state = lock(&self.shared.state);
        if let Some(method) = state.peer.handshake_step() {
            return Some(method.to_owned());
        }
        state.page.map(|(kind, page)| match page {
            1 => kind.method().to_owned(),
            _ => format!("{}, page {page}", kind.method()),
        })
    }

    /// A page of a list is being asked for; none once the list is whole.
    pub(super) fn asks_page(&self, page: Option<(ListKind, u32)>) {
        lock(&self.shared.state).page = page;
    }
}

impl State {
    fn is_busy(&mut self) -> bool {
        self.listens.retain(|number| self.peer.waiter(*number).is_some());
        self.in_flight() - self.peer.queued() > self.listens.len()
    }

    fn ask_health(&mut self) -> &'static str {
        if let Some(former) = self.health.take() {
            // The server is not told: it reads nothing, or would have answered.
            if self.outbox.withdraw(former) {
                self.peer.withdraw(former);
            } else {
                self.peer.cancel(former, "it had no answer");
            }
        }
        let modern = self.peer.negotiated().is_some_and(|negotiated| negotiated.era == Era::Modern);
        let method = if modern { "server/discover" } else { "ping" };
        if let Ok(sent) = self.peer.request_with(Waiter::Health, method, &serde_json::Map::new()) {
            self.ask_with(sent.number, method, sent.line);
        }
        method
    }

    /// One for which there is no room is one without an answer: the server does not read.
    fn ask_with(&mut self, number: RequestNumber, method: &'static str, line: Vec<u8>) {
        if self.outbox.push(line, Some((number, method))) {
            self.health = Some(number);
        } else {
            self.peer.withdraw(number);
        }
    }
}
