//! The lifecycle of sessions as pure state machines.
//!
//! Three machines carry a session, one idea each: [`registry`] admits, blocks keys and joins closes; [`session`] takes a
//! session from its first start to its end; [`server`] takes one server through launch, handshake, the stop
//! ladder and restarts. Beside them [`repeats`] carries out once what is asked for several times. Each is one
//! `step(now, event) -> effects`. Time comes in as a [`Moment`], timers go out as `next_timeout()`. Nothing here reads a
//! clock, does I/O or knows of threads.
//!
//! A small one, [`approvals`], has no time in it and no effects: it has the calls of a session that are held for a person.
//!
//! `docs/lifecycle.md` writes the machines as tables; a test holds the tables against this code.
pub mod approvals;
pub mod breaker;
pub mod ids;
pub mod registry;
pub mod repeats;
#[cfg(feature = "seeded-bugs")]
pub mod seeded;
#[cfg(not(feature = "seeded-bugs"))]
pub(crate) mod seeded;
pub mod server;
pub mod session;
pub mod time;

pub use approvals::{Approvals, Decided, HoldNumber, NotHeld, Verdict};
pub use breaker::{BreakerConfig, SpecDigest};
pub use ids::{
    Generation, Incarnation, KeyRef, Place, ProfileName, RequestId, ServerName, SessionId, SessionKey,
    Tenant, Uid,
};
pub use time::Moment;
