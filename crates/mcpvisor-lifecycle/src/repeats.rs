//! Requests that may be sent again: what has the same id of the same owner is carried out once, and everyone who sends
//! it gets the one answer.
//!
//! The *work* is what such a request asks for; an *asker* is each request that has its id. Who vanishes without a word
//! may be on the way back, so the work waits for a retry before it is given up; who cancels is not.
#[cfg(test)]
mod tests;
mod types;

pub use types::{Name, NotRepeated, RepeatsConfig, RepeatsEffect, RepeatsEvent, Work};

use crate::seeded::RepeatsBug;
use crate::{Moment, RequestId, Uid};
use std::collections::{BTreeMap, BTreeSet};

/// All ids that are known. See the module.
///
/// - Commands and facts: [`Repeats::step`].
/// - Output: the effects of a step, and [`Repeats::next_timeout`].
/// - Getters: all others; none changes anything.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Repeats {
    config: RepeatsConfig,
    last: Work,
    works: BTreeMap<Work, Entry>,
    names: BTreeMap<(Uid, Name), Work>,
    /// Those of each owner, the oldest first.
    owners: BTreeMap<Uid, BTreeSet<Work>>,
    askers: BTreeMap<RequestId, Asker>,
    timers: BTreeSet<(Moment, Timer)>,
    #[cfg(feature = "seeded-bugs")]
    bug: Option<RepeatsBug>,
}

