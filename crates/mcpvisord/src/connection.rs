//! One control connection: reads requests, runs many at once, answers each exactly once.
//!
//! Its end cancels what it waits for: opens and calls that are on their way; and it ends the leases of the sessions that it
//! opened. A close goes on without its requester (G14).
mod attach;
mod half;
mod leases;
mod turns;

pub(crate) use turns::Turn;

use crate::budget::Charge;
use crate::convert;
use crate::daemon::Daemon;
use crate::dispatch::{self, Attaching};
use crate::outbox::Outbox;
use crate::peer::Peer;
use crate::wire::{Descriptors, Line, Received, Wire};
pub(crate) use leases::Holders;
use leases::Leases;
use mcpvisor_control::message::{error_response, response};
use mcpvisor_control::{Call, ErrorKind, ErrorObject, Id, Message, method, params};
use mcpvisor_failpoints::{self as failpoints, Gate};
use mcpvisor_supervisor::{Failure, Gone, Requester};
use serde_json::value::RawValue;
use std::collections::HashMap;
use std::future::Future;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use turns::Turns;

/// The most requests in flight on one connection.
const MOST_REQUESTS: usize = 1024;
/// How long the daemon's end waits for a client to take its last answers.
const FAREWELL: Duration = Duration::from_millis(500);

/// What a request's handler may use.
#[derive(Clone)]
pub(crate) struct Context {
    pub(crate) daemon: Daemon,
    pub(crate) peer: Arc<Peer>,
    pub(crate) outbox: Outbox,
    pub(crate) leases: Leases,
    pub(crate) id: Id,
    /// When the request was read; deadlines count from here.
    pub(crate) read_at: Instant,
    /// A descriptor that goes with the answer.
    pub(crate) gift: Gift,
    /// Its place in the order of its connection's requests.
    place: turns::Place,
    gone: watch::Receiver<Option<Gone>>,
    in_flight: InFlight,
}

impl Context {
    /// Resolves when the client no longer wants the answer: it said so, or its connection has ended.
    pub(crate) async fn cancelled(&self) {
        let mut gone = self.gone.clone();
        // The sender lives as long as the request is in flight; without it the connection is gone.
        let _ = gone.wait_for(Option::is_some).await;
    }

    /// Who waits for the call that the request makes.
    pub(crate) fn requester(&self, deadline_ms: Option<u64>) -> Requester {
        Requester::new(self.peer.pid, self.deadline(deadline_ms), self.gone.clone())
    }

    /// Waits no longer than the requester's patience.
    ///
    /// # Errors
    /// `deadline_exceeded`: the work was dropped.
    pub(crate) async fn within<T>(
        &self,
        deadline_ms: Option<u64>,
        work: impl Future<Output = T>,
    ) -> Result<T, ErrorObject> {
        match self.deadline(deadline_ms) {
            None => Ok(work.await),
            Some(at) => tokio::time::timeout_at(at.into(), work)
                .await
                .map_err(|_| convert::error(Failure::DeadlineExceeded, None)),
        }
    }

    /// Resolves when the connection's changes and closes that were sent before this one have been handed over; none of a request that
    /// has no place in that order, or whose turn was taken.
    pub(crate) async fn turn(&self) -> Option<Turn> {
        turns::take(&self.place).await
    }

    /// Answers before the handler is done: what it answers in the end is not told. The request stays in flight, and can be cancelled.
    ///
    /// # Errors
    /// That the answer can't be told in JSON.
    pub(crate) fn answer_now<P: Call>(&self, answer: &P::Answer) -> Result<(), ErrorObject> {
        let line = response(&self.id, answer).map_err(|error| untold(&error))?;
        if let Some(flight) = locked(&self.in_flight).get_mut(&self.id) {
            flight.answered = true;
            self.outbox.push(line);
        }
        Ok(())
    }

    /// How the requester has gone, if it has: it said that it wants no answer, or its connection has ended.
    pub(crate) fn gone(&self) -> Option<Gone> {
        // See `cancelled`.
        let known = *self.gone.borrow();
        known.or_else(|| self.gone.has_changed().is_err().then_some(Gone::Vanished))
    }

    /// The moment at which the requester's patience ends.
    pub(crate) fn deadline(&self, milliseconds: Option<u64>) -> Option<Instant> {
        milliseconds.and_then(|span| self.read_at.checked_add(Duration::from_millis(span)))
    }
}

