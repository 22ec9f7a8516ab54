//! A conversation that passes through unchanged, 1:1: followed just enough to count, refuse, settle and cancel calls.
//!
//! ```text
//!   client ─► Conversation::from_client ─► server         what passes is the bytes that came;
//!   client ◄─ Conversation::from_server ◄─ server         what is dropped is a whole line, or its rest
//! ```
//!
//! A read of any size goes in, and what of it is to be written on comes out, in place: no frame is held whole, and nothing is allocated
//! for one. What this side has to say itself (an error in place of an answer, a cancellation) is kept in
//! [`Conversation::take_for_client`] and [`Conversation::take_for_server`] until the stream is between two lines.
//! `docs/relay.md` has the states.
//!
//! | module | its one idea |
//! | --- | --- |
//! | [`scan`] | what a line is, told from its top level, however it was cut |
//! | [`own`] | the lines of our own |
//! | `client`, `server` | what passes in each of the two directions |
mod client;
pub mod own;
pub mod scan;
mod server;

pub use own::Because;
pub(crate) use own::error as error_line;

use crate::key::{Key, Table};
use scan::{Head, Kind, Scanner};
use std::collections::hash_map::Entry;

/// The most bytes of a line that are held to learn what it is, where that decides whether it passes. A line that does not tell by then is
/// dropped.
pub const HELD: usize = 1 << 20;
/// The most bytes of our own lines that wait for one side; above it the other side is not read ([`Conversation::is_full`]), or they are
/// dropped.
pub const OWN: usize = 256 << 10;
/// The most requests of the server that are remembered.
const MOST_ASKED: usize = 1024;

/// What is known of one client's conversation with one server. `P` is what an admitted call holds.
///
/// - Input: [`Self::from_client`], [`Self::from_server`].
/// - Commands: [`Self::settle`], [`Self::client_ended`], [`Self::client_lost`],
///   [`Self::server_ended`].
/// - Output: the bytes that pass; [`Self::take_for_client`], [`Self::take_for_server`], [`Self::take_ended`].
/// - Getters: [`Self::in_flight`], [`Self::is_full`], [`Self::counters`], [`Self::noise`].
#[derive(Debug)]
pub struct Conversation<P> {
    most_calls: usize,
    calls: Calls<P>,
    /// Requests of the server that the client has not answered.
    asked: Table<Key, usize>,
    up: Lane,
    /// What the line holds that passes to the server and has not ended: it may be a call.
    unfinished: Option<P>,
    down: Lane,
    /// 2025-03-26 was negotiated: the server's arrays are batches.
    batches: bool,
    settled: Settled,
    /// Nothing more comes from the client.
    client_ended: bool,
    /// Nothing more goes to it.
    client_lost: bool,
    /// The stream to the server stands in the middle of a line that will not go on.
    torn: bool,
    for_client: Vec<u8>,
    for_server: Vec<u8>,
    ended: Vec<Ended<P>>,
    counters: Counters,
    noise: Option<String>,
}

/// Where a line goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// From the client to the server.
    Up,
    /// From the server to the client.
    Down,
}

/// Hears of the lines of one read. Must not block.
pub trait Watch {
    /// A line has ended: of the client's one that passes, of the server's any.
    fn line(&mut self, way: Way, head: &Head<'_>);
}

/// Nobody.
impl Watch for () {
    fn line(&mut self, _way: Way, _head: &Head<'_>) {}
}

/// A call that is in flight no more.
#[derive(Debug, PartialEq, Eq)]
pub enum Ended<P> {
    /// Its answer is in what was just passed.
    Answered(P),
    /// It was given up: by its client, or by us.
    Cancelled(P),
    /// What might have been a call was none.
    NoCall(P),
}

/// What was not passed, and what could not be followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Lines of the server that are no messages.
    pub noise: u64,
    /// Lines of either side that were dropped, because the calls were settled or refused.
    pub dropped: u64,
    /// Calls that were refused.
    pub refused: u64,
    /// Requests with an id that is too long to follow, and lines of our own for which there was no room.
    pub untracked: u64,
}

/// Whether calls are given up.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Settled {
    No,
    /// As soon as the line ends that is on its way to the client: it may be an answer.
    AtLineEnd(Because),
    Yes(Because),
}

/// What of a read is to be written on: first `ahead`, which was held of earlier reads, then the first `len` bytes of the buffer.
#[derive(Debug, PartialEq, Eq, Default)]
pub struct Passed {
    /// Mostly empty.
    pub ahead: Vec<u8>,
    /// Of the buffer that was given.
    pub len: usize,
}

