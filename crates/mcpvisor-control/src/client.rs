//! The asynchronous client: many requests in flight on one connection.
use crate::call::Call;
use crate::error::ErrorObject;
use crate::line::LineBuffer;
use crate::message::{self, Id, Message};
use crate::method;
use crate::params::Cancelled;
use crate::socket::{self, NoDaemon, Surroundings};
use serde::Serialize;
use serde_json::value::RawValue;
use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;

/// How many notifications are held for a reader that is slower than the daemon. Beyond that the connection is not read,
/// so that nothing is lost: the daemon decides what it does with a client that does not read.
const NOTIFICATIONS: usize = 256;

/// Why a request got no answer.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The daemon refused it.
    #[error("{0}")]
    Refused(Box<ErrorObject>),
    /// The connection ended before the answer. What was asked may have been done.
    #[error("the connection to the daemon has ended: {0}")]
    Disconnected(String),
    /// The answer is not what it should be, or the request can't be told in JSON.
    #[error("a message can't be understood: {0}")]
    Malformed(String),
}

/// A notification of the daemon.
#[derive(Debug)]
pub struct Notification {
    /// Its name.
    pub method: String,
    /// As they came.
    pub params: Option<Box<RawValue>>,
}

/// A connection to the daemon; cheap to clone. It ends when the last clone and the last request are gone, and with it
/// what has it as its lease.
#[derive(Debug, Clone)]
pub struct Client {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    last_id: AtomicI64,
    /// Never waits: what is in it belongs to requests that their callers hold.
    lines: mpsc::UnboundedSender<Vec<u8>>,
    waiting: Arc<Waiting>,
    notifications: Mutex<Option<mpsc::Receiver<Notification>>>,
    reader: AbortHandle,
}

impl Drop for Shared {
    fn drop(&mut self) {
        // The writer ends by itself when it has written what it has, the cancellations of dropped requests among it.
        self.reader.abort();
    }
}

type Answer = Result<Box<RawValue>, ErrorObject>;

/// The requests in flight.
#[derive(Debug, Default)]
struct Waiting {
    state: Mutex<WaitingState>,
}

#[derive(Debug, Default)]
struct WaitingState {
    requests: HashMap<Id, oneshot::Sender<Answer>>,
    /// Why no answer comes any more.
    ended: Option<String>,
}

impl Waiting {
    fn lock(&self) -> MutexGuard<'_, WaitingState> {
        // No code that holds the lock can panic half way through a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self, reason: &str) {
        let mut state = self.lock();
        state.ended.get_or_insert_with(|| reason.to_owned());
        state.requests.clear();
    }

    fn reason(&self) -> Error {
        Error::Disconnected(self.lock().ended.clone().unwrap_or_else(|| "it was closed here".to_owned()))
    }
}

impl Client {
    /// Connects to the socket at this path. Must be called within a tokio runtime. Who serves it is not asked.
    pub async fn connect(path: &Path) -> io::Result<Self> {
        Ok(Self::over(UnixStream::connect(path).await?))
    }

    /// Connects to the daemon that this process's environment names; see [`socket::connect`]. Must be called within a
    /// tokio runtime.
    pub fn find() -> Result<Self, NoDaemon> {
        let (stream, path) = socket::connect(&Surroundings::of_process(None))?;
        Self::from_stream(stream).map_err(|error| NoDaemon { tried: vec![(path, error)] })
    }

