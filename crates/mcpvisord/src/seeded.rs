//! A daemon with a bug on purpose, for the negative controls (`cargo xtask negative-controls`). Only with the feature `seeded-bugs`,
//! which no build for users has.
use mcpvisor_lifecycle::seeded::{Bug, make_usual};

/// Names the bug, as `mcpvisor_lifecycle::seeded::Bug` does; without it, and with `none`, the daemon has none.
const VARIABLE: &str = "MCPVISOR_SEEDED_BUG";

/// Gives the daemon's machines the bug that the environment names. Ends the process where there is no such bug: a control without its bug
/// would show nothing.
pub(crate) fn from_environment() {
    let Some(name) = std::env::var_os(VARIABLE) else { return };
    if name == "none" {
        return;
    }
    match Bug::ALL.into_iter().find(|bug| name == *format!("{bug:?}")) {
        Some(bug) => make_usual(bug),
        None => {
            eprintln!("mcpvisord: {VARIABLE} names no bug: {}", name.to_string_lossy());
            stop();
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "nothing runs yet, and a control needs no ladder")]
fn stop() -> ! {
    std::process::exit(2)
}
