//! What one request of a client asks of several servers.
use super::super::shared::lock;
use super::super::{CallError, Connection};
use super::{Attached, because, touch};
use mcpvisor_mcp::catalogue::{Catalogue, Meaning, Prefix, ServerItems, owner_of_uri};
use mcpvisor_mcp::endpoint::{CallKey, Errand, Wanted, merged_page};
use mcpvisor_mcp::peer::Forward;
use mcpvisor_mcp::relay::Because;
use mcpvisor_mcp::splice::Span;
use mcpvisor_mcp::{Item, ListKind, outgoing};
use serde_json::{Map, Value};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinSet;

/// How long one of several servers may take to list what it has, or to take a level of the log, before it is left out.
const LISTING: Duration = Duration::from_secs(10);

/// The catalogues of the lists as they were when they were made.
#[derive(Default)]
pub(super) struct Catalogues([Mutex<Option<Kept>>; ListKind::ALL.len()]);

/// A catalogue and what it was made of.
struct Kept {
    of: Lists,
    catalogue: Arc<Catalogue>,
}

/// Each server's list of one kind, by the endpoint's numbers.
type Lists = Vec<(usize, Arc<[Item]>)>;

impl Attached {
    /// Begins an errand; what can be done without asking is done at once.
    pub(super) fn errand(self: &Arc<Self>, call: CallKey, errand: Errand<'_>, touched: &mut Vec<Connection>) {
        if let Errand::Find { wanted, at, forward } = &errand
            && let Some(found) = self.known(wanted)
        {
            if let Some((face, forward)) = self.found(call, wanted, found, at.clone(), forward) {
                self.pass_on(call, face, forward, touched);
            }
            return;
        }
        if let Errand::Listen(forward) = &errand {
            self.listen(call, forward, touched);
            return;
        }
        let (client, errand) = (Arc::clone(self), errand.into_owned());
        // Held until the task is known, so that it can't end before it is.
        let mut errands = lock(&self.errands);
        let task = tokio::spawn(async move {
            match errand {
                Errand::List(kind, after) => client.list(call, kind, after.as_deref()).await,
                Errand::Find { wanted, at, forward } => match client.find(&wanted).await {
                    Ok(found) => {
                        if let Some((face, forward)) = client.found(call, &wanted, found, at, &forward) {
                            client.pass_on_here(call, face, forward).await;
                        }
                    }
                    Err(error) => client.errand_refused(call, &error),
                },
                Errand::SetLevel(forward) => client.set_level(call, &forward).await,
                Errand::Listen(_) => {}
            }
            lock(&client.errands).remove(&call);
            client.flush();
        });
        errands.insert(call, task.abort_handle());
    }

    /// The last lists of those that do not run: the names in them stay theirs, since they may be started again.
    fn last_lists(&self, kind: ListKind) -> Lists {
        let down = self.present().into_iter().filter(|(_, server)| server.connection().is_none());
        down.filter_map(|(face, server)| Some((face, server.last_items(kind)?))).collect()
    }

    /// What one that is just leaving has: another may stand in its place.
    fn last_list(&self, face: usize, kind: ListKind) -> Option<(usize, Arc<[Item]>)> {
        Some((face, self.server(face)?.last_items(kind)?))
    }

    /// In the order in which names are theirs.
    fn in_order(&self, mut lists: Lists) -> Lists {
        // One that has left meanwhile may have been replaced: its names are looked up once more.
        lists.sort_by_key(|(face, _)| self.server(*face).map(|server| (server.rank, server.index)));
        lists
    }

    /// Each server's list, asked for side by side. One that can't be had, or not in time, is left out, which is logged.
    ///
    /// # Errors
    /// If the session is being closed: what is left then is not what the servers have.
    async fn lists(&self, kind: ListKind) -> Result<Lists, CallError> {
        let mut asked = JoinSet::new();
        for (face, connection) in self.usable() {
            asked.spawn(async move {
                let items = tokio::time::timeout(LISTING, connection.items(kind)).await;
                (face, items)
            });
        }
        let mut lists = self.last_lists(kind);
        while let Some(listed) = asked.join_next().await {
            let Ok((face, items)) = listed else { continue };
            let Some(server) = self.server(face) else { continue };
            let server = &server.spec.name;
            match items {
                Ok(Ok(items)) => lists.push((face, items)),
                Ok(Err(error @ CallError::Settled(_))) => return Err(error),
                Ok(Err(CallError::Leaving(_) | CallError::LeftUnanswered(_))) => {
                    lists.extend(self.last_list(face, kind));
                }
                Ok(Err(error)) => {
                    tracing::warn!(%server, %error, "{} of a server is left out", kind.method());
                }
                Err(_) => {
                    tracing::warn!(%server, "{} of a server is left out: it takes too long", kind.method());
                }
            }
        }
        Ok(self.in_order(lists))
    }

