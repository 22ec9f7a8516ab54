//! The last lines, within bounds, and those who follow them.
use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;
use tokio::sync::mpsc::{self, error::TrySendError};

/// The most lines that are kept.
pub(super) const MAX_LINES: usize = 256;
/// The most bytes that are kept.
pub(super) const MAX_BYTES: usize = 64 << 10;
/// A longer line is split.
pub(super) const MAX_LINE: usize = 8 << 10;
/// How many lines a follower may lag behind.
const MAX_LAG: usize = 256;
/// How many lines a follower is told in a second, and as many at once: a server that floods costs its followers, and us, no more.
const PACE: u32 = 1000;
/// A buffer for an unfinished line that is larger than this is given back.
const KEEP: usize = 512;

/// A line as the server wrote it, without its LF; a piece of one where it was longer than 8 KiB.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StderrLine {
    /// When it was read.
    pub(crate) at: SystemTime,
    pub(crate) bytes: Arc<[u8]>,
    /// Lines that were dropped just before this one.
    pub(crate) dropped: u64,
}

#[derive(Debug, Default)]
pub(super) struct Ring {
    lines: VecDeque<StderrLine>,
    bytes: usize,
    partial: Vec<u8>,
    dropped: u64,
    followers: Vec<Followed>,
    ended: bool,
}

#[derive(Debug)]
struct Followed {
    lines: mpsc::Sender<StderrLine>,
    /// Lines that did not fit, or came too fast, since the last that was told.
    lost: u64,
    pace: Pace,
    last: Arc<OnceLock<StderrLine>>,
}

/// A stream of lines. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Follower {
    backlog: VecDeque<StderrLine>,
    lines: mpsc::Receiver<StderrLine>,
    /// The log's last line, where that was lost: it is told all the same. None once it was.
    last: Option<Arc<OnceLock<StderrLine>>>,
}

impl Follower {
    /// The next line; `None` once the log has ended and all of it was given. Cancel safe.
    pub(crate) async fn next(&mut self) -> Option<StderrLine> {
        if let Some(line) = self.backlog.pop_front() {
            return Some(line);
        }
        match self.lines.recv().await {
            Some(line) => Some(line),
            None => self.last.take().and_then(|last| last.get().cloned()),
        }
    }
}

/// How many lines may still be told: what was used comes back with time.
#[derive(Debug)]
struct Pace {
    left: f64,
    since: SystemTime,
}

impl Pace {
    fn new(now: SystemTime) -> Self {
        Self { left: f64::from(PACE), since: now }
    }

    fn allows(&mut self, now: SystemTime) -> bool {
        // A clock that was set back gives nothing and takes nothing.
        let past = now.duration_since(self.since).unwrap_or_default();
        self.since = now;
        self.left = f64::from(PACE).min(self.left + past.as_secs_f64() * f64::from(PACE));
        self.left >= 1.0
    }
}

impl Ring {
    pub(super) fn push(&mut self, chunk: &[u8], at: SystemTime) {
        self.followers.retain(|follower| !follower.lines.is_closed());
        let mut rest = self.skip_doomed(chunk);
        while let Some(end) = memchr::memchr(b'\n', rest) {
            self.extend(&rest[..end], at);
            self.finish_line(at);
            rest = &rest[end + 1..];
        }
        self.extend(rest, at);
    }

