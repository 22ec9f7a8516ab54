//! A walk over the parsed text that goes on after an error, so that all are told at once.
use super::keys::{self, Kind};
use super::problem::Problem;
use super::template::Template;
use super::units;
use std::cell::RefCell;
use std::ops::{Range, RangeInclusive};
use std::time::Duration;
use toml::de::{DeTable, DeValue};

/// Collects what is wrong.
#[derive(Debug)]
pub(crate) struct Walk<'a> {
    source: &'a str,
    problems: RefCell<Vec<Problem>>,
}

impl<'a> Walk<'a> {
    pub(crate) fn new(source: &'a str) -> Self {
        Self { source, problems: RefCell::default() }
    }

    /// What is wrong.
    pub(crate) fn into_problems(self) -> Vec<Problem> {
        self.problems.into_inner()
    }

    fn push(&self, span: Range<usize>, message: String, help: Option<String>, missing: bool) {
        self.problems.borrow_mut().push(Problem { span, message, help, missing });
    }

    /// The root of the document.
    pub(crate) fn root(&'a self, table: &'a DeTable<'a>) -> Section<'a> {
        Section::new(self, String::new(), 0..0, table, &keys::ROOT)
    }
}

/// A table with a fixed set of keys. Unknown ones are told when it is entered.
#[derive(Debug)]
pub(crate) struct Section<'a> {
    walk: &'a Walk<'a>,
    path: String,
    /// Of its heading, or of the inline table.
    span: Range<usize>,
    table: &'a DeTable<'a>,
    kind: &'static Kind,
}

impl<'a> Section<'a> {
    fn new(
        walk: &'a Walk<'a>,
        path: String,
        span: Range<usize>,
        table: &'a DeTable<'a>,
        kind: &'static Kind,
    ) -> Self {
        for key in table.keys() {
            let name: &str = key.get_ref();
            if !kind.keys.contains(&name) {
                let of = if path.is_empty() { "the file".to_owned() } else { format!("[{path}]") };
                let message = format!("unknown key `{name}` in {of}");
                walk.push(key.span(), message, Some(keys::advice(kind, name)), false);
            }
        }
        Self { walk, path, span, table, kind }
    }

    /// The value of a key, which must be one of the section's kind.
    pub(crate) fn get(&self, key: &str) -> Option<Item<'a>> {
        debug_assert!(self.kind.keys.contains(&key), "{key} is not in the table of keys");
        self.table.iter().find(|(name, _)| name.get_ref() == key).map(|(name, value)| {
            let path = if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) };
            Item { walk: self.walk, path, key: name.span(), span: value.span(), value: value.get_ref() }
        })
    }

    /// The table below a key.
    pub(crate) fn section(&self, key: &str, kind: &'static Kind) -> Option<Self> {
        self.get(key).and_then(|item| item.section(kind))
    }

    /// Tells that a key is missing.
    pub(crate) fn missing(&self, key: &str, help: &str) {
        let message = format!("`{key}` is missing in [{}]", self.path);
        self.walk.push(self.span.clone(), message, Some(help.to_owned()), true);
    }
}

/// A value with its place.
#[derive(Debug)]
pub(crate) struct Item<'a> {
    walk: &'a Walk<'a>,
    path: String,
    key: Range<usize>,
    span: Range<usize>,
    value: &'a DeValue<'a>,
}

impl<'a> Item<'a> {
    /// Tells that the value is wrong.
    pub(crate) fn wrong(&self, message: &str, help: Option<&str>) {
        self.walk.push(
            self.span.clone(),
            format!("{}: {message}", self.path),
            help.map(str::to_owned),
            false,
        );
    }

    /// Tells that `key` stands at one server and is the whole session's.
    pub(crate) fn of_the_session(&self, key: &str) {
        let what = format!("`{key}` holds for the whole session, and can't be set at one server");
        self.wrong(&what, Some("set it in the profile"));
    }

    fn expected<T>(&self, what: &str) -> Option<T> {
        self.wrong(&format!("this is {}; it must be {what}", kind_of(self.value)), None);
        None
    }

    fn checked<T>(&self, result: Result<T, String>) -> Option<T> {
        result.map_err(|message| self.wrong(&message, None)).ok()
    }

