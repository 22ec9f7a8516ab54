//! The server's side of a conversation with one client, in front of one server or several that the daemon speaks to.
//!
//! ```text
//! client's line ─► Endpoint ─► Todo: say a line to the client, ask a server, run an errand to several, write to a server
//! server's answer, notification, request ─► Endpoint ─► a line for the client
//! ```
//!
//! Only ids, progress tokens, the ids of cancellations and of subscriptions are replaced, and with several servers the names of tools
//! and prompts that are published under another name; every other byte of a message passes (G42). Each request that is admitted
//! gets exactly one answer (G11): its server's, or an error of ours that none can take for a server's.
//!
//! In front of one server the endpoint looks like that server: its answer to the handshake, its lists and their pages pass as they are.
mod client;
mod errand;
mod faces;
mod hello;
mod route;
mod servers;
mod sharing;

use crate::catalogue::Prefix;
use crate::handshake::{Negotiated, Offers};
use crate::key::{Key, Table};
use crate::peer::{Forward, RequestNumber};
use crate::relay::Because;
use crate::splice::Span;
use crate::version::Era;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use smallvec::SmallVec;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

pub use errand::{Errand, Wanted, merged_page};
pub use servers::{NoLongerAsked, Reply};

/// The most requests of servers that the client has not answered.
const MOST_ASKED: usize = 1024;
/// The most subscriptions that are remembered to be made again after a server's restart.
const MOST_SUBSCRIPTIONS: usize = 1024;
/// The most messages of one batch.
const MOST_IN_BATCH: usize = 1024;
/// The most bytes that the answers of one batch have together; an answer behind that is an error.
const MOST_OF_BATCH: usize = 64 << 20;
/// The longest id or progress token that is kept for an answer, in bytes of JSON text.
const LONGEST_ID: usize = 4096;
/// The longest `subscriptions/listen` that is made again at a server that has started again.
const LONGEST_LISTEN: usize = 64 << 10;
/// The longest URI of a subscription that is remembered, and the longest level of the log.
const LONGEST_URI: usize = 8192;
const LONGEST_LEVEL: usize = 64;

/// The number of a client's call, within its endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallKey(u64);

/// One server, as the client sees it.
#[derive(Debug, Clone)]
pub struct Face {
    /// Its name in the session.
    pub name: Arc<str>,
    /// What was agreed with it; none while it does not run.
    pub negotiated: Option<Negotiated>,
    /// False: it has left, and is asked nothing more.
    here: bool,
    /// Nothing of it is in flight either.
    vacant: bool,
}

/// The machine for one client. `P` is the permit under which a call is in flight.
///
/// - inputs of the client: [`Endpoint::client_line`], [`Endpoint::client_too_long`], [`Endpoint::client_said_all`],
///   [`Endpoint::client_lost`]
/// - inputs of servers: [`Endpoint::answered`], [`Endpoint::unanswered`], [`Endpoint::told`], [`Endpoint::asked`],
///   [`Endpoint::server_ready`], [`Endpoint::server_gone`], [`Endpoint::face_joined`], [`Endpoint::face_left`], [`Endpoint::face_vacated`]
/// - the session drains: [`Endpoint::session_closes`], [`Endpoint::settle_asked`]
/// - outcomes of what was to be done: [`Endpoint::sent`], [`Endpoint::listens_to`], [`Endpoint::refused`], [`Endpoint::errand_done`]
/// - getters: [`Endpoint::in_flight`], [`Endpoint::prefix`], [`Endpoint::faces`], [`Endpoint::counters`]
#[derive(Debug)]
pub struct Endpoint<P> {
    prefix: Prefix,
    most_calls: usize,
    faces: Vec<Face>,
    client: Client,
    next: u64,
    calls: Table<CallKey, Call<P>>,
    ids: Table<Key, CallKey>,
    batches: HashMap<u64, Batch>,
    asked: HashMap<u64, AskedOf>,
    /// Why nobody answers what servers ask from now on.
    mute: Option<Because>,
    /// The level that the client has set: for servers that start again.
    log_level: Option<Box<RawValue>>,
    /// What the client is subscribed to, and whose it is: for servers that start again.
    subscriptions: BTreeMap<String, usize>,
    counters: Counters,
}

/// What is known of the client.
#[derive(Debug, Default)]
struct Client {
    /// How it speaks, once that is known.
    era: Option<Era>,
    /// The legacy revision that it was answered with.
    protocol: Option<Arc<str>>,
    roots: bool,
    sampling: bool,
    sampling_tools: bool,
    elicitation_form: bool,
    elicitation_url: bool,
    lost: bool,
    /// The lists that it was told of at its handshake.
    declared: Offers,
}

#[derive(Debug)]
struct Call<P> {
    key: Key,
    raw_id: Box<RawValue>,
    progress: Option<Box<RawValue>>,
    batch: Option<u64>,
    permit: P,
    /// The servers that it was sent to, and their numbers for it.
    at: Vec<(usize, RequestNumber)>,
    /// How many servers have still to answer, where it went to several.
    listening: usize,
    kind: Kind,
}

