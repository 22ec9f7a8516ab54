//! How long it takes until a hundred servers are ready that are all asked for at once: started directly, by `session/open`, and by `run`.
use crate::daemon::{Control, Daemon, open_params};
use crate::options::Options;
use crate::report::{Report, Samples};
use crate::stdio::Client;
use serde_json::Value;
use std::ffi::OsStr;
use std::io;
use std::sync::Barrier;
use std::time::{Duration, Instant};

const SUITE: &str = "crowd";
const CROWD: usize = 100;
/// A run starts three hundred servers.
const MOST_RUNS: usize = 20;
const WARM_UP: usize = 1;

pub(crate) fn run(options: &Options, report: &mut Report) -> io::Result<()> {
    let daemon = Daemon::start(options)?;
    let socket = daemon.socket();
    let server = options.server.as_os_str();
    let shim = ["--socket".as_ref(), socket.as_os_str(), "run".as_ref(), "--".as_ref(), server];
    let (mut direct, mut opened, mut run_by) = (Samples::default(), Samples::default(), Samples::default());
    let (mut on_one, mut to_one) = (Samples::default(), Samples::default());
    let (mut to_open, mut to_run) = (Samples::default(), Samples::default());
    for run in 0..options.runs.min(MOST_RUNS) + WARM_UP {
        let directly = of_programs(server, &[])?;
        let through_open = of_sessions(&daemon, options, run)?;
        let through_one = over_one_connection(&daemon, options, run)?;
        let through_run = of_programs(options.mcpvisor.as_os_str(), &shim)?;
        if run >= WARM_UP {
            direct.push_ms(directly);
            opened.push_ms(through_open);
            on_one.push_ms(through_one);
            run_by.push_ms(through_run);
            to_one.push(through_one.as_secs_f64() / directly.as_secs_f64());
            to_open.push(through_open.as_secs_f64() / directly.as_secs_f64());
            to_run.push(through_run.as_secs_f64() / directly.as_secs_f64());
        }
    }
    report.add(SUITE, "100 servers at once, directly", "ms", direct);
    report.add(SUITE, "100 servers at once, by session/open over one connection", "ms", on_one);
    report.add(SUITE, "100 servers at once, by session/open over a connection each", "ms", opened);
    report.add(SUITE, "100 servers at once, by run", "ms", run_by);
    report.promise(SUITE, "100 at once over one connection, of directly", "1", to_one, 1.4);
    report.promise(SUITE, "100 at once over a connection each, of directly", "1", to_open, 1.4);
    report.add(SUITE, "100 at once by run, of directly", "1", to_run);
    Ok(())
}

/// A hundred programs that speak MCP, from the first start to the last answer to `tools/list`.
fn of_programs(program: &OsStr, args: &[&OsStr]) -> io::Result<Duration> {
    let (clients, span) = at_once((0..CROWD).collect(), |_| {
        let mut client = Client::start::<_, &&OsStr>(program, args)?;
        client.handshake()?;
        Ok(client)
    })?;
    at_once(clients, Client::finish)?;
    Ok(span)
}

/// A hundred sessions, over a connection each that was there before.
fn of_sessions(daemon: &Daemon, options: &Options, run: usize) -> io::Result<Duration> {
    let mut asked: Vec<(Control, String, Value)> = Vec::new();
    for n in 0..CROWD {
        let key = format!("crowd-{run}-{n}");
        let params = open_params(&key, options, &[], 2000)?;
        asked.push((daemon.connect()?, key, params));
    }
    let (opened, span) = at_once(asked, |(mut control, key, params)| {
        let session = control.request("session/open", params)?;
        match session["state"].as_str() {
            Some("ready") => Ok((control, key)),
            _ => Err(io::Error::other(format!("the session is not what was asked for: {session}"))),
        }
    })?;
    at_once(opened, |(mut control, key)| control.close(&key))?;
    Ok(span)
}

/// The same as a host asks that has one connection: all requests are written, and then the answers are read.
fn over_one_connection(daemon: &Daemon, options: &Options, run: usize) -> io::Result<Duration> {
    let mut control = daemon.connect()?;
    let keys: Vec<String> = (0..CROWD).map(|n| format!("one-{run}-{n}")).collect();
    let all =
        keys.iter().map(|key| open_params(key, options, &[], 2000)).collect::<io::Result<Vec<Value>>>()?;
    let begin = Instant::now();
    for params in &all {
        control.send("session/open", params)?;
    }
    let opened = control.answers(CROWD)?;
    let span = begin.elapsed();
    if let Some(session) = opened.iter().find(|session| session["state"] != "ready") {
        return Err(io::Error::other(format!("the session is not what was asked for: {session}")));
    }
    for key in &keys {
        control.send("session/close", &serde_json::json!({"key": key}))?;
    }
    control.answers(CROWD)?;
    Ok(span)
}

/// Does something with each, in a thread of its own that waits for all the others, and tells how long it took from the first that began
/// until the last was done.
fn at_once<T: Send, R: Send>(
    each: Vec<T>,
    work: impl Fn(T) -> io::Result<R> + Sync,
) -> io::Result<(Vec<R>, Duration)> {
    let ready = Barrier::new(each.len());
    std::thread::scope(|scope| {
        let (ready, work) = (&ready, &work);
        let start = |item| {
            scope.spawn(move || {
                ready.wait();
                let begin = Instant::now();
                work(item).map(|done| (done, begin, Instant::now()))
            })
        };
        let threads: Vec<_> = each.into_iter().map(start).collect();
        let (mut all, mut first, mut last) = (Vec::new(), None, None);
        for thread in threads {
            let (done, begin, end) =
                thread.join().map_err(|_| io::Error::other("a thread of the harness panicked"))??;
            first = first.min(Some(begin)).or(Some(begin));
            last = last.max(Some(end));
            all.push(done);
        }
        let span = first.zip(last).map_or(Duration::ZERO, |(first, last)| last - first);
        Ok((all, span))
    })
}
