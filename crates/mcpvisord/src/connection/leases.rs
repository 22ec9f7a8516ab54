//! The sessions that live as long as a connection does.
use mcpvisor_lifecycle::SessionId;
use mcpvisor_supervisor::Supervisor;
use std::sync::{Arc, Mutex, PoisonError};

/// Cheap to clone. A session that is added after the end ends at once.
#[derive(Clone)]
pub(crate) struct Leases {
    supervisor: Supervisor,
    /// None: the connection has ended.
    sessions: Arc<Mutex<Option<Vec<SessionId>>>>,
}

impl Leases {
    pub(crate) fn new(supervisor: Supervisor) -> Self {
        Self { supervisor, sessions: Arc::new(Mutex::new(Some(Vec::new()))) }
    }

    /// From now on the session ends with the connection.
    pub(crate) fn add(&self, session: SessionId) {
        match &mut *self.sessions.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(sessions) => sessions.push(session),
            None => self.supervisor.lease_ended(session),
        }
    }

    /// The session is one of the connection's.
    pub(crate) fn holds(&self, session: SessionId) -> bool {
        let sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.as_ref().is_some_and(|sessions| sessions.contains(&session))
    }

    /// The session is none of the connection's any more.
    pub(crate) fn has_ended(&self) -> bool {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    /// The connection has ended.
    pub(super) fn end(&self) {
        let sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner).take();
        for session in sessions.into_iter().flatten() {
            self.supervisor.lease_ended(session);
        }
    }
}
