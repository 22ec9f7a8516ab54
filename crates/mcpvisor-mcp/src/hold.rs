//! Which tool calls a policy holds for a person.
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;

/// The longest pattern, in bytes.
const LONGEST: usize = 256;

/// A pattern of tools' names: `*` is any text, the empty one too, `?` is any one character, every other character is itself. Upper and
/// lower case differ.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Pattern(Box<str>);

/// A pattern that is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a pattern has from 1 to {LONGEST} bytes and no control characters")]
pub struct BadPattern;

impl Pattern {
    /// The pattern that a text is.
    ///
    /// # Errors
    /// Where it is empty, too long, or has control characters, which no tool's name has.
    pub fn new(text: &str) -> Result<Self, BadPattern> {
        let fits = (1..=LONGEST).contains(&text.len()) && !text.chars().any(char::is_control);
        if fits { Ok(Self(text.into())) } else { Err(BadPattern) }
    }

    /// As it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it means this name. Takes a time of at most the product of the two lengths.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        let (mut pattern, mut name) = (self.0.chars(), name.chars());
        // Where to go on when what was tried behind the last `*` does not fit: that takes one character more.
        let mut star = None;
        loop {
            let here = name.clone();
            match (pattern.next(), name.next()) {
                (None, None) => return true,
                (Some('*'), _) => {
                    star = Some((pattern.clone(), here.clone()));
                    name = here;
                }
                (Some('?'), Some(_)) => {}
                (Some(wanted), Some(found)) if wanted == found => {}
                _ => {
                    let Some((after, mut from)) = star.take() else { return false };
                    if from.next().is_none() {
                        return false;
                    }
                    (pattern, name) = (after.clone(), from.clone());
                    star = Some((after, from));
                }
            }
        }
    }
}

/// What a `tools/call` says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Called<'a> {
    /// The name that it calls.
    pub name: Cow<'a, str>,
    /// The arguments, as they came.
    pub arguments: Option<&'a str>,
}

/// Reads the parameters of a `tools/call`. None where it can't be told for certain what is called: no name, one that is no text, or
/// several that somebody could take for it, in whatever case. Such a call must not pass where calls are held.
#[must_use]
pub fn called(line: &[u8]) -> Option<Called<'_>> {
    #[derive(Deserialize)]
    struct Message<'a> {
        #[serde(borrow)]
        params: Params<'a>,
    }
    let Message { params } = serde_json::from_slice(line).ok()?;
    let name = params.name.filter(|_| params.names == 1)?;
    Some(Called { name, arguments: params.arguments.map(RawValue::get) })
}

#[derive(Default)]
struct Params<'a> {
    name: Option<Cow<'a, str>>,
    /// Keys that are `name` in whatever case.
    names: usize,
    arguments: Option<&'a RawValue>,
}

impl<'de: 'a, 'a> Deserialize<'de> for Params<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Params<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Params<'de>, M::Error> {
                let mut params = Params::default();
                while let Some(key) = map.next_key::<Text<'de>>()? {
                    params.names += usize::from(key.0.eq_ignore_ascii_case("name"));
                    match &*key.0 {
                        "name" => params.name = Some(map.next_value::<Text<'de>>()?.0),
                        "arguments" => params.arguments = Some(map.next_value()?),
                        _ => drop(map.next_value::<IgnoredAny>()?),
                    }
                }
                Ok(params)
            }
        }
        deserializer.deserialize_map(Reader)
    }
}

/// Borrowed where it has no escapes.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

#[cfg(test)]
mod tests;
