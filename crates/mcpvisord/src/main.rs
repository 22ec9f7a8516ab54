//! The daemon as a binary of its own.
use std::process::ExitCode;

fn main() -> ExitCode {
    mcpvisord::main(&[], std::env::args_os().skip(1).collect())
}
