//! The sessions that live as long as connections do.
use mcpvisor_lifecycle::SessionId;
use mcpvisor_supervisor::{Kept, Supervisor};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How many connections hold each session's lease: several, where each was given the answer of one open that was sent again.
#[derive(Clone, Default)]
pub(crate) struct Holders(Arc<Mutex<HashMap<SessionId, usize>>>);

impl Holders {
    fn take(&self, session: SessionId) {
        *locked(&self.0).entry(session).or_default() += 1;
    }

    /// Whether it was the last one.
    fn give_back(&self, session: SessionId) -> bool {
        let mut holders = locked(&self.0);
        let left = holders.get_mut(&session).map_or(0, |count| {
            *count -= 1;
            *count
        });
        if left == 0 {
            holders.remove(&session);
        }
        left == 0
    }

    /// Nobody holds it.
    fn is_free(&self, session: SessionId) -> bool {
        !locked(&self.0).contains_key(&session)
    }
}

/// What one connection holds. Cheap to clone. A session that is added after the end ends at once, unless others hold it.
#[derive(Clone)]
pub(crate) struct Leases {
    supervisor: Supervisor,
    holders: Holders,
    /// None: the connection has ended.
    held: Arc<Mutex<Option<Held>>>,
}

#[derive(Default)]
struct Held {
    sessions: HashSet<SessionId>,
    /// The last that was opened for a shim; it has one.
    kept: Option<Kept>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Leases {
    pub(crate) fn new(supervisor: Supervisor, holders: Holders) -> Self {
        Self { supervisor, holders, held: Arc::new(Mutex::new(Some(Held::default()))) }
    }

    /// From now on the session ends with the connection, or with the last of those that hold it.
    pub(crate) fn add(&self, session: SessionId) {
        if let Some(held) = &mut *locked(&self.held) {
            if held.sessions.insert(session) {
                self.holders.take(session);
            }
        } else if self.holders.is_free(session) {
            self.supervisor.lease_ended(session);
        }
    }

    /// The session is a shim's: it is not forgotten while the connection lasts.
    pub(crate) fn keep(&self, kept: Kept) {
        if let Some(held) = &mut *locked(&self.held) {
            held.kept = Some(kept);
        }
    }

    /// The session, where it is the connection's own shim's.
    pub(crate) fn kept(&self, session: SessionId) -> Option<Kept> {
        locked(&self.held).as_ref()?.kept.clone().filter(|kept| kept.session() == session)
    }

    /// The session is none of the connection's any more.
    pub(crate) fn has_ended(&self) -> bool {
        locked(&self.held).is_none()
    }

    /// The connection has ended.
    pub(super) fn end(&self) {
        let held = locked(&self.held).take();
        for session in held.into_iter().flat_map(|held| held.sessions) {
            if self.holders.give_back(session) {
                self.supervisor.lease_ended(session);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mcpvisor_lifecycle::{Generation, Uid};

    #[test]
    fn the_last_holder_ends_a_lease() {
        let session = |generation| SessionId { uid: Uid(1), generation: Generation(generation) };
        let holders = Holders::default();
        holders.take(session(1));
        holders.take(session(1));
        holders.take(session(2));
        assert!(!holders.give_back(session(1)) && !holders.is_free(session(1)));
        assert!(holders.give_back(session(2)), "each session has its own");
        assert!(holders.give_back(session(1)) && holders.is_free(session(1)));
    }
}
