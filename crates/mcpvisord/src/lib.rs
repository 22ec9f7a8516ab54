//! The mcpvisor daemon: a library with one entry, [`main`], and a thin binary around it.
//!
//! From the outside in: `args` and `config` say what is wanted; `start` (or `private`) brings up the socket, the containment, the
//! runtime and the supervision tree, and takes them down in the reverse order; `server` accepts; `connection` reads requests
//! and answers each once; `dispatch` knows what each method does; `resolve` makes whole server definitions of what a client or a profile
//! says; `rights` decides who may; `convert` tells the supervisor's views in the shapes of the protocol.
mod args;
mod budget;
mod config;
mod connection;
mod convert;
mod daemon;
mod dispatch;
mod doctor;
mod escape;
mod hooks;
mod limits;
mod log;
mod outbox;
mod peer;
mod private;
mod reload;
mod resolve;
mod rights;
#[cfg(feature = "seeded-bugs")]
mod seeded;
mod server;
mod signals;
mod socket;
mod start;
mod systemd;
mod users;
mod wire;

use std::ffi::OsString;
use std::process::ExitCode;

#[cfg(feature = "count-allocations")]
#[global_allocator]
static COUNTING: mcpvisor_process::CountingAllocator = mcpvisor_process::CountingAllocator;

/// The daemon's main function.
///
/// `prefix` is what stands between the executable's name and `args` where it is called as a subcommand (`["daemon"]`): the
/// daemon executes itself with it as a keeper and as a guardian. Must be called before the process has any other thread.
#[must_use]
pub fn main(prefix: &[&str], args: Vec<OsString>) -> ExitCode {
    if args.first().is_some_and(|first| first == "keeper") {
        mcpvisor_process::keeper_main();
    }
    if args.first().is_some_and(|first| first == "guardian") {
        mcpvisor_process::guardian_main(args.get(1).map(OsString::as_os_str).unwrap_or_default().as_ref());
    }
    #[cfg(feature = "seeded-bugs")]
    seeded::from_environment();
    let args = match args::Args::parse(prefix, args) {
        Ok(args) => args,
        Err(error) => {
            if error.use_stderr() {
                eprint!("{}", escape::block(&error.render().to_string()));
                return ExitCode::from(2);
            }
            return match error.print().and_then(|()| std::io::Write::flush(&mut std::io::stdout())) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => {
                    eprintln!("mcpvisord: failed to write to stdout: {error}");
                    ExitCode::FAILURE
                }
            };
        }
    };
    if args.check_config {
        start::check_config(&args)
    } else if args.private {
        private::main(prefix, &args)
    } else {
        start::foreground(prefix, &args)
    }
}

/// What this machine allows: a name, and what was found (`Ok`: good; `Err`: not, and why it matters).
#[must_use]
pub fn doctor() -> Vec<(String, Result<String, String>)> {
    doctor::findings()
}
