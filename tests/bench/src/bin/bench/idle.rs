//! What sessions cost that do nothing, each with a shared server and a client that is attached: memory and descriptors of the daemon, and
//! how often it wakes up.
use crate::daemon::Daemon;
use crate::options::Options;
use crate::report::{Report, Samples};
use crate::stdio::Lines;
use serde_json::json;
use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

const SUITE: &str = "idle";
const SESSIONS: usize = 500;
/// Until a daemon that has just begun rests.
const SETTLED: Duration = Duration::from_secs(1);
/// As long as wake-ups are counted.
const WATCHED: Duration = Duration::from_secs(10);
const HELLO: &str = concat!(
    r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","#,
    r#""capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}"#,
    "\n"
);

#[expect(clippy::cast_precision_loss, reason = "kibibytes and counts")]
pub(crate) fn run(options: &Options, report: &mut Report) -> io::Result<()> {
    let daemon = Daemon::start(options)?;
    let pid = daemon.pid();
    // The guardian, which is the same program, begins beside the start: what both have mapped is nobody's own.
    std::thread::sleep(SETTLED);
    let base = private_kib(pid)?;
    let mut control = daemon.connect()?;
    // What the first session ever brings is no session's: code that was not run before, for the most part.
    control.open("first", options, &[], 1000)?;
    control.close("first")?;
    let (memory, descriptors) = (private_kib(pid)?, count(&format!("/proc/{pid}/fd"))?);
    let mut clients = Vec::new();
    for n in 0..SESSIONS {
        let key = format!("idle-{n}");
        control.open(&key, options, &[], 1000)?;
        let mut stream = UnixStream::connect(daemon.socket())?;
        let attach = json!({"jsonrpc": "2.0", "id": 0, "method": "session/attach", "params": {"key": key}});
        stream.write_all(format!("{attach}\n{HELLO}").as_bytes())?;
        let mut lines = Lines::new(stream);
        // The answer to the attach, and to initialize.
        for _ in 0..2 {
            if lines.next()?.is_empty() {
                return Err(io::Error::other("the daemon has ended the connection"));
            }
        }
        clients.push(lines.into_source());
    }
    let grown = (private_kib(pid)? - memory) as f64 / SESSIONS as f64;
    let opened = (count(&format!("/proc/{pid}/fd"))? - descriptors) as f64 / SESSIONS as f64;
    let before = switches(pid)?;
    std::thread::sleep(WATCHED);
    let woken = switches(pid)? - before;
    report.promise(SUITE, "private memory of the daemon without a session", "KiB", one(base as f64), 4096.0);
    report.promise(SUITE, "private memory of a session with a client", "KiB", one(grown), 32.0);
    report.promise(SUITE, "descriptors of a session with a client", "1", one(opened), 6.0);
    report.promise(SUITE, "wake-ups of the daemon in 10 s, 500 sessions", "1", one(woken as f64), 0.0);
    drop(clients);
    Ok(())
}

fn one(value: f64) -> Samples {
    let mut samples = Samples::default();
    samples.push(value);
    samples
}

/// Memory that is nobody else's, of proc(5)'s smaps_rollup.
fn private_kib(pid: u32) -> io::Result<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    let of = |line: &str| line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok());
    Ok(text.lines().filter(|line| line.starts_with("Private_")).filter_map(of).sum())
}

fn count(folder: &str) -> io::Result<u64> {
    Ok(std::fs::read_dir(folder)?.count() as u64)
}

/// How often its threads have gone to sleep so far, which is how often they were woken.
fn switches(pid: u32) -> io::Result<u64> {
    let mut all = 0;
    for task in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let status = std::fs::read_to_string(task?.path().join("status"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        all += line.and_then(|count| count.trim().parse::<u64>().ok()).unwrap_or(0);
    }
    Ok(all)
}
