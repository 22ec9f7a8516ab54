//! The control protocol as bytes on a socket, without the project's own client: so that a fault of that can't hide one of the
//! daemon's.
use serde_json::{Value, json};
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

type Waiting = Arc<Mutex<Option<HashMap<u64, Sender<Value>>>>>;

/// A connection to a daemon, with any number of requests in flight. Closed when dropped.
#[derive(Debug)]
pub struct Rpc {
    stream: UnixStream,
    waiting: Waiting,
    others: Mutex<Receiver<Value>>,
    next: AtomicU64,
}

/// A request that was sent.
#[derive(Debug)]
pub struct Pending {
    /// Its id.
    pub id: u64,
    answer: Receiver<Value>,
    what: String,
}

impl Rpc {
    /// Connects.
    ///
    /// # Errors
    /// Where nobody serves the socket.
    pub fn connect(path: &Path) -> std::io::Result<Self> {
        let stream = UnixStream::connect(path)?;
        let reader = BufReader::new(stream.try_clone()?);
        let waiting: Waiting = Arc::new(Mutex::new(Some(HashMap::new())));
        let (other, others) = channel();
        let ours = waiting.clone();
        std::thread::spawn(move || {
            for line in reader.split(b'\n') {
                let Ok(line) = line else { break };
                let Ok(message) = serde_json::from_slice::<Value>(&line) else {
                    let _ = other.send(Value::String(String::from_utf8_lossy(&line).into_owned()));
                    continue;
                };
                let mut table = ours.lock().unwrap_or_else(PoisonError::into_inner);
                let waiter = message["id"].as_u64().and_then(|id| table.as_mut()?.remove(&id));
                match waiter {
                    Some(waiter) => drop(waiter.send(message)),
                    None => drop(other.send(message)),
                }
            }
            // Whoever still waits sees the end of its channel.
            *ours.lock().unwrap_or_else(PoisonError::into_inner) = None;
        });
        Ok(Self { stream, waiting, others: Mutex::new(others), next: AtomicU64::new(1) })
    }

    /// Sends a request.
    pub fn send(&self, method: &str, params: &Value) -> Pending {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (waiter, answer) = channel();
        if let Some(table) = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            table.insert(id, waiter);
        }
        self.send_line(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string());
        Pending { id, answer, what: method.to_owned() }
    }

    /// Sends a request and waits for its answer: the result, or the error object.
    ///
    /// # Errors
    /// The daemon's error object.
    ///
    /// # Panics
    /// When no answer comes.
    #[track_caller]
    pub fn call(&self, method: &str, params: &Value) -> Result<Value, Value> {
        self.send(method, params).wait(crate::SOON)
    }

    /// Cancels a request.
    pub fn cancel(&self, pending: &Pending) {
        let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": pending.id}});
        self.send_line(&cancel.to_string());
    }

    /// Sends a line as it is. What can't be sent since the daemon has hung up is lost, as for any client.
    pub fn send_line(&self, line: &str) {
        let mut bytes = line.as_bytes().to_vec();
        bytes.push(b'\n');
        let _ = (&self.stream).write_all(&bytes);
    }

    /// The next message that answers no request of ours.
    pub fn next_other(&self, budget: Duration) -> Option<Value> {
        self.others.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(budget).ok()
    }
}

impl Drop for Rpc {
    fn drop(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

impl Pending {
    /// Waits for the answer: the result, or the error object.
    ///
    /// # Errors
    /// The daemon's error object; `{"hung_up": true}` where the connection ended first.
    ///
    /// # Panics
    /// When nothing comes within the budget.
    #[track_caller]
    pub fn wait(self, budget: Duration) -> Result<Value, Value> {
        let what = self.what.clone();
        self.wait_within(budget)
            .unwrap_or_else(|_| panic!("no answer to {what} within {} ms", budget.as_millis()))
    }

    /// The answer, or the request itself where none has come within the budget.
    ///
    /// # Errors
    /// The request, to be asked again.
    pub fn wait_within(self, budget: Duration) -> Result<Result<Value, Value>, Self> {
        match self.answer.recv_timeout(budget) {
            Ok(mut message) => match message.get("error") {
                Some(error) => Ok(Err(error.clone())),
                None => Ok(Ok(message["result"].take())),
            },
            Err(RecvTimeoutError::Disconnected) => Ok(Err(json!({"hung_up": true}))),
            Err(RecvTimeoutError::Timeout) => Err(self),
        }
    }
}
