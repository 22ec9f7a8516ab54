//! Servers that come and go while the client is there.
use super::servers::changed_lists;
use super::{CallKey, Endpoint, Face, Kind, Todo, Todos};
use crate::handshake::{Negotiated, Offers};
use crate::version::Era;
use std::sync::Arc;

impl Face {
    /// A server of this name; with what was agreed, if it runs.
    #[must_use]
    pub fn new(name: Arc<str>, negotiated: Option<Negotiated>) -> Self {
        Self { name, negotiated, here: true, vacant: false }
    }
}

impl<P> Endpoint<P> {
    /// The client has one server before it, which it sees as it is.
    pub(super) fn alone(&self) -> bool {
        self.faces.iter().filter(|face| face.here).count() == 1
    }

    /// A server has come: its index, perhaps that of one that is gone for good, and what follows. Of a server that is spoken to as the
    /// client speaks, the client hears that lists have changed.
    pub fn face_joined(&mut self, name: Arc<str>, negotiated: Option<Negotiated>) -> (usize, Todos<'static>) {
        let face = Face::new(name, None);
        let index = match self.faces.iter().position(|face| face.vacant) {
            Some(index) => {
                self.faces[index] = face;
                index
            }
            None => {
                self.faces.push(face);
                self.faces.len() - 1
            }
        };
        let todo = negotiated.map_or_else(Todos::new, |negotiated| self.server_ready(index, negotiated));
        (index, todo)
    }

    /// A server is to be asked nothing more; what it was asked it may still answer. Its subscriptions end, and the client hears that
    /// lists have changed.
    pub fn face_left(&mut self, server: usize) -> Todos<'static> {
        let mut todo = Todos::new();
        let face = &mut self.faces[server];
        if !face.here {
            return todo;
        }
        face.here = false;
        let offered = face.negotiated.take().filter(|known| Some(known.era) == self.client.era);
        self.subscriptions.retain(|_, owner| *owner != server);
        let mut calls: Vec<CallKey> = self
            .calls
            .iter()
            .filter(|(_, known)| matches!(known.kind, Kind::Listen(_)))
            .map(|(call, _)| *call)
            .collect();
        calls.sort_unstable();
        for call in calls {
            let Some(known) = self.calls.get_mut(&call) else { continue };
            let (gone, stay) = known.at.drain(..).partition::<Vec<_>, _>(|(at, _)| *at == server);
            known.at = stay;
            if gone.is_empty() {
                continue;
            }
            // The stream goes on, though it may be of nobody for now: another may come.
            known.listening = known.listening.saturating_sub(gone.len());
            todo.push(Todo::Cancel { call, at: gone, said: None });
            let Kind::Listen(listen) = &mut known.kind else { continue };
            let lines = if listen.done {
                changed_lists(&listen.agreed, &known.raw_id)
            } else {
                // It is not waited for any more.
                listen.acknowledged.retain(|known| known.server != server);
                listen.acknowledge(&known.raw_id, known.listening)
            };
            todo.extend(lines.into_iter().map(Todo::Say));
        }
        if let Some(known) = offered.filter(|known| known.era == Era::Legacy && !self.client.lost) {
            todo.extend(self.legacy_lists(known.offers).map(Todo::Say));
        }
        todo
    }

    /// Nothing of a server that has left is in flight any more: its index may be another's.
    pub fn face_vacated(&mut self, server: usize) {
        let face = &mut self.faces[server];
        face.vacant = !face.here;
        face.negotiated = None;
    }

    /// That the lists of these have changed, as far as the client was told at its handshake that there are such lists.
    pub(super) fn legacy_lists(&self, offers: Offers) -> impl Iterator<Item = Vec<u8>> + use<P> {
        let declared = self.client.declared;
        let lists = [
            (offers.tools && declared.tools, "notifications/tools/list_changed"),
            (offers.prompts && declared.prompts, "notifications/prompts/list_changed"),
            (offers.resources && declared.resources, "notifications/resources/list_changed"),
        ];
        let changed = lists.into_iter().filter(|(changed, _)| *changed);
        changed.map(|(_, method)| format!("{{\"jsonrpc\":\"2.0\",\"method\":\"{method}\"}}\n").into_bytes())
    }
}
