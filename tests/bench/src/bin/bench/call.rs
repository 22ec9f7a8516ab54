//! What a call costs through `mcpvisor run`, in blocks that alternate with a server started directly.
use crate::daemon::Daemon;
use crate::options::Options;
use crate::report::{Report, Samples};
use crate::stdio::Client;
use std::ffi::OsStr;
use std::io;
use std::time::Instant;

const SUITE: &str = "call";

pub(crate) fn run(options: &Options, report: &mut Report) -> io::Result<()> {
    let daemon = Daemon::start(options)?;
    let socket = daemon.socket();
    let mut direct = Client::start(options.server.as_os_str(), [""; 0])?;
    let args =
        ["--socket".as_ref(), socket.as_os_str(), "run".as_ref(), "--".as_ref(), options.server.as_os_str()];
    let mut through: Client = Client::start::<_, &OsStr>(options.mcpvisor.as_os_str(), args)?;
    direct.handshake()?;
    through.handshake()?;

    let (mut without, mut with, mut ratio) = (Samples::default(), Samples::default(), Samples::default());
    let mut id = 100;
    for run in 0..options.runs + WARM_UP {
        // The order within the pair alternates, so that neither always follows the other.
        let (a, b) = if run % 2 == 0 {
            let a = block(&mut direct, options.calls, &mut id)?;
            (a, block(&mut through, options.calls, &mut id)?)
        } else {
            let b = block(&mut through, options.calls, &mut id)?;
            (block(&mut direct, options.calls, &mut id)?, b)
        };
        if run >= WARM_UP {
            without.push(a);
            with.push(b);
            ratio.push(b / a);
        }
    }
    through.finish()?;
    direct.finish()?;
    report.add(SUITE, "tools/call directly, median of a block", "µs", without);
    report.add(SUITE, "tools/call through run, median of a block", "µs", with);
    report.promise(SUITE, "ratio of neighbouring blocks", "1", ratio, 1.05);
    Ok(())
}

/// The median latency of `calls` calls, in microseconds.
fn block(client: &mut Client, calls: usize, id: &mut u64) -> io::Result<f64> {
    let mut samples = Samples::default();
    for _ in 0..calls {
        *id += 1;
        let request = format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"tools/call\",\"params\":{{\"name\":\"echo\",\"arguments\":{{\"text\":\"some twenty bytes {id}\"}}}}}}\n"
        );
        let expected = format!("some twenty bytes {id}\"");
        let begin = Instant::now();
        client.exchange(&request, &expected)?;
        samples.push(begin.elapsed().as_secs_f64() * 1e6);
    }
    Ok(samples.median())
}

/// Pairs of blocks that are not counted.
const WARM_UP: usize = 5;
