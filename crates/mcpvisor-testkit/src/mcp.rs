//! A client of a stdio MCP server that keeps every byte, for comparing.
use crate::process::Process;
use crate::scene::Invocation;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::process::{ChildStdin, ExitStatus};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

#[derive(Debug, Default)]
struct Collected {
    bytes: Vec<u8>,
    ended: bool,
}

type Stream = Arc<(Mutex<Collected>, Condvar)>;

/// A server (or `mcpvisor run -- server`) and our ends of its streams.
#[derive(Debug)]
pub struct Stdio {
    process: Process,
    stdin: Option<ChildStdin>,
    stdout: Stream,
    stderr: Stream,
    next: u64,
}

fn follow(stream: Option<impl Read + Send + 'static>) -> Stream {
    let shared = Stream::default();
    if let Some(mut stream) = stream {
        let ours = shared.clone();
        std::thread::spawn(move || {
            let mut buffer = vec![0; 1 << 16];
            loop {
                let count = stream.read(&mut buffer).unwrap_or(0);
                let mut state = ours.0.lock().unwrap_or_else(PoisonError::into_inner);
                state.bytes.extend_from_slice(&buffer[..count]);
                state.ended = count == 0;
                ours.1.notify_all();
                if state.ended {
                    return;
                }
            }
        });
    }
    shared
}

/// The whole lines of `bytes` from `from` on that are JSON objects, leniently: a BOM and text before the brace are passed over.
fn messages(bytes: &[u8]) -> impl Iterator<Item = Value> + '_ {
    bytes.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n")).filter_map(|line| {
        let brace = line.iter().position(|byte| *byte == b'{')?;
        serde_json::from_slice(&line[brace..]).ok()
    })
}

/// Whether an answer's id is this one, as a number or as text.
fn is_id(id: &Value, wanted: u64) -> bool {
    id.as_u64() == Some(wanted) || id.as_str() == Some(wanted.to_string().as_str())
}

impl Stdio {
    /// Starts it.
    #[must_use]
    pub fn start(command: Invocation<'_>) -> Self {
        let mut process = command.spawn();
        let stdin = process.take_stdin();
        let stdout = follow(process.take_stdout());
        let stderr = follow(process.take_stderr());
        Self { process, stdin, stdout, stderr, next: 1 }
    }

    /// The process itself.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Writes a line. A server that has gone is no fault here.
    pub fn send(&mut self, message: &Value) {
        self.write(format!("{message}\n").as_bytes());
    }

    /// Writes bytes. A server that has gone is no fault here.
    pub fn write(&mut self, bytes: &[u8]) {
        if let Some(stdin) = &mut self.stdin {
            let _ = stdin.write_all(bytes);
        }
    }

    /// Sends a request; returns its id.
    pub fn request(&mut self, method: &str, params: Value) -> u64 {
        let id = self.next;
        self.next += 1;
        let mut message = json!({"jsonrpc": "2.0", "id": id, "method": method});
        message["params"] = params;
        self.send(&message);
        id
    }

    /// The answer to a request, whole; None where none has come within the budget, or the stream has ended.
    pub fn answer(&self, id: u64, budget: Duration) -> Option<Value> {
        let is_it = |message: &Value| message.get("method").is_none() && is_id(&message["id"], id);
        self.wait_for(budget, |bytes| messages(bytes).find(is_it))
    }

    /// Waits until the bytes that have come so far say what is asked. Asks again with each whole line, and at the end.
    pub fn wait_for<T>(&self, budget: Duration, mut ask: impl FnMut(&[u8]) -> Option<T>) -> Option<T> {
        let end = Instant::now() + budget;
        let mut state = self.stdout.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut asked_to = None;
        loop {
            // A line of many megabytes comes in thousands of pieces: it is looked at when it is whole.
            let news = asked_to.is_none_or(|from: usize| state.bytes[from..].contains(&b'\n'));
            if news || state.ended {
                if let Some(answer) = ask(&state.bytes) {
                    return Some(answer);
                }
                asked_to = Some(state.bytes.len());
            }
            let left = end.saturating_duration_since(Instant::now());
            if state.ended || left.is_zero() {
                return None;
            }
            state = self.stdout.1.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// The legacy handshake.
    ///
    /// # Panics
    /// When it is not answered.
    #[track_caller]
    pub fn initialize(&mut self) -> Value {
        let id = self.request("initialize", handshake());
        let answer = self.answer(id, crate::SOON);
        let answer =
            answer.unwrap_or_else(|| panic!("no answer to initialize; stderr: {}", self.stderr_text()));
        self.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        answer
    }

    /// Calls a tool and returns the whole answer.
    ///
    /// # Panics
    /// When it is not answered.
    #[track_caller]
    pub fn call_tool(&mut self, name: &str, arguments: &Value) -> Value {
        let id = self.request("tools/call", json!({"name": name, "arguments": arguments}));
        let answer = self.answer(id, crate::SOON);
        answer.unwrap_or_else(|| panic!("no answer to a call of {name}; stderr: {}", self.stderr_text()))
    }

    /// Closes its standard input.
    pub fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// Everything that has come on its standard output.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        self.stdout.0.lock().unwrap_or_else(PoisonError::into_inner).bytes.clone()
    }

    /// Waits for the end of its standard output.
    pub fn output_ends(&self, budget: Duration) -> bool {
        ends(&self.stdout, budget)
    }

    /// Waits for the end of its standard error, and returns all of it.
    #[must_use]
    pub fn stderr_to_its_end(&self) -> String {
        ends(&self.stderr, crate::SOON);
        self.stderr_text()
    }

    /// Everything that has come on its standard error.
    #[must_use]
    pub fn stderr_text(&self) -> String {
        let state = self.stderr.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&state.bytes).into_owned()
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// When it has not ended within the budget.
    #[track_caller]
    pub fn wait(&mut self, budget: Duration) -> ExitStatus {
        self.process.wait(budget)
    }
}

fn ends(stream: &Stream, budget: Duration) -> bool {
    let state = stream.0.lock().unwrap_or_else(PoisonError::into_inner);
    let waited = stream.1.wait_timeout_while(state, budget, |state| !state.ended);
    waited.unwrap_or_else(PoisonError::into_inner).0.ended
}

/// The parameters of `initialize` that these tests send.
#[must_use]
pub fn handshake() -> Value {
    json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "mcpvisor-testkit", "version": "0.1.0"}})
}
