//! What a line is, told from its top level alone, however it was cut into reads.
//!
//! Keys may come in any order and behind a value of any size, so the top level is walked through by a small machine; strings and, as
//! soon as enough is known, the rest of the line are skipped with memchr. A JSON text holds no raw newline, so LF ends a line wherever it
//! comes, and a line that is no JSON can't hide the next one. Nothing of a line is kept but its id, its method, and a key that is being
//! read. A head that is plain is read at once (`head`); the machine reads all others.
pub(crate) mod head;

use memchr::{memchr, memchr2};
use std::borrow::Cow;

/// The longest id that is kept, in bytes of JSON text; the message of a longer one is [`Kind::Unfollowed`].
pub const LONGEST_ID: usize = 4096;
/// The longest key or method that is kept; no longer one means anything here.
const LONGEST_WORD: usize = 128;
/// More room than this is given back at the end of a line.
const KEEP: usize = 128;
const BOM: &[u8; 3] = b"\xef\xbb\xbf";
/// The bytes that mean something in an object or an array, outside of strings.
const IN_NESTED: [bool; 256] = {
    let mut table = [false; 256];
    let special = b"\"{}[]\n";
    let mut at = 0;
    while at < special.len() {
        table[special[at] as usize] = true;
        at += 1;
    }
    table
};

/// Follows a stream of lines.
///
/// - input: [`Scanner::feed`]
/// - getters, of the line or of the batch's element that was fed last: all others
#[derive(Debug, Default)]
pub struct Scanner {
    state: State,
    class: Class,
    /// How much of a byte order mark has been seen; only the stream's first line may begin with one.
    bom: u8,
    begun: bool,
    /// Of a value at the top level: how many objects and arrays are open in it.
    depth: u32,
    /// What the string or scalar that is being read is to be.
    capture: Capture,
    word: Vec<u8>,
    id: Vec<u8>,
    method: Vec<u8>,
    seen: Seen,
}

/// What begins a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Class {
    /// Nothing but white space so far.
    #[default]
    Blank,
    /// `{`: a message.
    Message,
    /// `[`: a batch.
    Batch,
    /// Anything else.
    Noise,
}

/// What a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Wants an answer: a method and an id.
    Request,
    /// A method and no id.
    Notification,
    /// A result or an error, and an id.
    Response,
    /// A request or a response whose id is longer than [`LONGEST_ID`].
    Unfollowed,
    /// None of them: the other side will say what is wrong with it.
    Other,
}

/// What is known of a line, and its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head<'a> {
    /// What it begins with.
    pub class: Class,
    /// What it is, if it is a message.
    pub kind: Kind,
    /// Of a message: as [`Scanner::method`].
    pub method: &'a [u8],
    /// Of a message: as [`Scanner::id`].
    pub id: &'a [u8],
    /// Its LF included.
    pub bytes: u64,
}