    /// The lists where all are known.
    fn known_lists(&self, kind: ListKind) -> Option<Lists> {
        let known = |(face, connection): (usize, Connection)| match connection.known_items(kind) {
            Ok(Some(items)) => Some(Some((face, items))),
            // Of a session that is being closed it is no answer that a server has nothing.
            Ok(None) | Err(CallError::Settled(_)) => None,
            Err(CallError::Leaving(_) | CallError::LeftUnanswered(_)) => Some(self.last_list(face, kind)),
            Err(_) => Some(None),
        };
        let running: Option<Vec<_>> = self.usable().into_iter().map(known).collect();
        let mut lists = self.last_lists(kind);
        lists.extend(running?.into_iter().flatten());
        Some(self.in_order(lists))
    }

    fn named(&self, lists: &Lists) -> Vec<ServerItems> {
        let named = lists.iter().filter_map(|(face, items)| {
            let server = self.server(*face)?.spec.name.as_str().into();
            Some(ServerItems { server, items: Arc::clone(items) })
        });
        named.collect()
    }

    /// The published names of these lists; made once for the same lists.
    fn catalogue(&self, kind: ListKind, lists: &Lists) -> Arc<Catalogue> {
        let mut kept = lock(&self.catalogues.0[kind as usize]);
        if let Some(Kept { of, catalogue }) = &*kept
            && same(of, lists)
        {
            return Arc::clone(catalogue);
        }
        let mut items = self.named(lists);
        let prefix = match kind {
            ListKind::Tools | ListKind::Prompts => self.record.prefix,
            ListKind::Resources | ListKind::Templates => {
                // A URI has no prefix. The last of those that have one is published, which is to be the oldest but with `never`.
                if self.record.prefix != Prefix::Never {
                    items.reverse();
                }
                Prefix::Never
            }
        };
        let catalogue = Arc::new(Catalogue::new(&items, prefix));
        *kept = Some(Kept { of: lists.clone(), catalogue: Arc::clone(&catalogue) });
        catalogue
    }

    async fn list(&self, call: CallKey, kind: ListKind, after: Option<&str>) {
        let lists = match self.lists(kind).await {
            Ok(lists) => lists,
            Err(error) => return self.errand_refused(call, &error),
        };
        let mut catalogue = self.catalogue(kind, &lists);
        let present = self.present();
        let runs = |name: &str| {
            present.iter().any(|(_, of)| of.spec.name.as_str() == name && of.connection().is_some())
        };
        if present.iter().any(|(_, server)| server.connection().is_none()) {
            catalogue = Arc::new(catalogue.only(runs));
        }
        let modern = self.endpoint().is_modern();
        let result = merged_page(kind, &catalogue, after, modern);
        let ended = self.endpoint().errand_done(call, &result);
        self.finish(ended);
    }

    /// Whose it is, where that is known without asking.
    fn known(&self, wanted: &Wanted) -> Option<Found> {
        Some(match wanted {
            Wanted::Tool(name) => self.by_name(ListKind::Tools, &self.known_lists(ListKind::Tools)?, name),
            Wanted::Prompt(name) => {
                self.by_name(ListKind::Prompts, &self.known_lists(ListKind::Prompts)?, name)
            }
            Wanted::Uri(uri) => {
                let resources = self.known_lists(ListKind::Resources)?;
                self.by_uri(&resources, &self.known_lists(ListKind::Templates)?, uri)
            }
        })
    }

    async fn find(&self, wanted: &Wanted) -> Result<Found, CallError> {
        Ok(match wanted {
            Wanted::Tool(name) => self.by_name(ListKind::Tools, &self.lists(ListKind::Tools).await?, name),
            Wanted::Prompt(name) => {
                self.by_name(ListKind::Prompts, &self.lists(ListKind::Prompts).await?, name)
            }
            Wanted::Uri(uri) => {
                let resources = self.lists(ListKind::Resources).await?;
                self.by_uri(&resources, &self.lists(ListKind::Templates).await?, uri)
            }
        })
    }

