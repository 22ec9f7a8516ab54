//! The control protocol of mcpvisor: JSON-RPC 2.0, one message a line, over a Unix socket.
//!
//! * [`method`]: the methods; [`params`] and [`results`]: what they take and answer; [`call`] ties them together.
//! * [`error`]: the one table of error kinds, with their codes and exit statuses.
//! * [`message`] and [`mod@line`]: the envelope and the framing.
//! * [`socket`]: where the daemon is, and who serves it.
//! * [`blocking`]: a connection without an asynchronous runtime that can pass descriptors.
//! * `client` (feature `client`): the asynchronous client.
//!
//! Requests are strict: a field that is not known is an error that names it. Answers are lenient: fields and words that
//! are not known are passed over, so that an older client understands a newer daemon.
#![forbid(unsafe_code)]

pub mod blocking;
pub mod call;
#[cfg(feature = "client")]
pub mod client;
pub mod error;
pub mod line;
pub mod message;
pub mod method;
pub mod names;
pub mod params;
pub mod results;
pub mod schema;
pub mod socket;
pub mod text;
pub mod token;

pub use call::{Call, parse_params};
pub use error::{ErrorKind, ErrorObject};
pub use message::{Id, Message};
pub use method::Method;
pub use names::{ApprovalId, BadName, Lease, ServerName, SessionKey, SessionRef, Tenant};
pub use text::Text;
pub use token::{BadToken, Token};

/// The version of this protocol. It only grows: a higher number adds to a lower one.
pub const PROTOCOL_VERSION: u32 = 1;

/// The longest line that a side must accept, in bytes, without its newline, unless the daemon's configuration says otherwise.
pub const DEFAULT_MAX_LINE: usize = 64 << 20;
