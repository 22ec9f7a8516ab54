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

/// Who runs the tests, and so how their end is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Runner {
    /// `cargo nextest run`.
    Nextest,
    /// `cargo test`.
    Cargo,
}

/// What closes a run.
#[derive(Debug, Default)]
pub(crate) struct Closing {
    /// The runner's own lines, and those of what failed.
    pub(crate) lines: Vec<String>,
    running: String,
}

impl Closing {
    fn take(&mut self, runner: Runner, line: &str) {
        let line = line.trim();
        match runner {
            Runner::Nextest => {
                // What failed is told when it fails, and again behind the summary.
                let behind = self.lines.iter().any(|kept| kept.starts_with("Summary ["));
                let failed = ["FAIL [", "TIMEOUT [", "SIGABRT [", "LEAK-FAIL ["]
                    .iter()
                    .any(|word| line.starts_with(word));
                if line.starts_with("Summary [") || (behind && failed) {
                    self.lines.push(line.to_owned());
                }
            }
            Runner::Cargo => {
                if let Some(name) = line.strip_prefix("Running ").or_else(|| line.strip_prefix("Doc-tests "))
                {
                    name.split(" (").next().unwrap_or(name).clone_into(&mut self.running);
                }
                let told =
                    line.starts_with("test result:") && !line.contains(" 0 passed; 0 failed; 0 ignored");
                if told {
                    self.lines.push(format!("{line}   {}", self.running));
                } else if line.starts_with("test ") && line.ends_with("FAILED") {
                    self.lines.push(line.to_owned());
                }
            }
        }
    }
}

/// Runs a test runner, passes on what it says, and keeps the lines that close it.
///
/// # Errors
/// Where it can't be started; `Ok(false)` where it fails.
pub(crate) fn tests(mut command: Command, runner: Runner, closing: &mut Closing) -> Result<bool, String> {
    eprintln!("xtask: {}", shown(&command));
    // Cargo tells on stderr which binary runs, libtest on stdout what became of it: one stream keeps their order.
    let (reader, writer) = std::io::pipe().map_err(|error| format!("failed to make a pipe: {error}"))?;
    let copy = writer.try_clone().map_err(|error| format!("failed to copy a pipe: {error}"))?;
    command.stdout(writer).stderr(copy);
    let mut child =
        command.spawn().map_err(|error| format!("failed to start {}: {error}", shown(&command)))?;
    // Our own ends of the pipe go with the command.
    drop(command);
    for line in BufReader::new(reader).split(b'\n') {
        let Ok(line) = line else { break };
        let line = String::from_utf8_lossy(&line);
        println!("{line}");
        closing.take(runner, &line);
    }
    let status = child.wait().map_err(|error| format!("failed to wait: {error}"))?;
    Ok(status.success())
}
