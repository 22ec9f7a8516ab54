//! The endpoint between one client and servers that a real [`Peer`] speaks to, all in this process and without I/O.
mod batches;
mod calls;
mod faces;
mod handshake;
mod listen;
mod random;
mod requests;
mod several;

use super::*;
use crate::catalogue::{Catalogue, Meaning, ServerItems, owner_of_uri};
use crate::framing::{Frame, Framer};
use crate::listing::{Item, ListKind};
use crate::outgoing;
use crate::peer::{Peer, PeerEvent};
use crate::version::EraChoice;
use serde::Deserialize;
use serde_json::json;
use std::cell::Cell;
use std::rc::Rc;

/// What becomes of permits.
#[derive(Debug, Default)]
struct Counts {
    admitted: Cell<u64>,
    finished: Cell<u64>,
    cancelled: Cell<u64>,
}

#[derive(Debug)]
struct Permit(Rc<Counts>, bool);

impl Permit {
    fn finish(mut self) {
        self.1 = true;
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let count = if self.1 { &self.0.finished } else { &self.0.cancelled };
        count.set(count.get() + 1);
    }
}

/// A server behind the endpoint: what the daemon says to it, and what it has.
struct Server {
    name: &'static str,
    peer: Peer<CallKey>,
    era: EraChoice,
    result: Value,
    wrote: Vec<String>,
    lists: HashMap<ListKind, Arc<[Item]>>,
}

struct World {
    endpoint: Endpoint<Permit>,
    servers: Vec<Server>,
    said: Vec<String>,
    counts: Rc<Counts>,
    closed: bool,
    /// Errands wait until [`World::errands`].
    slow: bool,
    waiting: Vec<(CallKey, Errand<'static>)>,
}

const META: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;

fn legacy(protocol: &str, capabilities: &Value) -> Value {
    json!({"protocolVersion": protocol, "capabilities": capabilities, "serverInfo": {"name": "s", "version": "1"}})
}

fn discovered(capabilities: &Value) -> Value {
    json!({"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": capabilities, "ttlMs": 0, "cacheScope": "private"})
}

fn everything() -> Value {
    json!({"tools": {}, "prompts": {}, "resources": {"subscribe": true}, "logging": {}, "completions": {}})
}

impl Server {
    fn new(name: &'static str, era: EraChoice, result: Value) -> Self {
        let mut server =
            Self { name, peer: Peer::default(), era, result, wrote: Vec::new(), lists: HashMap::new() };
        server.shake_hands();
        server
    }

    fn shake_hands(&mut self) -> Negotiated {
        self.peer = Peer::default();
        self.peer.begin(self.era).unwrap();
        let line = json!({"jsonrpc": "2.0", "id": "mcpvisor-1", "result": self.result}).to_string();
        let events = self.peer.handle_line(Box::leak(line.into_bytes().into_boxed_slice()));
        let ready = events.into_iter().find_map(|event| match event {
            PeerEvent::Ready(negotiated) => Some(negotiated),
            _ => None,
        });
        ready.expect("the handshake is well")
    }

    fn has(&mut self, kind: ListKind, names: &[&str]) {
        let item = |name: &&str| Item {
            name: (*name).to_owned(),
            raw: serde_json::value::to_raw_value(&json!({ kind.name_field(): name, "x": 0.5 }))
                .unwrap()
                .into(),
        };
        self.lists.insert(kind, names.iter().map(item).collect());
    }
}

impl World {
    fn with(servers: Vec<Server>, prefix: Prefix) -> Self {
        let faces =
            servers.iter().map(|server| Face::new(server.name.into(), server.peer.negotiated().cloned()));
        Self {
            endpoint: Endpoint::new(faces.collect(), prefix, 1024),
            servers,
            said: Vec::new(),
            counts: Rc::default(),
            closed: false,
            slow: false,
            waiting: Vec::new(),
        }
    }

