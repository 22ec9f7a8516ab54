//! What sessions tell: ready, wanted, ended, quarantined, lost.
use super::close::never_ready;
use super::pending::Role;
use super::types::{Answer, CloseOptions, Goal, Phase, Refusal, RegistryEffect};
use super::{Effects, Registry};
use crate::breaker::SpecDigest;
use crate::seeded::Bug;
use crate::session::{CloseReason, Ended};
use crate::{KeyRef, Moment, RequestId, SessionId};

impl Registry {
    /// The key that the session holds. A fact of one that holds none is dropped and counted (G3).
    pub(super) fn holds(&mut self, session: SessionId) -> Option<KeyRef> {
        let key = self.keys.get(&session).cloned();
        if key.is_some() {
            return key;
        }
        if self.seeded.has(Bug::G3OldFactsCount) {
            let key = self.tombs.key_of(session).cloned();
            return key.filter(|key| self.entries.contains_key(key));
        }
        self.dropped += 1;
        None
    }

    /// Only a session that nobody closed can become live (G22).
    pub(super) fn ready(&mut self, session: SessionId, out: &mut Effects) {
        let Some(key) = self.holds(session) else { return };
        let Some(entry) = self.entries.get_mut(&key) else { return };
        let late = entry.phase == Phase::Dying && self.seeded.has(Bug::G22ReadyAfterClose);
        if entry.phase != Phase::Starting && !late {
            return;
        }
        self.usage.shift(&entry.claim, entry.phase, Phase::Live);
        entry.phase = Phase::Live;
        let (session, creator) = (entry.session, entry.creator);
        if self.breakers.succeeded(session.uid, &entry.specs) {
            out.push(RegistryEffect::Breaker { session, open: false });
        }
        let mut told = Vec::new();
        for request in std::mem::take(&mut entry.waiting) {
            match self.pending.role(request) {
                Some(Role::Opener) => {
                    let created = creator == Some(request);
                    told.push(request);
                    self.answer(request, Ok(Answer::Opened { session, created }), out);
                }
                Some(Role::WaitReady) => {
                    self.answer(request, Ok(Answer::Reached { session, goal: Goal::Ready }), out);
                }
                _ => self.keep(&key, request),
            }
        }
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.told = told;
        }
    }

    /// Counts only while nobody has closed the session: what fails under a teardown is not the server's fault.
    pub(super) fn start_failed(
        &mut self,
        now: Moment,
        session: SessionId,
        spec: SpecDigest,
        out: &mut Effects,
    ) {
        let Some(key) = self.holds(session) else { return };
        let starting = self.entries.get(&key).is_some_and(|entry| entry.phase == Phase::Starting);
        if starting && self.breakers.failed(now, &self.config.breaker, session, spec) {
            out.push(RegistryEffect::Breaker { session, open: true });
        }
    }

    pub(super) fn close_wanted(&mut self, session: SessionId, reason: CloseReason, out: &mut Effects) {
        let Some(key) = self.holds(session) else { return };
        if let Some((_, Phase::Starting | Phase::Live)) = self.current(&key) {
            self.begin_close(&key, reason, &CloseOptions::default(), out);
        }
    }

    /// Whoever uses it has it from somebody who knows of it, so no opener that gives up late takes it away.
    pub(super) fn used(&mut self, session: SessionId) {
        let Some(key) = self.holds(session) else { return };
        let forgotten = self.seeded.has(Bug::G7UseIsForgotten);
        if let Some(entry) = self.entries.get_mut(&key).filter(|entry| entry.phase == Phase::Live) {
            entry.held |= !forgotten;
        }
    }

    /// A session claims to be idle. That is looked at again where opens are answered: one that was answered with this session
    /// before has touched its gate, and one that comes later finds it closing.
    pub(super) fn idle_claimed(&mut self, session: SessionId, out: &mut Effects) {
        let Some(key) = self.holds(session) else { return };
        let Some(entry) = self.entries.get(&key) else { return };
        if entry.phase != Phase::Live {
            return;
        }
        if self.seeded.has(Bug::G32ClaimIsNotLookedAtAgain) {
            self.begin_close(&key, CloseReason::Idle, &CloseOptions::default(), out);
        } else if entry.children.is_empty() {
            out.push(RegistryEffect::RetireGate { session });
        } else {
            out.push(RegistryEffect::StayOpen { session });
        }
    }

    pub(super) fn gate_retired(&mut self, session: SessionId, out: &mut Effects) {
        self.close_wanted(session, CloseReason::Idle, out);
    }

    /// The one step in which slot and key are free again, everyone who waited is told, and a parked open goes on.
    pub(super) fn ended(&mut self, now: Moment, session: SessionId, ended: Ended, out: &mut Effects) {
        let Some(key) = self.holds(session) else { return };
        let Some(entry) = self.entries.remove(&key) else { return };
        self.keys.remove(&entry.session);
        self.usage.give_back(&entry.claim, entry.phase);
        let session = entry.session;
        self.breakers.ended(now, session, &entry.specs);
        self.tombs.bury(now, session, key.clone(), ended);
        let refusal = unopened(session, entry.phase, entry.by_itself);
        for request in entry.waiting {
            let result = match self.pending.role(request) {
                Some(Role::Closer) => Ok(Answer::Closed { session }),
                Some(Role::WaitClosed) => Ok(Answer::Reached { session, goal: Goal::Closed }),
                Some(Role::WaitReady) => Err(never_ready(session, ended)),
                Some(Role::Opener) => Err(refusal.clone()),
                Some(Role::Parked | Role::Heir) | None => continue,
            };
            self.answer(request, result, out);
        }
        self.leave_tree(session, entry.parent, &entry.children, out);
        // Its slot is for the open that it made room for, before the one that waits for its key.
        let inherited = self.inherit(now, entry.heirs, &entry.claim, out);
        if let Some(parked) = entry.parked {
            self.promote(now, key, Some(&entry.claim).filter(|_| !inherited), parked, out);
        }
        self.evict(now, out);
    }

    /// The key stays blocked and counted; who waits for an outcome gets this one, who waits for the end goes on, unless the
    /// session is a direct one.
    pub(super) fn quarantined(&mut self, session: SessionId, out: &mut Effects) {
        let Some(key) = self.holds(session) else { return };
        self.unpark(&key, &Refusal::Quarantined { session }, out);
        self.disinherit(&key, out);
        let told = self.is_told_of_quarantine(&key);
        let Some(entry) = self.entries.get_mut(&key) else { return };
        let refusal = unopened(session, entry.phase, entry.by_itself);
        self.usage.shift(&entry.claim, entry.phase, Phase::Quarantined);
        entry.phase = Phase::Quarantined;
        entry.retrying = false;
        for request in std::mem::take(&mut entry.waiting) {
            match self.pending.role(request) {
                Some(Role::Closer) => self.answer(request, Ok(Answer::Quarantined { session }), out),
                Some(Role::WaitClosed) if told => {
                    self.answer(request, Ok(Answer::Quarantined { session }), out);
                }
                Some(Role::Opener) => self.answer(request, Err(refusal.clone()), out),
                _ => self.keep(&key, request),
            }
        }
        self.child_settled(&key, out);
    }

    /// A session whose actor is gone is torn down without it.
    pub(super) fn lost(&mut self, session: SessionId, out: &mut Effects) {
        let Some(key) = self.holds(session) else { return };
        let Some(entry) = self.entries.get_mut(&key) else { return };
        if std::mem::replace(&mut entry.lost, true) {
            return;
        }
        match entry.phase {
            // There is no actor to tear it down, so no `Close` goes out.
            Phase::Starting | Phase::Live => {
                self.usage.shift(&entry.claim, entry.phase, Phase::Dying);
                entry.phase = Phase::Dying;
                entry.by_itself = true;
                entry.ends.torn_down(out.now, &entry.claim.quota.lifetime);
            }
            Phase::Dying => {}
            // The reaping is another attempt at the kill, with a result of its own.
            Phase::Quarantined => entry.retrying = true,
        }
        out.push(RegistryEffect::ReapLost { session });
        self.close_children(&key, CloseReason::ParentClosed, &CloseOptions::default(), out);
    }

    pub(super) fn answer(&mut self, request: RequestId, result: Result<Answer, Refusal>, out: &mut Effects) {
        if self.pending.remove(request).is_some() {
            out.push(RegistryEffect::Reply { request, result });
        }
    }

    fn keep(&mut self, key: &KeyRef, request: RequestId) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.waiting.push(request);
        }
    }
}

/// What an opener is told of a session that never became ready: someone closed it, or it ended by itself (which
/// it also did where the end comes without any close).
fn unopened(session: SessionId, phase: Phase, by_itself: bool) -> Refusal {
    let unclosed = matches!(phase, Phase::Starting | Phase::Live);
    if by_itself || unclosed { Refusal::StartFailed { session } } else { Refusal::SessionClosed { session } }
}
