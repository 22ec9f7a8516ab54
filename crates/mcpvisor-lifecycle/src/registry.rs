//! Admission, capacity, the key barrier, joined closes, the shutdown fence, quarantine and tombstones.
//!
//! One registry serializes all of it. A key is held by one session from its admission to the proof that nothing of
//! it is left; the slot is held as long. Everything that waits, waits here as a value, so that no step ever does.
mod answers;
mod capacity;
mod close;
mod credential;
mod entry;
mod evict;
#[cfg(test)]
mod evict_tests;
mod facts;
mod open;
mod pending;
mod queue;
#[cfg(test)]
mod queue_tests;
mod retry;
#[cfg(test)]
mod shared_tests;
#[cfg(test)]
mod tests;
mod tombstones;
mod tree;
#[cfg(test)]
mod tree_tests;
mod types;
mod waiting_line;

pub use types::{
    Answer, CapacityScope, CloseOptions, Counts, Goal, IfClosing, IfOpen, Left, Lifetime, Open, Phase,
    Queued, Quota, Refusal, RegistryConfig, RegistryEffect, RegistryEvent, Target, Urgency,
};

use crate::breaker::Breakers;
use crate::seeded::Seeded;
use crate::{Generation, KeyRef, Moment, RequestId, SessionId, SessionKey, Uid};
use capacity::{Claim, Usage};
use close::Ask;
use entry::Entry;
use pending::Pending;
use queue::Queue;
use std::collections::BTreeMap;
use tombstones::Tombstones;

/// The registry's state. See the module.
///
/// - Commands and facts: [`Registry::step`].
/// - Output: the effects of a step, and [`Registry::next_timeout`].
/// - Getters: all others; none changes anything.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Registry {
    config: RegistryConfig,
    fenced: bool,
    shutdown: Option<Urgency>,
    finished: bool,
    /// The highest generation that each user was given.
    given: BTreeMap<Uid, Generation>,
    entries: BTreeMap<KeyRef, Entry>,
    /// The key of each session that holds one.
    keys: BTreeMap<SessionId, KeyRef>,
    usage: Usage,
    pending: Pending,
    queue: Queue,
    /// The open for which somebody's place is being looked for: between two steps of the driver's one.
    evicting: Option<Open>,
    tombs: Tombstones,
    breakers: Breakers,
    dropped: u64,
    seeded: Seeded,
}

/// The effects of one step, in order.
struct Effects {
    now: Moment,
    all: Vec<RegistryEffect>,
}

impl Effects {
    fn push(&mut self, effect: RegistryEffect) {
        self.all.push(effect);
    }

    fn answer(&mut self, request: RequestId, answer: Answer) {
        self.push(RegistryEffect::Reply { request, result: Ok(answer) });
    }

    fn refuse(&mut self, request: RequestId, refusal: Refusal) {
        self.push(RegistryEffect::Reply { request, result: Err(refusal) });
    }
}

impl Registry {
    /// An empty registry.
    #[must_use]
    pub fn new(config: RegistryConfig) -> Self {
        Self::recover(config, Vec::new(), Vec::new())
    }

    /// A registry that takes over what a lost one, or a former daemon, left: each key is blocked (`Dying`) until
    /// `SessionEnded`; `last` is the highest generation that was ever given per user. The driver reaps each of
    /// `left` without being asked to, as after `ReapLost`. Keys are distinct, by G1.
    #[must_use]
    pub fn recover(config: RegistryConfig, left: Vec<Left>, last: Vec<(Uid, Generation)>) -> Self {
        let mut registry = Self {
            config,
            fenced: false,
            shutdown: None,
            finished: false,
            given: last.into_iter().collect(),
            entries: BTreeMap::new(),
            keys: BTreeMap::new(),
            usage: Usage::default(),
            pending: Pending::default(),
            queue: Queue::default(),
            evicting: None,
            tombs: Tombstones::default(),
            breakers: Breakers::default(),
            dropped: 0,
            seeded: Seeded::default(),
        };
        for Left { session, key, tenant, quota, direct } in left {
            let given = registry.given.entry(session.uid).or_insert(session.generation);
            *given = (*given).max(session.generation);
            let claim = Claim { uid: session.uid, tenant, quota };
            registry.usage.take(&claim, Phase::Dying);
            let mut entry = Entry::new(session, claim, Phase::Dying);
            entry.direct = direct;
            entry.lost = true;
            registry.keys.insert(session, key.clone());
            registry.entries.insert(key, entry);
        }
        registry
    }

