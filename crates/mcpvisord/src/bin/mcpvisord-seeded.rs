//! The daemon of negative controls: with a bug on purpose, named by `MCPVISOR_SEEDED_BUG`.
use std::process::ExitCode;

fn main() -> ExitCode {
    mcpvisord::main(&[], std::env::args_os().skip(1).collect())
}
