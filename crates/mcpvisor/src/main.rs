//! The client of mcpvisor, and, as `mcpvisor daemon`, the daemon itself.
mod cli;
mod commands;
mod demo;
mod demo_server;
mod private;
mod render;
mod run;

use std::ffi::OsString;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().collect();
    // The daemon has a command line of its own, and a keeper must start without delay.
    if args.get(1).is_some_and(|arg| arg == "daemon") {
        return mcpvisord::main(&["daemon"], args[2..].to_vec());
    }
    commands::main(args)
}
