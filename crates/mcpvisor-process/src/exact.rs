//! Signals to a process that was found by its number. The number may be a stranger's by the time of the signal; a pidfd can't be.
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// Signals a process, if what was true of it still is when its descriptor is open: whoever answers to the number after that is
/// the process of the descriptor, or that is gone and nobody is signalled. True: it was sent.
pub(crate) fn signal_if(pid: u32, signal: Signal, still: impl FnOnce() -> bool) -> bool {
    let Some(raw) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return false };
    let Ok(pidfd) = pidfd_open(raw, PidfdFlags::empty()) else { return false };
    // It may have exited meanwhile.
    still() && pidfd_send_signal(&pidfd, signal).is_ok()
}
