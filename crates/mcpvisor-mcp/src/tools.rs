//! Pages of `tools/list`, and the form of a call's result.
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::sync::Arc;

/// A tool as its server tells it.
#[derive(Debug, Clone)]
pub struct Tool {
    /// Its name.
    pub name: String,
    /// All of it, untouched.
    pub raw: Arc<RawValue>,
}

/// The most pages that are asked for.
pub const MAX_PAGES: usize = 1000;
/// The most tools that one server may have.
pub const MAX_TOOLS: usize = 10_000;
/// The most bytes that one server's tools may have.
pub const MAX_BYTES: usize = 64 << 20;

/// Why a list of tools is not usable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ToolsError {
    /// A page is not what the protocol says.
    #[error("the answer to tools/list is not valid: {0}")]
    Invalid(String),
    /// The server named a cursor again that it had named before.
    #[error("tools/list goes in circles: the server repeats the cursor {0}")]
    Circle(String),
    /// More than a person could use.
    #[error("tools/list exceeds {0}")]
    TooMany(&'static str),
}

/// Collects the pages of one listing, within bounds.
#[derive(Debug, Default)]
pub struct ToolPages {
    tools: Vec<Tool>,
    cursors: Vec<Box<str>>,
    bytes: usize,
    nameless: u64,
}

#[derive(Deserialize)]
struct Page<'a> {
    #[serde(borrow)]
    tools: Vec<&'a RawValue>,
    #[serde(borrow, rename = "nextCursor")]
    next_cursor: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct Named<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
}

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

impl ToolPages {
    /// Adds a page: the cursor of the next one, where there is one.
    ///
    /// # Errors
    /// If the page is not valid, repeats a cursor or exceeds a bound; the listing is then over.
    pub fn add(&mut self, result: &RawValue) -> Result<Option<String>, ToolsError> {
        let page: Page<'_> = serde_json::from_str(result.get()).map_err(|error| {
            ToolsError::Invalid(crate::text::printable(error.to_string().as_bytes(), 300))
        })?;
        for raw in page.tools {
            let Ok(Named { name }) = serde_json::from_str(raw.get()) else {
                self.nameless += 1;
                continue;
            };
            self.bytes += raw.get().len();
            if self.tools.len() == MAX_TOOLS {
                return Err(ToolsError::TooMany("10000 tools"));
            }
            if self.bytes > MAX_BYTES {
                return Err(ToolsError::TooMany("64 MiB"));
            }
            self.tools.push(Tool { name: name.into_owned(), raw: Arc::from(raw.to_owned()) });
        }
        // An empty cursor is a server's way of saying that there is no next page.
        let Some(cursor) = page.next_cursor.filter(|cursor| !cursor.is_empty()) else { return Ok(None) };
        if self.cursors.iter().any(|seen| **seen == *cursor) {
            return Err(ToolsError::Circle(crate::text::printable(cursor.as_bytes(), 100)));
        }
        if self.cursors.len() + 1 == MAX_PAGES {
            return Err(ToolsError::TooMany("1000 pages"));
        }
        self.cursors.push(cursor.as_ref().into());
        Ok(Some(cursor.into_owned()))
    }

    /// What was collected, in the server's order, and how many entries had no name and were left out.
    pub fn finish(self) -> (Vec<Tool>, u64) {
        (self.tools, self.nameless)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(pages: &mut ToolPages, json: &str) -> Result<Option<String>, ToolsError> {
        pages.add(&RawValue::from_string(json.to_owned()).unwrap())
    }

    #[test]
    fn pages_are_collected_and_tools_stay_whole() {
        let mut pages = ToolPages::default();
        let first = r#"{"tools":[{"name":"a\n","x":0.70},{"nameless":1},7],"nextCursor":"2"}"#;
        assert_eq!(add(&mut pages, first), Ok(Some("2".into())));
        assert_eq!(
            add(&mut pages, r#"{"tools":[ {"y":[],"name":"b"} ],"nextCursor":null,"ttlMs":0}"#),
            Ok(None)
        );
        let (tools, nameless) = pages.finish();
        let shown: Vec<_> = tools.iter().map(|tool| (tool.name.as_str(), tool.raw.get())).collect();
        assert_eq!(shown, [("a\n", r#"{"name":"a\n","x":0.70}"#), ("b", r#"{"y":[],"name":"b"}"#)]);
        assert_eq!(nameless, 2);
    }

    #[test]
    fn a_listing_is_bounded() {
        let mut pages = ToolPages::default();
        assert_eq!(add(&mut pages, r#"{"tools":[],"nextCursor":"a"}"#), Ok(Some("a".into())));
        assert_eq!(add(&mut pages, r#"{"tools":[],"nextCursor":"b"}"#), Ok(Some("b".into())));
        assert_eq!(add(&mut pages, r#"{"tools":[],"nextCursor":"a"}"#), Err(ToolsError::Circle("a".into())));

        let mut pages = ToolPages::default();
        let outcome =
            (0..).find_map(|n| add(&mut pages, &format!(r#"{{"tools":[],"nextCursor":"{n}"}}"#)).err());
        assert_eq!(outcome, Some(ToolsError::TooMany("1000 pages")));

        let many = format!(r#"{{"tools":[{}{{"name":"x"}}]}}"#, r#"{"name":"x"},"#.repeat(10_000));
        assert_eq!(add(&mut ToolPages::default(), &many), Err(ToolsError::TooMany("10000 tools")));
    }

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

    #[test]
    fn what_is_no_page_is_an_error() {
        for json in ["[]", "{}", r#"{"tools":{}}"#, r#"{"tools":[],"nextCursor":5}"#, "null"] {
            assert!(matches!(add(&mut ToolPages::default(), json), Err(ToolsError::Invalid(_))), "{json}");
        }
    }
}
