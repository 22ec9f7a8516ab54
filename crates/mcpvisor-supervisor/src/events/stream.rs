//! A reader of events.
use super::{Event, Events, State, Terminal};
use crate::record::lock;
use mcpvisor_lifecycle::{Generation, SessionKey, Uid};
use std::sync::Arc;
use tokio::sync::watch;

/// An event, and what was lost before it.
#[derive(Debug, Clone, PartialEq)]
pub struct Told {
    /// What has happened.
    pub event: Arc<Event>,
    /// How many of its user's events were not kept long enough to be told just before this one; with a filter, of all kinds.
    pub lost: u64,
}

/// Which events a reader wants.
#[derive(Debug, Clone, Default)]
pub(crate) struct Wanted {
    /// From this number on; none: from now on.
    pub(crate) since: Option<u64>,
    /// Of this key only.
    pub(crate) key: Option<SessionKey>,
    /// Of this generation of it only.
    pub(crate) generation: Option<Generation>,
    /// Goes on with what comes.
    pub(crate) follow: bool,
    /// Ends behind this event, which is told in any case.
    pub(crate) until: Option<Terminal>,
}

/// A reader: a place in its user's ring. Dropping it ends it.
#[derive(Debug)]
pub struct EventStream {
    events: Events,
    uid: Uid,
    wanted: Wanted,
    /// The number of the next event to look at.
    at: u64,
    /// Where one that does not follow ends.
    end: u64,
    lost: u64,
    told: watch::Receiver<u64>,
    /// The first number that was not published when this began, and the oldest that was kept.
    first: (u64, u64),
    ended: bool,
}

impl Events {
    /// A key has events that are kept still.
    pub(crate) fn know(&self, uid: Uid, key: &SessionKey) -> bool {
        let state = lock(&self.0);
        let Some(user) = state.user(uid) else { return false };
        let mut kept = (user.ring.oldest()..user.ring.next()).filter_map(|seq| user.ring.get(seq));
        kept.any(|event| event.subject.key.as_ref() == Some(key))
    }

    /// Begins to read a user's events.
    pub(crate) fn read(&self, uid: Uid, wanted: Wanted) -> EventStream {
        let mut state = lock(&self.0);
        let user = state.users.entry(uid).or_default();
        let (next, oldest) = (user.ring.next(), user.ring.oldest());
        let at = wanted.since.unwrap_or(next).max(1);
        let told = user.told.subscribe();
        EventStream {
            events: self.clone(),
            uid,
            wanted,
            at,
            end: next,
            lost: 0,
            told,
            first: (next, oldest),
            ended: false,
        }
    }
}

impl EventStream {
    /// The number of the first event that was not published yet when this began, and of the oldest that was kept then.
    #[must_use]
    pub fn bounds(&self) -> (u64, u64) {
        self.first
    }

    /// How many of its user's events were lost behind the last one that was told, as [`Told::lost`] counts: where no event comes that could say so.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Ends behind what is published already.
    pub fn finish(&mut self) {
        let state = lock(&self.events.0);
        self.end = state.users.get(&self.uid).map_or(self.end, |user| user.ring.next());
        self.wanted.follow = false;
    }

    /// The next event; none once there will be no more. Cancel safe.
    pub async fn next(&mut self) -> Option<Told> {
        loop {
            if self.ended {
                return None;
            }
            self.told.borrow_and_update();
            if let Some(told) = self.look() {
                self.ended = self.ends_with(&told.event);
                return Some(told);
            }
            // The sender lives as long as we hold the events.
            if !self.wanted.follow || self.told.changed().await.is_err() {
                return None;
            }
        }
    }

    fn ends_with(&self, event: &Arc<Event>) -> bool {
        let until = self.wanted.until.as_ref().and_then(|until| until.get());
        self.wanted.follow && until.is_some_and(|until| until.seq == event.seq)
    }

    /// The next event that is there and wanted.
    fn look(&mut self) -> Option<Told> {
        let state = lock(&self.events.0);
        let ring = &state.user(self.uid)?.ring;
        let end = if self.wanted.follow { ring.next() } else { self.end };
        // It is behind us: it was lost, or is older than what was asked for.
        let until = self.wanted.until.as_ref().and_then(|until| until.get()).filter(|_| self.wanted.follow);
        if let Some(until) = until
            && until.seq < self.at.max(ring.oldest())
        {
            self.lost += until.seq.saturating_sub(self.at);
            return Some(Told { event: Arc::clone(until), lost: std::mem::take(&mut self.lost) });
        }
        while self.at < end {
            let Some(event) = ring.get(self.at) else {
                let oldest = ring.oldest().min(end);
                self.lost += oldest - self.at;
                self.at = oldest;
                continue;
            };
            self.at += 1;
            if self.wanted.wants(event) {
                return Some(Told { event: Arc::clone(event), lost: std::mem::take(&mut self.lost) });
            }
        }
        None
    }
}

impl State {
    fn user(&self, uid: Uid) -> Option<&super::User> {
        self.users.get(&uid)
    }
}

impl Wanted {
    fn wants(&self, event: &Event) -> bool {
        let Some(key) = &self.key else { return true };
        let of = &event.subject;
        of.key.as_ref() == Some(key) && (self.generation.is_none() || self.generation == of.generation)
    }
}
