//! Text that can't act on a terminal.
use std::borrow::Cow;
use std::fmt::Write;

/// A character that a terminal may obey, or that makes text look other than it is (the marks of bidirectional text).
fn acts(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn escape_but<'a>(text: &'a str, kept: &[char]) -> Cow<'a, str> {
    let bad = |character: char| acts(character) && !kept.contains(&character);
    if !text.chars().any(bad) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        let number = u32::from(character);
        match (bad(character), number) {
            (false, _) => escaped.push(character),
            (true, 0..=0xff) => write!(escaped, "\\x{number:02x}").expect("a String takes everything"),
            (true, _) => write!(escaped, "\\u{{{number:x}}}").expect("a String takes everything"),
        }
    }
    Cow::Owned(escaped)
}

/// One line of text: control characters are written as `\xNN`, newlines too.
pub(crate) fn line(text: &str) -> Cow<'_, str> {
    escape_but(text, &[])
}

/// Text of several lines: newlines and tabs stay.
pub(crate) fn block(text: &str) -> Cow<'_, str> {
    escape_but(text, &['\n', '\t'])
}

/// A JSON document, which has such characters only within strings: they are written as `\uNNNN`, which means the same.
pub(crate) fn json(text: &str) -> Cow<'_, str> {
    if !text.chars().any(acts) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        match character {
            // Between tokens these are only space.
            '\n' | '\r' | '\t' => escaped.push(' '),
            _ if acts(character) => {
                write!(escaped, "\\u{:04x}", u32::from(character)).expect("a String takes everything");
            }
            _ => escaped.push(character),
        }
    }
    Cow::Owned(escaped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_obeys_is_written_out() {
        assert_eq!(line("plain ü 漢"), "plain ü 漢");
        assert_eq!(line("\u{1b}[31m\r\n\u{7f}\u{9b}\0\t"), r"\x1b[31m\x0d\x0a\x7f\x9b\x00\x09");
        assert_eq!(line("a\u{202e}b"), r"a\u{202e}b");
        assert_eq!(block("a\tb\nc\u{7}"), "a\tb\nc\\x07");
    }

    #[test]
    fn json_keeps_its_meaning_on_one_line() {
        let text = "{\"a\" :\n\t\"\u{9b}31m\u{202e}\"}";
        let escaped = json(text);
        assert_eq!(escaped, "{\"a\" :  \"\\u009b31m\\u202e\"}");
        let read = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        assert_eq!(read(&escaped), read(text));
    }
}
