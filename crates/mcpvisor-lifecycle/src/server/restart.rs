//! Restart arithmetic: intensity over a period, and a backoff that doubles (G29).
//!
//! With the default of five restarts in one minute, a server that dies at once is started six times: the first start,
//! and five more after backoffs that double, each drawn from half to the whole of its length. The sixth restart inside
//! the minute is refused, and the server has failed. One that ran for a whole minute in between begins anew with the
//! first backoff; and since the minute slides, its old restarts count no more either.
use super::types::{Restart, ServerConfig};
use crate::{Incarnation, Moment};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

/// What was restarted when.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct History {
    /// Restarts inside the period, oldest first.
    recent: Vec<Moment>,
    /// How many backoffs there were since the last sustained uptime.
    streak: u32,
}

impl History {
    /// It was ready for so long.
    pub(super) fn ran(&mut self, config: &ServerConfig, uptime: Duration) {
        if uptime >= config.restart_period {
            self.streak = 0;
        }
    }

    /// Takes one restart: the length of its backoff, or none where the limit is reached.
    pub(super) fn restart(
        &mut self,
        now: Moment,
        config: &ServerConfig,
        next: Incarnation,
    ) -> Option<Duration> {
        self.recent.retain(|at| at.after(config.restart_period) > now);
        // Whoever runs it has the limit.
        let followed = config.restart == Restart::Followed;
        if followed {
            self.recent.clear();
        } else if self.recent.len() >= usize::try_from(config.restart_intensity).unwrap_or(usize::MAX) {
            return None;
        }
        self.recent.push(now);
        let length = backoff(config, self.streak);
        self.streak = self.streak.saturating_add(1);
        Some(jittered(length, config.seed, next))
    }
}

fn backoff(config: &ServerConfig, streak: u32) -> Duration {
    let factor = 2_u32.checked_pow(streak).unwrap_or(u32::MAX);
    config.backoff.saturating_mul(factor).min(config.longest_backoff)
}

/// From half to the whole, drawn from the seed and the incarnation alone, so that a history can be repeated.
fn jittered(length: Duration, seed: u64, incarnation: Incarnation) -> Duration {
    let whole = u64::try_from(length.as_micros()).unwrap_or(u64::MAX);
    let mut draw = DefaultHasher::new();
    (seed, incarnation.0).hash(&mut draw);
    Duration::from_micros(whole - draw.finish() % (whole / 2 + 1))
}

#[cfg(test)]
mod tests {
    use super::super::types::Mode;
    use super::*;

    fn config() -> ServerConfig {
        ServerConfig {
            mode: Mode::Shared,
            start: Duration::from_secs(30),
            stdin_grace: Duration::from_secs(2),
            term_grace: Duration::from_secs(3),
            stop_command: None,
            kill_wait: Duration::from_secs(5),
            restart: Restart::Permanent,
            restart_intensity: 5,
            restart_period: Duration::from_secs(60),
            backoff: Duration::from_millis(200),
            longest_backoff: Duration::from_secs(10),
            health: None,
            seed: 7,
        }
    }

    /// G29: at most `intensity` restarts in any period, however they are spread.
    #[test]
    fn g29_the_sixth_restart_in_a_minute_is_refused() {
        let (config, mut history) = (config(), History::default());
        for second in 0..5 {
            assert!(history.restart(Moment(second * 1_000_000), &config, Incarnation(2)).is_some());
        }
        assert_eq!(history.restart(Moment(59_999_999), &config, Incarnation(7)), None);
        assert!(history.restart(Moment(60_000_000), &config, Incarnation(7)).is_some());
        assert_eq!(history.restart(Moment(60_000_001), &config, Incarnation(8)), None);
    }

    /// G29: the backoff doubles to the longest, and only a sustained uptime begins anew.
    #[test]
    fn g29_backoff_doubles_and_is_reset_by_uptime_alone() {
        let config = ServerConfig { restart_intensity: 100, ..config() };
        let mut history = History::default();
        let mut expected = 200;
        for number in 2..20 {
            let drawn = history.restart(Moment(0), &config, Incarnation(number)).unwrap();
            let whole = Duration::from_millis(expected);
            assert!(whole / 2 <= drawn && drawn <= whole, "{drawn:?} of {whole:?}");
            expected = (expected * 2).min(10_000);
            history.ran(&config, Duration::from_secs(59));
        }
        history.ran(&config, Duration::from_secs(60));
        assert!(history.restart(Moment(0), &config, Incarnation(30)).unwrap() <= Duration::from_millis(200));
    }

    #[test]
    fn jitter_differs_from_seed_to_seed_and_is_repeatable() {
        let draw = |seed| jittered(Duration::from_secs(1), seed, Incarnation(2));
        assert_eq!(draw(1), draw(1));
        let distinct: std::collections::BTreeSet<_> = (0..100).map(draw).collect();
        assert!(distinct.len() > 90);
        let bounds = (distinct.first().unwrap(), distinct.last().unwrap());
        assert!(*bounds.0 >= Duration::from_millis(500) && *bounds.1 <= Duration::from_secs(1), "{bounds:?}");
        assert!(
            bounds.1.abs_diff(*bounds.0) > Duration::from_millis(450),
            "from half to the whole: {bounds:?}"
        );
        assert_eq!(jittered(Duration::ZERO, 7, Incarnation(2)), Duration::ZERO);
    }
}
