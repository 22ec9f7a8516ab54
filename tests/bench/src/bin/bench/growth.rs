//! Whether anything becomes slower or larger with the number of live sessions: the same figures with one and with two thousand.
//!
//! The machine drifts between the two, so an open and a call are held against a direct server's that is their neighbour.
use crate::daemon::{Control, Daemon, open_params};
use crate::options::Options;
use crate::report::{Report, Samples};
use crate::stdio::Client;
use serde_json::json;
use std::ffi::OsStr;
use std::io;
use std::time::Instant;

const SUITE: &str = "growth";
const MANY: usize = 2000;
/// What may be lost from one session to many, as a ratio.
const MOST: f64 = 1.2;
const MOST_RUNS: usize = 200;
const WARM_UP: usize = 5;

pub(crate) fn run(options: &Options, report: &mut Report) -> io::Result<()> {
    let daemon = Daemon::start(options)?;
    let mut control = daemon.connect()?;
    let mut live = 0;
    fill(&mut control, options, &mut live, 1)?;
    let few = Figures::of(&daemon, &mut control, options, "few")?;
    fill(&mut control, options, &mut live, MANY)?;
    let many = Figures::of(&daemon, &mut control, options, "many")?;
    for (what, unit, few, many) in [
        ("session/open, of a direct start", "1", few.open, many.open),
        ("session/close until it is acknowledged", "ms", few.close, many.close),
        ("tool/call, of a direct call", "1", few.call, many.call),
        ("call through run --relay, of a direct call", "1", few.relay, many.relay),
    ] {
        let mut grown = Samples::default();
        grown.push(many.median() / few.median());
        report.add(SUITE, &format!("{what}, 1 live session"), unit, few);
        report.add(SUITE, &format!("{what}, {MANY} live sessions"), unit, many);
        report.promise(SUITE, &format!("{what}, {MANY} of 1"), "1", grown, MOST);
    }
    Ok(())
}

/// Opens sessions until so many live.
fn fill(control: &mut Control, options: &Options, live: &mut usize, until: usize) -> io::Result<()> {
    while *live < until {
        control.open(&format!("live-{live}"), options, &[], 1000)?;
        *live += 1;
    }
    Ok(())
}

#[derive(Default)]
struct Figures {
    open: Samples,
    close: Samples,
    call: Samples,
    relay: Samples,
}

impl Figures {
    fn of(daemon: &Daemon, control: &mut Control, options: &Options, name: &str) -> io::Result<Self> {
        let mut all = Self::default();
        let socket = daemon.socket();
        let server = options.server.as_os_str();
        let relayed = [
            "--socket".as_ref(),
            socket.as_os_str(),
            "run".as_ref(),
            "--relay".as_ref(),
            "--".as_ref(),
            server,
        ];
        let mut direct = Client::start(server, [OsStr::new("--own-session")])?;
        let mut relay = Client::start::<_, &OsStr>(options.mcpvisor.as_os_str(), relayed)?;
        direct.handshake()?;
        relay.handshake()?;
        let mut id = 100;
        for run in 0..options.runs.min(MOST_RUNS) + WARM_UP {
            let begin = Instant::now();
            let mut client = Client::start(server, [""; 0])?;
            client.handshake()?;
            let without = begin.elapsed();
            client.finish()?;

            let key = format!("{name}-{run}");
            let params = open_params(&key, options, &[], 2000)?;
            let begin = Instant::now();
            control.request("session/open", params)?;
            let opened = begin.elapsed();
            let called = of_calls(control, &key, options.calls)?;
            let begin = Instant::now();
            control.close(&key)?;
            let closed = begin.elapsed();

            let called_directly = crate::call::block(&mut direct, options.calls, &mut id)?;
            let relayed = crate::call::block(&mut relay, options.calls, &mut id)?;
            if run >= WARM_UP {
                all.open.push(opened.as_secs_f64() / without.as_secs_f64());
                all.close.push_ms(closed);
                all.call.push(called / called_directly);
                all.relay.push(relayed / called_directly);
            }
        }
        direct.finish()?;
        relay.finish_anyhow()?;
        Ok(all)
    }
}

/// The median latency of calls over the control connection, in microseconds.
fn of_calls(control: &mut Control, key: &str, calls: usize) -> io::Result<f64> {
    let mut samples = Samples::default();
    for _ in 0..calls {
        let begin = Instant::now();
        control.request("tool/call", json!({"key": key, "tool": "echo", "arguments": {"text": "twenty"}}))?;
        samples.push(begin.elapsed().as_secs_f64() * 1e6);
    }
    Ok(samples.median())
}
