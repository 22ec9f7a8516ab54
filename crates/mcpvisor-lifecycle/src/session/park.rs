//! Parking: a session that nobody uses ends its servers and keeps its key and its slot; whoever calls it starts them again.
use super::slot::Status;
use super::types::{CloseReason, SessionEffect};
use super::work::Work;
use super::{Effects, Phase, Session};
use crate::Moment;
use crate::seeded::Bug;

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
            _ => {}
        }
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
