//! Where a request of the client goes.
use super::client::{INVALID_PARAMS, METHOD_NOT_FOUND, text};
use super::{Endpoint, Errand, Kind, LONGEST_LEVEL, LONGEST_URI, Listen, Wanted};
use crate::catalogue::Prefix;
use crate::listing::ListKind;
use crate::members::members;
use crate::peer::Forward;
use crate::splice::span_of;
use serde::Deserialize;
use serde_json::value::RawValue;

/// The parts of a request's parameters that matter to an intermediary.
#[derive(Default)]
pub(super) struct Params<'a> {
    name: Option<&'a RawValue>,
    uri: Option<&'a RawValue>,
    level: Option<&'a RawValue>,
    cursor: Option<&'a RawValue>,
    reference: Option<&'a RawValue>,
    meta: Option<&'a RawValue>,
}

impl<'a> Params<'a> {
    pub(super) fn read(params: &'a RawValue) -> Self {
        let [name, uri, level, cursor, reference, meta] =
            members(params, ["name", "uri", "level", "cursor", "ref", "_meta"]);
        Self { name, uri, level, cursor, reference, meta }
    }

    /// The token by which the progress of the request is told.
    pub(super) fn progress(&self) -> Option<&'a RawValue> {
        let [progress] = members(self.meta?, ["progressToken"]);
        progress
    }
}

#[derive(Deserialize)]
struct Reference<'a> {
    #[serde(borrow)]
    name: Option<&'a RawValue>,
    #[serde(borrow)]
    uri: Option<&'a RawValue>,
}

/// Where the call goes.
pub(super) enum Way<'a> {
    Ask(usize, Kind),
    Errand(Errand<'a>, Kind),
    Error(i64, String),
    NotRunning,
}

impl<P> Endpoint<P> {
    pub(super) fn way<'a>(&self, method: &str, params: &Params<'a>, forward: &Forward<'a>) -> Way<'a> {
        let uri = params.uri.and_then(text);
        let level = params.level.filter(|level| level.get().len() <= LONGEST_LEVEL);
        let kind = match method {
            "logging/setLevel" => level.map(|level| Kind::SetLevel(level.to_owned())),
            "resources/subscribe" => uri
                .as_ref()
                .filter(|uri| uri.len() <= LONGEST_URI)
                .map(|uri| Kind::Subscribe(uri.clone().into_owned())),
            "resources/unsubscribe" => uri
                .as_ref()
                .filter(|uri| uri.len() <= LONGEST_URI)
                .map(|uri| Kind::Unsubscribe(uri.clone().into_owned())),
            "subscriptions/listen" => Some(Kind::Listen(Listen::of(forward))),
            _ => None,
        };
        let kind = kind.unwrap_or(Kind::Plain);
        if self.passes_as_it_is(method) {
            return match self.usable().next() {
                Some(server) => Way::Ask(server, kind),
                None => Way::NotRunning,
            };
        }
        // Whose a subscription is was said when it was made.
        if let Kind::Unsubscribe(uri) = &kind
            && let Some(server) = self.subscriptions.get(uri)
            && self.usable().any(|usable| usable == *server)
        {
            return Way::Ask(*server, kind);
        }
        let find = |wanted: Wanted, at: Option<&RawValue>| {
            let span = at.and_then(|at| span_of(&forward.line, at.get()));
            Way::Errand(Errand::Find { wanted, at: span, forward: forward.clone() }, kind.clone())
        };
        let missing = |what: &str| Way::Error(INVALID_PARAMS, format!("{method} needs {what}"));
        if let Some(list) = ListKind::of_method(method) {
            return match params.cursor.map(|cursor| serde_json::from_str::<String>(cursor.get())) {
                None => Way::Errand(Errand::List(list, None), kind),
                Some(Ok(after)) => Way::Errand(Errand::List(list, Some(after)), kind),
                Some(Err(_)) => Way::Error(INVALID_PARAMS, "the cursor is no string".to_owned()),
            };
        }
        match method {
            "tools/call" | "prompts/get" => match params.name.and_then(text) {
                Some(name) => {
                    let name = name.into_owned();
                    let tool = method == "tools/call";
                    find(if tool { Wanted::Tool(name) } else { Wanted::Prompt(name) }, params.name)
                }
                None => missing("a name"),
            },
            "resources/read" | "resources/subscribe" | "resources/unsubscribe" => match uri {
                Some(uri) => find(Wanted::Uri(uri.into_owned()), None),
                None => missing("a uri"),
            },
            "completion/complete" => {
                let reference =
                    params.reference.and_then(|raw| serde_json::from_str::<Reference<'a>>(raw.get()).ok());
                let Some(reference) = reference else { return missing("a ref") };
                let name = reference.name.and_then(|raw| Some((raw, text(raw)?)));
                match (name, reference.uri.and_then(text)) {
                    (_, Some(uri)) => find(Wanted::Uri(uri.into_owned()), None),
                    (Some((raw, name)), None) => find(Wanted::Prompt(name.into_owned()), Some(raw)),
                    (None, None) => missing("a ref with a name or a uri"),
                }
            }
            "logging/setLevel" => match &kind {
                Kind::SetLevel(_) => Way::Errand(Errand::SetLevel(forward.clone()), kind),
                _ => missing("a level"),
            },
            "subscriptions/listen" => Way::Errand(Errand::Listen(forward.clone()), kind),
            _ => Way::Error(
                METHOD_NOT_FOUND,
                format!("with several servers behind one endpoint it can't be told whose {method} is"),
            ),
        }
    }

    /// In front of one server a request passes as it is, unless names are published with a prefix.
    fn passes_as_it_is(&self, method: &str) -> bool {
        let named = ["tools/list", "tools/call", "prompts/list", "prompts/get", "completion/complete"];
        self.alone() && (self.prefix != Prefix::Always || !named.contains(&method))
    }

    /// Whether something in the parameters decides what becomes of a request, besides its progress token.
    pub(super) fn looks_at(&self, method: &str) -> bool {
        let remembered = ["logging/setLevel", "resources/subscribe", "resources/unsubscribe"];
        !self.passes_as_it_is(method) || remembered.contains(&method)
    }
}
