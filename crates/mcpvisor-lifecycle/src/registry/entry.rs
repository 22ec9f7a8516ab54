//! A session that holds a key.
use super::capacity::Claim;
use super::retry::Ends;
use super::types::{Open, Phase, Urgency};
use crate::breaker::SpecDigest;
use crate::{RequestId, SessionId};
use std::collections::BTreeSet;

/// From admission to the proof of the end.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Entry {
    pub(super) session: SessionId,
    /// What it takes from the limits.
    pub(super) claim: Claim,
    /// None for a session that was taken over: nothing can join it.
    pub(super) definition: Option<u64>,
    /// Its one server is its client's alone.
    pub(super) direct: bool,
    pub(super) phase: Phase,
    /// The open that began it.
    pub(super) creator: Option<RequestId>,
    /// Some opener did not wait for ready, so the start has an owner whoever else goes.
    pub(super) held: bool,
    /// It failed, or ended, by itself: its openers are told `StartFailed` and not `SessionClosed`.
    pub(super) by_itself: bool,
    /// How far its teardown was urged.
    pub(super) urgency: Urgency,
    /// Its actor is gone.
    pub(super) lost: bool,
    /// Its token means nothing any more.
    pub(super) revoked: bool,
    /// A kill is being retried, whose result is not yet known.
    pub(super) retrying: bool,
    /// Requests that wait on it, in order of arrival.
    pub(super) waiting: Vec<RequestId>,
    /// Openers that were answered when it became ready. One that gave up before its answer reached it still cancels.
    pub(super) told: Vec<RequestId>,
    /// Its servers that have breakers.
    pub(super) specs: Vec<SpecDigest>,
    /// When it is known to end.
    pub(super) ends: Ends,
    /// The opens of another key, one and the same, that its slot is for: it was closed to make room for the first, and others came later.
    pub(super) heirs: Vec<Open>,
    /// The open that gets the key next.
    pub(super) parked: Option<Parked>,
    /// The session that it was opened below.
    pub(super) parent: Option<SessionId>,
    /// How many sessions lie on the way to it from its tree's first one, both included.
    pub(super) depth: usize,
    /// The sessions below it that hold a key.
    pub(super) children: BTreeSet<SessionId>,
    /// Its servers are stopped once its children are gone.
    pub(super) awaits_children: bool,
}

/// Opens that wait for the key. They hold no slot: their predecessor's passes to them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Parked {
    pub(super) definition: u64,
    pub(super) claim: Claim,
    pub(super) direct: bool,
    pub(super) specs: Vec<SpecDigest>,
    /// Never empty; the first begins the session.
    pub(super) opens: Vec<ParkedOpen>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct ParkedOpen {
    /// Whole, so that it goes on as an opener, or in the queue.
    pub(super) open: Open,
    /// The session that it is to be below.
    pub(super) parent: Option<SessionId>,
}

impl Entry {
    pub(super) fn new(session: SessionId, claim: Claim, phase: Phase) -> Self {
        Self {
            session,
            claim,
            definition: None,
            direct: false,
            phase,
            creator: None,
            held: false,
            by_itself: false,
            urgency: Urgency::Drain,
            lost: false,
            revoked: false,
            retrying: false,
            waiting: Vec::new(),
            told: Vec::new(),
            specs: Vec::new(),
            ends: Ends::default(),
            heirs: Vec::new(),
            parked: None,
            parent: None,
            depth: 1,
            children: BTreeSet::new(),
            awaits_children: false,
        }
    }
}

impl Parked {
    /// What is parked of one open, or admitted at once.
    pub(super) fn of(open: Open, parent: Option<SessionId>) -> Self {
        let (definition, claim, direct) = (open.definition, Claim::of(&open), open.direct);
        let specs = open.specs.clone();
        Self { definition, claim, direct, specs, opens: vec![ParkedOpen { open, parent }] }
    }
}
