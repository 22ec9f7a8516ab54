//! What kind of JSON-RPC message a line is. The payloads stay the text that they were.
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use std::borrow::Cow;

/// One line of a peer. Payloads are borrowed from it, untouched: number formats, key order and unknown fields survive.
#[derive(Debug)]
pub enum Message<'a> {
    /// Wants an answer.
    Request {
        /// The id as its sender wrote it: a number or a string.
        raw_id: &'a RawValue,
        /// For instance `roots/list`.
        method: Cow<'a, str>,
        /// Absent where the sender left it out.
        params: Option<&'a RawValue>,
    },
    /// Wants none.
    Notification {
        /// For instance `notifications/progress`.
        method: Cow<'a, str>,
        /// Absent where the sender left it out.
        params: Option<&'a RawValue>,
    },
    /// An answer. Without an id it can only be an error (the request could not be read).
    Response {
        /// The id that the answer names, as its sender wrote it; `None` where it was null.
        raw_id: Option<&'a RawValue>,
        /// The result, or the error object.
        outcome: Result<&'a RawValue, &'a RawValue>,
    },
    /// Not a message: counted, shown and passed over (G30).
    Noise(NoiseKind),
}

/// Why a line is not a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoiseKind {
    /// Not UTF-8.
    NotUtf8,
    /// Not one JSON document, or not an object (an array is a batch, which only 2025-03-26 knew and real servers ignore).
    NotAnObject,
    /// An object that is not JSON-RPC 2.0.
    NotJsonRpc,
}

#[derive(Deserialize)]
struct Wire<'a> {
    #[serde(borrow)]
    jsonrpc: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "present")]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    result: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

/// Tells a null from a field that is not there.
fn present<'de: 'a, 'a, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

impl<'a> Message<'a> {
    /// Reads a line. Never fails: what is not a message is [`Message::Noise`].
    pub fn parse(line: &'a [u8]) -> Self {
        let Ok(text) = std::str::from_utf8(line) else { return Self::Noise(NoiseKind::NotUtf8) };
        if !text.trim_ascii_start().starts_with('{') {
            return Self::Noise(NoiseKind::NotAnObject);
        }
        match serde_json::from_str::<Wire<'a>>(text) {
            Ok(wire) => wire.classify().unwrap_or(Self::Noise(NoiseKind::NotJsonRpc)),
            Err(error) if error.is_data() => Self::Noise(NoiseKind::NotJsonRpc),
            Err(_) => Self::Noise(NoiseKind::NotAnObject),
        }
    }
}

impl<'a> Wire<'a> {
    fn classify(self) -> Option<Message<'a>> {
        if self.jsonrpc? != "2.0" {
            return None;
        }
        let id = match self.id {
            Some(raw) if raw.get() != "null" => {
                // A raw value is valid JSON: its first byte tells its type.
                matches!(raw.get().as_bytes().first()?, b'"' | b'-' | b'0'..=b'9').then_some(())?;
                Some(raw)
            }
            _ => None,
        };
        if let Some(method) = self.method {
            return match (id, self.id) {
                (Some(raw_id), _) => Some(Message::Request { raw_id, method, params: self.params }),
                (None, None) => Some(Message::Notification { method, params: self.params }),
                // A request with the id null can't be answered.
                (None, Some(_)) => None,
            };
        }
        // Some servers write both fields, the unused one as null; an error that is there outweighs a result.
        let outcome = match (self.error, self.result) {
            (Some(error), _) => Err(error),
            (None, Some(result)) => Ok(result),
            (None, None) => return None,
        };
        match (id, outcome) {
            (Some(raw_id), outcome) => Some(Message::Response { raw_id: Some(raw_id), outcome }),
            (None, Err(error)) => Some(Message::Response { raw_id: None, outcome: Err(error) }),
            (None, Ok(_)) => None,
        }
    }
}

#[cfg(test)]
mod tests;
