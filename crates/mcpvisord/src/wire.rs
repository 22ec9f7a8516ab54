//! Lines of a control connection, with the descriptors that came along.
//!
//! The kernel hands over descriptors with the bytes that they were sent with, and one read may hold the end of one
//! message and the beginning of the next. So each batch of descriptors is remembered with the range of bytes that
//! its read covered, and belongs to the first message in that range that asks for descriptors. Batches that nobody asked for
//! are closed when the stream has gone past them.
//!
//! A line beyond the connection's allowance is charged to the daemon's budget before its memory is taken. The charge goes with the line
//! to whoever handles it; a line for which there is no room is dropped as it comes.
use crate::budget::{ALLOWANCE, Charge, Full};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, recvmsg};
use std::collections::VecDeque;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use tokio::io::Interest;
use tokio::net::UnixStream;

/// The most descriptors that a connection holds that no message has claimed.
const MOST_DESCRIPTORS: usize = 8;
const READ: usize = 64 << 10;
/// A buffer of this size holds the allowance and the next read; what is above it is charged.
const FREE: usize = ALLOWANCE + READ;

/// One line, without its newline.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) bytes: Vec<u8>,
    /// What came with it: claimed or dropped.
    pub(crate) descriptors: Descriptors,
    /// What it costs, until nothing of it is held any more; nothing for a short one.
    pub(crate) charge: Charge,
}

/// The batch that came with a line's bytes.
#[derive(Debug, Default)]
pub(crate) struct Descriptors {
    pub(crate) list: Vec<OwnedFd>,
    /// Some of them are lost: the table of open files was full, or there were too many.
    pub(crate) lost: bool,
}

/// What a read gave.
#[derive(Debug)]
pub(crate) enum Received {
    Line(Line),
    /// A line longer than the cap; its bytes are dropped as they come, and the stream goes on after it.
    TooLong,
    /// A line for which there is no room; its bytes are dropped too.
    NoRoom(Full),
    End,
}

#[derive(Debug)]
struct Batch {
    bytes: Range<u64>,
    descriptors: Descriptors,
}

/// The reading side. `next` is cancel-safe.
#[derive(Debug)]
pub(crate) struct Wire {
    longest: usize,
    buffer: Vec<u8>,
    /// Of `buffer`: what is in front of this is taken.
    start: usize,
    /// Of `buffer`: no newline is between `start` and this.
    searched: usize,
    /// The stream's position of `start`.
    position: u64,
    /// The line that comes in is too long and told to be so.
    skipping: bool,
    batches: VecDeque<Batch>,
    /// Of `buffer`, as far as it is larger than [`FREE`].
    charge: Charge,
}

impl Wire {
    /// Lines of at most `longest` bytes, paid for by `charge`.
    pub(crate) fn new(longest: usize, charge: Charge) -> Self {
        Self {
            longest,
            charge,
            buffer: Vec::new(),
            start: 0,
            searched: 0,
            position: 0,
            skipping: false,
            batches: VecDeque::new(),
        }
    }

    /// The next line. `claims` says of a line whether it asks for descriptors; one that does not lets them pass to a later
    /// line of the same read. A connection that ends in the middle of a line has ended.
    pub(crate) async fn next(
        &mut self,
        stream: &UnixStream,
        claims: impl Fn(&[u8]) -> bool,
    ) -> io::Result<Received> {
        loop {
            if let Some(received) = self.take(&claims) {
                return Ok(received);
            }
            if let Err(full) = self.make_room() {
                self.skipping = true;
                self.advance(self.buffer.len() - self.start);
                return Ok(Received::NoRoom(full));
            }
            let read = stream.async_io(Interest::READABLE, || self.read(stream)).await;
            match read {
                Ok(0) => return Ok(Received::End),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(Received::End),
                Err(error) => return Err(error),
            }
        }
    }

    /// What was read and is no line yet: the connection carries something else from here on.
    pub(crate) fn into_rest(mut self) -> Vec<u8> {
        self.buffer.split_off(self.start)
    }

