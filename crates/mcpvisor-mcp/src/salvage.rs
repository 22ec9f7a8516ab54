//! Whose answer an over-long line was, told from its first and last bytes, so that only that request fails (G30).
//!
//! Most servers write the id before the payload; the TypeScript SDK writes it last. Neither end is parsed as a whole document,
//! since the middle is gone.
use crate::framing::TooLong;
use crate::id::Id;

/// What could be told of an over-long line.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Salvaged {
    /// Its id, where one was found at the top level.
    pub id: Option<Id>,
    /// It starts as an object does. Otherwise it is noise.
    pub object: bool,
    /// It has a method, so that it is a request or a notification and no answer.
    pub method: bool,
}

/// Looks at both ends.
pub fn salvage(line: &TooLong) -> Salvaged {
    let mut found = scan_head(&line.head);
    if found.object && found.id.is_none() {
        found.id = scan_tail(&line.tail);
    }
    found
}

/// Walks the top-level fields until the first that is cut off.
fn scan_head(head: &[u8]) -> Salvaged {
    let head = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head);
    let mut cursor = Cursor { bytes: head, at: 0 };
    let mut found = Salvaged::default();
    cursor.skip_space();
    if cursor.next() != Some(b'{') {
        return found;
    }
    found.object = true;
    let _ = scan_fields(&mut cursor, &mut found);
    found
}

fn scan_fields(cursor: &mut Cursor<'_>, found: &mut Salvaged) -> Option<()> {
    loop {
        cursor.skip_space();
        let key = cursor.string()?;
        cursor.skip_space();
        (cursor.next()? == b':').then_some(())?;
        cursor.skip_space();
        if key == b"\"method\"" {
            found.method = true;
        }
        let value = cursor.value()?;
        if key == b"\"id\"" {
            found.id = std::str::from_utf8(value).ok().and_then(Id::from_json);
        }
        cursor.skip_space();
        (cursor.next()? == b',').then_some(())?;
    }
}

/// The line must end with `,"id":ID}` or `,"id":ID,"jsonrpc":"2.0"}`. In valid JSON a quote that follows a comma directly and is
/// followed by `id"` opens a string outside of any other, and the brace behind the id is the last one, so this is the top level.
fn scan_tail(tail: &[u8]) -> Option<Id> {
    let text = tail.trim_ascii_end().strip_suffix(b"}")?.trim_ascii_end();
    let text = match text.strip_suffix(b"\"2.0\"") {
        Some(rest) => strip_key(rest, b"\"jsonrpc\"")?,
        None => text,
    };
    let start = if text.ends_with(b"\"") {
        // Ids with escapes in them are not looked for: ours have none.
        let open = text[..text.len() - 1].iter().rposition(|&byte| byte == b'"')?;
        (text.get(open.checked_sub(1)?) != Some(&b'\\')).then_some(open)?
    } else {
        text.iter().rposition(|byte| !b"0123456789+-.eE".contains(byte))? + 1
    };
    let (before, id) = text.split_at(start);
    strip_key(before, b"\"id\"")?;
    Id::from_json(std::str::from_utf8(id).ok()?)
}

/// `…,KEY:` without its comma, key and colon.
fn strip_key<'a>(text: &'a [u8], key: &[u8]) -> Option<&'a [u8]> {
    let text = text.trim_ascii_end().strip_suffix(b":")?.trim_ascii_end();
    Some(text.strip_suffix(key)?.trim_ascii_end().strip_suffix(b",")?.trim_ascii_end())
}

struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }

    fn skip_space(&mut self) {
        while self.peek().is_some_and(|byte| byte.is_ascii_whitespace()) {
            self.at += 1;
        }
    }

    /// A whole string with its quotes.
    fn string(&mut self) -> Option<&'a [u8]> {
        let start = self.at;
        (self.next()? == b'"').then_some(())?;
        loop {
            match self.next()? {
                b'"' => return Some(&self.bytes[start..self.at]),
                b'\\' => {
                    self.next()?;
                }
                _ => {}
            }
        }
    }

    /// A whole value, of any kind; `None` where it is cut off.
    fn value(&mut self) -> Option<&'a [u8]> {
        let start = self.at;
        let mut depth = 0usize;
        loop {
            match self.peek()? {
                b'"' => {
                    self.string()?;
                }
                b'{' | b'[' => {
                    depth += 1;
                    self.at += 1;
                }
                b'}' | b']' if depth > 0 => {
                    depth -= 1;
                    self.at += 1;
                }
                b'}' | b']' | b',' if depth == 0 => break,
                _ => self.at += 1,
            }
        }
        Some(self.bytes[start..self.at].trim_ascii_end())
    }
}

#[cfg(test)]
mod tests;
