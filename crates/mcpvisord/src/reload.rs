//! Takes a changed configuration into use while the daemon runs. The new one is read and checked whole first: either all of it that
//! can change takes effect, or nothing does, and every error is told at once, in the log and to whoever asked.
mod changes;
mod plan;
mod sessions;

use crate::config::{LoadError, Source};
use crate::daemon::Daemon;
use crate::log::LevelHandle;
use crate::systemd;
use mcpvisor_control::{ErrorKind, ErrorObject, results};
use mcpvisor_lifecycle::SessionId;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::sync::Mutex;

/// How long the file may take to be read: it may lie on a mount that is dead.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a reload needs to know of the daemon's start.
#[derive(Debug)]
pub(crate) struct Reloader {
    pub(crate) source: Source,
    pub(crate) log_level: LevelHandle,
    /// One at a time.
    turn: Mutex<()>,
}

/// What a reload has done.
#[derive(Debug, Clone)]
pub(crate) struct Reloaded {
    /// The file that was read; none where there is none any more, and the defaults hold.
    file: Option<String>,
    /// What has changed and holds now, by name.
    applied: Vec<String>,
    /// What has changed and holds after a restart.
    needs_restart: Vec<String>,
    /// What was done in live sessions.
    sessions: Vec<results::ReloadedSession>,
}

/// Why nothing was changed. The text completes "failed to reload the configuration".
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReloadError {
    #[error("{}", summary(.0))]
    Load(#[from] LoadError),
    #[error("{message}")]
    NotHonoured { message: String, help: String },
    #[error("the file could not be read within {} seconds", PATIENCE.as_secs())]
    TooSlow,
    #[error("the daemon is ending")]
    Ending,
    #[error("a private daemon reads no configuration")]
    Private,
    #[error("the reload broke: {0}")]
    Broke(String),
}

/// One line; the report with every error is told besides.
fn summary(error: &LoadError) -> String {
    match error {
        LoadError::Wrong(problems) => problems.summary(),
        LoadError::Read { .. } => error.to_string(),
    }
}

impl Reloader {
    pub(crate) fn new(source: Source, log_level: LevelHandle) -> Self {
        Self { source, log_level, turn: Mutex::new(()) }
    }

    /// Reads the configuration and takes it into use. Not to be cancelled halfway: [`Daemon::reload`] runs it as a task.
    ///
    /// # Errors
    /// See [`ReloadError`]; nothing has changed then.
    pub(super) async fn reload(&self, daemon: &Daemon) -> Result<Reloaded, ReloadError> {
        let _turn = self.turn.lock().await;
        if daemon.is_ending() {
            return Err(ReloadError::Ending);
        }
        systemd::reloading();
        let former = daemon.config();
        let mut result = self.replace(daemon).await;
        systemd::ready();
        tell(&result);
        if let Ok(done) = &mut result {
            done.sessions = sessions::apply(daemon, &former, &daemon.config()).await;
        }
        result
    }

    /// Brings a session to the configuration that is in force, which is newer than the one it was opened by.
    pub(super) async fn catch_up(&self, daemon: &Daemon, session: SessionId) {
        let _turn = self.turn.lock().await;
        if !daemon.is_ending() {
            sessions::catch_up(daemon, session).await;
        }
    }

    async fn replace(&self, daemon: &Daemon) -> Result<Reloaded, ReloadError> {
        let source = self.source.clone();
        let read = tokio::task::spawn_blocking(move || (source.path(), source.load()));
        let (path, loaded) = tokio::time::timeout(PATIENCE, read)
            .await
            .map_err(|_| ReloadError::TooSlow)?
            .map_err(|error| ReloadError::Broke(error.to_string()))?;
        let wanted = loaded?;
        wanted.can_be_honoured().map_err(|(message, help)| ReloadError::NotHonoured { message, help })?;
        let current = daemon.config();
        let (applied, needs_restart) = changes::between(&current, &wanted);
        let next = changes::without_restart(&current, wanted);
        self.log_level.set(next.daemon.log_level);
        daemon.use_config(next);
        Ok(Reloaded {
            file: path.map(|path| path.display().to_string()),
            applied,
            needs_restart,
            sessions: Vec::new(),
        })
    }
}

/// The log gets what the caller gets.
fn tell(result: &Result<Reloaded, ReloadError>) {
    match result {
        Ok(done) => {
            let (applied, file) = (done.applied.join(", "), done.file.as_deref());
            tracing::info!(file, applied, "the configuration was reloaded");
            if !done.needs_restart.is_empty() {
                let keys = done.needs_restart.join(", ");
                tracing::warn!(keys, "these have changed in the configuration and hold after a restart");
            }
        }
        Err(error) => {
            if let ReloadError::Load(LoadError::Wrong(problems)) = error {
                problems.lines().for_each(|line| tracing::error!("{line}"));
            }
            tracing::error!(%error, "the configuration was not reloaded; the former one stays in force");
        }
    }
}

impl Reloaded {
    pub(crate) fn into_wire(self) -> results::Reloaded {
        results::Reloaded {
            file: self.file,
            applied: self.applied,
            needs_restart: self.needs_restart,
            sessions: self.sessions,
        }
    }
}

impl ReloadError {
    /// As the protocol tells it.
    pub(crate) fn into_wire(self) -> ErrorObject {
        let message = self.to_string();
        let kind = match &self {
            Self::Load(_) | Self::NotHonoured { .. } | Self::TooSlow => ErrorKind::InvalidConfiguration,
            Self::Ending => ErrorKind::Draining,
            Self::Private => ErrorKind::Unsupported,
            Self::Broke(_) => ErrorKind::Internal,
        };
        let error = ErrorObject::new(kind, message);
        match self {
            Self::Load(LoadError::Wrong(problems)) => {
                let list: Vec<Value> = problems
                    .iter()
                    .map(|(place, problem)| {
                        json!({
                            "line": place.line,
                            "column": place.column,
                            "message": problem.message,
                            "help": problem.help,
                        })
                    })
                    .collect();
                error
                    .with("file", problems.name())
                    .with("problems", list)
                    .with("report", problems.to_string())
            }
            Self::NotHonoured { help, .. } => error.with("help", help),
            _ => error,
        }
    }
}

#[cfg(test)]
mod tests;
