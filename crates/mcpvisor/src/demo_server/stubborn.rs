//! The server that refuses to die, with a helper that has got away.
//!
//! It stays after end of file, ignores the signals that ask it to leave, and has a helper in a session of its
//! own whose parent is gone: killing the server, its process group or its session would leave the helper behind.
use crate::demo_server::stdio::{Tool, serve};
use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// The argument that makes this program the process between server and helper.
pub(crate) const LAUNCHER: &str = "helper-launcher";
/// The argument that makes this program the helper.
pub(crate) const HELPER: &str = "helper";
/// The helper's own end, should nobody end it.
const HELPER_LIFE: Duration = Duration::from_secs(300);

/// Serves standard input, and stays when it ends.
pub(crate) fn main() -> io::Result<()> {
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        ignore(signal)?;
    }
    let helper = start_helper()?;
    let tools = [Tool {
        name: "helper_pid",
        description: "The process id of the helper that has left this server's process group.",
        input: json!({"type": "object", "properties": {}}),
        call: Box::new(move |_| Ok(helper.to_string())),
    }];
    serve("stubborn", &tools, io::stdin().lock(), io::stdout().lock())?;
    loop {
        std::thread::park();
    }
}

/// Leaves the server's session, starts the helper in the new one and is gone.
pub(crate) fn launcher() -> io::Result<()> {
    rustix::process::setsid()?;
    itself(HELPER).stdin(Stdio::null()).stderr(Stdio::null()).spawn().map(drop)
}

/// Tells its process id once it is deaf to SIGTERM, lets go of the server's pipe, and sleeps.
pub(crate) fn helper() -> io::Result<()> {
    ignore(SIGTERM)?;
    writeln!(io::stdout(), "{}", std::process::id())?;
    let null = File::options().write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdout(&null)?;
    drop(null);
    #[expect(clippy::disallowed_methods, reason = "to be there is all that it is for")]
    std::thread::sleep(HELPER_LIFE);
    Ok(())
}

/// A signal whose handler only sets a flag that nobody reads is ignored, and the handler, unlike SIG_IGN, is not
/// passed on to programs that are started.
fn ignore(signal: i32) -> io::Result<()> {
    signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false))).map(drop)
}

fn start_helper() -> io::Result<u32> {
    let mut launcher = itself(LAUNCHER).stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let mut line = String::new();
    if let Some(output) = launcher.stdout.take() {
        BufReader::new(output).read_line(&mut line)?;
    }
    launcher.wait()?;
    line.trim().parse().map_err(|_| io::Error::other("the helper did not start"))
}

/// This very program, even where its file was replaced or removed meanwhile.
#[expect(
    clippy::disallowed_methods,
    reason = "a bundled server starts itself, and is supervised with all that it starts"
)]
fn itself(role: &str) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("mcpvisor").args(["demo-server", role]);
    command
}
