//! The mcpvisor daemon.
mod config;
mod escape;
mod log;
mod outbox;
mod peer;
mod wire;