    fn errand_refused(&self, call: CallKey, error: &CallError) {
        let ended = self.endpoint().refused(call, because(error));
        self.end(ended, error);
    }

    fn by_name(&self, kind: ListKind, lists: &Lists, name: &str) -> Found {
        match self.catalogue(kind, lists).find(name) {
            Meaning::One(owned) => match self.face_named(&owned.server) {
                Some(face) => Found::At(face, Some(owned.item.name)),
                None => Found::Nothing(None),
            },
            Meaning::Ambiguous { names, .. } => Found::Nothing(Some(names)),
            Meaning::Unknown => Found::Nothing(None),
        }
    }

    fn by_uri(&self, resources: &Lists, templates: &Lists, uri: &str) -> Found {
        let (resources, templates) = (self.named(resources), self.named(templates));
        let owner = owner_of_uri(uri, &resources, &templates, self.record.prefix);
        match owner.and_then(|owner| self.face_named(&owner)) {
            Some(face) => Found::At(face, None),
            None => Found::Nothing(None),
        }
    }

    /// Whose the call is, and the same under its name there. None where it is nobody's, which its caller has been told then.
    fn found<'a>(
        &self,
        call: CallKey,
        wanted: &Wanted,
        found: Found,
        at: Option<Span>,
        forward: &Forward<'a>,
    ) -> Option<(usize, Forward<'a>)> {
        let (face, name) = match found {
            Found::At(face, name) => (face, name),
            Found::Nothing(names) => {
                let ended = self.endpoint().not_found(call, wanted, names.as_deref());
                self.finish(ended);
                return None;
            }
        };
        let renamed = at.zip(name).map(|(at, name)| (at, outgoing::quoted(&name).into_boxed_slice()));
        Some((face, Forward { rename: renamed, ..forward.clone() }))
    }

    async fn set_level(&self, call: CallKey, forward: &Forward<'_>) {
        let mut params = Map::new();
        if let Some(level) = level_of(&forward.line) {
            params.insert("level".to_owned(), level);
        }
        let mut asked = JoinSet::new();
        for (_, connection) in self.usable() {
            if connection.negotiated().is_some_and(|known| known.offers.logging) {
                let params = params.clone();
                asked.spawn(async move {
                    let set = connection.ask("logging/setLevel", &params);
                    // One that does not answer is left out, as of a list.
                    tokio::time::timeout(LISTING, set).await.unwrap_or(Err(CallError::Slow))
                });
            }
        }
        let mut refusal = None;
        let mut done = false;
        while let Some(answer) = asked.join_next().await {
            match answer {
                Ok(Ok(_)) => done = true,
                Ok(Err(error)) => refusal = Some(error),
                Err(_) => {}
            }
        }
        let ended = match (done, refusal) {
            (true, _) => self.endpoint().errand_done(call, "{}"),
            (false, Some(CallError::ServerError(error))) => self.endpoint().errand_failed(call, &error),
            (false, Some(error)) => return self.errand_refused(call, &error),
            (false, None) => self.endpoint().invalid(call, -32601, "no server of the session has a log"),
        };
        self.finish(ended);
    }

    /// One stream from each server; the call ends with the last of them.
    fn listen(self: &Arc<Self>, call: CallKey, forward: &Forward<'_>, touched: &mut Vec<Connection>) {
        let usable = self.usable();
        if usable.is_empty() {
            let ended = self.endpoint().refused(call, Because::ServerExited);
            self.finish(ended);
            return;
        }
        self.endpoint().listens_to(call, usable.len());
        for (face, connection) in usable {
            let sent = connection.forward(self, call, forward);
            self.asked_server(call, face, Some(&connection), sent);
            touch(touched, Some(connection));
        }
    }
}

/// Whose something is.
enum Found {
    /// A server's, and its name there.
    At(usize, Option<String>),
    /// Nobody's; or one of several's, and these names say whose.
    Nothing(Option<Vec<String>>),
}

fn same(one: &Lists, other: &Lists) -> bool {
    one.len() == other.len() && one.iter().zip(other).all(|((a, x), (b, y))| a == b && Arc::ptr_eq(x, y))
}

fn level_of(line: &[u8]) -> Option<Value> {
    let mut message: Value = serde_json::from_slice(line).ok()?;
    Some(message.get_mut("params")?.get_mut("level")?.take())
}
