//! The form of a call's result.
use serde_json::value::RawValue;

/// The most levels of nesting that a call's result may have. Many parsers give up at 128 levels, and the message around the result is
/// one more.
pub const DEEPEST: usize = 126;
/// How much of a result that can't be used is shown, in characters.
const SHOWN: usize = 200;

/// Why a call's result is not usable. What the server sent is shown, escaped and cut.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResultError {
    /// MCP's results are objects.
    #[error("its result is not an object: {0}")]
    NotAnObject(String),
    /// Hardly a client could read it.
    #[error("its result is nested deeper than {DEEPEST} levels: {0}")]
    TooDeep(String),
}

/// Checks the form of a call's result, and nothing of what it says: a result is passed on as it came.
///
/// # Errors
/// If it is not an object, or is nested deeper than [`DEEPEST`].
pub fn check_result(result: &RawValue) -> Result<(), ResultError> {
    let text = result.get().trim_ascii().as_bytes();
    let shown = || crate::text::printable(text, SHOWN);
    if !text.starts_with(b"{") {
        return Err(ResultError::NotAnObject(shown()));
    }
    if is_deeper(text, DEEPEST) { Err(ResultError::TooDeep(shown())) } else { Ok(()) }
}

/// Whether a JSON document is nested deeper than so many levels.
fn is_deeper(mut text: &[u8], levels: usize) -> bool {
    let mut depth = 0_usize;
    while let Some(at) = text.iter().position(|byte| matches!(byte, b'"' | b'{' | b'[' | b'}' | b']')) {
        let (byte, rest) = (text[at], &text[at + 1..]);
        text = match byte {
            b'"' => behind_string(rest),
            _ => rest,
        };
        match byte {
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > levels {
            return true;
        }
    }
    false
}

/// What comes after the end of a string whose beginning has been passed.
fn behind_string(mut text: &[u8]) -> &[u8] {
    while let Some(at) = memchr::memchr2(b'"', b'\\', text) {
        if text[at] == b'"' {
            return &text[at + 1..];
        }
        text = text.get(at + 2..).unwrap_or_default();
    }
    &[]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(json: &str) -> Result<(), ResultError> {
        check_result(&RawValue::from_string(json.to_owned()).unwrap())
    }

    #[test]
    fn a_result_is_an_object_and_what_it_says_is_not_looked_at() {
        for json in ["{}", r#"{"content":7,"isError":"yes"}"#, r#"{"a":"[[[\"{{","b":["}","\\\\"]}"#] {
            assert_eq!(check(json), Ok(()), "{json}");
        }
        for json in ["[1]", "null", "7", "\"{}\"", "true"] {
            assert_eq!(check(json), Err(ResultError::NotAnObject(json.to_owned())), "{json}");
        }
        let Err(ResultError::NotAnObject(shown)) =
            check(&format!("[\"\u{9b}\u{202e}{}\"]", "x".repeat(1000)))
        else {
            panic!("it is no object")
        };
        assert_eq!(shown, format!("[\"\\x9b\\u{{202e}}{}…", "x".repeat(SHOWN - 4)), "escaped and cut");
    }

    #[test]
    fn a_result_is_nested_so_deep_that_a_parser_reads_its_message() {
        let nested = |levels: usize| {
            let arrays = levels - 1;
            format!("{{\"]}}\\\"\":{}{}}}", "[".repeat(arrays), "]".repeat(arrays))
        };
        assert_eq!(check(&nested(DEEPEST)), Ok(()));
        let message = format!("{{\"result\":{}}}", nested(DEEPEST));
        assert!(serde_json::from_str::<serde_json::Value>(&message).is_ok());
        let Err(ResultError::TooDeep(shown)) = check(&nested(DEEPEST + 1)) else { panic!("it is too deep") };
        assert!(shown.starts_with("{\"]}\\\"\":[[["), "{shown}");
        let message = format!("{{\"result\":{}}}", nested(DEEPEST + 1));
        assert!(serde_json::from_str::<serde_json::Value>(&message).is_err());
        // Breadth is no depth, and a million levels cost no stack.
        assert_eq!(check(&format!("{{\"a\":[{}0]}}", "[],{},".repeat(100_000))), Ok(()));
        assert!(check(&nested(1_000_000)).is_err());
    }
}
