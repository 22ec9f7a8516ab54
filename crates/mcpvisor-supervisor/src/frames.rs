//! The flight recorder of a server: what the last frames were, and nothing of what they said.
//!
//! Whoever passes a frame notes its head here: direction, kind, method, id, size, time, and of an answer how long it took. The place is
//! bounded (256 entries of a fixed size, 32 KiB), grows to that only as it is used, and costs no allocation per frame.
use crate::api::{Frame, FrameKind};
use mcpvisor_mcp::relay::scan::{Class, Head, Kind, Scanner};
use mcpvisor_mcp::relay::{Watch, Way};
use mcpvisor_mcp::{Message, RequestNumber};
use std::io::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// The most frames that are kept.
pub(crate) const MOST: usize = 256;
/// How many are told of when a server dies.
pub(crate) const LAST: usize = 20;
/// A method is cut to so many bytes.
const METHOD: usize = 64;
/// An id is cut to so many bytes of JSON text.
const ID: usize = 30;
/// An answer that has no request here.
const UNKNOWN: u32 = u32::MAX;

const _: () = assert!(MOST * (size_of::<Entry>() + size_of::<u32>()) <= 32 << 10, "the place is bounded");

/// The recorder of one server, through all its incarnations; cheap to clone, all clones are one.
#[derive(Clone, Default)]
pub(crate) struct FrameLog(Arc<Mutex<Ring>>);

/// Hears of the lines of one read of a relay, which were there at one moment.
pub(crate) struct Watching<'a> {
    ring: MutexGuard<'a, Ring>,
    now: Instant,
}

impl Watch for Watching<'_> {
    fn line(&mut self, way: Way, head: &Head<'_>) {
        if head.class != Class::Blank {
            self.ring.rows.note(self.now, way, kind_of(head), head.method, head.id, head.bytes);
        }
    }
}

#[derive(Default)]
struct Ring {
    rows: Rows,
    /// For lines of which nothing is known yet.
    scanner: Scanner,
}

struct Rows {
    /// Times count from here.
    base: Instant,
    entries: Vec<Entry>,
    /// Of each entry that is a request without an answer, what tells it; else 0. Apart from the entries, so that a look through all is
    /// short.
    asked: Vec<u32>,
    /// The next place, once all are taken.
    next: usize,
    /// Behind the request that was answered last.
    hint: usize,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    /// Microseconds from the base.
    at: u64,
    bytes: u64,
    /// Microseconds, or [`UNKNOWN`].
    latency: u32,
    kind: FrameKind,
    way: Way,
    method_len: u8,
    id_len: u8,
    method: [u8; METHOD],
    id: [u8; ID],
}

impl Default for Rows {
    fn default() -> Self {
        Self { base: Instant::now(), entries: Vec::new(), asked: Vec::new(), next: 0, hint: 0 }
    }
}

impl FrameLog {
    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For a read of a relay's conversation at this moment. Nobody else notes or reads frames until it is dropped.
    pub(crate) fn watch(&self, now: Instant) -> Watching<'_> {
        Watching { ring: self.ring(), now }
    }

    /// An answer of a server of which only the head was read, at this moment.
    pub(crate) fn answered(&self, now: Instant, raw_id: &str, bytes: usize) {
        self.ring().rows.note(now, Way::Down, FrameKind::Response, b"", raw_id.as_bytes(), bytes as u64);
    }

    /// A line of a server that is understood, and was read at this moment.
    pub(crate) fn heard(&self, now: Instant, message: &Message<'_>, bytes: usize) {
        let (kind, method, id) = match message {
            Message::Request { raw_id, method, .. } => (FrameKind::Request, &**method, raw_id.get()),
            Message::Notification { method, .. } => (FrameKind::Notification, &**method, ""),
            Message::Response { raw_id, .. } => (FrameKind::Response, "", raw_id.map_or("", |id| id.get())),
            Message::Noise(_) => (FrameKind::Noise, "", ""),
        };
        self.ring().rows.note(now, Way::Down, kind, method.as_bytes(), id.as_bytes(), bytes as u64);
    }

    /// A line of a server that was too long to be understood.
    pub(crate) fn too_long(&self, bytes: u64) {
        self.ring().rows.note(Instant::now(), Way::Down, FrameKind::TooLong, b"", b"", bytes);
    }

    /// A request for a server.
    pub(crate) fn asked(&self, method: &str, number: RequestNumber, bytes: usize) {
        let mut id = [0; ID];
        let mut rest = &mut id[..];
        // One that has no room is cut.
        let _ = write!(rest, "\"{number}\"");
        let left = rest.len();
        let (now, id) = (Instant::now(), &id[..ID - left]);
        self.ring().rows.note(now, Way::Up, FrameKind::Request, method.as_bytes(), id, bytes as u64);
    }

    /// Any other line for a server.
    pub(crate) fn said(&self, line: &[u8]) {
        self.ring().said(line);
    }

    /// Whole lines for a server.
    pub(crate) fn said_all(&self, lines: &[u8]) {
        let mut ring = self.ring();
        for line in lines.split_inclusive(|byte| *byte == b'\n') {
            ring.said(line);
        }
    }

    /// The last `count`, oldest first.
    pub(crate) fn last(&self, count: usize) -> Vec<Frame> {
        let ring = self.ring();
        let rows = &ring.rows;
        let now = (Instant::now(), SystemTime::now());
        let (newer, older) = rows.entries.split_at(rows.next);
        let skip = rows.entries.len().saturating_sub(count);
        older.iter().chain(newer).skip(skip).map(|entry| entry.view(rows.base, now)).collect()
    }

    /// The session has ended: what is worth telling is in the reports of its failures.
    pub(crate) fn clear(&self) {
        *self.ring() = Ring::default();
    }
}

