//! What `session/open` adds to spawning a server and shaking hands with it directly.
use crate::daemon::{Daemon, open_params};
use crate::options::Options;
use crate::report::{Report, Samples};
use crate::stdio::Client;
use serde_json::json;
use std::io;
use std::time::Instant;

const SUITE: &str = "open";

pub(crate) fn run(options: &Options, report: &mut Report) -> io::Result<()> {
    let daemon = Daemon::start(options)?;
    let mut control = daemon.connect()?;
    let (mut direct, mut opened) = (Samples::default(), Samples::default());
    let (mut added, mut ratio) = (Samples::default(), Samples::default());
    for run in 0..options.runs + WARM_UP {
        let begin = Instant::now();
        let mut client = Client::start(options.server.as_os_str(), [""; 0])?;
        client.handshake()?;
        let without = begin.elapsed();
        client.finish()?;

        let key = format!("open-{run}");
        let params = open_params(&key, options, &[], 2000)?;
        let begin = Instant::now();
        let session = control.request("session/open", params)?;
        let with = begin.elapsed();
        if session["state"] != "ready" || session["servers"][0]["tools"] != json!(3) {
            return Err(io::Error::other(format!("the session is not what was asked for: {session}")));
        }
        control.close(&key)?;

        if run >= WARM_UP {
            direct.push_ms(without);
            opened.push_ms(with);
            ratio.push(with.as_secs_f64() / without.as_secs_f64());
            added.push((with.as_secs_f64() - without.as_secs_f64()) * 1e3);
        }
    }
    report.add(SUITE, "spawn, initialize, tools/list directly", "ms", direct);
    report.add(SUITE, "session/open of the same server", "ms", opened);
    report.promise(SUITE, "added by session/open", "ms", added, 0.5);
    report.promise(SUITE, "session/open, of directly", "1", ratio, 1.2);
    Ok(())
}

/// Runs that are not counted.
const WARM_UP: usize = 5;
