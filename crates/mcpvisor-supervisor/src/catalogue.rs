//! The names under which a session's tools are published.
//!
//! A name that only one server has is published as it is. One that several have is published once per server as
//! `SERVER__TOOL`, and one that two could then claim is not published at all (G27).
use crate::api::ToolView;
use mcpvisor_lifecycle::ServerName;
use mcpvisor_mcp::Tool;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What stands between a server's name and a tool's.
const SEPARATOR: &str = "__";

/// One server's tools, as the server tells them.
pub(crate) struct ServerTools {
    pub(crate) server: ServerName,
    pub(crate) tools: Arc<[Tool]>,
}

/// A published tool: whose it is, and what the server calls it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) server: ServerName,
    pub(crate) tool: String,
}

/// What a name means in a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Meaning {
    One(Owner),
    /// Several servers could be meant: these names say which.
    Ambiguous(Vec<String>),
    Unknown,
}

/// Every published name with its owner, and the names that several claim.
pub(crate) struct Catalogue {
    published: BTreeMap<String, Vec<(Owner, Arc<serde_json::value::RawValue>)>>,
    plain: BTreeMap<String, Vec<String>>,
}

impl Catalogue {
    pub(crate) fn new(servers: &[ServerTools]) -> Self {
        let mut plain: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for of in servers {
            for tool in &*of.tools {
                plain.entry(tool.name.clone()).or_default().push(prefixed(&of.server, &tool.name));
            }
        }
        let mut published: BTreeMap<String, Vec<_>> = BTreeMap::new();
        for of in servers {
            for tool in &*of.tools {
                let shared = plain.get(&tool.name).is_some_and(|claims| claims.len() > 1);
                let name = if shared { prefixed(&of.server, &tool.name) } else { tool.name.clone() };
                let owner = Owner { server: of.server.clone(), tool: tool.name.clone() };
                published.entry(name).or_default().push((owner, Arc::clone(&tool.raw)));
            }
        }
        // A server's other tool may have, with its prefix, the very same name: then nobody has it.
        for of in servers {
            for tool in &*of.tools {
                let alone = plain.get(&tool.name).is_none_or(|claims| claims.len() < 2);
                if let Some(owners) = published.get_mut(&prefixed(&of.server, &tool.name)).filter(|_| alone) {
                    let owner = Owner { server: of.server.clone(), tool: tool.name.clone() };
                    owners.push((owner, Arc::clone(&tool.raw)));
                }
            }
        }
        Self { published, plain }
    }

    /// The tools that can be called by name, in order of name.
    pub(crate) fn tools(&self) -> Vec<ToolView> {
        let one = self.published.iter().filter_map(|(name, owners)| match &owners[..] {
            [(owner, raw)] => {
                Some(ToolView { name: name.clone(), server: owner.server.clone(), raw: Arc::clone(raw) })
            }
            _ => None,
        });
        one.collect()
    }

    pub(crate) fn find(&self, name: &str) -> Meaning {
        match self.published.get(name).map(Vec::as_slice) {
            Some([(owner, _)]) => Meaning::One(owner.clone()),
            Some(owners) => Meaning::Ambiguous(
                owners.iter().map(|(owner, _)| prefixed(&owner.server, &owner.tool)).collect(),
            ),
            None => {
                self.plain.get(name).map_or(Meaning::Unknown, |claims| Meaning::Ambiguous(claims.clone()))
            }
        }
    }
}

fn prefixed(server: &ServerName, tool: &str) -> String {
    format!("{server}{SEPARATOR}{tool}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(name: &str, tools: &[&str]) -> ServerTools {
        let tool = |name: &&str| Tool {
            name: (*name).to_owned(),
            raw: serde_json::value::to_raw_value(&serde_json::json!({ "name": name })).unwrap().into(),
        };
        ServerTools { server: ServerName::new(name).unwrap(), tools: tools.iter().map(tool).collect() }
    }

    fn owner(server: &str, tool: &str) -> Meaning {
        Meaning::One(Owner { server: ServerName::new(server).unwrap(), tool: tool.to_owned() })
    }

    #[test]
    fn a_name_of_one_server_is_published_as_it_is() {
        let catalogue = Catalogue::new(&[server("a", &["x"]), server("b", &["y"])]);
        assert_eq!(catalogue.find("x"), owner("a", "x"));
        assert_eq!(catalogue.find("y"), owner("b", "y"));
        assert_eq!(catalogue.find("z"), Meaning::Unknown);
    }

    #[test]
    fn a_name_of_two_servers_is_published_with_their_names() {
        let catalogue = Catalogue::new(&[server("a", &["x"]), server("b", &["x"])]);
        assert_eq!(catalogue.find("x"), Meaning::Ambiguous(vec!["a__x".into(), "b__x".into()]));
        assert_eq!(catalogue.find("a__x"), owner("a", "x"));
        let names: Vec<_> = catalogue.tools().into_iter().map(|tool| tool.name).collect();
        assert_eq!(names, ["a__x", "b__x"]);
    }

    #[test]
    fn g27_a_prefixed_name_that_two_could_claim_is_refused() {
        let catalogue =
            Catalogue::new(&[server("a", &["x", "b__x"]), server("b", &["x"]), server("a__b", &["x"])]);
        // `x` of `a__b`, and `b__x` of `a`: both could be meant.
        assert!(matches!(catalogue.find("a__b__x"), Meaning::Ambiguous(_)));
        assert!(matches!(catalogue.find("b__x"), Meaning::Ambiguous(_)));
        assert_eq!(catalogue.find("a__x"), owner("a", "x"));
        let clash = Catalogue::new(&[server("a", &["x"]), server("b", &["x"]), server("c", &["a__x"])]);
        assert!(matches!(clash.find("a__x"), Meaning::Ambiguous(_)));
        assert!(clash.tools().iter().all(|tool| tool.name != "a__x"));
    }
}
