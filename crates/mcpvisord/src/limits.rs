//! The limit of open files: the daemon needs more than programs get by default, and what it starts gets what it got.
use mcpvisor_process::ResourceLimit;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::sync::OnceLock;

/// RLIMIT_NOFILE, as the kernel numbers it.
const OPEN_FILES: u32 = 7;

static ORIGINAL: OnceLock<ResourceLimit> = OnceLock::new();

/// Raises the soft limit to the hard one. Programs that use select(2) break where theirs is high, so servers get the
/// original (see [`with_original`]).
pub(crate) fn raise() {
    let limit = getrlimit(Resource::Nofile);
    let (soft, hard) = (limit.current, limit.maximum);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: hard, maximum: hard });
    if raised.is_ok() {
        let infinite = u64::MAX;
        let original = ResourceLimit {
            resource: OPEN_FILES,
            soft: soft.unwrap_or(infinite),
            hard: hard.unwrap_or(infinite),
        };
        let _ = ORIGINAL.set(original);
    }
}

/// The limits of a server: those that were asked for, and the original of open files where none was.
pub(crate) fn with_original(mut limits: Vec<ResourceLimit>) -> Vec<ResourceLimit> {
    if let Some(original) = ORIGINAL.get()
        && !limits.iter().any(|limit| limit.resource == OPEN_FILES)
    {
        limits.push(*original);
    }
    limits
}