/// What is carried out once.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Entry {
    owner: Uid,
    name: Name,
    digest: u64,
    goes_on: bool,
    answered: Option<Moment>,
    /// Somebody has the answer: it is not given up any more.
    taken: bool,
    /// Who waits for the answer, or has not taken it yet.
    askers: BTreeSet<RequestId>,
    /// When it is given up, unless somebody comes back.
    grace: Option<Moment>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Asker {
    work: Work,
    deadline: Option<Moment>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Timer {
    /// The requester's patience ends.
    Deadline(RequestId),
    /// Of work that nobody waits for: it is given up.
    Grace(Work),
    /// Of an answer: it is forgotten.
    Age(Work),
}

type Effects = Vec<RepeatsEffect>;

impl Entry {
    /// When what becomes of it.
    fn timer(&self, work: Work, config: &RepeatsConfig) -> Option<(Moment, Timer)> {
        match (self.grace, self.answered) {
            (Some(at), _) => Some((at, Timer::Grace(work))),
            (None, Some(at)) => Some((at.after(config.age), Timer::Age(work))),
            (None, None) => None,
        }
    }

    /// Nothing is under way: it is a memory only.
    fn is_at_rest(&self) -> bool {
        self.answered.is_some() && self.askers.is_empty() && self.grace.is_none()
    }
}

impl Repeats {
    /// Nothing is known yet.
    #[must_use]
    pub fn new(config: RepeatsConfig) -> Self {
        Self {
            config,
            last: Work(0),
            works: BTreeMap::new(),
            names: BTreeMap::new(),
            owners: BTreeMap::new(),
            askers: BTreeMap::new(),
            timers: BTreeSet::new(),
            #[cfg(feature = "seeded-bugs")]
            bug: None,
        }
    }

    /// The same with one guard taken out.
    #[cfg(feature = "seeded-bugs")]
    #[must_use]
    pub fn with_bug(mut self, bug: RepeatsBug) -> Self {
        self.bug = Some(bug);
        self
    }

    #[cfg(feature = "seeded-bugs")]
    fn has(&self, bug: RepeatsBug) -> bool {
        self.bug == Some(bug)
    }

    #[cfg(not(feature = "seeded-bugs"))]
    fn has(&self, bug: RepeatsBug) -> bool {
        let _ = (self, bug);
        false
    }

    /// Advances the machine by one event. `now` never goes back from one step to the next.
    #[must_use]
    pub fn step(&mut self, now: Moment, event: RepeatsEvent) -> Vec<RepeatsEffect> {
        let mut out = Effects::new();
        match event {
            RepeatsEvent::Ask { asker, owner, name, digest, goes_on, deadline } => {
                match self.place(now, owner, &name, digest, deadline, &mut out) {
                    Ok(Some(work)) => self.join(asker, work, deadline, &mut out),
                    Ok(None) => {
                        let work = self.begin(owner, name, digest, goes_on, &mut out);
                        self.join(asker, work, deadline, &mut out);
                    }
                    Err(refusal) => out.push(RepeatsEffect::Refuse { asker, refusal }),
                }
            }
            RepeatsEvent::Take { asker } => {
                let work = self.remove_asker(asker);
                if let Some(entry) = work.and_then(|work| self.works.get_mut(&work)) {
                    entry.taken = true;
                }
            }
            RepeatsEvent::Leave { asker, cancelled } => self.leave(now, asker, cancelled, &mut out),
            RepeatsEvent::Answered { work, keep } => self.answered(now, work, keep, &mut out),
            RepeatsEvent::Reconfigure(config) => self.reconfigure(config),
            RepeatsEvent::Timeout => self.expire(now, &mut out),
        }
        out
    }

    /// When `Timeout` is due: the earliest deadline, end of a grace, or end of a memory.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Moment> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// How many ids are known, those of answers that are remembered too.
    #[must_use]
    pub fn known(&self) -> usize {
        self.works.len()
    }

    /// How many requests wait for an answer, or have not taken theirs.
    #[must_use]
    pub fn askers(&self) -> usize {
        self.askers.len()
    }

    /// The work that has the id; none where it is to be begun.
    fn place(
        &mut self,
        now: Moment,
        owner: Uid,
        name: &Name,
        digest: u64,
        deadline: Option<Moment>,
        out: &mut Effects,
    ) -> Result<Option<Work>, NotRepeated> {
        let known = self.names.get(&(owner, name.clone())).copied();
        let entry = known.and_then(|work| self.works.get(&work));
        if entry.is_some_and(|entry| entry.digest != digest) {
            return Err(NotRepeated::OtherRequest);
        }
        let answered = entry.is_some_and(|entry| entry.answered.is_some());
        if !answered && deadline.is_some_and(|deadline| deadline <= now) {
            return Err(NotRepeated::DeadlineExceeded);
        }
        if known.is_none() {
            self.make_room(owner, out)?;
        }
        Ok(known)
    }

    /// The oldest memories of the same owner go where there are too many: nobody pushes out another's.
    fn make_room(&mut self, owner: Uid, out: &mut Effects) -> Result<(), NotRepeated> {
        let limit = self.config.per_user;
        loop {
            let mine = self.owners.get(&owner);
            let used = mine.map_or(0, BTreeSet::len);
            if used < limit {
                return Ok(());
            }
            let at_rest = |work: &&Work| self.works.get(work).is_some_and(Entry::is_at_rest);
            match mine.into_iter().flatten().find(at_rest).copied() {
                Some(oldest) => self.forget(oldest, out),
                None => return Err(NotRepeated::TooMany { used, limit }),
            }
        }
    }

    fn begin(&mut self, owner: Uid, name: Name, digest: u64, goes_on: bool, out: &mut Effects) -> Work {
        self.last = Work(self.last.0 + 1);
        let work = self.last;
        self.names.insert((owner, name.clone()), work);
        self.owners.entry(owner).or_default().insert(work);
        let entry = Entry {
            owner,
            name,
            digest,
            goes_on,
            answered: None,
            taken: false,
            askers: BTreeSet::new(),
            grace: None,
        };
        self.works.insert(work, entry);
        out.push(RepeatsEffect::Begin { work });
        work
    }

    /// A retry ends the grace.
    fn join(&mut self, asker: RequestId, work: Work, deadline: Option<Moment>, out: &mut Effects) {
        let keeps_grace = self.has(RepeatsBug::ARetryComesTooLate);
        let mut deadline = deadline;
        self.change(work, |entry| {
            entry.askers.insert(asker);
            if !keeps_grace {
                entry.grace = None;
            }
            if entry.answered.is_some() {
                // It only has to take it.
                deadline = None;
                out.push(RepeatsEffect::Answer { asker, work });
            }
        });
        self.askers.insert(asker, Asker { work, deadline });
        self.timers.extend(deadline.map(|at| (at, Timer::Deadline(asker))));
    }

    /// The last one that waited is gone: who cancelled wants nothing of it left, who vanished may come back.
    fn leave(&mut self, now: Moment, asker: RequestId, cancelled: bool, out: &mut Effects) {
        let Some(work) = self.remove_asker(asker) else { return };
        let alone = self.has(RepeatsBug::ACancelIsEverybodys);
        let Some(entry) = self.works.get(&work) else { return };
        let wanted = !entry.askers.is_empty() && !alone;
        if wanted || entry.taken || entry.goes_on {
            return;
        }
        if cancelled || self.has(RepeatsBug::VanishingCancels) {
            self.give_up(work, out);
        } else {
            let end = now.after(self.config.grace);
            self.change(work, |entry| entry.grace = Some(end));
        }
    }

    /// Everyone who waits is told; also those whose answer is not remembered.
    fn answered(&mut self, now: Moment, work: Work, keep: bool, out: &mut Effects) {
        let Some(entry) = self.works.get(&work).filter(|entry| entry.answered.is_none()) else { return };
        for asker in &entry.askers {
            out.push(RepeatsEffect::Answer { asker: *asker, work });
            if let Some(Asker { deadline: Some(at), .. }) = self.askers.get(asker) {
                self.timers.remove(&(*at, Timer::Deadline(*asker)));
            }
        }
        self.change(work, |entry| entry.answered = Some(now));
        if !keep {
            self.forget(work, out);
        }
    }

    fn reconfigure(&mut self, config: RepeatsConfig) {
        let all: Vec<Work> = self.works.keys().copied().collect();
        self.timers.retain(|(_, timer)| matches!(timer, Timer::Deadline(_)));
        self.config = config;
        for work in all {
            self.change(work, |_| {});
        }
    }

    fn expire(&mut self, now: Moment, out: &mut Effects) {
        while let Some((_, timer)) = self.timers.first().copied().filter(|(at, _)| *at <= now) {
            match timer {
                Timer::Deadline(asker) => {
                    out.push(RepeatsEffect::Refuse { asker, refusal: NotRepeated::DeadlineExceeded });
                    // Who set a deadline has said when it gives up.
                    self.leave(now, asker, true, out);
                }
                Timer::Grace(work) => self.give_up(work, out),
                Timer::Age(work) => self.forget(work, out),
            }
        }
    }

    fn give_up(&mut self, work: Work, out: &mut Effects) {
        out.push(RepeatsEffect::GiveUp { work });
        self.forget(work, out);
    }

    /// The id is free again. Who was told the answer has it all the same.
    fn forget(&mut self, work: Work, out: &mut Effects) {
        let Some(entry) = self.works.remove(&work) else { return };
        if let Some(timer) = entry.timer(work, &self.config) {
            self.timers.remove(&timer);
        }
        self.names.remove(&(entry.owner, entry.name));
        if let Some(mine) = self.owners.get_mut(&entry.owner) {
            mine.remove(&work);
            if mine.is_empty() {
                self.owners.remove(&entry.owner);
            }
        }
        for asker in entry.askers {
            self.remove_asker(asker);
        }
        out.push(RepeatsEffect::Forget { work });
    }

    fn remove_asker(&mut self, asker: RequestId) -> Option<Work> {
        let Asker { work, deadline } = self.askers.remove(&asker)?;
        if let Some(at) = deadline {
            self.timers.remove(&(at, Timer::Deadline(asker)));
        }
        if let Some(entry) = self.works.get_mut(&work) {
            entry.askers.remove(&asker);
        }
        Some(work)
    }

    /// Changes a work, and arms the one timer that it has then.
    fn change(&mut self, work: Work, change: impl FnOnce(&mut Entry)) {
        let Some(entry) = self.works.get_mut(&work) else { return };
        if let Some(before) = entry.timer(work, &self.config) {
            self.timers.remove(&before);
        }
        change(entry);
        self.timers.extend(entry.timer(work, &self.config));
    }
}
