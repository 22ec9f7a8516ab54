//! What ends a session that nobody closes: its time to live, and being idle.
//!
//! The session is not told of each call. Its one idle timer runs to the moment at which it is idle for too long if nothing happens
//! any more; when that comes it looks what did happen (`LookAtActivity`), and arms the timer anew or claims to be idle. The claim goes
//! to the registry, which looks again in the step that acts on it.
use super::types::{CloseReason, SessionEffect};
use super::{Effects, Phase, Session};
use crate::Moment;
use crate::seeded::Bug;
use std::time::Duration;

/// How long a session may stay. None: as long as nobody closes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Limits {
    /// Its time to live, from its admission.
    pub ttl: Option<Duration>,
    /// How long it may be idle. Not of a direct session, whose activity nobody sees.
    pub idle: Option<IdleLimit>,
}

/// How long a session may be idle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct IdleLimit {
    /// Since the last call began or ended, or a client came or went; not zero.
    pub idle: Duration,
    /// The longest that a call in flight or an attached client holds that off, since the same moment. At least `idle` counts.
    pub pin: Duration,
    /// What becomes of it then. What is busy beyond `pin` is closed, whatever this says.
    pub then: OnIdle,
}

/// What becomes of a session that is idle for too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum OnIdle {
    /// It is closed.
    #[default]
    Close,
    /// Its servers are stopped, and started again when someone calls it.
    Park,
}

/// What a session's gate knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Activity {
    /// When a call last began or ended, a client came or went, or an open was answered with the session.
    pub last: Moment,
    /// A call is in flight, or a client attached.
    pub busy: bool,
}

impl IdleLimit {
    /// When a session is idle for too long, if nothing happens any more.
    #[must_use]
    pub fn due(&self, activity: Activity) -> Moment {
        activity.last.after(if activity.busy { self.idle.max(self.pin) } else { self.idle })
    }
}

/// The one idle timer of a session (G33).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum IdleTimer {
    /// It is not live, or has no limit.
    Off,
    Armed(Moment),
    /// What happened is being looked at.
    Looking,
    /// The registry has been told.
    Claimed,
}

impl Session {
    /// The same with limits, before its first step.
    #[must_use]
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Whether its idle timer runs, or the registry has its claim to be idle.
    #[must_use]
    pub fn watches_idleness(&self) -> bool {
        self.idle != IdleTimer::Off
    }

    pub(super) fn begin_limits(&mut self, now: Moment) {
        self.ttl_at = self.limits.ttl.map(|ttl| now.after(ttl));
    }

    /// It is live from now on.
    pub(super) fn begin_idling(&mut self, now: Moment) {
        if let Some(limit) = self.limits.idle.filter(|_| !self.config.direct) {
            self.idle = IdleTimer::Armed(now.after(limit.idle));
        }
    }

    /// When a limit is looked at next. One that wants its close, or has it, has none.
    pub(super) fn next_limit(&self) -> Option<Moment> {
        if self.wanted || !self.is_open() {
            return None;
        }
        let idle = match self.idle {
            IdleTimer::Armed(at) => Some(at),
            _ => None,
        };
        [self.ttl_at, idle].into_iter().flatten().min()
    }

    pub(super) fn look_at_limits(&mut self, now: Moment, out: &mut Effects) {
        if self.next_limit().is_none_or(|at| at > now) {
            return;
        }
        if self.ttl_at.is_some_and(|at| at <= now) {
            self.want(CloseReason::Ttl, out);
        } else if matches!(self.idle, IdleTimer::Armed(at) if at <= now) {
            self.look(out);
        }
    }

    fn look(&mut self, out: &mut Effects) {
        self.idle = IdleTimer::Looking;
        out.push(SessionEffect::LookAtActivity);
    }

    /// It is busy no more: the timer ran to the end of what could hold idleness off, and is armed anew.
    pub(super) fn quiet(&mut self, out: &mut Effects) {
        if matches!(self.idle, IdleTimer::Armed(_)) && self.next_limit().is_some() {
            self.look(out);
        }
    }

    /// The answer to `LookAtActivity`.
    pub(super) fn looked(&mut self, now: Moment, activity: Activity, out: &mut Effects) {
        let (IdleTimer::Looking, Some(limit)) = (self.idle, self.limits.idle) else { return };
        let due = limit.due(activity);
        if due > now {
            self.idle = IdleTimer::Armed(due);
        } else if self.is_changing() {
            self.idle = IdleTimer::Armed(now.after(limit.idle));
        } else if self.phase == Phase::Live && !self.wanted {
            self.idle = IdleTimer::Claimed;
            let park = limit.then == OnIdle::Park && !activity.busy;
            out.push(if park { SessionEffect::ParkGate } else { SessionEffect::ClaimIdle });
        }
    }

    /// The answer to `ParkGate`.
    pub(super) fn gate_parked(&mut self, now: Moment, parked: bool, out: &mut Effects) {
        if self.idle != IdleTimer::Claimed || self.phase != Phase::Live {
            return;
        }
        if parked {
            self.idle = IdleTimer::Off;
            self.park(now, out);
        } else {
            self.stay_open(now);
        }
    }

    /// The claim came too late: something happened, or there are sessions below.
    pub(super) fn stay_open(&mut self, now: Moment) {
        let (IdleTimer::Claimed, Some(limit)) = (self.idle, self.limits.idle) else { return };
        if !self.seeded.has(Bug::G33IdleTimerIsLost) {
            self.idle = IdleTimer::Armed(now.after(limit.idle));
        } else {
            self.idle = IdleTimer::Off;
        }
    }
}
