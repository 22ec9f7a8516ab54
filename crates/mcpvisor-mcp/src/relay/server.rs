//! What the server says, on its way to the client: messages pass as they are, noise does not.
use super::own;
use super::scan::{Class, Kind, Mark};
use super::{Conversation, Ended, Fate, HELD, Key, MOST_ASKED, OWN, Passed, Settled, Watch, Way};
use crate::text::printable;
use serde::Deserialize;
use std::borrow::Cow;

/// The most white space in front of a message, in bytes, the stream's byte order mark included.
const MOST_BLANK: usize = 64;
/// The longest answer to `initialize` in which the revision is looked for, where it was cut into reads.
const HANDSHAKE: usize = 64 << 10;
/// How much of a line of noise is shown.
const SHOWN: usize = 200;
/// The one revision with batches.
const BATCHING: &str = "2025-03-26";

#[derive(Deserialize)]
struct Initialized<'a> {
    #[serde(borrow)]
    result: InitializeResult<'a>,
}

#[derive(Deserialize)]
struct InitializeResult<'a> {
    #[serde(borrow, rename = "protocolVersion")]
    protocol: Cow<'a, str>,
}

impl<P> Conversation<P> {
    /// Takes what was read from the server. `watch` hears of each line that has ended.
    pub fn from_server(&mut self, buffer: &mut [u8], watch: &mut impl Watch) -> Passed {
        let mut passed = Passed::default();
        let mut at = 0;
        while at < buffer.len() {
            let from = at;
            let whole = loop {
                let (used, mark) = self.down.scanner.feed(&buffer[at..]);
                at += used;
                match mark {
                    Some(Mark::Element) => {
                        if self.batches && !self.down.note() {
                            self.counters.untracked += 1;
                        }
                    }
                    Some(Mark::LineEnd) => break true,
                    None => break false,
                }
            };
            let piece = &buffer[from..at];
            self.down.size += (at - from) as u64;
            let keep = if whole {
                let keep = self.whole_from_server(piece, &mut passed);
                watch.line(Way::Down, &self.down.scanner.head(self.down.size));
                self.down.next_line();
                if let Settled::AtLineEnd(because) = self.settled {
                    self.settle_now(because);
                }
                keep
            } else {
                self.part_from_server(piece, &mut passed)
            };
            if keep {
                if passed.len != from {
                    buffer.copy_within(from..at, passed.len);
                }
                passed.len += at - from;
            }
        }
        if self.client_lost {
            return Passed::default();
        }
        passed
    }

    fn whole_from_server(&mut self, piece: &[u8], passed: &mut Passed) -> bool {
        match self.down.fate {
            Fate::Passes => {
                self.message_passed(piece);
                true
            }
            Fate::Drops | Fate::Refused => {
                self.message_dropped();
                false
            }
            Fate::Open => match self.down.scanner.class() {
                // An empty line is tolerated, and tells nobody anything.
                Class::Blank => false,
                Class::Noise => self.pass_over(piece),
                Class::Batch if !self.batches => self.pass_over(piece),
                Class::Batch | Class::Message if !self.may_pass(self.down.scanner.kind()) => {
                    self.counters.dropped += 1;
                    self.message_dropped();
                    false
                }
                Class::Batch | Class::Message => {
                    self.message_passed(piece);
                    passed.ahead.append(&mut self.down.held);
                    true
                }
            },
        }
    }

