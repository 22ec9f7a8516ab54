//! Showing untrusted bytes to a person (G43): nothing that a server wrote moves a terminal's cursor or forges a log line.
use std::fmt::Write as _;

/// The text of `bytes`, with what is not UTF-8 replaced, and control and direction characters escaped (`\x1b`, `\n`, `\u{202e}`).
/// At most `max_chars` characters of `bytes` are shown; `…` says that there was more.
pub fn printable(bytes: &[u8], max_chars: usize) -> String {
    // A character takes at most four bytes, so that a huge line costs no more than what is shown of it.
    let window = &bytes[..bytes.len().min(max_chars.saturating_mul(4))];
    let text = String::from_utf8_lossy(window);
    let mut shown = String::with_capacity(text.len().min(max_chars) + 8);
    let mut rest = text.chars();
    for character in rest.by_ref().take(max_chars) {
        push_escaped(&mut shown, character);
    }
    if window.len() < bytes.len() || rest.next().is_some() {
        shown.push('…');
    }
    shown
}

/// Appends one character, escaped where it could do harm.
pub fn push_escaped(shown: &mut String, character: char) {
    match character {
        '\n' => shown.push_str("\\n"),
        '\r' => shown.push_str("\\r"),
        '\t' => shown.push_str("\\t"),
        '\0'..='\x1f' | '\x7f'..='\u{9f}' => {
            let _ = write!(shown, "\\x{:02x}", u32::from(character));
        }
        '\u{61c}'
        | '\u{200e}'
        | '\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2066}'..='\u{2069}'
        | '\u{feff}' => {
            let _ = write!(shown, "\\u{{{:x}}}", u32::from(character));
        }
        _ => shown.push(character),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_and_direction_characters_are_escaped() {
        assert_eq!(printable(b"a\x1b[31mb\x07\n\t\r\x7f", 99), r"a\x1b[31mb\x07\n\t\r\x7f");
        assert_eq!(printable("é\u{9b}\u{202e}€\u{2028}".as_bytes(), 99), r"é\x9b\u{202e}€\u{2028}");
        assert_eq!(printable(b"\xff\xfe x", 99), "\u{fffd}\u{fffd} x");
    }

    #[test]
    fn the_length_is_bounded() {
        assert_eq!(printable(b"abcdef", 3), "abc…");
        assert_eq!(printable(b"abc", 3), "abc");
        assert_eq!(printable("€€€€".as_bytes(), 3), "€€€…");
        assert_eq!(printable(&vec![b'x'; 1 << 24], 2), "xx…");
    }
}
