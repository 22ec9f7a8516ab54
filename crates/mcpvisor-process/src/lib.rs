//! Containment of processes on Linux: scopes, spawning, reaping. The only crate with unsafe code, in `sys.rs`.
//!
//! A *scope* is what one server's process tree lives in: a cgroup, or, where there is none, a keeper process.
//! The *reaper* (one thread, started before everything else and ended after it) holds all kernel handles and
//! says when a scope is empty. Launches run on a launcher thread of their own.
pub mod api;
pub use api::*;
