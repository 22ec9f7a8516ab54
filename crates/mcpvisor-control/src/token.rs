//! The token of a session: who has it may use that one session, whoever that is.
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserializer};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

const PREFIX: &str = "mcpv_";

/// `mcpv_UID_GENERATION_SECRET`: the session's owner and generation, and 64 hexadecimal digits that nobody can guess. Nothing but
/// [`Token::as_str`] and its serialization tell the secret.
#[derive(Clone, Serialize)]
#[serde(transparent)]
pub struct Token(String);

/// Text that is no token. It is not told again: it may be one with a slip.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a session's token has the form mcpv_UID_GENERATION_SECRET")]
pub struct BadToken;

impl Token {
    /// The token of a session.
    #[must_use]
    pub fn of(uid: u32, generation: u64, secret: &[u8; 32]) -> Self {
        let digits: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
        Self(format!("{PREFIX}{uid}_{generation}_{digits}"))
    }

    /// The session's owner, its generation, and the secret.
    #[must_use]
    pub fn parts(&self) -> (u32, u64, [u8; 32]) {
        // The form is looked at wherever one is made.
        parse(&self.0).unwrap_or_default()
    }

    /// The text, secret included.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn parse(text: &str) -> Option<(u32, u64, [u8; 32])> {
    let mut parts = text.strip_prefix(PREFIX)?.splitn(3, '_');
    let (uid, generation, digits) = (parts.next()?, parts.next()?, parts.next()?);
    let number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !number(uid) || !number(generation) || digits.len() != 64 {
        return None;
    }
    let mut secret = [0; 32];
    for (byte, pair) in secret.iter_mut().zip(digits.as_bytes().chunks_exact(2)) {
        let digit = |byte: u8| match byte {
            b'0'..=b'9' => Some(byte - b'0'),
            b'a'..=b'f' => Some(byte - b'a' + 10),
            _ => None,
        };
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some((uid.parse().ok()?, generation.parse().ok()?, secret))
}

impl FromStr for Token {
    type Err = BadToken;
    fn from_str(text: &str) -> Result<Self, BadToken> {
        parse(text).ok_or(BadToken)?;
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (uid, generation, _) = self.parts();
        write!(f, "Token({PREFIX}{uid}_{generation}_…)")
    }
}

impl<'de> Deserialize<'de> for Token {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Cow::<'de, str>::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

impl JsonSchema for Token {
    fn schema_name() -> Cow<'static, str> {
        "Token".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": "^mcpv_[0-9]+_[0-9]+_[0-9a-f]{64}$" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g41_a_token_is_read_as_it_is_written_and_told_to_nobody() {
        let mut secret = [0xa5; 32];
        secret[0] = 0x0f;
        let token = Token::of(1000, u64::MAX, &secret);
        let read: Token = token.as_str().parse().unwrap();
        assert_eq!(read.parts(), (1000, u64::MAX, secret));
        let json = serde_json::to_string(&token).unwrap();
        assert_eq!(json, format!("\"{}\"", token.as_str()));
        assert_eq!(format!("{token:?}"), "Token(mcpv_1000_18446744073709551615_…)");
        let digits = "a5".repeat(32);
        for bad in [
            String::new(),
            digits.clone(),
            format!("mcpv_1_1_{digits}0"),
            format!("mcpv_1_1_{}", &digits[1..]),
            format!("mcpv_1_1_{}", digits.to_uppercase()),
            format!("mcpv_-1_1_{digits}"),
            format!("mcpv_+1_1_{digits}"),
            format!("mcpv_1__{digits}"),
            format!("mcpv_4294967296_1_{digits}"),
            format!("mcpv_1_1_{digits}\n"),
        ] {
            let told = serde_json::from_value::<Token>(bad.clone().into()).unwrap_err().to_string();
            assert!(!told.contains("a5a5"), "{bad}: {told}");
        }
    }
}