/// What goes with an answer besides its text.
pub(crate) type Gift = Arc<Mutex<Option<OwnedFd>>>;

/// Requests that are being handled. Whoever removes one answers it, unless it is answered already.
type InFlight = Arc<Mutex<HashMap<Id, Flight>>>;

struct Flight {
    gone: watch::Sender<Option<Gone>>,
    answered: bool,
}

fn untold(error: &serde_json::Error) -> ErrorObject {
    ErrorObject::new(ErrorKind::Internal, format!("the answer can't be told: {error}"))
}

fn locked(in_flight: &InFlight) -> MutexGuard<'_, HashMap<Id, Flight>> {
    in_flight.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Serves a connection until the client ends it, or the daemon its work. Never fails: what is wrong is answered.
pub(crate) async fn serve(daemon: Daemon, stream: UnixStream, peer: Peer) {
    let outbox = Outbox::new(2 * daemon.config().daemon.max_line + (1 << 20));
    let connection = Connection {
        in_flight: InFlight::default(),
        leases: Leases::new(daemon.supervisor.clone(), daemon.lease_holders().clone()),
        turns: Turns::default(),
        peer: Arc::new(peer),
        outbox: outbox.clone(),
        daemon,
    };
    tracing::debug!(uid = connection.peer.uid, pid = connection.peer.pid, "client connected");
    failpoints::pass(Gate::ConnectionAccepted).await;
    let mut tasks = JoinSet::new();
    // Boxed, so that a connection that carries MCP, perhaps for days, has not the room of one that is asked things.
    let carried = Box::pin(converse(&connection, &stream, &mut tasks)).await;
    if let Some((attaching, rest)) = carried {
        match connection.attach(stream, attaching, rest) {
            Ok(attachment) => connection.carry(&attachment).await,
            Err(refusal) => Box::pin(refusal.tell()).await,
        }
    }
    if outbox.is_cut() {
        tracing::warn!(
            uid = connection.peer.uid,
            pid = connection.peer.pid,
            "client was cut: it does not read its answers"
        );
    }
    connection.end(tasks).await;
    tracing::debug!(uid = connection.peer.uid, pid = connection.peer.pid, "client gone");
}

/// Answers requests until the end of the stream, or of the daemon, or until the connection is to carry MCP.
async fn converse(
    connection: &Connection,
    stream: &UnixStream,
    tasks: &mut JoinSet<()>,
) -> Option<(Attaching, Vec<u8>)> {
    let outbox = &connection.outbox;
    let writer = outbox.write_to(stream);
    tokio::pin!(writer);
    let mut said_all = false;
    let carried = tokio::select! {
        () = &mut writer => return None,
        carried = connection.read(stream, tasks, &mut said_all) => carried,
    };
    if said_all {
        // What was asked is answered to a client that still reads; the writer ends after the last answer.
        let answer_all = async {
            while let Some(ended) = tasks.join_next().await {
                connection.handled(ended);
            }
            outbox.finish();
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = &mut writer => return None,
            () = answer_all => {}
            () = half::hung_up(stream) => return None,
            _ = connection.daemon.ended() => {}
        }
    }
    if carried.is_some() {
        // The answers of before come before what the server says.
        outbox.finish();
        writer.as_mut().await;
    } else if connection.daemon.has_ended() {
        failpoints::pass(Gate::ConnectionFarewell).await;
        // What waited for the shutdown is answered by it.
        let _ = tokio::time::timeout(FAREWELL, async {
            while tasks.join_next().await.is_some() {}
            outbox.finish();
            writer.as_mut().await;
        })
        .await;
    }
    carried
}

struct Connection {
    daemon: Daemon,
    peer: Arc<Peer>,
    outbox: Outbox,
    leases: Leases,
    in_flight: InFlight,
    turns: Turns,
}

