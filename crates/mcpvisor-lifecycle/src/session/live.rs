//! Servers that are added, removed and restarted while the session lives (G26).
//!
//! Each change is a transaction of this machine, and so is the close: whichever is stepped first comes first. A server that
//! is added is published in the step that finds it ready, and in no other; one that is removed is the session's no more in
//! the step of its remove, whatever becomes of its processes.
use super::slot::{Slot, Status};
use super::types::{ChangeRefusal, Changed, SessionEffect, SessionServer};
use super::work::{Waiting, Work};
use super::{Effects, Phase, Session};
use crate::seeded::Bug;
use crate::server::ServerReport;
use crate::{Moment, Place, RequestId, ServerName};
use std::time::Duration;

/// The most servers of a session at one time, those included that are being added or ended.
pub const MOST_SERVERS: usize = 64;

impl Session {
    pub(super) fn add(
        &mut self,
        request: RequestId,
        server: SessionServer,
        replace: bool,
        out: &mut Effects,
    ) {
        let SessionServer { name, required, significant } = server;
        let replaces = match self.may_add(&name, replace) {
            Ok(replaces) => replaces,
            Err(refusal) => return reply(request, Err(refusal), out),
        };
        let server = self.next_place;
        self.next_place = Place(server.0.saturating_add(1));
        self.slots.push(Slot {
            place: server,
            name,
            required,
            significant,
            status: Status::Starting,
            lost: false,
            term_first: false,
            work: Work::Joining { request, replaces },
            added_by: None,
        });
        out.push(SessionEffect::CreateServer { request, server, replaces });
        out.push(SessionEffect::StartServer { server });
    }

    /// Whom it replaces.
    fn may_add(&self, name: &ServerName, replace: bool) -> Result<Option<Place>, ChangeRefusal> {
        self.may_change()?;
        let replaces = if replace {
            let at = self.member(name).ok_or(ChangeRefusal::NoServer)?;
            let slot = &self.slots[at];
            if !slot.work.is_at_rest() || self.is_being_replaced(slot.place) {
                return Err(ChangeRefusal::Busy);
            }
            if matches!(slot.work, Work::Yielded { .. }) {
                self.has_room(name)?;
            }
            Some(slot.place)
        } else if self.slots.iter().any(|slot| slot.name == *name) {
            // Also while it is being ended: two of one name could not be told apart.
            return Err(ChangeRefusal::NameTaken);
        } else {
            None
        };
        if self.slots.len() >= MOST_SERVERS {
            return Err(ChangeRefusal::TooMany);
        }
        Ok(replaces)
    }

    pub(super) fn remove(
        &mut self,
        now: Moment,
        request: RequestId,
        name: &ServerName,
        drain: Option<Duration>,
        out: &mut Effects,
    ) {
        if let Err(refusal) = self.may_change() {
            return reply(request, Err(refusal), out);
        }
        if let Some(at) = self.member(name) {
            let place = self.slots[at].place;
            if !self.slots[at].work.is_at_rest() || self.is_being_replaced(place) {
                return reply(request, Err(ChangeRefusal::Busy), out);
            }
            let waiting = vec![(request, Ok(Changed::Removed { server: place }))];
            return self.retire(now, at, waiting, drain, out);
        }
        let Some(at) = self.slots.iter().rposition(|slot| slot.name == *name) else {
            return reply(request, Err(ChangeRefusal::NoServer), out);
        };
        let slot = &mut self.slots[at];
        let answer = (request, Ok(Changed::Removed { server: slot.place }));
        match &mut slot.work {
            Work::Retiring { waiting, .. } => waiting.push(answer),
            Work::Leaving { waiting } => {
                waiting.push(answer);
                if slot.status == Status::Quarantined {
                    kill_again(slot, out);
                }
            }
            _ => reply(request, Err(ChangeRefusal::Busy), out),
        }
    }

