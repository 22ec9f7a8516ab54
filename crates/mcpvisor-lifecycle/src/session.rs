//! One session, from its start to its end.
//!
//! It starts its servers, says when the required ones are ready, and wishes to be closed when it can't go on. Its
//! teardown begins with the registry's close and with nothing else, so that there is one way into it (G15).
mod limits;
mod slot;
mod teardown;
#[cfg(test)]
mod tests;
mod types;

pub use limits::{Activity, IdleLimit, Limits};
pub use types::{
    CloseReason, Ended, SessionConfig, SessionEffect, SessionEvent, SessionServer, SessionState,
};

use crate::registry::Urgency;
use crate::seeded::{Bug, Seeded};
use crate::server::ServerReport;
use crate::{Moment, ServerName};
use limits::IdleTimer;
use slot::{Slot, Status};

/// A session's state. See the module.
///
/// - Commands and facts: [`Session::step`].
/// - Output: the effects of a step, and [`Session::next_timeout`].
/// - Getters: all others; none changes anything.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Session {
    config: SessionConfig,
    limits: Limits,
    /// The end of its time to live.
    ttl_at: Option<Moment>,
    idle: IdleTimer,
    phase: Phase,
    since: Moment,
    slots: Vec<Slot>,
    /// The public state that was told last.
    told: SessionState,
    wanted: bool,
    reason: Option<CloseReason>,
    urgency: Urgency,
    /// Direct mode: the client's stream ended and a ladder began by itself.
    stream_ended: bool,
    /// Direct mode: the shim is gone.
    client_gone: bool,
    /// The sessions below it end before its servers do.
    children: bool,
    /// The registry waits for the outcome of a kill.
    owes_outcome: bool,
    seeded: Seeded,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Phase {
    New,
    Starting,
    Live,
    Draining {
        until: Moment,
    },
    /// Nothing is in flight any more, and there are sessions below it.
    Held,
    Stopping,
    Quarantined,
    Ended(Ended),
}

/// The effects of one step, in order.
type Effects = Vec<SessionEffect>;

impl Session {
    /// A session that has not begun.
    #[must_use]
    pub fn new(config: SessionConfig) -> Self {
        let slots = config
            .servers
            .iter()
            .map(|server| Slot {
                name: server.name.clone(),
                required: server.required,
                significant: server.significant,
                status: Status::Unstarted,
                lost: false,
                term_first: false,
            })
            .collect();
        Self {
            config,
            limits: Limits::default(),
            ttl_at: None,
            idle: IdleTimer::Off,
            phase: Phase::New,
            since: Moment::default(),
            slots,
            told: SessionState::Starting,
            wanted: false,
            reason: None,
            urgency: Urgency::Drain,
            stream_ended: false,
            client_gone: false,
            children: false,
            owes_outcome: false,
            seeded: Seeded::default(),
        }
    }

    /// The same with one guard taken out.
    #[cfg(feature = "seeded-bugs")]
    #[must_use]
    pub fn with_bug(mut self, bug: Bug) -> Self {
        self.seeded.bug = Some(bug);
        self
    }

    /// Advances the machine by one event. `now` never goes back from one step to the next. After `End` nothing has
    /// an effect any more.
    #[must_use]
    pub fn step(&mut self, now: Moment, event: SessionEvent) -> Vec<SessionEffect> {
        let mut out = Effects::new();
        if matches!(self.phase, Phase::Ended(_)) {
            return out;
        }
        match event {
            SessionEvent::Begin => self.begin(now, &mut out),
            SessionEvent::Close { reason, options } => self.close(now, reason, &options, &mut out),
            SessionEvent::AwaitChildren => {
                self.children |= matches!(self.phase, Phase::New | Phase::Starting | Phase::Live);
            }
            SessionEvent::ChildrenGone => self.children_gone(now, &mut out),
            SessionEvent::Urge { urgency } => self.urge(now, urgency, &mut out),
            SessionEvent::RetryKill => self.retry_kill(&mut out),
            SessionEvent::ClientGone => self.client_gone(&mut out),
            SessionEvent::Drained => {
                if matches!(self.phase, Phase::Draining { .. }) {
                    self.finish_drain(now, &mut out);
                }
            }
            SessionEvent::Quiet => self.quiet(&mut out),
            SessionEvent::Activity(activity) => self.looked(now, activity, &mut out),
            SessionEvent::StayOpen => self.stay_open(now),
            SessionEvent::Server { name, report } => self.report(now, &name, report, &mut out),
            SessionEvent::ServerLost { name } => self.lost(now, &name, &mut out),
            SessionEvent::Timeout => {
                if self.next_timeout().is_none_or(|until| until > now) {
                    return out;
                }
                if matches!(self.phase, Phase::Starting | Phase::Live) {
                    self.look_at_limits(now, &mut out);
                } else {
                    self.finish_drain(now, &mut out);
                    if self.seeded.has(Bug::G16DrainEatsTheKill) {
                        self.urge(now, Urgency::Kill, &mut out);
                    }
                }
            }
        }
        self.announce(&mut out);
        out
    }

