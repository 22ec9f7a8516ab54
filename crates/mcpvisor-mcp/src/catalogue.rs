//! The names under which the tools and prompts of several servers are published, and whose a resource is.
//!
//! With [`Prefix::OnConflict`] a name that only one server has is published as it is, and one that several have once per server
//! as `SERVER__NAME`. A name that two could then claim is not published at all (G27).
use crate::listing::Item;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// What stands between a server's name and that of its tool or prompt.
pub const SEPARATOR: &str = "__";

/// How names are published.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum Prefix {
    /// With the server's name in front where several servers have the name.
    #[default]
    OnConflict,
    /// Always with the server's name in front.
    Always,
    /// As they are; of several servers that have one, the newest has it.
    Never,
}

/// One server's list, as the server tells it.
#[derive(Debug, Clone)]
pub struct ServerItems {
    /// The server's name.
    pub server: Arc<str>,
    /// What it has.
    pub items: Arc<[Item]>,
}

/// A published entry: whose it is, what the server calls it, and all that it says of it.
#[derive(Debug, Clone)]
pub struct Owned {
    /// The server's name.
    pub server: Arc<str>,
    /// The server's own entry.
    pub item: Item,
}

/// What a name means.
#[derive(Debug, Clone)]
pub enum Meaning {
    /// One server's entry.
    One(Owned),
    /// One of these could be meant.
    Ambiguous {
        /// The published names that say which; of some of them there may be none.
        names: Vec<String>,
        /// All of them.
        owners: Vec<Owned>,
    },
    /// Nothing.
    Unknown,
}

/// Every published name with its owner, and the names that several claim.
#[derive(Debug)]
pub struct Catalogue {
    published: BTreeMap<String, Vec<Owned>>,
    plain: BTreeMap<String, Vec<Owned>>,
}

impl Catalogue {
    /// Of tools or prompts; the servers in the order of their age, oldest first.
    #[must_use]
    pub fn new(servers: &[ServerItems], prefix: Prefix) -> Self {
        let all = || {
            servers.iter().flat_map(|of| {
                // A server that lists a name twice means one thing by it.
                let mut known = HashSet::new();
                let own = of.items.iter().filter(move |item| known.insert(item.name.as_str()));
                own.map(|item| Owned { server: Arc::clone(&of.server), item: item.clone() })
            })
        };
        let mut plain: BTreeMap<String, Vec<Owned>> = BTreeMap::new();
        for owned in all() {
            plain.entry(owned.item.name.clone()).or_default().push(owned);
        }
        let mut published: BTreeMap<String, Vec<Owned>> = BTreeMap::new();
        let is_shared = |name: &str| plain.get(name).is_some_and(|claims| claims.len() > 1);
        for owned in all() {
            match prefix {
                Prefix::Never => {
                    published.insert(owned.item.name.clone(), vec![owned]);
                    continue;
                }
                Prefix::OnConflict if !is_shared(&owned.item.name) => {
                    published.entry(owned.item.name.clone()).or_default().push(owned);
                }
                Prefix::OnConflict | Prefix::Always => {
                    published.entry(owned.prefixed()).or_default().push(owned);
                }
            }
        }
        if prefix == Prefix::OnConflict {
            // A server's other tool may have, with its prefix, the very same name: then nobody has it.
            for owned in all().filter(|owned| !is_shared(&owned.item.name)) {
                if let Some(owners) = published.get_mut(&owned.prefixed()) {
                    owners.push(owned);
                }
            }
        }
        Self { published, plain }
    }

    /// The entries that can be asked for by name, in order of name.
    pub fn entries(&self) -> impl Iterator<Item = (&str, &Owned)> {
        self.published.iter().filter_map(|(name, owners)| match &owners[..] {
            [owned] => Some((name.as_str(), owned)),
            _ => None,
        })
    }

    /// The same names of some servers only.
    #[must_use]
    pub fn only(&self, servers: impl Fn(&str) -> bool) -> Self {
        let of = |owners: &Vec<Owned>| owners.iter().all(|owned| servers(&owned.server));
        let published = self.published.iter().filter(|(_, owners)| of(owners));
        let published = published.map(|(name, owners)| (name.clone(), owners.clone())).collect();
        Self { published, plain: self.plain.clone() }
    }

