//! Pages of `tools/list`, `prompts/list`, `resources/list` and `resources/templates/list`, collected within bounds.
use crate::text::printable;
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::sync::Arc;

/// What can be listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ListKind {
    /// Tools, by their names.
    Tools,
    /// Prompts, by their names.
    Prompts,
    /// Resources, by their URIs.
    Resources,
    /// Templates of resources, by their URI templates (RFC 6570).
    Templates,
}

impl ListKind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Tools, Self::Prompts, Self::Resources, Self::Templates];

    /// The request that lists them.
    #[must_use]
    pub const fn method(self) -> &'static str {
        match self {
            Self::Tools => "tools/list",
            Self::Prompts => "prompts/list",
            Self::Resources => "resources/list",
            Self::Templates => "resources/templates/list",
        }
    }

    /// The field of the result that has them.
    #[must_use]
    pub const fn field(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Prompts => "prompts",
            Self::Resources => "resources",
            Self::Templates => "resourceTemplates",
        }
    }

    /// The field of an entry that it is asked for by.
    #[must_use]
    pub const fn name_field(self) -> &'static str {
        match self {
            Self::Tools | Self::Prompts => "name",
            Self::Resources => "uri",
            Self::Templates => "uriTemplate",
        }
    }

    /// What is listed by a request.
    #[must_use]
    pub fn of_method(method: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.method() == method)
    }

    /// The list that a notification says has changed. Templates have none of their own.
    #[must_use]
    pub fn of_change(method: &str) -> Option<Self> {
        match method {
            "notifications/tools/list_changed" => Some(Self::Tools),
            "notifications/prompts/list_changed" => Some(Self::Prompts),
            "notifications/resources/list_changed" => Some(Self::Resources),
            _ => None,
        }
    }
}

/// A tool, a prompt, a resource or a template as its server tells it.
#[derive(Debug, Clone)]
pub struct Item {
    /// Its name, URI or URI template.
    pub name: String,
    /// All of it, untouched.
    pub raw: Arc<RawValue>,
}

/// The most pages that are asked for.
pub const MAX_PAGES: usize = 1000;
/// The most entries that one server's list may have.
pub const MAX_ITEMS: usize = 10_000;
/// The most bytes that one server's list may have.
pub const MAX_BYTES: usize = 64 << 20;

/// Why a list is not usable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ListError {
    /// A page is not what the protocol says.
    #[error("the answer to {0} is not valid: {1}")]
    Invalid(&'static str, String),
    /// The server named a cursor again that it had named before.
    #[error("{0} goes in circles: the server repeats the cursor {1}")]
    Circle(&'static str, String),
    /// More than a person could use.
    #[error("{0} exceeds {1}")]
    TooMany(&'static str, &'static str),
}

/// Collects the pages of one listing, within bounds.
#[derive(Debug)]
pub struct Pages {
    kind: ListKind,
    items: Vec<Item>,
    cursors: Vec<Box<str>>,
    bytes: usize,
    nameless: u64,
}

/// A page: the entries are looked for under each list's field, whatever else is there.
#[derive(Deserialize)]
struct Page<'a> {
    #[serde(borrow)]
    tools: Option<Vec<&'a RawValue>>,
    #[serde(borrow)]
    prompts: Option<Vec<&'a RawValue>>,
    #[serde(borrow)]
    resources: Option<Vec<&'a RawValue>>,
    #[serde(borrow, rename = "resourceTemplates")]
    templates: Option<Vec<&'a RawValue>>,
    #[serde(borrow, rename = "nextCursor")]
    next_cursor: Option<Cow<'a, str>>,
}

/// The fields that an entry may be asked for by; one that is no string counts as none.
#[derive(Deserialize)]
struct Named<'a> {
    #[serde(borrow, default, deserialize_with = "text")]
    name: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "text")]
    uri: Option<Cow<'a, str>>,
    #[serde(borrow, default, rename = "uriTemplate", deserialize_with = "text")]
    template: Option<Cow<'a, str>>,
}

fn text<'de: 'a, 'a, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Cow<'a, str>>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Any<'a> {
        Text(#[serde(borrow)] Cow<'a, str>),
        Other(IgnoredAny),
    }
    Ok(match Any::deserialize(deserializer)? {
        Any::Text(text) => Some(text),
        Any::Other(_) => None,
    })
}

impl Pages {
    /// Of a listing that begins.
    #[must_use]
    pub fn new(kind: ListKind) -> Self {
        Self { kind, items: Vec::new(), cursors: Vec::new(), bytes: 0, nameless: 0 }
    }

