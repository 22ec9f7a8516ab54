//! From the start of the program to its first answer: directly, through the shim with a daemon that runs, and with
//! a private daemon.
use crate::daemon::Daemon;
use crate::options::Options;
use crate::report::{Report, Samples};
use crate::stdio::Client;
use std::ffi::OsStr;
use std::io;
use std::time::{Duration, Instant};

const SUITE: &str = "start";

pub(crate) fn run(options: &Options, report: &mut Report) -> io::Result<()> {
    let daemon = Daemon::start(options)?;
    let socket = daemon.socket();
    let server = options.server.as_os_str();
    let mcpvisor = options.mcpvisor.as_os_str();
    let with_daemon = ["--socket".as_ref(), socket.as_os_str(), "run".as_ref(), "--".as_ref(), server];
    let private: [&OsStr; 4] = ["--private".as_ref(), "run".as_ref(), "--".as_ref(), server];
    let ways: [(&str, &OsStr, &[&OsStr]); 3] = [
        ("start to first answer, directly", server, &[]),
        ("start to first answer, run with a daemon", mcpvisor, &with_daemon),
        ("start to first answer, run with a private daemon", mcpvisor, &private),
    ];
    let mut samples: [Samples; 3] = Default::default();
    let mut ratio = Samples::default();
    for run in 0..options.runs + WARM_UP {
        let mut spans = [Duration::ZERO; 3];
        for (index, (_, program, args)) in ways.iter().enumerate() {
            let begin = Instant::now();
            let mut client = Client::start::<_, &&OsStr>(program, *args)?;
            client.initialize()?;
            spans[index] = begin.elapsed();
            client.finish()?;
        }
        if run >= WARM_UP {
            samples.iter_mut().zip(spans).for_each(|(samples, span)| samples.push_ms(span));
            ratio.push(spans[1].as_secs_f64() / spans[0].as_secs_f64());
        }
    }
    for ((what, ..), samples) in ways.iter().zip(samples) {
        report.add(SUITE, what, "ms", samples);
    }
    report.promise(SUITE, "run with a daemon, of directly", "1", ratio, 2.0);
    Ok(())
}

/// Rounds that are not counted.
const WARM_UP: usize = 5;
