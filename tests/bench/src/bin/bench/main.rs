//! Measures what mcpvisor costs, beside the same server started directly, interleaved in one run.
//!
//! Absolute times drift with the machine; a difference or a ratio of neighbours in one run does not. So each
//! suite alternates between the ways that it compares, and what is told is the median of the single pairs'
//! differences or ratios, with the medians of each way beside it.
mod call;
mod close;
mod crowd;
mod daemon;
mod growth;
mod idle;
mod open;
mod options;
mod relay;
mod report;
mod start;
mod stdio;

use options::{Options, Suite};
use report::Report;
use std::io;
use std::process::ExitCode;

fn main() -> ExitCode {
    let options = match Options::parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(problem) => {
            eprintln!("{problem}\n{}", options::USAGE);
            return ExitCode::from(2);
        }
    };
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> io::Result<()> {
    if let Some(cpu) = options.pin {
        let mut set = rustix::thread::CpuSet::new();
        set.set(cpu);
        // Everything that is started from here on inherits it, the daemon too.
        rustix::thread::sched_setaffinity(None, &set)?;
    }
    let mut report = Report::new(options);
    for suite in &options.suites {
        eprintln!("bench: {} …", suite.name());
        match suite {
            Suite::Open => open::run(options, &mut report)?,
            Suite::CloseAck => close::run(options, &mut report)?,
            Suite::Call => call::run(options, &mut report)?,
            Suite::Start => start::run(options, &mut report)?,
            Suite::Relay => relay::run(options, &mut report)?,
            Suite::Idle => idle::run(options, &mut report)?,
            Suite::Crowd => crowd::run(options, &mut report)?,
            Suite::Growth => growth::run(options, &mut report)?,
        }
    }
    print!("{}", report.markdown());
    if let Some(path) = &options.json {
        std::fs::write(path, report.json())?;
    }
    Ok(())
}
