//! The reaper's timers, as data. Those that have lost their reason are dropped before they could wake it.
use crate::launch::Key;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Instant;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    /// The launch has taken as long as it may.
    LaunchDeadline(Key),
    /// Look whether the launch waits behind one that hangs.
    LaunchWaits(Key),
    /// The command lines were not read in time: climb all the same.
    ClimbUnnamed(Key),
    /// Kill again what is still there.
    KillAgain(Key),
    /// Look again whether the scope is empty.
    LookAgain(Key),
    /// Search again for the processes of a lost keeper.
    SearchAgain(Key),
    /// Start a guardian in the place of one that has died.
    Guard,
    /// The end of the threads has taken as long as it may.
    EndDeadline,
}

#[derive(Debug, Default)]
pub(super) struct Timers(BinaryHeap<Reverse<(Instant, Timer)>>);

impl Timers {
    pub(super) fn set(&mut self, at: Instant, timer: Timer) {
        self.0.push(Reverse((at, timer)));
    }

    /// When the next one is due, of those that `lives` says still have a reason: the others must not wake us.
    pub(super) fn next(&mut self, lives: impl Fn(Instant, Timer) -> bool) -> Option<Instant> {
        loop {
            let Reverse((at, timer)) = *self.0.peek()?;
            if lives(at, timer) {
                return Some(at);
            }
            self.0.pop();
        }
    }

    pub(super) fn due(&mut self, now: Instant) -> Option<(Instant, Timer)> {
        if self.0.peek()?.0.0 > now {
            return None;
        }
        self.0.pop().map(|Reverse(timer)| timer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn timers_come_in_order_and_stale_ones_wake_nobody() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut timers = Timers::default();
        for (millis, key) in [(30, 3), (10, 1), (20, 2)] {
            timers.set(at(millis), Timer::LookAgain(key));
        }
        assert_eq!(timers.next(|_, timer| timer != Timer::LookAgain(1)), Some(at(20)));
        assert_eq!(timers.due(at(19)), None);
        assert_eq!(timers.due(at(20)), Some((at(20), Timer::LookAgain(2))));
        assert_eq!(timers.next(|_, _| false), None);
    }
}
