//! What clients ask for.
use mcpvisor_lifecycle::registry::{Goal, Urgency};
use mcpvisor_lifecycle::session::CloseReason;
use mcpvisor_lifecycle::{KeyRef, SessionKey, Tenant, Uid};

/// An open; the key is a place in [`Config::keys`](crate::Config::keys).
#[derive(Debug, Clone, Copy)]
pub struct OpenAsk {
    /// Which key.
    pub key: u8,
    /// Two opens are the same session if it is equal.
    pub definition: u64,
    /// Waits for ready.
    pub wait: bool,
    /// Joins an open session.
    pub join: bool,
    /// Waits for a key that is being torn down.
    pub park: bool,
    /// Its quota group.
    pub tenant: Option<&'static str>,
    /// On the registry's clock, in microseconds.
    pub deadline: Option<u64>,
    /// The key of the session that it is opened below.
    pub parent: Option<u8>,
    /// Until when it waits for a slot, on the registry's clock, in microseconds.
    pub queue: Option<u64>,
    /// A process holds the lease of what it opens.
    pub holder: bool,
}

/// A change of a live session's servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// Another server.
    Add,
    /// Another one in the place of one: started first.
    Replace,
    /// The same, where the two must never run at once: the old one makes room, and is started again where the new one fails.
    StopFirst,
    /// One server less.
    Remove {
        /// Its calls may finish.
        drain: bool,
    },
    /// Stopped and started again.
    Restart {
        /// Its calls may finish.
        drain: bool,
    },
}

/// What a client of the model does.
#[derive(Debug, Clone, Copy)]
pub enum Ask {
    /// Opens a key.
    Open(OpenAsk),
    /// Closes what holds a key, or one generation.
    Close {
        /// Which key.
        key: u8,
        /// Which generation; none for the one that holds the key.
        generation: Option<u64>,
        /// Without a drain.
        now: bool,
        /// Waits for the end.
        wait: bool,
    },
    /// Waits.
    Wait {
        /// Which key.
        key: u8,
        /// What for.
        goal: Goal,
        /// On the registry's clock, in microseconds.
        deadline: Option<u64>,
    },
    /// Tries a kill again.
    RetryKill {
        /// Which key.
        key: u8,
    },
    /// Has the daemon shut down; answered at once, as far as the model goes.
    Shutdown(Urgency),
    /// A lease wants to close what holds a key now; its word is on its way for a while.
    Lease {
        /// Which key.
        key: u8,
        /// Why.
        reason: CloseReason,
    },
    /// A client whose end is to be its session's goes; the word of that is on its way for a while.
    Detach {
        /// Which key.
        key: u8,
    },
    /// Calls a tool of what holds a key.
    Call {
        /// Which key.
        key: u8,
        /// A person decides first.
        held: bool,
    },
    /// Decides the oldest call of a key's session that was ever held; answered at once.
    Decide {
        /// Which key.
        key: u8,
        /// How.
        approve: bool,
    },
    /// Changes the servers of what holds a key.
    Change {
        /// Which key.
        key: u8,
        /// The server's name, by its number.
        server: u8,
        /// How.
        what: What,
    },
}

impl Ask {
    /// Whether an answer is owed.
    pub(crate) fn is_answered(self) -> bool {
        !matches!(self, Self::Shutdown(_) | Self::Lease { .. } | Self::Detach { .. } | Self::Decide { .. })
    }

    /// An open that is not content with being admitted.
    pub(crate) fn waits_for_ready(self) -> bool {
        matches!(self, Self::Open(OpenAsk { wait: true, .. }))
    }

    pub(crate) fn key(self) -> Option<u8> {
        match self {
            Self::Open(OpenAsk { key, .. })
            | Self::Close { key, .. }
            | Self::Wait { key, .. }
            | Self::RetryKill { key }
            | Self::Lease { key, .. }
            | Self::Detach { key }
            | Self::Call { key, .. }
            | Self::Decide { key, .. }
            | Self::Change { key, .. } => Some(key),
            Self::Shutdown(_) => None,
        }
    }

    pub(crate) fn tenant(self) -> Option<&'static str> {
        match self {
            Self::Open(open) => open.tenant,
            _ => None,
        }
    }
}

/// An open that waits, joins and parks.
#[must_use]
pub fn open(key: u8) -> OpenAsk {
    OpenAsk {
        key,
        definition: 7,
        wait: true,
        join: true,
        park: true,
        tenant: None,
        deadline: None,
        parent: None,
        queue: None,
        holder: false,
    }
}

/// A close that waits.
#[must_use]
pub fn close(key: u8) -> Ask {
    Ask::Close { key, generation: None, now: false, wait: true }
}

/// A key of a user.
#[must_use]
pub fn key(uid: u32, name: &str) -> KeyRef {
    KeyRef { uid: Uid(uid), key: SessionKey::new(name).expect("the model's keys have a key's form") }
}

pub(crate) fn tenant(name: &str) -> Tenant {
    Tenant::new(name).expect("the model's tenants have a tenant's form")
}
