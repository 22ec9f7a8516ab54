//! Servers that come and go while the client is there.
use super::*;

const CHANGED: [&str; 3] = [
    r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#,
    r#"{"jsonrpc":"2.0","method":"notifications/prompts/list_changed"}"#,
    r#"{"jsonrpc":"2.0","method":"notifications/resources/list_changed"}"#,
];

impl World {
    /// A server comes: what the client hears.
    fn joins(&mut self, server: Server) -> Vec<String> {
        let (name, negotiated) = (server.name, server.peer.negotiated().cloned());
        let (index, todo) = self.endpoint.face_joined(name.into(), negotiated);
        if index == self.servers.len() {
            self.servers.push(server);
        } else {
            self.servers[index] = server;
        }
        self.carry_out(todo);
        self.heard()
    }

    fn leaves(&mut self, server: usize) -> Vec<String> {
        let todo = self.endpoint.face_left(server);
        self.carry_out(todo);
        self.heard()
    }
}

fn legacy_server(name: &'static str, capabilities: &Value, tools: &[&str]) -> Server {
    let mut server = Server::new(name, EraChoice::Legacy, legacy("2025-11-25", capabilities));
    server.has(ListKind::Tools, tools);
    server
}

fn tools(world: &mut World) -> Vec<String> {
    let heard = world.client(r#"{"jsonrpc":"2.0","id":"list","method":"tools/list"}"#);
    let answer: Value = serde_json::from_str(&heard[0]).unwrap();
    let tools = answer["result"]["tools"].as_array().unwrap().iter();
    tools.map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

/// G27: with a second server lists are merged, and without it they are the one server's own again; what was asked is still answered.
#[test]
fn g27_a_server_comes_and_goes() {
    let mut world = World::with(vec![legacy_server("a", &everything(), &["x"])], Prefix::OnConflict);
    world = world.begun(&json!({}));
    for round in 0..3 {
        assert_eq!(world.joins(legacy_server("b", &everything(), &["x", "y"])), CHANGED);
        assert_eq!(world.servers.len(), 2, "round {round}: the place of one that is gone is used again");
        assert_eq!(tools(&mut world), ["a__x", "b__x", "y"]);
        let call = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"y"}}"#;
        assert!(world.client(call).is_empty());
        let asked = world.one(1);
        assert_eq!(world.leaves(1), CHANGED);
        assert!(world.leaves(1).is_empty(), "it is told once");
        world.client(r#"{"jsonrpc":"2.0","id":8,"method":"tools/list"}"#);
        assert_eq!(world.one(0)["method"], "tools/list", "it is the one server's own list");
        let answer = json!({"jsonrpc": "2.0", "id": asked["id"], "result": {}}).to_string();
        let answered = world.server(1, &answer);
        assert_eq!(json(only(&answered))["id"], 7);
        world.endpoint.face_vacated(1);
        let id = 8;
        world.client(&format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#
        ));
        world.wrote(0);
    }
}

/// A client hears of lists that it was told of at its handshake, and of no others.
#[test]
fn lists_that_a_client_does_not_know_do_not_change() {
    let mut world = World::with(vec![legacy_server("a", &json!({"tools": {}}), &["x"])], Prefix::OnConflict);
    world = world.begun(&json!({}));
    assert_eq!(world.joins(legacy_server("b", &everything(), &["y"])), CHANGED[..1]);
    assert_eq!(world.joins(legacy_server("c", &json!({"prompts": {}}), &[])), Vec::<String>::new());
    // One that has said nothing yet hears nothing.
    let mut world = World::of(&["a"]);
    assert!(world.joins(legacy_server("b", &everything(), &["y"])).is_empty());
}

/// A modern client's stream is of the servers that there are: it hears of changes, and it does not end with a server that leaves.
#[test]
fn a_stream_goes_on_with_other_servers() {
    let changed = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"L"}}}"#;
    let listen = format!(
        r#"{{"jsonrpc":"2.0","id":"L","method":"subscriptions/listen","params":{{"notifications":{{"toolsListChanged":true}},{META}}}}}"#
    );
    let acknowledge = |world: &mut World, server: usize| {
        let asked = world.one(server);
        assert_eq!(asked["method"], "subscriptions/listen", "{asked}");
        let line = json!({"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": {
            "_meta": {"io.modelcontextprotocol/subscriptionId": asked["id"]}, "notifications": {"toolsListChanged": true}}});
        world.server(server, &line.to_string())
    };
    let modern = |name| Server::new(name, EraChoice::Modern, discovered(&everything()));
    let mut world = World::modern(&["a"]);
    assert!(world.client(&listen).is_empty());
    assert_eq!(acknowledge(&mut world, 0).len(), 1);
    assert!(world.joins(modern("b")).is_empty(), "it is asked first");
    assert_eq!(acknowledge(&mut world, 1), [changed]);
    for (server, name) in [(0, "c"), (1, "d")] {
        assert_eq!(world.leaves(server), [changed]);
        let told = world.one(server);
        assert_eq!(told["method"], "notifications/cancelled", "its own stream is given up: {told}");
        world.endpoint.face_vacated(server);
        if server == 0 {
            continue;
        }
        assert!(world.joins(modern(name)).is_empty());
        assert_eq!(acknowledge(&mut world, 0), [changed], "it had nobody for a while");
    }
    assert_eq!(world.permits(), (1, 0, 0), "and never ended");
}

/// A server that leaves before it has acknowledged is not waited for.
#[test]
fn an_acknowledgement_does_not_wait_for_one_that_left() {
    let listen = format!(
        r#"{{"jsonrpc":"2.0","id":"L","method":"subscriptions/listen","params":{{"notifications":{{"toolsListChanged":true}},{META}}}}}"#
    );
    let mut world = World::modern(&["a", "b"]);
    assert!(world.client(&listen).is_empty());
    let asked = world.one(0);
    let line = json!({"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": {
        "_meta": {"io.modelcontextprotocol/subscriptionId": asked["id"]}, "notifications": {"toolsListChanged": true}}});
    assert!(world.server(0, &line.to_string()).is_empty(), "the other one is waited for");
    let heard = world.leaves(1);
    assert_eq!(heard.len(), 1, "{heard:?}");
    assert!(heard[0].contains("notifications/subscriptions/acknowledged"), "{heard:?}");
}