/// What follows from a call's success.
#[derive(Debug, Clone)]
enum Kind {
    Plain,
    SetLevel(Box<RawValue>),
    Subscribe(String),
    Unsubscribe(String),
    Listen(Listen),
}

/// One subscription stream of several servers: the client hears one acknowledgement, before anything else.
#[derive(Debug, Clone, Default)]
struct Listen {
    /// Of servers whose stream has not ended.
    acknowledged: Vec<Acknowledged>,
    done: bool,
    /// Of what any of them sends, once that is acknowledged.
    agreed: Map<String, Value>,
    /// The request, for servers that start again or come later; none where it is too long.
    forward: Option<Forward<'static>>,
    /// What came before the last acknowledgement, ready to be said.
    held: Vec<Vec<u8>>,
}

/// A server's acknowledgement: what it will send, and the line, ready to be said where it is the only one.
#[derive(Debug, Clone)]
struct Acknowledged {
    server: usize,
    notifications: Map<String, Value>,
    line: Vec<u8>,
}

/// Requests that came as one array, whose answers go as one.
#[derive(Debug)]
struct Batch {
    waiting: usize,
    answers: Vec<Vec<u8>>,
    /// Of the answers.
    bytes: usize,
}

/// A request of a server that the client has not answered.
#[derive(Debug)]
struct AskedOf {
    server: usize,
    raw_id: Box<RawValue>,
    progress: Option<Box<RawValue>>,
}

/// What follows from a line of the client; most lines have one thing.
pub type Todos<'a> = SmallVec<[Todo<'a>; 1]>;

/// What is to be done next, in this order.
#[derive(Debug)]
pub enum Todo<'a> {
    /// A line for the client.
    Say(Vec<u8>),
    /// Ask one server; [`Endpoint::sent`] or [`Endpoint::refused`] tells how that went.
    Ask {
        /// Whose answer it will be.
        call: CallKey,
        /// The server's index.
        server: usize,
        /// What to pass on.
        forward: Forward<'a>,
    },
    /// Something that needs several servers.
    Errand {
        /// Whose answer it will be.
        call: CallKey,
        /// What to do.
        errand: Errand<'a>,
    },
    /// The client gave a call up: the servers are told, unless the request was never written. An errand of it ends.
    Cancel {
        /// The call, which the endpoint has forgotten.
        call: CallKey,
        /// Where it was sent.
        at: Vec<(usize, RequestNumber)>,
        /// The client's notification and where its `requestId` stands; none where the client has not said it.
        said: Option<(&'a [u8], Span)>,
    },
    /// A line for a server that wants no answer.
    Write {
        /// The server's index.
        server: usize,
        /// With its LF.
        line: Vec<u8>,
        /// Where there is no room for it in the server's queue: what it is to be told at least.
        instead: Option<Vec<u8>>,
    },
    /// A request of ours whose answer does not matter.
    Own {
        /// The server's index.
        server: usize,
        /// For instance `logging/setLevel`.
        method: &'static str,
        /// An object.
        params: Map<String, Value>,
    },
}

/// What the client did that did not pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Lines that are no message.
    pub noise: u64,
    /// Answers to nothing that a server asked.
    pub unmatched: u64,
    /// Notifications that no server is told of.
    pub dropped: u64,
}

/// How a call ends.
#[derive(Debug)]
pub struct Ended<P> {
    /// What the client hears; nothing where the rest of its batch is still waited for.
    pub lines: SmallVec<[Vec<u8>; 1]>,
    /// What the call was in flight under; none where others are still to answer it.
    pub permit: Option<P>,
}

impl<P> Endpoint<P> {
    /// In front of these servers, in the order of their definition; at most `most_calls` of the client's are in flight.
    #[must_use]
    pub fn new(faces: Vec<Face>, prefix: Prefix, most_calls: usize) -> Self {
        Self {
            prefix,
            most_calls,
            faces,
            client: Client::default(),
            next: 1,
            calls: Table::default(),
            ids: Table::default(),
            batches: HashMap::new(),
            asked: HashMap::new(),
            mute: None,
            log_level: None,
            subscriptions: BTreeMap::new(),
            counters: Counters::default(),
        }
    }