    /// Adds a page: the cursor of the next one, where there is one.
    ///
    /// # Errors
    /// If the page is not valid, repeats a cursor or exceeds a bound; the listing is then over.
    pub fn add(&mut self, result: &RawValue) -> Result<Option<String>, ListError> {
        let (kind, method) = (self.kind, self.kind.method());
        let invalid = |why: &str| ListError::Invalid(method, printable(why.as_bytes(), 300));
        let page: Page<'_> =
            serde_json::from_str(result.get()).map_err(|error| invalid(&error.to_string()))?;
        let entries = match kind {
            ListKind::Tools => page.tools,
            ListKind::Prompts => page.prompts,
            ListKind::Resources => page.resources,
            ListKind::Templates => page.templates,
        };
        let entries = entries.ok_or_else(|| invalid(&format!("missing field `{}`", kind.field())))?;
        for raw in entries {
            let named = serde_json::from_str::<Named<'_>>(raw.get()).ok().and_then(|named| match kind {
                ListKind::Tools | ListKind::Prompts => named.name,
                ListKind::Resources => named.uri,
                ListKind::Templates => named.template,
            });
            let Some(name) = named else {
                self.nameless += 1;
                continue;
            };
            self.bytes += raw.get().len();
            if self.items.len() == MAX_ITEMS {
                return Err(ListError::TooMany(method, "10000 entries"));
            }
            if self.bytes > MAX_BYTES {
                return Err(ListError::TooMany(method, "64 MiB"));
            }
            self.items.push(Item { name: name.into_owned(), raw: Arc::from(raw.to_owned()) });
        }
        // An empty cursor is a server's way of saying that there is no next page.
        let Some(cursor) = page.next_cursor.filter(|cursor| !cursor.is_empty()) else { return Ok(None) };
        if self.cursors.iter().any(|seen| **seen == *cursor) {
            return Err(ListError::Circle(method, printable(cursor.as_bytes(), 100)));
        }
        if self.cursors.len() + 1 == MAX_PAGES {
            return Err(ListError::TooMany(method, "1000 pages"));
        }
        self.cursors.push(cursor.as_ref().into());
        Ok(Some(cursor.into_owned()))
    }

    /// What was collected, in the server's order, and how many entries had no name and were left out.
    #[must_use]
    pub fn finish(self) -> (Vec<Item>, u64) {
        (self.items, self.nameless)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(pages: &mut Pages, json: &str) -> Result<Option<String>, ListError> {
        pages.add(&RawValue::from_string(json.to_owned()).unwrap())
    }

    #[test]
    fn pages_are_collected_and_entries_stay_whole() {
        let mut pages = Pages::new(ListKind::Tools);
        let first = r#"{"tools":[{"name":"a\n","x":0.70},{"nameless":1},7,{"name":8}],"nextCursor":"2"}"#;
        assert_eq!(add(&mut pages, first), Ok(Some("2".into())));
        assert_eq!(
            add(&mut pages, r#"{"tools":[ {"y":[],"name":"b"} ],"nextCursor":null,"ttlMs":0}"#),
            Ok(None)
        );
        let (tools, nameless) = pages.finish();
        let shown: Vec<_> = tools.iter().map(|tool| (tool.name.as_str(), tool.raw.get())).collect();
        assert_eq!(shown, [("a\n", r#"{"name":"a\n","x":0.70}"#), ("b", r#"{"y":[],"name":"b"}"#)]);
        assert_eq!(nameless, 3);
    }

    #[test]
    fn each_kind_has_its_field_and_its_name() {
        for kind in ListKind::ALL {
            let mut pages = Pages::new(kind);
            let page = format!(r#"{{"{}":[{{"{}":"x"}},{{"other":"y"}}]}}"#, kind.field(), kind.name_field());
            assert_eq!(add(&mut pages, &page), Ok(None));
            let (items, nameless) = pages.finish();
            assert_eq!((items[0].name.as_str(), items.len(), nameless), ("x", 1, 1), "{kind:?}");
            assert_eq!(ListKind::of_method(kind.method()), Some(kind));
        }
        // A resource has a name, too, and is not asked for by it.
        let mut pages = Pages::new(ListKind::Resources);
        assert_eq!(add(&mut pages, r#"{"resources":[{"name":"n","uri":"u:1"}]}"#), Ok(None));
        assert_eq!(pages.finish().0[0].name, "u:1");
    }

    #[test]
    fn a_listing_is_bounded() {
        let mut pages = Pages::new(ListKind::Tools);
        assert_eq!(add(&mut pages, r#"{"tools":[],"nextCursor":"a"}"#), Ok(Some("a".into())));
        assert_eq!(add(&mut pages, r#"{"tools":[],"nextCursor":"b"}"#), Ok(Some("b".into())));
        assert_eq!(
            add(&mut pages, r#"{"tools":[],"nextCursor":"a"}"#),
            Err(ListError::Circle("tools/list", "a".into()))
        );

        let mut pages = Pages::new(ListKind::Prompts);
        let outcome =
            (0..).find_map(|n| add(&mut pages, &format!(r#"{{"prompts":[],"nextCursor":"{n}"}}"#)).err());
        assert_eq!(outcome, Some(ListError::TooMany("prompts/list", "1000 pages")));

        let many = format!(r#"{{"tools":[{}{{"name":"x"}}]}}"#, r#"{"name":"x"},"#.repeat(10_000));
        assert_eq!(
            add(&mut Pages::new(ListKind::Tools), &many),
            Err(ListError::TooMany("tools/list", "10000 entries"))
        );
    }

    #[test]
    fn what_is_no_page_is_an_error() {
        for json in ["[]", "{}", r#"{"tools":{}}"#, r#"{"tools":[],"nextCursor":5}"#, "null"] {
            assert!(
                matches!(add(&mut Pages::new(ListKind::Tools), json), Err(ListError::Invalid(..))),
                "{json}"
            );
        }
    }
}
