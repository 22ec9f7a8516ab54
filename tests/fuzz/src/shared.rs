//! Ids rewritten between one client and two servers.
use crate::script;
use mcpvisor_mcp::catalogue::{Catalogue, Meaning, Prefix, ServerItems, owner_of_uri};
use mcpvisor_mcp::endpoint::{
    CallKey, Ended, Endpoint, Errand, Face, Reply, Todo, Todos, Wanted, merged_page,
};
use mcpvisor_mcp::peer::{Answer, Forward, Peer, PeerEvent, PlainAnswer};
use mcpvisor_mcp::relay::Because;
use mcpvisor_mcp::{EraChoice, Frame, Framer, Item, ListKind, Message, outgoing, splice};
use serde_json::value::RawValue;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

/// The longest line, so that over-long ones come too.
const CAP: usize = 2048;
/// The most calls of the client.
const MOST: usize = 16;
const LEGACY: &str = r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"prompts":{},"resources":{"subscribe":true},"logging":{},"completions":{}},"serverInfo":{"name":"s","version":"1"}}"#;
const MODERN: &str = r#"{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{},"prompts":{},"resources":{"subscribe":true}},"ttlMs":0,"cacheScope":"private"}"#;

/// The first byte: the era, and how many servers there are. A line that begins with `>` is said by the client, one with `0` or `1` by that
/// server. In a line of a server `@` stands for the id of the newest request that it was asked, `#` for the oldest. `a` and `b` end server 0 and 1 or start them again, `g` closes the gate, `s`
/// settles, `e` ends the client's side, `x` loses the client.
///
/// # Panics
/// Where a call has no answer, or two, or a permit is lost; where what is said is not one line; or where a lost client is told something.
pub fn run(input: &[u8]) {
    let Some((first, rest)) = input.split_first() else { return };
    let modern = first & 1 == 1;
    let servers = if first & 2 == 0 { 2 } else { 1 };
    let mut world = World::new(modern, servers);
    for (what, text) in script(rest) {
        match what {
            b'>' => world.client(text),
            b'0' | b'1' if usize::from(what - b'0') < servers => world.server(usize::from(what - b'0'), text),
            b'a' | b'b' if usize::from(what - b'a') < servers => world.turn(usize::from(what - b'a')),
            b'g' => world.closed = true,
            b's' => {
                world.settle();
                break;
            }
            b'e' => world.said_all(),
            b'x' => {
                world.lose();
                break;
            }
            _ => {}
        }
        assert_eq!(world.endpoint.in_flight(), world.held.get(), "each call in flight has a permit");
        assert!(world.endpoint.in_flight() <= MOST);
    }
    world.settle();
    assert_eq!((world.endpoint.in_flight(), world.held.get()), (0, 0), "every call has ended");
}

/// Counts those that live.
struct Permit(Rc<Cell<usize>>);

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

struct Server {
    peer: Peer<CallKey>,
    /// The ids that it was asked with and has not answered.
    asked: Vec<String>,
}

struct World {
    modern: bool,
    endpoint: Endpoint<Permit>,
    servers: Vec<Server>,
    held: Rc<Cell<usize>>,
    closed: bool,
    said_all: bool,
    lost: bool,
}

const NAMES: [&str; 2] = ["a", "b"];

impl World {
    fn new(modern: bool, servers: usize) -> Self {
        let servers: Vec<Server> = (0..servers)
            .map(|_| {
                let mut server = Server { peer: Peer::default(), asked: Vec::new() };
                server.shake_hands(modern);
                server
            })
            .collect();
        let faces = servers
            .iter()
            .zip(NAMES)
            .map(|(server, name)| Face::new(name.into(), server.peer.negotiated().cloned()));
        Self {
            modern,
            endpoint: Endpoint::new(faces.collect(), Prefix::OnConflict, MOST),
            servers,
            held: Rc::default(),
            closed: false,
            said_all: false,
            lost: false,
        }
    }

    fn client(&mut self, line: &[u8]) {
        if self.said_all || self.lost {
            return;
        }
        let line = [line, b"\n"].concat();
        let mut framer = Framer::new(CAP);
        let mut input = &line[..];
        let (held, closed) = (Rc::clone(&self.held), self.closed);
        let todo = match framer.next_frame(&mut input) {
            Some(Frame::Line(line)) => self.endpoint.client_line(line, || {
                if closed {
                    return Err(Because::Closing);
                }
                held.set(held.get() + 1);
                Ok(Permit(Rc::clone(&held)))
            }),
            Some(Frame::TooLong(over)) => self.endpoint.client_too_long(&over, CAP),
            None => return,
        };
        self.carry_out(todo);
    }

