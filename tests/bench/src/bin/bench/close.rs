//! How long after the last process's exit a close is acknowledged, and that it never is before.
//!
//! The harness holds pidfds of its own. A thread notes when the last of them tells the exit; the main thread
//! notes the acknowledgement, and asks each pidfd at that moment: one that has not told an exit yet means that
//! the acknowledgement came too early, whatever the clocks say.
use crate::daemon::Daemon;
use crate::options::Options;
use crate::report::{Report, Samples};
use crate::stdio::readable;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde_json::{Value, json};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::mpsc;
use std::time::{Duration, Instant};

const SUITE: &str = "close-ack";

struct Case {
    name: &'static str,
    args: &'static [&'static str],
    /// Of stdin and SIGTERM each, in milliseconds.
    graces: u64,
}

const CASES: [Case; 2] = [
    Case { name: "a server that leaves at end of file", args: &[], graces: 2000 },
    Case {
        name: "a deaf server with a deaf, double-forked helper, both killed",
        args: &["--ignore-eof", "--ignore-term", "--daemon"],
        graces: 1,
    },
];

pub(crate) fn run(options: &Options, report: &mut Report) -> io::Result<()> {
    let daemon = Daemon::start(options)?;
    let mut control = daemon.connect()?;
    let mut early = 0;
    let mut unreaped = 0;
    let mut results: Vec<(Samples, Samples)> = CASES.iter().map(|_| Default::default()).collect();
    for run in 0..options.runs {
        for (index, case) in CASES.iter().enumerate() {
            let key = format!("close-{index}-{run}");
            let session = control.open(&key, options, case.args, case.graces)?;
            let mut pids = vec![number(&session["servers"][0]["pid"])?];
            if case.args.contains(&"--daemon") {
                let call =
                    control.request("tool/call", json!({"key": key, "tool": "helper", "arguments": {}}))?;
                pids.push(number(&call["content"][0]["text"])?);
            }
            let pidfds = pids
                .iter()
                .map(|pid| Ok(pidfd_open(*pid, PidfdFlags::empty())?))
                .collect::<io::Result<Vec<OwnedFd>>>()?;

            let (ready, is_ready) = mpsc::channel();
            let seen = std::thread::scope(|scope| -> io::Result<_> {
                let watcher = scope.spawn(|| last_exit(&pidfds, &ready));
                // The send fails only if the watcher is gone, and then the join tells why.
                let _ = is_ready.recv();
                control.send("session/close", &json!({"key": key}))?;
                let certificate = control.answer()?["results"][0].take();
                let acknowledged = Instant::now();
                for (pid, pidfd) in pids.iter().zip(&pidfds) {
                    early += usize::from(!readable(pidfd, Duration::ZERO)?);
                    unreaped += usize::from(rustix::process::test_kill_process(*pid).is_ok());
                }
                let exited = watcher.join().map_err(|_| io::Error::other("the watcher panicked"))??;
                Ok((certificate, acknowledged, exited))
            });
            let (certificate, acknowledged, exited) = seen?;
            if certificate["outcome"] != "closed" {
                return Err(io::Error::other(format!("not closed: {certificate}")));
            }
            // Where the watcher was scheduled only after the acknowledgement, the difference is below what can
            // be measured; that it is not negative is what `early` tells.
            results[index].0.push_ms(acknowledged.saturating_duration_since(exited));
            if let Some(own) = certificate["acknowledged_after_us"].as_f64() {
                results[index].1.push(own / 1e3);
            }
        }
    }
    for (case, (seen, told)) in CASES.iter().zip(results) {
        report.promise(SUITE, &format!("after the last exit: {}", case.name), "ms", seen, 0.5);
        if told.len() > 0 {
            report.add(SUITE, &format!("the daemon's own figure: {}", case.name), "ms", told);
        }
    }
    report.note(format!(
        "close-ack: {early} acknowledgements before an exit and {unreaped} with a process left unreaped, of {}.",
        options.runs * CASES.len()
    ));
    if early + unreaped > 0 {
        return Err(io::Error::other("a close was acknowledged before its processes were gone"));
    }
    Ok(())
}

/// When the last of the processes was seen to have exited.
fn last_exit(pidfds: &[OwnedFd], ready: &mpsc::Sender<()>) -> io::Result<Instant> {
    // Nobody listens only if the main thread has failed, which it tells itself.
    let _ = ready.send(());
    let mut last = Instant::now();
    for pidfd in pidfds {
        if !readable(pidfd, Options::PATIENCE)? {
            return Err(io::Error::other("a process did not exit"));
        }
        last = Instant::now();
    }
    Ok(last)
}

fn number(value: &Value) -> io::Result<Pid> {
    let number = value.as_i64().or_else(|| value.as_str().and_then(|text| text.parse().ok()));
    number
        .and_then(|number| i32::try_from(number).ok())
        .and_then(Pid::from_raw)
        .ok_or_else(|| io::Error::other(format!("{value} is not a process id")))
}
