//! What the memory of request ids is told and what it tells.
use crate::{Moment, RequestId, Uid};
use std::sync::Arc;
use std::time::Duration;

/// How much is remembered.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RepeatsConfig {
    /// The most ids of one owner, those whose work is under way included.
    pub per_user: usize,
    /// For how long an answer is remembered, from the moment that it is there.
    pub age: Duration,
    /// How long work that nobody waits for any more waits for a retry, before it is given up.
    pub grace: Duration,
}

/// A request id, below its owner. Any text; the driver bounds its length.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(pub Arc<str>);

/// What is carried out once, however often it is asked for; made up by the machine, never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Work(pub u64);

/// What the machine is told.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum RepeatsEvent {
    // Commands.
    /// A request with an id has come.
    Ask {
        /// Names the request.
        asker: RequestId,
        /// Whose id it is.
        owner: Uid,
        /// The id.
        name: Name,
        /// A digest of all that it asks for: two requests are the same if and only if it is equal.
        digest: u64,
        /// The work is not given up where nobody waits for it any more.
        goes_on: bool,
        /// When the requester's patience ends.
        deadline: Option<Moment>,
    },
    /// The requester has its answer. Unknown ones are ignored.
    Take {
        /// Which request.
        asker: RequestId,
    },
    /// The requester wants no answer any more, or was gone when it came. Unknown ones are ignored.
    Leave {
        /// Which request.
        asker: RequestId,
        /// It said so; else it vanished without a word.
        cancelled: bool,
    },
    /// New bounds from a reload; ids that are too many by them go when others come.
    Reconfigure(RepeatsConfig),
    // Facts.
    /// The work is done.
    Answered {
        /// Which.
        work: Work,
        /// It is remembered. What has left nothing is not: the next request with the id tries again.
        keep: bool,
    },
    /// The clock has reached `next_timeout()`.
    Timeout,
}

/// What the driver must do.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum RepeatsEffect {
    /// Carry out what the asker of this step asks for, and tell `Answered` when it is done.
    Begin {
        /// Under this name.
        work: Work,
    },
    /// Tell the work's answer.
    Answer {
        /// To whom.
        asker: RequestId,
        /// Whose answer.
        work: Work,
    },
    /// Tell that it is not done.
    Refuse {
        /// To whom.
        asker: RequestId,
        /// Why not.
        refusal: NotRepeated,
    },
    /// Nobody wants it any more: stop it, or undo what it has done. Nobody has its answer.
    GiveUp {
        /// Which.
        work: Work,
    },
    /// The answer can go. Exactly once per work, after all else of it.
    Forget {
        /// Which.
        work: Work,
    },
}

/// Why a request with an id is not done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NotRepeated {
    /// The id is that of another request.
    OtherRequest,
    /// All ids of the owner are in use by requests under way.
    TooMany {
        /// How many.
        used: usize,
        /// How many there may be.
        limit: usize,
    },
    /// The requester's patience ended first.
    DeadlineExceeded,
}
