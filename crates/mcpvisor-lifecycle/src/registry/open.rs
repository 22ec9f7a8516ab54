//! Admission: open, join, park, and the key's passing on.
use super::capacity::Claim;
use super::entry::{Entry, Parked, ParkedOpen};
use super::pending::{Role, Waiting};
use super::retry::Ends;
use super::types::{Answer, CloseOptions, IfClosing, IfOpen, Open, Phase, Refusal, RegistryEffect};
use super::{Effects, Registry};
use crate::seeded::Bug;
use crate::session::CloseReason;
use crate::{Generation, KeyRef, Moment, RequestId, SessionId, Uid};

impl Registry {
    pub(super) fn open(&mut self, now: Moment, open: Open, out: &mut Effects) {
        match self.place(now, &open) {
            Err(refusal @ Refusal::CapacityExhausted { .. }) => self.make_room(now, open, refusal, out),
            _ => {
                self.open_as_it_is(now, open, None, out);
            }
        }
    }

    /// The same, and nobody makes room; with the slot of a session that is gone, where there is one. True where a session begins.
    pub(super) fn open_as_it_is(
        &mut self,
        now: Moment,
        open: Open,
        predecessor: Option<&Claim>,
        out: &mut Effects,
    ) -> bool {
        match self.place_after(now, &open, predecessor) {
            Ok(Place::Free(parent)) => {
                let key = open.key.clone();
                self.admit(now, key, Parked::of(open, parent), out);
                return true;
            }
            Ok(Place::Join) => self.join(&open, out),
            Ok(Place::Park(parent)) => self.park(open, parent),
            Err(refusal @ Refusal::CapacityExhausted { .. }) => self.no_room(now, open, refusal, out),
            Err(refusal) => out.refuse(open.request, refusal),
        }
        false
    }

    /// The order of the checks is part of the contract: fence, key, quarantine, deadline, parent, capacity, breakers.
    pub(super) fn place(&self, now: Moment, open: &Open) -> Result<Place, Refusal> {
        self.place_after(now, open, None)
    }

    /// The same with the slot of a session that is gone, where there is one.
    pub(super) fn place_after(
        &self,
        now: Moment,
        open: &Open,
        predecessor: Option<&Claim>,
    ) -> Result<Place, Refusal> {
        if self.fenced && (self.shutdown.is_some() || !open.quota.shared) {
            return Err(Refusal::Draining);
        }
        let impatient = open.deadline.is_some_and(|deadline| deadline <= now);
        let Some(entry) = self.entries.get(&open.key) else {
            if impatient {
                return Err(Refusal::DeadlineExceeded { session: None });
            }
            let parent = self.parent_of(open)?;
            let claim = Claim::of(open);
            match predecessor {
                Some(predecessor) => self.usage.room_after(&self.config, &claim, predecessor)?,
                None => {
                    self.usage.room(&self.config, &claim)?;
                    // Who waits for processes has them before anybody who comes later.
                    let waits = self.queue.get(open.request).is_some();
                    if self.queue.blocked && open.quota.processes > 0 && !waits {
                        return Err(self.processes_are_promised());
                    }
                }
            }
            self.breakers.check(now, open.key.uid, &open.specs).map_err(Refusal::Broken)?;
            return Ok(Place::Free(parent));
        };
        let session = entry.session;
        let late = || Err(Refusal::DeadlineExceeded { session: Some(session) });
        match entry.phase {
            Phase::Starting | Phase::Live => {
                if entry.definition != Some(open.definition) || open.if_open == IfOpen::Fail {
                    return Err(Refusal::SessionExists { session });
                }
                if entry.phase == Phase::Starting && self.seeded.has(Bug::G2NoSingleFlight) {
                    return Ok(Place::Free(None));
                }
                if impatient && open.wait && entry.phase == Phase::Starting {
                    return late();
                }
                Ok(Place::Join)
            }
            Phase::Dying if open.quota.shared && self.seeded.has(Bug::G22DyingServerIsJoined) => {
                Ok(Place::Join)
            }
            Phase::Dying => {
                let taken_over = entry.definition.is_none();
                if self.seeded.has(Bug::G1ReopenDoesNotWait)
                    || taken_over && self.seeded.has(Bug::G36RecoveryForgetsTheBarrier)
                {
                    return Ok(Place::Free(None));
                }
                if open.if_closing == IfClosing::Fail {
                    return Err(Refusal::SessionClosing { session });
                }
                // The parked open owns the key that will be free: towards a later open it counts as open.
                if let Some(parked) = &entry.parked
                    && (parked.definition != open.definition || open.if_open == IfOpen::Fail)
                {
                    return Err(Refusal::SessionExists { session });
                }
                if impatient { late() } else { self.parent_of(open).map(Place::Park) }
            }
            Phase::Quarantined => Err(Refusal::Quarantined { session }),
        }
    }

