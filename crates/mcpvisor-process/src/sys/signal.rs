//! Dispositions of this process.
use super::child::disposition;
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// What [`ignore_signal`] was told.
static ADDED: AtomicU64 = AtomicU64::new(0);

/// Ignores a signal from now on.
pub(crate) fn ignore_signal(signal: i32) -> io::Result<()> {
    // SAFETY: ignoring a signal installs no code of ours.
    if unsafe { libc::signal(signal, libc::SIG_IGN) } == libc::SIG_ERR {
        return Err(io::Error::last_os_error());
    }
    ADDED.fetch_or(1 << (signal - 1), Ordering::Relaxed);
    Ok(())
}

/// The signals that this process may ignore, as a mask (bit 0 is signal 1): what it was started with, what the standard library
/// set before `main`, and what [`ignore_signal`] added. The kernel is asked once, since nothing else here ignores a signal.
pub(super) fn ignored() -> u64 {
    static AT_FIRST: OnceLock<u64> = OnceLock::new();
    let at_first = AT_FIRST.get_or_init(|| {
        (1..=64)
            .filter(|signal| disposition(*signal) == Some(libc::SIG_IGN))
            .fold(0, |mask, s| mask | 1 << (s - 1))
    });
    at_first | ADDED.load(Ordering::Relaxed)
}
