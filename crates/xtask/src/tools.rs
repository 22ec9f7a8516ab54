//! Programs that the tests need beside those of the workspace.
use crate::run::{is_there, run};
use std::process::Command;

/// strace, which kills the daemon at a system call. Installed by apt where it is missing and we may.
///
/// # Errors
/// Where it is missing and can't be installed.
pub(crate) fn strace() -> Result<(), String> {
    let there = || {
        let mut command = Command::new("strace");
        command.arg("--version");
        is_there(command)
    };
    if there() {
        return Ok(());
    }
    let mut install = Command::new("apt-get");
    install.args(["install", "--yes", "--no-install-recommends", "strace"]);
    let help = "install strace: tests kill the daemon with it at a system call of its own";
    run(install).map_err(|why| format!("{why}; {help}"))?;
    if there() { Ok(()) } else { Err(help.to_owned()) }
}
