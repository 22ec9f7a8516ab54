//! Ended sessions that are still remembered, so that `wait` and `close KEY@GEN` can tell of them.
use super::types::RegistryConfig;
use crate::session::Ended;
use crate::{Generation, KeyRef, Moment, SessionId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Tombstone {
    key: KeyRef,
    ended: Ended,
}

/// Bounded in count and in age; the oldest goes first.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct Tombstones {
    by_session: BTreeMap<SessionId, Tombstone>,
    by_key: BTreeMap<KeyRef, BTreeSet<Generation>>,
    /// In order of the end; time never goes back, so the oldest is in front.
    order: VecDeque<(Moment, SessionId)>,
}

impl Tombstones {
    pub(super) fn bury(&mut self, now: Moment, session: SessionId, key: KeyRef, ended: Ended) {
        self.by_key.entry(key.clone()).or_default().insert(session.generation);
        self.by_session.insert(session, Tombstone { key, ended });
        self.order.push_back((now, session));
    }

    /// How the session ended, if it held that key and is remembered.
    pub(super) fn ended(&self, session: SessionId, key: &KeyRef) -> Option<Ended> {
        self.by_session.get(&session).filter(|stone| stone.key == *key).map(|stone| stone.ended)
    }

    /// The key that an ended session held.
    pub(super) fn key_of(&self, session: SessionId) -> Option<&KeyRef> {
        self.by_session.get(&session).map(|stone| &stone.key)
    }

    /// The key's latest session that is remembered.
    pub(super) fn latest(&self, key: &KeyRef) -> Option<SessionId> {
        let generation = *self.by_key.get(key)?.last()?;
        Some(SessionId { uid: key.uid, generation })
    }

    /// When the oldest is due to go.
    pub(super) fn next(&self, config: &RegistryConfig) -> Option<Moment> {
        self.order.front().map(|(at, _)| at.after(config.tombstone_age))
    }

    /// Removes and returns one that is too many or too old.
    pub(super) fn evict(&mut self, now: Moment, config: &RegistryConfig) -> Option<SessionId> {
        let (at, session) = *self.order.front()?;
        if self.order.len() <= config.tombstones && at.after(config.tombstone_age) > now {
            return None;
        }
        self.order.pop_front();
        if let Some(stone) = self.by_session.remove(&session)
            && let Some(generations) = self.by_key.get_mut(&stone.key)
        {
            generations.remove(&session.generation);
            if generations.is_empty() {
                self.by_key.remove(&stone.key);
            }
        }
        Some(session)
    }
}
