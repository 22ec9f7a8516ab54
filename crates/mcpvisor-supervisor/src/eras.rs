//! Which servers are known to be modern: they are asked with `server/discover` first the next time. A server of which nothing is known
//! is asked with `initialize`, as a legacy one is, so nothing need be remembered of those.
use crate::record::lock;
use mcpvisor_lifecycle::{SpecDigest, Uid};
use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;

/// The most that are remembered of one user; the one that was used longest ago is forgotten first.
const MOST_PER_USER: usize = 256;

/// In memory only, and each user's is its own.
#[derive(Debug, Default)]
pub(crate) struct Eras {
    /// Last used last.
    modern: Mutex<HashMap<Uid, VecDeque<SpecDigest>>>,
}

impl Eras {
    pub(crate) fn is_modern(&self, uid: Uid, spec: SpecDigest) -> bool {
        let mut modern = lock(&self.modern);
        let Some(known) = modern.get_mut(&uid) else { return false };
        let Some(place) = known.iter().position(|other| *other == spec) else { return false };
        known.remove(place);
        known.push_back(spec);
        true
    }

    pub(crate) fn remember(&self, uid: Uid, spec: SpecDigest) {
        if self.is_modern(uid, spec) {
            return;
        }
        let mut modern = lock(&self.modern);
        let known = modern.entry(uid).or_default();
        known.push_back(spec);
        if known.len() > MOST_PER_USER {
            known.pop_front();
        }
    }

    pub(crate) fn forget(&self, uid: Uid, spec: SpecDigest) {
        let mut modern = lock(&self.modern);
        if let Some(known) = modern.get_mut(&uid) {
            known.retain(|other| *other != spec);
            if known.is_empty() {
                modern.remove(&uid);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g43_what_is_remembered_is_bounded_and_each_users_own() {
        let eras = Eras::default();
        let all = MOST_PER_USER as u64;
        for number in 0..all {
            eras.remember(Uid(1), SpecDigest(number));
        }
        assert!(eras.is_modern(Uid(1), SpecDigest(0)), "now the one that was used last");
        assert!(!eras.is_modern(Uid(2), SpecDigest(0)));
        eras.remember(Uid(1), SpecDigest(all));
        assert!(eras.is_modern(Uid(1), SpecDigest(0)) && !eras.is_modern(Uid(1), SpecDigest(1)));
        for number in 0..=all {
            eras.forget(Uid(1), SpecDigest(number));
        }
        assert!(lock(&eras.modern).is_empty());
    }
}
