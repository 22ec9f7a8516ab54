//! A read buffer per thread, so that an idle connection has none of its own.
use std::cell::RefCell;

/// As much as a pipe holds by default.
const SIZE: usize = 64 << 10;

thread_local! {
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; SIZE].into_boxed_slice());
}

/// Lends this thread's buffer. Not to be nested; what it holds is left over from whoever had it before.
pub(crate) fn with<R>(work: impl FnOnce(&mut [u8]) -> R) -> R {
    SCRATCH.with_borrow_mut(|buffer| work(buffer))
}
