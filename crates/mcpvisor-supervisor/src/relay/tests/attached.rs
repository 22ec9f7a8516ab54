//! A client that is attached to shared servers, over pipes and over a socket, with both sides in this process.
mod ends;
mod slow;
mod stress;

use super::*;
use crate::api::{OpenRequest, ServerSpec};
use crate::events::{EventLimits, Events};
use crate::record::SessionRecord;
use crate::relay::attached::Attached;
use crate::relay::exclusive::Client;
use mcpvisor_lifecycle::registry::{IfClosing, IfOpen};
use mcpvisor_lifecycle::server::{Mode, Restart, ServerState};
use mcpvisor_lifecycle::{Generation, KeyRef, ServerName, SessionId, SessionKey, Uid};
use mcpvisor_mcp::catalogue::Prefix;
use std::ffi::CString;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

fn spec(name: &str) -> ServerSpec {
    ServerSpec {
        scope: crate::api::Scope::Session,
        name: ServerName::new(name).unwrap(),
        program: CString::new("none").unwrap(),
        args: Vec::new(),
        env: Arc::default(),
        cwd: None,
        umask: None,
        limits: Vec::new(),
        nice: None,
        ignored_signals: Vec::new(),
        credentials: None,
        no_new_privs: false,
        memory_max: None,
        pids_max: None,
        max_in_flight: None,
        calls: Default::default(),
        era: EraChoice::Legacy,
        mode: Mode::Shared,
        required: true,
        significant: false,
        breaker: false,
        restart: Restart::Permanent,
        restart_intensity: 5,
        restart_period: Duration::from_secs(60),
        health: None,
        start: Duration::from_secs(20),
        stdin_grace: Duration::ZERO,
        term_grace: Duration::ZERO,
        stop_command: None,
        kill_wait: Duration::ZERO,
        max_line: 4 << 20,
    }
}

/// The record of a session whose servers are spoken to by the test.
fn record(names: &[&str], drain: Duration) -> Arc<SessionRecord> {
    let key = KeyRef { uid: Uid(1), key: SessionKey::new("k").unwrap() };
    let mut request = OpenRequest {
        key: key.clone(),
        tenant: None,
        profile: None,
        administrator: false,
        queue: None,
        position: None,
        parent: None,
        labels: Default::default(),
        servers: names.iter().map(|name| spec(name)).collect(),
        origin: None,
        drain,
        prefix: Prefix::OnConflict,
        policy: Default::default(),
        direct: None,
        if_closing: IfClosing::Wait,
        if_open: IfOpen::Join,
        wait: true,
        deadline: None,
        lease: "none".to_owned(),
        holder: None,
        limits: Default::default(),
        secret: None,
    };
    let id = SessionId { uid: Uid(1), generation: Generation(1) };
    let events = Events::new(EventLimits { events: 16, bytes: 1 << 16 }, key.uid);
    Arc::new(SessionRecord::new(id, &key, &mut request, false, events))
}

fn everything() -> Value {
    json!({"tools": {}, "prompts": {}, "resources": {"subscribe": true}, "logging": {}})
}

/// Starts, or starts again, a server of the session; a client that is attached is told of it, as by its actor.
async fn start(record: &Arc<SessionRecord>, index: usize) -> FakeServer {
    let ((input, stdin), (stdout, output)) = (server::pipe(), server::pipe());
    let mut fake = FakeServer {
        input: BufReader::new(receiver(input).unwrap()),
        output: pipe::Sender::from_owned_fd(output).unwrap(),
        ended: Default::default(),
    };
    let slot = record.slot.of(index);
    let max_line = record.servers()[index].spec.max_line;
    let options = ConnectionOptions { max_line, era: EraChoice::Legacy, ..Default::default() };
    let connection =
        Connection::start(stdin, stdout, options, slot, FrameLog::default(), Box::new(|| ())).unwrap();
    let shake_hands = async {
        let id = fake.expect("initialize").await;
        let result = json!({"protocolVersion": "2025-11-25", "capabilities": everything(), "serverInfo": {"name": "fake", "version": "1"}});
        fake.answer(&id, result).await;
        fake.expect("notifications/initialized").await;
    };
    let (negotiated, ()) = tokio::join!(connection.handshake(), shake_hands);
    {
        let server = Arc::clone(&record.servers()[index]);
        let mut live = server.live();
        live.connection = Some(connection);
        live.state = ServerState::Ready;
    }
    if let Some(client) = record.slot.client() {
        client.server_ready(index, negotiated.unwrap());
    }
    fake
}

