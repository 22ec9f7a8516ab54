//! The one client of a session's shared servers.
//!
//! ```text
//!   client ──► up ──► Endpoint ──► connections          what a client says is decided by mcpvisor_mcp's Endpoint under a lock that
//!   client ◄── out ◄── Endpoint ◄── connections         is held for one line, never across an await, and never with a connection's
//! ```
//!
//! Answers and notifications are written by whoever reads them from a server. A client that takes nothing fills its queue and nobody
//! waits for it: first it is not read any more, then it is cut. `docs/shared.md` has the rules.
mod errands;
mod faces;
mod held;
mod out;
mod several;
mod up;

pub(super) use several::own_kind;

use super::exclusive::Client;
use super::shared::lock;
use super::turns::Together;
use super::{CLIENT, CallError, Connection};
use crate::gate::{Permit, Presence};
use crate::record::{ServerRecord, SessionRecord};
use errands::Catalogues;
use mcpvisor_lifecycle::ServerName;
use mcpvisor_lifecycle::server::{Mode, ServerState};
use mcpvisor_mcp::endpoint::{CallKey, Ended, Endpoint, Face, NoLongerAsked, Reply, Todo, Todos};
use mcpvisor_mcp::peer::turns::Caller;
use mcpvisor_mcp::peer::{Asked, Forward, Told};
use mcpvisor_mcp::relay::Because;
use mcpvisor_mcp::splice::Span;
use mcpvisor_mcp::{Answer, Negotiated};
use out::Out;
use several::Place;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;

/// The most calls in flight of one client.
const MOST_CALLS: usize = 1024;

/// Where a session's client is, and what its servers have together. Each connection has one, with its server's place in the session.
#[derive(Clone, Default)]
pub(crate) struct Slot {
    place: Arc<Place>,
    pub(super) together: Arc<Together>,
    server: usize,
    /// The session is a host: each session that uses its server is a client.
    many: bool,
}

/// A client that is attached to shared servers.
pub(crate) struct Attached {
    record: Arc<SessionRecord>,
    endpoint: Mutex<Endpoint<Permit>>,
    /// Until it has gone.
    presence: Mutex<Option<Presence>>,
    /// The servers behind the endpoint, in its order. Its lock is taken before the endpoint's.
    faces: Mutex<Vec<Option<Seen>>>,
    /// The one server that the client wants, if it is one.
    only: Option<ServerName>,
    out: Out,
    errands: Mutex<HashMap<CallKey, AbortHandle>>,
    catalogues: Catalogues,
    /// No call is in flight any more.
    quiet: Notify,
    /// What it said so far is all.
    left: watch::Sender<Left>,
    /// In whose name its calls take turns.
    caller: Caller,
    /// Where it and the other clients of its session are.
    place: Weak<Place>,
    /// The client ended before the session did: once one of them has ended.
    client_first: OnceLock<bool>,
}

/// A server behind the endpoint.
#[derive(Clone)]
struct Seen {
    record: Arc<ServerRecord>,
    /// It is asked nothing more, and may still answer.
    left: bool,
}

/// How far a client has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Left {
    Talks,
    /// It ended its stream, and what it asked is still answered.
    Said,
    /// The session has ended, or all is answered: what is queued is still written.
    Over,
    /// Nothing more passes.
    Lost,
    /// Nothing is left of it: another may come.
    Gone,
}

/// Why a client can't be attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The session's shared servers have a client already.
    HasClient,
    /// The session is being closed.
    Closing,
}

impl Slot {
    /// Of a session whose servers may have so many calls in flight together.
    pub(crate) fn new(max_in_flight: Option<usize>) -> Self {
        Self { together: Arc::new(Together::new(max_in_flight)), ..Self::default() }
    }

    /// The same place, for a connection of this server.
    pub(crate) fn of(&self, server: usize) -> Self {
        Self { server, ..self.clone() }
    }

    /// The server's place in its session.
    pub(super) fn server(&self) -> usize {
        self.server
    }

