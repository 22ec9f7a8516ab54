//! The daemon's records: text, JSON, or text with the journal's priorities, on stderr, one line each.
mod format;
mod writer;

use format::Format;
use tracing::Level;
use tracing_subscriber::Registry;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::reload;
use tracing_subscriber::util::SubscriberInitExt;

pub(crate) use writer::Writer;

/// The forms that records can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub(crate) enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
    /// Text without a time, each line with its priority (`<6>`), as systemd's journal takes it.
    Journal,
}

/// Changes the level of a log that runs; cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct LevelHandle(reload::Handle<LevelFilter, Registry>);

impl LevelHandle {
    /// From now on records of this level and above are written.
    pub(crate) fn set(&self, level: Level) {
        // It fails only where the log is gone, which then has no level.
        let _ = self.0.reload(LevelFilter::from_level(level));
    }
}

/// Begins to log to stderr. The writer that is returned writes what is still queued when it is dropped. Once per process; a
/// second one changes nothing.
pub(crate) fn start(form: LogFormat, level: Level) -> std::io::Result<(Writer, LevelHandle)> {
    let writer = Writer::start(std::io::stderr())?;
    let layer = Format::new(form, writer.queue());
    let (filter, handle) = reload::Layer::new(LevelFilter::from_level(level));
    let subscriber = tracing_subscriber::registry().with(filter).with(layer);
    // Only a process that set one before has one: then its records go where it sends them.
    let _ = subscriber.try_init();
    Ok((writer, LevelHandle(handle)))
}

#[cfg(test)]
mod tests;
