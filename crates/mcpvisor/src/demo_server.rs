//! The bundled servers that `mcpvisor demo` opens: one that behaves, one that refuses to die.
//!
//! They are ordinary blocking stdio MCP servers in this executable, so that the demonstration needs no other
//! installation.
mod polite;
mod stdio;
mod stubborn;

use std::ffi::OsString;
use std::process::ExitCode;

/// Runs the bundled server that `args` names: `polite` or `stubborn`.
pub(crate) fn main(args: &[OsString]) -> ExitCode {
    let done = match args.first().and_then(|name| name.to_str()) {
        Some("polite") => polite::main(),
        Some("stubborn") => stubborn::main(),
        Some(stubborn::LAUNCHER) => stubborn::launcher(),
        Some(stubborn::HELPER) => stubborn::helper(),
        _ => {
            eprintln!("mcpvisor: demo-server takes one argument: polite or stubborn");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("mcpvisor: the bundled server failed: {error}");
            ExitCode::FAILURE
        }
    }
}