    /// Attaches a client to the shared servers of a session, or to one of them. It is told of by the session from now on.
    ///
    /// # Errors
    /// Where there is one already, or the session's gate is closed.
    pub(crate) fn attach(
        &self,
        record: &Arc<SessionRecord>,
        only: Option<&ServerName>,
        client: Client,
    ) -> Result<Arc<Attached>, Refused> {
        let mut place = self.place.lock();
        if !self.many && !place.is_empty() {
            return Err(Refused::HasClient);
        }
        let presence = record.gate.enter().map_err(|_| Refused::Closing)?;
        let members = record.roster.members();
        let servers: Vec<Arc<ServerRecord>> = members
            .iter()
            .filter(|server| {
                server.spec.mode == Mode::Shared && only.is_none_or(|only| server.spec.name == *only)
            })
            .cloned()
            .collect();
        let faces = servers.iter().map(|server| {
            let negotiated = server.connection().and_then(|connection| connection.negotiated());
            Face::new(server.spec.name.as_str().into(), negotiated)
        });
        let most_line = servers.iter().map(|server| server.spec.max_line).max().unwrap_or(64 << 20);
        let Client { stdin, stdout, one_socket, first, greeting } = client;
        let attached = Arc::new(Attached {
            endpoint: Mutex::new(Endpoint::new(faces.collect(), record.prefix, MOST_CALLS)),
            record: Arc::clone(record),
            presence: Mutex::new(Some(presence)),
            faces: Mutex::new(servers.into_iter().map(|record| Some(Seen { record, left: false })).collect()),
            only: only.cloned(),
            out: Out::new(stdout, most_line),
            errands: Mutex::default(),
            catalogues: Catalogues::default(),
            quiet: Notify::new(),
            left: watch::Sender::new(Left::Talks),
            caller: if self.many { self.place.next_caller() } else { CLIENT },
            place: Arc::downgrade(&self.place),
            client_first: OnceLock::new(),
        });
        *place = place.iter().chain([&attached]).cloned().collect();
        drop(place);
        attached.out.push(greeting);
        attached.out.flush();
        let source = up::Source { stdin, one_socket, first };
        tokio::spawn(up::run(Arc::clone(&attached), self.clone(), source, most_line));
        Ok(attached)
    }

    /// The session has ended: what its client has still to hear is written, then its stream ends.
    pub(crate) fn session_over(&self) {
        self.clients().iter().for_each(|client| client.session_over());
    }

    /// The client has gone: another may come.
    fn leave(&self, client: &Arc<Attached>) {
        {
            let mut place = self.place.lock();
            *place = place.iter().filter(|known| !Arc::ptr_eq(known, client)).cloned().collect();
        }
        drop(lock(&client.presence).take());
    }
}

impl Attached {
    /// A chunk of the client's lines is over: writes what was queued for the servers.
    fn flush_servers(&self, touched: &mut Vec<Connection>) {
        for connection in touched.drain(..) {
            connection.flush();
        }
    }

    /// Does what follows from a line of the client.
    fn carry_out(self: &Arc<Self>, todo: Todos<'_>, touched: &mut Vec<Connection>) {
        for todo in todo {
            match todo {
                Todo::Say(line) => self.out.push(line),
                Todo::Ask { call, server, forward } if several::is_subscription(&forward) => {
                    self.subscribe(call, server, forward, touched);
                }
                Todo::Ask { call, server, forward } => self.pass_on(call, server, forward, touched),
                Todo::Errand { call, errand } => self.errand(call, errand, touched),
                Todo::Cancel { call, at, said } => self.cancel(call, at, said.as_ref()),
                Todo::Write { server, line, instead } => {
                    let connection = self.server(server).and_then(|server| server.connection());
                    if let Some(connection) = &connection {
                        connection.tell(line, instead);
                    }
                    touch(touched, connection);
                }
                Todo::Own { method: "resources/unsubscribe", params, .. } if self.others_want(&params) => {}
                Todo::Own { server, method, params } => self.ask_for_itself(server, method, params),
            }
        }
        self.tell_if_quiet();
    }

    /// Passes a call on to a server. Where that is asked nothing more, since another stands in its place, the call is that one's: it was
    /// certainly not written.
    fn ask(
        self: &Arc<Self>,
        call: CallKey,
        mut server: usize,
        forward: &Forward<'_>,
        touched: &mut Vec<Connection>,
    ) {
        let mut connection = self.server(server).and_then(|server| server.connection());
        let mut sent = self.forward(call, connection.as_ref(), forward);
        if matches!(sent, Err(CallError::Leaving(_)))
            && let Some(other) = self.successor(server)
        {
            server = other;
            connection = self.server(server).and_then(|server| server.connection());
            sent = self.forward(call, connection.as_ref(), forward);
        }
        if connection.is_none() || matches!(sent, Err(CallError::Leaving(_))) {
            sent = Err(CallError::Unreached(self.why_not(server)));
        }
        self.asked_server(call, server, connection.as_ref(), sent);
        touch(touched, connection);
    }

    /// Why a server is not asked now.
    fn why_not(&self, face: usize) -> Because {
        let faces = lock(&self.faces);
        let Some(seen) = faces.get(face).and_then(Option::as_ref).filter(|seen| !seen.left) else {
            return Because::ServerLeft;
        };
        let live = seen.record.live();
        match live.state {
            _ if live.held => Because::ServerRestarts,
            ServerState::Starting | ServerState::Backoff => Because::ServerRestarts,
            _ => Because::NotWritten,
        }
    }

