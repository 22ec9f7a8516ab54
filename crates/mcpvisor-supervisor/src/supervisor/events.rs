//! Reading what has happened.
use super::Supervisor;
use crate::api::Failure;
use crate::events::{EventStream, Wanted};
use mcpvisor_lifecycle::registry::Target;
use mcpvisor_lifecycle::{Generation, KeyRef, SessionKey, Uid};
use std::sync::Arc;

/// Which events of a user are wanted.
#[derive(Debug, Clone, Default)]
pub struct EventsWanted {
    /// From this number on, as far as they are kept; none: from now on.
    pub since: Option<u64>,
    /// Of this key only.
    pub key: Option<SessionKey>,
    /// Of this generation of it only.
    pub generation: Option<Generation>,
    /// Also what comes. With a key: until the last event of the generation that holds it, or was the last to do so.
    pub follow: bool,
}

impl Supervisor {
    /// Begins to read a user's events. A followed generation's last event is told in any case, as the stream's last.
    ///
    /// # Errors
    /// `NotFound` of a key that is not known and has no events; `StaleGeneration` where a generation is to be followed that is over.
    pub async fn events(&self, uid: Uid, wanted: EventsWanted) -> Result<EventStream, Failure> {
        let EventsWanted { since, key, generation, follow } = wanted;
        let mut until = None;
        if let Some(key) = &key {
            let target = Target { key: KeyRef { uid, key: key.clone() }, generation };
            match self.resolve(target, true).await {
                Ok(record) => until = Some(Arc::clone(&record.terminal)),
                Err(Failure::NotFound) if !follow && self.core.events.know(uid, key) => {}
                Err(Failure::StaleGeneration { .. }) if !follow => {}
                Err(failure) => return Err(failure),
            }
        }
        Ok(self.core.events.read(uid, Wanted { since, key, generation, follow, until }))
    }
}
