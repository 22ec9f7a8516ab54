//! The names that go over the wire: keys, tenants, servers, leases.
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserializer};
use serde::{Deserialize, Serialize, Serializer};
use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

const KEY: &str = "[A-Za-z0-9][A-Za-z0-9._:-]{0,127}";
const SERVER: &str = "[A-Za-z0-9][A-Za-z0-9_-]{0,63}";
const APPROVAL: &str = "[1-9][0-9]*\\.[1-9][0-9]*";

/// Text that is not the name that it should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no {what}: it must have the form {pattern}")]
pub struct BadName {
    /// What it should be: `session key`, `server name`, `tenant`.
    pub what: &'static str,
    /// The rule, as a pattern.
    pub pattern: &'static str,
    /// What was given, cut to a readable length.
    pub text: String,
}

fn is_name(text: &str, more: &[u8], longest: usize) -> bool {
    let bytes = text.as_bytes();
    (1..=longest).contains(&bytes.len())
        && bytes[0].is_ascii_alphanumeric()
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || more.contains(byte))
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $what:literal, $pattern:ident, $more:literal, $longest:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            /// The name, if the text has its form.
            pub fn new(text: impl Into<String>) -> Result<Self, BadName> {
                let text = text.into();
                if is_name(&text, $more, $longest) {
                    Ok(Self(text))
                } else {
                    Err(BadName { what: $what, pattern: $pattern, text: text.chars().take(160).collect() })
                }
            }

            /// The text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl FromStr for $name {
            type Err = BadName;
            fn from_str(text: &str) -> Result<Self, BadName> {
                Self::new(text)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Self::new(String::deserialize(deserializer)?).map_err(de::Error::custom)
            }
        }

        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }
            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({ "type": "string", "pattern": format!("^{}$", $pattern) })
            }
        }
    };
}

name!(
    /// A session's key: `[A-Za-z0-9][A-Za-z0-9._:-]{0,127}`.
    SessionKey, "session key", KEY, b"._:-", 128
);
name!(
    /// A quota group below a uid; same form as a key.
    Tenant, "tenant", KEY, b"._:-", 128
);
name!(
    /// A server's name: `[A-Za-z0-9][A-Za-z0-9_-]{0,63}`.
    ServerName, "server name", SERVER, b"_-", 64
);

/// `KEY` or `KEY@GENERATION`, as people write it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionRef {
    /// The key.
    pub key: SessionKey,
    /// One generation of it; none is the current one.
    pub generation: Option<u64>,
}

impl FromStr for SessionRef {
    type Err = BadName;
    fn from_str(text: &str) -> Result<Self, BadName> {
        let Some((key, generation)) = text.split_once('@') else {
            return Ok(Self { key: text.parse()?, generation: None });
        };
        let digits = !generation.is_empty() && generation.bytes().all(|byte| byte.is_ascii_digit());
        match generation.parse() {
            Ok(generation) if digits => Ok(Self { key: key.parse()?, generation: Some(generation) }),
            _ => Err(BadName {
                what: "generation",
                pattern: "[0-9]+, below 2^64",
                text: generation.chars().take(160).collect(),
            }),
        }
    }
}

impl fmt::Display for SessionRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.generation {
            Some(generation) => write!(f, "{}@{generation}", self.key),
            None => self.key.fmt(f),
        }
    }
}

/// A held call: `GENERATION.NUMBER`, of its session and in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ApprovalId {
    /// Of the session, which is unique among its owner's.
    pub generation: u64,
    /// In the session.
    pub number: u64,
}

impl fmt::Display for ApprovalId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}.{}", self.generation, self.number))
    }
}