    pub(super) fn join(&mut self, open: &Open, out: &mut Effects) {
        let Some(entry) = self.entries.get_mut(&open.key) else { return };
        let session = entry.session;
        if open.wait && entry.phase == Phase::Starting {
            entry.waiting.push(open.request);
            self.pending.add(open.request, Waiting { session, role: Role::Opener, deadline: open.deadline });
        } else {
            entry.held = true;
            out.answer(open.request, Answer::Opened { session, created: false });
        }
    }

    pub(super) fn park(&mut self, open: Open, parent: Option<SessionId>) {
        let Some(entry) = self.entries.get_mut(&open.key) else { return };
        let waiting = Waiting { session: entry.session, role: Role::Parked, deadline: open.deadline };
        self.pending.add(open.request, waiting);
        let open = Parked::of(open, parent);
        match &mut entry.parked {
            Some(parked) => parked.opens.extend(open.opens),
            None => entry.parked = Some(open),
        }
    }

    /// Takes a slot and the key for a new generation.
    pub(super) fn admit(&mut self, now: Moment, key: KeyRef, parked: Parked, out: &mut Effects) {
        let Parked { definition, claim, direct, specs, opens } = parked;
        let Some(ParkedOpen { open: first, parent }) = opens.first() else { return };
        let (parent, first) = (*parent, first.request);
        let session = self.next_session(key.uid);
        self.usage.take(&claim, Phase::Starting);
        let ends = Ends::admitted(now, &claim.quota);
        let mut entry = Entry::new(session, claim, Phase::Starting);
        entry.ends = ends;
        entry.definition = Some(definition);
        entry.direct = direct;
        entry.creator = Some(first);
        self.put_below(parent, session, &mut entry);
        if !self.seeded.has(Bug::G29TrialsAreMany) {
            self.breakers.started(now, session, &specs);
        }
        entry.specs = specs;
        out.push(RegistryEffect::Start { session, key: key.clone(), request: first });
        for ParkedOpen { open, .. } in &opens {
            if open.wait {
                entry.waiting.push(open.request);
                self.pending
                    .add(open.request, Waiting { session, role: Role::Opener, deadline: open.deadline });
            } else {
                entry.held = true;
                let created = open.request == first;
                out.answer(open.request, Answer::Opened { session, created });
            }
        }
        self.keys.insert(session, key.clone());
        self.entries.insert(key, entry);
    }

    fn next_session(&mut self, uid: Uid) -> SessionId {
        let last = self.given.entry(uid).or_insert(Generation(0));
        last.0 += 1;
        SessionId { uid, generation: *last }
    }

    /// The key's former session is gone and its slot is free: both go to the parked open, in this very step. The
    /// total and the user's count are as they were before; only what its predecessor did not take can be full. Where the slot is another's
    /// (none), it needs one of its own. A breaker may have opened meanwhile.
    pub(super) fn promote(
        &mut self,
        now: Moment,
        key: KeyRef,
        predecessor: Option<&Claim>,
        mut parked: Parked,
        out: &mut Effects,
    ) {
        for parked in &parked.opens {
            self.pending.remove(parked.open.request);
        }
        parked.opens.retain(|parked| match self.check_parent(parked.parent) {
            Ok(()) => true,
            Err(refusal) => {
                out.refuse(parked.open.request, refusal);
                false
            }
        });
        let room = match predecessor {
            Some(predecessor) => self.usage.room_after(&self.config, &parked.claim, predecessor),
            None => self.usage.room(&self.config, &parked.claim),
        };
        let whole = || self.breakers.check(now, key.uid, &parked.specs).map_err(Refusal::Broken);
        let unseen = self.seeded.has(Bug::G29ParkedOpenPassesTheBreaker);
        if let Err(refusal) = room.and_then(|()| if unseen { Ok(()) } else { whole() }) {
            for ParkedOpen { open, .. } in parked.opens {
                match refusal {
                    // What is full is not its predecessor's slot: it waits on for the rest of its time in the queue.
                    Refusal::CapacityExhausted { .. } => self.no_room(now, open, refusal.clone(), out),
                    _ => out.refuse(open.request, refusal.clone()),
                }
            }
            return;
        }
        self.admit(now, key, parked, out);
    }

