//! Values that states share until one of them changes, with a hash that is computed once.
use ahash::RandomState;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// What can be shared: it may have shared values in it, which are sealed first.
pub(crate) trait Part: Clone + Eq + Hash {
    /// Seals the shared values in it.
    fn seal_parts(&mut self) {}
}

/// A value behind a counted pointer, together with its hash. Cloning is cheap, and so is hashing a sealed one.
#[derive(Debug, Clone)]
pub(crate) struct Shared<T> {
    value: Arc<T>,
    /// Zero while it is being changed.
    mark: u64,
}

impl<T: Part> Shared<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { value: Arc::new(value), mark: 0 }
    }

    pub(crate) fn get(&self) -> &T {
        &self.value
    }

    /// To be sealed before it is hashed or compared.
    pub(crate) fn edit(&mut self) -> &mut T {
        self.mark = 0;
        Arc::make_mut(&mut self.value)
    }

    /// Computes the hash, where the value was changed.
    pub(crate) fn seal(&mut self) {
        if self.mark == 0 {
            Arc::make_mut(&mut self.value).seal_parts();
            // The same in every run and every thread, so that numbers of states can be told.
            self.mark = RandomState::with_seeds(1, 2, 3, 4).hash_one(&self.value) | 1;
        }
    }
}

impl<T: Part> Hash for Shared<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        assert_ne!(self.mark, 0, "a shared value is sealed before it is hashed");
        state.write_u64(self.mark);
    }
}

impl<T: Part> PartialEq for Shared<T> {
    fn eq(&self, other: &Self) -> bool {
        self.mark == other.mark && (Arc::ptr_eq(&self.value, &other.value) || self.value == other.value)
    }
}
impl<T: Part> Eq for Shared<T> {}