/// One direction.
#[derive(Debug, Default)]
struct Lane {
    scanner: Scanner,
    fate: Fate,
    /// The beginning of the line, where what it is decides whether it passes.
    held: Vec<u8>,
    /// The beginning of a line that was cut into reads, where its text may be needed.
    text: Vec<u8>,
    /// What a batch has held so far.
    batch: Vec<Element>,
    /// What there was of the line so far, in bytes.
    size: u64,
}

/// The most messages of a batch that are followed.
const MOST_ELEMENTS: usize = 1024;

impl Lane {
    fn key(&self) -> Option<Key> {
        Key::new(self.scanner.id())
    }

    /// Notes the element of a batch that has just ended; false if there are too many.
    fn note(&mut self) -> bool {
        if self.batch.len() >= MOST_ELEMENTS {
            return false;
        }
        let initialize = self.scanner.method() == INITIALIZE;
        self.batch.push(Element { kind: self.scanner.kind(), key: self.key(), initialize });
        true
    }

    /// Keeps the beginning of a line whose text may be needed at its end, at most `most` bytes and one more.
    fn copy(&mut self, piece: &[u8], most: usize) {
        let room = (most + 1).saturating_sub(self.text.len());
        self.text.extend_from_slice(&piece[..piece.len().min(room)]);
    }

    /// The line has ended.
    fn next_line(&mut self) {
        self.fate = Fate::Open;
        self.size = 0;
        for buffer in [&mut self.held, &mut self.text] {
            buffer.clear();
            buffer.shrink_to(KEEP);
        }
        self.batch = Vec::new();
    }
}

/// A buffer of a line keeps so much room for the next one.
const KEEP: usize = 1024;
const INITIALIZE: &[u8] = b"initialize";

/// One message of a batch.
#[derive(Debug)]
struct Element {
    kind: Kind,
    key: Option<Key>,
    initialize: bool,
}

/// What becomes of the line that has not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Fate {
    /// Nothing of it is written; its beginning, if there is one, is held.
    #[default]
    Open,
    /// Its beginning is written, so the rest is, too.
    Passes,
    /// It is dropped.
    Drops,
    /// It is dropped, and who sent it has been told.
    Refused,
}

/// The client's calls in flight, by id; an id may be used twice.
#[derive(Debug)]
struct Calls<P> {
    table: Table<Key, Call<P>>,
    len: usize,
    /// How many of them are `initialize`.
    initializing: usize,
}

#[derive(Debug)]
struct Call<P> {
    /// None of a call that came in a batch whose beginning had passed before the gate was closed.
    permit: Option<P>,
    initialize: bool,
    /// Further calls with the same id.
    again: Vec<Option<P>>,
}

impl<P> Calls<P> {
    fn insert(&mut self, key: Key, permit: Option<P>, initialize: bool) {
        self.len += 1;
        match self.table.entry(key) {
            Entry::Vacant(place) => {
                self.initializing += usize::from(initialize);
                place.insert(Call { permit, initialize, again: Vec::new() });
            }
            Entry::Occupied(mut place) => place.get_mut().again.push(permit),
        }
    }

    /// Ends one call of this id: what it held, and whether it was `initialize`.
    fn remove(&mut self, key: &Key) -> Option<(Option<P>, bool)> {
        let (key, mut call) = self.table.remove_entry(key)?;
        self.len -= 1;
        if let Some(permit) = call.again.pop() {
            self.table.insert(key, call);
            return Some((permit, false));
        }
        self.initializing -= usize::from(call.initialize);
        Some((call.permit, call.initialize))
    }

    fn drain(&mut self) -> Vec<(Key, Option<P>, bool)> {
        (self.len, self.initializing) = (0, 0);
        let mut all = Vec::new();
        for (key, call) in self.table.drain() {
            all.extend(call.again.into_iter().map(|permit| (key.clone(), permit, false)));
            all.push((key, call.permit, call.initialize));
        }
        // In the order of their ids, so that the same calls are always told the same way.
        all.sort_by(|a, b| a.0.text().cmp(b.0.text()));
        all
    }
}

impl<P> Conversation<P> {
    /// One in which nothing was said. At most `most_calls` of the client's requests are in flight; one more is refused.
    #[must_use]
    pub fn new(most_calls: usize) -> Self {
        Self {
            most_calls,
            calls: Calls { table: Table::default(), len: 0, initializing: 0 },
            asked: Table::default(),
            up: Lane::default(),
            unfinished: None,
            down: Lane::default(),
            batches: false,
            settled: Settled::No,
            client_ended: false,
            client_lost: false,
            torn: false,
            for_client: Vec::new(),
            for_server: Vec::new(),
            ended: Vec::new(),
            counters: Counters::default(),
            noise: None,
        }
    }

