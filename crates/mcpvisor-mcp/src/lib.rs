//! MCP without I/O: line framing, the JSON-RPC envelope over raw values, and the client's side of a conversation with one
//! server.
//!
//! Nothing here reads, writes, waits or knows the time. Bytes go in and come out as values:
//!
//! ```text
//! bytes ─► Framer ─► Frame ─► Message ─► Peer ─► PeerEvent (a line to write, an answer for a waiter, …)
//! ```
//!
//! | module | its one idea |
//! | --- | --- |
//! | [`framing`] | lines out of reads of any size, within a cap |
//! | [`salvage`] | whose answer an over-long line was |
//! | [`envelope`] | what kind of message a line is, its payload untouched |
//! | [`id`] | JSON-RPC ids that keep their JSON type |
//! | `key` | an id as a key of a table, without an allocation |
//! | [`outgoing`] | the lines that a client writes |
//! | [`version`] | the revisions and the two eras |
//! | [`handshake`] | what a server's answer to the handshake means |
//! | [`peer`] | the conversation: pending requests, cancellation, late answers |
//! | [`listing`] | pages of tools, prompts and resources |
//! | [`result`] | the form of a call's result |
//! | [`splice`] | a line with some parts replaced |
//! | [`endpoint`] | the server's side of a conversation with one client, in front of several servers |
//! | [`catalogue`] | the names under which several servers' offers are published |
//! | [`hold`] | which calls are held for a person |
//! | [`relay`] | a conversation that passes through unchanged, followed just enough to settle it |
//! | [`text`] | showing untrusted bytes on a terminal |
pub mod catalogue;
pub mod endpoint;
pub mod envelope;
pub mod framing;
pub mod handshake;
pub mod hold;
pub mod id;
mod key;
pub mod listing;
mod members;
pub mod outgoing;
pub mod peer;
pub mod relay;
pub mod result;
pub mod salvage;
pub mod splice;
pub mod text;
pub mod version;

pub use envelope::{Message, NoiseKind};
pub use framing::{Frame, Framer, TooLong};
pub use handshake::{HandshakeError, Negotiated};
pub use id::Id;
pub use listing::{Item, ListKind, Pages};
pub use peer::{Answer, Peer, PeerEvent, RequestNumber};

pub use version::{Era, EraChoice};
