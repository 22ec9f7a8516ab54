//! The envelope: JSON-RPC 2.0 requests, notifications and responses.
use crate::error::{ErrorKind, ErrorObject};
use schemars::JsonSchema;
use serde::de::Deserializer;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;

/// A request's id: its value and its type are kept.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Id {
    /// A whole number.
    Number(i64),
    /// Text.
    Text(String),
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Text(text) => write!(f, "{text:?}"),
        }
    }
}

/// One line, understood.
#[derive(Debug)]
pub enum Message {
    /// Wants an answer.
    Request {
        /// To be repeated in the answer.
        id: Id,
        /// The method's name, not looked up yet.
        method: String,
        /// As they came.
        params: Option<Box<RawValue>>,
    },
    /// Wants none.
    Notification {
        /// The notification's name.
        method: String,
        /// As they came.
        params: Option<Box<RawValue>>,
    },
    /// An answer. Without an id it answers a line that could not be understood.
    Response {
        /// The request's.
        id: Option<Id>,
        /// The answer.
        result: Result<Box<RawValue>, ErrorObject>,
    },
}

/// A line that is no message. `id` is that of the request, where it can be told, for the answer.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{error}")]
pub struct BadMessage {
    /// The request's, where it could be read.
    pub id: Option<Id>,
    /// What to answer.
    pub error: ErrorObject,
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow, default)]
    jsonrpc: Option<Cow<'a, str>>,
    // A member that is null is told apart from one that is not there.
    #[serde(borrow, default, deserialize_with = "present")]
    id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    result: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

fn present<'de: 'a, 'a, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

impl Message {
    /// Understands a line (without its newline; a carriage return at the end is tolerated).
    pub fn parse(line: &[u8]) -> Result<Self, BadMessage> {
        let bad = |id, message: String| BadMessage {
            id,
            error: ErrorObject::new(ErrorKind::InvalidRequest, message),
        };
        let envelope: Envelope<'_> = serde_json::from_slice(line)
            .map_err(|error| bad(None, format!("the line is not a JSON-RPC message: {error}")))?;
        let id = match envelope.id.map(RawValue::get) {
            None => None,
            Some("null") if envelope.method.is_none() => None,
            Some(raw) => Some(serde_json::from_str::<Id>(raw).map_err(|_| {
                bad(None, "the id is neither a string nor a whole number of 64 bits".to_owned())
            })?),
        };
        if envelope.jsonrpc.as_deref() != Some("2.0") {
            return Err(bad(id, "`jsonrpc` is not \"2.0\"".to_owned()));
        }
        let params = envelope.params.map(ToOwned::to_owned);
        match (envelope.method, envelope.result, envelope.error) {
            (Some(method), None, None) => {
                let method = method.into_owned();
                Ok(match id {
                    Some(id) => Self::Request { id, method, params },
                    None => Self::Notification { method, params },
                })
            }
            (None, Some(result), None) => Ok(Self::Response { id, result: Ok(result.to_owned()) }),
            (None, None, Some(error)) => {
                let error = serde_json::from_str(error.get())
                    .map_err(|error| bad(id.clone(), format!("`error` is malformed: {error}")))?;
                Ok(Self::Response { id, result: Err(error) })
            }
            _ => Err(bad(id, "a message has exactly one of `method`, `result` and `error`".to_owned())),
        }
    }
}

#[derive(Serialize)]
struct Outgoing<'a, P, R> {
    jsonrpc: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<Option<&'a Id>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    method: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    params: Option<P>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<R>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a ErrorObject>,
}

fn line(message: &impl Serialize) -> serde_json::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    Ok(line)
}

/// A request as a line, newline included. Fails only where the parameters can't be told in JSON.
pub fn request(id: &Id, method: &str, params: impl Serialize) -> serde_json::Result<Vec<u8>> {
    line(&Outgoing::<_, ()> {
        jsonrpc: "2.0",
        id: Some(Some(id)),
        method: Some(method),
        params: Some(params),
        result: None,
        error: None,
    })
}

/// A notification as a line, newline included. Fails only where the parameters can't be told in JSON.
pub fn notification(method: &str, params: impl Serialize) -> serde_json::Result<Vec<u8>> {
    line(&Outgoing::<_, ()> {
        jsonrpc: "2.0",
        id: None,
        method: Some(method),
        params: Some(params),
        result: None,
        error: None,
    })
}

