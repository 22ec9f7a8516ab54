//! Tools of the tests of mcpvisor: scenes, the daemon harness, clients and the leak oracle.
//!
//! A test is a [`scene()`]: everything that it starts is started through the [`Scene`], which marks it (by environment, by a
//! cgroup of its own and by ancestry), and when the test's closure has returned the oracle looks for whatever is left. A
//! test that forgets to look for leaks can't be written.
mod binaries;
mod cgroup;
mod daemon;
mod mcp;
mod oracle;
mod process;
pub mod procfs;
mod rpc;
mod scene;
mod wait;

pub use binaries::{binary, target_dir, workspace_root};
pub use cgroup::TestCgroup;
pub use daemon::{Containment, Daemon, Setup};
pub use mcp::{Stdio, handshake};
pub use oracle::{Leak, Sense};
pub use process::{Held, Output, Process, Signal, ends_within, send_signal, shell_status};
pub use rpc::{Pending, Rpc};
pub use scene::{Invocation, Scene, heavy_scene, scene, scene_within};
pub use wait::{eventually, until};

/// How long a condition that should hold "at once" may take on a loaded machine, before a test says that it does not hold.
pub const SOON: std::time::Duration = std::time::Duration::from_secs(20);
