//! The actors that drive the lifecycle machines, and the relay (data plane).
pub mod api;
mod skeleton;
pub use api::*;
pub use skeleton::Supervisor;
