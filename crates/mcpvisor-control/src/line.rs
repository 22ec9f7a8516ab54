//! Lines from a stream of bytes, with a cap.
use std::collections::VecDeque;

/// A line was longer than the cap. Its bytes are dropped; the stream goes on with the next line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a line is longer than {max} bytes")]
pub struct LineTooLong {
    /// The cap, in bytes, without the newline.
    pub max: usize,
}

/// Splits bytes into lines. Holds at most one incomplete line of at most the cap, and the lines that were not taken yet.
#[derive(Debug)]
pub struct LineBuffer {
    max: usize,
    partial: Vec<u8>,
    /// The line that is coming in is already too long and told to be so.
    skipping: bool,
    ready: VecDeque<Result<Vec<u8>, LineTooLong>>,
}

impl LineBuffer {
    /// Lines of at most `max` bytes, without their newline.
    #[must_use]
    pub fn new(max: usize) -> Self {
        Self { max, partial: Vec::new(), skipping: false, ready: VecDeque::new() }
    }

    /// Takes what was read.
    pub fn push(&mut self, mut bytes: &[u8]) {
        while let Some(end) = memchr::memchr(b'\n', bytes) {
            let (head, tail) = (&bytes[..end], &bytes[end + 1..]);
            self.extend(head);
            if !std::mem::take(&mut self.skipping) {
                self.ready.push_back(Ok(std::mem::take(&mut self.partial)));
            }
            bytes = tail;
        }
        self.extend(bytes);
    }

    fn extend(&mut self, bytes: &[u8]) {
        if self.skipping {
            return;
        }
        if self.partial.len() + bytes.len() > self.max {
            self.partial = Vec::new();
            self.skipping = true;
            self.ready.push_back(Err(LineTooLong { max: self.max }));
        } else {
            self.partial.extend_from_slice(bytes);
        }
    }

    /// The next whole line, without its newline.
    pub fn next_line(&mut self) -> Option<Result<Vec<u8>, LineTooLong>> {
        self.ready.pop_front()
    }

    /// No part of an unfinished line is held.
    #[must_use]
    pub fn at_boundary(&self) -> bool {
        self.partial.is_empty() && !self.skipping
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(max: usize, pieces: &[&[u8]]) -> Vec<Result<Vec<u8>, LineTooLong>> {
        let mut buffer = LineBuffer::new(max);
        pieces.iter().for_each(|piece| buffer.push(piece));
        std::iter::from_fn(|| buffer.next_line()).collect()
    }

    #[test]
    fn lines_are_the_same_however_they_arrive() {
        let text = b"one\n\ntwo\nthree is too long\nfour\nrest";
        let whole = lines(6, &[text]);
        let long = Err(LineTooLong { max: 6 });
        assert_eq!(whole, [Ok(b"one".to_vec()), Ok(vec![]), Ok(b"two".to_vec()), long, Ok(b"four".to_vec())]);
        for cut in 0..text.len() {
            assert_eq!(lines(6, &[&text[..cut], &text[cut..]]), whole, "cut at {cut}");
        }
        let bytes: Vec<_> = text.chunks(1).collect();
        assert_eq!(lines(6, &bytes), whole);
    }

    #[test]
    fn a_line_of_just_the_cap_is_accepted() {
        assert_eq!(lines(3, &[b"abc\n"]), [Ok(b"abc".to_vec())]);
        assert_eq!(lines(3, &[b"abcd\n"]), [Err(LineTooLong { max: 3 })]);
    }
}