    fn server(&mut self, server: usize, text: &[u8]) {
        if self.endpoint.faces()[server].negotiated.is_none() {
            return;
        }
        let asked = &self.servers[server].asked;
        let (newest, oldest) = (asked.last().cloned(), asked.first().cloned());
        let mut said = Vec::with_capacity(text.len() + 16);
        for byte in text {
            match (byte, &newest, &oldest) {
                (b'@', Some(id), _) | (b'#', _, Some(id)) => said.extend_from_slice(id.as_bytes()),
                _ => said.push(*byte),
            }
        }
        said.push(b'\n');
        let mut framer = Framer::new(CAP);
        let mut input = &said[..];
        match framer.next_frame(&mut input) {
            Some(Frame::Line(line)) => {
                if let Some(plain) = PlainAnswer::read(line)
                    && let Some(call) = self.servers[server].peer.take_plain(&plain, |_| true)
                {
                    let answer = Answer::Unread { line, raw_id: plain.raw_id };
                    let ended = self.endpoint.answered(call, server, &answer);
                    return self.end(ended);
                }
                let message = Message::parse(line);
                for event in self.servers[server].peer.handle_message(&message, line) {
                    self.heard(server, event);
                }
            }
            Some(Frame::TooLong(over)) => {
                for event in self.servers[server].peer.handle_too_long(&over, CAP) {
                    self.heard(server, event);
                }
            }
            None => {}
        }
    }

    fn heard(&mut self, server: usize, event: PeerEvent<'_, CallKey>) {
        match event {
            PeerEvent::Send(line) => one_line(&line),
            PeerEvent::Answered { token, answer } => {
                let ended = self.endpoint.answered(token, server, &answer);
                self.end(ended);
            }
            PeerEvent::Told(told) => {
                let about =
                    told.about.and_then(|(number, _)| self.servers[server].peer.waiter(number).copied());
                for line in self.endpoint.told(server, &told, about) {
                    self.say(&line);
                }
            }
            PeerEvent::Asked(asked) => match self.endpoint.asked(server, &asked) {
                Reply::Client(line) => self.say(&line),
                Reply::Server(line) => one_line(&line),
            },
            PeerEvent::Changed(_) => {}
            PeerEvent::Ready(_) | PeerEvent::HandshakeFailed(_) => panic!("the handshake was done"),
        }
    }

    /// Ends a server that runs, or starts one that does not.
    fn turn(&mut self, server: usize) {
        if self.endpoint.faces()[server].negotiated.is_some() {
            for line in self.endpoint.server_gone(server) {
                self.say(&line);
            }
            for call in self.servers[server].peer.fail_all() {
                let ended = self.endpoint.unanswered(call, server, Because::ServerExited);
                self.end(ended);
            }
            self.servers[server].asked.clear();
            return;
        }
        self.servers[server].shake_hands(self.modern);
        let negotiated = self.servers[server].peer.negotiated().cloned().expect("it shook hands");
        let todo = self.endpoint.server_ready(server, negotiated);
        self.carry_out(todo);
    }

    fn carry_out(&mut self, todo: Todos<'_>) {
        for todo in todo {
            match todo {
                Todo::Say(line) => self.say(&line),
                Todo::Ask { call, server, forward } => self.ask(call, server, &forward),
                Todo::Errand { call, errand } => self.errand(call, errand),
                Todo::Cancel { call, at, said } => {
                    assert!(!self.endpoint.waits(call), "who gave it up waits no more");
                    for (server, number) in at {
                        let Some(cancelled) = self.servers[server].peer.cancel(number, "given up") else {
                            continue;
                        };
                        let id = outgoing::quoted(&number.to_string());
                        one_line(&match &said {
                            Some((line, span)) => splice::splice(line, &mut [(span.clone(), &id)]),
                            None => cancelled.line,
                        });
                    }
                }
                Todo::Write { line, instead, .. } => {
                    one_line(&line);
                    instead.iter().for_each(|line| one_line(line));
                }
                Todo::Own { .. } => {}
            }
        }
    }

    fn ask(&mut self, call: CallKey, server: usize, forward: &Forward<'_>) {
        if self.endpoint.faces()[server].negotiated.is_none() {
            let ended = self.endpoint.unanswered(call, server, Because::ServerExited);
            self.end(ended);
            return;
        }
        let Ok(sent) = self.servers[server].peer.forward(call, forward) else { panic!("it is ready") };
        one_line(&sent.line);
        if self.endpoint.sent(call, server, sent.number) {
            self.servers[server].asked.push(format!("\"{}\"", sent.number));
        } else {
            self.servers[server].peer.cancel(sent.number, "given up");
        }
    }