    /// The same with one guard taken out.
    #[cfg(feature = "seeded-bugs")]
    #[must_use]
    pub fn with_bug(mut self, bug: crate::seeded::Bug) -> Self {
        self.seeded.bug = Some(bug);
        self
    }

    /// Advances the machine by one event. `now` never goes back from one step to the next.
    #[must_use]
    pub fn step(&mut self, now: Moment, event: RegistryEvent) -> Vec<RegistryEffect> {
        let mut out = Effects { now, all: Vec::new() };
        match event {
            RegistryEvent::Open(open) => self.open(now, open, &mut out),
            RegistryEvent::Close { request, target, options, wait, deadline } => {
                self.close(now, &Ask { request, target, deadline }, &options, wait, &mut out);
            }
            RegistryEvent::Wait { request, target, goal, deadline } => {
                self.wait(now, &Ask { request, target, deadline }, goal, &mut out);
            }
            RegistryEvent::RetryKill { request, target, deadline } => {
                self.retry_kill(now, &Ask { request, target, deadline }, &mut out);
            }
            RegistryEvent::Cancel { request } => self.cancel(request, &mut out),
            RegistryEvent::Fence => self.fence(&mut out),
            RegistryEvent::Shutdown { urgency } => self.shut_down(urgency, &mut out),
            RegistryEvent::Reconfigure(config) => {
                self.config = config;
                self.breakers.reset();
                self.evict(now, &mut out);
            }
            RegistryEvent::Redefine { session, definition } => {
                let key = self.keys.get(&session);
                let entry = key.and_then(|key| self.entries.get_mut(key));
                // Of a session that is over, or of another that has its key, nothing changes (G3).
                if let Some(entry) = entry.filter(|entry| entry.session == session) {
                    entry.definition = Some(definition);
                }
            }
            RegistryEvent::SessionReady { session } => self.ready(session, &mut out),
            RegistryEvent::StartFailed { session, spec } => {
                self.start_failed(now, session, spec, &mut out);
            }
            RegistryEvent::CloseWanted { session, reason } => {
                self.close_wanted(session, reason, &mut out);
            }
            RegistryEvent::Used { session } => self.used(session),
            RegistryEvent::Detached { session } => self.detached(session, &mut out),
            RegistryEvent::HolderEnded { request } => self.holder_ended(request, &mut out),
            RegistryEvent::IdleClaimed { session } => self.idle_claimed(session, &mut out),
            RegistryEvent::GateRetired { session } => self.gate_retired(session, &mut out),
            RegistryEvent::Evicted { request, session } => self.evicted(now, request, session, &mut out),
            RegistryEvent::NobodyIdle { request } => self.nobody_idle(now, request, &mut out),
            RegistryEvent::SessionEnded { session, ended } => {
                self.ended(now, session, ended, &mut out);
            }
            RegistryEvent::SessionQuarantined { session } => self.quarantined(session, &mut out),
            RegistryEvent::SessionLost { session } => self.lost(session, &mut out),
            RegistryEvent::Timeout => {
                self.expire(now, &mut out);
                self.expire_queue(now, &mut out);
                self.evict(now, &mut out);
            }
        }
        self.serve_queue(now, &mut out);
        self.tell_positions(&mut out);
        self.finish(&mut out);
        out.all
    }

