//! The service manager (sd_notify(3)): readiness, reloads, a status line with counts, the watchdog, and more time for a stop that
//! goes on. Where there is no service manager, nothing of this does anything, and no timer exists.
//!
//! The watchdog is fed only with answers of the registry's actor: a daemon whose threads live and whose registry hangs is restarted. The
//! same answers extend the time of a stop: each of its steps has a budget of its own, so a drain may take longer than any fixed
//! `TimeoutStopSec=`, and only a daemon that makes no progress is to be killed.
use crate::daemon::Daemon;
use mcpvisor_lifecycle::registry::Counts;
use sd_notify::NotifyState;
use std::time::Duration;
use tokio::time::Instant;

/// Between two status lines, at least.
const BETWEEN: Duration = Duration::from_secs(1);
/// Between two extensions of a stop …
const EXTEND_EVERY: Duration = Duration::from_secs(5);
/// … each of which asks for so long.
const EXTENSION: Duration = Duration::from_secs(20);
/// How long the registry may take to answer where there is no watchdog.
const PATIENCE: Duration = Duration::from_secs(5);

/// What is ready is told: at the start, and after a reload.
pub(crate) fn ready() {
    notify(&[NotifyState::Ready]);
}

/// A reload has begun; [`ready`] follows. systemd 253 and later wants the time with it, earlier ones pass over it.
pub(crate) fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => notify(&[NotifyState::Reloading, now]),
        // Without it the message would fail the service.
        Err(error) => tracing::warn!(%error, "the service manager is not told of the reload"),
    }
}

fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "the service manager can't be told");
    }
}

/// What never comes to an end by itself.
pub(crate) enum Never {}

/// Tells the service manager how it goes, as long as the daemon lives.
pub(crate) async fn keep_told(daemon: &Daemon) -> Never {
    if std::env::var_os("NOTIFY_SOCKET").is_some() {
        Manager::new(sd_notify::watchdog_enabled()).run(daemon).await
    } else {
        std::future::pending().await
    }
}

#[derive(Debug)]
struct Manager {
    /// Half of the watchdog's time, as sd_watchdog_enabled(3) recommends.
    beat: Option<Duration>,
    told: String,
}

impl Manager {
    fn new(watchdog: Option<Duration>) -> Self {
        Self { beat: watchdog.map(|limit| limit / 2), told: String::new() }
    }

    async fn run(mut self, daemon: &Daemon) -> Never {
        let mut stopping = false;
        loop {
            if daemon.is_ending() && !stopping {
                stopping = true;
                notify(&[NotifyState::Stopping]);
            }
            let asked = Instant::now();
            let answered = self.beat(daemon, stopping).await;
            self.wait(daemon, stopping, asked, answered).await;
        }
    }

    /// How long an answer is waited for. The watchdog was fed a beat before the question and kills a beat after it:
    /// what is left of that is for the record to get out.
    fn patience(&self) -> Duration {
        self.beat.map_or(PATIENCE, |beat| PATIENCE.min(beat / 2))
    }

    /// Asks the registry, and passes its answer on. False where it did not answer in time.
    async fn beat(&mut self, daemon: &Daemon, stopping: bool) -> bool {
        let Ok(Ok((counts, fenced))) =
            tokio::time::timeout(self.patience(), daemon.supervisor.counts()).await
        else {
            tracing::error!("the registry does not answer: the service manager is not told that all is well");
            return false;
        };
        let status = status(&counts, fenced, stopping);
        let mut states = Vec::with_capacity(3);
        if self.beat.is_some() {
            states.push(NotifyState::Watchdog);
        }
        if stopping {
            states.push(NotifyState::ExtendTimeoutUsec(micros(EXTENSION)));
        }
        if status != self.told {
            states.push(NotifyState::Status(&status));
        }
        if !states.is_empty() {
            notify(&states);
        }
        self.told = status;
        true
    }

    /// Until there is something to tell.
    async fn wait(&self, daemon: &Daemon, stopping: bool, asked: Instant, answered: bool) {
        let every = if stopping { Some(EXTEND_EVERY) } else { None };
        let mut next = self.beat.into_iter().chain(every).min();
        if !answered {
            // A registry that was lost is replaced within moments.
            next = next.map(|next| next / 4);
        }
        let timer = async {
            match next {
                Some(next) => tokio::time::sleep_until(asked + next).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = timer => {}
            () = daemon.ending(), if !stopping => {}
            () = stirred(daemon, asked) => {}
        }
    }
}

/// Sessions may have come or gone, and the last line is old enough.
async fn stirred(daemon: &Daemon, last: Instant) {
    daemon.stirred().await;
    tokio::time::sleep_until(last + BETWEEN).await;
}

fn micros(span: Duration) -> u32 {
    u32::try_from(span.as_micros()).unwrap_or(u32::MAX)
}

/// One line for `systemctl status`.
fn status(counts: &Counts, fenced: bool, stopping: bool) -> String {
    let Counts { starting, live, dying, limit, shared_quarantined, .. } = *counts;
    // What is left of a server that sessions share is as bad.
    let quarantined = counts.quarantined + shared_quarantined;
    let used = starting + live + dying + quarantined;
    let sessions = if used == 1 { "session" } else { "sessions" };
    let mut text = match (stopping, fenced) {
        (true, _) => format!("ending: {used} {sessions} left"),
        (false, true) => format!("admits no more: {used} {sessions} left"),
        (false, false) => format!("serving {used} {sessions} of at most {limit}"),
    };
    let parts = [(starting, "starting"), (dying, "closing"), (quarantined, "quarantined")];
    let parts: Vec<String> =
        parts.iter().filter(|(count, _)| *count > 0).map(|(count, word)| format!("{count} {word}")).collect();
    if !parts.is_empty() {
        text.push_str(&format!(" ({})", parts.join(", ")));
    }
    text
}

#[cfg(test)]
mod tests;
