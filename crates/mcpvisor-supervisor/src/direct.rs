//! Direct mode: the server is born with its client's stdin and stdout; the daemon keeps a copy of stdin, to notice the
//! client's hang-up, and nothing of stdout.
use crate::api::DirectStreams;
use crate::relay::hangup::HangUp;
use mcpvisor_process::Stdio;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::task::AbortHandle;

/// What the server is born with; leaves the copy that is watched in `streams`.
pub(crate) fn stdio(streams: &mut DirectStreams) -> io::Result<Stdio> {
    let given = streams.take_given()?;
    Ok(Stdio::Given { stdin: given.0, stdout: given.1 })
}

/// A watch of the client's hang-up. Dropping it ends it, and drops the copy of stdin.
pub(crate) struct Watch {
    hang_up: Weak<HangUp>,
    task: AbortHandle,
}

impl Watch {
    /// The client has closed its end by now.
    pub(crate) fn client_hung_up(&self) -> bool {
        self.hang_up.upgrade().is_some_and(|hang_up| hang_up.is_hung_up())
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Watches the copy of stdin, and calls `ended` once: when the client has hung up and the server has read what was sent
/// before (a slow starter must not lose piped requests), or has not done so within `patience`.
pub(crate) fn watch(
    streams: &mut DirectStreams,
    patience: Duration,
    ended: impl FnOnce() + Send + 'static,
) -> io::Result<Option<Watch>> {
    let Some(copy) = streams.take_copy() else { return Ok(None) };
    let hang_up = Arc::new(HangUp::new(copy)?);
    let watched = Arc::downgrade(&hang_up);
    let task = tokio::spawn(async move {
        hang_up.hung_up().await;
        // One that does not read in all its patience is not going to.
        let _ = tokio::time::timeout(patience, hang_up.drained()).await;
        ended();
    });
    Ok(Some(Watch { hang_up: watched, task: task.abort_handle() }))
}

impl DirectStreams {
    /// The client's stdin and stdout, for the server; a copy of stdin stays here.
    fn take_given(&mut self) -> io::Result<(OwnedFd, OwnedFd)> {
        let gone = || io::Error::other("the client's streams were used already");
        let stdin = self.stdin.take().ok_or_else(gone)?;
        let stdout = self.stdout.take().ok_or_else(gone)?;
        self.copy = Some(stdin.try_clone()?);
        Ok((stdin, stdout))
    }

    /// The client's stdin and stdout, to be relayed.
    pub(crate) fn take_relayed(&mut self) -> Option<(OwnedFd, OwnedFd)> {
        Some((self.stdin.take()?, self.stdout.take()?))
    }

    fn take_copy(&mut self) -> Option<OwnedFd> {
        self.copy.take()
    }
}
