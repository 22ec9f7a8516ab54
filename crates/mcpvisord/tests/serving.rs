//! The daemon as a program: what connections hold, what systemd passes, what private mode promises.
#![expect(clippy::unwrap_used, reason = "a test that can't go on fails")]
#![expect(clippy::disallowed_methods, reason = "these tests start the daemon, and signal and reap it")]
use mcpvisor_control::Lease;
use mcpvisor_control::blocking::Connection;
use mcpvisor_control::message::Message;
use mcpvisor_control::params::{
    Descriptor, Direct, Hello, ServerDefinition, SessionClose, SessionList, SessionOpen, Shutdown,
};
use mcpvisor_control::{Call, ServerName, SessionKey, Text};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::io::{PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(20);

/// Waits on a condition.
#[track_caller]
fn until<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(Instant::now() < deadline, "{what} did not come about");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn is_there(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

/// A daemon in a folder of its own, ended at the end of the test.
struct Daemon {
    child: Child,
    folder: tempfile::TempDir,
}

impl Daemon {
    fn start(config: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("config.toml"), config).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_mcpvisord"));
        command.arg("--socket").arg(folder.path().join("s"));
        command.arg("--config").arg(folder.path().join("config.toml")).stdin(Stdio::null());
        command.stderr(std::fs::File::create(folder.path().join("log")).unwrap());
        let daemon = Self { child: command.spawn().unwrap(), folder };
        until("the daemon's socket", || UnixStream::connect(daemon.socket()).ok());
        daemon
    }

    fn quick() -> Self {
        Self::start("[timeouts]\nstdin_grace = \"100ms\"\nterm_grace = \"100ms\"\nstart = \"1m\"\n")
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("s")
    }

    fn connect(&self) -> Connection {
        Connection::new(UnixStream::connect(self.socket()).unwrap())
    }

    fn sessions(&self) -> Vec<String> {
        let list = ask(&mut self.connect(), &SessionList::default());
        let sessions = list["sessions"].as_array().unwrap();
        sessions.iter().map(|session| session["key"].as_str().unwrap().to_owned()).collect()
    }

    fn end(mut self) -> ExitStatus {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, Signal::TERM).unwrap();
        until("the daemon's end", || self.child.try_wait().unwrap())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default());
        }
        if self.child.try_wait().unwrap().is_none() {
            let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
            until("the daemon's end", || self.child.try_wait().unwrap());
        }
    }
}

/// One answer, as JSON.
fn answer(connection: &mut Connection) -> Result<Value, Value> {
    loop {
        if let Some(message) = connection.next_message().unwrap() {
            let Message::Response { result, .. } = message else { continue };
            return result
                .map(|raw| serde_json::from_str(raw.get()).unwrap())
                .map_err(|error| serde_json::to_value(error).unwrap());
        }
        connection.receive(true).unwrap();
    }
}

fn ask<P: Call>(connection: &mut Connection, params: &P) -> Value {
    connection.send(params, &[]).unwrap();
    answer(connection).unwrap_or_else(|error| panic!("{error:#}"))
}

fn command(words: &[&str]) -> ServerDefinition {
    let words = words.iter().map(|word| Text::new(*word).unwrap()).collect();
    ServerDefinition::new(ServerName::new("main").unwrap(), words)
}

fn open(key: &str, words: &[&str]) -> SessionOpen {
    SessionOpen {
        key: Some(SessionKey::new(key).unwrap()),
        servers: vec![command(words)],
        environment: vec![Text::new("PATH=/usr/bin:/bin").unwrap()],
        cwd: Some(Text::new("/").unwrap()),
        lease: Lease::Connection,
        ..SessionOpen::default()
    }
}

/// What never speaks MCP, so that its open waits.
const SILENT: [&str; 3] = ["sh", "-c", "exec sleep 1000"];

struct Streams {
    stdin: PipeWriter,
    stdout: PipeReader,
    theirs: [OwnedFd; 2],
}

fn streams() -> Streams {
    let (their_stdin, stdin) = std::io::pipe().unwrap();
    let (stdout, their_stdout) = std::io::pipe().unwrap();
    Streams { stdin, stdout, theirs: [their_stdin.into(), their_stdout.into()] }
}