    pub(super) fn restart(
        &mut self,
        now: Moment,
        request: RequestId,
        name: &ServerName,
        drain: Option<Duration>,
        out: &mut Effects,
    ) {
        let asleep = self.is_asleep();
        if !asleep && let Err(refusal) = self.may_change() {
            return reply(request, Err(refusal), out);
        }
        let Some(at) = self.member(name) else {
            let known = self.slots.iter().any(|slot| slot.name == *name);
            let refusal = if known { ChangeRefusal::Busy } else { ChangeRefusal::NoServer };
            return reply(request, Err(refusal), out);
        };
        if asleep {
            return self.restart_asleep(now, request, at, out);
        }
        let replaced = self.is_being_replaced(self.slots[at].place);
        let budget = drain.unwrap_or(self.config.drain);
        let room = self.has_room(name);
        let slot = &mut self.slots[at];
        let gone = slot.is_gone();
        match &mut slot.work {
            Work::Holding { requests, .. } | Work::Restarting { requests, .. } => requests.push(request),
            _ if replaced || slot.lost => reply(request, Err(ChangeRefusal::Busy), out),
            Work::Yielded { request: None } if gone => {
                if let Err(refusal) = room {
                    return reply(request, Err(refusal), out);
                }
                slot.status = Status::Starting;
                slot.work = Work::Restarting { requests: vec![request], over: true };
                out.push(SessionEffect::StartServer { server: slot.place });
            }
            Work::Yielding { .. } | Work::Yielded { .. } => reply(request, Err(ChangeRefusal::Busy), out),
            _ if matches!(slot.status, Status::Quarantined | Status::Killing) => {
                reply(request, Err(ChangeRefusal::Quarantined { server: slot.place }), out);
            }
            _ if slot.status == Status::Ready && !budget.is_zero() => {
                slot.work = Work::Holding { until: now.after(budget), requests: vec![request] };
                out.push(SessionEffect::HoldServer { server: slot.place });
            }
            _ => start_again(slot, vec![request], out),
        }
    }

    /// A member is stopped so that another can take its place.
    pub(super) fn make_room(
        &mut self,
        now: Moment,
        request: RequestId,
        name: &ServerName,
        out: &mut Effects,
    ) {
        if let Err(refusal) = self.may_change() {
            return reply(request, Err(refusal), out);
        }
        let Some(at) = self.member(name) else {
            let known = self.slots.iter().any(|slot| slot.name == *name);
            let refusal = if known { ChangeRefusal::Busy } else { ChangeRefusal::NoServer };
            return reply(request, Err(refusal), out);
        };
        let replaced = self.is_being_replaced(self.slots[at].place);
        let until = now.after(self.config.drain);
        let slot = &mut self.slots[at];
        if !slot.work.is_at_rest() || replaced || slot.lost {
            return reply(request, Err(ChangeRefusal::Busy), out);
        }
        match slot.status {
            Status::Quarantined | Status::Killing => {
                reply(request, Err(ChangeRefusal::Quarantined { server: slot.place }), out);
            }
            Status::Ready => {
                slot.work = Work::Yielding { until, request: Some(request) };
                out.push(SessionEffect::HoldServer { server: slot.place });
            }
            _ if slot.is_gone() => made_room(slot, Some(request), out),
            _ => stop_to_yield(slot, Some(request), out),
        }
    }

    /// Who asked for a change is gone, and has no answer. An add ends, also one that is done by now; anything else goes on (G14).
    pub(super) fn cancel_change(&mut self, now: Moment, request: RequestId, out: &mut Effects) {
        let forgotten = self.seeded.has(Bug::G26CancelIsForgotten);
        for slot in &mut self.slots {
            match &mut slot.work {
                Work::Joining { request: of, .. } if *of == request && !forgotten => {
                    slot.work = Work::Leaving { waiting: Vec::new() };
                    end(slot, out);
                }
                Work::Holding { requests, .. } | Work::Restarting { requests, .. } => {
                    requests.retain(|of| *of != request);
                }
                Work::Retiring { waiting, .. } | Work::Leaving { waiting } => {
                    waiting.retain(|(of, _)| *of != request);
                }
                Work::Yielding { request: of, .. } | Work::Yielded { request: of }
                    if *of == Some(request) =>
                {
                    *of = None;
                }
                Work::Member | Work::Joining { .. } | Work::Yielding { .. } | Work::Yielded { .. } => {}
            }
        }
        self.take_back(now, request, out);
    }

    /// The answer of an add was on its way when its requester went: nobody knows of the server, unless somebody has changed it since. What
    /// is in flight there may finish.
    fn take_back(&mut self, now: Moment, request: RequestId, out: &mut Effects) {
        if self.phase != Phase::Live || self.seeded.has(Bug::G26AnswerOnItsWayIsForgotten) {
            return;
        }
        let added = |slot: &Slot| slot.added_by == Some(request) && slot.work == Work::Member && !slot.lost;
        let Some(at) = self.slots.iter().position(added) else { return };
        if !self.is_being_replaced(self.slots[at].place) {
            self.retire(now, at, Vec::new(), None, out);
        }
    }