    fn part_from_server(&mut self, piece: &[u8], passed: &mut Passed) -> bool {
        match self.down.fate {
            Fate::Passes => {
                self.copy_handshake(piece);
                return true;
            }
            Fate::Drops | Fate::Refused => return false,
            Fate::Open => {}
        }
        let settled = matches!(self.settled, Settled::Yes(_));
        match self.down.scanner.class() {
            Class::Blank if self.down.held.len() + piece.len() <= MOST_BLANK => {
                self.down.held.extend_from_slice(piece);
            }
            Class::Blank | Class::Noise => {
                self.pass_over(piece);
                self.down.fate = Fate::Drops;
            }
            Class::Batch if !self.batches => {
                self.pass_over(piece);
                self.down.fate = Fate::Drops;
            }
            Class::Message | Class::Batch if !settled => {
                self.down.fate = Fate::Passes;
                passed.ahead.append(&mut self.down.held);
                self.copy_handshake(piece);
                return true;
            }
            Class::Message | Class::Batch if self.down.held.len() + piece.len() > HELD => {
                self.counters.dropped += 1;
                self.down.fate = Fate::Drops;
                self.down.held = Vec::new();
            }
            Class::Message | Class::Batch => self.down.held.extend_from_slice(piece),
        }
        false
    }

    /// Once the calls were settled an answer would be a second one, and a request would find nobody.
    fn may_pass(&self, kind: Kind) -> bool {
        !matches!(self.settled, Settled::Yes(_))
            || (self.down.scanner.class() == Class::Message
                && matches!(kind, Kind::Notification | Kind::Other))
    }

    /// A message, or a batch of them, has passed as a whole.
    fn message_passed(&mut self, piece: &[u8]) {
        if self.down.scanner.class() == Class::Batch {
            for element in std::mem::take(&mut self.down.batch) {
                match (element.kind, element.key) {
                    (Kind::Request, Some(key)) => self.asked_by_server(key),
                    (Kind::Response, Some(key)) => {
                        self.answered(&key);
                    }
                    _ => {}
                }
            }
            return;
        }
        match (self.down.scanner.kind(), self.down.key()) {
            (Kind::Request, Some(key)) => self.asked_by_server(key),
            (Kind::Response, Some(key)) if self.answered(&key) => self.negotiated(piece),
            (Kind::Unfollowed, _) => self.counters.untracked += 1,
            _ => {}
        }
    }

    /// A message is dropped: what it asks is answered here.
    fn message_dropped(&mut self) {
        let Settled::Yes(because) = self.settled else { return };
        let batch = std::mem::take(&mut self.down.batch);
        let keys: Vec<Key> = if self.down.scanner.class() == Class::Batch {
            let asked = batch.into_iter().filter(|element| element.kind == Kind::Request);
            asked.filter_map(|element| element.key).collect()
        } else if self.down.scanner.kind() == Kind::Request {
            self.down.key().into_iter().collect()
        } else {
            return;
        };
        for key in keys {
            if self.for_server.len() < OWN {
                own::error(&mut self.for_server, key.text(), because);
            } else {
                self.counters.untracked += 1;
            }
        }
    }

    fn asked_by_server(&mut self, key: Key) {
        if self.asked.len() < MOST_ASKED {
            *self.asked.entry(key).or_insert(0) += 1;
        } else {
            self.counters.untracked += 1;
        }
    }

    /// True of the answer to `initialize`. An answer to nothing passes all the same.
    fn answered(&mut self, key: &Key) -> bool {
        let Some((permit, initialize)) = self.calls.remove(key) else { return false };
        self.ended.extend(permit.map(Ended::Answered));
        initialize
    }

    fn copy_handshake(&mut self, piece: &[u8]) {
        if self.calls.initializing > 0 {
            self.down.copy(piece, HANDSHAKE);
        }
    }

    fn negotiated(&mut self, piece: &[u8]) {
        let whole = [self.down.text.as_slice(), piece].concat();
        let line = whole.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&whole);
        if let Ok(answer) = serde_json::from_slice::<Initialized<'_>>(line) {
            self.batches = answer.result.protocol == BATCHING;
        }
    }

    /// A line that is no message. Never passes.
    fn pass_over(&mut self, piece: &[u8]) -> bool {
        self.counters.noise += 1;
        if self.noise.is_none() {
            let line = piece.trim_ascii_end();
            self.noise = Some(printable(line, SHOWN));
        }
        self.down.held = Vec::new();
        false
    }
}
