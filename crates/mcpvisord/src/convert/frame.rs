//! Heads of frames.
use super::{exact_milliseconds, timestamp};
use mcpvisor_control::results;
use mcpvisor_supervisor::{Frame, FrameKind};
use serde_json::Value;

pub(super) fn frames(frames: &[Frame]) -> Vec<results::Frame> {
    frames.iter().map(frame).collect()
}

fn frame(frame: &Frame) -> results::Frame {
    results::Frame {
        at: timestamp(frame.at),
        direction: if frame.to_server {
            results::FrameDirection::ToServer
        } else {
            results::FrameDirection::FromServer
        },
        kind: match frame.kind {
            FrameKind::Request => results::FrameKind::Request,
            FrameKind::Notification => results::FrameKind::Notification,
            FrameKind::Response => results::FrameKind::Response,
            FrameKind::Batch => results::FrameKind::Batch,
            FrameKind::Noise => results::FrameKind::Noise,
            FrameKind::TooLong => results::FrameKind::TooLong,
            FrameKind::Other => results::FrameKind::Other,
        },
        method: frame.method.clone(),
        id: frame.id.as_deref().map(id),
        bytes: frame.bytes,
        latency_ms: frame.latency.map(exact_milliseconds),
    }
}

/// One that was cut is no JSON any more.
fn id(json: &str) -> Value {
    serde_json::from_str(json).unwrap_or_else(|_| Value::String(format!("{}…", json.trim_start_matches('"'))))
}
