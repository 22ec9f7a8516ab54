//! The commands: each asks the daemon, tells the result on stdout, and ends with an exit status.
mod approvals;
mod call;
mod close;
mod daemon;
mod doctor;
mod events;
pub(crate) mod failure;
mod logs;
mod open;
mod server;
mod show;
pub(crate) mod token;
mod wait;
pub(crate) mod wire;

use crate::cli::{Cli, Command, Globals};
use crate::render::output;
use crate::{demo, demo_server, render, run};
use clap::{CommandFactory, Parser};
use failure::Failure;
use mcpvisor_control::ErrorKind;
use std::ffi::OsString;
use std::io;
use std::process::ExitCode;

/// What a command that was done leaves as its exit status.
pub(crate) type Done = Result<Status, Failure>;

/// An exit status that is no failure to do what was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    /// 0.
    Done,
    /// 1: it was done, and what it tells is a failure (a tool's error).
    Failed,
    /// 3.
    NotYet,
    /// 4.
    NotFound,
    /// 8.
    Quarantined,
}

impl From<Status> for u8 {
    fn from(status: Status) -> Self {
        match status {
            Status::Done => 0,
            Status::Failed => 1,
            Status::NotYet => 3,
            Status::NotFound => 4,
            Status::Quarantined => 8,
        }
    }
}

/// Understands the command line and does what it says.
pub(crate) fn main(args: Vec<OsString>) -> ExitCode {
    if let Some((args, globals)) = run::command_line::usual(&args) {
        return run::main(args, &globals);
    }
    // Only for errors in the command line itself; everything later asks the parsed options.
    let json = args.iter().take_while(|arg| *arg != "--").any(|arg| arg == "--json");
    let runs = run::command_line::is_run(&args);
    let status = match Cli::try_parse_from(args) {
        Ok(cli) => dispatch(cli),
        Err(error) if !error.use_stderr() => {
            // Help and version are results.
            output::printed(error.print().and_then(|()| io::Write::flush(&mut io::stdout())));
            ExitCode::SUCCESS
        }
        // What `run` prints on stdout is the server's, and its statuses are not the other commands'.
        Err(error) if json && !runs => Failure::usage_of(&error).tell(true, None),
        Err(error) => {
            eprint!("{}", render::escape::block(&failure::usage_text(error)));
            ExitCode::from(if runs { run::FAILED } else { ErrorKind::InvalidRequest.exit_status() })
        }
    };
    output::settle(status)
}

fn dispatch(cli: Cli) -> ExitCode {
    let globals = cli.globals;
    let done = match cli.command {
        // These have statuses of their own.
        Command::Run(args) => return run::main(args, &globals),
        Command::Demo => return demo::main(&globals),
        Command::DemoServer { args } => return demo_server::main(&args),
        Command::Daemon { args } => return mcpvisord::main(&["daemon"], daemon::options(&globals, args)),
        Command::Open(args) => open::open(&args, &globals),
        Command::Close(args) => close::close(&args, &globals),
        Command::Wait(args) => wait::wait(&args, &globals),
        Command::List(args) => show::list(&args, &globals),
        Command::Show(args) => show::show(&args, &globals),
        Command::Ps(args) => show::ps(&args, &globals),
        Command::Status => show::status(&globals),
        Command::Attach(args) => return run::attach::main(args, &globals),
        Command::Tools(args) => call::tools(&args, &globals),
        Command::Call(args) => call::call(&args, &globals),
        Command::Server(args) => server::server(&args, &globals),
        Command::Approvals(args) => approvals::approvals(&args, &globals),
        Command::Logs(args) => logs::logs(&args, &globals),
        Command::Events(args) => events::events(&args, &globals),
        Command::Kill(args) => close::kill(&args, &globals),
        Command::Drain => daemon::drain(&globals),
        Command::Reload => daemon::reload(&globals),
        Command::Shutdown(args) => daemon::shutdown(&args, &globals),
        Command::Doctor => doctor::doctor(&globals),
        Command::Completions { shell } => completions(shell),
        Command::Man { command } => manual(command.as_deref()),
    };
    finish(done, &globals)
}

fn finish(done: Done, globals: &Globals) -> ExitCode {
    match done {
        Ok(status) => ExitCode::from(u8::from(status)),
        Err(failure) => failure.tell(globals.json, Some(globals)),
    }
}

fn completions(shell: clap_complete::Shell) -> Done {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "mcpvisor", &mut script);
    output::bytes(&script);
    Ok(Status::Done)
}

fn manual(of: Option<&str>) -> Done {
    let mut command = Cli::command();
    if let Some(name) = of {
        // The globals reach the subcommands only when the whole is built.
        command.build();
        let found = command.find_subcommand(name).cloned();
        let doing = format!("find the manual page of {name}");
        command = found.ok_or_else(|| Failure::usage(doing, "there is no such command"))?;
    }
    let mut page = Vec::new();
    clap_mangen::Man::new(command)
        .render(&mut page)
        .map_err(|error| Failure::other("make the manual page", error))?;
    output::bytes(&page);
    Ok(Status::Done)
}

/// For people, on stdout, unless `--quiet` was given.
fn tell(globals: &Globals, text: impl FnOnce(render::style::Style) -> String) {
    if !globals.quiet {
        output::text(&text(render::style::Style::of(globals, &io::stdout())));
    }
}

/// The same, and with `--quiet` the result itself, in one line.
fn tell_or(
    globals: &Globals,
    short: impl std::fmt::Display,
    text: impl FnOnce(render::style::Style) -> String,
) {
    if globals.quiet {
        output::text(&render::escape::line(&short.to_string()));
    } else {
        tell(globals, text);
    }
}
