//! Servers that are added, removed and started again while the session lives.
use super::{Driver, SessionMsg};
use crate::api::ServerSpec;
use crate::lost;
use crate::record::ServerRecord;
use mcpvisor_lifecycle::server::ServerReport;
use mcpvisor_lifecycle::session::{ChangeRefusal, Changed, SessionEvent, SessionServer};
use mcpvisor_lifecycle::{Place, RequestId, ServerName};
use ractor::ActorRef;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

const REMOVED: &str = "was removed from the session";
const RESTARTED: &str = "is being started again";

/// What is asked for.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    pub(crate) request: RequestId,
    pub(crate) name: ServerName,
    pub(crate) what: What,
}

/// Which change.
#[derive(Debug, Clone, Copy)]
pub(crate) enum What {
    Add {
        required: bool,
        significant: bool,
    },
    /// In the place of the server that has the name.
    Replace {
        required: bool,
        significant: bool,
    },
    Remove {
        drain: Option<Duration>,
    },
    Restart {
        drain: Option<Duration>,
    },
    /// To be stopped, and to stay a member.
    Yield,
}

/// The answer, with the server that it speaks of, and what could not be killed.
pub(crate) struct ChangeReply {
    pub(crate) result: Result<Changed, ChangeRefusal>,
    pub(crate) server: Option<Arc<ServerRecord>>,
    pub(crate) remaining: Vec<(u32, String)>,
}

impl Change {
    pub(super) fn event(self) -> SessionEvent {
        let Self { request, name, what } = self;
        match what {
            What::Add { required, significant } => {
                let server = SessionServer { name, required, significant };
                SessionEvent::Add { request, server, replace: false }
            }
            What::Replace { required, significant } => {
                let server = SessionServer { name, required, significant };
                SessionEvent::Add { request, server, replace: true }
            }
            What::Remove { drain } => SessionEvent::Remove { request, name, drain },
            What::Yield => SessionEvent::Yield { request, name },
            What::Restart { drain } => SessionEvent::Restart { request, name, drain },
        }
    }
}

/// What is asked for and not answered.
#[derive(Default)]
pub(super) struct Changes {
    replies: HashMap<RequestId, oneshot::Sender<ChangeReply>>,
    /// What is to be added.
    specs: HashMap<RequestId, Box<ServerSpec>>,
    /// Those of this step: an answer may still speak of them.
    forgotten: Vec<Arc<ServerRecord>>,
}

impl Changes {
    pub(super) fn begin(
        &mut self,
        change: &Change,
        spec: Option<Box<ServerSpec>>,
        reply: oneshot::Sender<ChangeReply>,
    ) {
        self.replies.insert(change.request, reply);
        self.specs.extend(spec.map(|spec| (change.request, spec)));
    }

    pub(super) fn cancel(&mut self, request: RequestId) {
        self.replies.remove(&request);
        self.specs.remove(&request);
    }

    pub(super) fn step_is_over(&mut self) {
        self.forgotten.clear();
    }
}

impl Driver {
    pub(super) fn create(&mut self, request: RequestId, server: Place, replaces: Option<Place>) {
        let Some(mut spec) = self.changes.specs.remove(&request) else {
            tracing::error!("a server is to be added whose definition is gone");
            return;
        };
        let index = server.0 as usize;
        let rank = replaces.and_then(|old| self.record.roster.at(old)).map_or(index, |old| old.rank);
        self.core.environments.share(&mut spec.env);
        let record = Arc::new(ServerRecord::new(index, rank, *spec));
        tracing::debug!(server = %record.spec.name, "a server is being added");
        self.record.roster.add(&record);
    }

    pub(super) fn publish(&self, server: Place, replaces: Option<Place>) {
        let Some(record) = self.record.roster.at(server) else { return };
        self.record.roster.publish(&record, replaces);
        if let Some(client) = self.record.slot.client() {
            client.server_joined(&record, replaces.map(|old| old.0 as usize));
        }
        self.record.tell_added(&record, replaces.is_some());
        tracing::info!(server = %record.spec.name, replaces = replaces.is_some(), "server added");
    }

