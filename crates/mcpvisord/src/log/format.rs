//! Turns a record into one line. Every text in it is made harmless here, whoever it came from (G43), and the fields
//! of the spans around it (session, generation, server) are told with it.
use super::LogFormat;
use super::writer::Queue;
use crate::escape;
use serde_json::{Map, Value};
use std::fmt::{self, Write as _};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

/// The layer that writes.
#[derive(Debug)]
pub(crate) struct Format {
    form: LogFormat,
    queue: Queue,
}

impl Format {
    pub(crate) fn new(form: LogFormat, queue: Queue) -> Self {
        Self { form, queue }
    }
}

/// Names and values, in their order; a name that comes again replaces the value before it.
#[derive(Debug, Default, Clone)]
struct Fields {
    message: Option<String>,
    list: Vec<(&'static str, Value)>,
}

impl Fields {
    fn set(&mut self, name: &'static str, value: Value) {
        match self.list.iter_mut().find(|(known, _)| *known == name) {
            Some((_, old)) => *old = value,
            None => self.list.push((name, value)),
        }
    }
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            self.message = Some(value.to_owned());
        } else {
            self.set(field.name(), value.into());
        }
    }
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.record_str(field, &format!("{value:?}"));
    }
    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.record_str(field, &value.to_string());
    }
    fn record_i64(&mut self, field: &Field, value: i64) {
        self.set(field.name(), value.into());
    }
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.set(field.name(), value.into());
    }
    fn record_bool(&mut self, field: &Field, value: bool) {
        self.set(field.name(), value.into());
    }
    fn record_f64(&mut self, field: &Field, value: f64) {
        // Three digits are enough for whoever reads a record.
        self.set(field.name(), ((value * 1e3).round() / 1e3).into());
    }
}

/// Each actor has a span of its framework, which names a number that nobody knows. It would cost memory for each session, and time at each
/// message.
fn is_wanted(metadata: &Metadata<'_>) -> bool {
    !(metadata.is_span() && metadata.target().starts_with("ractor"))
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Format {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if is_wanted(metadata) { Interest::always() } else { Interest::never() }
    }

    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        is_wanted(metadata)
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        if let Some(span) = context.span(id) {
            // It lives as long as a session, or a server.
            fields.list.shrink_to_fit();
            span.extensions_mut().insert(fields);
        }
    }

    fn on_record(&self, id: &Id, record: &Record<'_>, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(fields) = span.extensions_mut().get_mut::<Fields>()
        {
            record.record(fields);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = Fields::default();
        for span in context.event_scope(event).into_iter().flat_map(|scope| scope.from_root()) {
            if let Some(of_span) = span.extensions().get::<Fields>() {
                of_span.list.iter().for_each(|(name, value)| fields.set(name, value.clone()));
            }
        }
        event.record(&mut fields);
        let metadata = event.metadata();
        self.queue.put(line(self.form, *metadata.level(), metadata.target(), &fields));
    }
}

fn now() -> String {
    format!("{:.3}", jiff::Timestamp::now())
}

fn line(form: LogFormat, level: Level, target: &str, fields: &Fields) -> String {
    let mut line = match form {
        LogFormat::Json => return json(level, target, fields),
        LogFormat::Journal => format!("<{}>", priority(level)),
        LogFormat::Text => format!("{} {level:>5} ", now()),
    };
    line.push_str(&escape::line(fields.message.as_deref().unwrap_or(target)));
    for (name, value) in &fields.list {
        // Writing to a string can't fail.
        let _ = match value {
            Value::String(text) => write!(line, " {name}={}", word(text)),
            value => write!(line, " {name}={value}"),
        };
    }
    line.push('\n');
    line
}

/// A value that can be told from what stands around it.
fn word(text: &str) -> String {
    let plain = |c: char| !c.is_whitespace() && !matches!(c, '"' | '=') && !escape::is_unsafe(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    format!("\"{}\"", escape::line(text).replace('"', "\\\""))
}

fn json(level: Level, target: &str, fields: &Fields) -> String {
    let mut object = Map::new();
    object.insert("time".into(), now().into());
    object.insert("level".into(), level.as_str().to_lowercase().into());
    object.insert("message".into(), fields.message.as_deref().unwrap_or_default().into());
    object.insert("target".into(), target.into());
    for (name, value) in &fields.list {
        object.entry(*name).or_insert_with(|| value.clone());
    }
    let mut line = String::new();
    for c in Value::Object(object).to_string().chars() {
        // JSON's own rules escape the first 32 characters only. What else has power over a terminal stands in strings, where
        // this form of it means the same.
        if escape::is_unsafe(c) {
            let _ = write!(line, "\\u{:04x}", c as u32);
        } else {
            line.push(c);
        }
    }
    line.push('\n');
    line
}

/// As sd-daemon(3) counts.
fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        Level::DEBUG | Level::TRACE => 7,
    }
}
