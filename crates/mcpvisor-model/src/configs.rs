//! The configurations.
use crate::config::{Ask, Config, Luck, OpenAsk, close, open};

/// All of them.
#[must_use]
pub fn all() -> Vec<Config> {
    vec![reopen()]
}

/// A key is closed by two and opened again.
fn reopen() -> Config {
    Config {
        luck: Luck { vanish: 1, ..Luck::default() },
        ..Config::new("reopen", "a key is opened, closed by two, and opened again")
    }
    .client(&[Ask::Open(open(0)), close(0)])
    .client(&[close(0), Ask::Open(OpenAsk { ..open(0) })])
}
