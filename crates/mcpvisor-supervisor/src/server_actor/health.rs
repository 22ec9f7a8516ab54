//! What the server's machine is told of its health.
use super::{Driver, ServerMsg};
use crate::record::ServerRecord;
use mcpvisor_lifecycle::server::{ServerEvent, ServerState};
use ractor::ActorRef;

impl Driver {
    /// The machine's time has come; of a server that is watched it hears first what the connection knows.
    pub(super) fn look(&mut self, myself: &ActorRef<ServerMsg>) {
        let watched = self.machine.is_watched();
        let due = self.machine.next_timeout() <= Some(self.arguments.clock.now());
        let connection = self.arguments.record.any_connection().filter(|_| watched && due);
        if let Some((connection, incarnation)) = connection.zip(self.machine.incarnation()) {
            let look = connection.look();
            self.step(myself, ServerEvent::Looked { incarnation, heard: look.heard, busy: look.busy });
        }
        self.step(myself, ServerEvent::Timeout);
        if watched && self.machine.state() == ServerState::Stopping {
            let text = self.arguments.record.deaf(self.asked);
            tracing::warn!("{text}");
            self.cause.get_or_insert(("unhealthy", text));
        }
    }
}

impl ServerRecord {
    /// In a sentence.
    fn deaf(&self, asked: &str) -> String {
        let Some(health) = self.spec.health else { return "it gave no sign of life".to_owned() };
        format!(
            "it gave no sign of life for {} ms, and then did not answer `{asked}` {} times within {} ms each",
            health.interval.as_millis(),
            health.misses,
            health.timeout.as_millis()
        )
    }

    /// What its start waits for, in a word or two.
    pub(super) fn waits_for(&self) -> String {
        let connection = self.any_connection();
        connection.and_then(|connection| connection.waits_for()).unwrap_or_else(|| "launch".to_owned())
    }
}
