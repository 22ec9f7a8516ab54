//! What servers ask the client.
use super::*;

#[test]
fn each_request_needs_its_capability() {
    let needs = [
        ("roots/list", "{}", json!({"roots": {}}), "roots"),
        ("sampling/createMessage", r#"{"messages":[]}"#, json!({"sampling": {}}), "sampling"),
        (
            "sampling/createMessage",
            r#"{"messages":[],"tools":[]}"#,
            json!({"sampling": {"tools": {}}}),
            "sampling.tools",
        ),
        ("elicitation/create", r#"{"message":"?"}"#, json!({"elicitation": {}}), "elicitation"),
        ("elicitation/create", r#"{"mode":"form"}"#, json!({"elicitation": {"form": {}}}), "elicitation"),
        ("elicitation/create", r#"{"mode":"url"}"#, json!({"elicitation": {"url": {}}}), "elicitation.url"),
    ];
    for (method, params, capability, name) in &needs {
        let line = format!(r#"{{"jsonrpc":"2.0","id":0,"method":"{method}","params":{params}}}"#);
        let mut with = World::of(&["a", "b"]).begun(capability);
        let asked = with.server(1, &line);
        assert_eq!(json(only(&asked))["method"], *method, "{name}");
        let mut without = World::of(&["a", "b"]).begun(&json!({}));
        assert!(without.server(1, &line).is_empty(), "{name}");
        let refused = without.one(1);
        assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!(0), &json!(-32601)));
        assert!(refused["error"]["message"].as_str().unwrap().ends_with(name), "{refused}");
    }
    // A part that was not declared is none.
    let mut form = World::of(&["a"]).begun(&json!({"elicitation": {"form": {}}, "sampling": {}}));
    for params in [r#"{"mode":"url"}"#, r#"{"tools":[]}"#] {
        let method = if params.contains("url") { "elicitation/create" } else { "sampling/createMessage" };
        assert!(
            form.server(0, &format!(r#"{{"jsonrpc":"2.0","id":0,"method":"{method}","params":{params}}}"#))
                .is_empty()
        );
        assert_eq!(form.one(0)["error"]["code"], -32601);
    }
    let mut url = World::of(&["a"]).begun(&json!({"elicitation": {"url": {}}}));
    assert!(
        url.server(0, r#"{"jsonrpc":"2.0","id":0,"method":"elicitation/create","params":{}}"#).is_empty()
    );
}

/// G42: ids of servers collide with each other's and the client's, and come back as they were.
#[test]
fn g42_ids_and_tokens_of_servers_come_back() {
    let mut world = World::of(&["a", "b"]).begun(&json!({"roots": {}, "sampling": {}}));
    let mut known = Vec::new();
    for (server, id) in [(0, "0"), (1, "0"), (0, "0.0"), (1, "\"0\""), (0, "1e0")] {
        let line = format!(
            r#"{{"params":{{"x":1.50,"_meta":{{"progressToken":{id}}}}},"id":{id},"method":"sampling/createMessage","jsonrpc":"2.0"}}"#
        );
        let asked = world.server(server, &line);
        let theirs = json(only(&asked))["id"].to_string();
        assert_eq!(asked[0], line.replace(&format!(":{id}"), &format!(":{theirs}")));
        known.push((server, id, theirs));
    }
    for (server, id, theirs) in &known {
        let progress = format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{theirs},"progress":0.10}}}}"#
        );
        assert!(world.client(&progress).is_empty());
        assert_eq!(only(&world.wrote(*server)), progress.replace(theirs, id));
    }
    for (server, id, theirs) in known.iter().rev() {
        let answer = format!(r#"{{"result":{{"n":1.00}},"id":{theirs},"jsonrpc":"2.0"}}"#);
        assert!(world.client(&answer).is_empty());
        assert_eq!(only(&world.wrote(*server)), answer.replace(theirs, id));
        assert!(world.client(&answer).is_empty(), "once");
        assert!(world.wrote(*server).is_empty());
    }
    assert_eq!(world.endpoint.counters().unmatched, 5);
    // Progress of what is answered, or of nothing, is nobody's.
    world.client(r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"mcpvisor-1","progress":1}}"#);
    world.client(
        r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}"#,
    );
    assert!(world.wrote(0).is_empty() && world.wrote(1).is_empty());
}