fn direct(key: &str, words: &[&str]) -> SessionOpen {
    let direct = Some(Direct { descriptors: vec![Descriptor::Stdin, Descriptor::Stdout] });
    SessionOpen { direct, ..open(key, words) }
}

fn open_direct(connection: &mut Connection, params: &SessionOpen) -> (Value, PipeWriter, PipeReader) {
    let Streams { stdin, stdout, theirs } = streams();
    let descriptors: Vec<BorrowedFd<'_>> = theirs.iter().map(AsFd::as_fd).collect();
    connection.send(params, &descriptors).unwrap();
    let opened = answer(connection).unwrap_or_else(|error| panic!("{error:#}"));
    (opened, stdin, stdout)
}

#[test]
fn g34_a_connection_ends_the_sessions_that_it_holds() {
    let daemon = Daemon::quick();
    let mut holder = daemon.connect();
    let (opened, mut stdin, mut stdout) = open_direct(&mut holder, &direct("held", &["cat"]));
    let pid = u32::try_from(opened["servers"][0]["pid"].as_u64().unwrap()).unwrap();
    stdin.write_all(b"through\n").unwrap();
    let mut echoed = [0; 8];
    stdout.read_exact(&mut echoed).unwrap();
    assert_eq!(&echoed, b"through\n");
    assert_eq!(opened["lease"], "connection");
    drop(holder);
    until("the session's end", || daemon.sessions().is_empty().then_some(()));
    assert!(!is_there(pid));
    assert!(daemon.end().success());
}

#[test]
fn g7_an_open_on_its_way_ends_with_its_connection() {
    let daemon = Daemon::quick();
    for wait in [true, false] {
        let mut holder = daemon.connect();
        holder.send(&SessionOpen { wait, ..open("k", &SILENT) }, &[]).unwrap();
        until("the session's start", || (daemon.sessions() == ["k"]).then_some(()));
        drop(holder);
        until("the session's end", || daemon.sessions().is_empty().then_some(()));
    }
    assert!(daemon.end().success());
}

#[test]
fn an_open_that_is_not_waited_for_outlives_its_connection() {
    let daemon = Daemon::quick();
    let mut opener = daemon.connect();
    let params = SessionOpen { wait: false, lease: Lease::None, ..open("k", &SILENT) };
    assert_eq!(ask(&mut opener, &params)["state"], "starting");
    drop(opener);
    // A later request of another connection is handled after the end of the first was.
    for _ in 0..5 {
        assert_eq!(daemon.sessions(), ["k"]);
    }
    let close = json!({"key": "k", "now": true});
    let close: SessionClose = serde_json::from_value(close).unwrap();
    assert_eq!(ask(&mut daemon.connect(), &close)["results"][0]["outcome"], "closed");
    assert!(daemon.end().success());
}

#[test]
fn a_cancelled_open_is_answered_once_and_leaves_nothing() {
    let daemon = Daemon::quick();
    let mut opener = daemon.connect();
    let id = opener.send(&open("k", &SILENT), &[]).unwrap();
    until("the session's start", || (daemon.sessions() == ["k"]).then_some(()));
    // There is no other way to send a notification over a blocking connection than a second one to the same stream.
    let notice = json!({"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":id}});
    opener.send_raw(format!("{notice}\n").as_bytes());
    let error = answer(&mut opener).unwrap_err();
    assert_eq!(error["data"]["kind"], "cancelled");
    until("the session's end", || daemon.sessions().is_empty().then_some(()));
    ask(&mut opener, &Hello::default());
    assert!(daemon.end().success());
}

/// What a blocking connection can't send by itself.
trait SendRaw {
    fn send_raw(&mut self, bytes: &[u8]);
}

impl SendRaw for Connection {
    fn send_raw(&mut self, bytes: &[u8]) {
        rustix::io::write(self.as_fd(), bytes).unwrap();
    }
}

