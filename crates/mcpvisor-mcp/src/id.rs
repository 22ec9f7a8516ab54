//! JSON-RPC ids.
use serde_json::value::RawValue;
use std::fmt;

/// A JSON-RPC id: its value and its JSON type, since `1` and `"1"` are two ids.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Id {
    /// A number as its sender wrote it: `1`, `1.0` and `1e0` are three ids, and none loses a digit.
    Number(Box<str>),
    /// A string, unescaped.
    String(Box<str>),
}

impl Id {
    /// From JSON text; `None` if it is neither a number nor a string.
    pub fn from_json(text: &str) -> Option<Self> {
        match text.as_bytes().first()? {
            b'"' => serde_json::from_str(text).ok().map(Self::String),
            b'-' | b'0'..=b'9' => {
                serde_json::from_str::<&RawValue>(text).ok().map(|raw| Self::Number(raw.get().into()))
            }
            _ => None,
        }
    }

    /// As JSON text.
    pub fn to_json(&self) -> String {
        match self {
            Self::Number(number) => number.to_string(),
            Self::String(string) => serde_json::Value::from(&**string).to_string(),
        }
    }
}

impl fmt::Display for Id {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.to_json())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_and_type_survive() {
        for text in ["1", "-0", "1.50", "1e400", "\"1\"", "\"a\\\"b\"", "123456789012345678901234567890"] {
            assert_eq!(Id::from_json(text).unwrap().to_json(), text);
        }
        assert_ne!(Id::from_json("1"), Id::from_json("\"1\""));
        assert_eq!(Id::from_json("\"\\u0041\""), Id::from_json("\"A\""));
        for text in ["", "null", "true", "{}", "[]", "1 2", "1x", "-"] {
            assert_eq!(Id::from_json(text), None, "{text}");
        }
    }
}
