//! Sessions below sessions: a child is closed before its parent, through the same path.
//!
//! A child is admitted below a session that is starting or live, in the step that admits it, and belongs to that one generation.
//! So a tree has no circle: what is above a session was there before it.
use super::entry::Entry;
use super::types::{CloseOptions, Open, Phase, Refusal, RegistryEffect, Urgency};
use super::{Effects, Registry};
use crate::seeded::Bug;
use crate::session::CloseReason;
use crate::{KeyRef, SessionId};
use std::collections::BTreeSet;

/// The most sessions on the way from a tree's first one to its deepest, both included. How many there are side by side is
/// bounded by the limits on sessions.
const DEEPEST: usize = 16;

impl Registry {
    /// The session that an open is to be below of.
    pub(super) fn parent_of(&self, open: &Open) -> Result<Option<SessionId>, Refusal> {
        let Some(key) = &open.parent else { return Ok(None) };
        let key = KeyRef { uid: open.key.uid, key: key.clone() };
        let parent = self.entries.get(&key).ok_or(Refusal::ParentNotFound)?.session;
        self.check_parent(Some(parent)).map(|()| Some(parent))
    }

    /// Whether a session can be opened below this one now.
    pub(super) fn check_parent(&self, parent: Option<SessionId>) -> Result<(), Refusal> {
        let Some(session) = parent else { return Ok(()) };
        let entry = self.entry(session).ok_or(Refusal::ParentNotFound)?;
        match entry.phase {
            Phase::Starting | Phase::Live if entry.depth < DEEPEST => Ok(()),
            Phase::Starting | Phase::Live => Err(Refusal::TooDeep { limit: DEEPEST }),
            Phase::Dying | Phase::Quarantined => Err(Refusal::ParentClosing { session }),
        }
    }

    /// Both learn of each other in the step of the admission.
    pub(super) fn put_below(&mut self, parent: Option<SessionId>, session: SessionId, entry: &mut Entry) {
        entry.parent = parent;
        if let Some(above) = parent.and_then(|parent| self.entry_mut(parent)) {
            above.children.insert(session);
            entry.depth = above.depth + 1;
        }
    }

    /// A session that is about to be closed waits for its children, where it has any that can still end by themselves.
    pub(super) fn await_children(&mut self, key: &KeyRef, out: &mut Effects) {
        if self.seeded.has(Bug::G21ParentDoesNotWait) || !self.has_unsettled_children(key) {
            return;
        }
        let Some(entry) = self.entries.get_mut(key) else { return };
        entry.awaits_children = true;
        out.push(RegistryEffect::AwaitChildren { session: entry.session });
    }

    /// Closes what is below a session, each through the one way into a teardown, and so what is below that.
    pub(super) fn close_children(
        &mut self,
        key: &KeyRef,
        reason: CloseReason,
        options: &CloseOptions,
        out: &mut Effects,
    ) {
        let Some(entry) = self.entries.get(key) else { return };
        let children = entry.children.clone();
        self.close_all(&children, reason, options, out);
    }

    fn close_all(
        &mut self,
        children: &BTreeSet<SessionId>,
        reason: CloseReason,
        options: &CloseOptions,
        out: &mut Effects,
    ) {
        if self.seeded.has(Bug::G21ChildrenAreForgotten) {
            return;
        }
        // A shutdown is the reason of every session that it ends.
        let reason =
            if reason == CloseReason::Shutdown { CloseReason::Shutdown } else { CloseReason::ParentClosed };
        for child in children {
            let Some(key) = self.keys.get(child).cloned() else { continue };
            match self.current(&key) {
                Some((_, Phase::Starting | Phase::Live)) => {
                    self.begin_close(&key, reason, options, out);
                }
                Some((_, Phase::Dying)) if options.now => self.urge(&key, Urgency::Hurry, out),
                _ => {}
            }
        }
    }

    /// Whoever is in a hurry for a session is for those that it waits for.
    pub(super) fn urge_children(&mut self, key: &KeyRef, urgency: Urgency, out: &mut Effects) {
        let children = self.entries.get(key).map(|entry| entry.children.clone()).unwrap_or_default();
        for child in children {
            if let Some(key) = self.keys.get(&child).cloned() {
                self.urge(&key, urgency, out);
            }
        }
    }

    /// The session is over: its parent is told, and what is left below it is closed (it has ended without a close, or its actor
    /// was lost).
    pub(super) fn leave_tree(
        &mut self,
        session: SessionId,
        parent: Option<SessionId>,
        children: &BTreeSet<SessionId>,
        out: &mut Effects,
    ) {
        self.close_all(children, CloseReason::ParentClosed, &CloseOptions::default(), out);
        if let Some(entry) = parent.and_then(|parent| self.entry_mut(parent)) {
            entry.children.remove(&session);
        }
        self.tell_parent(parent, out);
    }

    /// The key's session is quarantined: its parent does not wait for the kernel.
    pub(super) fn child_settled(&mut self, key: &KeyRef, out: &mut Effects) {
        let parent = self.entries.get(key).and_then(|entry| entry.parent);
        self.tell_parent(parent, out);
    }

    fn tell_parent(&mut self, parent: Option<SessionId>, out: &mut Effects) {
        let Some(key) = parent.and_then(|parent| self.keys.get(&parent)).cloned() else { return };
        if self.has_unsettled_children(&key) {
            return;
        }
        let Some(entry) = self.entries.get_mut(&key) else { return };
        // One whose actor is lost waits for nobody.
        if std::mem::take(&mut entry.awaits_children) && !entry.lost {
            out.push(RegistryEffect::ChildrenGone { session: entry.session });
        }
    }

    fn has_unsettled_children(&self, key: &KeyRef) -> bool {
        let Some(entry) = self.entries.get(key) else { return false };
        let mut children = entry.children.iter().filter_map(|child| self.entry(*child));
        children.any(|child| child.phase != Phase::Quarantined)
    }

    fn entry(&self, session: SessionId) -> Option<&Entry> {
        self.keys.get(&session).and_then(|key| self.entries.get(key))
    }

    fn entry_mut(&mut self, session: SessionId) -> Option<&mut Entry> {
        self.keys.get(&session).and_then(|key| self.entries.get_mut(key))
    }
}
