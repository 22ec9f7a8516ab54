//! Whose turn it is: the calls of one server that are in flight, and those that wait until there is room.
//!
//! A call's line is made when it is asked for and written when its turn comes, so that one that waits was certainly never written
//! (G31). Clients take turns, and of one client the oldest call goes first. What is no call ([`is_call`]) takes no turn: a list, a
//! cancellation or an answer is never stuck behind calls.
use super::{Peer, RequestNumber, Sent};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// What holds for the calls of one server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallLimits {
    /// The most that are in flight, at least 1.
    pub max_in_flight: usize,
    /// The most that wait.
    pub max_queued: usize,
    /// The most bytes of those that wait; one that waits alone may have more.
    pub max_queued_bytes: usize,
    /// How long one may wait.
    pub queue_timeout: Duration,
    /// How long the server may take from a call's writing, or its last progress, to its answer. None: as long as it likes.
    pub call_timeout: Option<Duration>,
    /// The longest that progress may hold that off, from the call's writing.
    pub call_timeout_max: Duration,
}

/// Among whom turns are taken: whoever makes calls of the same server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caller(pub u64);

/// How many calls waited for a server at a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// Calls that waited.
    pub used: usize,
    /// The most that may.
    pub limit: usize,
    /// Calls that were in flight.
    pub in_flight: usize,
}

/// What becomes of a call that has just been made.
#[derive(Debug, PartialEq, Eq)]
pub enum Turn {
    /// It is in flight: its line, to be written.
    Now(Vec<u8>),
    /// It waits for [`Peer::next_turn`].
    Waits,
    /// Too many wait already: the call is forgotten.
    Full(Load),
    /// Nothing waits any more ([`Peer::stop_waiting`]): the call is forgotten.
    Closed,
}

/// A call that waited and is in flight now.
#[derive(Debug, PartialEq, Eq)]
pub struct Started {
    /// Its number.
    pub number: RequestNumber,
    /// What it asks for.
    pub method: Box<str>,
    /// To be written to the server.
    pub line: Vec<u8>,
}

/// A call whose turn has come.
#[derive(Debug, PartialEq, Eq)]
pub enum Due<T> {
    /// It is in flight now.
    Begins(Started),
    /// Nobody waits for it any more: it is forgotten, and was never written. Who waited for it.
    Unwanted(T),
}

/// A call whose time is over; it is forgotten.
#[derive(Debug)]
pub struct Overdue<T> {
    /// Its number.
    pub number: RequestNumber,
    /// Who waited for it.
    pub token: T,
    /// Why.
    pub why: Late,
}

/// Which time is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Late {
    /// That to wait for a turn: the call was never written.
    Queued {
        /// At that moment.
        load: Load,
        /// How long it waited.
        after: Duration,
    },
    /// That of the server to answer.
    Unanswered {
        /// Which one.
        overrun: Overrun,
        /// Cancels the call; to be written to the server.
        line: Vec<u8>,
    },
}

/// A call that its server has not answered in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Overrun {
    /// The key of the configuration: `call_timeout` or `call_timeout_max`.
    pub key: &'static str,
    /// What it is set to.
    pub after: Duration,
}

/// Of a request that is pending.
#[derive(Debug, Clone, Copy)]
pub(super) enum Place {
    /// It is no call.
    Free,
    /// In flight, perhaps not for ever.
    Running(Option<Until>),
    Waiting,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Until {
    now: Instant,
    most: Instant,
}

#[derive(Debug)]
pub(super) struct Turns {
    limits: CallLimits,
    running: usize,
    /// Clients with calls that wait, in the order of their turns.
    clients: VecDeque<(Caller, VecDeque<Waiting>)>,
    queued: usize,
    bytes: usize,
    /// Calls that have left their place since it was last asked.
    freed: usize,
    closed: bool,
    #[cfg(test)]
    bug: Option<TurnsBug>,
}

/// A guard that the negative controls take out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TurnsBug {
    /// The client that was served keeps the turn.
    G11ClientKeepsItsTurn,
    /// A call that comes passes those that wait.
    G11NewCallPassesTheQueue,
    /// The end of a call leaves its place taken.
    G11PlaceIsNotGivenBack,
    /// A call that is given up while it waits is written all the same.
    G31CancelledCallIsWritten,
    /// What waits when nothing may wait any more is forgotten without a word.
    G19WaitingCallIsForgotten,
}

