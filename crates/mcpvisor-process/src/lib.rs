//! Containment of processes on Linux: scopes, spawning, reaping. The only crate with unsafe code, in `sys.rs`.
//!
//! A *scope* is what one server's process tree lives in: a cgroup, or, where there is none, a keeper process.
//! The *reaper* (one thread, started before everything else and ended after it) holds all kernel handles and
//! says when a scope is empty. Launches run on a launch thread of their own.
//!
//! | module | what it is |
//! | --- | --- |
//! | `api` | the types of the interface |
//! | `handle` | [`Containment`], [`Threads`], [`start`] |
//! | `reaper` | the thread that holds every scope, and alone reaps |
//! | `launch` | the launch threads: cgroup, pipes, birth |
//! | `resolve` | finding program and directory, on a thread that may hang |
//! | `cgroup` | where our cgroups may lie, and what is done with them |
//! | `keeper` | the keeper process, and what is said to it |
//! | `guardian` | the process that kills what a killed daemon leaves |
//! | `leftovers` | what a daemon notes for its successor, and how that ends what is left |
//! | `sys` | system calls without a safe form |
pub mod api;
mod cgroup;
mod command;
mod crew;
mod exact;
mod guardian;
mod handle;
mod holder;
mod keeper;
mod launch;
mod leftovers;
mod probe;
mod procfs;
mod reaper;
mod reserve;
mod resolve;
mod sys;

pub use api::*;
pub use guardian::guardian_main;
pub use handle::{Containment, SessionReports, Threads, detach, start};
pub use holder::{Holder, HolderError, HolderWatch};
pub use keeper::keeper_main;
pub use leftovers::{Left, LeftId};
pub use probe::probe;
pub use procfs::read_whole;
#[cfg(feature = "count-allocations")]
pub use sys::{CountingAllocator, live_allocations};
