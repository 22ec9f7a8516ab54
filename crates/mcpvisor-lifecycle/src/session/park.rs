//! Parking: a session that nobody uses ends its servers and keeps its key and its slot; whoever calls it starts them again.
use super::live::reply;
use super::slot::Status;
use super::types::{ChangeRefusal, Changed, CloseReason, SessionEffect};
use super::work::Work;
use super::{Effects, Phase, Session};
use crate::seeded::Bug;
use crate::{Moment, RequestId};

impl Session {
    /// Starting, live, or somewhere between two lives: nothing of a close yet.
    pub(super) fn is_open(&self) -> bool {
        matches!(
            self.phase,
            Phase::Starting | Phase::Live | Phase::Parking { .. } | Phase::Parked | Phase::Waking
        )
    }

    /// A change of its servers is under way.
    pub(super) fn is_changing(&self) -> bool {
        self.slots.iter().any(|slot| slot.work != Work::Member)
    }

    /// Nobody is admitted any more until it is awake: its servers are stopped, each by its ladder.
    pub(super) fn park(&mut self, now: Moment, out: &mut Effects) {
        self.enter(now, Phase::Parking { wanted: false });
        for slot in self.slots.iter().filter(|slot| slot.is_reachable()) {
            out.push(SessionEffect::StopServer { server: slot.place, term_first: false });
        }
        self.check_parking(now, out);
    }

    /// Someone waits at the parked gate. However many there are, there is one start.
    pub(super) fn wake(&mut self, now: Moment, out: &mut Effects) {
        match &mut self.phase {
            Phase::Parking { wanted } => *wanted = !self.seeded.has(Bug::G19WakeIsForgotten),
            Phase::Parked => self.start_again(now, out),
            Phase::Waking if self.seeded.has(Bug::G2WokenTwice) => self.start_again(now, out),
            _ => {}
        }
    }

    /// Its servers do not run, or are being stopped for that, or started again.
    pub(super) fn is_asleep(&self) -> bool {
        !self.config.direct && matches!(self.phase, Phase::Parking { .. } | Phase::Parked | Phase::Waking)
    }

    /// A restart of a server that does not run: it is started with all others, once, and that is the restart.
    pub(super) fn restart_asleep(&mut self, now: Moment, request: RequestId, at: usize, out: &mut Effects) {
        let wakes = self.phase == Phase::Waking;
        let slot = &mut self.slots[at];
        let server = slot.place;
        match &mut slot.work {
            Work::Restarting { requests, .. } => requests.push(request),
            _ if slot.lost => return reply(request, Err(ChangeRefusal::Busy), out),
            _ if wakes && slot.status == Status::Ready => {
                return reply(request, Ok(Changed::Restarted { server }), out);
            }
            // It has failed, or ended, already: the session's start is not over.
            _ if wakes && slot.status != Status::Starting => {
                return reply(request, Err(ChangeRefusal::Starting), out);
            }
            work => *work = Work::Restarting { requests: vec![request], over: true },
        }
        self.wake(now, out);
    }

    /// Whether its servers are gone, or can't be.
    pub(super) fn check_parking(&mut self, now: Moment, out: &mut Effects) {
        let Phase::Parking { wanted } = self.phase else { return };
        if self.slots.iter().any(|slot| slot.status == Status::Quarantined) {
            out.push(SessionEffect::RefuseWaiting);
            self.want(CloseReason::ServersFailed, out);
        } else if self.slots.iter().all(super::slot::Slot::is_gone) {
            self.enter(now, Phase::Parked);
            if wanted {
                self.start_again(now, out);
            }
        }
    }

    /// Every server anew, as at the first start.
    fn start_again(&mut self, now: Moment, out: &mut Effects) {
        // An actor that was lost meanwhile is not there to start anything.
        if self.slots.iter().any(|slot| slot.lost) {
            out.push(SessionEffect::RefuseWaiting);
            self.want(CloseReason::Internal, out);
            return;
        }
        self.enter(now, Phase::Waking);
        for slot in &mut self.slots {
            slot.status = Status::Starting;
            out.push(SessionEffect::StartServer { server: slot.place });
        }
    }
}