#[derive(Debug)]
struct Waiting {
    number: u64,
    method: Box<str>,
    line: Vec<u8>,
    until: Instant,
}

/// Whether a request is a call that takes a turn. What a server answers from its own head, and what gives up or looks after something
/// that is under way, is none.
#[must_use]
pub fn is_call(method: &str) -> bool {
    const FREE: [&str; 10] = [
        "ping",
        "server/discover",
        "tools/list",
        "prompts/list",
        "resources/list",
        "resources/templates/list",
        "resources/subscribe",
        "resources/unsubscribe",
        "subscriptions/listen",
        "logging/setLevel",
    ];
    // By far the most are this one.
    method == "tools/call" || !(FREE.contains(&method) || method.starts_with("tasks/"))
}

impl CallLimits {
    /// As many calls as come, for as long as they take.
    pub const NONE: Self = Self {
        max_in_flight: usize::MAX,
        max_queued: 0,
        max_queued_bytes: 0,
        queue_timeout: Duration::MAX,
        call_timeout: None,
        call_timeout_max: Duration::MAX,
    };
}

impl Turns {
    pub(super) fn new(limits: CallLimits) -> Self {
        Self {
            limits,
            running: 0,
            clients: VecDeque::new(),
            queued: 0,
            bytes: 0,
            freed: 0,
            closed: false,
            #[cfg(test)]
            bug: None,
        }
    }

    #[cfg(test)]
    fn has(&self, bug: TurnsBug) -> bool {
        self.bug == Some(bug)
    }

    #[cfg(not(test))]
    #[expect(clippy::unused_self, reason = "guards are taken out in tests alone")]
    fn has(&self, _: TurnsBug) -> bool {
        false
    }

    fn load(&self) -> Load {
        Load { used: self.queued, limit: self.limits.max_queued, in_flight: self.running }
    }

    /// How long a call may run that begins now.
    fn begin(&mut self, now: impl FnOnce() -> Instant) -> Place {
        self.running += 1;
        Place::Running(self.limits.call_timeout.map(|timeout| {
            let now = now();
            let most = later(now, self.limits.call_timeout_max);
            Until { now: later(now, timeout).min(most), most }
        }))
    }

    fn wait(&mut self, caller: Caller, waiting: Waiting) {
        self.queued += 1;
        self.bytes += waiting.line.len();
        match self.clients.iter_mut().find(|(known, _)| *known == caller) {
            Some((_, calls)) => calls.push_back(waiting),
            None => self.clients.push_back((caller, VecDeque::from([waiting]))),
        }
    }

    /// A request is not pending any more.
    pub(super) fn left(&mut self, number: u64, place: Place) {
        match place {
            Place::Free => {}
            Place::Running(_) => {
                if !self.has(TurnsBug::G11PlaceIsNotGivenBack) {
                    self.running -= 1;
                }
                self.freed += 1;
            }
            Place::Waiting if self.has(TurnsBug::G31CancelledCallIsWritten) => {}
            Place::Waiting => self.remove(number),
        }
    }

    fn remove(&mut self, number: u64) {
        for (_, calls) in &mut self.clients {
            if let Some(at) = calls.iter().position(|waiting| waiting.number == number) {
                self.queued -= 1;
                self.bytes -= calls.remove(at).map_or(0, |waiting| waiting.line.len());
            }
        }
        self.clients.retain(|(_, calls)| !calls.is_empty());
    }