    fn forward(
        self: &Arc<Self>,
        call: CallKey,
        connection: Option<&Connection>,
        forward: &Forward<'_>,
    ) -> Result<mcpvisor_mcp::RequestNumber, CallError> {
        connection.ok_or(CallError::ServerExited)?.forward(self, call, forward)
    }

    /// Tells the endpoint how it went to pass a call on.
    fn asked_server(
        &self,
        call: CallKey,
        server: usize,
        connection: Option<&Connection>,
        sent: Result<mcpvisor_mcp::RequestNumber, CallError>,
    ) {
        match sent {
            Ok(number) => {
                let known = self.endpoint().sent(call, server, number);
                // It has its answer already, or its client is lost; of the first this changes nothing.
                if let Some(connection) = connection.filter(|_| !known) {
                    connection.cancel(number, None);
                }
            }
            Err(error) => {
                let ended = self.endpoint().unanswered(call, server, because(&error));
                self.end(ended, &error);
            }
        }
    }

    fn cancel(
        &self,
        call: CallKey,
        at: Vec<(usize, mcpvisor_mcp::RequestNumber)>,
        said: Option<&(&[u8], Span)>,
    ) {
        if let Some(errand) = lock(&self.errands).remove(&call) {
            errand.abort();
        }
        for (server, number) in at {
            if let Some(connection) = self.server(server).and_then(|server| server.any_connection()) {
                connection.cancel(number, said.cloned());
            }
        }
    }

    /// A request of ours whose answer does not matter.
    fn ask_for_itself(
        &self,
        server: usize,
        method: &'static str,
        params: serde_json::Map<String, serde_json::Value>,
    ) {
        let Some(connection) = self.server(server).and_then(|server| server.connection()) else { return };
        tokio::spawn(async move {
            if let Err(error) = connection.ask(method, &params).await {
                tracing::debug!(method, %error, "a server did not take what it was told again");
            }
        });
    }

    /// The endpoint's number of a server of the session.
    fn face(&self, server: usize) -> Option<usize> {
        let is_it = |seen: &Option<Seen>| seen.as_ref().is_some_and(|seen| seen.record.index == server);
        lock(&self.faces).iter().position(is_it)
    }

    /// The server of this number.
    fn server(&self, face: usize) -> Option<Arc<ServerRecord>> {
        lock(&self.faces).get(face)?.as_ref().map(|seen| Arc::clone(&seen.record))
    }

    /// A server has answered.
    pub(super) fn answered(&self, server: usize, call: CallKey, answer: &Answer<'_>) {
        let Some(face) = self.face(server) else { return };
        let ended = self.endpoint().answered(call, face, answer);
        self.finish(ended);
    }

    /// A server will not answer any more.
    pub(super) fn unanswered(&self, server: usize, call: CallKey, error: &CallError) {
        let Some(face) = self.face(server) else { return };
        let ended = self.endpoint().unanswered(call, face, because(error));
        self.end(ended, error);
        self.flush();
    }

    /// A notification of a server, perhaps about a call.
    pub(super) fn told(&self, server: usize, told: &Told<'_>, about: Option<CallKey>) {
        let Some(face) = self.face(server) else { return };
        let lines = self.endpoint().told(face, told, about);
        lines.into_iter().for_each(|line| self.out.push(line));
    }

    /// A request of a server; the line that refuses it, if the client can't answer it.
    pub(super) fn asked(&self, server: usize, asked: &Asked<'_>) -> Option<Vec<u8>> {
        let Some(face) = self.face(server) else {
            let text = "the client is attached to another server of the session";
            return Some(mcpvisor_mcp::outgoing::error(
                asked.raw_id,
                mcpvisor_mcp::outgoing::METHOD_NOT_FOUND,
                text,
            ));
        };
        match self.endpoint().asked(face, asked) {
            Reply::Client(line) => {
                self.out.push(line);
                None
            }
            Reply::Server(line) => Some(line),
        }
    }

    /// A server has ended.
    pub(super) fn server_gone(&self, server: usize) {
        let Some(face) = self.face(server) else { return };
        let lines = self.endpoint().server_gone(face);
        lines.into_iter().for_each(|line| self.out.push(line));
        self.flush();
    }

    /// A server is spoken to again.
    pub(crate) fn server_ready(self: &Arc<Self>, server: usize, negotiated: Negotiated) {
        let Some(face) = self.face(server) else { return };
        let todo = self.endpoint().server_ready(face, negotiated);
        let mut touched = Vec::new();
        self.carry_out(todo, &mut touched);
        self.flush_servers(&mut touched);
        self.flush();
    }

    /// The session is being closed: what servers wait for from the client is settled, on both sides, so that no call that waits for a
    /// person uses up the drain.
    pub(crate) fn closing(&self) {
        let NoLongerAsked { for_servers, for_client } = self.endpoint().session_closes();
        for (server, line) in for_servers {
            if let Some(connection) = self.server(server).and_then(|server| server.any_connection()) {
                connection.tell(line, None);
                connection.flush();
            }
        }
        for_client.into_iter().for_each(|line| self.out.push(line));
        self.flush();
    }