    /// Whose a name is.
    #[must_use]
    pub fn find(&self, name: &str) -> Meaning {
        match self.published.get(name).map(Vec::as_slice) {
            Some([owned]) => Meaning::One(owned.clone()),
            Some(owners) => self.ambiguous(owners),
            None => match self.plain.get(name) {
                Some(claims) if claims.len() > 1 => self.ambiguous(claims),
                _ => Meaning::Unknown,
            },
        }
    }

    /// Only names that mean one thing are told.
    fn ambiguous(&self, owners: &[Owned]) -> Meaning {
        let works = |owned: &Owned| {
            self.entries().find(|(_, of)| of.server == owned.server && of.item.name == owned.item.name)
        };
        let names = owners.iter().filter_map(works).map(|(name, _)| name.to_owned()).collect();
        Meaning::Ambiguous { names, owners: owners.to_vec() }
    }
}

impl Owned {
    fn prefixed(&self) -> String {
        format!("{}{SEPARATOR}{}", self.server, self.item.name)
    }
}

/// Whose a resource is, as an index into `servers`: who lists it; else whose template fits it best, by the length of the template's
/// literal beginning. With `prefix` never, of several that list it the newest has it, else the oldest.
#[must_use]
pub fn owner_of_uri(
    uri: &str,
    resources: &[ServerItems],
    templates: &[ServerItems],
    prefix: Prefix,
) -> Option<Arc<str>> {
    let mut listing =
        resources.iter().filter(|of| of.items.iter().any(|item| item.name == uri)).map(|of| &of.server);
    let listed = if prefix == Prefix::Never { listing.next_back() } else { listing.next() };
    let fitting = || {
        let all = templates.iter().flat_map(|of| of.items.iter().map(move |item| (&of.server, &item.name)));
        let fits = all.filter_map(|(server, template)| Some((server, literal_fit(uri, template)?)));
        fits.max_by_key(|(_, fit)| *fit).map(|(server, _)| server)
    };
    listed.or_else(fitting).cloned()
}