    fn next(&mut self) -> Option<Waiting> {
        let (caller, mut calls) = self.clients.pop_front()?;
        let first = calls.pop_front();
        if !calls.is_empty() {
            if self.has(TurnsBug::G11ClientKeepsItsTurn) {
                self.clients.push_front((caller, calls));
            } else {
                self.clients.push_back((caller, calls));
            }
        }
        if let Some(first) = &first {
            self.queued -= 1;
            self.bytes -= first.line.len();
        }
        first
    }

    fn numbers(&self) -> Vec<u64> {
        let mut numbers: Vec<u64> =
            self.clients.iter().flat_map(|(_, calls)| calls.iter().map(|waiting| waiting.number)).collect();
        numbers.sort_unstable();
        numbers
    }
}

impl<T> Peer<T> {
    /// The limits of calls, before the first of them.
    pub fn limit_calls(&mut self, limits: CallLimits) {
        self.turns.limits = limits;
    }

    /// A request that was just made is a call. `room` says whether there is room for one more beyond this server, which it then has taken;
    /// it is asked only where the server itself has room.
    pub fn take_turn(
        &mut self,
        now: impl Fn() -> Instant,
        caller: Caller,
        method: &str,
        sent: Sent,
        room: impl FnOnce() -> bool,
    ) -> Turn {
        let Sent { number: RequestNumber(number), line } = sent;
        let turns = &mut self.turns;
        // Whoever comes while others wait does not pass them.
        let first = turns.queued == 0 || turns.has(TurnsBug::G11NewCallPassesTheQueue);
        if first && turns.running < turns.limits.max_in_flight && room() {
            let place = turns.begin(&now);
            self.place(number, place);
            return Turn::Now(line);
        }
        let most = turns.limits.max_queued_bytes;
        let full =
            turns.queued >= turns.limits.max_queued || (turns.queued > 0 && turns.bytes + line.len() > most);
        if turns.closed || full {
            let (closed, load) = (turns.closed, turns.load());
            self.take(number);
            return if closed { Turn::Closed } else { Turn::Full(load) };
        }
        let until = later(now(), turns.limits.queue_timeout);
        turns.wait(caller, Waiting { number, method: method.into(), line, until });
        self.place(number, Place::Waiting);
        Turn::Waits
    }

    /// The next call whose turn has come. To be asked until there is none, whenever calls may have ended. `wanted` says whether somebody
    /// still waits for a call, `fits` whether a line of so many bytes can be written; `room` is that of [`Peer::take_turn`]. Calls that are
    /// given up at one moment are not taken out at one: the first of them makes room, and the next must not have it.
    pub fn next_turn(
        &mut self,
        now: impl FnOnce() -> Instant,
        wanted: impl FnOnce(&T) -> bool,
        fits: impl FnOnce(usize) -> bool,
        room: impl FnOnce() -> bool,
    ) -> Option<Due<T>> {
        let turns = &mut self.turns;
        let first = turns.clients.front()?.1.front()?;
        let number = first.number;
        if turns.running < turns.limits.max_in_flight
            && self.pending.get(&number).is_some_and(|pending| !wanted(&pending.token))
        {
            return self.take(number).map(Due::Unwanted);
        }
        if turns.running >= turns.limits.max_in_flight || !fits(first.line.len()) || !room() {
            return None;
        }
        let Waiting { number, method, line, .. } = turns.next()?;
        let place = turns.begin(now);
        self.place(number, place);
        Some(Due::Begins(Started { number: RequestNumber(number), method, line }))
    }

    /// Nothing waits any more, now or later. Who waited, oldest first: their calls are forgotten.
    pub fn stop_waiting(&mut self) -> Vec<T> {
        self.turns.closed = true;
        if self.turns.has(TurnsBug::G19WaitingCallIsForgotten) {
            return Vec::new();
        }
        self.turns.numbers().into_iter().filter_map(|number| self.take(number)).collect()
    }

    /// The server tells of a call's progress: its time begins again.
    pub fn progressed(&mut self, number: RequestNumber, now: impl FnOnce() -> Instant) {
        let Some(timeout) = self.turns.limits.call_timeout else { return };
        if let Some(pending) = self.pending.get_mut(&number.0)
            && let Place::Running(Some(until)) = &mut pending.place
        {
            until.now = later(now(), timeout).min(until.most);
        }
    }

