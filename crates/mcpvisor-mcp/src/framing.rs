//! Lines out of reads of any size.
//!
//! A stdio MCP stream is one JSON object a line. Servers in the wild end lines with CR LF, start with a byte order mark and
//! write empty lines; all three are tolerated. A line over the cap is an error of its request and not of the stream (G30): its
//! bytes are counted and thrown away, but for a piece of its head and of its tail, from which [`crate::salvage`] tells whose it
//! was.
use memchr::memchr;

/// How many of an over-long line's first bytes are kept.
pub const HEAD: usize = 4096;
/// How many of an over-long line's last bytes are kept.
pub const TAIL: usize = 512;
/// A buffer larger than this is given back once its line has been handed out.
const KEEP: usize = 4096;
const BOM: &[u8] = b"\xef\xbb\xbf";

/// Cuts a stream of bytes into lines. Holds at most the cap, and nothing between lines.
///
/// - input: [`Framer::next_frame`], [`Framer::finish`]
/// - getters: [`Framer::buffered`]
#[derive(Debug)]
pub struct Framer {
    cap: usize,
    partial: Vec<u8>,
    /// The line in `partial` has been handed out.
    spent: bool,
    /// No line has ended yet, so that a byte order mark may still come.
    at_start: bool,
    over: Option<TooLong>,
}

/// One line of the stream.
#[derive(Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// Without LF, without one CR at its end, without the stream's byte order mark; never only white space.
    Line(&'a [u8]),
    /// A line over the cap; the stream goes on behind it.
    TooLong(TooLong),
}

/// What is kept of a line over the cap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TooLong {
    /// The line's length without its LF.
    pub bytes: u64,
    /// Its first bytes, at most [`HEAD`].
    pub head: Vec<u8>,
    /// Its last bytes, at most [`TAIL`].
    pub tail: Vec<u8>,
}

impl Framer {
    /// `cap` is the longest line in bytes, its LF not counted.
    pub fn new(cap: usize) -> Self {
        Self { cap, partial: Vec::new(), spent: false, at_start: true, over: None }
    }

    /// The next line, taken from the front of `input`; `None` when `input` is used up, its unfinished rest kept. Every byte is
    /// looked at once, however the stream was cut into reads.
    pub fn next_frame<'s, 'i: 's>(&'s mut self, input: &mut &'i [u8]) -> Option<Frame<'s>> {
        loop {
            self.recycle();
            let Some(end) = memchr(b'\n', input) else {
                self.keep(std::mem::take(input));
                return None;
            };
            let piece = &input[..end];
            *input = &input[end + 1..];
            if self.over.is_some() || self.partial.len() + piece.len() > self.cap {
                self.keep(piece);
                self.at_start = false;
                return self.over.take().map(Frame::TooLong);
            }
            let whole_in_input = self.partial.is_empty();
            if !whole_in_input {
                self.partial.extend_from_slice(piece);
                self.spent = true;
            }
            let at_start = std::mem::replace(&mut self.at_start, false);
            let is_blank = clean(if whole_in_input { piece } else { &self.partial }, at_start)
                .iter()
                .all(u8::is_ascii_whitespace);
            if !is_blank {
                let line = if whole_in_input { piece } else { &self.partial };
                return Some(Frame::Line(clean(line, at_start)));
            }
        }
    }

    /// The stream has ended: how many bytes of an unfinished line are dropped. A torn line is never delivered.
    pub fn finish(&mut self) -> u64 {
        self.recycle();
        let over = self.over.take().map_or(0, |over| over.bytes);
        over + std::mem::take(&mut self.partial).len() as u64
    }

    /// Memory that is held for an unfinished line, in bytes.
    pub fn buffered(&self) -> usize {
        self.partial.capacity()
    }

    fn recycle(&mut self) {
        if std::mem::take(&mut self.spent) {
            self.partial.clear();
            if self.partial.capacity() > KEEP {
                self.partial = Vec::new();
            }
        }
    }

    fn keep(&mut self, piece: &[u8]) {
        if self.over.is_none() {
            if self.partial.len() + piece.len() <= self.cap {
                self.partial.extend_from_slice(piece);
                return;
            }
            let mut over = TooLong { bytes: 0, head: Vec::new(), tail: Vec::new() };
            over.extend(&std::mem::take(&mut self.partial));
            self.over = Some(over);
        }
        if let Some(over) = &mut self.over {
            over.extend(piece);
        }
    }
}

impl TooLong {
    fn extend(&mut self, piece: &[u8]) {
        self.bytes += piece.len() as u64;
        let room = HEAD - self.head.len();
        self.head.extend_from_slice(&piece[..piece.len().min(room)]);
        if piece.len() >= TAIL {
            self.tail.clear();
        } else {
            let surplus = (self.tail.len() + piece.len()).saturating_sub(TAIL);
            self.tail.drain(..surplus);
        }
        self.tail.extend_from_slice(&piece[piece.len().saturating_sub(TAIL)..]);
    }
}

fn clean(line: &[u8], at_start: bool) -> &[u8] {
    let line = if at_start { line.strip_prefix(BOM).unwrap_or(line) } else { line };
    line.strip_suffix(b"\r").unwrap_or(line)
}

#[cfg(test)]
mod tests;