/// The length of a template's literal beginning, if the URI begins with it and is longer.
fn literal_fit(uri: &str, template: &str) -> Option<usize> {
    let literal = template.split('{').next().unwrap_or_default();
    let begins = uri.starts_with(literal) && (uri.len() > literal.len() || template.len() == literal.len());
    begins.then_some(literal.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(name: &str, names: &[&str]) -> ServerItems {
        let item = |name: &&str| Item {
            name: (*name).to_owned(),
            raw: serde_json::value::to_raw_value(&serde_json::json!({ "name": name })).unwrap().into(),
        };
        ServerItems { server: name.into(), items: names.iter().map(item).collect() }
    }

    fn find(catalogue: &Catalogue, name: &str) -> String {
        match catalogue.find(name) {
            Meaning::One(owned) => format!("{} of {}", owned.item.name, owned.server),
            Meaning::Ambiguous { names, .. } => format!("one of {}", names.join(" ")),
            Meaning::Unknown => "nothing".to_owned(),
        }
    }

    fn names(catalogue: &Catalogue) -> Vec<&str> {
        catalogue.entries().map(|(name, _)| name).collect()
    }

    #[test]
    fn a_name_of_one_server_is_published_as_it_is() {
        let catalogue = Catalogue::new(&[server("a", &["x"]), server("b", &["y"])], Prefix::OnConflict);
        assert_eq!(find(&catalogue, "x"), "x of a");
        assert_eq!(find(&catalogue, "y"), "y of b");
        assert_eq!(find(&catalogue, "z"), "nothing");
    }

    #[test]
    fn a_name_of_two_servers_is_published_with_their_names() {
        let catalogue = Catalogue::new(&[server("a", &["x"]), server("b", &["x"])], Prefix::OnConflict);
        assert_eq!(find(&catalogue, "x"), "one of a__x b__x");
        assert_eq!(find(&catalogue, "a__x"), "x of a");
        assert_eq!(names(&catalogue), ["a__x", "b__x"]);
    }

    /// D.2: three servers in turn have the tool `t`: in whatever order they are removed, the newest that is left has it, and never one that
    /// was removed.
    #[test]
    fn g27_d2_the_newest_that_is_left_has_the_name() {
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let mut left = vec![0, 1, 2];
            for gone in order {
                let servers: Vec<_> = left.iter().map(|n| server(&format!("s{n}"), &["t"])).collect();
                let newest = left.last().expect("one is left");
                let catalogue = Catalogue::new(&servers, Prefix::Never);
                assert_eq!(find(&catalogue, "t"), format!("t of s{newest}"), "{order:?}");
                left.retain(|n| *n != gone);
            }
            assert_eq!(find(&Catalogue::new(&[], Prefix::Never), "t"), "nothing");
        }
    }

    #[test]
    fn g27_a_prefixed_name_that_two_could_claim_is_refused() {
        let three = [server("a", &["x", "b__x"]), server("b", &["x"]), server("a__b", &["x"])];
        let catalogue = Catalogue::new(&three, Prefix::OnConflict);
        // `x` of `a__b`, and `b__x` of `a`: both could be meant.
        assert!(find(&catalogue, "a__b__x").starts_with("one of"));
        assert!(find(&catalogue, "b__x").starts_with("one of"));
        assert_eq!(
            find(&catalogue, "x"),
            "one of a__x",
            "the names that are ambiguous themselves are not told"
        );
        assert_eq!(find(&catalogue, "a__x"), "x of a");
        let clash = [server("a", &["x"]), server("b", &["x"]), server("c", &["a__x"])];
        let clash = Catalogue::new(&clash, Prefix::OnConflict);
        assert!(find(&clash, "a__x").starts_with("one of"));
        assert!(!names(&clash).contains(&"a__x"));
        // With prefixes on all of them, too.
        let always = Catalogue::new(&[server("a", &["b__x"]), server("a__b", &["x"])], Prefix::Always);
        assert!(find(&always, "a__b__x").starts_with("one of"));
    }

    #[test]
    fn a_server_that_lists_a_name_twice_is_one_server() {
        for prefix in [Prefix::OnConflict, Prefix::Never] {
            let twice = Catalogue::new(&[server("a", &["x", "x"]), server("b", &["y"])], prefix);
            assert_eq!((names(&twice), find(&twice, "x").as_str()), (vec!["x", "y"], "x of a"));
        }
        let both = Catalogue::new(&[server("a", &["x", "x"]), server("b", &["x"])], Prefix::OnConflict);
        assert_eq!(names(&both), ["a__x", "b__x"]);
    }

    #[test]
    fn always_and_never() {
        let two = [server("a", &["x", "y"]), server("b", &["x"])];
        let always = Catalogue::new(&two, Prefix::Always);
        assert_eq!(names(&always), ["a__x", "a__y", "b__x"]);
        assert_eq!((find(&always, "y").as_str(), find(&always, "a__y").as_str()), ("nothing", "y of a"));
        let never = Catalogue::new(&two, Prefix::Never);
        assert_eq!(names(&never), ["x", "y"]);
        assert_eq!((find(&never, "x").as_str(), find(&never, "b__x").as_str()), ("x of b", "nothing"));
    }

    #[test]
    fn names_stay_a_servers_own_while_it_does_not_run() {
        let two = [server("a", &["x", "y"]), server("b", &["x", "z"])];
        let catalogue = Catalogue::new(&two, Prefix::OnConflict);
        let running = catalogue.only(|server| server == "b");
        assert_eq!(
            names(&running),
            ["b__x", "z"],
            "and not x, which would be another name than before and after"
        );
        assert_eq!((find(&catalogue, "y").as_str(), find(&running, "y").as_str()), ("y of a", "nothing"));
    }

    #[test]
    fn a_resource_is_whose_list_or_template_has_it() {
        let resources = [server("a", &["file:///x"]), server("b", &["file:///x", "file:///y"])];
        let templates = [server("a", &["file:///{path}"]), server("b", &["file:///deep/{path}", "db://all"])];
        let owner = |uri: &str, prefix| owner_of_uri(uri, &resources, &templates, prefix);
        assert_eq!(owner("file:///x", Prefix::OnConflict).as_deref(), Some("a"));
        assert_eq!(owner("file:///x", Prefix::Never).as_deref(), Some("b"));
        assert_eq!(owner("file:///y", Prefix::OnConflict).as_deref(), Some("b"));
        assert_eq!(owner("file:///z", Prefix::OnConflict).as_deref(), Some("a"));
        assert_eq!(owner("file:///deep/z", Prefix::OnConflict).as_deref(), Some("b"));
        assert_eq!(owner("db://all", Prefix::OnConflict).as_deref(), Some("b"));
        assert_eq!(owner("file:///", Prefix::OnConflict), None);
        assert_eq!(owner("http://z", Prefix::OnConflict), None);
    }
}