    /// Of a chunk with more lines than are kept, those that nobody would see are counted and not stored.
    fn skip_doomed<'a>(&mut self, chunk: &'a [u8]) -> &'a [u8] {
        if !self.followers.is_empty() {
            return chunk;
        }
        let Some(last_doomed) = memchr::memrchr_iter(b'\n', chunk).nth(MAX_LINES) else { return chunk };
        let (doomed, rest) = chunk.split_at(last_doomed + 1);
        self.dropped += memchr::memchr_iter(b'\n', doomed).count() as u64 + self.lines.len() as u64;
        self.partial.clear();
        self.lines.clear();
        self.bytes = 0;
        rest
    }

    fn extend(&mut self, mut piece: &[u8], at: SystemTime) {
        while self.partial.len() + piece.len() > MAX_LINE {
            let (now, later) = piece.split_at(MAX_LINE - self.partial.len());
            self.partial.extend_from_slice(now);
            self.finish_line(at);
            piece = later;
        }
        self.partial.extend_from_slice(piece);
    }

    fn finish_line(&mut self, at: SystemTime) {
        let line = StderrLine { at, bytes: Arc::from(&*self.partial), dropped: 0 };
        self.partial.clear();
        if self.partial.capacity() > KEEP {
            self.partial = Vec::new();
        }
        for follower in &mut self.followers {
            if !follower.pace.allows(at) {
                follower.lost += 1;
                continue;
            }
            let line = StderrLine { dropped: follower.lost, ..line.clone() };
            match follower.lines.try_send(line) {
                Ok(()) => {
                    follower.lost = 0;
                    follower.pace.left -= 1.0;
                }
                Err(TrySendError::Full(_)) => follower.lost += 1,
                Err(TrySendError::Closed(_)) => {}
            }
        }
        self.bytes += line.bytes.len();
        self.lines.push_back(line);
        while self.lines.len() > MAX_LINES || self.bytes > MAX_BYTES {
            if let Some(oldest) = self.lines.pop_front() {
                self.bytes -= oldest.bytes.len();
                self.dropped += 1;
            }
        }
    }

    /// The stream has ended: its unfinished line becomes one, and followers' streams end.
    pub(super) fn end(&mut self, at: SystemTime) {
        if !std::mem::replace(&mut self.ended, true) {
            if !self.partial.is_empty() {
                self.finish_line(at);
            }
            self.partial = Vec::new();
            for follower in std::mem::take(&mut self.followers) {
                if let (1.., Some(last)) = (follower.lost, self.lines.back()) {
                    let _ = follower.last.set(StderrLine { dropped: follower.lost - 1, ..last.clone() });
                }
            }
        }
    }

    pub(super) fn dropped(&self) -> u64 {
        self.dropped
    }

    pub(super) fn lines(&self, count: usize) -> Vec<StderrLine> {
        let partial = (!self.partial.is_empty() && count > 0).then(|| StderrLine {
            at: SystemTime::now(),
            bytes: Arc::from(&*self.partial),
            dropped: 0,
        });
        let mut lines = self.last(count - usize::from(partial.is_some()));
        lines.extend(partial);
        Vec::from(lines)
    }

    pub(super) fn follow(&mut self, count: usize) -> Follower {
        let (sender, receiver) = mpsc::channel(MAX_LAG);
        let backlog = self.last(count);
        let last = Arc::new(OnceLock::new());
        if !self.ended {
            let (pace, last) = (Pace::new(SystemTime::now()), Arc::clone(&last));
            self.followers.push(Followed { lines: sender, lost: 0, pace, last });
        }
        Follower { backlog, lines: receiver, last: Some(last) }
    }

    fn last(&self, count: usize) -> VecDeque<StderrLine> {
        let from = self.lines.len().saturating_sub(count);
        let mut lines: VecDeque<StderrLine> = self.lines.range(from..).cloned().collect();
        // Only where all that is left was asked for did a drop make a gap.
        if let Some(oldest) = lines.front_mut().filter(|_| count > self.lines.len()) {
            oldest.dropped = self.dropped;
        }
        lines
    }

    pub(super) fn tail(&self, max_bytes: usize) -> String {
        let (mut shown, mut length) = (Vec::new(), 0);
        let partial = (!self.partial.is_empty()).then_some(&*self.partial);
        for bytes in partial.into_iter().chain(self.lines.iter().rev().map(|line| &*line.bytes)) {
            let line = text(bytes);
            let separator = usize::from(!shown.is_empty());
            if length + separator + line.len() > max_bytes {
                if shown.is_empty() {
                    let from = (line.len() - max_bytes..).find(|&at| line.is_char_boundary(at));
                    return line[from.unwrap_or(line.len())..].to_owned();
                }
                break;
            }
            length += separator + line.len();
            shown.push(line);
        }
        shown.reverse();
        shown.join("\n")
    }
}

/// As text, without the carriage return at its end.
fn text(line: &[u8]) -> String {
    String::from_utf8_lossy(line.strip_suffix(b"\r").unwrap_or(line)).into_owned()
}
