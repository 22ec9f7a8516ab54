use super::*;

fn initialize(version: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":0,"method":"initialize","params":{{"protocolVersion":"{version}","capabilities":{{}},"clientInfo":{{"name":"c","version":"1"}}}}}}"#
    )
}

fn discover() -> String {
    format!(r#"{{"jsonrpc":"2.0","id":0,"method":"server/discover","params":{{{META}}}}}"#)
}

#[test]
fn g42_in_front_of_one_server_its_own_result_is_the_answer() {
    let result = json!({"protocolVersion": "2025-03-26", "capabilities": {"odd": [1.50]}, "serverInfo": {"name": "s", "version": "1"}, "instructions": "do", "more": null});
    let server = Server::new("a", EraChoice::Legacy, result.clone());
    let mut world = World::with(vec![server], Prefix::OnConflict);
    for version in ["2024-11-05", "2025-11-25", "1999-01-01", ""] {
        let mut fresh =
            World::with(vec![Server::new("a", EraChoice::Legacy, result.clone())], Prefix::OnConflict);
        assert_eq!(json(only(&fresh.client(&initialize(version))))["result"], result, "{version}");
    }
    assert_eq!(
        only(&world.client(&initialize("2025-11-25"))),
        format!(r#"{{"jsonrpc":"2.0","id":0,"result":{result}}}"#)
    );
    // Nothing of that is asked of the server.
    assert!(world.wrote(0).is_empty());
    // A second one is refused, and changes nothing.
    assert_eq!(error(only(&world.client(&initialize("2025-11-25")))), (-32600, String::new()));
    assert_eq!(world.permits(), (0, 0, 0));
}

#[test]
fn of_several_servers_the_oldest_revision_and_what_any_of_them_offers() {
    let said = |protocol, capabilities, instructions: &str| {
        let mut result = legacy(protocol, &capabilities);
        result["instructions"] = instructions.into();
        result
    };
    let servers = vec![
        Server::new("a", EraChoice::Legacy, said("2025-11-25", json!({"tools": {}}), "use a")),
        Server::new(
            "b",
            EraChoice::Legacy,
            said("2025-03-26", json!({"resources": {"subscribe": true}, "logging": {}}), "  "),
        ),
        Server::new("c", EraChoice::Modern, discovered(&json!({"prompts": {}, "completions": {}}))),
    ];
    let mut world = World::with(servers, Prefix::OnConflict);
    let answer = json(only(&world.client(&initialize("2025-06-18"))));
    let result = &answer["result"];
    assert_eq!(result["protocolVersion"], "2025-03-26", "{answer}");
    // The modern server is none of this client's.
    let capabilities = json!({"tools": {"listChanged": true}, "resources": {"listChanged": true, "subscribe": true}, "logging": {}});
    assert_eq!(result["capabilities"], capabilities, "{answer}");
    assert_eq!(result["serverInfo"]["name"], "mcpvisor");
    assert_eq!(result["instructions"], "# a\n\nuse a");
}

#[test]
fn a_legacy_client_of_modern_servers_is_told_both_revisions() {
    for names in [&["a"][..], &["a", "b"]] {
        let mut world = World::modern(names);
        let answer = world.client(&initialize("2025-06-18"));
        assert_eq!(error(only(&answer)).0, -32022);
        let said = &json(&answer[0])["error"];
        let message = said["message"].as_str().unwrap();
        assert!(message.contains("2025-06-18") && message.contains("2026-07-28"), "{message}");
        assert_eq!(said["data"], json!({"supported": ["2026-07-28"], "requested": "2025-06-18"}));
        // It may go on as a modern one.
        world.client(&discover());
        assert_eq!(world.wrote(0).len(), usize::from(names.len() == 1));
        assert!(
            world
                .client(&format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{{{META}}}}}"#))
                .len()
                == names.len() - 1
        );
    }
}

#[test]
fn a_modern_client_of_modern_servers() {
    let mut one = World::modern(&["a"]);
    assert!(one.client(&discover()).is_empty());
    let asked = one.one(0);
    assert_eq!((&asked["method"], &asked["id"]), (&json!("server/discover"), &json!("mcpvisor-2")));
    let answer = one.server(0, r#"{"id":"mcpvisor-2","jsonrpc":"2.0","result":{"own":1.50}}"#);
    assert_eq!(only(&answer), r#"{"id":0,"jsonrpc":"2.0","result":{"own":1.50}}"#);

    let servers = vec![
        Server::new("a", EraChoice::Modern, discovered(&json!({"tools": {}, "logging": {}}))),
        Server::new("b", EraChoice::Modern, discovered(&json!({"prompts": {}}))),
        Server::new("c", EraChoice::Legacy, legacy("2025-11-25", &json!({"resources": {}}))),
    ];
    let mut several = World::with(servers, Prefix::OnConflict);
    let answer = json(only(&several.client(&discover())));
    let result = &answer["result"];
    assert_eq!(result["supportedVersions"], json!(["2026-07-28"]));
    assert_eq!(result["resultType"], "complete");
    assert_eq!(
        result["capabilities"],
        json!({"tools": {"listChanged": true}, "prompts": {"listChanged": true}})
    );
}

#[test]
fn a_modern_client_of_legacy_servers_may_go_on_with_initialize() {
    for names in [&["a"][..], &["a", "b"]] {
        let mut world = World::of(names);
        let answer = world.client(&discover());
        assert_eq!(error(only(&answer)).0, -32601);
        let message = json(&answer[0])["error"]["message"].as_str().unwrap().to_owned();
        assert!(message.contains("2026-07-28") && message.contains("2025-11-25"), "{message}");
        // Without the modern mark, too.
        let bare = world.client(r#"{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{}}"#);
        assert_eq!(error(only(&bare)).0, -32601);
        let other =
            world.client(&format!(r#"{{"jsonrpc":"2.0","id":2,"method":"tools/list","params":{{{META}}}}}"#));
        assert_eq!(error(only(&other)).0, -32022);
        assert_eq!(
            json(&other[0])["error"]["data"],
            json!({"supported": ["2025-11-25"], "requested": "2026-07-28"})
        );
        assert!(world.wrote(0).is_empty());
        assert!(only(&world.client(&initialize("2025-11-25"))).contains("\"result\""));
    }
}

#[test]
fn of_servers_of_both_eras_a_client_sees_those_that_speak_as_it_does() {
    let mixed = || {
        let mut old = Server::new("old", EraChoice::Legacy, legacy("2025-11-25", &everything()));
        let mut new = Server::new("new", EraChoice::Modern, discovered(&everything()));
        old.has(ListKind::Tools, &["of-old"]);
        new.has(ListKind::Tools, &["of-new"]);
        World::with(vec![old, new], Prefix::OnConflict)
    };
    let mut legacy = mixed().begun(&json!({"roots": {}}));
    let list = legacy.client(r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#);
    assert!(only(&list).contains("of-old") && !list[0].contains("of-new"), "{list:?}");
    legacy.client(r#"{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}"#);
    assert_eq!((legacy.wrote(0).len(), legacy.wrote(1).len()), (1, 0));

    let mut modern = mixed();
    let list =
        modern.client(&format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{{{META}}}}}"#));
    assert!(only(&list).contains("of-new") && !list[0].contains("of-old"), "{list:?}");
    // What a server of the other era tells is not for this client, and nobody answers what it asks.
    let changed = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
    assert!(modern.server(0, changed).is_empty());
    assert!(modern.server(0, r#"{"jsonrpc":"2.0","id":7,"method":"roots/list"}"#).is_empty());
    assert_eq!(modern.one(0)["error"]["code"], -32601);
    assert_eq!(only(&legacy.server(0, changed)), changed);
}

#[test]
fn what_is_no_handshake_is_told_so() {
    let mut world = World::of(&["a"]);
    for params in ["", r#","params":[]"#, r#","params":{"capabilities":7}"#, r#","params":"x""#] {
        let answer = world.client(&format!(r#"{{"jsonrpc":"2.0","id":0,"method":"initialize"{params}}}"#));
        assert_eq!(error(only(&answer)).0, -32602, "{params}");
    }
    // The oldest clients say least.
    assert!(
        only(&world.client(r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}"#))
            .contains("result")
    );
}

#[test]
fn before_the_handshake_a_client_hears_nothing_that_it_has_not_asked_for() {
    let mut world = World::of(&["a"]);
    assert!(world.server(0, r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#).is_empty());
    assert!(world.server(0, r#"{"jsonrpc":"2.0","id":1,"method":"roots/list"}"#).is_empty());
    assert_eq!(world.one(0)["error"]["code"], -32601);
    assert_eq!(
        only(&world.client(r#"{"jsonrpc":"2.0","id":"p","method":"ping"}"#)),
        r#"{"jsonrpc":"2.0","id":"p","result":{}}"#
    );
}

#[test]
fn after_initialized_servers_learn_of_the_roots() {
    let initialized = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    let mut with = World::of(&["a", "b"]).begun(&json!({"roots": {"listChanged": true}}));
    with.client(initialized);
    for server in 0..2 {
        assert_eq!(
            only(&with.wrote(server)),
            r#"{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}"#
        );
    }
    let mut without = World::of(&["a"]).begun(&json!({}));
    without.client(initialized);
    assert!(without.wrote(0).is_empty());
}
