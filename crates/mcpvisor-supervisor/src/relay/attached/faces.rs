//! Servers that come to the session and leave it while the client is there.
use super::super::Connection;
use super::super::shared::lock;
use super::{Attached, Seen};
use crate::record::ServerRecord;
use mcpvisor_lifecycle::server::Mode;
use std::sync::Arc;

impl Attached {
    /// A server is the session's from now on, perhaps in the place of another, whose calls in flight go on.
    pub(crate) fn server_joined(self: &Arc<Self>, record: &Arc<ServerRecord>, replaces: Option<usize>) {
        let wanted = self.only.as_ref().is_none_or(|only| *only == record.spec.name);
        if record.spec.mode != Mode::Shared || !wanted {
            return replaces.into_iter().for_each(|old| self.server_left(old));
        }
        let negotiated = record.connection().and_then(|connection| connection.negotiated());
        let mut todo = {
            // Both in one step: who looks sees one of the name.
            let mut faces = lock(&self.faces);
            let mut endpoint = self.endpoint();
            let (face, mut todo) = endpoint.face_joined(record.spec.name.as_str().into(), negotiated);
            let old = replaces.and_then(|old| leave(&mut faces, old));
            todo.extend(old.into_iter().flat_map(|old| endpoint.face_left(old)));
            let seen = Some(Seen { record: Arc::clone(record), left: false });
            match faces.get_mut(face) {
                Some(vacant) => *vacant = seen,
                None => faces.push(seen),
            }
            todo
        };
        self.follow(&mut todo);
    }

    /// A server is not the session's any more; its calls in flight go on.
    pub(crate) fn server_left(self: &Arc<Self>, server: usize) {
        let mut todo = {
            let mut faces = lock(&self.faces);
            let Some(face) = leave(&mut faces, server) else { return };
            self.endpoint().face_left(face)
        };
        self.follow(&mut todo);
    }

    /// Nothing of a server that has left is in flight any more.
    pub(crate) fn server_forgotten(&self, server: usize) {
        let mut faces = lock(&self.faces);
        let is_it = |seen: &Option<Seen>| seen.as_ref().is_some_and(|seen| seen.record.index == server);
        if let Some(face) = faces.iter().position(is_it) {
            faces[face] = None;
            self.endpoint().face_vacated(face);
        }
    }

    fn follow(self: &Arc<Self>, todo: &mut mcpvisor_mcp::endpoint::Todos<'static>) {
        let mut touched = Vec::new();
        self.carry_out(std::mem::take(todo), &mut touched);
        self.flush_servers(&mut touched);
        self.flush();
    }

    /// The server that stands in the place of one that has left.
    pub(super) fn successor(&self, face: usize) -> Option<usize> {
        let faces = lock(&self.faces);
        let name = &faces.get(face)?.as_ref()?.record.spec.name;
        let is_it = |seen: &Seen| !seen.left && seen.record.spec.name == *name;
        faces.iter().position(|seen| seen.as_ref().is_some_and(is_it))
    }

    /// The number of this server, which had that one; else of the one that stands in its place.
    pub(super) fn still(&self, face: usize, server: &Arc<ServerRecord>) -> Option<usize> {
        let is_it = |seen: &Seen| !seen.left && Arc::ptr_eq(&seen.record, server);
        let same = lock(&self.faces).get(face).is_some_and(|seen| seen.as_ref().is_some_and(is_it));
        if same { Some(face) } else { self.face_named(server.spec.name.as_str()) }
    }

    pub(super) fn face_named(&self, name: &str) -> Option<usize> {
        let is_it = |seen: &Seen| !seen.left && seen.record.spec.name.as_str() == name;
        lock(&self.faces).iter().position(|seen| seen.as_ref().is_some_and(is_it))
    }

    /// The servers that have not left, with their numbers, as their names are theirs.
    pub(super) fn present(&self) -> Vec<(usize, Arc<ServerRecord>)> {
        let faces = lock(&self.faces);
        present(&faces)
    }

    /// Those of them that speak as the client does, and run.
    pub(super) fn usable(&self) -> Vec<(usize, Connection)> {
        let faces = lock(&self.faces);
        let usable: Vec<usize> = self.endpoint().usable().collect();
        let present = present(&faces).into_iter().filter(|(face, _)| usable.contains(face));
        present.filter_map(|(face, record)| Some((face, record.connection()?))).collect()
    }
}

fn present(faces: &[Option<Seen>]) -> Vec<(usize, Arc<ServerRecord>)> {
    let all = faces.iter().enumerate().filter_map(|(face, seen)| Some((face, seen.as_ref()?)));
    let here = all.filter(|(_, seen)| !seen.left);
    let mut here: Vec<_> = here.map(|(face, seen)| (face, Arc::clone(&seen.record))).collect();
    here.sort_unstable_by_key(|(_, record)| (record.rank, record.index));
    here
}

fn leave(faces: &mut [Option<Seen>], server: usize) -> Option<usize> {
    let all = faces.iter_mut().enumerate().filter_map(|(face, seen)| Some((face, seen.as_mut()?)));
    let (face, seen) = all.into_iter().find(|(_, seen)| seen.record.index == server)?;
    seen.left = true;
    Some(face)
}
