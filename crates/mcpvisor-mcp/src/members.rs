//! Some members of an object, as raw text.
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;

/// The members of these names, as they stand in the object. Of a name that is there twice the last counts, as for most parsers; a null is
/// taken for one that is not there. None of what is no object.
pub(crate) fn members<'a, const N: usize>(
    object: &'a RawValue,
    names: [&str; N],
) -> [Option<&'a RawValue>; N] {
    let mut deserializer = serde_json::Deserializer::from_str(object.get());
    Wanted(names).deserialize(&mut deserializer).unwrap_or([None; N])
}

struct Wanted<'n, const N: usize>([&'n str; N]);

impl<'de, const N: usize> DeserializeSeed<'de> for Wanted<'_, N> {
    type Value = [Option<&'de RawValue>; N];

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, const N: usize> Visitor<'de> for Wanted<'_, N> {
    type Value = [Option<&'de RawValue>; N];

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
        let mut found = [None; N];
        while let Some(Text(key)) = map.next_key::<Text<'de>>()? {
            match self.0.iter().position(|name| *name == key) {
                Some(at) => {
                    let value: &'de RawValue = map.next_value()?;
                    found[at] = Some(value).filter(|value| value.get() != "null");
                }
                None => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(found)
    }
}

/// Text that is borrowed where it has no escapes.
#[derive(serde::Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_a_name_counts_and_everything_else_is_passed_over() {
        let of = |text: &str| {
            let raw = RawValue::from_string(text.to_owned()).unwrap();
            members(&raw, ["a", "b"]).map(|value| value.map(|value| value.get().to_owned()))
        };
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(of(r#"{"a": 1, "c": {"a": 2}, "a": [3]}"#), [some("[3]"), None]);
        assert_eq!(of(r#"{"\u0061": "x", "b": null}"#), [some("\"x\""), None]);
        for none in ["[1]", "1", "\"a\"", "null", "{}"] {
            assert_eq!(of(none), [None, None], "{none}");
        }
    }
}
