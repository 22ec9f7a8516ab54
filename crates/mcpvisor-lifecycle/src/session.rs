//! One session, from its start to its end.
//!
//! It starts its servers, says when the required ones are ready, and wishes to be closed when it can't go on. Its
//! teardown begins with the registry's close and with nothing else, so that there is one way into it (G15).
mod limits;
mod live;
mod park;
mod slot;
mod teardown;
#[cfg(test)]
mod tests;
mod types;
mod work;

pub use limits::{Activity, IdleLimit, Limits, OnIdle};
pub use live::MOST_SERVERS;
pub use types::{
    ChangeRefusal, Changed, CloseReason, Ended, SessionConfig, SessionEffect, SessionEvent, SessionServer,
    SessionState,
};

use crate::registry::Urgency;
use crate::seeded::{Bug, Seeded};
use crate::server::ServerReport;
use crate::{Moment, Place};
use limits::IdleTimer;
use slot::{Slot, Status};
use work::Work;

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
    /// That of the next server which is added.
    next_place: Place,
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
    /// Its servers are being stopped; someone waits for it by now.
    Parking {
        wanted: bool,
    },
    /// It has no servers that run.
    Parked,
    /// They are being started again.
    Waking,
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
        let places = (0..).map(Place);
        let slots: Vec<_> = config
            .servers
            .iter()
            .zip(places)
            .map(|(server, place)| Slot {
                place,
                name: server.name.clone(),
                required: server.required,
                significant: server.significant,
                status: Status::Unstarted,
                lost: false,
                term_first: false,
                work: Work::Member,
                added_by: None,
            })
            .collect();
        let next_place = Place(u32::try_from(slots.len()).unwrap_or(u32::MAX));
        Self {
            config,
            limits: Limits::default(),
            ttl_at: None,
            idle: IdleTimer::Off,
            next_place,
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
                self.children |= self.phase == Phase::New || self.is_open();
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
            SessionEvent::GateParked { parked } => self.gate_parked(now, parked, &mut out),
            SessionEvent::Wake => self.wake(now, &mut out),
            SessionEvent::Server { server, report } => self.report(now, server, report, &mut out),
            SessionEvent::ServerLost { server } => self.lost(now, server, &mut out),
            SessionEvent::Add { request, server, replace } => self.add(request, server, replace, &mut out),
            SessionEvent::Remove { request, name, drain } => {
                self.remove(now, request, &name, drain, &mut out);
            }
            SessionEvent::Restart { request, name, drain } => {
                self.restart(now, request, &name, drain, &mut out);
            }
            SessionEvent::Yield { request, name } => self.make_room(now, request, &name, &mut out),
            SessionEvent::CancelChange { request } => self.cancel_change(now, request, &mut out),
            SessionEvent::ServerDrained { server } => self.server_drained(server, &mut out),
            SessionEvent::Timeout => {
                self.servers_timed_out(now, &mut out);
                self.look_at_limits(now, &mut out);
                if matches!(self.phase, Phase::Draining { until } if until <= now) {
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

    /// When `Timeout` is due: the end of a drain, the session's or one server's, or before a close the next limit.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Moment> {
        if matches!(self.phase, Phase::Ended(_)) {
            return None;
        }
        let of_servers = self.slots.iter().filter_map(|slot| slot.work.until());
        of_servers.chain(self.drains_until()).chain(self.next_limit()).min()
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
            Phase::Live if self.members().all(|slot| slot.status == Status::Ready) => SessionState::Ready,
            Phase::Live => SessionState::Degraded,
            Phase::Parking { .. } | Phase::Parked | Phase::Waking => SessionState::Ready,
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
            Phase::Parking { .. } => "parking",
            Phase::Parked => "parked",
            Phase::Waking => "waking",
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
            Phase::New | Phase::Live | Phase::Parked | Phase::Ended(_) => return None,
            Phase::Parking { .. } => "its servers to stop, since it is idle",
            Phase::Starting | Phase::Waking => "its servers to be ready",
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
            out.push(SessionEffect::StartServer { server: slot.place });
        }
        if self.client_gone {
            self.want(CloseReason::LeaseEnded, out);
        }
        self.check(now, out);
    }

    fn report(&mut self, now: Moment, server: Place, report: ServerReport, out: &mut Effects) {
        let Some(at) = self.slots.iter().position(|slot| slot.place == server) else { return };
        if !self.slots[at].take(report) {
            return;
        }
        if report == ServerReport::Ending && self.config.direct {
            self.stream_ended = true;
            self.want(CloseReason::LeaseEnded, out);
        }
        self.go_on(now, at, report, out);
        self.check(now, out);
        self.check_parking(now, out);
        self.settle(now, out);
    }

    fn lost(&mut self, now: Moment, server: Place, out: &mut Effects) {
        let Some(slot) = self.slots.iter_mut().find(|slot| slot.place == server) else { return };
        if std::mem::replace(&mut slot.lost, true) || slot.is_gone() {
            return;
        }
        slot.status = Status::Killing;
        live::give_up_restart(slot, out);
        // A quarantined session's outcome is told again after this attempt.
        self.owes_outcome = true;
        out.push(SessionEffect::ReapServer { server });
        self.want(CloseReason::Internal, out);
        self.settle(now, out);
    }

    /// Looks whether the servers make the session ready, or impossible.
    fn check(&mut self, now: Moment, out: &mut Effects) {
        if !matches!(self.phase, Phase::Starting | Phase::Live | Phase::Waking) {
            return;
        }
        let failed =
            if self.phase == Phase::Starting { CloseReason::StartFailed } else { CloseReason::ServersFailed };
        let wished = self.wanted;
        let matter =
            |bad: &dyn Fn(Status) -> bool| self.members().any(|slot| slot.matters() && bad(slot.status));
        let has_failed = matter(&|status| matches!(status, Status::Failed | Status::Quarantined));
        let mut members = self.members().peekable();
        let all_ended = members.peek().is_some() && members.all(|slot| slot.status == Status::Ended);
        let has_ended = all_ended || matter(&|status| status == Status::Ended);
        drop(members);
        if has_failed {
            self.want(failed, out);
        }
        if has_ended {
            self.want(CloseReason::ServersEnded, out);
        }
        if self.phase == Phase::Waking && self.wanted && !wished {
            out.push(SessionEffect::RefuseWaiting);
        }
        if self.phase == Phase::Waking && !self.wanted && self.is_ready() {
            self.enter(now, Phase::Live);
            self.begin_idling(now);
            out.push(SessionEffect::OpenGate);
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

    /// Those that count for what the session is.
    fn members(&self) -> impl Iterator<Item = &Slot> {
        self.slots.iter().filter(|slot| slot.work.is_member())
    }

    /// At most once, and only before a close.
    fn want(&mut self, reason: CloseReason, out: &mut Effects) {
        if !self.wanted && self.is_open() {
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