#[test]
fn descriptors_that_are_missing_are_told() {
    let daemon = Daemon::quick();
    let mut opener = daemon.connect();
    opener.send(&direct("k", &["cat"]), &[]).unwrap();
    let error = answer(&mut opener).unwrap_err();
    assert_eq!(error["data"]["kind"], "invalid_request");
    assert!(error["message"].as_str().unwrap().contains("0 came along"), "{error:#}");
    // The connection, and descriptors on it, go on.
    let (_, stdin, mut stdout) = open_direct(&mut opener, &direct("k", &["cat"]));
    drop(stdin);
    assert_eq!(stdout.read(&mut [0; 1]).unwrap(), 0);
    assert!(daemon.end().success());
}

#[test]
fn a_socket_that_systemd_passes_is_served_and_left() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("passed");
    let listener = UnixListener::bind(&path).unwrap();
    let mut child = Command::new("sh")
        .args(["-c", "exec 3<&0 0</dev/null; LISTEN_FDS=1 LISTEN_PID=$$ exec \"$0\""])
        .arg(env!("CARGO_BIN_EXE_mcpvisord"))
        .stdin(OwnedFd::from(listener))
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let hello = ask(&mut Connection::new(UnixStream::connect(&path).unwrap()), &Hello::default());
    assert_eq!(hello["pid"], child.id());
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert!(until("the daemon's end", || child.try_wait().unwrap()).success());
    assert!(path.exists(), "it is the service manager's to remove");
}

fn private() -> (Connection, u32) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_mcpvisord"))
        .arg("--private")
        .stdin(OwnedFd::from(theirs))
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    assert!(child.wait().unwrap().success(), "it goes into the background");
    let mut connection = Connection::new(ours);
    let hello = ask(&mut connection, &Hello::default());
    (connection, u32::try_from(hello["pid"].as_u64().unwrap()).unwrap())
}

#[test]
fn a_private_daemon_ends_with_its_connection_sessions_first() {
    let (mut connection, daemon) = private();
    let standard = |fd: u32| std::fs::read_link(format!("/proc/{daemon}/fd/{fd}")).unwrap();
    for fd in 0..3 {
        assert_eq!(standard(fd), Path::new("/dev/null"));
    }
    // It is in a session of its own, and ignores what its server does.
    let stubborn = ["sh", "-c", "trap '' TERM; while :; do sleep 1000; done"];
    let (opened, _stdin, _stdout) = open_direct(&mut connection, &direct("k", &stubborn));
    let pid = u32::try_from(opened["servers"][0]["pid"].as_u64().unwrap()).unwrap();
    assert!(is_there(pid));
    drop(connection);
    until("the private daemon's end", || {
        if is_there(daemon) {
            return None;
        }
        assert!(!is_there(pid), "sessions end first");
        Some(())
    });
}

#[test]
fn a_private_daemon_heeds_the_signals() {
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let (mut connection, daemon) = private();
        let (opened, _stdin, _stdout) = open_direct(&mut connection, &direct("k", &["cat"]));
        let pid = u32::try_from(opened["servers"][0]["pid"].as_u64().unwrap()).unwrap();
        kill_process(Pid::from_raw(i32::try_from(daemon).unwrap()).unwrap(), signal).unwrap();
        until("the private daemon's end", || (!is_there(daemon)).then_some(()));
        assert!(!is_there(pid));
    }
}

#[test]
fn private_mode_without_a_connection_says_so() {
    let output =
        Command::new(env!("CARGO_BIN_EXE_mcpvisord")).arg("--private").stdin(Stdio::null()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("standard input"), "{output:?}");
}

#[test]
fn shutdown_by_request_is_the_daemons_last_word() {
    let mut daemon = Daemon::quick();
    let mut other = daemon.connect();
    let mut closing = daemon.connect();
    let (_, _stdin, _stdout) = open_direct(&mut other, &direct("k", &["cat"]));
    let told = ask(&mut closing, &Shutdown { now: true, wait: true, deadline_ms: None });
    assert_eq!(told["quarantined"], 0);
    assert!(until("the daemon's end", || daemon.child.try_wait().unwrap()).success());
    let mut left: Vec<_> =
        std::fs::read_dir(daemon.folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["config.toml", "log"]);
}
