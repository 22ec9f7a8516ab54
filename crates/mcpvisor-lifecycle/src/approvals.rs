//! Tool calls of one session that are held for a person: each is decided exactly once.
//!
//! A held call ends by the first of these: it is approved or denied, its time is over, its caller gives up, its server is removed or does not
//! run any more, its session is being closed. What comes later changes nothing, and is told what came first. There is no time in here: who holds a call says when its time is over.
use crate::ServerName;
use crate::seeded::{Bug, Seeded};
use std::collections::{BTreeMap, VecDeque};

/// The most calls of one session that are held at once.
pub const MOST_HELD: usize = 256;
/// The most decisions that are remembered, to be told to who decides again.
pub const MOST_REMEMBERED: usize = 256;

/// The number of a held call among those of its session; the first is 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HoldNumber(pub u64);

/// What became of a held call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    /// It goes on.
    Approved,
    /// A person said no.
    Denied,
    /// Nobody decided in time, which is a no.
    TimedOut,
    /// Its caller gave up, or is gone.
    Withdrawn,
    /// Its server was removed, or has ended for good.
    ServerGone,
    /// Its session is being closed.
    Closed,
}

impl Verdict {
    /// As it is told: `approved`, `denied`, `timed_out`, `withdrawn`, `server_gone`, `closed`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Approved => "approved",
            Self::Denied => "denied",
            Self::TimedOut => "timed_out",
            Self::Withdrawn => "withdrawn",
            Self::ServerGone => "server_gone",
            Self::Closed => "closed",
        }
    }
}

/// Why a call is not held, and must not go on either.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotHeld {
    /// The session is being closed.
    Closed,
    /// Its server is not there any more.
    ServerGone,
    /// So many are held already.
    Full(usize),
}

/// How a decision went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decided {
    /// It is the first, and stands.
    Now,
    /// This one came before it, and stands.
    Before(Verdict),
    /// There is no such call, or its decision is forgotten.
    Unknown,
}

/// The machine: inputs are [`Approvals::hold`], [`Approvals::decide`], [`Approvals::server_gone`] and [`Approvals::close`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Approvals {
    last: u64,
    /// Each with the server that it is for, whichever process or definition has that name.
    held: BTreeMap<HoldNumber, ServerName>,
    decided: VecDeque<(HoldNumber, Verdict)>,
    closed: bool,
    seeded: Seeded,
}

impl Approvals {
    /// The same with one guard taken out.
    #[cfg(feature = "seeded-bugs")]
    #[must_use]
    pub fn with_bug(mut self, bug: Bug) -> Self {
        self.seeded.bug = Some(bug);
        self
    }

    /// Holds a call for a server. `there` is false of one that is removed or has ended for good by now: [`Approvals::server_gone`] comes after that,
    /// and perhaps before this.
    ///
    /// # Errors
    /// Once the session is being closed, where the server is not there, and where too many are held.
    pub fn hold(&mut self, server: &ServerName, there: bool) -> Result<HoldNumber, NotHeld> {
        if self.closed && !self.seeded.has(Bug::G19HeldBehindTheClose) {
            return Err(NotHeld::Closed);
        }
        if !there {
            return Err(NotHeld::ServerGone);
        }
        if self.held.len() >= MOST_HELD {
            return Err(NotHeld::Full(self.held.len()));
        }
        self.last += 1;
        let number = HoldNumber(self.last);
        self.held.insert(number, server.clone());
        Ok(number)
    }

    /// Decides a held call, whoever decides: only the first verdict stands.
    pub fn decide(&mut self, number: HoldNumber, verdict: Verdict) -> Decided {
        if self.held.remove(&number).is_some() {
            self.remember(number, verdict);
            return Decided::Now;
        }
        match self.decided.iter().find(|(known, _)| *known == number) {
            Some(_) if self.seeded.has(Bug::G19DecidedTwice) => Decided::Now,
            Some((_, first)) => Decided::Before(*first),
            None => Decided::Unknown,
        }
    }

    /// The session is being closed: nothing is held any more, now or later. Those that were, oldest first.
    pub fn close(&mut self) -> Vec<HoldNumber> {
        self.closed = true;
        self.end(Verdict::Closed, |_| true)
    }

    /// A server was removed, or has ended for good: nothing is held for it any more. Those that were, oldest first.
    pub fn server_gone(&mut self, server: &ServerName) -> Vec<HoldNumber> {
        self.end(Verdict::ServerGone, |of| of == server)
    }

    fn end(&mut self, verdict: Verdict, which: impl Fn(&ServerName) -> bool) -> Vec<HoldNumber> {
        let mut ended = Vec::new();
        self.held.retain(|number, server| {
            let ends = which(server);
            ended.extend(ends.then_some(*number));
            !ends
        });
        for number in &ended {
            self.remember(*number, verdict);
        }
        ended
    }

    /// How many are held.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held.len()
    }

    fn remember(&mut self, number: HoldNumber, verdict: Verdict) {
        if self.decided.len() == MOST_REMEMBERED {
            self.decided.pop_front();
        }
        self.decided.push_back((number, verdict));
    }
}

#[cfg(test)]
mod tests;
