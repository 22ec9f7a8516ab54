//! Holds the tables of `docs/lifecycle.md` against the machines.
//!
//! Each machine is brought into every state, in every variant that the tables' conditions can tell apart, and given
//! every event. Where a row applies, next state and effects must be the row's; where none does, nothing may happen.
//! Rows that no variant reaches, and pairs of rows that apply to one case, are errors: so a row that is changed, added
//! or taken away fails, and so does a path of the code.
mod breaker;
mod changes;
mod credential;
mod eviction;
mod parse;
mod registry;
mod registry_setup;
mod repeats;
mod server;
mod server_setup;
mod session;
mod session_setup;
