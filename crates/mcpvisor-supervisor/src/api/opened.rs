//! The good answer of an open.
use super::token::Token;
use super::view::SessionView;
use crate::record::SessionRecord;
use mcpvisor_lifecycle::{RequestId, SessionId};
use std::fmt;
use std::sync::Arc;

/// How an open ended well.
#[derive(Debug, Clone)]
pub struct Opened {
    /// The session.
    pub session: SessionView,
    /// This open started it; false where it joined.
    pub created: bool,
    /// Takes it back, where its answer does not reach who asked for it: see [`Supervisor::unheard`](crate::Supervisor::unheard).
    pub opener: Opener,
    /// Its token, where this open started it and it has one.
    pub token: Option<Token>,
    /// Its end is known through this, for as long as it is kept.
    pub kept: Kept,
}

/// An open that was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opener {
    pub(crate) session: SessionId,
    pub(crate) request: RequestId,
}

/// A session that is not forgotten before this is dropped, however many have ended since.
#[derive(Clone)]
pub struct Kept(pub(crate) Arc<SessionRecord>);

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Kept").field(&self.0.id).finish()
    }
}

impl Kept {
    /// Which.
    #[must_use]
    pub fn session(&self) -> SessionId {
        self.0.id
    }
}