/// Where in its input the scanner has stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// Behind an element of a batch.
    Element,
    /// Behind a line's LF.
    LineEnd,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    #[default]
    Start,
    /// Nothing more is to be learned before the LF.
    Rest,
    /// Between the elements of a batch.
    Between,
    BeforeKey,
    Key,
    KeyEscape,
    AfterKey,
    BeforeValue,
    /// In a number or a word at the top level.
    Scalar,
    String,
    StringEscape,
    /// In an object or an array, outside of strings.
    Nested,
    NestedString,
    NestedEscape,
    AfterValue,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Capture {
    #[default]
    Nothing,
    Id,
    Method,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Seen {
    /// Whole, and not null.
    id: bool,
    /// It was null, or is neither a string nor a number.
    no_id: bool,
    long_id: bool,
    method: bool,
    outcome: bool,
}

impl Scanner {
    /// Goes on to the end of the next line or element: how many bytes that took, and what is there; `None` if the input ended first.
    /// After [`Mark::LineEnd`] the getters tell of that line until the next call.
    pub fn feed(&mut self, input: &[u8]) -> (usize, Option<Mark>) {
        if self.begun && self.state == State::Start && self.class != Class::Blank {
            self.begin_line();
        }
        let mut at = 0;
        if input.first() == Some(&b'{') && self.state == State::Start && self.bom == 0 {
            at = self.plain(input);
        }
        while let Some(&byte) = input.get(at) {
            let rest = &input[at..];
            match self.state {
                State::Rest => match memchr(b'\n', rest) {
                    Some(end) => return (at + end + 1, Some(self.end_line())),
                    None => return (input.len(), None),
                },
                State::String | State::NestedString => {
                    let special = memchr2(b'"', b'\\', rest).unwrap_or(rest.len());
                    // A raw newline ends the line, whatever was meant.
                    if let Some(end) = memchr(b'\n', &rest[..special]) {
                        return (at + end + 1, Some(self.end_line()));
                    }
                    self.keep(&rest[..special]);
                    at += special;
                    if let Some(&byte) = input.get(at) {
                        self.in_string(byte);
                        at += 1;
                    }
                    continue;
                }
                State::Nested if !IN_NESTED[usize::from(byte)] => {
                    let plain = rest.iter().position(|byte| IN_NESTED[usize::from(*byte)]);
                    at += plain.unwrap_or(rest.len());
                    continue;
                }
                _ if byte == b'\n' => return (at + 1, Some(self.end_line())),
                _ => {}
            }
            at += 1;
            if self.byte(byte) {
                return (at, Some(Mark::Element));
            }
        }
        (at, None)
    }

    /// What the line begins with.
    #[must_use]
    pub fn class(&self) -> Class {
        self.class
    }

    /// What the message is: at its end, or as soon as it can't be anything else.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self.seen {
            Seen { long_id: true, .. } => Kind::Unfollowed,
            Seen { method: true, id: true, .. } => Kind::Request,
            Seen { method: true, no_id: false, .. } => Kind::Notification,
            Seen { method: false, outcome: true, id: true, .. } => Kind::Response,
            _ => Kind::Other,
        }
    }

    /// What the message is, if that is certain before its end.
    #[must_use]
    pub fn known(&self) -> Option<Kind> {
        let certain = self.class == Class::Message && self.state == State::Rest;
        certain.then(|| self.kind())
    }

    /// The id as its sender wrote it.
    #[must_use]
    pub fn id(&self) -> &[u8] {
        &self.id
    }

    /// The method, if it was written without escapes and is not too long.
    #[must_use]
    pub fn method(&self) -> &[u8] {
        &self.method
    }

    /// The line that has ended, which had so many bytes.
    #[must_use]
    pub fn head(&self, bytes: u64) -> Head<'_> {
        let (method, id) = match self.class {
            Class::Message => (self.method(), self.id()),
            _ => (&[][..], &[][..]),
        };
        Head { class: self.class, kind: self.kind(), method, id, bytes }
    }

    fn begin_line(&mut self) {
        self.class = Class::Blank;
        self.begin_message();
    }

    fn begin_message(&mut self) {
        self.seen = Seen::default();
        self.capture = Capture::Nothing;
        for buffer in [&mut self.word, &mut self.id, &mut self.method] {
            buffer.clear();
            buffer.shrink_to(KEEP);
        }
    }

    /// Reads a plain head at once: how many bytes that took.
    fn plain(&mut self, input: &[u8]) -> usize {
        let Some(head) = head::read(input) else { return 0 };
        self.class = Class::Message;
        self.state = State::Rest;
        self.id.extend_from_slice(head.id);
        self.method.extend_from_slice(head.method.unwrap_or_default());
        self.seen =
            Seen { id: true, method: head.method.is_some(), outcome: head.outcome, ..Seen::default() };
        head.used
    }

    fn end_line(&mut self) -> Mark {
        // A scalar ends with its line, too.
        self.end_scalar();
        self.state = State::Start;
        (self.begun, self.bom, self.depth) = (true, 0, 0);
        Mark::LineEnd
    }

    /// One byte that is no LF, outside of strings' text. True behind an element of a batch.
    fn byte(&mut self, byte: u8) -> bool {
        match self.state {
            State::Start => self.at_start(byte),
            State::Between => {
                if byte == b'{' {
                    self.begin_message();
                    self.state = State::BeforeKey;
                }
            }
            State::BeforeKey => match byte {
                b'"' => {
                    self.word.clear();
                    self.state = State::Key;
                }
                b'}' => return self.end_message(),
                _ => {}
            },
            State::Key => match byte {
                b'"' => self.state = State::AfterKey,
                b'\\' => {
                    self.keep_word(byte);
                    self.state = State::KeyEscape;
                }
                _ => self.keep_word(byte),
            },
            State::KeyEscape => {
                self.keep_word(byte);
                self.state = State::Key;
            }
            State::AfterKey => {
                if byte == b':' {
                    self.begin_value();
                }
            }
            State::BeforeValue => self.first_of_value(byte),
            State::Scalar => match byte {
                b',' => {
                    self.end_scalar();
                    self.next_key();
                }
                b'}' => {
                    self.end_scalar();
                    return self.end_message();
                }
                b' ' | b'\t' | b'\r' => {
                    self.end_scalar();
                    self.after_value();
                }
                _ => self.keep(&[byte]),
            },
            State::StringEscape => {
                self.keep(&[byte]);
                self.state = State::String;
            }
            State::NestedEscape => self.state = State::NestedString,
            State::Nested => match byte {
                b'"' => self.state = State::NestedString,
                b'{' | b'[' => self.depth = self.depth.saturating_add(1),
                b'}' | b']' => {
                    self.depth -= 1;
                    if self.depth == 0 {
                        self.after_value();
                    }
                }
                _ => {}
            },
            State::AfterValue => match byte {
                b',' => self.next_key(),
                b'}' => return self.end_message(),
                _ => {}
            },
            State::Rest | State::String | State::NestedString => unreachable!("these are skipped as a whole"),
        }
        false
    }

    fn at_start(&mut self, byte: u8) {
        match byte {
            b'{' => {
                self.class = Class::Message;
                self.state = State::BeforeKey;
            }
            b'[' => {
                self.class = Class::Batch;
                self.state = State::Between;
            }
            b' ' | b'\t' | b'\r' => {}
            _ if !self.begun && BOM.get(usize::from(self.bom)) == Some(&byte) => self.bom += 1,
            _ => {
                self.class = Class::Noise;
                self.state = State::Rest;
            }
        }
    }

    fn begin_value(&mut self) {
        self.capture = match &*self.key() {
            b"id" => {
                self.id.clear();
                (self.seen.id, self.seen.no_id, self.seen.long_id) = (false, false, false);
                Capture::Id
            }
            b"method" => {
                self.method.clear();
                Capture::Method
            }
            b"result" | b"error" => {
                self.seen.outcome = true;
                Capture::Nothing
            }
            _ => Capture::Nothing,
        };
        self.state = State::BeforeValue;
        if self.seen.outcome && self.enough() {
            self.state = State::Rest;
        }
    }

    /// The key, its escapes undone.
    fn key(&self) -> Cow<'_, [u8]> {
        if memchr(b'\\', &self.word).is_none() {
            return Cow::Borrowed(&self.word);
        }
        let quoted = [b"\"", self.word.as_slice(), b"\""].concat();
        Cow::Owned(serde_json::from_slice::<String>(&quoted).unwrap_or_default().into_bytes())
    }

    fn first_of_value(&mut self, byte: u8) {
        match byte {
            b'"' => {
                self.keep_id(b"\"");
                self.state = State::String;
            }
            b'{' | b'[' => {
                if self.capture == Capture::Id {
                    self.seen.no_id = true;
                }
                self.capture = Capture::Nothing;
                self.depth = 1;
                self.state = State::Nested;
            }
            b',' => self.next_key(),
            b' ' | b'\t' | b'\r' => {}
            _ => {
                self.keep(&[byte]);
                self.state = State::Scalar;
            }
        }
    }

    /// A quote or a backslash in a string.
    fn in_string(&mut self, byte: u8) {
        match (self.state, byte) {
            (State::NestedString, b'"') => self.state = State::Nested,
            (State::NestedString, _) => self.state = State::NestedEscape,
            (_, b'"') => {
                self.keep_id(b"\"");
                match self.capture {
                    Capture::Id => self.seen.id = !self.seen.long_id,
                    Capture::Method => self.seen.method = true,
                    Capture::Nothing => {}
                }
                self.after_value();
            }
            _ => {
                self.keep(&[byte]);
                self.state = State::StringEscape;
            }
        }
    }

    fn end_scalar(&mut self) {
        if self.state == State::Scalar && self.capture == Capture::Id {
            let number = matches!(self.id.first(), Some(b'-' | b'0'..=b'9'));
            self.seen.id = number && !self.seen.long_id;
            self.seen.no_id = !number;
        }
    }

    fn after_value(&mut self) {
        self.capture = Capture::Nothing;
        self.state = if self.enough() { State::Rest } else { State::AfterValue };
    }

    fn next_key(&mut self) {
        self.capture = Capture::Nothing;
        self.state = if self.enough() { State::Rest } else { State::BeforeKey };
    }

    /// Nothing that may follow changes what the message is. In a batch the end of the element is still to be found.
    fn enough(&self) -> bool {
        self.class == Class::Message && self.seen.id && (self.seen.method || self.seen.outcome)
    }

    fn end_message(&mut self) -> bool {
        let in_batch = self.class == Class::Batch;
        self.state = if in_batch { State::Between } else { State::Rest };
        in_batch
    }

    /// A part of the value that is being read, if it is one that is kept.
    fn keep(&mut self, piece: &[u8]) {
        match self.capture {
            Capture::Id => self.keep_id(piece),
            Capture::Method => {
                let room = LONGEST_WORD.saturating_sub(self.method.len());
                self.method.extend_from_slice(&piece[..piece.len().min(room)]);
            }
            Capture::Nothing => {}
        }
    }

    fn keep_id(&mut self, piece: &[u8]) {
        if self.capture != Capture::Id {
            return;
        }
        if self.id.len() + piece.len() > LONGEST_ID {
            self.seen.long_id = true;
        } else {
            self.id.extend_from_slice(piece);
        }
    }

    fn keep_word(&mut self, byte: u8) {
        if self.word.len() < LONGEST_WORD {
            self.word.push(byte);
        }
    }
}

#[cfg(test)]
mod tests;