    /// Calls that have no answer yet.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.calls.len()
    }

    /// How names are published.
    #[must_use]
    pub fn prefix(&self) -> Prefix {
        self.prefix
    }

    /// The servers.
    #[must_use]
    pub fn faces(&self) -> &[Face] {
        &self.faces
    }

    /// What did not pass.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// The servers that are spoken to as the client speaks, and run.
    pub fn usable(&self) -> impl Iterator<Item = usize> {
        let era = self.client.era;
        let fits = move |face: &Face| {
            face.negotiated.as_ref().is_some_and(|known| era.is_none_or(|era| era == known.era))
        };
        self.faces.iter().enumerate().filter(move |(_, face)| fits(face)).map(|(index, _)| index)
    }

    /// A call was sent to a server. False where it was cancelled meanwhile: the server is to be told.
    pub fn sent(&mut self, call: CallKey, server: usize, number: RequestNumber) -> bool {
        match self.calls.get_mut(&call) {
            Some(known) => {
                known.at.push((server, number));
                true
            }
            None => false,
        }
    }

    /// A call can't have a server's answer. `None` of one that was cancelled.
    pub fn refused(&mut self, call: CallKey, because: Because) -> Option<Ended<P>> {
        self.answer_with(call, |id| own_error(id, because))
    }

    /// A call is answered with an error of JSON-RPC, for instance of invalid parameters. `None` of one that was cancelled.
    pub fn invalid(&mut self, call: CallKey, code: i64, message: &str) -> Option<Ended<P>> {
        self.answer_with(call, |id| plain_error(id, code, message, None))
    }

    /// The call waits still: its client has not given it up.
    #[must_use]
    pub fn waits(&self, call: CallKey) -> bool {
        self.calls.contains_key(&call)
    }

    fn key(&mut self) -> CallKey {
        let key = CallKey(self.next);
        self.next += 1;
        key
    }

    fn take(&mut self, call: CallKey) -> Option<Call<P>> {
        let taken = self.calls.remove(&call)?;
        self.ids.remove(&taken.key);
        Some(taken)
    }

    fn answer_with(&mut self, call: CallKey, line: impl FnOnce(&RawValue) -> Vec<u8>) -> Option<Ended<P>> {
        let Call { raw_id, batch, permit, .. } = self.take(call)?;
        let mut line = line(&raw_id);
        let so_far = batch.and_then(|number| self.batches.get(&number)).map_or(0, |batch| batch.bytes);
        if so_far > 0 && so_far + line.len() > MOST_OF_BATCH {
            line = too_long(&raw_id, &format!("the answers of a batch have more than {MOST_OF_BATCH} bytes"));
        }
        let lines = self.reply(batch, line).into_iter().collect();
        Some(Ended { lines, permit: Some(permit) })
    }

    /// A line of ours for the client, or what completes its batch.
    fn reply(&mut self, batch: Option<u64>, line: Vec<u8>) -> Option<Vec<u8>> {
        let Some(number) = batch else { return Some(line) };
        let batch = self.batches.get_mut(&number)?;
        batch.bytes += line.len();
        batch.answers.push(line);
        self.batch_is_done(number)
    }

    /// A request of a batch gets no answer any more.
    fn leave_batch(&mut self, batch: Option<u64>) -> Option<Vec<u8>> {
        let number = batch?;
        self.batches.get_mut(&number)?;
        self.batch_is_done(number)
    }

    fn batch_is_done(&mut self, number: u64) -> Option<Vec<u8>> {
        let batch = self.batches.get_mut(&number)?;
        batch.waiting = batch.waiting.saturating_sub(1);
        if batch.waiting > 0 {
            return None;
        }
        let Batch { answers, .. } = self.batches.remove(&number)?;
        joined(&answers)
    }
}

/// The answers of a batch as one line; none of none.
fn joined(answers: &[Vec<u8>]) -> Option<Vec<u8>> {
    if answers.is_empty() {
        return None;
    }
    let parts: Vec<&[u8]> = answers.iter().map(|line| line.strip_suffix(b"\n").unwrap_or(line)).collect();
    let mut line = vec![b'['];
    line.extend_from_slice(&parts.join(&b","[..]));
    line.extend_from_slice(b"]\n");
    Some(line)
}

/// An error of ours, which none can take for a server's: its code lies outside of JSON-RPC's range.
fn own_error(id: &RawValue, because: Because) -> Vec<u8> {
    let mut line = Vec::new();
    crate::relay::error_line(&mut line, id.get().as_bytes(), because);
    line
}

/// An error of JSON-RPC.
fn plain_error(id: &RawValue, code: i64, message: &str, data: Option<Value>) -> Vec<u8> {
    let mut error = serde_json::json!({ "code": code, "message": message });
    if let Some(data) = data {
        error["data"] = data;
    }
    let mut line = format!("{{\"jsonrpc\":\"2.0\",\"id\":{},\"error\":{error}}}", id.get()).into_bytes();
    line.push(b'\n');
    line
}

fn result_line(id: &RawValue, result: &str) -> Vec<u8> {
    let mut line = format!("{{\"jsonrpc\":\"2.0\",\"id\":{},\"result\":", id.get()).into_bytes();
    // Line ends stand between tokens only.
    line.extend(result.bytes().map(|byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { byte }));
    line.extend_from_slice(b"}\n");
    line
}

fn too_long(id: &RawValue, message: &str) -> Vec<u8> {
    let error = serde_json::json!({ "code": 1018, "message": message, "data": { "kind": "server_error", "from": "mcpvisor" } });
    format!("{{\"jsonrpc\":\"2.0\",\"id\":{},\"error\":{error}}}\n", id.get()).into_bytes()
}

/// A server's error object as an answer.
fn error_line(id: &RawValue, error: &str) -> Vec<u8> {
    let error: String = error.chars().map(|c| if matches!(c, '\r' | '\n') { ' ' } else { c }).collect();
    format!("{{\"jsonrpc\":\"2.0\",\"id\":{},\"error\":{error}}}\n", id.get()).into_bytes()
}

#[cfg(test)]
mod tests;
