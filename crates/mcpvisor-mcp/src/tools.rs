//! Pages of `tools/list`.
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

    #[test]
    fn what_is_no_page_is_an_error() {
        for json in ["[]", "{}", r#"{"tools":{}}"#, r#"{"tools":[],"nextCursor":5}"#, "null"] {
            assert!(matches!(add(&mut ToolPages::default(), json), Err(ToolsError::Invalid(_))), "{json}");
        }
    }
}
