//! The way of an open through the queue: in where there is no room, out where there is, or where its time is over.
use super::capacity::{Claim, full};
use super::entry::Parked;
use super::types::{CapacityScope, Open, Queued, Refusal, RegistryEffect};
use super::{Effects, Registry};
use crate::seeded::Bug;
use crate::{Moment, RequestId, Uid};

impl Registry {
    /// An open for which there is no room: it waits, where it wants to and may.
    pub(super) fn no_room(&mut self, now: Moment, open: Open, refusal: Refusal, out: &mut Effects) {
        let Refusal::CapacityExhausted { scope, limit: limit @ 1.., .. } = refusal else {
            // No end of any session makes room for it.
            return self.refuse_full(now, &open, refusal, out);
        };
        let never = match scope {
            CapacityScope::SessionProcesses => true,
            CapacityScope::Processes => open.quota.processes > limit,
            _ => false,
        };
        let Some(until) = open.queue.filter(|until| *until > now && !never) else {
            return self.refuse_full(now, &open, refusal, out);
        };
        let (used, limit) = (self.queue.of(open.key.uid), self.config.max_queued_per_user);
        if used >= limit {
            let full = full(CapacityScope::Queue, used, limit);
            return self.refuse_full(now, &open, full, out);
        }
        let until = open.deadline.map_or(until, |deadline| deadline.min(until));
        self.queue.push(open, until);
    }

    /// One leaves without a slot.
    pub(super) fn unqueue(&mut self, request: RequestId, out: &mut Effects) -> Option<Open> {
        let open = self.queue.remove(request)?;
        out.push(RegistryEffect::LeftQueue { request, admitted: false });
        Some(open)
    }

    /// Gives slots to those that wait, each in its turn, for as long as one fits.
    pub(super) fn serve_queue(&mut self, now: Moment, out: &mut Effects) {
        self.queue.blocked = false;
        while let Some(request) = self.next_that_fits(now, out) {
            let keeps = self.seeded.has(Bug::G6FloodKeepsItsTurn);
            let open = if keeps { self.queue.remove(request) } else { self.queue.serve(request) };
            if let Some(open) = open {
                out.push(RegistryEffect::LeftQueue { request, admitted: true });
                self.open(now, open, out);
            }
            if self.seeded.has(Bug::G6OneSlotForTwo)
                && let Some(next) = self.queue.order().first().and_then(|next| self.queue.serve(*next))
            {
                self.admit(now, next.key.clone(), Parked::of(next, None), out);
            }
        }
    }

    /// The limits of a user's own are passed over; where all wait for processes, the next one has them first.
    fn next_that_fits(&mut self, now: Moment, out: &mut Effects) -> Option<RequestId> {
        for request in self.queue.order() {
            let open = self.queue.get(request)?;
            match self.place(now, open) {
                Ok(_) => return Some(request),
                Err(Refusal::CapacityExhausted { scope: CapacityScope::Processes, .. }) => {
                    self.queue.blocked = true;
                    return None;
                }
                Err(Refusal::CapacityExhausted { .. }) => {}
                Err(refusal) => {
                    self.unqueue(request, out);
                    out.refuse(request, refusal);
                }
            }
        }
        None
    }

    /// Tells those that wait where they stand.
    pub(super) fn tell_positions(&mut self, out: &mut Effects) {
        for (request, position) in self.queue.moved() {
            out.push(RegistryEffect::Queued { request, position });
        }
    }

    /// Refuses those whose time in the queue is over.
    pub(super) fn expire_queue(&mut self, now: Moment, out: &mut Effects) {
        while let Some(open) = self.queue.due(now).and_then(|request| self.unqueue(request, out)) {
            if self.seeded.has(Bug::G19QueuedOpenIsForgotten) {
                continue;
            }
            let late = open.deadline.is_some_and(|deadline| deadline <= now);
            let refusal = match self.usage.room(&self.config, &Claim::of(&open)) {
                _ if late => Refusal::DeadlineExceeded { session: None },
                Err(refusal) => refusal,
                Ok(()) => self.processes_are_promised(),
            };
            self.refuse_full(now, &open, refusal, out);
        }
    }

    /// What an open is told that would take what another one waits for.
    pub(super) fn processes_are_promised(&self) -> Refusal {
        let (used, limit) = (self.usage.processes(), self.config.max_processes);
        full(CapacityScope::Processes, used, limit)
    }

    /// Nobody gets a slot any more.
    pub(super) fn refuse_queue(&mut self, refusal: &Refusal, out: &mut Effects) {
        for request in self.queue.order() {
            self.unqueue(request, out);
            out.refuse(request, refusal.clone());
        }
    }

    /// The opens that wait for a slot, of one user or of all, in the order of their turns.
    #[must_use]
    pub fn queued(&self, of: Option<Uid>) -> Vec<Queued> {
        let order = self.queue.order().into_iter().enumerate();
        order
            .filter_map(|(index, request)| {
                let open = self.queue.get(request).filter(|open| of.is_none_or(|uid| open.key.uid == uid))?;
                let (key, tenant) = (open.key.clone(), open.tenant.clone());
                Some(Queued { request, key, tenant, position: index + 1 })
            })
            .collect()
    }
}