#[test]
fn a_server_gives_up_what_it_asked() {
    let mut world = World::of(&["a", "b"]).begun(&json!({"roots": {}}));
    let asked = world.server(1, r#"{"jsonrpc":"2.0","id":0,"method":"roots/list"}"#);
    let theirs = json(only(&asked))["id"].to_string();
    let words = r#"{"jsonrpc":"2.0","params":{"requestId":0,"reason":"r","x":1.0},"method":"notifications/cancelled"}"#;
    // Another server's has the same id, and is another.
    assert!(world.server(0, words).is_empty());
    assert_eq!(
        only(&world.server(1, words)),
        words.replace("\"requestId\":0", &format!("\"requestId\":{theirs}"))
    );
    assert!(world.client(&format!(r#"{{"jsonrpc":"2.0","id":{theirs},"result":{{}}}}"#)).is_empty());
    assert!(world.wrote(1).is_empty());
}

/// What a server asked ends with it; G19: what is pending when the session is closed has an answer that says why.
#[test]
fn g19_what_servers_ask_is_settled() {
    let mut world = World::of(&["a", "b"]).begun(&json!({"roots": {}}));
    let ask = |id: u32| format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"roots/list"}}"#);
    let first = json(only(&world.server(0, &ask(1))))["id"].to_string();
    assert_eq!(world.server(1, &ask(1)).len(), 1);
    let told = world.server_dies(0);
    assert_eq!(json(only(&told))["method"], "notifications/cancelled");
    assert_eq!(json(&told[0])["params"]["requestId"].to_string(), first);
    assert!(world.settle().is_empty());
    let wrote = world.wrote(1);
    assert_eq!(
        (json(only(&wrote))["id"].clone(), error(&wrote[0])),
        (json!(1), (1013, "cancelled".to_owned()))
    );
    // So is what is asked from now on: the client will not answer.
    assert!(world.server(1, &ask(2)).is_empty());
    let wrote = world.wrote(1);
    assert_eq!(
        (json(only(&wrote))["id"].clone(), error(&wrote[0])),
        (json!(2), (1013, "cancelled".to_owned()))
    );
}

#[test]
fn a_client_that_has_said_all_answers_nothing() {
    let mut world = World::of(&["a"]).begun(&json!({"roots": {}}));
    world.client(r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}"#);
    let call = world.one(0)["id"].clone();
    assert_eq!(world.server(0, r#"{"jsonrpc":"2.0","id":1,"method":"roots/list"}"#).len(), 1);
    assert!(world.said_all().is_empty());
    assert_eq!(error(only(&world.wrote(0))), (1013, "cancelled".to_owned()));
    assert!(world.server(0, r#"{"jsonrpc":"2.0","id":2,"method":"roots/list"}"#).is_empty());
    assert_eq!(error(only(&world.wrote(0))), (1013, "cancelled".to_owned()));
    // It still hears: its own answer.
    assert_eq!(
        only(&world.server(0, &format!(r#"{{"jsonrpc":"2.0","id":{call},"result":{{}}}}"#))),
        r#"{"jsonrpc":"2.0","id":1,"result":{}}"#
    );
}

#[test]
fn at_most_so_many_wait_for_the_client() {
    let mut world = World::of(&["a"]).begun(&json!({"roots": {}}));
    for id in 0..MOST_ASKED {
        assert_eq!(
            world.server(0, &format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"roots/list"}}"#)).len(),
            1
        );
    }
    assert!(world.server(0, r#"{"jsonrpc":"2.0","id":"more","method":"roots/list"}"#).is_empty());
    assert_eq!(error(only(&world.wrote(0))), (1009, "overloaded".to_owned()));
    let token = "x".repeat(LONGEST_ID);
    let mut world = World::of(&["a"]).begun(&json!({"roots": {}}));
    assert!(world.server(0, &format!(r#"{{"jsonrpc":"2.0","id":1,"method":"roots/list","params":{{"_meta":{{"progressToken":"{token}"}}}}}}"#)).is_empty());
    assert_eq!(error(only(&world.wrote(0))).0, -32602);
}

#[test]
fn pings_of_servers_are_the_daemons_and_modern_servers_ask_nothing() {
    let mut world = World::of(&["a"]).begun(&json!({}));
    assert!(world.server(0, r#"{"jsonrpc":"2.0","id":1.0,"method":"ping"}"#).is_empty());
    assert_eq!(only(&world.wrote(0)), r#"{"jsonrpc":"2.0","id":1.0,"result":{}}"#);
    let mut modern = World::modern(&["a"]);
    modern.client(&format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{{{META}}}}}"#));
    modern.wrote(0);
    assert!(modern.server(0, r#"{"jsonrpc":"2.0","id":1,"method":"roots/list"}"#).is_empty());
    assert!(modern.wrote(0).is_empty());
    assert_eq!(modern.servers[0].peer.counters().violations, 1);
}