    /// Over a connected stream, which is made non-blocking. Must be called within a tokio runtime.
    pub fn from_stream(stream: std::os::unix::net::UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self::over(UnixStream::from_std(stream)?))
    }

    fn over(stream: UnixStream) -> Self {
        let (read, write) = stream.into_split();
        let waiting = Arc::new(Waiting::default());
        let (lines, outgoing) = mpsc::unbounded_channel();
        let (notify, notifications) = mpsc::channel(NOTIFICATIONS);
        tokio::spawn(write_all(write, outgoing, Arc::clone(&waiting)));
        let reader = tokio::spawn(read_all(read, Arc::clone(&waiting), notify)).abort_handle();
        let notifications = Mutex::new(Some(notifications));
        Self {
            shared: Arc::new(Shared { last_id: AtomicI64::new(0), lines, waiting, notifications, reader }),
        }
    }

    /// The daemon's notifications, once: later calls give None. As long as nobody has asked for them they are held, up to
    /// a bound; take them where a request makes the daemon send any, and drop what is taken where they are not wanted.
    pub fn notifications(&self) -> Option<mpsc::Receiver<Notification>> {
        self.shared.notifications.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Asks and waits for the answer.
    ///
    /// Dropping the future tells the daemon that the answer is not wanted any more: an open that waits is cancelled, a call
    /// is cancelled at its server, and a close goes on all the same.
    pub async fn call<P: Call>(&self, params: &P) -> Result<P::Answer, Error> {
        let raw = self.request(P::METHOD.as_str(), params).await?;
        serde_json::from_str(raw.get()).map_err(|error| Error::Malformed(error.to_string()))
    }

    /// Asks by name, and gives the answer as it came. As [`Self::call`] otherwise.
    pub async fn request(&self, method: &str, params: impl Serialize) -> Result<Box<RawValue>, Error> {
        let mut request = self.start(method, params)?;
        let answer = (&mut request.answer).await;
        request.done = true;
        match answer {
            Ok(answer) => answer.map_err(|error| Error::Refused(Box::new(error))),
            Err(_) => Err(self.shared.waiting.reason()),
        }
    }

    fn start(&self, method: &str, params: impl Serialize) -> Result<InFlight, Error> {
        let id = Id::Number(self.shared.last_id.fetch_add(1, Ordering::Relaxed) + 1);
        let line =
            message::request(&id, method, params).map_err(|error| Error::Malformed(error.to_string()))?;
        let (done, answer) = oneshot::channel();
        {
            let mut state = self.shared.waiting.lock();
            if let Some(reason) = &state.ended {
                return Err(Error::Disconnected(reason.clone()));
            }
            state.requests.insert(id.clone(), done);
        }
        // A writer that is gone has ended the waiting, which the answer's channel tells.
        let _ = self.shared.lines.send(line);
        Ok(InFlight { shared: Arc::clone(&self.shared), id, answer, done: false })
    }
}

/// A request whose answer is wanted as long as this lives.
struct InFlight {
    shared: Arc<Shared>,
    id: Id,
    answer: oneshot::Receiver<Answer>,
    done: bool,
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if self.done || self.shared.waiting.lock().requests.remove(&self.id).is_none() {
            return;
        }
        let cancelled = Cancelled { request_id: self.id.clone() };
        if let Ok(line) = message::notification(method::CANCELLED, &cancelled) {
            // Where the writer is gone, so is the connection, which cancels as well.
            let _ = self.shared.lines.send(line);
        }
    }
}

async fn write_all(
    mut write: OwnedWriteHalf,
    mut lines: mpsc::UnboundedReceiver<Vec<u8>>,
    waiting: Arc<Waiting>,
) {
    while let Some(line) = lines.recv().await {
        if let Err(error) = write.write_all(&line).await {
            // The reader goes on: the answer that tells why may be on its way.
            waiting.lock().ended.get_or_insert_with(|| error.to_string());
            return;
        }
    }
}

async fn read_all(mut read: OwnedReadHalf, waiting: Arc<Waiting>, notify: mpsc::Sender<Notification>) {
    let reason = match read_until_end(&mut read, &waiting, &notify).await {
        Ok(()) => "the daemon has closed it".to_owned(),
        Err(error) => error.to_string(),
    };
    waiting.end(&reason);
}

async fn read_until_end(
    read: &mut OwnedReadHalf,
    waiting: &Waiting,
    notify: &mpsc::Sender<Notification>,
) -> io::Result<()> {
    let mut lines = LineBuffer::new(crate::DEFAULT_MAX_LINE);
    let mut bytes = vec![0; 16 << 10];
    loop {
        let got = read.read(&mut bytes).await?;
        if got == 0 {
            return Ok(());
        }
        lines.push(&bytes[..got]);
        while let Some(line) = lines.next_line() {
            let line = line.map_err(io::Error::other)?;
            match Message::parse(&line).map_err(io::Error::other)? {
                Message::Response { id: Some(id), result } => {
                    // One that nobody waits for was cancelled.
                    if let Some(request) = waiting.lock().requests.remove(&id) {
                        let _ = request.send(result);
                    }
                }
                Message::Response { id: None, result: Err(error) } => return Err(io::Error::other(error)),
                Message::Notification { method, params } => {
                    // Where nobody reads them any more they are dropped.
                    let _ = notify.send(Notification { method, params }).await;
                }
                Message::Response { id: None, result: Ok(_) } | Message::Request { .. } => {
                    return Err(io::Error::other("the daemon sent a message that it may not send"));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