    /// Nothing that was asked of a server is in flight any more, or its drain is over.
    pub(super) fn server_drained(&mut self, server: Place, out: &mut Effects) {
        let early = self.seeded.has(Bug::G29YieldIsToldEarly);
        let Some(slot) = self.slots.iter_mut().find(|slot| slot.place == server) else { return };
        drained(slot, out);
        if early && let Work::Yielded { request } = &mut slot.work {
            let told = Ok(Changed::Yielded { server });
            request.take().into_iter().for_each(|of| reply(of, told, out));
        }
    }

    /// The drains of single servers whose time is over.
    pub(super) fn servers_timed_out(&mut self, now: Moment, out: &mut Effects) {
        let due = |slot: &&mut Slot| slot.work.until().is_some_and(|until| until <= now);
        self.slots.iter_mut().filter(due).for_each(|slot| drained(slot, out));
    }

    /// What a report means for the change that is under way.
    pub(super) fn go_on(&mut self, now: Moment, at: usize, report: ServerReport, out: &mut Effects) {
        let live = self.phase == Phase::Live || self.seeded.has(Bug::G26AddOutlivesTheClose);
        let slot = &mut self.slots[at];
        let server = slot.place;
        match std::mem::replace(&mut slot.work, Work::Member) {
            Work::Joining { request, replaces } => match report {
                ServerReport::Ready if live => {
                    out.push(SessionEffect::PublishServer { server, replaces });
                    let changed = match replaces {
                        Some(_) => Changed::Replaced { server },
                        None => {
                            slot.added_by = Some(request);
                            Changed::Added { server }
                        }
                    };
                    reply(request, Ok(changed), out);
                    if let Some(old) = replaces.and_then(|old| self.at(old)) {
                        self.retire(now, old, Vec::new(), None, out);
                    }
                }
                ServerReport::Failed(_) if self.seeded.has(Bug::G26FailedAddStays) => {
                    reply(request, Err(ChangeRefusal::Failed { server }), out);
                }
                ServerReport::Failed(_) | ServerReport::Ended | ServerReport::Stopped => {
                    slot.work =
                        Work::Leaving { waiting: vec![(request, Err(ChangeRefusal::Failed { server }))] };
                }
                ServerReport::Quarantined => {
                    reply(request, Err(ChangeRefusal::Quarantined { server }), out);
                    slot.work = Work::Leaving { waiting: Vec::new() };
                    if slot.is_reachable() {
                        // It is never to come back, whatever its policy says.
                        out.push(SessionEffect::StopServer { server, term_first: false });
                    }
                }
                _ => slot.work = Work::Joining { request, replaces },
            },
            // It has nothing in flight any more.
            Work::Holding { requests, .. } if report != ServerReport::Ready => {
                start_again(slot, requests, out);
            }
            Work::Restarting { requests, over } => {
                let refusal = match report {
                    ServerReport::Quarantined => Some(ChangeRefusal::Quarantined { server }),
                    ServerReport::Restarting | ServerReport::Failed(_) | ServerReport::Ended if over => {
                        Some(ChangeRefusal::Failed { server })
                    }
                    _ => None,
                };
                match (report, refusal) {
                    (ServerReport::Ready, _) if over => {
                        for request in requests {
                            reply(request, Ok(Changed::Restarted { server }), out);
                        }
                    }
                    (_, Some(refusal)) => {
                        for request in requests {
                            reply(request, Err(refusal), out);
                        }
                        if !over {
                            // It still comes when the kernel has let go of the old one.
                            slot.work = Work::Restarting { requests: Vec::new(), over };
                        }
                    }
                    _ => {
                        let over = over || report == ServerReport::Relaunched;
                        slot.work = Work::Restarting { requests, over };
                    }
                }
            }
            Work::Yielding { request, .. } | Work::Yielded { request }
                if report == ServerReport::Quarantined =>
            {
                // It is a member that can't be killed, and nothing else.
                if let Some(request) = request {
                    reply(request, Err(ChangeRefusal::Quarantined { server }), out);
                }
            }
            Work::Yielding { request, .. } | Work::Yielded { request } if slot.is_gone() => {
                made_room(slot, request, out);
            }
            Work::Yielding { request, .. } if report != ServerReport::Ready => {
                stop_to_yield(slot, request, out);
            }
            Work::Retiring { waiting, .. } if report != ServerReport::Ready => {
                slot.work = Work::Leaving { waiting };
                if slot.is_reachable() {
                    end(slot, out);
                }
            }
            other => slot.work = other,
        }
        self.forget_those_gone(out);
    }

