//! How many bytes of requests the daemon holds, in total and of one user: lines that are not finished, and lines whose requests have no
//! answer yet.
//!
//! Each connection has an allowance that is always its own and is not counted, so that whatever others hold, a short request
//! (`status`, `close`) finds room (G39, G43). What is longer is charged before its memory is taken. A charge is a value: who drops it
//! gives it back.
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes of an unfinished line that every connection may hold, whatever others do.
pub(crate) const ALLOWANCE: usize = 64 << 10;

/// Shared by all connections.
#[derive(Debug)]
pub(crate) struct Budget {
    used: Mutex<Used>,
}

#[derive(Debug, Default)]
struct Used {
    most: usize,
    most_per_user: usize,
    total: usize,
    users: HashMap<u32, usize>,
}

/// A limit is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Full {
    /// Of `max_input`. Who the others are is not told (G40).
    #[error("the daemon holds as many bytes of requests as it may")]
    Total,
    /// Of `max_input_per_user`.
    #[error("the daemon holds as many bytes of this user's requests as it may")]
    User,
}

impl Full {
    /// As `capacity_exhausted` tells it of sessions.
    pub(crate) fn scope(self) -> &'static str {
        match self {
            Self::Total => "total",
            Self::User => "user",
        }
    }

    /// The key that raises the limit.
    pub(crate) fn key(self) -> &'static str {
        match self {
            Self::Total => "max_input",
            Self::User => "max_input_per_user",
        }
    }
}

impl Budget {
    /// Limits in bytes.
    pub(crate) fn new(most: usize, most_per_user: usize) -> Arc<Self> {
        Arc::new(Self { used: Mutex::new(Used { most, most_per_user, ..Used::default() }) })
    }

    /// Other limits, in bytes, for what is charged from now on; what is held is not touched.
    pub(crate) fn limit(&self, most: usize, most_per_user: usize) {
        let mut used = self.used();
        (used.most, used.most_per_user) = (most, most_per_user);
    }

    /// A charge of nothing.
    pub(crate) fn charge(self: &Arc<Self>, uid: u32) -> Charge {
        Charge { budget: Arc::clone(self), uid, bytes: 0 }
    }

    fn used(&self) -> MutexGuard<'_, Used> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(crate) fn total(&self) -> usize {
        self.used().total
    }
}

/// Bytes that are held for one user.
#[derive(Debug)]
pub(crate) struct Charge {
    budget: Arc<Budget>,
    uid: u32,
    bytes: usize,
}

impl Charge {
    /// Makes it a charge of so many bytes.
    ///
    /// # Errors
    /// [`Full`] where that is more than before and a limit is in the way; the charge is then what it was.
    pub(crate) fn set(&mut self, bytes: usize) -> Result<(), Full> {
        if bytes == self.bytes {
            return Ok(());
        }
        let budget = Arc::clone(&self.budget);
        let mut used = budget.used();
        let total = used.total - self.bytes + bytes;
        let user = used.users.get(&self.uid).copied().unwrap_or_default() - self.bytes + bytes;
        if bytes > self.bytes {
            if user > used.most_per_user {
                return Err(Full::User);
            }
            if total > used.most {
                return Err(Full::Total);
            }
        }
        used.total = total;
        if user == 0 {
            used.users.remove(&self.uid);
        } else {
            used.users.insert(self.uid, user);
        }
        self.bytes = bytes;
        Ok(())
    }

    /// Another one of the same user.
    pub(crate) fn nothing(&self) -> Self {
        Self { budget: Arc::clone(&self.budget), uid: self.uid, bytes: 0 }
    }

    /// All of it, for who takes the bytes over; this one is of nothing then.
    pub(crate) fn take(&mut self) -> Self {
        let bytes = std::mem::take(&mut self.bytes);
        Self { budget: Arc::clone(&self.budget), uid: self.uid, bytes }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        // Nothing is in the way of less.
        let _ = self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_limit_holds_and_what_is_dropped_is_given_back() {
        let budget = Budget::new(100, 60);
        let (mut one, mut two, mut other) = (budget.charge(1), budget.charge(1), budget.charge(2));
        assert_eq!(one.set(40), Ok(()));
        assert_eq!(two.set(21), Err(Full::User));
        assert_eq!(two.set(20), Ok(()));
        assert_eq!(other.set(41), Err(Full::Total));
        assert_eq!(other.set(40), Ok(()));
        assert_eq!(other.set(41), Err(Full::Total));
        assert_eq!(budget.total(), 100, "a refused charge is what it was");
        let taken = one.take();
        drop(one);
        assert_eq!(budget.total(), 100, "what was taken over is still held");
        assert_eq!(two.set(5), Ok(()));
        drop(taken);
        assert_eq!(other.set(60), Ok(()));
        drop((two, other));
        assert_eq!((budget.total(), budget.used().users.len()), (0, 0));
    }
}
