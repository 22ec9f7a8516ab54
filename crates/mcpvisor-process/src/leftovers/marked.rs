//! Processes of dead daemons, found by their marker.
//!
//! It is read from /proc, which shows a process's environment as it was at exec. What can't be found is a process that has wiped it,
//! or one that we may not look into.
use crate::exact::signal_if;
use crate::launch::MARKER;
use crate::leftovers::notes::is_session;
use crate::procfs::{self, Stat};
use rustix::process::Signal;
use std::sync::Arc;

/// A process that carries the marker of a dead instance, and has not exited.
pub(crate) struct Marked {
    pub(crate) pid: u32,
    pub(crate) instance: String,
    pub(crate) session: Arc<str>,
    pub(crate) leaf: Arc<str>,
    pub(crate) stat: Stat,
    marker: String,
}

/// Searches for those whose marker names one of these instances, wholly: a marker is `INSTANCE/SESSION/LEAF`. May hang: see `procfs`.
pub(crate) fn marked(is_dead: impl Fn(&str) -> bool) -> Vec<Marked> {
    let me = std::process::id();
    let all = procfs::everyone().into_iter().filter(|pid| *pid != me);
    all.filter_map(|pid| {
        let marker = procfs::variable(pid, MARKER)?;
        let mut parts = marker.split('/');
        let (instance, session, leaf) = (parts.next()?, parts.next()?, parts.next()?);
        let named = parts.next().is_none() && is_session(session) && is_session(leaf);
        if !named || !is_dead(instance) {
            return None;
        }
        let stat = procfs::stat(pid).ok().filter(|stat| !stat.is_dead())?;
        let (session, leaf) = (Arc::from(session), Arc::from(leaf));
        Some(Marked { pid, instance: instance.to_owned(), session, leaf, stat, marker })
    })
    .collect()
}

impl Marked {
    /// The scope that it is of.
    pub(crate) fn scope(&self) -> (Arc<str>, Arc<str>) {
        (Arc::clone(&self.session), Arc::clone(&self.leaf))
    }

    /// Signals it, if it still carries the marker when its pidfd is open.
    pub(crate) fn signal(&self, signal: Signal) {
        signal_if(self.pid, signal, || procfs::variable(self.pid, MARKER).as_deref() == Some(&self.marker));
    }
}
