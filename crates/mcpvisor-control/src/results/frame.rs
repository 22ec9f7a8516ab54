//! What is noted of a frame that passes.
use super::words::{FrameDirection, FrameKind};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A frame that went to a server or came from it, without what it said.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Frame {
    /// When its end had come.
    pub at: String,
    /// Where it went.
    pub direction: FrameDirection,
    /// What it was.
    pub kind: FrameKind,
    /// Its method, cut to 64 bytes; of an answer that of its request. Not escaped: it is what a client or a server wrote.
    pub method: Option<String>,
    /// Its id: a number or text; one of more than 30 bytes is text, and cut. Between daemon and server of a shared server the ids are the
    /// daemon's.
    pub id: Option<Value>,
    /// Its size.
    pub bytes: u64,
    /// Of an answer: the time since its request.
    pub latency_ms: Option<f64>,
}
