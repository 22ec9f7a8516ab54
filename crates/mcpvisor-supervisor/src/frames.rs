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
/// So much of a request of ours is looked at for its method; its number is known.
const BEGINNING: usize = 512;
/// An answer that has no request here.
const UNKNOWN: u32 = u32::MAX;

const _: () = assert!(MOST * (size_of::<Entry>() + size_of::<u32>()) <= 32 << 10, "the place is bounded");

/// The recorder of one server, through all its incarnations; cheap to clone, all clones are one.
#[derive(Clone, Default)]
pub(crate) struct FrameLog(Arc<Mutex<Ring>>);

/// Hears of the lines of a relay. The clock is asked once for each read.
pub(crate) struct Watching {
    log: FrameLog,
    now: Instant,
}

impl Watch for Watching {
    fn reads(&mut self) {
        self.now = Instant::now();
    }

    fn line(&mut self, way: Way, head: &Head<'_>) {
        if head.class != Class::Blank {
            let mut ring = self.log.ring();
            ring.note(self.now, way, kind_of(head), head.method, head.id, head.bytes);
        }
    }
}

struct Ring {
    /// Times count from here.
    base: Instant,
    entries: Vec<Entry>,
    /// Of each entry that is a request without an answer, what tells it; else 0. Apart from the entries, so that a look through all is
    /// short.
    asked: Vec<u32>,
    /// The next place, once all are taken.
    next: usize,
    /// For lines of which nothing is known yet.
    scanner: Scanner,
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

impl Default for Ring {
    fn default() -> Self {
        Self {
            base: Instant::now(),
            entries: Vec::new(),
            asked: Vec::new(),
            next: 0,
            scanner: Scanner::default(),
        }
    }
}

impl FrameLog {
    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For the conversation of a relay.
    pub(crate) fn watch(&self) -> Watching {
        Watching { log: self.clone(), now: Instant::now() }
    }

    /// An answer of a server of which only the head was read.
    pub(crate) fn answered(&self, raw_id: &str, bytes: usize) {
        let now = Instant::now();
        self.ring().note(now, Way::Down, FrameKind::Response, b"", raw_id.as_bytes(), bytes as u64);
    }

    /// A line of a server that is understood.
    pub(crate) fn heard(&self, message: &Message<'_>, bytes: usize) {
        let (kind, method, id) = match message {
            Message::Request { raw_id, method, .. } => (FrameKind::Request, &**method, raw_id.get()),
            Message::Notification { method, .. } => (FrameKind::Notification, &**method, ""),
            Message::Response { raw_id, .. } => (FrameKind::Response, "", raw_id.map_or("", |id| id.get())),
            Message::Noise(_) => (FrameKind::Noise, "", ""),
        };
        self.ring().note(Instant::now(), Way::Down, kind, method.as_bytes(), id.as_bytes(), bytes as u64);
    }

    /// A line of a server that was too long to be understood.
    pub(crate) fn too_long(&self, bytes: u64) {
        self.ring().note(Instant::now(), Way::Down, FrameKind::TooLong, b"", b"", bytes);
    }

    /// A line for a server; of a request the number is known.
    pub(crate) fn said(&self, line: &[u8], number: Option<RequestNumber>) {
        self.ring().said(line, number);
    }

    /// Whole lines for a server.
    pub(crate) fn said_all(&self, lines: &[u8]) {
        let mut ring = self.ring();
        for line in lines.split_inclusive(|byte| *byte == b'\n') {
            ring.said(line, None);
        }
    }

    /// The last `count`, oldest first.
    pub(crate) fn last(&self, count: usize) -> Vec<Frame> {
        let ring = self.ring();
        let now = (Instant::now(), SystemTime::now());
        let (newer, older) = ring.entries.split_at(ring.next);
        let skip = ring.entries.len().saturating_sub(count);
        older.iter().chain(newer).skip(skip).map(|entry| entry.view(ring.base, now)).collect()
    }

    /// The session has ended: what is worth telling is in the reports of its failures.
    pub(crate) fn clear(&self) {
        *self.ring() = Ring::default();
    }
}

impl Ring {
    fn said(&mut self, line: &[u8], number: Option<RequestNumber>) {
        let now = Instant::now();
        let mut scanner = std::mem::take(&mut self.scanner);
        let head = if number.is_some() { &line[..line.len().min(BEGINNING)] } else { line };
        if scanner.feed(head).1.is_none() {
            scanner.feed(b"\n");
        }
        let head = scanner.head(line.len() as u64);
        match number {
            None if head.class == Class::Blank => {}
            None => self.note(now, Way::Up, kind_of(&head), head.method, head.id, head.bytes),
            Some(number) => {
                let mut id = [0; ID];
                let mut rest = &mut id[..];
                // One that has no room is cut.
                let _ = write!(rest, "\"{number}\"");
                let left = rest.len();
                let id = &id[..ID - left];
                self.note(now, Way::Up, FrameKind::Request, head.method, id, head.bytes);
            }
        }
        self.scanner = scanner;
    }

    fn note(&mut self, now: Instant, way: Way, kind: FrameKind, method: &[u8], id: &[u8], bytes: u64) {
        let at = micros(now.saturating_duration_since(self.base));
        let mut entry = Entry {
            at,
            bytes,
            latency: UNKNOWN,
            kind,
            way,
            method_len: 0,
            id_len: 0,
            method: [0; METHOD],
            id: [0; ID],
        };
        entry.method_len = fill(&mut entry.method, method);
        entry.id_len = fill(&mut entry.id, id);
        let mut asked = 0;
        match kind {
            FrameKind::Request => asked = key(way, id),
            FrameKind::Response => self.answer(&mut entry, id),
            _ => {}
        }
        if self.entries.len() < MOST {
            self.entries.push(entry);
            self.asked.push(asked);
        } else {
            self.entries[self.next] = entry;
            self.asked[self.next] = asked;
            self.next = (self.next + 1) % MOST;
        }
    }

    /// Finds the request that is answered: what it asked, and how long ago.
    fn answer(&mut self, entry: &mut Entry, id: &[u8]) {
        let wanted = key(other(entry.way), id);
        // Mostly it is one of the newest.
        let (newer, older) = self.asked.split_at(self.next);
        let is_it = |asked: &u32| *asked == wanted;
        let found =
            newer.iter().rposition(is_it).or_else(|| Some(self.next + older.iter().rposition(is_it)?));
        let Some(found) = found else { return };
        let request = &self.entries[found];
        if request.id() != entry.id() {
            return;
        }
        entry.latency =
            u32::try_from(entry.at.saturating_sub(request.at)).unwrap_or(UNKNOWN - 1).min(UNKNOWN - 1);
        (entry.method_len, entry.method) = (request.method_len, request.method);
        self.asked[found] = 0;
    }
}

impl Entry {
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

fn other(way: Way) -> Way {
    match way {
        Way::Up => Way::Down,
        Way::Down => Way::Up,
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

/// Tells requests apart well enough, and is never 0: FNV-1a of the direction, the length and the beginning of the id.
fn key(way: Way, id: &[u8]) -> u32 {
    let ends = [way as u8, id.len() as u8];
    let bytes = ends.iter().chain(id.iter().take(ID));
    bytes.fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)) | 1
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
