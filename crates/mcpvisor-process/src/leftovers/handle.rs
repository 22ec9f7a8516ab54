//! The way to the sweep, and the table of what it knows.
use super::notes::Former;
use super::sweep::Sweep;
use super::{Left, LeftId};
use crate::ScopeReport;
use crate::command::{Done, nothing_known};
use crate::handle::SessionReports;
use std::collections::BTreeMap;
use std::io;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A daemon's start waits no longer than this for the first look, which seldom takes more than a few milliseconds.
const FIRST_LOOK: Duration = Duration::from_secs(1);

/// The way to the thread; cheap to clone.
#[derive(Clone)]
pub(crate) struct Sweeper {
    state: Arc<Mutex<State>>,
    /// Wakes the thread; ends it when the last is dropped.
    wake: Sender<()>,
    left: Arc<[Left]>,
}

/// What is known of each session that is left, or was.
pub(super) type State = BTreeMap<LeftId, Status>;

#[derive(Default)]
pub(super) struct Status {
    /// What lives of it, at the last look.
    pub(super) remaining: Vec<(u32, String)>,
    /// Set when nothing is left.
    gone: Option<SessionReports>,
    waiting: Vec<Done<SessionReports>>,
}

pub(super) fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    // Nothing that can panic runs under the lock.
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Sweeper {
    /// Kills what these daemons have left, and returns after the first look. Without any it costs nothing.
    pub(crate) fn start(former: Vec<Former>) -> io::Result<Self> {
        let (wake, woken) = channel();
        let state = Arc::new(Mutex::new(State::new()));
        if former.is_empty() {
            return Ok(Self { state, wake, left: Arc::from([]) });
        }
        let sweep = Sweep::new(former, Arc::clone(&state));
        let noted = sweep.left();
        lock(&state).extend(noted.iter().map(|left| (left.id.clone(), Status::default())));
        let (told, first) = channel();
        std::thread::Builder::new().name("mcpvisor-sweep".into()).spawn(move || sweep.run(&woken, &told))?;
        let left = first.recv_timeout(FIRST_LOOK).unwrap_or_else(|_| {
            tracing::warn!(
                "to look at what former daemons left takes long; their keys stay blocked until it is done"
            );
            noted
        });
        Ok(Self { state, wake, left: left.into() })
    }

    /// The sessions that were not gone at the first look.
    pub(crate) fn left(&self) -> &[Left] {
        &self.left
    }

    /// Looks and kills again, now, and calls `empty` when nothing of the session is left.
    pub(crate) fn kill(&self, id: &LeftId, empty: Done<SessionReports>) {
        let mut state = lock(&self.state);
        let known = state.get(id).map(|status| status.gone.clone());
        match known {
            Some(None) => {
                if let Some(status) = state.get_mut(id) {
                    status.waiting.push(empty);
                }
                drop(state);
                // It ends only when everything is gone, and that has then been told.
                let _ = self.wake.send(());
            }
            Some(Some(reports)) => {
                drop(state);
                empty(reports);
            }
            None => {
                drop(state);
                empty(Vec::new());
            }
        }
    }

    /// What is known of the session now.
    pub(crate) fn report(&self, id: &LeftId) -> ScopeReport {
        let remaining = lock(&self.state).get(id).map(|status| status.remaining.clone()).unwrap_or_default();
        ScopeReport { remaining, proven: false, ..nothing_known() }
    }
}

/// Nothing is left of a session.
pub(super) fn tell_gone(state: &Mutex<State>, id: &LeftId, reports: &SessionReports) {
    let waiting = {
        let mut state = lock(state);
        let status = state.entry(id.clone()).or_default();
        status.gone = Some(reports.clone());
        std::mem::take(&mut status.waiting)
    };
    for empty in waiting {
        crate::reaper::guarded("a session's end", || empty(reports.clone()));
    }
}
