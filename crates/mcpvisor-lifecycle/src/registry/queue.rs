//! Opens that wait for a slot: those of each user and tenant take turns, so that nobody's flood holds off another.
//!
//! A turn goes round the users, and within a user round the tenants; within a tenant who came first is first. Whether one fits is not
//! decided here.
use super::types::Open;
use crate::{Moment, RequestId, Tenant, Uid};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct Queue {
    items: BTreeMap<RequestId, Item>,
    /// Whose turn is next is in front. No user is here without an open.
    users: VecDeque<(Uid, Line)>,
    deadlines: BTreeSet<(Moment, RequestId)>,
    /// The next one waits for processes, of which smaller ones must not take what it waits for.
    pub(super) blocked: bool,
}

/// The tenants of a user, whose turn is next in front, each with its opens. None of them is empty.
type Line = VecDeque<(Option<Tenant>, VecDeque<RequestId>)>;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Item {
    open: Open,
    /// When it leaves the queue.
    until: Moment,
    /// The position that was told last; 0: none.
    told: usize,
}

impl Queue {
    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    /// How many wait of one user.
    pub(super) fn of(&self, uid: Uid) -> usize {
        let line = self.users.iter().find(|(user, _)| *user == uid).map(|(_, line)| line);
        line.map_or(0, |line| line.iter().map(|(_, opens)| opens.len()).sum())
    }

    /// At the end of its tenant's line.
    pub(super) fn push(&mut self, open: Open, until: Moment) {
        let (request, uid, tenant) = (open.request, open.key.uid, open.tenant.clone());
        self.deadlines.insert((until, request));
        self.items.insert(request, Item { open, until, told: 0 });
        let at = self.users.iter().position(|(user, _)| *user == uid).unwrap_or_else(|| {
            self.users.push_back((uid, Line::new()));
            self.users.len() - 1
        });
        let Some((_, line)) = self.users.get_mut(at) else { return };
        match line.iter_mut().find(|(other, _)| *other == tenant) {
            Some((_, opens)) => opens.push_back(request),
            None => line.push_back((tenant, VecDeque::from([request]))),
        }
    }

    pub(super) fn get(&self, request: RequestId) -> Option<&Open> {
        self.items.get(&request).map(|item| &item.open)
    }

    /// Takes one out that gets no slot; its tenant keeps its turn.
    pub(super) fn remove(&mut self, request: RequestId) -> Option<Open> {
        self.take(request, false)
    }

    /// Takes one out that gets a slot: its tenant and its user have had their turn.
    pub(super) fn serve(&mut self, request: RequestId) -> Option<Open> {
        self.take(request, true)
    }

    fn take(&mut self, request: RequestId, served: bool) -> Option<Open> {
        let Item { open, until, .. } = self.items.remove(&request)?;
        self.deadlines.remove(&(until, request));
        let user = self.users.iter().position(|(user, _)| *user == open.key.uid)?;
        let (uid, mut line) = self.users.remove(user)?;
        let at = line.iter().position(|(tenant, _)| *tenant == open.tenant)?;
        let (tenant, mut opens) = line.remove(at)?;
        opens.retain(|other| *other != request);
        if !opens.is_empty() {
            line.insert(if served { line.len() } else { at }, (tenant, opens));
        }
        if !line.is_empty() {
            self.users.insert(if served { self.users.len() } else { user }, (uid, line));
        }
        Some(open)
    }

    /// All in the order in which they would get slots if each fitted.
    pub(super) fn order(&self) -> Vec<RequestId> {
        let mut users = self.users.clone();
        let mut order = Vec::with_capacity(self.items.len());
        while let Some((uid, mut line)) = users.pop_front() {
            let Some((tenant, mut opens)) = line.pop_front() else { continue };
            order.extend(opens.pop_front());
            if !opens.is_empty() {
                line.push_back((tenant, opens));
            }
            if !line.is_empty() {
                users.push_back((uid, line));
            }
        }
        order
    }

    /// Those whose position is another one than was told, with the new one; the first is 1.
    pub(super) fn moved(&mut self) -> Vec<(RequestId, usize)> {
        let mut moved = Vec::new();
        for (index, request) in self.order().into_iter().enumerate() {
            let position = index + 1;
            if let Some(item) = self.items.get_mut(&request)
                && std::mem::replace(&mut item.told, position) != position
            {
                moved.push((request, position));
            }
        }
        moved
    }

    /// When the first one of a user leaves without a slot.
    pub(super) fn next_of(&self, uid: Uid) -> Option<Moment> {
        self.items.values().filter(|item| item.open.key.uid == uid).map(|item| item.until).min()
    }

    /// When the first one leaves without a slot.
    pub(super) fn next(&self) -> Option<Moment> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    /// One whose time is over.
    pub(super) fn due(&self, now: Moment) -> Option<RequestId> {
        self.deadlines.first().filter(|(at, _)| *at <= now).map(|(_, request)| *request)
    }
}
