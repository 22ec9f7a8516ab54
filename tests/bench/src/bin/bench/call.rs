//! What a call costs through `mcpvisor run`, in blocks that alternate with servers started directly.
//!
//! There are two of those. The kernel groups processes by session for its scheduler (autogroups), and a switch between
//! two groups costs it more than one within a group. A server behind mcpvisor always has a session of its own, and so
//! has one that the Python SDK starts; one that the TypeScript SDK starts shares its client's. So the second direct
//! server begins with `setsid`, and tells what of the difference is the kernel's.
use crate::daemon::Daemon;
use crate::options::Options;
use crate::report::{Report, Samples};
use crate::stdio::Client;
use std::ffi::OsStr;
use std::io;
use std::time::Instant;

const SUITE: &str = "call";

const WAYS: [&str; 3] = ["directly", "directly, in a session of its own", "through run"];

pub(crate) fn run(options: &Options, report: &mut Report) -> io::Result<()> {
    let daemon = Daemon::start(options)?;
    let socket = daemon.socket();
    let server = options.server.as_os_str();
    let args: [&OsStr; 5] = ["--socket".as_ref(), socket.as_os_str(), "run".as_ref(), "--".as_ref(), server];
    let mut clients = [
        Client::start(server, [""; 0])?,
        Client::start(server, ["--own-session"])?,
        Client::start(options.mcpvisor.as_os_str(), args)?,
    ];
    for client in &mut clients {
        client.handshake()?;
    }

    let mut latency: [Samples; 3] = Default::default();
    let (mut to_shared, mut to_own) = (Samples::default(), Samples::default());
    let mut id = 100;
    for run in 0..options.runs + WARM_UP {
        let mut medians = [0.0; 3];
        // The order rotates, so that none always follows the same other.
        for turn in 0..clients.len() {
            let which = (run + turn) % clients.len();
            medians[which] = block(&mut clients[which], options.calls, &mut id)?;
        }
        if run >= WARM_UP {
            latency.iter_mut().zip(medians).for_each(|(samples, median)| samples.push(median));
            to_shared.push(medians[2] / medians[0]);
            to_own.push(medians[2] / medians[1]);
        }
    }
    for client in clients {
        client.finish()?;
    }
    for (way, samples) in WAYS.into_iter().zip(latency) {
        report.add(SUITE, &format!("tools/call {way}, median of a block"), "µs", samples);
    }
    report.promise(SUITE, "ratio of run to a direct server, same block", "1", to_shared, 1.05);
    report.promise(
        SUITE,
        "ratio of run to a direct server in its own session, same block",
        "1",
        to_own,
        1.05,
    );
    Ok(())
}

/// A line that calls the tool that says what it is told.
pub(crate) fn request(id: u64, text: &str) -> String {
    format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"tools/call\",\"params\":{{\"name\":\"echo\",\"arguments\":{{\"text\":\"{text}\"}}}}}}\n"
    )
}

/// The median latency of `calls` calls, in microseconds.
pub(crate) fn block(client: &mut Client, calls: usize, id: &mut u64) -> io::Result<f64> {
    let mut samples = Samples::default();
    for _ in 0..calls {
        *id += 1;
        let request = request(*id, &format!("some twenty bytes {id}"));
        let expected = format!("some twenty bytes {id}\"");
        let begin = Instant::now();
        client.exchange(&request, &expected)?;
        samples.push(begin.elapsed().as_secs_f64() * 1e6);
    }
    Ok(samples.median())
}

/// Pairs of blocks that are not counted.
const WARM_UP: usize = 5;
