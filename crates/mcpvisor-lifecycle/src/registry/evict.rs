//! Room for an open that finds none: one of its user's own sessions that nobody uses is closed for it.
//!
//! Which of them may be is decided here, which one was idle for longest is seen at their gates (`Evict`). The open takes the slot in the step in
//! which nothing is left of that session, and until then it waits as a parked one does, with its own deadline.
use super::capacity::Claim;
use super::pending::{Role, Waiting};
use super::types::{CloseOptions, Open, Phase, Refusal, RegistryEffect};
use super::{Effects, Registry};
use crate::seeded::Bug;
use crate::session::CloseReason;
use crate::{KeyRef, Moment, RequestId, SessionId};

impl Registry {
    /// There is no room for an open that has just come.
    pub(super) fn make_room(&mut self, now: Moment, open: Open, refusal: Refusal, out: &mut Effects) {
        let (Some(idle), request) = (self.config.evict_after, open.request) else {
            return self.no_room(now, open, refusal, out);
        };
        // Room is made for its key already: it goes where the first open of it goes, and is looked at again there.
        let made =
            self.entries.values_mut().find(|entry| entry.heirs.iter().any(|heir| heir.key == open.key));
        if let Some(entry) = made {
            self.pending
                .add(request, Waiting { session: entry.session, role: Role::Heir, deadline: open.deadline });
            entry.heirs.push(open);
            return;
        }
        let among = self.evictable(&open);
        match among.first() {
            None => self.no_room(now, open, refusal, out),
            Some(first) if self.seeded.has(Bug::G32EvictionDoesNotLook) => {
                self.evicting = Some(open);
                self.evicted(now, request, *first, out);
            }
            Some(_) => {
                self.evicting = Some(open);
                out.push(RegistryEffect::Evict { request, among, idle });
            }
        }
    }

    /// The sessions whose slot the open could take: of its own user, live, with an idle limit, and with nothing that is below them or uses
    /// them in another way than through their gate.
    fn evictable(&mut self, open: &Open) -> Vec<SessionId> {
        let claim = Claim::of(open);
        let parent = self.parent_of(open).ok().flatten();
        let of_user = self.entries.iter().filter(|(key, entry)| {
            let quota = &entry.claim.quota;
            key.uid == open.key.uid
                && entry.phase == Phase::Live
                && !entry.direct
                // What sessions share has no slot, and its linger is a limit of its own.
                && !quota.shared
                && entry.children.is_empty()
                && Some(entry.session) != parent
                && quota.lifetime.idle.is_some()
                // A slot that is reserved for administrators stays one.
                && quota.administrator == claim.quota.administrator
                // What others wait for is not taken from them.
                && !(self.queue.blocked && quota.processes < claim.quota.processes)
        });
        let of_user: Vec<(SessionId, Claim)> =
            of_user.map(|(_, entry)| (entry.session, entry.claim.clone())).collect();
        let mut among = Vec::new();
        for (session, own) in of_user {
            self.usage.give_back(&own, Phase::Live);
            if self.usage.room(&self.config, &claim).is_ok() {
                among.push(session);
            }
            self.usage.take(&own, Phase::Live);
        }
        among
    }

    /// One of them makes room: it is closed as any other, and its slot is for this open.
    pub(super) fn evicted(&mut self, now: Moment, request: RequestId, session: SessionId, out: &mut Effects) {
        let Some(open) = self.evicting.take_if(|open| open.request == request) else { return };
        let key = self.keys.get(&session).cloned();
        let live = key.filter(|key| matches!(self.current(key), Some((_, Phase::Live))));
        let Some(key) = live else {
            self.evicting = Some(open);
            return self.nobody_idle(now, request, out);
        };
        self.pending.add(request, Waiting { session, role: Role::Heir, deadline: open.deadline });
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.heirs = vec![open];
        }
        self.begin_close(&key, CloseReason::Evicted, &CloseOptions::default(), out);
        if self.seeded.has(Bug::G6EvictedSlotIsTakenAtOnce)
            && let Some(entry) = self.entries.get_mut(&key)
        {
            let (heirs, claim) = (std::mem::take(&mut entry.heirs), entry.claim.clone());
            self.inherit(now, heirs, &claim, out);
        }
    }

    pub(super) fn nobody_idle(&mut self, now: Moment, request: RequestId, out: &mut Effects) {
        if let Some(open) = self.evicting.take_if(|open| open.request == request) {
            self.open_as_it_is(now, open, None, out);
        }
    }

    /// What made room is gone: whether an open has taken its slot. The others of its key join it then, or are refused.
    pub(super) fn inherit(
        &mut self,
        now: Moment,
        heirs: Vec<Open>,
        predecessor: &Claim,
        out: &mut Effects,
    ) -> bool {
        let mut inherited = false;
        for heir in heirs {
            self.pending.remove(heir.request);
            let slot = Some(predecessor).filter(|_| !inherited);
            inherited |= self.open_as_it_is(now, heir, slot, out);
        }
        inherited
    }

    /// What was to make room can't be killed: the opens wait on in the queue, or are refused.
    pub(super) fn disinherit(&mut self, key: &KeyRef, out: &mut Effects) {
        for heir in self.heirs_of(key) {
            self.pending.remove(heir.request);
            self.open_as_it_is(out.now, heir, None, out);
        }
    }

    pub(super) fn refuse_heir(&mut self, key: &KeyRef, refusal: &Refusal, out: &mut Effects) {
        for heir in self.heirs_of(key) {
            self.pending.remove(heir.request);
            out.refuse(heir.request, refusal.clone());
        }
    }

    fn heirs_of(&mut self, key: &KeyRef) -> Vec<Open> {
        self.entries.get_mut(key).map(|entry| std::mem::take(&mut entry.heirs)).unwrap_or_default()
    }
}
