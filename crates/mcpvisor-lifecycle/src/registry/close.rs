//! Close, wait, the retry of a kill, fence and shutdown.
use super::pending::{Role, Waiting};
use super::types::{Answer, CloseOptions, Goal, Phase, Refusal, RegistryEffect, Target, Urgency};
use super::{Effects, Registry};
use crate::seeded::Bug;
use crate::session::{CloseReason, Ended};
use crate::{KeyRef, Moment, RequestId, SessionId};

/// A request on a session, in the parts that all of them have.
pub(super) struct Ask {
    pub(super) request: RequestId,
    pub(super) target: Target,
    pub(super) deadline: Option<Moment>,
}

impl Registry {
    /// `close`: only a target that names its generation can mean an ended session.
    pub(super) fn close(
        &mut self,
        now: Moment,
        ask: &Ask,
        options: &CloseOptions,
        wait: bool,
        out: &mut Effects,
    ) {
        let key = ask.target.key.clone();
        let Some((session, phase)) = self.holder(&ask.target) else {
            let ended = ask.target.generation.and_then(|_| self.find(&ask.target));
            match ended {
                Some(session) => out.answer(ask.request, Answer::Closed { session }),
                None => out.refuse(ask.request, Refusal::NotFound),
            }
            return;
        };
        match phase {
            Phase::Starting | Phase::Live => {
                self.begin_close(&key, CloseReason::Requested, options, out);
            }
            Phase::Dying => {
                if options.now {
                    self.urge(&key, Urgency::Hurry, out);
                }
                if self.seeded.has(Bug::G19ParkedOpenIsLost)
                    && let Some(entry) = self.entries.get_mut(&key)
                {
                    entry.parked = None;
                }
                if self.seeded.has(Bug::G13JoinedCloseIsAnsweredEarly) {
                    out.answer(ask.request, Answer::Closed { session });
                    return;
                }
            }
            Phase::Quarantined => self.retry(&key, out),
        }
        if wait {
            self.attend(now, ask, session, Role::Closer, out);
        } else {
            out.answer(ask.request, Answer::Stopping { session });
        }
    }

    /// `wait`: reached, not yet, unknown are three answers (G20).
    pub(super) fn wait(&mut self, now: Moment, ask: &Ask, goal: Goal, out: &mut Effects) {
        let request = ask.request;
        let Some((session, phase)) = self.holder(&ask.target) else {
            let ended = self
                .find(&ask.target)
                .and_then(|session| self.tombs.ended(session, &ask.target.key).map(|ended| (session, ended)));
            match (ended, goal) {
                (None, _) => out.refuse(request, Refusal::NotFound),
                (Some((session, _)), Goal::Closed) => {
                    out.answer(request, Answer::Reached { session, goal });
                }
                (Some((session, ended)), Goal::Ready) => out.refuse(request, never_ready(session, ended)),
            }
            return;
        };
        let early = phase == Phase::Dying && self.seeded.has(Bug::G20WaitSaysClosedEarly);
        let quarantined = phase == Phase::Quarantined && self.is_told_of_quarantine(&ask.target.key);
        match goal {
            Goal::Closed if quarantined => out.answer(request, Answer::Quarantined { session }),
            Goal::Ready if phase == Phase::Live => out.answer(request, Answer::Reached { session, goal }),
            Goal::Closed if early => out.answer(request, Answer::Reached { session, goal }),
            Goal::Ready => self.attend(now, ask, session, Role::WaitReady, out),
            Goal::Closed => self.attend(now, ask, session, Role::WaitClosed, out),
        }
    }

    /// Whether a wait for the end of the key's session is answered at its quarantine. Who waits for a direct session is its
    /// client's, and that client must not wait for the kernel (G39).
    pub(super) fn is_told_of_quarantine(&self, key: &KeyRef) -> bool {
        let direct = self.entries.get(key).is_some_and(|entry| entry.direct);
        direct && !self.seeded.has(Bug::G39WaitOutlastsQuarantine)
    }

    /// `kill`: the current generation only, and only where a kill has failed.
    pub(super) fn retry_kill(&mut self, now: Moment, ask: &Ask, out: &mut Effects) {
        match self.resolve(&ask.target) {
            Err(refusal) => out.refuse(ask.request, refusal),
            Ok(session) => match self.current(&ask.target.key) {
                Some((_, Phase::Quarantined)) => {
                    self.retry(&ask.target.key, out);
                    self.attend(now, ask, session, Role::Closer, out);
                }
                _ => out.refuse(ask.request, Refusal::NotQuarantined { session }),
            },
        }
    }

