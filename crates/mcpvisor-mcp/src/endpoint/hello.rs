//! The client's handshake, and what of the servers it is told.
use super::client::{INVALID_REQUEST, METHOD_NOT_FOUND, text};
use super::{Endpoint, Face, plain_error, result_line};
use crate::handshake::{Negotiated, Offers};
use crate::text::printable;
use crate::version::{Era, LEGACY, MODERN};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// MCP: the protocol version is not supported; `data.supported` says which are.
const UNSUPPORTED_VERSION: i64 = -32022;
/// The most of a server's instructions that are passed on with those of others, in bytes.
const INSTRUCTIONS: usize = 16 << 10;

#[derive(Deserialize)]
struct Hello<'a> {
    #[serde(borrow, rename = "protocolVersion")]
    version: Option<&'a RawValue>,
    #[serde(default)]
    capabilities: Has,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Has {
    roots: Option<IgnoredAny>,
    sampling: Option<Part>,
    elicitation: Option<Part>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Part {
    tools: Option<IgnoredAny>,
    form: Option<IgnoredAny>,
    url: Option<IgnoredAny>,
}

impl<P> Endpoint<P> {
    /// The answer to `initialize`: whatever revision was asked for, the one that the servers speak.
    pub(super) fn initialize(&mut self, raw_id: &RawValue, params: Option<&RawValue>) -> Vec<u8> {
        if self.client.protocol.is_some() {
            return plain_error(raw_id, INVALID_REQUEST, "the conversation is initialized already", None);
        }
        let said = params.map(|params| serde_json::from_str::<Hello<'_>>(params.get())).transpose();
        let Ok(Some(Hello { version, capabilities })) = said else {
            return plain_error(
                raw_id,
                super::client::INVALID_PARAMS,
                "not the parameters of initialize",
                None,
            );
        };
        let asked =
            version.and_then(text).map_or_else(String::new, |version| printable(version.as_bytes(), 40));
        let legacy = self.of(Era::Legacy);
        let Some(protocol) = legacy.iter().map(|known| &known.protocol).min().cloned() else {
            let (message, data) = self.mismatch(&format!("revision {asked} with initialize"), &asked);
            return plain_error(raw_id, UNSUPPORTED_VERSION, &message, Some(data));
        };
        let result = match &legacy[..] {
            [only] if self.alone() => only.raw.get().to_owned(),
            _ => merged(&self.faces, Era::Legacy, |offers, instructions| {
                let mut result = json!({
                    "protocolVersion": *protocol,
                    "capabilities": capabilities_of(offers, Era::Legacy),
                    "serverInfo": { "name": "mcpvisor", "version": env!("CARGO_PKG_VERSION") },
                });
                if let Some(instructions) = instructions {
                    result["instructions"] = instructions.into();
                }
                result
            }),
        };
        let Has { roots, sampling, elicitation } = capabilities;
        self.client.roots = roots.is_some();
        self.client.sampling_tools = sampling.as_ref().is_some_and(|sampling| sampling.tools.is_some());
        self.client.sampling = sampling.is_some();
        if let Some(Part { form, url, .. }) = elicitation {
            // Before there were modes, elicitation was by form.
            self.client.elicitation_form = form.is_some() || url.is_none();
            self.client.elicitation_url = url.is_some();
        }
        self.client.declared = legacy.iter().fold(Offers::default(), |all, known| all.or(known.offers));
        self.client.era = Some(Era::Legacy);
        self.client.protocol = Some(protocol);
        result_line(raw_id, &result)
    }

    /// The answer to `server/discover` in front of several servers.
    pub(super) fn discover(&mut self, raw_id: &RawValue) -> Vec<u8> {
        let modern = self.of(Era::Modern);
        let versions: Vec<&str> = MODERN
            .iter()
            .copied()
            .filter(|version| modern.iter().any(|known| *known.protocol == **version))
            .collect();
        let result = merged(&self.faces, Era::Modern, |offers, instructions| {
            let info = json!({ "name": "mcpvisor", "version": env!("CARGO_PKG_VERSION") });
            let mut result = json!({
                "resultType": "complete",
                "supportedVersions": versions,
                "capabilities": capabilities_of(offers, Era::Modern),
                "ttlMs": 0,
                "cacheScope": "private",
                "_meta": { "io.modelcontextprotocol/serverInfo": info },
            });
            if let Some(instructions) = instructions {
                result["instructions"] = instructions.into();
            }
            result
        });
        result_line(raw_id, &result)
    }

    /// The answer to a modern request where no server speaks so. A client that knows both eras begins anew with `initialize` on it.
    pub(super) fn not_modern(&self, raw_id: &RawValue, method: &str) -> Vec<u8> {
        let revision = MODERN[MODERN.len() - 1];
        let (message, data) = self.mismatch(&format!("revision {revision} with {method}"), revision);
        // What a server that does not know the method says, too.
        let code = if method == "server/discover" { METHOD_NOT_FOUND } else { UNSUPPORTED_VERSION };
        plain_error(raw_id, code, &message, Some(data))
    }

    /// Whether a server is there that is spoken to so.
    pub(super) fn has(&self, era: Era) -> bool {
        !self.of(era).is_empty()
    }

    fn of(&self, era: Era) -> Vec<Negotiated> {
        of(&self.faces, era).map(|(_, known)| known.clone()).collect()
    }

    /// That client and servers have no revision in common, with both named.
    fn mismatch(&self, asked: &str, requested: &str) -> (String, Value) {
        let mut supported: Vec<Arc<str>> = self
            .faces
            .iter()
            .filter_map(|face| Some(Arc::clone(&face.negotiated.as_ref()?.protocol)))
            .collect();
        supported.sort();
        supported.dedup();
        let (speak, help) = if supported.is_empty() {
            ("no server runs now".to_owned(), "")
        } else {
            let legacy = LEGACY.contains(&&*supported[0]);
            let help = if legacy { "; begin with initialize" } else { "; begin with server/discover" };
            (format!("the session speaks {}", supported.join(", ")), help)
        };
        let message = format!("the client asks for {asked}, and {speak}{help}");
        let supported: Vec<&str> = supported.iter().map(|version| &**version).collect();
        (message, json!({ "supported": supported, "requested": requested }))
    }
}

fn of(faces: &[Face], era: Era) -> impl Iterator<Item = (&Face, &Negotiated)> {
    faces.iter().filter_map(move |face| {
        let known = face.negotiated.as_ref().filter(|known| known.era == era)?;
        Some((face, known))
    })
}

/// The servers of an era as one: what any of them offers, and the instructions of each under its name.
fn merged(faces: &[Face], era: Era, make: impl FnOnce(Offers, Option<String>) -> Value) -> String {
    #[derive(Deserialize)]
    struct Instructed {
        instructions: Option<String>,
    }
    let mut offers = Offers::default();
    let mut instructions = Vec::new();
    for (face, known) in of(faces, era) {
        offers = offers.or(known.offers);
        let said =
            serde_json::from_str::<Instructed>(known.raw.get()).ok().and_then(|said| said.instructions);
        if let Some(said) = said.filter(|said| !said.trim().is_empty()) {
            let mut end = said.len().min(INSTRUCTIONS);
            while !said.is_char_boundary(end) {
                end -= 1;
            }
            instructions.push(format!("# {}\n\n{}", face.name, &said[..end]));
        }
    }
    let instructions = (!instructions.is_empty()).then(|| instructions.join("\n\n"));
    make(offers, instructions).to_string()
}

fn capabilities_of(offers: Offers, era: Era) -> Map<String, Value> {
    let listed = json!({ "listChanged": true });
    let mut all = Map::new();
    if offers.tools {
        all.insert("tools".into(), listed.clone());
    }
    if offers.prompts {
        all.insert("prompts".into(), listed);
    }
    if offers.resources {
        all.insert("resources".into(), json!({ "listChanged": true, "subscribe": offers.subscribe }));
    }
    if offers.logging && era == Era::Legacy {
        all.insert("logging".into(), json!({}));
    }
    if offers.completions {
        all.insert("completions".into(), json!({}));
    }
    all
}

impl Offers {
    pub(super) fn or(self, other: Self) -> Self {
        Self {
            tools: self.tools || other.tools,
            prompts: self.prompts || other.prompts,
            resources: self.resources || other.resources,
            subscribe: self.subscribe || other.subscribe,
            logging: self.logging || other.logging,
            completions: self.completions || other.completions,
        }
    }
}
