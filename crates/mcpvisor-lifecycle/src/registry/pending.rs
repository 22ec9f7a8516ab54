//! Requests that wait for their answer, with their deadlines.
use crate::{Moment, RequestId, SessionId};
use std::collections::{BTreeMap, BTreeSet};

/// What a request waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Role {
    /// For its session to be ready.
    Opener,
    /// For the session that holds its key to end.
    Parked,
    /// For the session to end that makes room for it.
    Heir,
    /// For the end, or the end of the kill's budget.
    Closer,
    /// For the end.
    WaitClosed,
    /// For the session to be ready, or to end.
    WaitReady,
}

/// A request that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Waiting {
    /// On this session; of a parked open, the predecessor; of an heir, the one that makes room.
    pub(super) session: SessionId,
    pub(super) role: Role,
    pub(super) deadline: Option<Moment>,
}

/// All of them. Who takes one out answers it, or knows that no answer is wanted: that makes it one answer each.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct Pending {
    requests: BTreeMap<RequestId, Waiting>,
    deadlines: BTreeSet<(Moment, RequestId)>,
}

impl Pending {
    pub(super) fn add(&mut self, request: RequestId, waiting: Waiting) {
        if let Some(deadline) = waiting.deadline {
            self.deadlines.insert((deadline, request));
        }
        self.requests.insert(request, waiting);
    }

    pub(super) fn role(&self, request: RequestId) -> Option<Role> {
        self.requests.get(&request).map(|waiting| waiting.role)
    }

    pub(super) fn remove(&mut self, request: RequestId) -> Option<Waiting> {
        let waiting = self.requests.remove(&request)?;
        if let Some(deadline) = waiting.deadline {
            self.deadlines.remove(&(deadline, request));
        }
        Some(waiting)
    }

    pub(super) fn next(&self) -> Option<Moment> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// One whose deadline has come.
    pub(super) fn due(&self, now: Moment) -> Option<RequestId> {
        self.deadlines.first().filter(|(deadline, _)| *deadline <= now).map(|(_, request)| *request)
    }

    pub(super) fn len(&self) -> usize {
        self.requests.len()
    }
}