impl Connection {
    /// Reads until the end of the stream, or of the daemon, or until the connection is to carry MCP.
    /// Tells in `said_all` that the client's side ended in good order.
    async fn read(
        &self,
        stream: &UnixStream,
        tasks: &mut JoinSet<()>,
        said_all: &mut bool,
    ) -> Option<(Attaching, Vec<u8>)> {
        let charge = self.daemon.budget().charge(self.peer.uid);
        let mut wire = Wire::new(self.daemon.config().daemon.max_line, charge);
        loop {
            while let Some(ended) = tasks.try_join_next() {
                self.handled(ended);
            }
            // A client that does not read its answers is not read either, and none has the daemon for itself (G39, G43).
            tokio::task::coop::consume_budget().await;
            tokio::select! {
                low = self.outbox.low() => if !low { return None },
                _ = self.daemon.ended() => return None,
            }
            let received = tokio::select! {
                biased;
                received = wire.next(stream, asks_for_descriptors) => received,
                Some(ended) = tasks.join_next() => {
                    self.handled(ended);
                    continue;
                }
                _ = self.daemon.ended() => return None,
            };
            match received {
                Ok(Received::Line(line)) => {
                    failpoints::pass(Gate::RequestRead).await;
                    if let Some((id, params)) = attach::asked(&line) {
                        match self.begin_attach(id, params).await {
                            Some(attaching) => return Some((attaching, wire.into_rest())),
                            None => continue,
                        }
                    }
                    self.take(line, tasks);
                }
                Ok(Received::TooLong) => {
                    let most = self.daemon.config().daemon.max_line;
                    let error = ErrorObject::new(
                        ErrorKind::InvalidRequest,
                        format!("the line is longer than {most} bytes"),
                    );
                    self.outbox.push(error_response(None, &error));
                }
                Ok(Received::NoRoom(full)) => {
                    let error = ErrorObject::new(ErrorKind::Overloaded, full.to_string())
                        .with("scope", full.scope())
                        .with("help", format!("send it again later, or raise {} in [daemon]", full.key()));
                    self.outbox.push(error_response(None, &error));
                }
                Ok(Received::End) => {
                    *said_all = true;
                    return None;
                }
                Err(error) => {
                    tracing::debug!(pid = self.peer.pid, %error, "connection broke");
                    return None;
                }
            }
        }
    }

    fn handled(&self, ended: Result<(), JoinError>) {
        if let Err(error) = ended {
            tracing::error!(pid = self.peer.pid, %error, "a request's handler broke");
        }
    }

    fn take(&self, line: Line, tasks: &mut JoinSet<()>) {
        match Message::parse(&line.bytes) {
            Ok(Message::Request { id, method, params }) => {
                let asked = Asked { id, method, params, descriptors: line.descriptors };
                self.request(asked, line.charge, tasks);
            }
            Ok(Message::Notification { method, params }) => self.notification(&method, params.as_deref()),
            // Nothing is ever asked of the client.
            Ok(Message::Response { .. }) => {
                tracing::debug!(pid = self.peer.pid, "an answer came that nobody asked for");
            }
            Err(bad) => self.outbox.push(error_response(bad.id.as_ref(), &bad.error)),
        }
    }

    fn request(&self, asked: Asked, charge: Charge, tasks: &mut JoinSet<()>) {
        let Asked { id, method, params, descriptors } = asked;
        let (tell, gone) = watch::channel(None);
        {
            let mut in_flight = locked(&self.in_flight);
            let refused = if in_flight.contains_key(&id) {
                Some(ErrorObject::new(
                    ErrorKind::InvalidRequest,
                    "a request with this id is in flight already",
                ))
            } else if in_flight.len() >= MOST_REQUESTS {
                Some(ErrorObject::new(
                    ErrorKind::Overloaded,
                    format!("{MOST_REQUESTS} requests are in flight on this connection"),
                ))
            } else {
                None
            };
            if let Some(error) = refused {
                self.outbox.push(error_response(Some(&id), &error));
                return;
            }
            in_flight.insert(id.clone(), Flight { gone: tell, answered: false });
        }
        let place = self.turns.place(&method);
        let context = self.context(id, place, gone);
        let owed = Owed {
            in_flight: Arc::clone(&self.in_flight),
            outbox: self.outbox.clone(),
            id: context.id.clone(),
            gift: Arc::clone(&context.gift),
            _charge: charge,
        };
        tasks.spawn(async move { owed.pay(answer(context, method, params, descriptors).await) });
    }