    /// The close has come: what is being added is ended at once, and whoever waits for a restart is told.
    pub(super) fn fence_changes(&mut self, out: &mut Effects) {
        for slot in &mut self.slots {
            match &mut slot.work {
                Work::Joining { request, .. } if !self.seeded.has(Bug::G26AddOutlivesTheClose) => {
                    slot.work = Work::Leaving { waiting: vec![(*request, Err(ChangeRefusal::Closed))] };
                    if matches!(self.phase, Phase::Draining { .. }) || self.children {
                        end(slot, out);
                    }
                }
                Work::Holding { requests, .. } => {
                    let requests = std::mem::take(requests);
                    slot.work = Work::Member;
                    requests.into_iter().for_each(|of| reply(of, Err(ChangeRefusal::Closed), out));
                }
                Work::Restarting { requests, .. } => {
                    let requests = std::mem::take(requests);
                    requests.into_iter().for_each(|of| reply(of, Err(ChangeRefusal::Closed), out));
                }
                Work::Yielding { request, .. } | Work::Yielded { request } => {
                    let request = request.take();
                    slot.work = Work::Member;
                    request.into_iter().for_each(|of| reply(of, Err(ChangeRefusal::Closed), out));
                }
                _ => {}
            }
        }
    }

    /// The servers stop: those that were to drain by themselves too.
    pub(super) fn retire_all(&mut self) {
        for slot in &mut self.slots {
            if let Work::Retiring { waiting, .. } = &mut slot.work {
                slot.work = Work::Leaving { waiting: std::mem::take(waiting) };
            }
        }
    }

    /// Those that leave and are gone are no part of the session any more; who waits for one that can't be killed is told.
    fn forget_those_gone(&mut self, out: &mut Effects) {
        self.slots.retain_mut(|slot| {
            let Work::Leaving { waiting } = &mut slot.work else { return true };
            if slot.status == Status::Quarantined {
                let server = slot.place;
                for (request, _) in std::mem::take(waiting) {
                    reply(request, Err(ChangeRefusal::Quarantined { server }), out);
                }
            }
            let gone = slot.is_gone();
            if gone {
                let Work::Leaving { waiting } = std::mem::replace(&mut slot.work, Work::Member) else {
                    return false;
                };
                out.push(SessionEffect::ForgetServer { server: slot.place });
                waiting.into_iter().for_each(|(request, answer)| reply(request, answer, out));
            }
            !gone
        });
    }

    /// From this step on it is not the session's any more.
    fn retire(
        &mut self,
        now: Moment,
        at: usize,
        waiting: Waiting,
        drain: Option<Duration>,
        out: &mut Effects,
    ) {
        let budget = drain.unwrap_or(self.config.drain);
        let early = self.seeded.has(Bug::G26RemoveIsToldEarly);
        let (told, waiting) = if early { (waiting, Vec::new()) } else { (Vec::new(), waiting) };
        told.into_iter().for_each(|(request, answer)| reply(request, answer, out));
        let slot = &mut self.slots[at];
        out.push(SessionEffect::RetireServer { server: slot.place });
        if slot.status == Status::Ready && !budget.is_zero() {
            slot.work = Work::Retiring { until: now.after(budget), waiting };
        } else {
            slot.work = Work::Leaving { waiting };
            end(slot, out);
        }
        self.forget_those_gone(out);
    }

    fn may_change(&self) -> Result<(), ChangeRefusal> {
        match self.phase {
            _ if self.config.direct => Err(ChangeRefusal::Direct),
            // Whoever asks for a change of a parked session has woken it; a restart does so by itself.
            Phase::New | Phase::Starting | Phase::Parking { .. } | Phase::Parked | Phase::Waking => {
                Err(ChangeRefusal::Starting)
            }
            Phase::Live => Ok(()),
            _ => Err(ChangeRefusal::Closing),
        }
    }