    /// What is pending is settled.
    pub(crate) fn settle(&self) {
        self.closing();
        // Errands whose own requests are settled end by that; one between two requests ends here.
        let errands: Vec<CallKey> = lock(&self.errands).keys().copied().collect();
        for call in errands {
            if let Some(errand) = lock(&self.errands).remove(&call) {
                errand.abort();
            }
            let ended = self.endpoint().refused(call, Because::Settled);
            self.cancelled(ended);
        }
        self.flush();
    }

    /// The client says nothing any more.
    fn said_all(self: &Arc<Self>) {
        let (todo, ended) = self.endpoint().client_said_all();
        ended.into_iter().for_each(|ended| self.cancelled(Some(ended)));
        let mut touched = Vec::new();
        self.carry_out(todo, &mut touched);
        self.flush_servers(&mut touched);
        self.flush();
    }

    /// Writes what is queued for the client, as far as it takes it.
    pub(super) fn flush(&self) {
        self.out.flush();
    }

    /// The session has ended.
    pub(crate) fn session_over(&self) {
        self.advance(Left::Over);
    }

    /// The client is gone, however that was learned.
    pub(crate) fn client_lost(&self) {
        self.advance(Left::Lost);
    }

    /// The client ended its stream while the session still went on.
    pub(crate) fn client_left_first(&self) -> bool {
        self.client_first.get().is_some_and(|first| *first)
    }

    /// Resolves when nothing passes any more and another client may come. Cancel safe.
    pub(crate) async fn ended(&self) {
        // The sender lives in what `self` holds.
        let _ = self.left.subscribe().wait_for(|left| *left == Left::Gone).await;
    }

    fn advance(&self, to: Left) {
        // From `Talks` only the session goes to `Over`.
        self.client_first.get_or_init(|| to != Left::Over);
        self.left.send_if_modified(|left| {
            let further = to > *left;
            if further {
                *left = to;
            }
            further
        });
    }

    fn endpoint(&self) -> std::sync::MutexGuard<'_, Endpoint<Permit>> {
        lock(&self.endpoint)
    }

    /// The call has its server's answer.
    fn finish(&self, ended: Option<Ended<Permit>>) {
        let Some(Ended { lines, permit }) = ended else { return };
        lines.into_iter().for_each(|line| self.out.push(line));
        if let Some(permit) = permit {
            permit.finish();
        }
        self.tell_if_quiet();
    }

    /// The call was given up.
    fn cancelled(&self, ended: Option<Ended<Permit>>) {
        let Some(Ended { lines, permit }) = ended else { return };
        lines.into_iter().for_each(|line| self.out.push(line));
        if let Some(permit) = permit {
            permit.cancel();
        }
        self.tell_if_quiet();
    }

    /// The call never reached a server, since the session is being closed: of the drain it was none.
    fn withdrawn(&self, ended: Option<Ended<Permit>>) {
        let Some(Ended { lines, permit }) = ended else { return };
        lines.into_iter().for_each(|line| self.out.push(line));
        if let Some(permit) = permit {
            permit.withdraw();
        }
        self.tell_if_quiet();
    }

    fn end(&self, ended: Option<Ended<Permit>>, error: &CallError) {
        match error {
            CallError::Settled(_) => self.cancelled(ended),
            CallError::Closing => self.withdrawn(ended),
            _ => self.finish(ended),
        }
    }

    fn tell_if_quiet(&self) {
        if *self.left.borrow() == Left::Said && self.endpoint().in_flight() == 0 {
            self.quiet.notify_one();
        }
    }
}

/// Why a call has no answer of its server.
fn because(error: &CallError) -> Because {
    match error {
        CallError::Settled(_) => Because::Settled,
        CallError::Overloaded => Because::Overloaded,
        CallError::LeftUnanswered(_) => Because::ServerLeaves,
        CallError::Leaving(_) | CallError::LeftUnwritten(_) => Because::ServerLeft,
        CallError::QueueFull(load) => Because::QueueFull(*load),
        CallError::QueueTimeout { load, after } => Because::QueueTimeout(*load, *after),
        CallError::TimedOut(overrun) => Because::TimedOut(*overrun),
        CallError::Closing => Because::Closing,
        CallError::Slow => Because::Slow,
        CallError::NotWritten => Because::NotWritten,
        CallError::Unreached(because) => *because,
        _ => Because::ServerExited,
    }
}

fn touch(touched: &mut Vec<Connection>, connection: Option<Connection>) {
    if let Some(connection) = connection
        && !touched.iter().any(|known| known.is(&connection))
    {
        touched.push(connection);
    }
}
