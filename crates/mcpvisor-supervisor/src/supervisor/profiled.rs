//! Live sessions that were opened from a profile, for when that changes.
use super::Supervisor;
use crate::api::{Origin, ServerSpec};
use crate::definition::Whole;
use crate::record::SessionRecord;
use mcpvisor_lifecycle::registry::{RegistryEvent, Target};
use mcpvisor_lifecycle::session::SessionState;
use mcpvisor_lifecycle::{ServerName, SessionId};
use std::sync::Arc;

/// A live session that was opened from a profile.
#[derive(Debug, Clone)]
pub struct Profiled {
    /// The session.
    pub session: SessionId,
    /// How requests mean it, and no later generation of its key.
    pub target: Target,
    /// What it was opened from.
    pub origin: Arc<Origin>,
    /// What it has from there now.
    pub given: Vec<Given>,
}

/// A server that a session has from its profile.
#[derive(Debug, Clone)]
pub struct Given {
    /// Its name.
    pub name: ServerName,
    /// The digest of the definition by which it was last brought there.
    pub definition: u64,
    /// The whole definition; none where it was removed since.
    pub spec: Option<Arc<ServerSpec>>,
}

impl Supervisor {
    /// Those that are not being torn down, in order of owner and generation.
    #[must_use]
    pub fn profiled(&self) -> Vec<Profiled> {
        self.core.records().iter().filter_map(profiled).collect()
    }

    /// The same of one session; none where it is not one of those.
    #[must_use]
    pub fn profiled_session(&self, session: SessionId) -> Option<Profiled> {
        self.core.record(session).as_ref().and_then(profiled)
    }

    /// A session has these servers from its profile now, with the digests of their definitions, in the profile's order: an open of
    /// exactly these joins it from now on.
    pub fn redefine(&self, session: SessionId, given: Vec<(ServerName, u64)>) {
        let Some(record) = self.core.record(session) else { return };
        let whole = Whole {
            tenant: record.tenant.as_ref(),
            parent: record.parent.as_ref(),
            labels: &record.labels,
            drain: record.drain,
            prefix: record.prefix,
            policy: &record.policy,
            limits: record.limits,
        };
        let servers = given.iter().map(|(_, definition)| *definition);
        let definition = whole.digest(servers.chain(record.own_servers.iter().copied()));
        *record.given() = given;
        self.core.tell(RegistryEvent::Redefine { session, definition });
    }
}

fn profiled(record: &Arc<SessionRecord>) -> Option<Profiled> {
    let state = record.live().state;
    let lives = matches!(state, SessionState::Starting | SessionState::Ready | SessionState::Degraded);
    if !lives || record.direct || record.relayed {
        return None;
    }
    let origin = Arc::clone(record.origin.as_ref()?);
    let target = Target { key: record.key.clone(), generation: Some(record.id.generation) };
    let members = record.roster.members();
    let given = record.given().clone();
    let given = given.into_iter().map(|(name, definition)| {
        let runs = members.iter().find(|server| server.spec.name == name && server.definition == definition);
        Given { name, definition, spec: runs.and_then(|server| server.launch()) }
    });
    let given = given.collect();
    Some(Profiled { session: record.id, target, origin, given })
}