    /// Gives up what is in flight, for this reason: each call is answered with one error and cancelled at the server (`initialize` is
    /// not: it can't be), each request of the server is answered with an error. Later requests of the server are answered so at once, and
    /// later answers of it are dropped. Where a line is on its way to the client, all that happens at its end.
    pub fn settle(&mut self, because: Because) {
        if self.settled != Settled::No {
            return;
        }
        if self.down.fate == Fate::Passes {
            self.settled = Settled::AtLineEnd(because);
        } else {
            self.settle_now(because);
        }
    }

    fn settle_now(&mut self, because: Because) {
        self.settled = Settled::Yes(because);
        for (key, permit, initialize) in self.calls.drain() {
            own::error(&mut self.for_client, key.text(), because);
            if !initialize {
                own::cancellation(&mut self.for_server, key.text(), because);
            }
            self.ended.extend(permit.map(Ended::Cancelled));
        }
        self.answer_server(because);
    }

    /// Answers what the server has asked and nobody will answer.
    fn answer_server(&mut self, because: Because) {
        let mut asked: Vec<_> = self.asked.drain().collect();
        asked.sort_by(|a, b| a.0.text().cmp(b.0.text()));
        for (key, times) in asked {
            for _ in 0..times {
                own::error(&mut self.for_server, key.text(), because);
            }
        }
    }

    /// The server's output has ended: each call in flight is answered with one error. A line that it cut off is ended before.
    pub fn server_ended(&mut self) {
        let because = match self.settled {
            Settled::AtLineEnd(because) | Settled::Yes(because) => because,
            Settled::No => Because::ServerExited,
        };
        let calls = self.calls.drain();
        if self.down.fate == Fate::Passes && !(calls.is_empty() && self.for_client.is_empty()) {
            self.for_client.insert(0, b'\n');
        }
        self.down = Lane::default();
        self.settled = Settled::Yes(because);
        for (key, permit, _) in calls {
            own::error(&mut self.for_client, key.text(), because);
            self.ended.extend(permit.map(Ended::Cancelled));
        }
        self.asked.clear();
        self.for_server.clear();
    }

    /// Nothing more comes from the client; what it has asked is still answered. A line that it cut off was no call.
    pub fn client_ended(&mut self) {
        if std::mem::replace(&mut self.client_ended, true) {
            return;
        }
        self.torn = self.up.fate == Fate::Passes;
        self.ended.extend(self.unfinished.take().map(Ended::NoCall));
        self.up = Lane::default();
    }

    /// The client is gone without a word: its calls are cancelled at the server, what the server asked it is answered with an error, and
    /// nothing passes any more.
    pub fn client_lost(&mut self) {
        self.client_ended();
        if std::mem::replace(&mut self.client_lost, true) {
            return;
        }
        if !matches!(self.settled, Settled::Yes(_)) {
            self.settle_now(Because::ClientLost);
        }
        self.for_client = Vec::new();
    }

    /// Our own lines for the client, if the stream to it is between two lines now.
    pub fn take_for_client(&mut self) -> Vec<u8> {
        if self.down.fate == Fate::Passes { Vec::new() } else { std::mem::take(&mut self.for_client) }
    }

    /// Our own lines for the server, if the stream to it is between two lines now.
    pub fn take_for_server(&mut self) -> Vec<u8> {
        if self.up.fate == Fate::Passes {
            return Vec::new();
        }
        if !self.for_server.is_empty() && std::mem::take(&mut self.torn) {
            // A line that its client did not end is ended first.
            self.for_server.insert(0, b'\n');
        }
        std::mem::take(&mut self.for_server)
    }

    /// There are lines of our own for the client.
    #[must_use]
    pub fn has_for_client(&self) -> bool {
        !self.for_client.is_empty()
    }

    /// There are lines of our own for the server.
    #[must_use]
    pub fn has_for_server(&self) -> bool {
        !self.for_server.is_empty()
    }

    /// So much waits for the client that nothing more that it says is to be read.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.for_client.len() >= OWN
    }

    /// The calls that have ended since the last time. To be told only once what was passed is written.
    pub fn take_ended(&mut self) -> std::vec::Drain<'_, Ended<P>> {
        self.ended.drain(..)
    }

    /// The client's calls that are not answered.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.calls.len
    }

    /// What was not passed.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// The first line of noise, made printable and cut.
    #[must_use]
    pub fn noise(&self) -> Option<&str> {
        self.noise.as_deref()
    }
}

#[cfg(test)]
mod tests;
