//! What a session knows of one of its servers.
use super::work::Work;
use crate::server::ServerReport;
use crate::{Place, RequestId, ServerName};

/// One server of the session.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Slot {
    pub(super) place: Place,
    pub(super) name: ServerName,
    pub(super) required: bool,
    pub(super) significant: bool,
    pub(super) status: Status,
    /// Its actor is gone; the reaper speaks for it.
    pub(super) lost: bool,
    /// Its ladder was told to begin at SIGTERM.
    pub(super) term_first: bool,
    /// What is being done with it.
    pub(super) work: Work,
    /// Whose add has published it.
    pub(super) added_by: Option<RequestId>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Status {
    /// Not started; nothing of it exists.
    Unstarted,
    /// On its way, for the first time or again.
    Starting,
    Ready,
    /// Its ladder began by itself (direct mode).
    Ending,
    /// Its kill ran out of time, and nothing more is being tried.
    Quarantined,
    /// Its scope is being killed, again or by the reaper alone; the outcome is not yet known.
    Killing,
    /// Gone: it ended by itself.
    Ended,
    /// Gone: it failed for good.
    Failed,
    /// Gone: it was stopped.
    Stopped,
}

impl Slot {
    /// Nothing of it is left, by proof.
    pub(super) fn is_gone(&self) -> bool {
        matches!(self.status, Status::Unstarted | Status::Ended | Status::Failed | Status::Stopped)
    }

    /// The session does not go on without it.
    pub(super) fn matters(&self) -> bool {
        self.required || self.significant
    }

    /// Its outcome is known for now.
    pub(super) fn is_settled(&self) -> bool {
        self.is_gone() || self.status == Status::Quarantined
    }

    /// It can be told something.
    pub(super) fn is_reachable(&self) -> bool {
        !self.is_gone() && !self.lost
    }

    /// Takes a report; false where it comes too late to matter.
    pub(super) fn take(&mut self, report: ServerReport) -> bool {
        if self.is_gone() {
            return false;
        }
        let status = match report {
            ServerReport::Ready => Status::Ready,
            ServerReport::Restarting | ServerReport::Relaunched => Status::Starting,
            ServerReport::Ending => Status::Ending,
            ServerReport::Failed(_) => Status::Failed,
            ServerReport::Ended => Status::Ended,
            ServerReport::Stopped => Status::Stopped,
            ServerReport::Quarantined => Status::Quarantined,
        };
        let outcome = matches!(
            report,
            ServerReport::Failed(_) | ServerReport::Ended | ServerReport::Stopped | ServerReport::Quarantined
        );
        // What a lost actor said before it was lost may arrive afterwards; only how it came out still counts.
        if self.lost && !outcome {
            return false;
        }
        // Told to start again it does, whatever it had said before.
        let before_restart = matches!(self.work, Work::Restarting { over: false, .. })
            && !matches!(
                report,
                ServerReport::Relaunched | ServerReport::Stopped | ServerReport::Quarantined
            );
        if before_restart {
            return false;
        }
        self.status = status;
        true
    }
}
