//! Through the gate of a session that may be parked.
use super::Supervisor;
use crate::api::Failure;
use crate::gate::{Gate, Permit, Presence, Shut};
use crate::record::SessionRecord;
use crate::session_actor::SessionMsg;
use mcpvisor_failpoints as failpoints;
use mcpvisor_lifecycle::registry::RegistryEvent;
use mcpvisor_lifecycle::server::ServerState;
use std::sync::atomic::Ordering;

impl Supervisor {
    /// Admits a call. A session that is parked is started first: once, however many wait for it, and it goes on if they give up.
    ///
    /// # Errors
    /// `SessionClosing`; `StartFailed` of a parked session whose servers could not be started again.
    pub(super) async fn admit(&self, record: &SessionRecord) -> Result<Permit, Failure> {
        let permit = through(record, Gate::admit).await?;
        self.used(record);
        Ok(permit)
    }

    /// The same for a client that is to be attached; it holds off idleness from now on.
    ///
    /// # Errors
    /// As of [`admit`](Self::admit).
    pub(super) async fn enter(&self, record: &SessionRecord) -> Result<Presence, Failure> {
        let presence = through(record, Gate::enter).await?;
        self.used(record);
        Ok(presence)
    }

    /// The registry knows from the first one on that somebody uses the session.
    pub(super) fn used(&self, record: &SessionRecord) {
        if !record.used.swap(true, Ordering::Relaxed) {
            self.core.tell(RegistryEvent::Used { session: record.id });
        }
    }
}

async fn through<T>(record: &SessionRecord, pass: impl Fn(&Gate) -> Result<T, Shut>) -> Result<T, Failure> {
    let mut waits = None;
    loop {
        let turned = record.gate.turned();
        tokio::pin!(turned);
        // Before the try: what turns after it is not missed.
        turned.as_mut().enable();
        match pass(&record.gate) {
            Ok(passed) => return Ok(passed),
            Err(Shut::Closed) => return Err(Failure::SessionClosing { session: record.id }),
            Err(Shut::Refused) => return Err(not_started(record)),
            // Who waits for it uses it: it is not the one to make room.
            Err(Shut::Parked) => record.gate.touch(),
        }
        waits.get_or_insert_with(|| record.gate.wait());
        let actor = record.live().actor.clone();
        if let Some(actor) = actor {
            // One that is lost leads to the gate's end, too.
            let _ = actor.send_message(SessionMsg::Wake);
        }
        turned.await;
        failpoints::pass(failpoints::Gate::WakeTurned).await;
    }
}

fn not_started(record: &SessionRecord) -> Failure {
    let failed = record.servers().iter().find_map(|server| {
        let live = server.live();
        live.failure.clone().filter(|_| live.state == ServerState::Failed)
    });
    let timeout = failed.as_ref().is_some_and(|failure| failure.cause == "timeout");
    Failure::StartFailed { session: record.id, timeout, failure: failed.map(Box::new) }
}
