//! Live sessions that were opened from a profile, for when that changes.
use super::Supervisor;
use crate::api::{Origin, ServerSpec};
use crate::definition::{self, Whole};
use mcpvisor_lifecycle::SessionId;
use mcpvisor_lifecycle::registry::{RegistryEvent, Target};
use mcpvisor_lifecycle::session::SessionState;
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
}

impl Supervisor {
    /// Those that are not being torn down, in order of owner and generation.
    #[must_use]
    pub fn profiled(&self) -> Vec<Profiled> {
        let lives =
            |state| matches!(state, SessionState::Starting | SessionState::Ready | SessionState::Degraded);
        let records = self.core.records().into_iter().filter(|record| {
            let state = record.live().state;
            lives(state) && !record.direct && !record.relayed
        });
        let of = records.filter_map(|record| {
            let origin = Arc::clone(record.origin.as_ref()?);
            let target = Target { key: record.key.clone(), generation: Some(record.id.generation) };
            Some(Profiled { session: record.id, target, origin })
        });
        of.collect()
    }

    /// A session has the servers of its changed profile now: an open of these joins it from now on.
    pub fn redefine(&self, session: SessionId, servers: &[ServerSpec]) {
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
        let servers = servers.iter().map(definition::server).chain(record.own_servers.iter().copied());
        let definition = whole.digest(servers);
        self.core.tell(RegistryEvent::Redefine { session, definition });
    }
}