/// A server ends, as its actor does it.
fn end(record: &SessionRecord, index: usize) {
    record.servers()[index].live().state = ServerState::Backoff;
    record.servers()[index].end_connection();
}

/// As a session is settled.
fn settle(record: &SessionRecord) {
    record.gate.close(Box::new(|| ()));
    if let Some(client) = record.slot.client() {
        client.settle();
    }
    for server in record.servers().iter() {
        if let Some(connection) = server.any_connection() {
            connection.settle("the session is being closed");
        }
    }
}

struct World {
    record: Arc<SessionRecord>,
    servers: Vec<FakeServer>,
}

async fn world(names: &[&str]) -> World {
    world_with(names, Duration::from_secs(20)).await
}

async fn world_with(names: &[&str], drain: Duration) -> World {
    let record = record(names, drain);
    let mut servers = Vec::new();
    for index in 0..names.len() {
        servers.push(start(&record, index).await);
    }
    World { record, servers }
}

impl World {
    fn over_pipes(&self) -> (Arc<Attached>, FakeServer) {
        let ((stdin, theirs), (ours, stdout)) = (server::pipe(), server::pipe());
        let client = Client::new(stdin, stdout).unwrap();
        let attached = self.record.slot.attach(&self.record, None, client).expect("nobody else is attached");
        let end = FakeServer {
            input: BufReader::new(receiver(ours).unwrap()),
            output: pipe::Sender::from_owned_fd(theirs).unwrap(),
            ended: Default::default(),
        };
        (attached, end)
    }

    /// A client over pipes that has shaken hands.
    async fn client(&self, capabilities: &Value) -> (Arc<Attached>, FakeServer) {
        let (attached, mut client) = self.over_pipes();
        client.say(&initialize(capabilities)).await;
        let answer = client.next().await;
        assert_eq!(
            (&answer["id"], &answer["result"]["protocolVersion"]),
            (&json!(0), &json!("2025-11-25")),
            "{answer}"
        );
        (attached, client)
    }

    async fn has_no_client(&self) {
        until(|| self.record.slot.client().is_none()).await;
    }
}

fn initialize(capabilities: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": {"name": "c", "version": "1"}}})
}

fn call(id: impl Into<Value>, name: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": id.into(), "method": "tools/call", "params": {"name": name}})
}

/// An error's kind.
fn kind(answer: &Value) -> &str {
    assert_eq!(answer["error"]["data"]["from"], "mcpvisor", "{answer}");
    answer["error"]["data"]["kind"].as_str().unwrap()
}

/// Answers `tools/list` with these names.
async fn list_tools(server: &mut FakeServer, names: &[&str]) {
    let id = server.expect("tools/list").await;
    let tools: Vec<Value> = names.iter().map(|name| json!({"name": name, "inputSchema": {}})).collect();
    server.answer(&id, json!({ "tools": tools })).await;
}

