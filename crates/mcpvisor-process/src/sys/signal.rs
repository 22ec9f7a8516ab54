//! Dispositions of this process.
use std::io;

/// Ignores a signal from now on.
pub(crate) fn ignore_signal(signal: i32) -> io::Result<()> {
    // SAFETY: ignoring a signal installs no code of ours.
    if unsafe { libc::signal(signal, libc::SIG_IGN) } == libc::SIG_ERR {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
