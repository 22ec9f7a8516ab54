//! Text as the kernel has it: bytes that are mostly, but not surely, UTF-8.
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserializer, MapAccess, Visitor};
use serde::ser::{SerializeMap, Serializer};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::ffi::{CString, OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// An argument, a variable or a path: any bytes but NUL. On the wire a JSON string, or `{"hex":"…"}` where the bytes are
/// not UTF-8.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Text(OsString);

/// Text with a NUL in it, which no argument, variable or path can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the text has a NUL byte in it")]
pub struct HasNul;

impl Text {
    /// The text, if no NUL is in it.
    pub fn new(text: impl Into<OsString>) -> Result<Self, HasNul> {
        let text = text.into();
        if text.as_bytes().contains(&0) { Err(HasNul) } else { Ok(Self(text)) }
    }

    /// As the standard library takes it.
    #[must_use]
    pub fn as_os_str(&self) -> &OsStr {
        &self.0
    }

    /// The bytes, without an end mark.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// As the kernel takes it.
    #[must_use]
    pub fn to_c_string(&self) -> CString {
        CString::new(self.0.as_bytes()).expect("a Text never holds a NUL: checked when it is made")
    }

    /// For people: what is not UTF-8 is replaced. Not escaped.
    #[must_use]
    pub fn to_string_lossy(&self) -> Cow<'_, str> {
        self.0.to_string_lossy()
    }
}

impl From<Text> for OsString {
    fn from(text: Text) -> Self {
        text.0
    }
}

impl AsRef<OsStr> for Text {
    fn as_ref(&self) -> &OsStr {
        &self.0
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl TryFrom<&str> for Text {
    type Error = HasNul;
    fn try_from(text: &str) -> Result<Self, HasNul> {
        Self::new(text)
    }
}

impl Serialize for Text {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if let Some(text) = self.0.to_str() {
            return serializer.serialize_str(text);
        }
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let hex: String = (self.0.as_bytes().iter())
            .flat_map(|byte| [byte >> 4, byte & 15])
            .map(|digit| char::from(DIGITS[usize::from(digit)]))
            .collect();
        let mut map = serializer.serialize_map(Some(1))?;
        map.serialize_entry("hex", &hex)?;
        map.end()
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Text;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string, or {\"hex\":\"…\"} for bytes that are not UTF-8")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Text, E> {
                Text::new(text).map_err(E::custom)
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Text, A::Error> {
                let Some((key, hex)) = map.next_entry::<String, String>()? else {
                    return Err(de::Error::missing_field("hex"));
                };
                if key != "hex" {
                    return Err(de::Error::unknown_field(&key, &["hex"]));
                }
                if map.next_key::<String>()?.is_some() {
                    return Err(de::Error::custom("only `hex` may be here"));
                }
                let bytes = from_hex(hex.as_bytes())
                    .ok_or_else(|| de::Error::custom("`hex` is not an even number of hexadecimal digits"))?;
                Text::new(OsString::from_vec(bytes)).map_err(de::Error::custom)
            }
        }
        deserializer.deserialize_any(Either)
    }
}

fn from_hex(hex: &[u8]) -> Option<Vec<u8>> {
    if !hex.len().is_multiple_of(2) {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    hex.chunks_exact(2).map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?)).collect()
}

impl JsonSchema for Text {
    fn schema_name() -> Cow<'static, str> {
        "Text".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "Any bytes but NUL: a string, or their hexadecimal digits where they are not UTF-8.",
            "oneOf": [
                { "type": "string" },
                {
                    "type": "object",
                    "properties": { "hex": { "type": "string", "pattern": "^([0-9A-Fa-f]{2})*$" } },
                    "required": ["hex"],
                    "additionalProperties": false,
                },
            ],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(text: &Text) -> String {
        let json = serde_json::to_string(text).unwrap();
        assert_eq!(&serde_json::from_str::<Text>(&json).unwrap(), text);
        json
    }

    #[test]
    fn utf8_is_a_string_and_the_rest_is_hex() {
        assert_eq!(round(&Text::new("plain ü").unwrap()), "\"plain ü\"");
        let odd = Text::new(OsString::from_vec(vec![b'a', 0xff, 0x0f])).unwrap();
        assert_eq!(round(&odd), "{\"hex\":\"61ff0f\"}");
    }

    #[test]
    fn what_no_argument_can_be_is_refused() {
        for bad in [
            "\"a\\u0000b\"",
            "{\"hex\":\"00\"}",
            "{\"hex\":\"0\"}",
            "{\"hex\":\"zz\"}",
            "{\"hex\":\"+1\"}",
            "{\"x\":\"61\"}",
            "{}",
            "1",
            "{\"hex\":\"61\",\"hex\":\"62\"}",
        ] {
            assert!(serde_json::from_str::<Text>(bad).is_err(), "{bad}");
        }
    }
}
