//! What all connections share.
use crate::budget::Budget;
use crate::config::Config;
use crate::connection::Holders;
use crate::dispatch::Answers;
use crate::hooks;
use crate::reload::{ReloadError, Reloaded, Reloader};
use crate::rights::Rights;
use mcpvisor_lifecycle::SessionId;
use mcpvisor_lifecycle::registry::Urgency;
use mcpvisor_supervisor::Supervisor;
use std::sync::{Arc, PoisonError, RwLock};
use tokio::sync::{Notify, watch};

/// The daemon, as a connection sees it; cheap to clone.
#[derive(Clone)]
pub(crate) struct Daemon {
    pub(crate) supervisor: Supervisor,
    shared: Arc<Shared>,
    /// The end: None until the shutdown is complete, then the number of sessions that are quarantined.
    ended: watch::Receiver<Option<usize>>,
}

struct Shared {
    /// Replaced as a whole by a reload.
    settings: RwLock<Settings>,
    /// Of the bytes of all connections' requests.
    budget: Arc<Budget>,
    /// Of requests that have an id.
    answers: Answers,
    lease_holders: Holders,
    /// None of a private daemon, which reads no configuration.
    reloader: Option<Reloader>,
    /// A shutdown was asked for.
    ending: watch::Sender<bool>,
    /// A client has gone: sessions may have come or gone with it.
    stirred: Notify,
}

#[derive(Clone)]
struct Settings {
    config: Arc<Config>,
    rights: Arc<Rights>,
}

impl Daemon {
    /// `ended` is set once, when the supervisor's shutdown is complete.
    pub(crate) fn new(
        supervisor: Supervisor,
        config: Arc<Config>,
        rights: Rights,
        reloader: Option<Reloader>,
        ended: watch::Receiver<Option<usize>>,
    ) -> Self {
        let budget = Budget::new(config.daemon.max_input, config.daemon.max_input_per_user);
        let answers = Answers::new(config.repeats());
        let shared = Shared {
            answers,
            lease_holders: Holders::default(),
            settings: RwLock::new(Settings { config, rights: Arc::new(rights) }),
            budget,
            reloader,
            ending: watch::Sender::new(false),
            stirred: Notify::new(),
        };
        Self { supervisor, shared: Arc::new(shared), ended }
    }

    fn settings(&self) -> Settings {
        self.shared.settings.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The configuration that is in force now. Whoever needs two values that belong together takes it once.
    pub(crate) fn config(&self) -> Arc<Config> {
        self.settings().config
    }

    /// Who may do what now.
    pub(crate) fn rights(&self) -> Arc<Rights> {
        self.settings().rights
    }

    /// Of the bytes of all connections' requests.
    pub(crate) fn budget(&self) -> &Arc<Budget> {
        &self.shared.budget
    }

    /// Of requests that have an id.
    pub(crate) fn answers(&self) -> &Answers {
        &self.shared.answers
    }

    /// Of sessions that live as long as connections do.
    pub(crate) fn lease_holders(&self) -> &Holders {
        &self.shared.lease_holders
    }

    /// Takes a configuration into use: it holds for whatever is asked from now on.
    pub(crate) fn use_config(&self, config: Config) {
        let allow_commands = config.daemon.allow_commands.clone();
        self.supervisor.use_hooks(hooks::set(&config, &self.rights().instance));
        self.supervisor.reconfigure(config.registry(), config.events());
        self.shared.answers.reconfigure(config.repeats());
        self.shared.budget.limit(config.daemon.max_input, config.daemon.max_input_per_user);
        let mut settings = self.shared.settings.write().unwrap_or_else(PoisonError::into_inner);
        let rights = Rights { allow_commands, ..Rights::clone(&settings.rights) };
        *settings = Settings { config: Arc::new(config), rights: Arc::new(rights) };
    }

    /// Reads the configuration again and takes it into use, or changes nothing. Goes on where its caller goes away.
    pub(crate) async fn reload(&self) -> Result<Reloaded, ReloadError> {
        let daemon = self.clone();
        let work = async move {
            match &daemon.shared.reloader {
                Some(reloader) => reloader.reload(&daemon).await,
                None => Err(ReloadError::Private),
            }
        };
        tokio::spawn(work).await.unwrap_or_else(|error| Err(ReloadError::Broke(error.to_string())))
    }

    /// A session was admitted whose definition comes from this configuration. Where a reload has replaced that meanwhile, it may not have seen
    /// the session: it is brought to what its profile is now.
    pub(crate) fn admitted(&self, session: SessionId, read: &Arc<Config>) {
        // `read` is held: what is at its address is no later one.
        if self.shared.reloader.is_none() || Arc::ptr_eq(read, &self.config()) {
            return;
        }
        let daemon = self.clone();
        tokio::spawn(async move {
            if let Some(reloader) = &daemon.shared.reloader {
                reloader.catch_up(&daemon, session).await;
            }
        });
    }

    /// Begins the end, or hurries it.
    pub(crate) fn shut_down(&self, urgency: Urgency) {
        self.shared.ending.send_replace(true);
        self.supervisor.shutdown(urgency);
    }

    /// A shutdown was asked for.
    pub(crate) fn is_ending(&self) -> bool {
        *self.shared.ending.borrow()
    }

    /// Resolves when a shutdown is asked for. Cancel-safe.
    pub(crate) async fn ending(&self) {
        let mut ending = self.shared.ending.subscribe();
        // The sender lives as long as we do.
        let _ = ending.wait_for(|ending| *ending).await;
    }

    /// Sessions may have come or gone.
    pub(crate) fn stir(&self) {
        self.shared.stirred.notify_one();
    }

    /// Resolves when sessions may have come or gone since the last time. For one waiter. Cancel-safe.
    pub(crate) async fn stirred(&self) {
        self.shared.stirred.notified().await;
    }

    /// The shutdown is complete.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.borrow().is_some()
    }

    /// Resolves when the shutdown is complete, with the number of sessions that are quarantined.
    pub(crate) async fn ended(&self) -> usize {
        let mut ended = self.ended.clone();
        let left = ended.wait_for(Option::is_some).await.map(|left| left.unwrap_or(0));
        // The sender is gone only when the whole daemon is.
        left.unwrap_or(0)
    }
}