    /// Legacy servers that have everything.
    fn of(names: &[&'static str]) -> Self {
        let server =
            |name: &&'static str| Server::new(name, EraChoice::Legacy, legacy("2025-11-25", &everything()));
        Self::with(names.iter().map(server).collect(), Prefix::OnConflict)
    }

    /// Modern servers that have everything.
    fn modern(names: &[&'static str]) -> Self {
        let server = |name: &&'static str| Server::new(name, EraChoice::Modern, discovered(&everything()));
        Self::with(names.iter().map(server).collect(), Prefix::OnConflict)
    }

    /// The client has shaken hands, and has these capabilities.
    fn begun(mut self, capabilities: &Value) -> Self {
        let line = json!({"jsonrpc": "2.0", "id": "hello", "method": "initialize",
            "params": {"protocolVersion": "2025-06-18", "capabilities": capabilities, "clientInfo": {"name": "c", "version": "1"}}});
        let heard = self.client(&line.to_string());
        assert!(heard.len() == 1 && heard[0].contains("\"result\""), "{heard:?}");
        self.client(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
        self.servers.iter_mut().for_each(|server| server.wrote.clear());
        self
    }

    /// What the client hears of a line that it says.
    fn client(&mut self, line: &str) -> Vec<String> {
        let (counts, closed) = (Rc::clone(&self.counts), self.closed);
        let todo = self.endpoint.client_line(line.as_bytes(), || {
            if closed {
                return Err(Because::Closing);
            }
            counts.admitted.set(counts.admitted.get() + 1);
            Ok(Permit(Rc::clone(&counts), false))
        });
        self.carry_out(todo);
        self.heard()
    }

    /// A line of the client over the longest.
    fn client_too_long(&mut self, line: &str) -> Vec<String> {
        let mut framer = Framer::new(100);
        let line = format!("{line}\n");
        let mut input = line.as_bytes();
        let Some(Frame::TooLong(over)) = framer.next_frame(&mut input) else { panic!("not too long") };
        let todo = self.endpoint.client_too_long(&over, 100);
        self.carry_out(todo);
        self.heard()
    }

    fn heard(&mut self) -> Vec<String> {
        std::mem::take(&mut self.said)
    }

    /// What was written to a server since it was looked at.
    fn wrote(&mut self, server: usize) -> Vec<String> {
        std::mem::take(&mut self.servers[server].wrote)
    }

    /// The only line that was written to a server, as JSON.
    #[track_caller]
    fn one(&mut self, server: usize) -> Value {
        let wrote = self.wrote(server);
        assert_eq!(wrote.len(), 1, "{wrote:?}");
        serde_json::from_str(&wrote[0]).unwrap()
    }

    fn carry_out(&mut self, todo: Todos<'_>) {
        for todo in todo {
            match todo {
                Todo::Say(line) => self.say(&line),
                Todo::Ask { call, server, forward } => self.ask(call, server, &forward),
                Todo::Errand { call, errand } if self.slow => {
                    self.waiting.push((call, errand.into_owned()));
                }
                Todo::Errand { call, errand } => self.errand(call, errand),
                Todo::Cancel { call, at, said } => {
                    self.waiting.retain(|(waiting, _)| *waiting != call);
                    for (server, number) in at {
                        let Some(cancelled) = self.servers[server].peer.cancel(number, "given up") else {
                            continue;
                        };
                        let id = outgoing::quoted(&number.to_string());
                        let line = match &said {
                            Some((line, span)) => crate::splice::splice(line, &mut [(span.clone(), &id)]),
                            None => cancelled.line,
                        };
                        self.write(server, &line);
                    }
                }
                Todo::Write { server, line, .. } => self.write(server, &line),
                Todo::Own { server, method, params } => {
                    self.servers[server].wrote.push(format!("own {method} {}", Value::from(params)));
                }
            }
        }
    }

    fn say(&mut self, line: &[u8]) {
        let text = std::str::from_utf8(line).unwrap();
        let line = text.strip_suffix('\n').expect("a line has an end");
        assert!(!line.contains(['\n', '\r']), "one line: {line:?}");
        self.said.push(line.to_owned());
    }

    fn write(&mut self, server: usize, line: &[u8]) {
        let text = std::str::from_utf8(line).unwrap();
        let line = text.strip_suffix('\n').expect("a line has an end");
        assert!(!line.contains(['\n', '\r']), "one line: {line:?}");
        self.servers[server].wrote.push(line.to_owned());
    }

    fn ask(&mut self, call: CallKey, server: usize, forward: &Forward<'_>) {
        if self.endpoint.faces()[server].negotiated.is_none() {
            let ended = self.endpoint.unanswered(call, server, Because::ServerExited);
            self.end(ended);
            return;
        }
        let sent = self.servers[server].peer.forward(call, forward).expect("it is ready");
        self.write(server, &sent.line);
        if !self.endpoint.sent(call, server, sent.number) {
            self.servers[server].peer.cancel(sent.number, "given up");
        }
    }

    /// Errands that waited are run.
    fn errands(&mut self) -> Vec<String> {
        for (call, errand) in std::mem::take(&mut self.waiting) {
            self.errand(call, errand);
        }
        self.heard()
    }

    fn items(&self, kind: ListKind) -> Vec<ServerItems> {
        let usable: Vec<usize> = self.endpoint.usable().collect();
        let lists = usable.into_iter().filter_map(|server| {
            let server = &self.servers[server];
            Some(ServerItems { server: server.name.into(), items: Arc::clone(server.lists.get(&kind)?) })
        });
        lists.collect()
    }

    fn errand(&mut self, call: CallKey, errand: Errand<'_>) {
        let prefix = self.endpoint.prefix();
        match errand {
            Errand::List(kind, after) => {
                let catalogue = Catalogue::new(&self.items(kind), prefix);
                let page = merged_page(kind, &catalogue, after.as_deref(), self.endpoint.is_modern());
                let ended = self.endpoint.errand_done(call, &page);
                self.end(ended);
            }
            Errand::Find { wanted, at, forward } => {
                let meaning = match &wanted {
                    Wanted::Tool(name) => Catalogue::new(&self.items(ListKind::Tools), prefix).find(name),
                    Wanted::Prompt(name) => Catalogue::new(&self.items(ListKind::Prompts), prefix).find(name),
                    Wanted::Uri(uri) => {
                        let (resources, templates) =
                            (self.items(ListKind::Resources), self.items(ListKind::Templates));
                        match owner_of_uri(uri, &resources, &templates, prefix) {
                            Some(owner) => {
                                let server = self.servers.iter().position(|server| server.name == &*owner);
                                self.ask(call, server.unwrap(), &forward);
                                return;
                            }
                            None => Meaning::Unknown,
                        }
                    }
                };
                match meaning {
                    Meaning::One(owned) => {
                        let server = self.servers.iter().position(|server| server.name == &*owned.server);
                        let rename = at.map(|at| (at, outgoing::quoted(&owned.item.name).into_boxed_slice()));
                        self.ask(call, server.unwrap(), &Forward { rename, ..forward });
                    }
                    Meaning::Ambiguous { names, .. } => {
                        let ended = self.endpoint.not_found(call, &wanted, Some(&names));
                        self.end(ended);
                    }
                    Meaning::Unknown => {
                        let ended = self.endpoint.not_found(call, &wanted, None);
                        self.end(ended);
                    }
                }
            }
            Errand::SetLevel(_) => {
                let ended = self.endpoint.errand_done(call, "{}");
                self.end(ended);
            }
            Errand::Listen(forward) => {
                let usable: Vec<usize> = self.endpoint.usable().collect();
                self.endpoint.listens_to(call, usable.len());
                for server in usable {
                    self.ask(call, server, &forward);
                }
            }
        }
    }

    fn end(&mut self, ended: Option<Ended<Permit>>) {
        let Some(Ended { lines, permit }) = ended else { return };
        lines.iter().for_each(|line| self.say(line));
        if let Some(permit) = permit {
            permit.finish();
        }
    }

    /// What the client hears of a line that a server says.
    fn server(&mut self, server: usize, line: &str) -> Vec<String> {
        let line: &'static [u8] = Box::leak(line.to_owned().into_bytes().into_boxed_slice());
        let events = self.servers[server].peer.handle_line(line);
        for event in events {
            match event {
                PeerEvent::Answered { token, answer } => {
                    let ended = self.endpoint.answered(token, server, &answer);
                    self.end(ended);
                }
                PeerEvent::Told(told) => {
                    let about =
                        told.about.and_then(|(number, _)| self.servers[server].peer.waiter(number).copied());
                    let lines = self.endpoint.told(server, &told, about);
                    lines.iter().for_each(|line| self.say(line));
                }
                PeerEvent::Asked(asked) => match self.endpoint.asked(server, &asked) {
                    Reply::Client(line) => self.say(&line),
                    Reply::Server(line) => self.write(server, &line),
                },
                PeerEvent::Send(line) => self.write(server, &line),
                PeerEvent::Changed(_) | PeerEvent::Ready(_) | PeerEvent::HandshakeFailed(_) => {}
            }
        }
        self.heard()
    }

    fn server_dies(&mut self, server: usize) -> Vec<String> {
        for call in self.servers[server].peer.fail_all() {
            let ended = self.endpoint.unanswered(call, server, Because::ServerExited);
            self.end(ended);
        }
        let lines = self.endpoint.server_gone(server);
        lines.iter().for_each(|line| self.say(line));
        self.heard()
    }

    fn server_runs_again(&mut self, server: usize) -> Vec<String> {
        let negotiated = self.servers[server].shake_hands();
        let todo = self.endpoint.server_ready(server, negotiated);
        self.carry_out(todo);
        self.heard()
    }

    /// The session's time for calls is over.
    fn settle(&mut self) -> Vec<String> {
        for server in 0..self.servers.len() {
            for cancelled in self.servers[server].peer.settle("the session is being closed") {
                self.write(server, &cancelled.line);
                let ended = self.endpoint.unanswered(cancelled.token, server, Because::Settled);
                self.end(ended);
            }
        }
        for (server, line) in self.endpoint.settle_asked(Because::Settled) {
            self.write(server, &line);
        }
        self.heard()
    }

    fn lost(&mut self) -> usize {
        let (todo, permits) = self.endpoint.client_lost();
        let count = permits.len();
        drop(permits);
        self.carry_out(todo);
        count
    }

    fn said_all(&mut self) -> Vec<String> {
        let (todo, ended) = self.endpoint.client_said_all();
        ended.into_iter().for_each(|ended| self.end(Some(ended)));
        self.carry_out(todo);
        self.heard()
    }

    /// Permits that were given, and that came back as finished and as cancelled.
    fn permits(&self) -> (u64, u64, u64) {
        (self.counts.admitted.get(), self.counts.finished.get(), self.counts.cancelled.get())
    }
}

fn json(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
}

/// An error's code, and what calls itself its kind.
fn error(line: &str) -> (i64, String) {
    let error = &json(line)["error"];
    let kind = error["data"]["kind"].as_str().unwrap_or_default().to_owned();
    assert_eq!(kind.is_empty(), error["data"]["from"].is_null(), "{line}");
    (error["code"].as_i64().unwrap_or_else(|| panic!("no code: {line}")), kind)
}

#[track_caller]
fn only(lines: &[String]) -> &str {
    assert_eq!(lines.len(), 1, "{lines:?}");
    &lines[0]
}
