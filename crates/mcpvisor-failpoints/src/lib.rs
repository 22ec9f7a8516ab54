//! Gates at which tests hold the daemon: one at each await and each hop between tasks, actors and threads that an open, a
//! close or a shutdown passes.
//!
//! A test says at which gate the next arrival is to be held, waits until the daemon stands there, does what it wants to see done
//! at this very moment, and lets it go. Without the feature `enabled` every function here is empty, and the compiler takes it out.
#[cfg(feature = "enabled")]
mod drive;
mod gates;

pub use gates::Gate;

/// The variable that names the socket on which a daemon built with the feature takes its orders.
#[cfg(feature = "enabled")]
pub const SOCKET: &str = "MCPVISOR_FAILPOINTS";

/// Passes a gate in asynchronous code, where a test may hold the task: other tasks of its thread go on. A future that is dropped while it
/// is held has left the gate.
#[inline]
pub async fn pass(gate: Gate) {
    #[cfg(feature = "enabled")]
    drive::pass(gate).await;
    #[cfg(not(feature = "enabled"))]
    let _ = gate;
}

/// Passes a gate on a thread of its own, which a test may hold. Never to be called on the runtime's.
#[inline]
pub fn pass_thread(gate: Gate) {
    #[cfg(feature = "enabled")]
    drive::pass_thread(gate);
    #[cfg(not(feature = "enabled"))]
    let _ = gate;
}

/// Takes orders from now on, where the environment names a socket for them. Starts a thread.
///
/// # Errors
/// Where the socket can't be listened on.
#[inline]
pub fn start() -> std::io::Result<()> {
    #[cfg(feature = "enabled")]
    drive::start()?;
    Ok(())
}