    /// When `Timeout` is due: the end of the drain, or before a close the next limit.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Moment> {
        self.drains_until().or_else(|| self.next_limit())
    }

    fn drains_until(&self) -> Option<Moment> {
        match self.phase {
            Phase::Draining { until } => Some(until),
            _ => None,
        }
    }

    /// The public state.
    #[must_use]
    pub fn state(&self) -> SessionState {
        match self.phase {
            Phase::New | Phase::Starting => SessionState::Starting,
            Phase::Live if self.slots.iter().all(|slot| slot.status == Status::Ready) => SessionState::Ready,
            Phase::Live => SessionState::Degraded,
            Phase::Draining { .. } | Phase::Held => SessionState::Draining,
            Phase::Stopping => SessionState::Stopping,
            Phase::Quarantined => SessionState::Quarantined,
            Phase::Ended(Ended::Closed) => SessionState::Closed,
            Phase::Ended(Ended::Failed) => SessionState::Failed,
        }
    }

    /// The state as the tables of `docs/lifecycle.md` name it.
    #[must_use]
    pub fn fine_state(&self) -> &'static str {
        match self.phase {
            Phase::New => "new",
            Phase::Starting => "starting",
            Phase::Live => "live",
            Phase::Draining { .. } if self.children => "holding",
            Phase::Draining { .. } => "draining",
            Phase::Held => "held",
            Phase::Stopping => "stopping",
            Phase::Quarantined => "quarantined",
            Phase::Ended(_) => "ended",
        }
    }

    /// What it waits for, since when, how long still; for people.
    #[must_use]
    pub fn waits_for(&self) -> Option<(&'static str, Moment, Option<Moment>)> {
        let what = match self.phase {
            Phase::New | Phase::Live | Phase::Ended(_) => return None,
            Phase::Starting => "its servers to be ready",
            Phase::Draining { .. } => "calls in flight",
            Phase::Held => "the sessions below it to end",
            Phase::Stopping => "its servers to stop",
            Phase::Quarantined => "processes that the kill has left",
        };
        Some((what, self.since, self.drains_until()))
    }

    fn begin(&mut self, now: Moment, out: &mut Effects) {
        if self.phase != Phase::New {
            return;
        }
        self.enter(now, Phase::Starting);
        self.begin_limits(now);
        for slot in &mut self.slots {
            slot.status = Status::Starting;
            out.push(SessionEffect::StartServer { name: slot.name.clone() });
        }
        if self.client_gone {
            self.want(CloseReason::LeaseEnded, out);
        }
        self.check(now, out);
    }

    fn report(&mut self, now: Moment, name: &ServerName, report: ServerReport, out: &mut Effects) {
        let Some(slot) = self.slots.iter_mut().find(|slot| slot.name == *name) else { return };
        if !slot.take(report) {
            return;
        }
        if report == ServerReport::Ending && self.config.direct {
            self.stream_ended = true;
            self.want(CloseReason::LeaseEnded, out);
        }
        self.check(now, out);
        self.settle(now, out);
    }

    fn lost(&mut self, now: Moment, name: &ServerName, out: &mut Effects) {
        let Some(slot) = self.slots.iter_mut().find(|slot| slot.name == *name) else { return };
        if slot.is_gone() || slot.lost {
            return;
        }
        slot.lost = true;
        slot.status = Status::Killing;
        // A quarantined session's outcome is told again after this attempt.
        self.owes_outcome = true;
        out.push(SessionEffect::ReapServer { name: name.clone() });
        self.want(CloseReason::Internal, out);
        self.settle(now, out);
    }

    /// Looks whether the servers make the session ready, or impossible.
    fn check(&mut self, now: Moment, out: &mut Effects) {
        if !matches!(self.phase, Phase::Starting | Phase::Live) {
            return;
        }
        let failed =
            if self.phase == Phase::Starting { CloseReason::StartFailed } else { CloseReason::ServersFailed };
        let mut matter = self.slots.iter().filter(|slot| slot.matters());
        if matter.any(|slot| matches!(slot.status, Status::Failed | Status::Quarantined)) {
            self.want(failed, out);
        }
        let mut matter = self.slots.iter().filter(|slot| slot.matters());
        let all_ended = !self.slots.is_empty() && self.slots.iter().all(|slot| slot.status == Status::Ended);
        if matter.any(|slot| slot.status == Status::Ended) || all_ended {
            self.want(CloseReason::ServersEnded, out);
        }
        if self.phase == Phase::Starting && !self.wanted && self.is_ready() {
            self.enter(now, Phase::Live);
            self.begin_idling(now);
            out.push(SessionEffect::ReportReady);
        }
    }

    /// Every required server is; where none is required, none is still on its way.
    fn is_ready(&self) -> bool {
        if self.slots.iter().any(|slot| slot.required) {
            self.slots.iter().filter(|slot| slot.required).all(|slot| slot.status == Status::Ready)
        } else {
            self.slots.iter().all(|slot| slot.status == Status::Ready || slot.is_settled())
        }
    }

    /// At most once, and only before a close.
    fn want(&mut self, reason: CloseReason, out: &mut Effects) {
        if !self.wanted && matches!(self.phase, Phase::Starting | Phase::Live) {
            self.wanted = true;
            out.push(SessionEffect::WantClose { reason });
        }
    }

    fn enter(&mut self, now: Moment, phase: Phase) {
        self.phase = phase;
        self.since = now;
    }

    fn announce(&mut self, out: &mut Effects) {
        let state = self.state();
        if state != self.told {
            self.told = state;
            out.push(SessionEffect::Changed(state));
        }
    }
}
