//! What has happened: numbered for each user, kept within bounds, read by any number of readers.
//!
//! An event is published in the step in which it becomes true. Publishing writes to memory alone: it can neither fail nor wait, so
//! that no record hinders a teardown. A reader is a number, a place in its user's ring, and nothing is queued for it: one that is slow,
//! stopped or gone costs nothing and delays nobody (G39). What it has missed it is told, by number (G38).
//!
//! Each user's events have numbers of their own (G40): a number tells nothing of what other users do.
mod field;
mod kind;
mod ring;
mod session;
mod stream;
#[cfg(test)]
mod tests;

pub use field::{Field, Fields};
pub use kind::EventKind;
pub(crate) use session::{InQueue, Refused};
pub(crate) use stream::Wanted;
pub use stream::{EventStream, Told};

use crate::record::lock;
use field::fields_cost;
use mcpvisor_lifecycle::{Generation, ServerName, SessionKey, Uid};
use ring::Ring;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::SystemTime;
use tokio::sync::watch;

/// How much is kept, of each user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventLimits {
    /// How many events.
    pub events: usize,
    /// How many bytes of memory, about.
    pub bytes: usize,
}

/// Something that has happened.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// Its number among its user's; the first is 1.
    pub seq: u64,
    /// When it was published.
    pub at: SystemTime,
    /// What has happened.
    pub kind: EventKind,
    /// Whom it speaks of.
    pub subject: Subject,
    /// What there is to say.
    pub data: Fields,
}

/// Whom an event speaks of; the default is the daemon.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Subject {
    /// The session's key.
    pub key: Option<SessionKey>,
    /// The session's generation; none where it never had one.
    pub generation: Option<Generation>,
    /// The server, where it is about one.
    pub server: Option<ServerName>,
}

impl Event {
    /// About how many bytes it holds.
    fn cost(&self) -> usize {
        let texts = [
            self.subject.key.as_ref().map(SessionKey::as_str),
            self.subject.server.as_ref().map(ServerName::as_str),
        ];
        let texts: usize = texts.into_iter().flatten().map(str::len).sum();
        // With the counts of the `Arc`.
        size_of::<Self>() + 16 + texts + fields_cost(&self.data)
    }
}

/// The terminal event of a generation, once it is published: whoever follows it gets it, although the ring has lost it.
pub(crate) type Terminal = Arc<OnceLock<Arc<Event>>>;

/// See the module; cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Events(Arc<Mutex<State>>);

/// Hears each event as it is published; must be quick, and must not publish.
pub(crate) type Listener = Box<dyn Fn(Uid, &Arc<Event>) + Send + Sync>;

struct State {
    limits: EventLimits,
    users: BTreeMap<Uid, User>,
    /// The daemon's own.
    daemon: Uid,
    listener: Option<Listener>,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State")
            .field("limits", &self.limits)
            .field("users", &self.users)
            .finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct User {
    ring: Ring,
    /// The ring's next number, for those who wait.
    told: watch::Sender<u64>,
}

impl Events {
    /// `daemon` is told of the daemon from the first moment; other users are from when they first have an event or ask for some.
    pub(crate) fn new(limits: EventLimits, daemon: Uid) -> Self {
        let users = BTreeMap::from([(daemon, User::default())]);
        Self(Arc::new(Mutex::new(State { limits, users, daemon, listener: None })))
    }

    /// New limits; they hold from the next event on.
    pub(crate) fn set_limits(&self, limits: EventLimits) {
        lock(&self.0).limits = limits;
    }

    /// Lets someone hear of all users' events, and of the daemon's once.
    pub(crate) fn listen(&self, listener: Listener) {
        lock(&self.0).listener = Some(listener);
    }

    /// Publishes an event of one user's.
    pub(crate) fn publish(&self, uid: Uid, kind: EventKind, subject: Subject, data: Fields) -> Arc<Event> {
        let mut state = lock(&self.0);
        let limits = state.limits;
        let user = state.users.entry(uid).or_default();
        let event = user.publish(limits, kind, subject, data);
        user.wake();
        state.tell(uid, &event);
        event
    }

    /// The same of the last event of a generation, which those who follow it get in any case.
    pub(crate) fn publish_last(
        &self,
        uid: Uid,
        kind: EventKind,
        subject: Subject,
        data: Fields,
        last: &Terminal,
    ) {
        let mut state = lock(&self.0);
        let limits = state.limits;
        let user = state.users.entry(uid).or_default();
        // Before anyone is woken, and before anyone can read it. There is one: the final state is written once.
        let event = user.publish(limits, kind, subject, data);
        let _ = last.set(Arc::clone(&event));
        user.wake();
        state.tell(uid, &event);
    }

    /// Publishes an event of the daemon's, to every user.
    pub(crate) fn publish_to_all(&self, kind: EventKind, data: &Fields) {
        let mut state = lock(&self.0);
        let (limits, daemon) = (state.limits, state.daemon);
        let mut told = None;
        for (uid, user) in &mut state.users {
            let event = user.publish(limits, kind, Subject::default(), data.clone());
            user.wake();
            if *uid == daemon {
                told = Some(event);
            }
        }
        if let Some(event) = told {
            state.tell(daemon, &event);
        }
    }
}

impl State {
    fn tell(&self, uid: Uid, event: &Arc<Event>) {
        if let Some(listener) = &self.listener {
            listener(uid, event);
        }
    }
}

impl User {
    fn publish(
        &mut self,
        limits: EventLimits,
        kind: EventKind,
        subject: Subject,
        data: Fields,
    ) -> Arc<Event> {
        let (seq, at) = (self.ring.next(), SystemTime::now());
        let event = Arc::new(Event { seq, at, kind, subject, data });
        self.ring.push(Arc::clone(&event), limits);
        event
    }

    fn wake(&self) {
        self.told.send_replace(self.ring.next());
    }
}