    /// When `Timeout` is due: the earliest deadline of a request, the end of a wait for a slot, or the oldest tombstone's end.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Moment> {
        [self.pending.next(), self.queue.next(), self.tombs.next(&self.config)].into_iter().flatten().min()
    }

    /// How many sessions there are, by phase.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.usage.counts(self.config.max_sessions)
    }

    /// Whether nothing more is admitted.
    #[must_use]
    pub fn is_fenced(&self) -> bool {
        self.fenced
    }

    /// The session that holds the key now, with its phase.
    #[must_use]
    pub fn current(&self, key: &KeyRef) -> Option<(SessionId, Phase)> {
        self.entries.get(key).map(|entry| (entry.session, entry.phase))
    }

    /// The session that a session was opened below. It may be over, where this one is quarantined.
    #[must_use]
    pub fn parent(&self, session: SessionId) -> Option<SessionId> {
        self.keys.get(&session).and_then(|key| self.entries.get(key)).and_then(|entry| entry.parent)
    }

    /// Whether an open waits for the key to be free.
    #[must_use]
    pub fn is_parked(&self, key: &KeyRef) -> bool {
        self.entries.get(key).is_some_and(|entry| entry.parked.is_some())
    }

    /// The session of a target: the current one, or an ended one that is remembered (of a target without
    /// generation, the latest).
    #[must_use]
    pub fn find(&self, target: &Target) -> Option<SessionId> {
        if let Some((session, _)) = self.holder(target) {
            return Some(session);
        }
        match target.generation {
            None => self.tombs.latest(&target.key),
            Some(generation) => {
                let session = SessionId { uid: target.key.uid, generation };
                self.tombs.ended(session, &target.key).map(|_| session)
            }
        }
    }

    /// The session of a target, for every use but `close` and `wait`.
    ///
    /// # Errors
    /// [`Refusal::StaleGeneration`] of a generation that is remembered as ended, or is lower than the key's current
    /// one (G3); [`Refusal::NotFound`] of everything else that is not current.
    pub fn resolve(&self, target: &Target) -> Result<SessionId, Refusal> {
        if let Some((session, _)) = self.holder(target) {
            return Ok(session);
        }
        let Some(generation) = target.generation else { return Err(Refusal::NotFound) };
        let session = SessionId { uid: target.key.uid, generation };
        let remembered = self.tombs.ended(session, &target.key).is_some();
        let older = self.current(&target.key).is_some_and(|(now, _)| generation < now.generation);
        if remembered || older { Err(Refusal::StaleGeneration { session }) } else { Err(Refusal::NotFound) }
    }

    /// All that hold a key, in order of key; of one user or of all.
    #[must_use]
    pub fn sessions(&self, of: Option<Uid>) -> Vec<(SessionId, SessionKey, Phase)> {
        self.entries
            .iter()
            .filter(|(key, _)| of.is_none_or(|uid| key.uid == uid))
            .map(|(key, entry)| (entry.session, key.key.clone(), entry.phase))
            .collect()
    }

    /// How many breakers are not closed.
    #[must_use]
    pub fn open_breakers(&self) -> usize {
        self.breakers.open()
    }

    /// How many facts of sessions that hold no key were dropped (G3).
    #[must_use]
    pub fn dropped_facts(&self) -> u64 {
        self.dropped
    }

    /// How many requests wait for an answer.
    #[must_use]
    pub fn waiting_requests(&self) -> usize {
        self.pending.len() + self.queue.len()
    }

    /// The session that a target means now, ended ones left out.
    fn holder(&self, target: &Target) -> Option<(SessionId, Phase)> {
        self.current(&target.key)
            .filter(|(session, _)| target.generation.is_none_or(|named| named == session.generation))
    }

    fn evict(&mut self, now: Moment, out: &mut Effects) {
        while let Some(session) = self.tombs.evict(now, &self.config) {
            out.push(RegistryEffect::Forget { session });
        }
    }

    /// Shutdown is complete when nothing is left that could still end by itself.
    fn finish(&mut self, out: &mut Effects) {
        let counts = self.counts();
        let leftovers = counts.quarantined + counts.shared_quarantined;
        if self.shutdown.is_some() && !self.finished && leftovers == self.entries.len() {
            self.finished = true;
            out.push(RegistryEffect::Finished { leftovers });
        }
    }
}