    fn take(&mut self, claims: &impl Fn(&[u8]) -> bool) -> Option<Received> {
        loop {
            let newline = memchr::memchr(b'\n', &self.buffer[self.searched..]).map(|at| self.searched + at);
            let Some(end) = newline else {
                self.searched = self.buffer.len();
                let partial = self.buffer.len() - self.start;
                if self.skipping {
                    self.advance(partial);
                } else if partial > self.longest {
                    self.skipping = true;
                    self.advance(partial);
                    return Some(Received::TooLong);
                }
                return None;
            };
            let length = end - self.start;
            if std::mem::take(&mut self.skipping) {
                self.advance(length + 1);
                continue;
            }
            if length > self.longest {
                self.advance(length + 1);
                return Some(Received::TooLong);
            }
            let range = self.position..self.position + length as u64 + 1;
            let asks = claims(&self.buffer[self.start..end]);
            let descriptors = if asks { self.claim(&range) } else { Descriptors::default() };
            let (bytes, charge) = self.cut(end);
            return Some(Received::Line(Line { bytes, descriptors, charge }));
        }
    }

    /// Takes the line that ends at `end` off the front. One that is long takes its buffer along, and the charge of it.
    fn cut(&mut self, end: usize) -> (Vec<u8>, Charge) {
        let from = self.start;
        self.advance(end + 1 - from);
        // `make_room` brings what is left to the front before each read, so that no line behind another one is long.
        if from > 0 || end <= FREE {
            return (self.buffer[from..end].to_vec(), self.charge.nothing());
        }
        let rest = self.buffer.split_off(end + 1);
        let mut bytes = std::mem::replace(&mut self.buffer, rest);
        bytes.truncate(end);
        (self.start, self.searched) = (0, 0);
        (bytes, self.charge.take())
    }

    fn claim(&mut self, line: &Range<u64>) -> Descriptors {
        let overlaps = |batch: &Batch| batch.bytes.start < line.end && line.start < batch.bytes.end;
        match self.batches.iter().position(overlaps) {
            Some(at) => self.batches.remove(at).map(|batch| batch.descriptors).unwrap_or_default(),
            None => Descriptors::default(),
        }
    }

    /// Takes bytes off the front, and drops the batches that end with them.
    fn advance(&mut self, count: usize) {
        self.start += count;
        self.searched = self.start;
        self.position += count as u64;
        let position = self.position;
        self.batches.retain(|batch| batch.bytes.end > position);
    }

    /// Makes room for the next read, which no limit refuses to a line within the allowance. One long line does not cost its
    /// memory for the rest of the connection.
    fn make_room(&mut self) -> Result<(), Full> {
        self.buffer.drain(..self.start);
        self.searched -= self.start;
        self.start = 0;
        let needed = self.buffer.len() + READ;
        if needed <= FREE && self.buffer.capacity() > FREE {
            self.buffer.shrink_to(FREE);
        }
        if needed > self.buffer.capacity() {
            // By a quarter, so that a long line is not copied at each read; by what is needed, where there is no more room.
            let wanted = if needed <= FREE { FREE } else { (needed + needed / 4).min(self.longest + READ) };
            let charge = &mut self.charge;
            let mut pay = |size: usize| charge.set(size.saturating_sub(FREE)).map(|()| size);
            let size = pay(wanted).or_else(|_| pay(needed))?;
            self.buffer.reserve_exact(size - self.buffer.len());
        }
        self.charge.set(self.buffer.capacity().saturating_sub(FREE))
    }

    /// One recvmsg. The descriptors are close-on-exec; nothing else of them is touched.
    fn read(&mut self, stream: &UnixStream) -> io::Result<usize> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let start = self.buffer.len();
        self.buffer.resize(start + READ, 0);
        let got = loop {
            let mut into = [IoSliceMut::new(&mut self.buffer[start..])];
            match recvmsg(stream.as_fd(), &mut into, &mut control, flags) {
                Err(Errno::INTR) => {}
                other => break other,
            }
        };
        let count = got.as_ref().map_or(0, |got| got.bytes);
        self.buffer.truncate(start + count);
        let got = got?;
        let mut descriptors = Descriptors { list: Vec::new(), lost: got.flags.contains(ReturnFlags::CTRUNC) };
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(received) = message {
                descriptors.list.extend(received);
            }
        }
        if !descriptors.list.is_empty() || descriptors.lost {
            let held: usize = self.batches.iter().map(|batch| batch.descriptors.list.len()).sum();
            if held + descriptors.list.len() > MOST_DESCRIPTORS {
                descriptors = Descriptors { list: Vec::new(), lost: true };
            }
            let from = self.position + start as u64;
            self.batches.push_back(Batch { bytes: from..from + count as u64, descriptors });
            // Batches without descriptors left only tell of a loss; few are enough to do so.
            while self.batches.len() > 2 * MOST_DESCRIPTORS {
                self.batches.pop_front();
            }
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests;
