//! What the client says.
use super::route::{Params, Way};
use super::{
    AskedOf, Batch, Call, CallKey, Ended, Endpoint, Kind, LONGEST_ID, MOST_IN_BATCH, Todo, Todos, plain_error,
};
use crate::envelope::{Message, NoiseKind};
use crate::framing::TooLong;
use crate::key::Key;
use crate::peer::{Forward, numbered};
use crate::relay::Because;
use crate::salvage::salvage;
use crate::splice::{span_of, splice};
use crate::version::Era;
use memchr::memmem::Finder;
use serde::Deserialize;
use serde_json::value::RawValue;
use smallvec::{SmallVec, smallvec};
use std::borrow::Cow;
use std::sync::LazyLock;

pub(super) const PARSE_ERROR: i64 = -32700;
pub(super) const INVALID_REQUEST: i64 = -32600;
pub(super) const METHOD_NOT_FOUND: i64 = -32601;
pub(super) const INVALID_PARAMS: i64 = -32602;

pub(super) use crate::peer::PREFIX;
static MODERN_MARK: LazyLock<Finder<'static>> =
    LazyLock::new(|| Finder::new(b"\"io.modelcontextprotocol/protocolVersion\""));
static PROGRESS_TOKEN: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\"progressToken\""));

#[derive(Deserialize)]
pub(super) struct Meta<'a> {
    #[serde(borrow, rename = "progressToken")]
    pub(super) progress: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct CancelledParams<'a> {
    #[serde(borrow, rename = "requestId")]
    request: &'a RawValue,
}

/// A request, as it was read.
#[derive(Clone, Copy)]
struct Request<'a> {
    /// The message's own text: a line, or a part of a batch.
    line: &'a [u8],
    raw_id: &'a RawValue,
    params: Option<&'a RawValue>,
    batch: Option<u64>,
}

