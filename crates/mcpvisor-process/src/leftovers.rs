//! What former daemons have left: who they were, which sessions they had, and how those are brought to their end.
//!
//! A daemon that is killed can write nothing down any more, so each session is noted before its first process is born, and its note
//! goes when nothing of it is left. The next daemon reads what notes there are, and ends what is left of each: see `notes` for what
//! lies where, and `sweep` for the end.
pub(crate) mod handle;
pub(crate) mod marked;
pub(crate) mod notes;
mod sweep;

use crate::{ContainmentKind, InstanceId};
use std::sync::Arc;

/// A session of a daemon that is dead. No other has the same: instances are random.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LeftId {
    /// The dead daemon.
    pub instance: InstanceId,
    /// As in [`ScopeId`](crate::ScopeId).
    pub session: Arc<str>,
}

/// A session that was not gone at the first look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Left {
    /// Its name.
    pub id: LeftId,
    /// What [`LaunchSpec::note`](crate::LaunchSpec) said of it. None: it was not noted, or its note can't be read.
    pub note: Option<String>,
    /// What contained it.
    pub containment: ContainmentKind,
}