    fn at(&self, server: Place) -> Option<usize> {
        self.slots.iter().position(|slot| slot.place == server)
    }

    fn member(&self, name: &ServerName) -> Option<usize> {
        self.slots.iter().position(|slot| slot.name == *name && slot.work.is_member())
    }

    /// Whether a member that made room has it back: what was to stand in its place, and does not, is gone.
    fn has_room(&self, name: &ServerName) -> Result<(), ChangeRefusal> {
        let left = |slot: &&Slot| slot.name == *name && !slot.work.is_member() && !slot.is_gone();
        match self.slots.iter().find(left) {
            Some(_) if self.seeded.has(Bug::G29ReplacementIsForgotten) => Ok(()),
            Some(slot) if matches!(slot.status, Status::Quarantined | Status::Killing) => {
                Err(ChangeRefusal::Quarantined { server: slot.place })
            }
            Some(_) => Err(ChangeRefusal::Busy),
            None => Ok(()),
        }
    }

    fn is_being_replaced(&self, server: Place) -> bool {
        let replaces =
            |slot: &Slot| matches!(slot.work, Work::Joining { replaces: Some(old), .. } if old == server);
        self.slots.iter().any(replaces)
    }
}

/// Its actor is lost: nobody is there to start it again.
pub(super) fn give_up_restart(slot: &mut Slot, out: &mut Effects) {
    if let Work::Holding { requests, .. } | Work::Restarting { requests, .. } = &mut slot.work {
        let requests = std::mem::take(requests);
        slot.work = Work::Member;
        requests.into_iter().for_each(|of| reply(of, Err(ChangeRefusal::Closing), out));
    }
    if let Work::Yielding { request, .. } | Work::Yielded { request } = &mut slot.work {
        let request = request.take();
        slot.work = Work::Member;
        request.into_iter().for_each(|of| reply(of, Err(ChangeRefusal::Closing), out));
    }
}

fn stop_to_yield(slot: &mut Slot, request: Option<RequestId>, out: &mut Effects) {
    let server = slot.place;
    slot.work = Work::Yielded { request };
    out.push(SessionEffect::SettleServer { server });
    out.push(SessionEffect::StopServer { server, term_first: false });
}

/// Nothing of it is left; that it is gone is nobody's concern now.
fn made_room(slot: &mut Slot, request: Option<RequestId>, out: &mut Effects) {
    let server = slot.place;
    slot.status = Status::Stopped;
    slot.work = Work::Yielded { request: None };
    request.into_iter().for_each(|of| reply(of, Ok(Changed::Yielded { server }), out));
}

pub(super) fn reply(request: RequestId, result: Result<Changed, ChangeRefusal>, out: &mut Effects) {
    out.push(SessionEffect::Reply { request, result });
}

fn drained(slot: &mut Slot, out: &mut Effects) {
    match &mut slot.work {
        Work::Holding { requests, .. } => {
            let requests = std::mem::take(requests);
            start_again(slot, requests, out);
        }
        Work::Yielding { request, .. } => {
            let request = request.take();
            stop_to_yield(slot, request, out);
        }
        Work::Retiring { waiting, .. } => {
            slot.work = Work::Leaving { waiting: std::mem::take(waiting) };
            end(slot, out);
        }
        _ => {}
    }
}

/// What is pending is settled, and the ladder begins.
fn end(slot: &mut Slot, out: &mut Effects) {
    let server = slot.place;
    if slot.is_gone() {
        return;
    }
    out.push(SessionEffect::SettleServer { server });
    if slot.is_reachable() {
        out.push(SessionEffect::StopServer { server, term_first: false });
    }
    if slot.status == Status::Quarantined {
        kill_again(slot, out);
    }
}

fn kill_again(slot: &mut Slot, out: &mut Effects) {
    let server = slot.place;
    slot.status = Status::Killing;
    out.push(if slot.lost {
        SessionEffect::ReapServer { server }
    } else {
        SessionEffect::RetryKillServer { server }
    });
}

fn start_again(slot: &mut Slot, requests: Vec<RequestId>, out: &mut Effects) {
    let server = slot.place;
    slot.status = Status::Starting;
    slot.work = Work::Restarting { requests, over: false };
    out.push(SessionEffect::SettleServer { server });
    out.push(SessionEffect::RestartServer { server });
}