/// G42: of one server everything passes as it is but for the id.
#[tokio::test]
async fn g42_one_server_over_pipes_and_over_a_socket() {
    let mut world = world(&["a"]).await;
    let (attached, mut client) = world.client(&json!({})).await;
    let line = "{\"jsonrpc\":\"2.0\",\"params\":{\"name\":\"t\",\"n\":1.50},\"id\":1.0, \"method\":\"tools/call\"}\r\n";
    client.write(line.as_bytes()).await;
    let asked = world.servers[0].line().await.unwrap();
    let id = serde_json::from_str::<Value>(&asked).unwrap()["id"].to_string();
    assert_eq!(asked, line.replace("1.0,", &format!("{id},")).replace('\r', ""));
    assert_eq!(world.record.gate.in_flight(), 1);
    world.servers[0]
        .write(format!("{{\"result\":{{\"n\":1.50}},\"id\":{id},\"jsonrpc\":\"2.0\"}}\r\n").as_bytes())
        .await;
    assert_eq!(client.line().await.unwrap(), "{\"result\":{\"n\":1.50},\"id\":1.0,\"jsonrpc\":\"2.0\"}\n");
    until(|| world.record.gate.in_flight() == 0).await;
    drop(client);
    soon(attached.ended()).await;

    let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let client = Client::over_socket(
        theirs.into(),
        format!("{}\n", initialize(&json!({}))).into_bytes(),
        b"hello\n".to_vec(),
    );
    let attached =
        world.record.slot.attach(&world.record, None, client.unwrap()).expect("nobody is attached");
    ours.set_nonblocking(true).unwrap();
    let mut ours = BufReader::new(tokio::net::UnixStream::from_std(ours).unwrap());
    let mut line = String::new();
    soon(ours.read_line(&mut line)).await.unwrap();
    assert_eq!(line, "hello\n", "the greeting comes first");
    line.clear();
    soon(ours.read_line(&mut line)).await.unwrap();
    assert!(line.contains("\"serverInfo\""), "{line}");
    // A socket that is half-closed still hears.
    soon(ours.get_mut().write_all(format!("{}\n", call(7, "t")).as_bytes())).await.unwrap();
    soon(ours.get_mut().shutdown()).await.unwrap();
    let id = world.servers[0].expect("tools/call").await;
    world.servers[0].answer(&id, json!("late")).await;
    line.clear();
    soon(ours.read_line(&mut line)).await.unwrap();
    assert!(line.contains("\"late\"") && line.contains("\"id\":7"), "{line}");
    line.clear();
    assert_eq!(soon(ours.read_line(&mut line)).await.unwrap(), 0, "then its stream ends");
    soon(attached.ended()).await;
    assert!(attached.client_left_first());
}

/// Several servers: lists are asked for once, and side by side; calls find their owner.
#[tokio::test]
async fn g27_several_servers_are_one() {
    let mut world = world(&["a", "b"]).await;
    let (_attached, mut client) = world.client(&json!({})).await;
    client.say(&json!({"jsonrpc": "2.0", "id": "l", "method": "tools/list"})).await;
    // The second is asked though the first has not answered.
    list_tools(&mut world.servers[1], &["both", "y"]).await;
    list_tools(&mut world.servers[0], &["both", "x"]).await;
    let list = client.next().await;
    let names: Vec<&str> =
        list["result"]["tools"].as_array().unwrap().iter().filter_map(|tool| tool["name"].as_str()).collect();
    assert_eq!(names, ["a__both", "b__both", "x", "y"]);
    for (name, server, own) in [("b__both", 1, "both"), ("x", 0, "x")] {
        client.say(&call(name, name)).await;
        let asked = world.servers[server].next().await;
        assert_eq!(asked["params"]["name"], own);
        world.servers[server].answer(&asked["id"], json!(server)).await;
        let answer = client.next().await;
        assert_eq!((&answer["id"], &answer["result"]), (&json!(name), &json!(server)));
    }
    client.say(&call("z", "z")).await;
    assert_eq!(client.next().await["error"]["code"], -32602);
    client.say(&call("both", "both")).await;
    assert!(client.next().await["error"]["message"].as_str().unwrap().contains("a__both or b__both"));
    // A list that has changed is asked for anew, and the client hears of it.
    world.servers[0].say(&json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})).await;
    assert_eq!(client.next().await["method"], "notifications/tools/list_changed");
    client.say(&call("new", "new")).await;
    list_tools(&mut world.servers[0], &["new"]).await;
    let id = world.servers[0].expect("tools/call").await;
    world.servers[0].answer(&id, json!("new")).await;
    assert_eq!(client.next().await["id"], "new");
    // The level of the log goes to both.
    client.say(&json!({"jsonrpc": "2.0", "id": "level", "method": "logging/setLevel", "params": {"level": "debug"}})).await;
    for server in [1, 0] {
        let asked = world.servers[server].next().await;
        assert_eq!(
            (&asked["method"], &asked["params"]["level"]),
            (&json!("logging/setLevel"), &json!("debug"))
        );
        world.servers[server].answer(&asked["id"], json!({})).await;
    }
    assert_eq!(client.next().await["result"], json!({}));
}