    /// Ends the parking on a key, if there is one, with the same refusal for all.
    pub(super) fn unpark(&mut self, key: &KeyRef, refusal: &Refusal, out: &mut Effects) {
        let Some(parked) = self.entries.get_mut(key).and_then(|entry| entry.parked.take()) else {
            return;
        };
        for ParkedOpen { open, .. } in parked.opens {
            self.pending.remove(open.request);
            out.refuse(open.request, refusal.clone());
        }
    }

    /// A request wants no answer any more: it leaves, and what only it kept alive goes with it.
    pub(super) fn cancel(&mut self, request: RequestId, out: &mut Effects) {
        match self.pending.remove(request) {
            Some(waiting) => self.leave(request, waiting, out),
            None if self.unqueue(request, out).is_some() => {}
            None => self.leave_late(request, out),
        }
    }

    /// Nothing is admitted that would be closed at once. What was admitted before loses its lease, unless it is another's.
    pub(super) fn holder_ended(&mut self, request: RequestId, out: &mut Effects) {
        let parked = matches!(self.pending.role(request), Some(Role::Parked | Role::Heir))
            && !self.seeded.has(Bug::G34ParkedOutlivesItsHolder);
        if self.unqueue(request, out).is_some() {
            out.refuse(request, Refusal::HolderEnded);
        } else if parked && let Some(waiting) = self.pending.remove(request) {
            out.refuse(request, Refusal::HolderEnded);
            self.leave(request, waiting, out);
        } else if let Some(entry) = self.entries.values().find(|entry| entry.creator == Some(request))
            && !self.seeded.has(Bug::G34HolderIsForgotten)
        {
            self.close_wanted(entry.session, CloseReason::LeaseEnded, out);
        }
    }

    /// An opener gave up while its answer was on the way: nobody knows of the session, unless others were told,
    /// have joined, use it, or have opened one below it.
    fn leave_late(&mut self, request: RequestId, out: &mut Effects) {
        let Some((key, entry)) = self.entries.iter_mut().find(|(_, entry)| entry.told.contains(&request))
        else {
            return;
        };
        if self.seeded.has(Bug::G7AnswerOnItsWayIsForgotten) {
            return;
        }
        entry.told.retain(|other| *other != request);
        let wanted = !entry.told.is_empty() || entry.held || !entry.children.is_empty();
        if entry.phase == Phase::Live && !wanted {
            let key = key.clone();
            self.begin_close(&key, CloseReason::StartCancelled, &CloseOptions::default(), out);
        }
    }

    /// Answers the requests whose deadlines have come.
    pub(super) fn expire(&mut self, now: Moment, out: &mut Effects) {
        while let Some(request) = self.pending.due(now) {
            let Some(waiting) = self.pending.remove(request) else { break };
            let session = waiting.session;
            match waiting.role {
                Role::WaitClosed | Role::WaitReady => out.answer(request, Answer::NotYet { session }),
                Role::Opener | Role::Parked | Role::Heir | Role::Closer => {
                    out.refuse(request, Refusal::DeadlineExceeded { session: Some(session) });
                }
            }
            self.leave(request, waiting, out);
        }
    }

    fn leave(&mut self, request: RequestId, waiting: Waiting, out: &mut Effects) {
        let Some(key) = self.keys.get(&waiting.session).cloned() else { return };
        let Some(entry) = self.entries.get_mut(&key) else { return };
        match waiting.role {
            Role::Parked => {
                if let Some(parked) = &mut entry.parked {
                    parked.opens.retain(|parked| parked.open.request != request);
                    if parked.opens.is_empty() {
                        entry.parked = None;
                    }
                }
            }
            Role::Heir => entry.heirs.retain(|heir| heir.request != request),
            Role::Opener => {
                entry.waiting.retain(|other| *other != request);
                let pending = &self.pending;
                let others = entry.waiting.iter().any(|other| pending.role(*other) == Some(Role::Opener));
                if entry.phase == Phase::Starting && !others && !entry.held {
                    self.begin_close(&key, CloseReason::StartCancelled, &CloseOptions::default(), out);
                    if self.seeded.has(Bug::G7CancelFreesAtOnce)
                        && let Some(entry) = self.entries.remove(&key)
                    {
                        self.usage.give_back(&entry.claim, entry.phase);
                    }
                }
            }
            Role::Closer | Role::WaitClosed | Role::WaitReady => {
                entry.waiting.retain(|other| *other != request);
                if waiting.role == Role::Closer && self.seeded.has(Bug::G14CancelHurries) {
                    let urgency = super::Urgency::Kill;
                    out.push(RegistryEffect::Urge { session: waiting.session, urgency });
                }
            }
        }
    }
}

/// Where an open goes.
pub(super) enum Place {
    /// The key is free; below this parent.
    Free(Option<SessionId>),
    Join,
    Park(Option<SessionId>),
}