    /// Forgets the calls whose time is over.
    pub fn overdue(&mut self, now: Instant) -> Vec<Overdue<T>> {
        let mut overdue = Vec::new();
        let waited = self.turns.clients.iter().flat_map(|(_, calls)| calls);
        let mut late: Vec<u64> =
            waited.filter(|waiting| waiting.until <= now).map(|waiting| waiting.number).collect();
        late.sort_unstable();
        let (load, after) = (self.turns.load(), self.turns.limits.queue_timeout);
        for number in late {
            let token = self.take(number);
            let why = Late::Queued { load, after };
            overdue.extend(token.map(|token| Overdue { number: RequestNumber(number), token, why }));
        }
        let is_late = |until: &Until| until.now <= now;
        let mut late: Vec<(u64, bool)> = self
            .pending
            .iter()
            .filter_map(|(number, pending)| match &pending.place {
                Place::Running(Some(until)) if is_late(until) => Some((*number, until.now == until.most)),
                _ => None,
            })
            .collect();
        late.sort_unstable();
        for (number, is_most) in late {
            let limits = self.turns.limits;
            let overrun = match limits.call_timeout {
                Some(after) if !is_most || after == limits.call_timeout_max => {
                    Overrun { key: "call_timeout", after }
                }
                _ => Overrun { key: "call_timeout_max", after: limits.call_timeout_max },
            };
            let reason = format!("it was not answered within {} ({:?})", overrun.key, overrun.after);
            let cancelled = self.cancel(RequestNumber(number), &reason);
            overdue.extend(cancelled.map(|cancelled| Overdue {
                number: cancelled.number,
                token: cancelled.token,
                why: Late::Unanswered { overrun, line: cancelled.line },
            }));
        }
        overdue
    }

    /// When [`Peer::overdue`] is to be asked next.
    pub fn next_timeout(&self) -> Option<Instant> {
        let waiting = self.turns.clients.iter().filter_map(|(_, calls)| calls.front());
        let running = self.pending.values().filter_map(|pending| match pending.place {
            Place::Running(Some(until)) => Some(until.now),
            _ => None,
        });
        // Without a limit of time there is no need to look through what is pending.
        let running = self.turns.limits.call_timeout.and_then(|_| running.min());
        waiting.map(|waiting| waiting.until).chain(running).min()
    }

    /// Calls that wait for their turn.
    pub fn queued(&self) -> usize {
        self.turns.queued
    }

    /// Calls that are in flight.
    pub fn running(&self) -> usize {
        self.turns.running
    }

    /// Whether the call waits for its turn: it was never written.
    pub fn is_waiting(&self, number: RequestNumber) -> bool {
        self.pending.get(&number.0).is_some_and(|pending| matches!(pending.place, Place::Waiting))
    }

    /// How many calls in flight have ended since this was last asked.
    pub fn take_freed(&mut self) -> usize {
        std::mem::take(&mut self.turns.freed)
    }

    fn place(&mut self, number: u64, place: Place) {
        if let Some(pending) = self.pending.get_mut(&number) {
            pending.place = place;
        }
    }
}

/// A time so far off that it can't be told is never.
fn later(now: Instant, span: Duration) -> Instant {
    const NEVER: Duration = Duration::from_secs(100 * 365 * 86_400);
    now.checked_add(span.min(NEVER)).unwrap_or(now)
}

impl Load {
    /// The members of an error's data that tell of it, as JSON, each behind a comma.
    pub(crate) fn details(self) -> String {
        format!(
            ",\"scope\":\"queue\",\"used\":{},\"limit\":{},\"in_flight\":{}",
            self.used, self.limit, self.in_flight
        )
    }
}

/// In whole milliseconds.
pub(crate) fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod controls;
#[cfg(test)]
mod tests;