/// A good answer as a line, newline included. Fails only where the result can't be told in JSON.
pub fn response(id: &Id, result: impl Serialize) -> serde_json::Result<Vec<u8>> {
    line(&Outgoing::<(), _> {
        jsonrpc: "2.0",
        id: Some(Some(id)),
        method: None,
        params: None,
        result: Some(result),
        error: None,
    })
}

/// A refusal as a line, newline included; without an id where the request's could not be read.
#[must_use]
pub fn error_response(id: Option<&Id>, error: &ErrorObject) -> Vec<u8> {
    line(&Outgoing::<(), ()> {
        jsonrpc: "2.0",
        id: Some(id),
        method: None,
        params: None,
        result: None,
        error: Some(error),
    })
    .expect("an error object holds nothing but strings, numbers and JSON values")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_message_is_told_apart() {
        let parse = |text: &str| Message::parse(text.as_bytes()).unwrap();
        assert!(matches!(
            parse(r#"{"jsonrpc":"2.0","id":1,"method":"m"}"#),
            Message::Request { id: Id::Number(1), params: None, .. }
        ));
        assert!(matches!(
            parse(r#"{"jsonrpc":"2.0","id":"1","method":"m","params":{}}"#),
            Message::Request { id: Id::Text(_), params: Some(_), .. }
        ));
        assert!(matches!(parse("{\"jsonrpc\":\"2.0\",\"method\":\"m\"}\r"), Message::Notification { .. }));
        assert!(matches!(
            parse(r#"{"jsonrpc":"2.0","id":1,"result":null}"#),
            Message::Response { id: Some(_), result: Ok(_) }
        ));
        assert!(matches!(
            parse(
                r#"{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"","data":{"kind":"internal"}}}"#
            ),
            Message::Response { id: None, result: Err(_) }
        ));
    }

    #[test]
    fn what_is_no_message_is_refused_with_the_id_where_it_has_one() {
        for (text, id) in [
            ("", None),
            ("[]", None),
            ("{", None),
            (r#"{"jsonrpc":"2.0","id":null,"method":"m"}"#, None),
            (r#"{"jsonrpc":"2.0","id":1.5,"method":"m"}"#, None),
            (r#"{"jsonrpc":"2.0","id":99999999999999999999,"method":"m"}"#, None),
            (r#"{"jsonrpc":"1.0","id":7,"method":"m"}"#, Some(Id::Number(7))),
            (r#"{"id":7,"method":"m"}"#, Some(Id::Number(7))),
            (r#"{"jsonrpc":"2.0","id":7}"#, Some(Id::Number(7))),
            (r#"{"jsonrpc":"2.0","id":7,"method":"m","result":1}"#, Some(Id::Number(7))),
            (r#"{"jsonrpc":"2.0","id":7,"id":8,"method":"m"}"#, None),
        ] {
            let bad = Message::parse(text.as_bytes()).unwrap_err();
            assert_eq!((bad.id, bad.error.kind()), (id, ErrorKind::InvalidRequest), "{text}");
        }
        assert!(Message::parse(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\"}").is_err());
    }

    #[test]
    fn what_is_written_is_read_again() {
        let id = Id::Text("x\n\"".to_owned());
        let text = request(&id, "a/b", serde_json::json!({"k":"one\ntwo"})).unwrap();
        assert_eq!(text.iter().filter(|byte| **byte == b'\n').count(), 1, "a message is one line");
        let Message::Request { id: read, method, params } = Message::parse(&text).unwrap() else { panic!() };
        assert_eq!(
            (read, method.as_str(), params.unwrap().get()),
            (id.clone(), "a/b", r#"{"k":"one\ntwo"}"#)
        );
        assert!(matches!(
            Message::parse(&response(&id, ()).unwrap()).unwrap(),
            Message::Response { result: Ok(_), .. }
        ));
        let error = ErrorObject::new(ErrorKind::NotFound, "no");
        assert!(String::from_utf8(error_response(None, &error)).unwrap().contains("\"id\":null"));
        assert!(matches!(
            Message::parse(&error_response(None, &error)).unwrap(),
            Message::Response { id: None, result: Err(_) }
        ));
    }
}
