//! Checks the machines of `mcpvisor-lifecycle`, joined as the daemon's actors join them, in every order that can happen.
//!
//! `docs/model.md` says what a state is, what can happen, and what is left out. [`configs`] holds the bounded configurations;
//! [`check`] walks through all states of one, [`find`] looks for a bug there; [`wander`] follows random histories through a larger one.
mod action;
mod asks;
mod calls;
mod changes;
mod checker;
mod checks;
mod clients;
mod clocked;
mod config;
pub mod configs;
mod histories;
mod kernel;
mod lost;
mod mail;
mod registry_side;
mod rules;
mod server_side;
mod session_side;
mod shared;
mod world;

pub use asks::{Ask, OpenAsk, What, close, key, open};
pub use checker::{Outcome, Violation, check, find};
pub use config::{Budgets, Config, Luck, ServerKind};
pub use histories::{History, wander};
pub use rules::{Property, Witness, Wrong};
