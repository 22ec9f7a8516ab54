//! The actors that drive the lifecycle machines, and the relay (data plane).
pub mod api;
pub use api::*;
