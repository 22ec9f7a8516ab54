//! An id as a key. Most are short, and cost no allocation.
//!
//! Tables are bounded by the calls in flight, so that a hash that is fast, and seeded at random, will do: whoever finds ids that collide
//! slows its own calls only.
use std::collections::HashMap;
use std::hash::{Hash, Hasher};

const INLINE: usize = 46;

/// A table of what is in flight.
pub(crate) type Table<K, V> = HashMap<K, V, foldhash::fast::RandomState>;

/// The JSON text of an id, a string's in one spelling: its type and its value survive.
#[derive(Debug, Clone)]
pub(crate) struct Key(Text);

#[derive(Debug, Clone)]
enum Text {
    Short { len: u8, bytes: [u8; INLINE] },
    Long(Box<[u8]>),
}

impl Key {
    /// From JSON text; none if it is neither a number nor a string (null is no id).
    pub(crate) fn new(json: &[u8]) -> Option<Self> {
        match json.first()? {
            b'-' | b'0'..=b'9' => Some(Self::of(json)),
            b'"' if memchr::memchr(b'\\', json).is_none() => Some(Self::of(json)),
            b'"' => {
                // Half a surrogate pair is JSON, and no text: it is known by its spelling.
                let Ok(text) = serde_json::from_slice::<String>(json) else { return Some(Self::of(json)) };
                Some(Self::of(serde_json::to_string(&text).ok()?.as_bytes()))
            }
            _ => None,
        }
    }

    fn of(json: &[u8]) -> Self {
        match u8::try_from(json.len()) {
            Ok(len) if json.len() <= INLINE => {
                let mut bytes = [0; INLINE];
                bytes[..json.len()].copy_from_slice(json);
                Self(Text::Short { len, bytes })
            }
            _ => Self(Text::Long(json.into())),
        }
    }

    /// As JSON.
    pub(crate) fn text(&self) -> &[u8] {
        match &self.0 {
            Text::Short { len, bytes } => &bytes[..usize::from(*len)],
            Text::Long(bytes) => bytes,
        }
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.text() == other.text()
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // No key is the beginning of another that could follow it: what is hashed needs no length.
        state.write(self.text());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_and_values_are_told_apart_and_spellings_of_a_string_are_not() {
        let key = |text: &str| Key::new(text.as_bytes());
        assert_ne!(key("1"), key("\"1\""));
        assert_ne!(key("1"), key("1.0"));
        assert_eq!(key("\"\\u0041\""), key("\"A\""));
        let long = format!("\"{}\"", "x".repeat(100));
        assert_eq!(key(&long), key(&long));
        assert_eq!(key(&long).unwrap().text(), long.as_bytes());
        assert_eq!(key("\"\\ud800\""), key("\"\\ud800\""));
        assert_ne!(key("\"\\ud800\""), key("\"\\ud801\""));
        for none in ["", "null", "true", "{}", "[1]"] {
            assert_eq!(key(none), None, "{none}");
        }
    }
}