    pub(super) fn retire(&self, myself: &ActorRef<SessionMsg>, server: Place) {
        self.record.roster.retire(server);
        let Some(record) = self.record.roster.at(server) else { return };
        if let Some(client) = self.record.slot.client() {
            client.server_left(record.index);
        }
        self.record.tell_removed(&record);
        // What is held for a server that was replaced is the other's.
        if !self.record.has(&record.spec.name) {
            self.record.desk.server_gone(&record.spec.name, REMOVED);
        }
        drain(myself, &record, REMOVED);
        tracing::info!(server = %record.spec.name, "server removed: its processes are being ended");
    }

    /// Nothing is held for a server that is not started again by itself.
    pub(super) fn deny_held(&self, server: Place, report: ServerReport) {
        let why = match report {
            ServerReport::Failed(_) => "has failed and is not started again",
            ServerReport::Ended => "has ended and is not started again",
            _ => return,
        };
        // One that was to take another's place, and failed, has nothing held for it.
        let members = self.record.roster.members();
        if let Some(record) = members.iter().find(|record| record.place() == server) {
            self.record.desk.server_gone(&record.spec.name, why);
        }
    }

    pub(super) fn hold(&self, myself: &ActorRef<SessionMsg>, server: Place) {
        let Some(record) = self.record.roster.at(server) else { return };
        record.live().held = true;
        drain(myself, &record, RESTARTED);
    }

    pub(super) fn settle_server(&self, server: Place) {
        let Some(record) = self.record.roster.at(server) else { return };
        let (connection, relay, held) = {
            let live = record.live();
            (live.connection.clone(), live.relay.clone(), live.held)
        };
        if let Some(connection) = connection {
            connection.settle_retired(if held { RESTARTED } else { REMOVED });
        }
        if let Some(relay) = relay {
            relay.settle();
        }
    }

    pub(super) fn forget(&mut self, server: Place) {
        let Some(record) = self.record.roster.at(server) else { return };
        self.record.roster.forget(server);
        if let Some(client) = self.record.slot.client() {
            client.server_forgotten(record.index);
        }
        if let Some(actor) = self.servers.remove(&server) {
            actor.stop(None);
        }
        tracing::info!(server = %record.spec.name, "server is gone");
        record.shrink();
        self.changes.forgotten.push(record);
    }

    pub(super) fn answer(&mut self, request: RequestId, result: Result<Changed, ChangeRefusal>) {
        self.changes.specs.remove(&request);
        let Some(reply) = self.changes.replies.remove(&request) else { return };
        let place = match &result {
            Ok(
                Changed::Added { server }
                | Changed::Replaced { server }
                | Changed::Removed { server }
                | Changed::Yielded { server }
                | Changed::Restarted { server },
            )
            | Err(ChangeRefusal::Failed { server } | ChangeRefusal::Quarantined { server }) => Some(*server),
            Err(_) => None,
        };
        let forgotten = &self.changes.forgotten;
        let gone = |place| forgotten.iter().find(|record| record.place() == place).cloned();
        let server = place.and_then(|place| self.record.roster.at(place).or_else(|| gone(place)));
        if let (Err(ChangeRefusal::Quarantined { .. }), Some(record)) = (&result, &server) {
            // What is left is asked of the kernel, which takes a moment.
            let (core, record) = (Arc::clone(&self.core), Arc::clone(record));
            tokio::spawn(async move {
                let remaining = lost::remaining(&core, &record).await;
                let _ = reply.send(ChangeReply { result, server: Some(record), remaining });
            });
            return;
        }
        // Who asked may be gone.
        let _ = reply.send(ChangeReply { result, server, remaining: Vec::new() });
    }
}

/// The session is told when nothing is in flight there.
fn drain(myself: &ActorRef<SessionMsg>, record: &ServerRecord, reason: &'static str) {
    let (told, place) = (myself.clone(), record.place());
    let quiet = move || {
        let _ = told.send_message(SessionMsg::ServerDrained(place));
    };
    match record.any_connection() {
        Some(connection) => connection.retire(reason, Box::new(quiet)),
        None => quiet(),
    }
}
