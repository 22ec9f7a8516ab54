//! Ended sessions that are still remembered, so that `wait` and `close KEY@GEN` can tell of them.
use super::types::RegistryConfig;
use crate::session::Ended;
use crate::{Generation, KeyRef, Moment, SessionId, Uid};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Tombstone {
    key: KeyRef,
    ended: Ended,
}

/// Bounded in age and, all together, in count: the oldest goes first, and of those that are too many the oldest of the user who has
/// most, so that nobody's flood makes another's be forgotten.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct Tombstones {
    by_session: BTreeMap<SessionId, Tombstone>,
    by_key: BTreeMap<KeyRef, BTreeSet<Generation>>,
    /// In order of the end.
    order: BTreeSet<(Moment, SessionId)>,
    /// The same of each user.
    users: BTreeMap<Uid, BTreeSet<(Moment, SessionId)>>,
    /// How many each user has; the most come last.
    crowds: BTreeSet<(usize, Uid)>,
}

impl Tombstones {
    pub(super) fn bury(&mut self, now: Moment, session: SessionId, key: KeyRef, ended: Ended) {
        self.by_key.entry(key.clone()).or_default().insert(session.generation);
        self.by_session.insert(session, Tombstone { key, ended });
        self.order.insert((now, session));
        self.count(session.uid, |mine| mine.insert((now, session)));
    }

    /// Changes what a user has, and how much that is.
    fn count(&mut self, uid: Uid, change: impl FnOnce(&mut BTreeSet<(Moment, SessionId)>) -> bool) {
        let mine = self.users.entry(uid).or_default();
        self.crowds.remove(&(mine.len(), uid));
        change(mine);
        if mine.is_empty() {
            self.users.remove(&uid);
        } else {
            self.crowds.insert((mine.len(), uid));
        }
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
        self.order.first().map(|(at, _)| at.after(config.tombstone_age))
    }

    /// Removes and returns one that is too many or too old.
    pub(super) fn evict(&mut self, now: Moment, config: &RegistryConfig) -> Option<SessionId> {
        let oldest = *self.order.first()?;
        let (at, session) = if oldest.0.after(config.tombstone_age) <= now {
            oldest
        } else if self.order.len() > config.tombstones {
            let (_, uid) = self.crowds.last()?;
            *self.users.get(uid)?.first()?
        } else {
            return None;
        };
        self.order.remove(&(at, session));
        self.count(session.uid, |mine| mine.remove(&(at, session)));
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
