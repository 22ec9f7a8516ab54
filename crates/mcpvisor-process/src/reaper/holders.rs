//! Processes of others whose ends are waited for.
use super::scope::guarded;
use super::{Reaper, Watch};
use std::os::fd::OwnedFd;

/// One of them.
pub(super) struct Held {
    /// The number of the watch.
    watch: u64,
    pidfd: OwnedFd,
    ended: Box<dyn FnOnce() + Send>,
}

impl Reaper {
    /// One that can't be watched counts as ended: nothing may depend on what nobody looks at.
    pub(super) fn hold(&mut self, number: u64, pidfd: OwnedFd, ended: Box<dyn FnOnce() + Send>) {
        match self.watch(&pidfd, Watch::Holder(number)) {
            Ok(watch) => drop(self.holders.insert(number, Held { watch, pidfd, ended })),
            Err(error) => {
                tracing::warn!(%error, "the process of a lease can't be watched: the lease has ended");
                guarded("a lease's end", ended);
            }
        }
    }

    pub(super) fn let_go(&mut self, number: u64) {
        if let Some(held) = self.holders.remove(&number) {
            self.unwatch(&held.pidfd, held.watch);
        }
    }

    pub(super) fn holder_ended(&mut self, number: u64) {
        if let Some(held) = self.holders.remove(&number) {
            self.unwatch(&held.pidfd, held.watch);
            guarded("a lease's end", held.ended);
        }
    }
}