    fn context(&self, id: Id, place: turns::Place, gone: watch::Receiver<Option<Gone>>) -> Context {
        Context {
            daemon: self.daemon.clone(),
            peer: Arc::clone(&self.peer),
            outbox: self.outbox.clone(),
            leases: self.leases.clone(),
            id,
            read_at: Instant::now(),
            gift: Gift::default(),
            place,
            gone,
            in_flight: Arc::clone(&self.in_flight),
        }
    }

    fn notification(&self, name: &str, params: Option<&RawValue>) {
        if name != method::CANCELLED {
            tracing::debug!(pid = self.peer.pid, notification = name, "unknown notification");
            return;
        }
        let text = params.map_or("{}", RawValue::get);
        match serde_json::from_str::<params::Cancelled>(text) {
            Ok(cancelled) => {
                // One that is not in flight has its answer on the way.
                if let Some(flight) = locked(&self.in_flight).get(&cancelled.request_id) {
                    let _ = flight.gone.send(Some(Gone::Cancelled));
                }
            }
            Err(error) => tracing::debug!(pid = self.peer.pid, %error, "malformed notifications/cancelled"),
        }
    }

    /// The client is gone: nobody waits for an answer any more.
    async fn end(&self, mut tasks: JoinSet<()>) {
        failpoints::pass(Gate::ConnectionEnded).await;
        {
            let mut in_flight = locked(&self.in_flight);
            // All are known to be given up before the first of them hears of it: a call that waits for its turn must not get it from one
            // that goes before it (G31).
            for flight in in_flight.values() {
                flight.gone.send_if_modified(|gone| {
                    gone.get_or_insert(Gone::Vanished);
                    false
                });
            }
            // Dropping the senders tells each request; those that have something to undo do so.
            in_flight.clear();
        }
        self.leases.end();
        while tasks.join_next().await.is_some() {}
    }
}

/// A request as it was read.
struct Asked {
    id: Id,
    method: String,
    params: Option<Box<RawValue>>,
    descriptors: Descriptors,
}

/// The one answer that a request gets. A handler that panics is answered for, too.
struct Owed {
    in_flight: InFlight,
    outbox: Outbox,
    id: Id,
    gift: Gift,
    /// What the request's bytes cost, given back with the answer.
    _charge: Charge,
}

impl Owed {
    fn pay(&self, answer: Result<Box<RawValue>, ErrorObject>) {
        // Where it is not in flight any more the connection has ended.
        if locked(&self.in_flight).remove(&self.id).is_none_or(|flight| flight.answered) {
            return;
        }
        let line = answer.and_then(|result| response(&self.id, result).map_err(|error| untold(&error)));
        match line {
            Ok(line) => {
                let gift = self.gift.lock().unwrap_or_else(PoisonError::into_inner).take();
                self.outbox.push_with(line, gift);
            }
            Err(error) => self.outbox.push(error_response(Some(&self.id), &error)),
        }
    }
}

impl Drop for Owed {
    fn drop(&mut self) {
        self.pay(Err(ErrorObject::new(ErrorKind::Internal, "the request's handler broke")));
    }
}

/// Runs a handler until its answer, or until it is not wanted: then the handler is dropped, unless it does that by itself.
async fn answer(
    context: Context,
    method: String,
    params: Option<Box<RawValue>>,
    descriptors: Descriptors,
) -> Result<Box<RawValue>, ErrorObject> {
    let gone = context.clone();
    let handled = dispatch::handle(context, &method, params.as_deref(), descriptors);
    cancellable(handled, gone.cancelled()).await
}

/// The answer wins where both are there: what has happened is told rather than that it was given up.
async fn cancellable(
    handled: impl Future<Output = Result<Box<RawValue>, ErrorObject>>,
    cancelled: impl Future<Output = ()>,
) -> Result<Box<RawValue>, ErrorObject> {
    tokio::select! {
        biased;
        answer = handled => answer,
        () = cancelled => Err(ErrorObject::new(ErrorKind::Cancelled, "the request was cancelled")),
    }
}

/// Whether a line is one that descriptors may have been sent with. Cheap, and wrong only for lines that mention the word elsewhere: such
/// a one takes descriptors that are closed then.
fn asks_for_descriptors(line: &[u8]) -> bool {
    memchr::memmem::find(line, b"\"descriptors\"").is_some()
}

#[cfg(test)]
mod tests;
