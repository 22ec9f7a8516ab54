use super::format::Format;
use super::*;
use std::io::Write;
use std::sync::{Arc, Mutex};

#[derive(Clone, Default)]
struct Sink(Arc<Mutex<Vec<u8>>>);

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn logged(form: LogFormat, act: impl FnOnce()) -> String {
    let sink = Sink::default();
    let writer = Writer::start(sink.clone()).unwrap();
    let layer = Format::new(form, writer.queue());
    let subscriber = tracing_subscriber::registry().with(LevelFilter::DEBUG).with(layer);
    tracing::subscriber::with_default(subscriber, act);
    drop(writer);
    let bytes = sink.0.lock().unwrap().clone();
    String::from_utf8(bytes).unwrap()
}

#[test]
fn a_record_carries_the_fields_of_its_spans() {
    let text = logged(LogFormat::Text, || {
        let session =
            tracing::info_span!("session", session = "a-1", generation = 3, server = tracing::field::Empty);
        session.record("server", "files");
        let _in = session.enter();
        tracing::info!(pid = 7, "server is ready");
        tracing::trace!("not told");
    });
    assert!(
        text.ends_with(" INFO server is ready session=a-1 generation=3 server=files pid=7\n"),
        "{text:?}"
    );
    assert_eq!(text.lines().count(), 1);
    let line = logged(LogFormat::Journal, || tracing::warn!(session = "a-1", "look"));
    assert_eq!(line, "<4>look session=a-1\n");
}

#[test]
fn the_frameworks_spans_cost_nothing() {
    let text = logged(LogFormat::Text, || {
        let actor = tracing::info_span!(target: "ractor::actor", "Actor", id = "0.1");
        assert!(actor.is_disabled());
        let _in = actor.enter();
        tracing::info!(target: "ractor::actor", "told all the same");
    });
    assert!(text.ends_with(" INFO told all the same\n"), "{text:?}");
}

/// G43: nothing of a server's or client's reaches the log as a control character.
#[test]
fn g43_escape_sequences_do_not_reach_the_log() {
    let evil = "\u{1b}]0;owned\u{7}\u{9b}31m\r\n<0>forged record\u{202e}";
    for form in [LogFormat::Text, LogFormat::Json, LogFormat::Journal] {
        let text = logged(form, || {
            let span = tracing::info_span!("client", client = evil);
            let _in = span.enter();
            tracing::error!(stderr = evil, debugged = ?evil, error = %evil, "{evil}");
        });
        assert_eq!(text.matches('\n').count(), 1, "{text:?}");
        assert!(text.trim_end().chars().all(|c| !crate::escape::is_unsafe(c)), "{text:?}");
    }
}

#[test]
fn json_is_json_and_keeps_the_text() {
    let evil = "\u{1b}[2J\u{9b}\u{202e}\u{7f}";
    let text = logged(LogFormat::Json, || tracing::info!(count = 3, yes = true, text = evil, "hello"));
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value["message"], "hello");
    assert_eq!(value["level"], "info");
    assert_eq!(value["count"], 3);
    assert_eq!(value["yes"], true);
    assert_eq!(value["text"], evil);
}

#[test]
fn a_reader_that_is_stuck_holds_nobody_up() {
    let (reader, stuck) = std::io::pipe().unwrap();
    let writer = Writer::start(stuck).unwrap();
    let queue = writer.queue();
    let begun = std::time::Instant::now();
    for _ in 0..20_000 {
        queue.put("x".repeat(100));
    }
    drop(writer);
    assert!(begun.elapsed() < std::time::Duration::from_secs(5));
    drop(reader);
}
