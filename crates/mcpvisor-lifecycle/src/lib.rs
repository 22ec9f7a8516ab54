//! The lifecycle of sessions as pure state machines.
//!
//! Three machines, one idea each: [`registry`] admits, blocks keys and joins closes; [`session`] takes a
//! session from its first start to its end; [`server`] takes one server through launch, handshake, the stop
//! ladder and restarts. Each is one `step(now, event) -> effects`. Time comes in as a [`Moment`], timers go
//! out as `next_timeout()`. Nothing here reads a clock, does I/O or knows of threads.
pub mod ids;
pub mod registry;
pub mod server;
pub mod session;
pub mod time;

pub use ids::{Generation, Incarnation, KeyRef, RequestId, ServerName, SessionId, SessionKey, Tenant, Uid};
pub use time::Moment;
