//! The daemon of test builds: with gates at which a test can hold it.
use std::process::ExitCode;

fn main() -> ExitCode {
    mcpvisord::main(&[], std::env::args_os().skip(1).collect())
}
