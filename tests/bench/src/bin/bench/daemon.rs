//! A daemon to measure, and a connection to its control socket.
use crate::options::Options;
use crate::stdio::Lines;
use serde_json::{Value, json};
use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A daemon of our own in a folder of its own. Ended when dropped, sessions first.
pub(crate) struct Daemon {
    child: Child,
    folder: tempfile::TempDir,
}

impl Daemon {
    pub(crate) fn start(options: &Options) -> io::Result<Self> {
        let folder = folder()?;
        let mut command = Command::new(&options.mcpvisor);
        let config = folder.path().join("mcpvisord.toml");
        std::fs::write(&config, "[daemon]\nmax_sessions = 3000\nmax_sessions_per_user = 3000\n")?;
        command.args(["daemon", "--socket"]).arg(socket(folder.path())).arg("--config").arg(config);
        if let Some(containment) = &options.containment {
            command.args(["--containment", containment]);
        }
        let log = std::fs::File::create(folder.path().join("log"))?;
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn()?;
        let mut daemon = Self { child, folder };
        daemon.wait_until_it_answers()?;
        Ok(daemon)
    }

    fn wait_until_it_answers(&mut self) -> io::Result<()> {
        let end = Instant::now() + Options::PATIENCE;
        while UnixStream::connect(self.socket()).is_err() {
            if Instant::now() > end || self.child.try_wait()?.is_some() {
                let log = std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
                return Err(io::Error::other(format!("the daemon does not answer: {log}")));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    pub(crate) fn socket(&self) -> PathBuf {
        socket(self.folder.path())
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn connect(&self) -> io::Result<Control> {
        Ok(Control { lines: Lines::new(UnixStream::connect(self.socket())?), last: 0 })
    }
}

/// A folder of memory, as those are in which sockets belong (/run, /run/user/UID): the daemon notes each session beside its socket, which costs
/// more on a disk than all else that an open adds.
fn folder() -> io::Result<tempfile::TempDir> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let of_memory = runtime.into_iter().chain([PathBuf::from("/dev/shm")]);
    of_memory.map(tempfile::tempdir_in).find_map(Result::ok).map_or_else(tempfile::tempdir, Ok)
}

fn socket(folder: &Path) -> PathBuf {
    folder.join("control.sock")
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(rustix::process::Pid::from_raw) {
            // A daemon that is gone already is reaped by the wait below.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let end = Instant::now() + Options::PATIENCE;
        while Instant::now() < end {
            match self.child.try_wait() {
                Ok(None) => std::thread::sleep(Duration::from_millis(5)),
                Ok(Some(_)) | Err(_) => return,
            }
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A connection to the control socket, with one request at a time.
pub(crate) struct Control {
    lines: Lines<UnixStream>,
    last: u64,
}

impl Control {
    /// Sends a request and gives back its result.
    #[expect(clippy::needless_pass_by_value, reason = "the parameters are made for this call")]
    pub(crate) fn request(&mut self, method: &str, params: Value) -> io::Result<Value> {
        self.send(method, &params)?;
        self.answer()
    }

    pub(crate) fn send(&mut self, method: &str, params: &Value) -> io::Result<()> {
        self.last += 1;
        let line =
            json!({"jsonrpc": "2.0", "id": self.last, "method": method, "params": params}).to_string() + "\n";
        self.lines.source().write_all(line.as_bytes())
    }

    /// The answer to the last request.
    pub(crate) fn answer(&mut self) -> io::Result<Value> {
        let mut message: Value = serde_json::from_slice(self.lines.next()?)?;
        if message["id"] != self.last || message.get("result").is_none() {
            return Err(io::Error::other(format!("unexpected answer {message}")));
        }
        Ok(message["result"].take())
    }

    /// The results of the last requests, as many as were not asked for yet, in the order in which they come.
    pub(crate) fn answers(&mut self, count: usize) -> io::Result<Vec<Value>> {
        (0..count)
            .map(|_| {
                let mut message: Value = serde_json::from_slice(self.lines.next()?)?;
                match message.get_mut("result") {
                    Some(result) => Ok(result.take()),
                    None => Err(io::Error::other(format!("unexpected answer {message}"))),
                }
            })
            .collect()
    }

    /// Opens a session with one shared server named `main`.
    pub(crate) fn open(
        &mut self,
        key: &str,
        options: &Options,
        args: &[&str],
        graces_ms: u64,
    ) -> io::Result<Value> {
        let params = open_params(key, options, args, graces_ms)?;
        self.request("session/open", params)
    }

    pub(crate) fn close(&mut self, key: &str) -> io::Result<Value> {
        self.request("session/close", json!({"key": key}))
    }
}

/// The parameters of an open.
pub(crate) fn open_params(key: &str, options: &Options, args: &[&str], graces_ms: u64) -> io::Result<Value> {
    let server = options.server.to_str().ok_or_else(|| io::Error::other("the server's path is not UTF-8"))?;
    let command: Vec<&str> = std::iter::once(server).chain(args.iter().copied()).collect();
    // The same environment as the direct server's, which inherits ours.
    let environment: Vec<String> = std::env::vars().map(|(name, value)| format!("{name}={value}")).collect();
    Ok(json!({
        "key": key,
        "servers": [{
            "name": "main", "command": command,
            "stdin_grace_ms": graces_ms, "term_grace_ms": graces_ms,
        }],
        "environment": environment,
        "lease": "connection",
    }))
}