/// A server that does not list what it has is left out in the end, and holds up nobody else's tools.
#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_list_is_left_out() {
    let mut world = world(&["a", "b"]).await;
    let (_attached, mut client) = world.client(&json!({})).await;
    client.say(&call(1, "y")).await;
    world.servers[0].expect("tools/list").await;
    list_tools(&mut world.servers[1], &["y"]).await;
    let asked = world.servers[1].next().await;
    assert_eq!(asked["params"]["name"], "y");
    world.servers[1].answer(&asked["id"], json!("mine")).await;
    assert_eq!(client.next().await["result"], "mine");
}

/// What servers ask goes to the client that has declared it; the answer to whoever asked.
#[tokio::test]
async fn servers_ask_the_client() {
    let mut world = world(&["a", "b"]).await;
    for server in &mut world.servers {
        server.say(&json!({"jsonrpc": "2.0", "id": 0, "method": "roots/list"})).await;
        assert_eq!(server.next().await["error"]["code"], -32601, "nobody is attached");
    }
    let (_attached, mut client) = world.client(&json!({"roots": {"listChanged": true}})).await;
    client.say(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
    for server in &mut world.servers {
        server.expect("notifications/roots/list_changed").await;
    }
    for (index, id) in [(0, json!(0)), (1, json!(0)), (1, json!("0"))] {
        world.servers[index].say(&json!({"jsonrpc": "2.0", "id": id, "method": "roots/list"})).await;
        let asked = client.next().await;
        client.say(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"roots": [index]}})).await;
        let answer = world.servers[index].next().await;
        assert_eq!((&answer["id"], &answer["result"]["roots"][0]), (&id, &json!(index)));
    }
    world.servers[0].say(&json!({"jsonrpc": "2.0", "id": 1, "method": "sampling/createMessage"})).await;
    assert_eq!(world.servers[0].next().await["error"]["code"], -32601);
}

/// One client at a time; another when it has gone; to one server or to all.
#[tokio::test]
async fn one_client_at_a_time() {
    let mut world = world(&["a", "b"]).await;
    let (attached, client) = world.client(&json!({})).await;
    let ((stdin, _theirs), (_ours, stdout)) = (server::pipe(), server::pipe());
    let second = world.record.slot.attach(&world.record, None, Client::new(stdin, stdout).unwrap());
    assert!(second.is_err());
    drop(client);
    soon(attached.ended()).await;
    world.has_no_client().await;
    for _ in 0..20 {
        let (attached, client) = world.client(&json!({})).await;
        drop(client);
        soon(attached.ended()).await;
        assert!(attached.client_left_first());
    }
    // To one server: it looks like that one, and the other is none of its business.
    let ((stdin, theirs), (ours, stdout)) = (server::pipe(), server::pipe());
    let only = ServerName::new("b").unwrap();
    let client = Client::new(stdin, stdout).unwrap();
    let _attached = world.record.slot.attach(&world.record, Some(&only), client).expect("nobody is attached");
    let mut client = FakeServer {
        input: BufReader::new(receiver(ours).unwrap()),
        output: pipe::Sender::from_owned_fd(theirs).unwrap(),
        ended: Default::default(),
    };
    client.say(&initialize(&json!({"roots": {}}))).await;
    assert_eq!(client.next().await["result"]["serverInfo"]["name"], "fake");
    world.servers[0].say(&json!({"jsonrpc": "2.0", "method": "notifications/message"})).await;
    world.servers[0].say(&json!({"jsonrpc": "2.0", "id": 1, "method": "roots/list"})).await;
    assert_eq!(world.servers[0].next().await["error"]["code"], -32601);
    client.say(&call(1, "t")).await;
    let id = world.servers[1].expect("tools/call").await;
    world.servers[1].answer(&id, json!("b")).await;
    assert_eq!(client.next().await["result"], "b");
}