impl Ring {
    fn said(&mut self, line: &[u8]) {
        let Self { rows, scanner } = self;
        if scanner.feed(line).1.is_none() {
            scanner.feed(b"\n");
        }
        let head = scanner.head(line.len() as u64);
        if head.class != Class::Blank {
            rows.note(Instant::now(), Way::Up, kind_of(&head), head.method, head.id, head.bytes);
        }
    }
}

impl Rows {
    fn note(&mut self, now: Instant, way: Way, kind: FrameKind, method: &[u8], id: &[u8], bytes: u64) {
        let at = micros(now.saturating_duration_since(self.base));
        let request = if kind == FrameKind::Response { self.answered(other(way), id) } else { None };
        let place = if self.entries.len() < MOST {
            self.entries.push(Entry::EMPTY);
            self.asked.push(0);
            self.entries.len() - 1
        } else {
            let oldest = self.next;
            self.next = (oldest + 1) % MOST;
            oldest
        };
        self.asked[place] = if kind == FrameKind::Request { key(way, id) } else { 0 };
        // In place: what stands behind the lengths is an older entry's, and is not looked at.
        let entry = &mut self.entries[place];
        (entry.at, entry.way, entry.kind, entry.bytes) = (at, way, kind, bytes);
        entry.id_len = fill(&mut entry.id, id);
        match request {
            Some((asked_at, method_len, method)) => {
                let span = at.saturating_sub(asked_at).min(u64::from(UNKNOWN - 1));
                entry.latency = u32::try_from(span).unwrap_or(UNKNOWN);
                (entry.method_len, entry.method) = (method_len, method);
            }
            None => {
                entry.latency = UNKNOWN;
                entry.method_len = fill(&mut entry.method, method);
            }
        }
    }

    /// The request that is answered by this: when it was noted, and its method. It is answered once.
    fn answered(&mut self, way: Way, id: &[u8]) -> Option<(u64, u8, [u8; METHOD])> {
        let wanted = key(way, id);
        let is_it = |asked: &u32| *asked == wanted;
        // Answers come mostly in the order of their requests.
        let (before, after) = self.asked.split_at(self.hint.min(self.asked.len()));
        let found = after.iter().position(is_it).map(|at| at + before.len());
        let found = found.or_else(|| before.iter().position(is_it))?;
        let request = self.entries.get(found).filter(|request| request.id() == &id[..id.len().min(ID)])?;
        self.asked[found] = 0;
        self.hint = found + 1;
        Some((request.at, request.method_len, request.method))
    }
}

fn other(way: Way) -> Way {
    match way {
        Way::Up => Way::Down,
        Way::Down => Way::Up,
    }
}

impl Entry {
    const EMPTY: Self = Self {
        at: 0,
        bytes: 0,
        latency: UNKNOWN,
        kind: FrameKind::Other,
        way: Way::Up,
        method_len: 0,
        id_len: 0,
        method: [0; METHOD],
        id: [0; ID],
    };

    fn id(&self) -> &[u8] {
        &self.id[..usize::from(self.id_len)]
    }

    fn view(&self, base: Instant, (now, wall): (Instant, SystemTime)) -> Frame {
        let text =
            |bytes: &[u8]| Some(String::from_utf8_lossy(bytes).into_owned()).filter(|text| !text.is_empty());
        let age = now.saturating_duration_since(base + Duration::from_micros(self.at));
        Frame {
            at: wall.checked_sub(age).unwrap_or(wall),
            to_server: self.way == Way::Up,
            kind: self.kind,
            method: text(&self.method[..usize::from(self.method_len)]),
            id: text(self.id()),
            bytes: self.bytes,
            latency: (self.latency != UNKNOWN).then(|| Duration::from_micros(u64::from(self.latency))),
        }
    }
}

fn kind_of(head: &Head<'_>) -> FrameKind {
    match (head.class, head.kind) {
        (Class::Batch, _) => FrameKind::Batch,
        (Class::Noise, _) => FrameKind::Noise,
        (_, Kind::Request) => FrameKind::Request,
        (_, Kind::Notification) => FrameKind::Notification,
        (_, Kind::Response) => FrameKind::Response,
        (_, Kind::Unfollowed | Kind::Other) => FrameKind::Other,
    }
}

/// Copies what fits, and no half a character.
fn fill(place: &mut [u8], bytes: &[u8]) -> u8 {
    let mut len = bytes.len().min(place.len());
    while len < bytes.len() && len > 0 && bytes[len] & 0xc0 == 0x80 {
        len -= 1;
    }
    place[..len].copy_from_slice(&bytes[..len]);
    u8::try_from(len).expect("no place is longer than 64 bytes")
}

/// Tells requests apart well enough, and is never 0. The end of an id is what differs.
fn key(way: Way, id: &[u8]) -> u32 {
    let end = &id[id.len().saturating_sub(8)..];
    let mut last = [0; 8];
    last[..end.len()].copy_from_slice(end);
    let mixed = (u64::from_le_bytes(last) ^ way as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 32) as u32 | 1
}

fn micros(span: Duration) -> u64 {
    span.as_secs().saturating_mul(1_000_000) + u64::from(span.subsec_micros())
}

#[cfg(test)]
mod tests;
