//! The actors that drive the lifecycle machines, and the relay (data plane).
pub mod api;
mod gate;
mod relay;
mod skeleton;
mod stderr_log;
pub use api::*;
pub use skeleton::Supervisor;
