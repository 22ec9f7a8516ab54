//! What all connections share.
use crate::budget::Budget;
use crate::config::Config;
use crate::rights::Rights;
use mcpvisor_lifecycle::registry::Urgency;
use mcpvisor_supervisor::Supervisor;
use std::sync::Arc;
use tokio::sync::watch;

/// The daemon, as a connection sees it; cheap to clone.
#[derive(Clone)]
pub(crate) struct Daemon {
    pub(crate) supervisor: Supervisor,
    pub(crate) config: Arc<Config>,
    pub(crate) rights: Arc<Rights>,
    /// Of the bytes of all connections' requests.
    pub(crate) budget: Arc<Budget>,
    /// The end: None until the shutdown is complete, then the number of sessions that are quarantined.
    ended: watch::Receiver<Option<usize>>,
}

impl Daemon {
    /// `ended` is set once, when the supervisor's shutdown is complete.
    pub(crate) fn new(
        supervisor: Supervisor,
        config: Arc<Config>,
        rights: Rights,
        ended: watch::Receiver<Option<usize>>,
    ) -> Self {
        let budget = Budget::new(config.daemon.max_input, config.daemon.max_input_per_user);
        Self { supervisor, config, rights: Arc::new(rights), budget, ended }
    }

    /// Begins the end, or hurries it.
    pub(crate) fn shut_down(&self, urgency: Urgency) {
        self.supervisor.shutdown(urgency);
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
