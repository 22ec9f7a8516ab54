//! The environments of servers. Those of one host's sessions are mostly the same, and large beside all else that is kept of a server: each is
//! kept once.
use crate::record::lock;
use std::ffi::CString;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, Weak};

/// How many are looked through. One that is not found is kept beside its equal, which costs memory and nothing else.
const PLACES: usize = 64;

/// The environments that were used of late. Holds none of them alive.
#[derive(Debug, Default)]
pub(crate) struct Environments {
    /// By what they hash to.
    known: Mutex<Vec<Option<Weak<[CString]>>>>,
}

impl Environments {
    /// Puts an equal one that is kept already in the place of this one.
    pub(crate) fn share(&self, environment: &mut Arc<[CString]>) {
        let mut hash = DefaultHasher::new();
        environment.hash(&mut hash);
        let place = hash.finish() as usize % PLACES;
        let mut known = lock(&self.known);
        known.resize(PLACES, None);
        match known[place].as_ref().and_then(Weak::upgrade) {
            Some(kept) if kept == *environment => *environment = kept,
            _ => known[place] = Some(Arc::downgrade(environment)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(value: &str) -> Arc<[CString]> {
        [format!("A={value}"), "B=2".to_owned()].map(|text| CString::new(text).unwrap()).into()
    }

    #[test]
    fn equal_ones_are_one_as_long_as_someone_has_it() {
        let environments = Environments::default();
        let (mut first, mut second, mut other) = (environment("1"), environment("1"), environment("3"));
        environments.share(&mut first);
        environments.share(&mut second);
        assert!(Arc::ptr_eq(&first, &second));
        environments.share(&mut other);
        assert_eq!(other, environment("3"));
        drop(first);
        assert_eq!(Arc::strong_count(&second), 1, "nothing else holds it");
    }

    #[test]
    fn g43_what_is_remembered_is_bounded() {
        let environments = Environments::default();
        let all: Vec<_> = (0..1000).map(|number| environment(&number.to_string())).collect();
        for environment in &all {
            let mut shared = Arc::clone(environment);
            environments.share(&mut shared);
            assert!(Arc::ptr_eq(&shared, environment));
        }
        assert_eq!(lock(&environments.known).len(), PLACES);
    }
}