    pub(crate) fn section(self, kind: &'static Kind) -> Option<Section<'a>> {
        match self.value {
            DeValue::Table(table) => {
                // A table that has a heading of its own has the heading's span; an implied one none worth showing.
                let span = if self.span.is_empty() { self.key.clone() } else { self.span.clone() };
                Some(Section::new(self.walk, self.path, span, table, kind))
            }
            _ => self.expected("a table"),
        }
    }

    /// The entries of a table whose keys are names of the writer's choice.
    pub(crate) fn entries(self) -> Vec<(String, Item<'a>)> {
        let DeValue::Table(table) = self.value else {
            let _: Option<()> = self.expected("a table");
            return Vec::new();
        };
        let entry =
            |(name, value): (&toml::Spanned<toml::de::DeString<'a>>, &'a toml::Spanned<DeValue<'a>>)| {
                let name_text = name.get_ref().to_string();
                let item = Item {
                    walk: self.walk,
                    path: format!("{}.{name_text}", self.path),
                    key: name.span(),
                    span: value.span(),
                    value: value.get_ref(),
                };
                (name_text, item)
            };
        table.iter().map(entry).collect()
    }

    /// Tells that the key itself, a name, is wrong.
    pub(crate) fn wrong_name(&self, message: &str) {
        self.walk.push(self.key.clone(), message.to_owned(), None, false);
    }

    pub(crate) fn text(&self) -> Option<&'a str> {
        match self.value {
            DeValue::String(text) => Some(text),
            _ => self.expected("a string"),
        }
    }

    pub(crate) fn boolean(&self) -> Option<bool> {
        match self.value {
            DeValue::Boolean(value) => Some(*value),
            _ => self.expected("true or false"),
        }
    }

    /// A whole number in a range.
    pub(crate) fn number(&self, range: RangeInclusive<u64>) -> Option<u64> {
        let DeValue::Integer(integer) = self.value else { return self.expected("a whole number") };
        let value = i128::from_str_radix(integer.as_str(), integer.radix()).ok();
        let fits = value.and_then(|value| u64::try_from(value).ok()).filter(|value| range.contains(value));
        if fits.is_none() {
            self.wrong(
                &format!("{integer} is out of range: from {} to {}", range.start(), range.end()),
                None,
            );
        }
        fits
    }

    pub(crate) fn count(&self, range: RangeInclusive<usize>) -> Option<usize> {
        self.number(*range.start() as u64..=*range.end() as u64).and_then(|value| usize::try_from(value).ok())
    }

    pub(crate) fn duration(&self) -> Option<Duration> {
        match self.value {
            DeValue::String(text) => self.checked(units::duration(text)),
            DeValue::Integer(number) => {
                self.wrong(
                    &format!("{number} has no unit"),
                    Some("write a duration as a string: \"500ms\", \"30s\", \"5m\" or \"4h\""),
                );
                None
            }
            _ => self.expected("a duration such as \"30s\""),
        }
    }

    /// A size in bytes: a string with a unit, or a whole number.
    pub(crate) fn size(&self, range: RangeInclusive<u64>) -> Option<u64> {
        let DeValue::String(text) = self.value else {
            return if matches!(self.value, DeValue::Integer(_)) {
                self.number(range)
            } else {
                self.expected("a size such as \"64M\"")
            };
        };
        let size = self.checked(units::size(text))?;
        if range.contains(&size) {
            return Some(size);
        }
        let (least, most) = (range.start(), range.end());
        self.wrong(&format!("`{text}` is out of range: from {least} to {most} bytes"), None);
        None
    }

    /// One of some words.
    pub(crate) fn word<T: Copy>(&self, words: &[(&'static str, T)]) -> Option<T> {
        let text = self.text()?;
        if let Some((_, value)) = words.iter().find(|(word, _)| *word == text) {
            return Some(*value);
        }
        let names: Vec<&'static str> = words.iter().map(|(word, _)| *word).collect();
        let near = keys::nearest(text, &names).map(|near| format!("did you mean \"{near}\"?"));
        let message = format!("`{text}` is not one of {}", names.join(", "));
        self.wrong(&message, near.as_deref());
        None
    }

    pub(crate) fn items(&self) -> Option<Vec<Item<'a>>> {
        let DeValue::Array(array) = self.value else { return self.expected("an array") };
        let item = |(at, value): (usize, &'a toml::Spanned<DeValue<'a>>)| Item {
            walk: self.walk,
            path: format!("{}[{at}]", self.path),
            key: self.key.clone(),
            span: value.span(),
            value: value.get_ref(),
        };
        Some(array.iter().enumerate().map(item).collect())
    }

    /// A string that may have variables.
    pub(crate) fn template(&self) -> Option<Template> {
        let text = self.text()?;
        match Template::parse(text) {
            Ok(template) => Some(template),
            Err(error) => {
                let span = self.inside(text, &error.at);
                let message = format!("{}: {}", self.path, error.message);
                self.walk.push(span, message, error.help.map(str::to_owned), false);
                None
            }
        }
    }

    /// The place of a part of a string's text: exact where the text has no escapes, else the whole string.
    fn inside(&self, text: &str, part: &Range<usize>) -> Range<usize> {
        let written = &self.walk.source[self.span.clone()];
        let quotes = (written.len().saturating_sub(text.len())) / 2;
        if written.get(quotes..quotes + text.len()) == Some(text) {
            self.span.start + quotes + part.start..self.span.start + quotes + part.end
        } else {
            self.span.clone()
        }
    }
}

fn kind_of(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a number with a fraction",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date or time",
        DeValue::Array(_) => "an array",
        DeValue::Table(_) => "a table",
    }
}
