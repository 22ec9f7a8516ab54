//! Whether a server that runs is still there: it is asked when it has said nothing for a while, and restarted by its policy when it
//! is deaf.
//!
//! A server is only asked when not a byte was heard of it for `interval` and no call is in flight: one that is busy with a call may be silent for as
//! long as the call takes, and is never sick. Any byte is a sign of life, an answer or not. So a server that
//! is spoken to is never asked, and one that is idle costs a question in each interval.
use super::ladder::{Cause, Intent};
use super::types::{Failure, Mode, ServerEffect};
use super::{Effects, Phase, Server};
use crate::Moment;
use crate::seeded::Bug;
use std::time::Duration;

/// How a server's health is looked after.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Health {
    /// It is asked when it was silent for so long, and not busy; not zero.
    pub interval: Duration,
    /// How long an answer may take, or any other byte; not zero.
    pub timeout: Duration,
    /// So many questions without a sign of life are the end of it; at least one.
    pub misses: u32,
}

/// What is known of a running server's health.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Watch {
    /// When to look again.
    pub(super) due: Moment,
    /// A question is open.
    asked: bool,
    missed: u32,
    /// It was heard, or is busy, as was told last.
    lives: bool,
}

impl Server {
    /// The watch of a server that begins to run; none of one that is not to be asked.
    pub(super) fn watch(&self, now: Moment) -> Option<Watch> {
        let health = self.config.health.filter(|_| self.config.mode == Mode::Shared)?;
        Some(Watch { due: now.after(health.interval), asked: false, missed: 0, lives: false })
    }

    /// Whether it is to be looked at, and told of by `Looked`, before the next `Timeout`.
    #[must_use]
    pub fn is_watched(&self) -> bool {
        matches!(self.phase, Phase::Running { watch: Some(_), .. })
    }

    pub(super) fn looked(&mut self, heard: bool, busy: bool) {
        let busy = busy && !self.seeded.has(Bug::G29BusyIsSick);
        if let Phase::Running { watch: Some(watch), .. } = &mut self.phase {
            watch.lives = heard || busy;
        }
    }

    pub(super) fn health_due(&mut self, now: Moment, out: &mut Effects) {
        let (Phase::Running { watch: Some(watch), .. }, Some(health)) = (&mut self.phase, self.config.health)
        else {
            return;
        };
        if std::mem::take(&mut watch.lives) {
            (watch.asked, watch.missed) = (false, 0);
            watch.due = now.after(health.interval);
            return;
        }
        watch.missed += u32::from(watch.asked);
        if watch.missed >= health.misses {
            self.begin_ladder(now, Intent::Unplanned(Cause::Failed(Failure::Unhealthy)));
            self.end_by_force(now, out);
            return;
        }
        watch.asked = true;
        watch.due = now.after(health.timeout);
        out.push(ServerEffect::AskHealth { incarnation: self.number });
    }
}
