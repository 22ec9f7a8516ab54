//! The head of a message as nearly everybody writes it, read at once.
//!
//! What is not plain (an escape, an odd blank, a head that was cut) is left to the scanner's machine, which reads anything; both tell
//! the same of the same line.
use super::{IN_NESTED, LONGEST_ID, LONGEST_WORD};
use memchr::memchr2;

/// All that is to be learned of a message.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Head<'a> {
    /// As its sender wrote it.
    pub(crate) id: &'a [u8],
    /// None of a response.
    pub(crate) method: Option<&'a [u8]>,
    /// A result or an error was seen.
    pub(crate) outcome: bool,
    /// How many bytes that took.
    pub(crate) used: usize,
}

/// Reads what begins with `{`, which is not looked at. `None` where it is not plain, or what it is does not follow from what is there.
pub(crate) fn read(text: &[u8]) -> Option<Head<'_>> {
    let (mut id, mut method, mut outcome) = (None, None, false);
    let mut at = 1;
    loop {
        at = behind_blank(text, at);
        let key = string(text, at)?;
        at = behind_blank(text, at + key.len() + 2);
        if text.get(at) != Some(&b':') {
            return None;
        }
        at = behind_blank(text, at + 1);
        match key {
            b"id" if id.is_none() => {
                let value = match text.get(at)? {
                    b'"' => {
                        let inner = string(text, at)?;
                        &text[at..at + inner.len() + 2]
                    }
                    b'-' | b'0'..=b'9' => scalar(text, at)?,
                    _ => return None,
                };
                id = Some(value).filter(|id| id.len() <= LONGEST_ID);
                at += value.len();
                id?;
            }
            b"method" if method.is_none() => {
                let value = string(text, at)?;
                method = Some(value).filter(|method| method.len() <= LONGEST_WORD);
                at += value.len() + 2;
                method?;
            }
            b"id" | b"method" => return None,
            _ => {
                outcome |= matches!(key, b"result" | b"error");
                if !(outcome && id.is_some()) {
                    at = behind_value(text, at)?;
                }
            }
        }
        if let Some(id) = id.filter(|_| method.is_some() || outcome) {
            return Some(Head { id, method, outcome, used: at });
        }
        at = behind_blank(text, at);
        if text.get(at) != Some(&b',') {
            return None;
        }
        at += 1;
    }
}

fn behind_blank(text: &[u8], mut at: usize) -> usize {
    while text.get(at) == Some(&b' ') {
        at += 1;
    }
    at
}

/// The text of a string that has no escape and is whole. Most are too short for more than a loop.
fn string(text: &[u8], at: usize) -> Option<&[u8]> {
    let inner = text.get(at..)?.strip_prefix(b"\"")?;
    let end = inner.iter().position(|byte| matches!(byte, b'"' | b'\\' | b'\n'))?;
    (inner[end] == b'"').then(|| &inner[..end])
}

/// A number or a word, with what ends it behind it.
fn scalar(text: &[u8], at: usize) -> Option<&[u8]> {
    let rest = text.get(at..)?;
    let end = rest.iter().position(|byte| matches!(byte, b',' | b'}' | b' ' | b'\t' | b'\r' | b'\n'))?;
    (rest[end] != b'\n').then(|| &rest[..end])
}

fn behind_value(text: &[u8], at: usize) -> Option<usize> {
    match text.get(at)? {
        b'"' => behind_string(text, at + 1),
        b'{' | b'[' => {
            let (mut at, mut depth) = (at + 1, 1_u32);
            while depth > 0 {
                at += text.get(at..)?.iter().position(|byte| IN_NESTED[usize::from(*byte)])?;
                match text[at] {
                    b'"' => {
                        at = behind_string(text, at + 1)?;
                        continue;
                    }
                    b'{' | b'[' => depth += 1,
                    b'\n' => return None,
                    _ => depth -= 1,
                }
                at += 1;
            }
            Some(at)
        }
        b',' | b'}' | b'\n' => None,
        _ => Some(at + scalar(text, at)?.len()),
    }
}

fn behind_string(text: &[u8], mut at: usize) -> Option<usize> {
    loop {
        let rest = text.get(at..)?;
        let special = memchr2(b'"', b'\\', rest)?;
        if memchr::memchr(b'\n', &rest[..special]).is_some() {
            return None;
        }
        at += special + 1;
        if rest[special] == b'"' {
            return Some(at);
        }
        // What is escaped; a raw newline ends the line there, too.
        if *text.get(at)? == b'\n' {
            return None;
        }
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Option<(String, Option<String>, bool, String)> {
        let owned = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let head = read(text.as_bytes())?;
        Some((owned(head.id), head.method.map(owned), head.outcome, text[head.used..].to_owned()))
    }

    #[test]
    fn what_sdks_write_is_read_at_once() {
        for (text, id, method, rest) in [
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"#,
                "1",
                Some("tools/call"),
                r#","params":{"#,
            ),
            (r#"{"jsonrpc": "2.0", "id": "a b", "result": {"x"#, r#""a b""#, None, r#"{"x"#),
            (
                r#"{"method":"m","params":{"a":["}",{"b":"\"{"}]},"jsonrpc":"2.0","id":-1}"#,
                "-1",
                Some("m"),
                "}",
            ),
            (r#"{"result":[1,2],"jsonrpc":"2.0","id":7}"#, "7", None, "}"),
        ] {
            let told = shown(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!((told.0.as_str(), told.1.as_deref(), told.3.as_str()), (id, method, rest), "{text}");
        }
    }

    #[test]
    fn what_is_not_plain_is_left_to_the_machine() {
        for text in [
            "{",
            "{}",
            r#"{"id":1}"#,
            r#"{"id":1"#,
            r#"{"id":null,"method":"m"}"#,
            r#"{"id":"a\"","method":"m"}"#,
            r#"{"\u0069d":1,"method":"m"}"#,
            r#"{"method":"m","params":{}}"#,
            r#"{"id":1,"id":2,"method":"m"}"#,
            r#"{"method":"m","method":"n","id":1}"#,
            "{\"id\":1,\n\"method\":\"m\"}",
            "{\"x\":\"\n\",\"id\":1,\"method\":\"m\"}",
            "{\"x\":\"\\\n\",\"id\":1,\"method\":\"m\"}",
            "{\"x\":[\n],\"id\":1,\"method\":\"m\"}",
            "{\t\"id\":1,\"method\":\"m\"}",
            r#"{"id":,"method":"m"}"#,
        ] {
            assert_eq!(shown(text), None, "{text}");
        }
    }
}
