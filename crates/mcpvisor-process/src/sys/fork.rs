//! Into the background.
use std::io;

/// Forks twice with a new session between: the caller's process exits with 0, the grandchild returns.
/// The caller has made sure that there is one thread only.
pub(crate) fn background() -> io::Result<()> {
    fork_and_leave_parent()?;
    // SAFETY: no memory is involved.
    if unsafe { libc::setsid() } == -1 {
        return Err(io::Error::last_os_error());
    }
    // The second fork: no leader of a session, so that no terminal that is opened later becomes ours.
    fork_and_leave_parent()
}

fn fork_and_leave_parent() -> io::Result<()> {
    // SAFETY: there is one thread only, so the child's memory is consistent, locks included.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(()),
        // SAFETY: _exit runs no handler and flushes nothing: buffers belong to the child now.
        _ => unsafe { libc::_exit(0) },
    }
}
