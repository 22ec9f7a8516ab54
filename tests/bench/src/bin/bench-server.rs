//! The server to measure with: blocking, small, a few microseconds a call. Flags make it misbehave.
//!
//! It answers `initialize`, `ping`, `tools/list` and `tools/call` of `echo`, `whoami` and `helper`, and leaves at end
//! of file. All answers to the lines that one read brought go out in one write.
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

const USAGE: &str =
    "bench-server [--ignore-eof] [--ignore-term] [--child | --daemon] [--own-session] [--slow-start MS] [--slow-exit MS]
  --ignore-eof     stays when standard input ends
  --ignore-term    ignores SIGTERM, SIGINT and SIGHUP, and so does its helper
  --child          has a helper process as its child
  --daemon         has a helper process in a session of its own, whose parent is gone
  --own-session    begins with setsid, as if it had been started so
  --slow-start MS  sleeps before it reads
  --slow-exit MS   sleeps after end of file";

/// What the helper process does when nobody ends it.
const HELPER_LIFE: Duration = Duration::from_secs(600);

const TOOLS: &str = concat!(
    r#"{"tools":[{"name":"echo","description":"Gives the text back.","inputSchema":{"type":"object","#,
    r#""properties":{"text":{"type":"string"}},"required":["text"]}},"#,
    r#"{"name":"whoami","description":"This server's process id.","inputSchema":{"type":"object"}},"#,
    r#"{"name":"helper","description":"Its helper's process id.","inputSchema":{"type":"object"}}]}"#
);

#[derive(Default)]
struct Options {
    ignore_eof: bool,
    ignore_term: bool,
    helper: Option<&'static str>,
    own_session: bool,
    slow_start: Duration,
    slow_exit: Duration,
}

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let mut options = Options::default();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--ignore-eof" => options.ignore_eof = true,
            "--ignore-term" => options.ignore_term = true,
            "--own-session" => options.own_session = true,
            "--child" => options.helper = Some("--as-helper"),
            "--daemon" => options.helper = Some("--as-launcher"),
            "--slow-start" | "--slow-exit" => {
                let Some(span) = args.next().and_then(|ms| ms.parse().ok()).map(Duration::from_millis) else {
                    return usage();
                };
                if arg == "--slow-start" { options.slow_start = span } else { options.slow_exit = span }
            }
            "--as-helper" | "--as-launcher" => {
                return finish(as_helper(arg == "--as-launcher", args.next().is_some()));
            }
            _ => return usage(),
        }
    }
    finish(serve(&options))
}

fn usage() -> ExitCode {
    eprintln!("{USAGE}");
    ExitCode::from(2)
}

fn finish(done: io::Result<()>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        // The client has hung up before it read its answer: an ordinary end.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench-server: {error}");
            ExitCode::FAILURE
        }
    }
}

fn ignore_signals() -> io::Result<()> {
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT, signal_hook::consts::SIGHUP] {
        signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)))?;
    }
    Ok(())
}

fn serve(options: &Options) -> io::Result<()> {
    if options.own_session {
        rustix::process::setsid()?;
    }
    if options.ignore_term {
        ignore_signals()?;
    }
    let helper = match options.helper {
        Some(role) => start_helper(role, options.ignore_term)?,
        None => 0,
    };
    std::thread::sleep(options.slow_start);
    answer_until_end(helper)?;
    std::thread::sleep(options.slow_exit);
    if !options.ignore_eof {
        return Ok(());
    }
    loop {
        std::thread::park();
    }
}

/// The helper tells its process id when it is ready; a launcher between us and it is reaped.
fn start_helper(role: &str, ignore_term: bool) -> io::Result<u32> {
    let mut command = Command::new("/proc/self/exe");
    command.arg(role).args(ignore_term.then_some("deaf"));
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let output = child.stdout.take().ok_or_else(|| io::Error::other("the helper has no output"))?;
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line)?;
    if role == "--as-launcher" {
        child.wait()?;
    }
    line.trim().parse().map_err(|_| io::Error::other("the helper did not start"))
}

