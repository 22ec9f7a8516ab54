//! Lines that are another line with some parts replaced: what is not replaced keeps every byte (G42).
use std::ops::Range;

/// A part of a line, in bytes.
pub type Span = Range<usize>;

/// Where a part that was borrowed from a line lies in it. `None` of a part of something else.
#[must_use]
pub fn span_of(line: &[u8], part: &str) -> Option<Span> {
    let start = (part.as_ptr() as usize).checked_sub(line.as_ptr() as usize)?;
    let end = start.checked_add(part.len())?;
    (end <= line.len()).then_some(start..end)
}

/// A line with parts replaced, and LF at its end. The parts must not overlap; one that does is left as it was.
///
/// Line ends within the line, which JSON allows between tokens only, become spaces: some servers take a lone CR for an end.
#[must_use]
pub fn splice(line: &[u8], parts: &mut [(Span, &[u8])]) -> Vec<u8> {
    parts.sort_unstable_by_key(|(span, _)| span.start);
    let more: usize = parts.iter().map(|(_, with)| with.len()).sum();
    let mut spliced = Vec::with_capacity(line.len() + more + 1);
    let mut at = 0;
    for (span, with) in parts {
        let Some(before) = line.get(at..span.start) else { continue };
        spliced.extend_from_slice(before);
        spliced.extend_from_slice(with);
        at = span.end;
    }
    spliced.extend_from_slice(line.get(at..).unwrap_or_default());
    end_line(&mut spliced);
    spliced
}

/// Ends a line that is JSON with LF; line ends within it, which stand between tokens only since strings hold them escaped, become spaces.
pub(crate) fn end_line(line: &mut Vec<u8>) {
    if memchr::memchr2(b'\r', b'\n', line).is_some() {
        for byte in line.iter_mut() {
            if matches!(byte, b'\r' | b'\n') {
                *byte = b' ';
            }
        }
    }
    line.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_parts_change() {
        let line = br#"{"id": 1.0, "z":[ 0.70 ],"token":"a"}"#;
        let text = std::str::from_utf8(line).unwrap();
        let id = span_of(line, &text[7..10]).unwrap();
        let token = span_of(line, &text[33..36]).unwrap();
        assert_eq!((&line[id.clone()], &line[token.clone()]), (&b"1.0"[..], &b"\"a\""[..]));
        let spliced = splice(line, &mut [(token, b"7"), (id, b"\"mcpvisor-1\"")]);
        assert_eq!(spliced, b"{\"id\": \"mcpvisor-1\", \"z\":[ 0.70 ],\"token\":7}\n");
        assert_eq!(splice(line, &mut []), [&line[..], b"\n"].concat());
    }

    #[test]
    fn what_does_not_lie_in_the_line_has_no_span() {
        let line = String::from("abc");
        let other = String::from("abc");
        assert_eq!(span_of(line.as_bytes(), &other), None);
        assert_eq!(span_of(line.as_bytes(), &line[1..]), Some(1..3));
    }

    #[test]
    fn parts_that_overlap_are_not_both_replaced() {
        assert_eq!(splice(b"abcdef", &mut [(1..4, b"X"), (2..3, b"Y")]), b"aXef\n");
    }

    #[test]
    fn a_line_stays_one_line() {
        assert_eq!(splice(b"{\r\"a\":\r1}", &mut []), b"{ \"a\": 1}\n");
    }
}
