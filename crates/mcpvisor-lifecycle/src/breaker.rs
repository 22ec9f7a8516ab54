//! Breakers: a server whose starts fail again and again is not started for a while.
//!
//! The restart policy bounds how often one session starts a server that was ready before; a first start that fails is
//! not tried again by it, so that the open fails at once, and its client may ask again at once. That is what a
//! breaker bounds: it counts the failed starts of one server spec of one user over all sessions. It is *closed* until
//! there were too many of them in a period with no good one between; then it is *open* for a time, in which sessions with this server are refused;
//! then *half-open*: one session may try, and how its start comes out closes the breaker or opens it again.
use crate::{Moment, SessionId, Uid};
use std::collections::BTreeMap;
use std::time::Duration;

/// A digest of what a server is: program, arguments, environment, directory, user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpecDigest(pub u64);

/// When breakers open, and for how long. The default has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct BreakerConfig {
    /// So many failed starts open one; zero: none ever opens.
    pub failures: u32,
    /// The time in which they are counted.
    pub period: Duration,
    /// From its opening to the one start that is tried.
    pub wait: Duration,
}

/// The most breakers of one user; the one that was touched longest ago makes room.
pub const MOST_PER_USER: usize = 256;

/// How long to wait for the outcome of a trial before asking again, at most.
const TRIAL: Duration = Duration::from_secs(1);

/// The breakers of all users.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Breakers {
    all: BTreeMap<(Uid, SpecDigest), Breaker>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Breaker {
    position: Position,
    /// Of the last failures, oldest first; as many as open it at most.
    failures: Vec<Moment>,
    /// The session that failed last.
    last: SessionId,
    touched: Moment,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Position {
    Closed,
    Open { until: Moment },
    HalfOpen { trial: SessionId },
}

/// Why a session may not start now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Broken {
    /// Whose breaker it is.
    pub spec: SpecDigest,
    /// The session that failed last.
    pub last: SessionId,
    /// Another session is trying.
    pub trying: bool,
    /// When to ask again, at the earliest.
    pub retry_after: Duration,
}

/// A breaker's position, for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BreakerState {
    /// Sessions start.
    Closed,
    /// None does.
    Open,
    /// One does.
    HalfOpen,
}

impl Breakers {
    /// Whether a session of these servers may start now.
    ///
    /// # Errors
    /// The first breaker that forbids it.
    pub fn check(&self, now: Moment, uid: Uid, specs: &[SpecDigest]) -> Result<(), Broken> {
        for spec in specs {
            let Some(breaker) = self.all.get(&(uid, *spec)) else { continue };
            let (trying, retry_after) = match breaker.position {
                Position::Closed => continue,
                Position::Open { until } if until <= now => continue,
                Position::Open { until } => (false, until.since(now)),
                Position::HalfOpen { .. } => (true, TRIAL),
            };
            return Err(Broken { spec: *spec, last: breaker.last, trying, retry_after });
        }
        Ok(())
    }

    /// The session starts, after a `check` in the same step: it is the trial of each breaker whose time is over.
    pub fn started(&mut self, now: Moment, session: SessionId, specs: &[SpecDigest]) {
        for spec in specs {
            let Some(breaker) = self.all.get_mut(&(session.uid, *spec)) else { continue };
            if matches!(breaker.position, Position::Open { until } if until <= now) {
                breaker.position = Position::HalfOpen { trial: session };
                breaker.touched = now;
            }
        }
    }

    /// The session is ready: all of its servers can be started. True where that closed one.
    pub fn succeeded(&mut self, uid: Uid, specs: &[SpecDigest]) -> bool {
        let mut closed = false;
        for spec in specs {
            let breaker = self.all.remove(&(uid, *spec));
            closed |= breaker.is_some_and(|breaker| breaker.position != Position::Closed);
        }
        closed
    }

    /// The start of one of the session's servers has failed. True where that opened its breaker.
    pub fn failed(
        &mut self,
        now: Moment,
        config: &BreakerConfig,
        session: SessionId,
        spec: SpecDigest,
    ) -> bool {
        if config.failures == 0 {
            return false;
        }
        let key = (session.uid, spec);
        if !self.all.contains_key(&key) {
            self.make_room(session.uid);
        }
        let position = Position::Closed;
        let new = Breaker { position, failures: Vec::new(), last: session, touched: now };
        let breaker = self.all.entry(key).or_insert(new);
        (breaker.last, breaker.touched) = (session, now);
        let open = match breaker.position {
            Position::Closed => {
                breaker.failures.retain(|at| at.after(config.period) > now);
                breaker.failures.push(now);
                breaker.failures.len() >= usize::try_from(config.failures).unwrap_or(usize::MAX)
            }
            Position::HalfOpen { trial } => trial == session,
            // It began before the breaker opened, and tells nothing new.
            Position::Open { .. } => false,
        };
        if open {
            breaker.failures.clear();
            breaker.position = Position::Open { until: now.after(config.wait) };
        }
        open
    }

    /// Nothing of the session is left. A trial that nobody knows the outcome of leaves the next one to another session.
    pub fn ended(&mut self, now: Moment, session: SessionId, specs: &[SpecDigest]) {
        for spec in specs {
            if let Some(breaker) = self.all.get_mut(&(session.uid, *spec))
                && breaker.position == (Position::HalfOpen { trial: session })
            {
                breaker.position = Position::Open { until: now };
            }
        }
    }

    /// All are closed, and nothing is remembered.
    pub fn reset(&mut self) {
        self.all.clear();
    }

    /// The position of one.
    #[must_use]
    pub fn state(&self, uid: Uid, spec: SpecDigest) -> BreakerState {
        match self.all.get(&(uid, spec)).map(|breaker| breaker.position) {
            None | Some(Position::Closed) => BreakerState::Closed,
            Some(Position::Open { .. }) => BreakerState::Open,
            Some(Position::HalfOpen { .. }) => BreakerState::HalfOpen,
        }
    }

    /// How many are not closed.
    #[must_use]
    pub fn open(&self) -> usize {
        self.all.values().filter(|breaker| breaker.position != Position::Closed).count()
    }

    fn make_room(&mut self, uid: Uid) {
        let (first, last) = ((uid, SpecDigest(u64::MIN)), (uid, SpecDigest(u64::MAX)));
        let of_user = || self.all.range(first..=last);
        if of_user().count() >= MOST_PER_USER
            && let Some(key) = of_user().min_by_key(|(_, breaker)| breaker.touched).map(|(key, _)| *key)
        {
            self.all.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests;
