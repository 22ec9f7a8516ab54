//! What ends a session that nobody closes: its time to live.
use super::types::CloseReason;
use super::{Effects, Phase, Session};
use crate::Moment;
use std::time::Duration;

/// How long a session may stay. None: as long as nobody closes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Limits {
    /// Its time to live, from its admission.
    pub ttl: Option<Duration>,
}

impl Session {
    /// The same with limits, before its first step.
    #[must_use]
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    pub(super) fn begin_limits(&mut self, now: Moment) {
        self.ttl_at = self.limits.ttl.map(|ttl| now.after(ttl));
    }

    /// When a limit is looked at next. One that wants its close, or has it, has none.
    pub(super) fn next_limit(&self) -> Option<Moment> {
        match self.phase {
            Phase::Starting | Phase::Live if !self.wanted => self.ttl_at,
            _ => None,
        }
    }

    pub(super) fn look_at_limits(&mut self, now: Moment, out: &mut Effects) {
        if self.ttl_at.is_some_and(|at| at <= now) {
            self.want(CloseReason::Ttl, out);
        }
    }
}
