//! Races that real session servers got wrong, against the composed machines in virtual time.
//!
//! A [`world::World`] joins a registry, its sessions, their servers and pretended processes by mailboxes that keep
//! their order while the order between them is free. Each scenario is explored in every order that matters: at each point
//! every message that could come next, every step of a client and the next timer is tried (`explore`). What must hold
//! always is checked after every step (`checks`).
//!
//! The negative controls take one guard out and show that a scenario notices:
//! `cargo test -p mcpvisor-lifecycle --features seeded-bugs --test scenarios control`.
mod a_creation;
mod actors;
mod b_closing;
mod c_draining;
mod changes;
mod checks;
#[cfg(feature = "seeded-bugs")]
mod controls;
mod d_direct;
mod d_live;
mod d_scopes;
mod e_evict;
mod e_idle;
mod e_park;
mod e_repeats;
mod e_trees;
mod explore;
mod f_health;
mod histories;
mod process;
mod script;
mod servers;
mod world;

/// The guard to take out, by the name of the bug; none in the tests proper.
pub(crate) type Seed = Option<&'static str>;
