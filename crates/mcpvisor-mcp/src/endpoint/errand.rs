//! What one request asks of several servers.
use super::client::INVALID_PARAMS;
use super::{CallKey, Ended, Endpoint, Kind, error_line, result_line};
use crate::catalogue::Catalogue;
use crate::listing::{Item, ListKind};
use crate::peer::Forward;
use crate::splice::{Span, span_of, splice};
use crate::version::Era;
use serde::Deserialize;
use serde_json::value::RawValue;

/// The most entries of one page of ours.
const PAGE_ENTRIES: usize = 1000;
/// The most bytes of one page of ours; an entry that is alone may be longer.
const PAGE_BYTES: usize = 1 << 20;

/// Something that needs several servers.
#[derive(Debug, Clone)]
pub enum Errand<'a> {
    /// The entries of all servers, after this name; see [`merged_page`].
    List(ListKind, Option<String>),
    /// The request goes to whose this is, under its own name there: what stands at `at` is replaced by it.
    Find {
        /// What is looked for.
        wanted: Wanted,
        /// Where the published name stands in the line; none of URIs.
        at: Option<Span>,
        /// What to pass on.
        forward: Forward<'a>,
    },
    /// The level of the log, for each server that has one.
    SetLevel(Forward<'a>),
    /// One stream of notifications, from each server.
    Listen(Forward<'a>),
}

/// What is looked for among several servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    /// A tool, by its published name.
    Tool(String),
    /// A prompt, by its published name.
    Prompt(String),
    /// A resource.
    Uri(String),
}

impl Errand<'_> {
    /// The same with a line of its own.
    #[must_use]
    pub fn into_owned(self) -> Errand<'static> {
        match self {
            Self::List(kind, after) => Errand::List(kind, after),
            Self::Find { wanted, at, forward } => Errand::Find { wanted, at, forward: forward.into_owned() },
            Self::SetLevel(forward) => Errand::SetLevel(forward.into_owned()),
            Self::Listen(forward) => Errand::Listen(forward.into_owned()),
        }
    }
}

impl<P> Endpoint<P> {
    /// An errand has its result, which is an object's JSON. `None` where the call was cancelled.
    pub fn errand_done(&mut self, call: CallKey, result: &str) -> Option<Ended<P>> {
        if let Some(Kind::SetLevel(level)) = self.calls.get(&call).map(|known| &known.kind) {
            self.log_level = Some(level.clone());
        }
        self.answer_with(call, |id| result_line(id, result))
    }

    /// An errand ends with a server's error object. `None` where the call was cancelled.
    pub fn errand_failed(&mut self, call: CallKey, error: &RawValue) -> Option<Ended<P>> {
        self.answer_with(call, |id| error_line(id, error.get()))
    }

    /// Nothing has the name that was asked for; or several might, and these names say which. `None` where the call was cancelled.
    pub fn not_found(
        &mut self,
        call: CallKey,
        wanted: &Wanted,
        ambiguous: Option<&[String]>,
    ) -> Option<Ended<P>> {
        let message = match (wanted, ambiguous) {
            (Wanted::Tool(name), None) => format!("Unknown tool: {name}"),
            (Wanted::Prompt(name), None) => format!("Unknown prompt: {name}"),
            (Wanted::Uri(uri), _) => format!("Resource not found: {uri}"),
            (Wanted::Tool(name) | Wanted::Prompt(name), Some([])) => {
                format!("several servers have {name}, and no other name says which is meant")
            }
            (Wanted::Tool(name) | Wanted::Prompt(name), Some(names)) => {
                format!("several servers have {name}: say which by {}", names.join(" or "))
            }
        };
        let code = match (wanted, self.client.era) {
            // The legacy revisions' code for a resource that is not there.
            (Wanted::Uri(_), Some(Era::Legacy)) => -32002,
            _ => INVALID_PARAMS,
        };
        self.invalid(call, code, &message)
    }

    /// The call goes to so many servers, and ends when the last of them has answered.
    pub fn listens_to(&mut self, call: CallKey, servers: usize) {
        if let Some(known) = self.calls.get_mut(&call) {
            known.listening = servers;
        }
    }

    /// The client's era is the modern one.
    #[must_use]
    pub fn is_modern(&self) -> bool {
        self.client.era == Some(Era::Modern)
    }
}

/// One page of what several servers have, in order of name, from the first name behind `after`; its cursor is its last name, so that
/// a list that changes between two pages loses nothing that stays. The result's JSON.
///
/// Tools and prompts come under their published names; of resources and templates that several have, the first server's.
#[must_use]
pub fn merged_page(kind: ListKind, catalogue: &Catalogue, after: Option<&str>, modern: bool) -> String {
    let mut page = String::from("{\"");
    page.push_str(kind.field());
    page.push_str("\":[");
    let (mut count, mut bytes, mut last, mut more) = (0, 0, None, false);
    for (name, owned) in catalogue.entries().filter(|(name, _)| after.is_none_or(|after| *name > after)) {
        let entry = renamed(kind, &owned.item, name);
        if count == PAGE_ENTRIES || (count > 0 && bytes + entry.len() > PAGE_BYTES) {
            more = true;
            break;
        }
        if count > 0 {
            page.push(',');
        }
        page.push_str(&entry);
        (count, bytes, last) = (count + 1, bytes + entry.len(), Some(name));
    }
    page.push(']');
    if let Some(last) = last.filter(|_| more) {
        page.push_str(",\"nextCursor\":");
        page.push_str(&serde_json::Value::from(last).to_string());
    }
    if modern {
        page.push_str(",\"resultType\":\"complete\",\"ttlMs\":0,\"cacheScope\":\"private\"");
    }
    page.push('}');
    page
}

/// An entry under its published name, every other byte as it was.
fn renamed(kind: ListKind, item: &Item, name: &str) -> String {
    #[derive(Deserialize)]
    struct Named<'a> {
        #[serde(borrow)]
        name: &'a RawValue,
    }
    let raw = item.raw.get();
    if name == item.name || !matches!(kind, ListKind::Tools | ListKind::Prompts) {
        return raw.to_owned();
    }
    let quoted = serde_json::Value::from(name).to_string();
    let spliced = serde_json::from_str::<Named<'_>>(raw).ok().and_then(|named| {
        let span = span_of(raw.as_bytes(), named.name.get())?;
        let mut line = splice(raw.as_bytes(), &mut [(span, quoted.as_bytes())]);
        line.pop();
        String::from_utf8(line).ok()
    });
    spliced.unwrap_or_else(|| raw.to_owned())
}