    /// Has the request wait on the session; with a deadline that is past it is answered at once.
    fn attend(&mut self, now: Moment, ask: &Ask, session: SessionId, role: Role, out: &mut Effects) {
        let Some(entry) = self.entries.get_mut(&ask.target.key) else { return };
        entry.waiting.push(ask.request);
        self.pending.add(ask.request, Waiting { session, role, deadline: ask.deadline });
        if ask.deadline.is_some_and(|deadline| deadline <= now) {
            self.expire(now, out);
        }
    }

    /// The one way into a teardown (G15). The key's session is starting or live.
    pub(super) fn begin_close(
        &mut self,
        key: &KeyRef,
        reason: CloseReason,
        options: &CloseOptions,
        out: &mut Effects,
    ) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        self.usage.shift(&entry.claim, entry.phase, Phase::Dying);
        entry.phase = Phase::Dying;
        entry.by_itself = by_itself(reason);
        entry.ends.torn_down(out.now, &entry.claim.quota.lifetime);
        entry.urgency = if options.now { Urgency::Hurry } else { Urgency::Drain };
        let session = entry.session;
        self.await_children(key, out);
        out.push(RegistryEffect::Close { session, reason, options: options.clone() });
        self.close_children(key, reason, options, out);
        let Some(entry) = self.entries.get(key) else { return };
        let removed = self.seeded.has(Bug::G1EntryIsRemovedAtClose);
        if removed || self.seeded.has(Bug::G6SlotReturnedEarly) {
            self.usage.give_back(&entry.claim, Phase::Dying);
        }
        if removed {
            self.entries.remove(key);
        }
    }

    /// Raises the urgency of a teardown that runs; never lowers it, and tells each step once.
    pub(super) fn urge(&mut self, key: &KeyRef, urgency: Urgency, out: &mut Effects) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        if entry.phase == Phase::Dying && urgency > entry.urgency {
            entry.urgency = urgency;
            // What is left of a lost session is being killed already, and there is no actor to tell.
            if !entry.lost {
                out.push(RegistryEffect::Urge { session: entry.session, urgency });
            }
            self.urge_children(key, urgency, out);
        }
    }

    /// One attempt at a time; who asks while one runs gets its result.
    fn retry(&mut self, key: &KeyRef, out: &mut Effects) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        if !entry.retrying {
            entry.retrying = true;
            let session = entry.session;
            out.push(if entry.lost {
                RegistryEffect::ReapLost { session }
            } else {
                RegistryEffect::RetryKill { session }
            });
        }
    }

    /// Nothing more is admitted, and what is parked was not admitted yet.
    pub(super) fn fence(&mut self, out: &mut Effects) {
        self.fenced = true;
        self.refuse_queue(&Refusal::Draining, out);
        let entries = self.entries.iter().filter(|(_, entry)| !entry.claim.quota.shared);
        let keys: Vec<KeyRef> = entries.map(|(key, _)| key.clone()).collect();
        for key in keys {
            self.unpark(&key, &Refusal::Draining, out);
            self.refuse_heir(&key, &Refusal::Draining, out);
        }
    }

    /// A fence, and every session is torn down at once.
    pub(super) fn shut_down(&mut self, urgency: Urgency, out: &mut Effects) {
        self.fence(out);
        if self.shutdown.is_some_and(|before| before >= urgency) {
            return;
        }
        self.shutdown = Some(urgency);
        let options = CloseOptions { drain: None, now: urgency >= Urgency::Hurry };
        let keys: Vec<KeyRef> = self.entries.keys().cloned().collect();
        for key in keys {
            let skipped = self.seeded.has(Bug::G35ShutdownSkipsStarting);
            let skipped = skipped && self.current(&key).is_some_and(|(_, phase)| phase == Phase::Starting);
            if let Some((_, Phase::Starting | Phase::Live)) = self.current(&key)
                && !skipped
            {
                self.begin_close(&key, CloseReason::Shutdown, &options, out);
            }
            self.unpark(&key, &Refusal::Draining, out);
            self.urge(&key, urgency, out);
        }
    }
}

/// What a wait for ready is told of a session that is over.
pub(super) fn never_ready(session: SessionId, ended: Ended) -> Refusal {
    match ended {
        Ended::Closed => Refusal::SessionClosed { session },
        Ended::Failed => Refusal::SessionFailed { session },
    }
}

/// Whether a session that is closed for this reason ended by itself, and was not closed by someone.
fn by_itself(reason: CloseReason) -> bool {
    match reason {
        CloseReason::StartFailed
        | CloseReason::ServersFailed
        | CloseReason::ServersEnded
        | CloseReason::Internal
        | CloseReason::DaemonLost => true,
        CloseReason::Requested
        | CloseReason::Shutdown
        | CloseReason::LeaseEnded
        | CloseReason::Idle
        | CloseReason::Evicted
        | CloseReason::Ttl
        | CloseReason::ParentClosed
        | CloseReason::StartCancelled => false,
    }
}
