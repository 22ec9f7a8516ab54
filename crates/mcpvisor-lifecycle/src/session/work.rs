//! What is being done with a server of a session: a change that was asked for, or nothing.
use super::types::{ChangeRefusal, Changed};
use crate::{Moment, Place, RequestId};

/// Who waits for the end of a server that leaves, and what each is told once nothing of it is left.
pub(super) type Waiting = Vec<(RequestId, Result<Changed, ChangeRefusal>)>;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Work {
    /// Nothing: it is one of the session's servers.
    Member,
    /// Being added, perhaps in the place of a member; nobody sees it before it is ready.
    Joining { request: RequestId, replaces: Option<Place> },
    /// A member that is to be restarted: its calls in flight may finish first.
    Holding { until: Moment, requests: Vec<RequestId> },
    /// A member that was told to start again. `over`: nothing is left of its old incarnation. Before that whatever it says of an end
    /// was said before it was told, and is not its last word.
    Restarting { requests: Vec<RequestId>, over: bool },
    /// A member that is to make room for another: its calls in flight may finish first.
    Yielding { until: Moment, request: Option<RequestId> },
    /// A member that was told to stop, and has made room once nothing of it is left.
    Yielded { request: Option<RequestId> },
    /// Not the session's any more; its calls in flight may finish first.
    Retiring { until: Moment, waiting: Waiting },
    /// Not the session's any more, and being ended.
    Leaving { waiting: Waiting },
}

impl Work {
    /// It counts for what the session is.
    pub(super) fn is_member(&self) -> bool {
        matches!(
            self,
            Self::Member
                | Self::Holding { .. }
                | Self::Restarting { .. }
                | Self::Yielding { .. }
                | Self::Yielded { .. }
        )
    }

    /// It may be replaced, or removed.
    pub(super) fn is_at_rest(&self) -> bool {
        matches!(self, Self::Member | Self::Yielded { request: None })
    }

    /// When its drain ends.
    pub(super) fn until(&self) -> Option<Moment> {
        match self {
            Self::Holding { until, .. } | Self::Yielding { until, .. } | Self::Retiring { until, .. } => {
                Some(*until)
            }
            _ => None,
        }
    }
}