impl<P> Endpoint<P> {
    /// A line of the client, as the framer gives it. `admit` is asked once for each request that is to go to a server.
    pub fn client_line<'a>(
        &mut self,
        line: &'a [u8],
        mut admit: impl FnMut() -> Result<P, Because>,
    ) -> Todos<'a> {
        let mut todo = SmallVec::new();
        if line.trim_ascii_start().starts_with(b"[") {
            self.batch(line, &mut admit, &mut todo);
        } else {
            self.message(line, None, &mut admit, &mut todo);
        }
        todo
    }

    /// A line of the client over `cap` bytes: an error of that request, where it can be told.
    pub fn client_too_long<'a>(&mut self, line: &TooLong, cap: usize) -> Todos<'a> {
        let found = salvage(line);
        let text = format!("the line has {} bytes, more than the longest of {cap}", line.bytes);
        let id = found.id.and_then(|id| RawValue::from_string(id.to_json()).ok());
        let Some(id) = id.filter(|id| id.get().len() <= LONGEST_ID) else {
            self.counters.noise += 1;
            // A notification has no answer; what is no object has one without an id.
            let answer = (!found.object).then(|| plain_error(null(), INVALID_REQUEST, &text, None));
            return answer.map(Todo::Say).into_iter().collect();
        };
        // An answer to a server's request: what it answers is settled with an error. Anything else is a request, whose method may stand
        // behind what is too long.
        let asked = if found.method { None } else { self.take_asked(&id) };
        if let Some(AskedOf { server, raw_id, .. }) = asked {
            return smallvec![Todo::Write {
                server,
                line: plain_error(&raw_id, INVALID_REQUEST, &text, None),
                instead: None,
            }];
        }
        smallvec![Todo::Say(plain_error(&id, INVALID_REQUEST, &text, None))]
    }

    /// The client says nothing any more, and still hears: nobody answers what servers ask, and its streams of notifications end.
    pub fn client_said_all(&mut self) -> (Todos<'static>, Vec<Ended<P>>) {
        let asked = self.settle_asked(Because::ClientLost);
        let mut todo: Todos<'static> =
            asked.into_iter().map(|(server, line)| Todo::Write { server, line, instead: None }).collect();
        let is_stream = |(call, known): (&CallKey, &Call<P>)| {
            matches!(known.kind, Kind::Listen(_)).then(|| (*call, known.at.clone()))
        };
        let mut streams: Vec<_> = self.calls.iter().filter_map(is_stream).collect();
        streams.sort_unstable_by_key(|(call, _)| *call);
        let mut ended = Vec::new();
        for (call, at) in streams {
            ended.extend(self.refused(call, Because::ClientLost));
            todo.push(Todo::Cancel { call, at, said: None });
        }
        (todo, ended)
    }

    /// The client is gone: its calls are cancelled, what servers wait for is answered, its subscriptions end. The permits of the calls.
    pub fn client_lost(&mut self) -> (Todos<'static>, Vec<P>) {
        self.client.lost = true;
        let mut todo = SmallVec::new();
        let mut permits = Vec::new();
        let mut calls: Vec<(CallKey, Call<P>)> = self.calls.drain().collect();
        // The newest first: a call that waits for its turn is taken back before one in flight would give it the turn.
        calls.sort_unstable_by_key(|(key, _)| std::cmp::Reverse(*key));
        for (call, known) in calls {
            permits.push(known.permit);
            todo.push(Todo::Cancel { call, at: known.at, said: None });
        }
        self.ids.clear();
        self.batches.clear();
        let mut asked: Vec<(u64, AskedOf)> = self.asked.drain().collect();
        asked.sort_unstable_by_key(|(number, _)| *number);
        for (_, AskedOf { server, raw_id, .. }) in asked {
            todo.push(Todo::Write {
                server,
                line: super::own_error(&raw_id, Because::ClientLost),
                instead: None,
            });
        }
        for (uri, server) in std::mem::take(&mut self.subscriptions) {
            let params = serde_json::Map::from_iter([("uri".to_owned(), uri.into())]);
            todo.push(Todo::Own { server, method: "resources/unsubscribe", params });
        }
        (todo, permits)
    }

    /// No answer is waited for any more, but the client still hears: each call is answered with one error and cancelled at its servers.
    pub fn give_up(&mut self, because: Because) -> (Todos<'static>, Vec<Ended<P>>) {
        let mut calls: Vec<CallKey> = self.calls.keys().copied().collect();
        calls.sort_unstable();
        let mut todo = Todos::new();
        let mut ended = Vec::new();
        for call in calls {
            let at = self.calls.get(&call).map(|known| known.at.clone()).unwrap_or_default();
            todo.push(Todo::Cancel { call, at, said: None });
            ended.extend(self.refused(call, because));
        }
        (todo, ended)
    }

    fn batch<'a>(
        &mut self,
        line: &'a [u8],
        admit: &mut impl FnMut() -> Result<P, Because>,
        todo: &mut Todos<'a>,
    ) {
        let refuse = |code, text: &str| Todo::Say(plain_error(null(), code, text, None));
        if self.client.protocol.as_deref() != Some("2025-03-26") {
            self.counters.noise += 1;
            let text = "an array of messages is known to revision 2025-03-26 only, which was not negotiated";
            todo.push(refuse(INVALID_REQUEST, text));
            return;
        }
        let parts: Vec<&'a RawValue> = match serde_json::from_slice(line) {
            Ok(parts) => parts,
            Err(_) => {
                self.counters.noise += 1;
                todo.push(refuse(PARSE_ERROR, "not a JSON array of messages"));
                return;
            }
        };
        if parts.is_empty() || parts.len() > MOST_IN_BATCH {
            self.counters.noise += 1;
            todo.push(refuse(INVALID_REQUEST, "a batch has from 1 to 1024 messages"));
            return;
        }
        let number = self.key().0;
        // One more than it has, so that it does not end before all of it is read.
        self.batches.insert(number, Batch { waiting: 1, answers: Vec::new(), bytes: 0 });
        for part in parts {
            self.message(part.get().as_bytes(), Some(number), admit, todo);
        }
        todo.extend(self.leave_batch(Some(number)).map(Todo::Say));
    }

    fn message<'a>(
        &mut self,
        line: &'a [u8],
        batch: Option<u64>,
        admit: &mut impl FnMut() -> Result<P, Because>,
        todo: &mut Todos<'a>,
    ) {
        match Message::parse(line) {
            Message::Request { raw_id, method, params } => {
                if let Some(batch) = batch.and_then(|number| self.batches.get_mut(&number)) {
                    batch.waiting += 1;
                }
                let request = Request { line, raw_id, params, batch };
                self.request(method, request, admit, todo);
            }
            Message::Notification { method, params } => self.notification(&method, params, line, todo),
            Message::Response { raw_id, .. } => {
                match raw_id.and_then(|id| Some((id, self.take_asked(id)?))) {
                    Some((id, AskedOf { server, raw_id, .. })) => {
                        let Some(span) = span_of(line, id.get()) else { return };
                        let line = splice(line, &mut [(span, raw_id.get().as_bytes())]);
                        let instead = Some(super::own_error(&raw_id, Because::Overloaded));
                        todo.push(Todo::Write { server, line, instead });
                    }
                    None => self.counters.unmatched += 1,
                }
            }
            Message::Noise(kind) => {
                self.counters.noise += 1;
                let (code, text) = match kind {
                    // A part of a batch was read: it is JSON.
                    NoiseKind::NotUtf8 | NoiseKind::NotAnObject if batch.is_none() => {
                        (PARSE_ERROR, "not a JSON object")
                    }
                    NoiseKind::NotUtf8 | NoiseKind::NotAnObject => (INVALID_REQUEST, "not a JSON object"),
                    NoiseKind::NotJsonRpc => (INVALID_REQUEST, "not a message of JSON-RPC 2.0"),
                };
                if let Some(batch) = batch.and_then(|number| self.batches.get_mut(&number)) {
                    batch.waiting += 1;
                }
                todo.extend(self.reply(batch, plain_error(null(), code, text, None)).map(Todo::Say));
            }
        }
    }

    fn request<'a>(
        &mut self,
        method: Cow<'a, str>,
        request: Request<'a>,
        admit: &mut impl FnMut() -> Result<P, Because>,
        todo: &mut Todos<'a>,
    ) {
        let batch = request.batch;
        let own = match &*method {
            _ if request.raw_id.get().len() > LONGEST_ID => {
                let text = format!("an id has at most {LONGEST_ID} bytes");
                Some(plain_error(null(), INVALID_REQUEST, &text, None))
            }
            // The modern era does not have it: what its servers say to that is theirs.
            "ping" if !self.speaks_modern(request.line) => Some(super::result_line(request.raw_id, "{}")),
            "initialize" => Some(self.initialize(request.raw_id, request.params)),
            _ => None,
        };
        if let Some(line) = own {
            todo.extend(self.reply(batch, line).map(Todo::Say));
            return;
        }
        if self.client.era.is_none() {
            let modern = self.speaks_modern(request.line);
            if (modern || method == "server/discover") && !self.has(Era::Modern) {
                let line = self.not_modern(request.raw_id, &method);
                todo.extend(self.reply(batch, line).map(Todo::Say));
                return;
            }
            if modern {
                self.client.era = Some(Era::Modern);
            }
        }
        if method == "server/discover" && !self.alone() {
            let line = self.discover(request.raw_id);
            todo.extend(self.reply(batch, line).map(Todo::Say));
            return;
        }
        let Some(key) = Key::new(request.raw_id.get().as_bytes()) else { return };
        let refused = if self.ids.contains_key(&key) {
            Some(plain_error(request.raw_id, INVALID_REQUEST, "a request with this id is in flight", None))
        } else if self.calls.len() >= self.most_calls {
            Some(super::own_error(request.raw_id, Because::Overloaded))
        } else {
            None
        };
        if let Some(line) = refused {
            todo.extend(self.reply(batch, line).map(Todo::Say));
            return;
        }
        self.pass(method, key, request, admit, todo);
    }

    /// Whether the client speaks as the modern era does; a first request says so itself.
    fn speaks_modern(&self, line: &[u8]) -> bool {
        match self.client.era {
            Some(era) => era == Era::Modern,
            None => MODERN_MARK.find(line).is_some(),
        }
    }

    /// A request that servers answer.
    fn pass<'a>(
        &mut self,
        method: Cow<'a, str>,
        key: Key,
        request: Request<'a>,
        admit: &mut impl FnMut() -> Result<P, Because>,
        todo: &mut Todos<'a>,
    ) {
        let Request { line, raw_id, params, batch } = request;
        // Parameters that are an array, which MCP does not have, are the server's to refuse.
        let matters = self.looks_at(&method) || PROGRESS_TOKEN.find(line).is_some();
        let known = params.filter(|_| matters).map(Params::read).unwrap_or_default();
        let progress = known.progress();
        if progress.is_some_and(|token| token.get().len() > LONGEST_ID) {
            let text = format!("a progress token has at most {LONGEST_ID} bytes");
            let line = plain_error(raw_id, INVALID_PARAMS, &text, None);
            todo.extend(self.reply(batch, line).map(Todo::Say));
            return;
        }
        let Some(id_span) = span_of(line, raw_id.get()) else { return };
        let forward = Forward {
            line: Cow::Borrowed(line),
            method,
            id: id_span,
            progress: progress.and_then(|token| span_of(line, token.get())),
            rename: None,
        };
        let way = self.way(&forward.method, &known, &forward);
        let line = match &way {
            Way::Error(code, text) => Some(plain_error(raw_id, *code, text, None)),
            Way::NotRunning => Some(super::own_error(raw_id, Because::NotWritten)),
            _ => None,
        };
        if let Some(line) = line {
            todo.extend(self.reply(batch, line).map(Todo::Say));
            return;
        }
        let permit = match admit() {
            Ok(permit) => permit,
            Err(because) => {
                let line = super::own_error(raw_id, because);
                todo.extend(self.reply(batch, line).map(Todo::Say));
                return;
            }
        };
        let call = self.key();
        self.ids.insert(key.clone(), call);
        let mut known = Call {
            key,
            raw_id: raw_id.to_owned(),
            progress: progress.map(ToOwned::to_owned),
            batch,
            permit,
            at: Vec::new(),
            listening: 1,
            kind: Kind::Plain,
        };
        match way {
            Way::Ask(server, kind) => {
                known.kind = kind;
                todo.push(Todo::Ask { call, server, forward });
            }
            Way::Errand(errand, kind) => {
                known.kind = kind;
                todo.push(Todo::Errand { call, errand });
            }
            Way::Error(..) | Way::NotRunning => {}
        }
        self.calls.insert(call, known);
    }

    fn notification<'a>(
        &mut self,
        method: &str,
        params: Option<&'a RawValue>,
        line: &'a [u8],
        todo: &mut Todos<'a>,
    ) {
        match method {
            "notifications/initialized" => {
                // A server that asked for roots before there was a client is told to ask again.
                if self.client.roots {
                    self.tell_all(
                        b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/roots/list_changed\"}",
                        todo,
                    );
                }
            }
            "notifications/cancelled" => {
                let cancelled =
                    params.and_then(|params| serde_json::from_str::<CancelledParams<'a>>(params.get()).ok());
                let Some(CancelledParams { request }) = cancelled else {
                    self.counters.dropped += 1;
                    return;
                };
                let call = Key::new(request.get().as_bytes()).and_then(|key| self.ids.get(&key).copied());
                // One that is not in flight has its answer on the way.
                let Some((call, known)) = call.and_then(|call| Some((call, self.take(call)?))) else {
                    return;
                };
                let said = span_of(line, request.get()).map(|span| (line, span));
                todo.push(Todo::Cancel { call, at: known.at, said });
                todo.extend(self.leave_batch(known.batch).map(Todo::Say));
                // Its permit is dropped, which counts it as cancelled.
            }
            "notifications/progress" => match self.progress_of(params, line) {
                Some(write) => todo.push(write),
                None => self.counters.dropped += 1,
            },
            "notifications/roots/list_changed" => self.tell_all(line, todo),
            // A call that wants no answer is none: it would pass the gate, the limits and the approvals by.
            "tools/call" => self.counters.dropped += 1,
            _ if self.alone() => self.tell_all(line, todo),
            _ => self.counters.dropped += 1,
        }
    }

    /// What the client tells of the progress of a server's request.
    fn progress_of<'a>(&self, params: Option<&'a RawValue>, line: &'a [u8]) -> Option<Todo<'a>> {
        let token = serde_json::from_str::<Meta<'a>>(params?.get()).ok()?.progress?;
        let AskedOf { server, progress, .. } = self.asked.get(&numbered(token.get())?)?;
        let with = progress.as_ref()?;
        let line = splice(line, &mut [(span_of(line, token.get())?, with.get().as_bytes())]);
        Some(Todo::Write { server: *server, line, instead: None })
    }

    /// A notification for all servers that speak as the client does.
    fn tell_all<'a>(&self, line: &[u8], todo: &mut Todos<'a>) {
        for server in self.usable() {
            todo.push(Todo::Write { server, line: splice(line, &mut []), instead: None });
        }
    }

    /// A request of a server, by the id that the client knows it by.
    fn take_asked(&mut self, id: &RawValue) -> Option<AskedOf> {
        let number = numbered(id.get())?;
        self.asked.remove(&number)
    }
}

pub(super) fn text(raw: &RawValue) -> Option<Cow<'_, str>> {
    #[derive(Deserialize)]
    struct Text<'a>(#[serde(borrow)] Cow<'a, str>);
    serde_json::from_str::<Text<'_>>(raw.get()).ok().map(|Text(text)| text)
}

fn null() -> &'static RawValue {
    RawValue::NULL
}

#[cfg(test)]
mod tests;