impl FromStr for ApprovalId {
    type Err = BadName;
    fn from_str(text: &str) -> Result<Self, BadName> {
        let digits = |text: &str| {
            let plain = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
            text.parse::<u64>().ok().filter(|_| plain)
        };
        let parts = text.split_once('.');
        let read = parts.and_then(|(generation, number)| {
            Some(Self { generation: digits(generation)?, number: digits(number)? })
        });
        read.ok_or_else(|| BadName {
            what: "approval",
            pattern: APPROVAL,
            text: text.chars().take(160).collect(),
        })
    }
}

impl Serialize for ApprovalId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ApprovalId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Cow::<'de, str>::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

impl JsonSchema for ApprovalId {
    fn schema_name() -> Cow<'static, str> {
        "ApprovalId".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": format!("^{APPROVAL}$") })
    }
}

/// What ends a session by its own end. On the wire `none`, `connection` or `pid:N`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Lease {
    /// Nothing: the session stays until it is closed.
    #[default]
    None,
    /// The connection that opened it.
    Connection,
    /// A process.
    Pid(u32),
}

impl fmt::Display for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Connection => f.write_str("connection"),
            Self::Pid(pid) => write!(f, "pid:{pid}"),
        }
    }
}

impl FromStr for Lease {
    type Err = BadName;
    fn from_str(text: &str) -> Result<Self, BadName> {
        let pid = || {
            // A sign is no digit.
            let digits =
                text.strip_prefix("pid:").filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))?;
            digits.parse::<u32>().ok().filter(|pid| (1..=i32::MAX as u32).contains(pid))
        };
        match text {
            "none" => Ok(Self::None),
            "connection" => Ok(Self::Connection),
            _ => pid().map(Self::Pid).ok_or_else(|| BadName {
                what: "lease",
                pattern: "none|connection|pid:[0-9]+",
                text: text.chars().take(160).collect(),
            }),
        }
    }
}

impl Serialize for Lease {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Lease {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Cow::<'de, str>::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

impl JsonSchema for Lease {
    fn schema_name() -> Cow<'static, str> {
        "Lease".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": "^(none|connection|pid:[0-9]+)$" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_server_names_have_their_forms() {
        for good in ["a", "alice-1", "A.b_c:d-9", &"k".repeat(128)] {
            assert!(SessionKey::new(good).is_ok(), "{good}");
        }
        for bad in ["", "-a", ".a", "a/b", "a b", "ü", "a@3", "a\n", &"k".repeat(129)] {
            assert!(SessionKey::new(bad).is_err(), "{bad:?}");
        }
        assert!(ServerName::new("files_2-x").is_ok());
        for bad in ["", "_a", "a.b", "a:b", &"s".repeat(65)] {
            assert!(ServerName::new(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_bad_key_says_what_it_must_be() {
        let error = serde_json::from_str::<SessionKey>("\"a/b\"").unwrap_err().to_string();
        assert!(error.contains("\"a/b\" is no session key") && error.contains(KEY), "{error}");
    }

    #[test]
    fn references_and_leases_are_read_as_they_are_written() {
        for text in ["a", "a@1", "a:b@18446744073709551615"] {
            assert_eq!(text.parse::<SessionRef>().unwrap().to_string(), text);
        }
        for bad in ["a@", "a@x", "a@+1", "@1", "a@1@2", "a@18446744073709551616"] {
            assert!(bad.parse::<SessionRef>().is_err(), "{bad}");
        }
        assert_eq!("3.17".parse::<ApprovalId>().unwrap().to_string(), "3.17");
        for bad in ["", "3", "3.", ".1", "0.1", "3.01", "3.1.2", "+3.1", "3.99999999999999999999"] {
            assert!(bad.parse::<ApprovalId>().is_err(), "{bad}");
        }
        for text in ["none", "connection", "pid:17"] {
            assert_eq!(text.parse::<Lease>().unwrap().to_string(), text);
        }
        for bad in ["", "pid:", "pid:0", "pid:-1", "pid:+1", "pid: 1", "pid:4294967295", "Connection"] {
            assert!(bad.parse::<Lease>().is_err(), "{bad}");
        }
    }
}
