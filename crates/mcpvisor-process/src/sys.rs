//! What the kernel offers and no safe crate wraps. The only unsafe code of the project.
#![expect(
    unsafe_code,
    reason = "clone3 with a shared address space, raw set-id calls and fork have no safe form"
)]

mod child;
mod clone;
#[cfg(feature = "count-allocations")]
mod count;
mod fork;
mod signal;
mod wait;

pub(crate) use child::{Identity, Limit, Plan, Stage};
pub(crate) use clone::{Stack, probe_clone, spawn};
#[cfg(feature = "count-allocations")]
pub use count::{CountingAllocator, live_allocations};
pub(crate) use fork::background;
pub(crate) use signal::ignore_signal;
pub(crate) use wait::{Reaped, peek_any, reap, wait_exited};
