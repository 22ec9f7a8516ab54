//! The actors that drive the lifecycle machines, and the relay (data plane).
//!
//! A registry actor serializes admission, drain and teardown; a session's actor owns its servers' actors; each is a thin
//! driver of its pure machine in `mcpvisor-lifecycle`. The kernel's handles are the reaper's, in `mcpvisor-process`: an
//! actor that is lost takes nothing with it, and acknowledges nothing.
pub mod api;
mod certificate;
mod clock;
mod core;
mod definition;
mod desk;
mod direct;
mod environments;
mod eras;
mod events;
mod frames;
mod gate;
mod hooks;
mod logs;
mod lost;
mod program;
mod record;
mod recovery;
mod registry_actor;
mod relay;
mod repeats;
mod roster;
mod server_actor;
mod session_actor;
mod stderr_log;
mod supervisor;

pub use api::*;
pub use definition::{is_volatile, server as definition_of};
pub use events::{Event, EventKind, EventLimits, EventStream, Field, Fields, Subject, Told};
pub use hooks::{Hook, HookSet, Render};
pub use mcpvisor_lifecycle::session::{IdleLimit, Limits, OnIdle};
pub use mcpvisor_mcp::EraChoice;
pub use mcpvisor_mcp::catalogue::Prefix;
pub use mcpvisor_mcp::hold::{BadPattern, Pattern};
pub use repeats::{Done, Gone, NoAnswer, Repeat, Repeats, Undo};
pub use supervisor::{
    Attach, AttachStreams, Attachable, Attachment, Call, EventsWanted, Given, Profiled, Progress, Supervisor,
};

#[cfg(test)]
mod tests;