fn as_helper(launcher: bool, deaf: bool) -> io::Result<()> {
    if launcher {
        rustix::process::setsid()?;
        let mut command = Command::new("/proc/self/exe");
        command.arg("--as-helper").args(deaf.then_some("deaf"));
        return command.spawn().map(drop);
    }
    if deaf {
        ignore_signals()?;
    }
    writeln!(io::stdout(), "{}", std::process::id())?;
    let null = File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    std::thread::sleep(HELPER_LIFE);
    Ok(())
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow)]
    params: Option<Params<'a>>,
}

/// Of all methods' parameters, those that this server looks at.
#[derive(Deserialize, Default)]
struct Params<'a> {
    #[serde(borrow)]
    name: Option<Cow<'a, str>>,
    #[serde(borrow)]
    arguments: Option<Arguments<'a>>,
    #[serde(borrow, rename = "protocolVersion")]
    protocol: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct Arguments<'a> {
    #[serde(borrow)]
    text: Option<&'a RawValue>,
}

fn answer_until_end(helper: u32) -> io::Result<()> {
    let mut input = Vec::new();
    let mut output = Vec::new();
    let mut chunk = [0_u8; 16 * 1024];
    loop {
        let count = match rustix::io::read(rustix::stdio::stdin(), &mut chunk) {
            Ok(0) => return Ok(()),
            Ok(count) => count,
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        };
        let new = &chunk[..count];
        let Some(last) = new.iter().rposition(|byte| *byte == b'\n') else {
            input.extend_from_slice(new);
            continue;
        };
        let (whole, rest) = new.split_at(last + 1);
        input.extend_from_slice(whole);
        for line in input.split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty()) {
            answer(line, helper, &mut output);
        }
        input.clear();
        input.extend_from_slice(rest);
        let mut left = output.as_slice();
        while !left.is_empty() {
            match rustix::io::write(rustix::stdio::stdout(), left) {
                Ok(count) => left = &left[count..],
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        output.clear();
    }
}

fn answer(line: &[u8], helper: u32, output: &mut Vec<u8>) {
    let Ok(message) = serde_json::from_slice::<Message<'_>>(line) else {
        put(output, "null", &[r#""error":{"code":-32700,"message":"not a message"}"#]);
        return;
    };
    let (Some(id), Some(method)) = (message.id, message.method) else { return };
    let id = id.get();
    let params = message.params.unwrap_or_default();
    match method.as_ref() {
        "tools/call" => match params.name.as_deref() {
            Some("echo") => {
                let text =
                    params.arguments.and_then(|arguments| arguments.text).map_or("\"\"", RawValue::get);
                put(output, id, &[r#""result":{"content":[{"type":"text","text":"#, text, "}]}"]);
            }
            Some(tool @ ("whoami" | "helper")) => {
                let pid = if tool == "helper" { helper } else { std::process::id() }.to_string();
                put(output, id, &[r#""result":{"content":[{"type":"text","text":""#, &pid, "\"}]}"]);
            }
            _ => put(output, id, &[r#""error":{"code":-32602,"message":"no such tool"}"#]),
        },
        "tools/list" => put(output, id, &[r#""result":"#, TOOLS]),
        "ping" => put(output, id, &[r#""result":{}"#]),
        "initialize" => {
            let version = params.protocol.as_deref().unwrap_or("2025-06-18");
            put(
                output,
                id,
                &[
                    r#""result":{"protocolVersion":""#,
                    version,
                    r#"","capabilities":{"tools":{}},"serverInfo":{"name":"bench-server","version":"1"}}"#,
                ],
            );
        }
        _ => put(output, id, &[r#""error":{"code":-32601,"message":"no such method"}"#]),
    }
}

fn put(output: &mut Vec<u8>, id: &str, rest: &[&str]) {
    output.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
    output.extend_from_slice(id.as_bytes());
    output.push(b',');
    for part in rest {
        output.extend_from_slice(part.as_bytes());
    }
    output.extend_from_slice(b"}\n");
}
