//! What a call costs where messages pass through the daemon: relayed, and through an endpoint of shared servers; beside a direct server
//! and the floor, a program that passes bytes on and does nothing else (`bench-hop`).
use crate::daemon::Daemon;
use crate::options::Options;
use crate::report::{Report, Samples};
use crate::stdio::Client;
use std::ffi::{OsStr, OsString};
use std::io;
use std::process::Command;
use std::time::Instant;

const SUITE: &str = "relay";
const WAYS: [&str; 4] = ["directly", "through bench-hop, the floor", "through run --relay", "through attach"];
const DIRECT: usize = 0;
const FLOOR: usize = 1;
const RELAY: usize = 2;
const SHARED: usize = 3;
/// Requests in flight where throughput is measured.
const WINDOW: usize = 32;
/// Rounds that are not counted.
const WARM_UP: usize = 2;
/// How many times as many calls a block of throughput has.
const FOR_THROUGHPUT: usize = 100;
const BIG: usize = 16 << 20;

pub(crate) fn run(options: &Options, report: &mut Report) -> io::Result<()> {
    let daemon = Daemon::start(options)?;
    let mut control = daemon.connect()?;
    control.open("shared", options, &[], 1000)?;
    let (socket, server) = (daemon.socket(), options.server.as_os_str());
    let through = |words: &[&str]| {
        let mut all: Vec<OsString> = vec!["--socket".into(), socket.clone().into_os_string()];
        all.extend(words.iter().map(Into::into));
        all
    };
    let mut relay = through(&["run", "--relay", "--"]);
    relay.push(server.to_os_string());
    let folder = tempfile::tempdir()?;
    let floor = folder.path().join("floor");
    let mut hop = Command::new(options.mcpvisor.with_file_name("bench-hop"));
    hop.arg(&floor).arg(server);
    let mut clients = [
        Client::start(server, [OsStr::new("--own-session")])?,
        Client::start_on(&floor, hop)?,
        Client::start(options.mcpvisor.as_os_str(), relay)?,
        Client::start(options.mcpvisor.as_os_str(), through(&["attach", "shared"]))?,
    ];
    for client in &mut clients {
        client.handshake()?;
    }
    latency(options, report, &mut clients)?;
    throughput(options, report, &mut clients)?;
    big(options, report, &mut clients)?;
    // The one that is attached leaves last: its server belongs to the session, and is closed with the daemon.
    for client in clients {
        client.finish_anyhow()?;
    }
    Ok(())
}

fn rotate(
    runs: usize,
    clients: &mut [Client; 4],
    mut measure: impl FnMut(&mut Client) -> io::Result<f64>,
    mut take: impl FnMut([f64; 4]),
) -> io::Result<()> {
    for run in 0..runs + WARM_UP {
        let mut figures = [0.0; 4];
        // The order rotates, so that none always follows the same other.
        for turn in 0..clients.len() {
            let which = (run + turn) % clients.len();
            figures[which] = measure(&mut clients[which])?;
        }
        if run >= WARM_UP {
            take(figures);
        }
    }
    Ok(())
}

fn latency(options: &Options, report: &mut Report, clients: &mut [Client; 4]) -> io::Result<()> {
    let mut samples: [Samples; 4] = Default::default();
    let (mut relay, mut shared) = (Samples::default(), Samples::default());
    let mut id = 100;
    rotate(
        options.runs,
        clients,
        |client| crate::call::block(client, options.calls, &mut id),
        |medians| {
            samples.iter_mut().zip(medians).for_each(|(samples, median)| samples.push(median));
            let floor = medians[FLOOR] - medians[DIRECT];
            relay.push((medians[RELAY] - medians[DIRECT]) / floor);
            shared.push((medians[SHARED] - medians[DIRECT]) / floor);
        },
    )?;
    for (way, samples) in WAYS.into_iter().zip(samples) {
        report.add(SUITE, &format!("tools/call {way}, median of a block"), "µs", samples);
    }
    report.promise(SUITE, "latency added by run --relay, of what the floor adds", "1", relay, 1.1);
    report.promise(SUITE, "latency added by attach, of what the floor adds", "1", shared, 1.4);
    Ok(())
}

fn throughput(options: &Options, report: &mut Report, clients: &mut [Client; 4]) -> io::Result<()> {
    let mut samples: [Samples; 4] = Default::default();
    let (mut relay, mut shared) = (Samples::default(), Samples::default());
    let mut id = 1_000_000;
    let calls = options.calls * FOR_THROUGHPUT;
    rotate(
        options.runs.div_ceil(10),
        clients,
        |client| {
            let begin = Instant::now();
            client.pipeline(calls, WINDOW, &mut id)?;
            #[expect(clippy::cast_precision_loss, reason = "a count of calls")]
            Ok(calls as f64 / begin.elapsed().as_secs_f64() / 1000.0)
        },
        |rates| {
            samples.iter_mut().zip(rates).for_each(|(samples, rate)| samples.push(rate));
            // A ratio that is to be small: how many times as long as the floor.
            relay.push(rates[FLOOR] / rates[RELAY]);
            shared.push(rates[FLOOR] / rates[SHARED]);
        },
    )?;
    for (way, samples) in WAYS.into_iter().zip(samples) {
        report.add(SUITE, &format!("thousand calls a second {way}, {WINDOW} in flight"), "1/ms", samples);
    }
    report.promise(
        SUITE,
        "time of a call through run --relay, 32 in flight, of the floor's",
        "1",
        relay,
        1.0 / 0.9,
    );
    report.promise(
        SUITE,
        "time of a call through attach, 32 in flight, of the floor's",
        "1",
        shared,
        1.0 / 0.5,
    );
    Ok(())
}

fn big(options: &Options, report: &mut Report, clients: &mut [Client; 4]) -> io::Result<()> {
    let mut samples: [Samples; 4] = Default::default();
    let mut relay = Samples::default();
    let mut id = 100_000_000;
    let text = "x".repeat(BIG);
    rotate(
        options.runs.div_ceil(25),
        clients,
        |client| {
            id += 1;
            let begin = Instant::now();
            client.exchange(&crate::call::request(id, &text), "xxxx\"")?;
            Ok(begin.elapsed().as_secs_f64() * 1e3)
        },
        |times| {
            samples.iter_mut().zip(times).for_each(|(samples, time)| samples.push(time));
            relay.push(times[RELAY] / times[FLOOR]);
        },
    )?;
    for (way, samples) in WAYS.into_iter().zip(samples) {
        report.add(SUITE, &format!("one call of 16 MiB {way}"), "ms", samples);
    }
    report.promise(SUITE, "time of a call of 16 MiB through run --relay, of the floor's", "1", relay, 1.1);
    Ok(())
}
