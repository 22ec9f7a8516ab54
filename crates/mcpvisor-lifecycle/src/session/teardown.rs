//! From the close to the end: gate, drain, stop, quarantine, end.
use super::slot::Status;
use super::types::{CloseReason, Ended, SessionEffect};
use super::{Effects, Phase, Session};
use crate::Moment;
use crate::registry::{CloseOptions, Urgency};
use crate::seeded::Bug;

impl Session {
    /// The registry's close. Nothing is admitted after this step, whatever way the teardown takes.
    pub(super) fn close(
        &mut self,
        now: Moment,
        reason: CloseReason,
        options: &CloseOptions,
        out: &mut Effects,
    ) {
        let was_live = match self.phase {
            // One that is parked, or about to be, or to be again, has nothing in flight.
            Phase::New | Phase::Starting | Phase::Parking { .. } | Phase::Parked | Phase::Waking => false,
            Phase::Live => true,
            _ => return,
        };
        self.reason = Some(reason);
        self.urgency = if options.now { Urgency::Hurry } else { Urgency::Drain };
        if self.phase == Phase::New {
            self.end(now, out);
            return;
        }
        if !self.seeded.has(Bug::G11GateStaysOpen) {
            out.push(SessionEffect::CloseGate);
        }
        let budget = options.drain.unwrap_or(self.config.drain);
        if was_live && !self.config.direct && !options.now && !budget.is_zero() {
            self.enter(now, Phase::Draining { until: now.after(budget) });
            self.fence_changes(out);
        } else {
            self.fence_changes(out);
            self.finish_drain(now, out);
        }
    }

    /// The drain is over, or there is none: the servers stop, once nothing below the session needs them any more.
    pub(super) fn finish_drain(&mut self, now: Moment, out: &mut Effects) {
        if self.children {
            out.push(SessionEffect::SettleCalls);
            self.enter(now, Phase::Held);
        } else {
            self.stop(now, out);
        }
    }

    pub(super) fn children_gone(&mut self, now: Moment, out: &mut Effects) {
        self.children = false;
        if self.phase != Phase::Held {
            return;
        }
        self.stop(now, out);
        if self.urgency == Urgency::Kill {
            self.urge_servers(out);
        }
    }

    /// What is pending is settled, and all servers stop at the same time.
    fn stop(&mut self, now: Moment, out: &mut Effects) {
        if self.phase != Phase::Held && !self.seeded.has(Bug::G11CallsAreNotSettled) {
            out.push(SessionEffect::SettleCalls);
        }
        self.enter(now, Phase::Stopping);
        self.owes_outcome = true;
        let term_first = self.begins_at_term();
        self.retire_all();
        for slot in &mut self.slots {
            if slot.is_reachable() {
                slot.term_first = term_first;
                out.push(SessionEffect::StopServer { server: slot.place, term_first });
            }
        }
        self.settle(now, out);
    }

    /// In direct mode there is no stdin of ours to close. Where the client's stream ended by itself, the server has
    /// already begun its ladder with the stdin grace, which only the shim's end cuts.
    fn begins_at_term(&self) -> bool {
        let by_itself = self.stream_ended && self.reason == Some(CloseReason::LeaseEnded);
        self.config.direct && (self.client_gone || !by_itself)
    }

    /// Goes only up, and reaches whatever still runs.
    pub(super) fn urge(&mut self, now: Moment, urgency: Urgency, out: &mut Effects) {
        let closing =
            matches!(self.phase, Phase::Draining { .. } | Phase::Held | Phase::Stopping | Phase::Quarantined);
        if !closing || urgency <= self.urgency {
            return;
        }
        self.urgency = urgency;
        if matches!(self.phase, Phase::Draining { .. }) {
            self.finish_drain(now, out);
        }
        if self.phase != Phase::Held {
            self.urge_servers(out);
        }
    }

    fn urge_servers(&self, out: &mut Effects) {
        for slot in self.slots.iter().filter(|slot| slot.is_reachable()) {
            out.push(SessionEffect::UrgeServer { server: slot.place, urgency: self.urgency });
        }
    }

    pub(super) fn client_gone(&mut self, out: &mut Effects) {
        if !self.config.direct {
            return;
        }
        self.client_gone = true;
        self.want(CloseReason::LeaseEnded, out);
        if self.phase == Phase::Stopping {
            for slot in &mut self.slots {
                if slot.is_reachable() && !slot.term_first {
                    slot.term_first = true;
                    out.push(SessionEffect::StopServer { server: slot.place, term_first: true });
                }
            }
        }
    }

    pub(super) fn retry_kill(&mut self, out: &mut Effects) {
        if self.phase != Phase::Quarantined {
            return;
        }
        self.owes_outcome = true;
        for slot in self.slots.iter_mut().filter(|slot| slot.status == Status::Quarantined) {
            slot.status = Status::Killing;
            let server = slot.place;
            out.push(if slot.lost {
                SessionEffect::ReapServer { server }
            } else {
                SessionEffect::RetryKillServer { server }
            });
        }
    }

    /// Looks whether the teardown has an outcome: all gone, or all that is left is quarantined.
    pub(super) fn settle(&mut self, now: Moment, out: &mut Effects) {
        if !matches!(self.phase, Phase::Stopping | Phase::Quarantined) {
            return;
        }
        if self.slots.iter().all(super::slot::Slot::is_gone) {
            self.end(now, out);
        } else if self.owes_outcome && self.slots.iter().all(super::slot::Slot::is_settled) {
            self.owes_outcome = false;
            if self.phase != Phase::Quarantined {
                self.enter(now, Phase::Quarantined);
            }
            out.push(SessionEffect::ReportQuarantined);
        }
    }

    fn end(&mut self, now: Moment, out: &mut Effects) {
        let reason = self.reason.unwrap_or(CloseReason::Internal);
        let ended = match reason {
            CloseReason::StartFailed
            | CloseReason::ServersFailed
            | CloseReason::Internal
            | CloseReason::DaemonLost => Ended::Failed,
            _ => Ended::Closed,
        };
        self.enter(now, Phase::Ended(ended));
        self.announce(out);
        out.push(SessionEffect::End { ended, reason });
    }
}