    fn errand(&mut self, call: CallKey, errand: Errand<'_>) {
        let prefix = self.endpoint.prefix();
        let ended = match errand {
            Errand::List(kind, after) => {
                let catalogue = Catalogue::new(&self.items(kind), prefix);
                let page = merged_page(kind, &catalogue, after.as_deref(), self.endpoint.is_modern());
                self.endpoint.errand_done(call, &page)
            }
            Errand::Find { wanted, at, forward } => {
                let meaning = match &wanted {
                    Wanted::Tool(name) => Catalogue::new(&self.items(ListKind::Tools), prefix).find(name),
                    Wanted::Prompt(name) => Catalogue::new(&self.items(ListKind::Prompts), prefix).find(name),
                    Wanted::Uri(uri) => {
                        let owner = owner_of_uri(
                            uri,
                            &self.items(ListKind::Resources),
                            &self.items(ListKind::Templates),
                            prefix,
                        );
                        if let Some(server) =
                            owner.and_then(|owner| NAMES.iter().position(|name| *name == &*owner))
                        {
                            return self.ask(call, server, &forward);
                        }
                        Meaning::Unknown
                    }
                };
                match meaning {
                    Meaning::One(owned) => {
                        let server =
                            NAMES.iter().position(|name| *name == &*owned.server).expect("a server of ours");
                        let rename = at.map(|at| (at, outgoing::quoted(&owned.item.name).into_boxed_slice()));
                        return self.ask(call, server, &Forward { rename, ..forward });
                    }
                    Meaning::Ambiguous { names, .. } => self.endpoint.not_found(call, &wanted, Some(&names)),
                    Meaning::Unknown => self.endpoint.not_found(call, &wanted, None),
                }
            }
            Errand::SetLevel(_) => self.endpoint.errand_done(call, "{}"),
            Errand::Listen(forward) => {
                let usable: Vec<usize> = self.endpoint.usable().collect();
                if usable.is_empty() {
                    self.endpoint.refused(call, Because::ServerExited)
                } else {
                    self.endpoint.listens_to(call, usable.len());
                    for server in usable {
                        self.ask(call, server, &forward);
                    }
                    None
                }
            }
        };
        self.end(ended);
    }

    /// Both have the tool `both`, each one of its own, and so with the other kinds.
    fn items(&self, kind: ListKind) -> Vec<ServerItems> {
        let item = |name: &str| Item {
            name: name.to_owned(),
            raw: RawValue::from_string(format!("{{\"{}\":\"{name}\"}}", kind.name_field()))
                .expect("JSON")
                .into(),
        };
        let usable: Vec<usize> = self.endpoint.usable().collect();
        let list = |server: usize| ServerItems {
            server: NAMES[server].into(),
            items: Arc::from([item("both"), item(["x", "y"][server])]),
        };
        usable.into_iter().map(list).collect()
    }

    fn end(&mut self, ended: Option<Ended<Permit>>) {
        let Some(Ended { lines, permit }) = ended else { return };
        lines.iter().for_each(|line| self.say(line));
        drop(permit);
    }

    fn say(&mut self, line: &[u8]) {
        assert!(!self.lost, "a lost client is told nothing");
        one_line(line);
    }

    fn said_all(&mut self) {
        if self.said_all || self.lost {
            return;
        }
        self.said_all = true;
        let (todo, ended) = self.endpoint.client_said_all();
        self.carry_out(todo);
        ended.into_iter().for_each(|ended| self.end(Some(ended)));
    }

    fn settle(&mut self) {
        self.closed = true;
        for (_, line) in self.endpoint.settle_asked(Because::Settled) {
            one_line(&line);
        }
        let (todo, ended) = self.endpoint.give_up(Because::Settled);
        self.carry_out(todo);
        ended.into_iter().for_each(|ended| self.end(Some(ended)));
    }

    fn lose(&mut self) {
        let (todo, permits) = self.endpoint.client_lost();
        self.lost = true;
        self.carry_out(todo);
        drop(permits);
        assert_eq!(self.held.get(), 0, "its calls are given up");
    }
}

impl Server {
    fn shake_hands(&mut self, modern: bool) {
        self.peer = Peer::default();
        let (era, result) = if modern { (EraChoice::Modern, MODERN) } else { (EraChoice::Legacy, LEGACY) };
        one_line(&self.peer.begin(era).expect("it begins once"));
        let line = format!("{{\"jsonrpc\":\"2.0\",\"id\":\"mcpvisor-1\",\"result\":{result}}}");
        let message = Message::parse(line.as_bytes());
        drop(self.peer.handle_message(&message, line.as_bytes()));
        assert!(self.peer.negotiated().is_some());
    }
}

/// What is written or said is one line.
fn one_line(line: &[u8]) {
    let Some((b'\n', line)) = line.split_last() else { panic!("a line has an end") };
    assert!(!line.contains(&b'\n') && !line.contains(&b'\r'), "a line has one end");
}
