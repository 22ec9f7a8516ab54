//! Text of others (servers, clients, files) made fit for a log or a terminal (G43).
use std::fmt::Write as _;

/// The text on one line: control characters, C1 and bidirectional ones too, are written as `\xNN` or `\u{N}`.
/// A backslash stays as it is: this is for people to read, not to be undone.
pub(crate) fn line(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        push(&mut out, c);
    }
    out
}

/// Text of several lines: newlines stay.
pub(crate) fn block(text: &str) -> String {
    text.split('\n').map(line).collect::<Vec<_>>().join("\n")
}

/// One character.
pub(crate) fn push(out: &mut String, c: char) {
    // Writing to a string can't fail.
    match c {
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        c if (c as u32) < 0x100 && c.is_control() => {
            let _ = write!(out, "\\x{:02x}", c as u32);
        }
        c if is_unsafe(c) => {
            let _ = write!(out, "\\u{{{:x}}}", c as u32);
        }
        c => out.push(c),
    }
}

/// Characters that change how a terminal shows what is around them.
pub(crate) fn is_unsafe(c: char) -> bool {
    c.is_control() || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escape_sequences_lose_their_power() {
        assert_eq!(line("a\x1b[31mred\x07\u{9b}2J\r\n"), "a\\x1b[31mred\\x07\\x9b2J\\r\\n");
        assert_eq!(line("abc\u{202e}cba"), "abc\\u{202e}cba");
        assert_eq!(line("größe C:\\x ✓"), "größe C:\\x ✓");
    }
}
