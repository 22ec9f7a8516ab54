//! Running other programs.
use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

/// Cargo, as we were started by it, in the workspace's root.
pub(crate) fn cargo(words: &[&str]) -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(words).current_dir(crate::root());
    command
}

fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
}

/// Runs a command to its end.
///
/// # Errors
/// Where it can't be started, or fails.
pub(crate) fn run(mut command: Command) -> Result<(), String> {
    eprintln!("xtask: {}", shown(&command));
    let status = command.status().map_err(|error| format!("failed to start {}: {error}", shown(&command)))?;
    if status.success() { Ok(()) } else { Err(format!("{} failed ({status})", shown(&command))) }
}

/// Whether a program can be run at all.
pub(crate) fn is_there(mut command: Command) -> bool {
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

/// Runs a test runner, passes on what it says, and keeps the lines that close it.
///
/// # Errors
/// Where it can't be started; `Ok(false)` where it fails.
pub(crate) fn runner(mut command: Command, closing: &mut Vec<String>) -> Result<bool, String> {
    eprintln!("xtask: {}", shown(&command));
    // Cargo tells on stderr which binary runs, libtest on stdout what became of it: one stream keeps their order.
    let (reader, writer) = std::io::pipe().map_err(|error| format!("failed to make a pipe: {error}"))?;
    let copy = writer.try_clone().map_err(|error| format!("failed to copy a pipe: {error}"))?;
    command.stdout(writer).stderr(copy);
    let mut child =
        command.spawn().map_err(|error| format!("failed to start {}: {error}", shown(&command)))?;
    // Our own ends of the pipe go with the command.
    drop(command);
    let mut running = String::new();
    for line in BufReader::new(reader).split(b'\n') {
        let Ok(line) = line else { break };
        let line = String::from_utf8_lossy(&line).into_owned();
        println!("{line}");
        let trimmed = line.trim_start();
        if let Some(name) = trimmed.strip_prefix("Running ").or_else(|| trimmed.strip_prefix("Doc-tests ")) {
            name.split(" (").next().unwrap_or(name).clone_into(&mut running);
        }
        if trimmed.starts_with("test result:") {
            closing.push(format!("{trimmed}   {running}"));
        } else if trimmed.starts_with("Summary [") || trimmed.starts_with("FAIL [") || is_failure(trimmed) {
            closing.push(trimmed.to_owned());
        }
    }
    let status = child.wait().map_err(|error| format!("failed to wait: {error}"))?;
    Ok(status.success())
}

/// `test NAME ... FAILED`, of libtest.
fn is_failure(line: &str) -> bool {
    line.starts_with("test ") && line.ends_with("FAILED")
}
