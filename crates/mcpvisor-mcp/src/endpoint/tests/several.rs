//! Several servers behind one endpoint.
use super::*;

/// Two servers with a tool and a prompt in common.
fn two(prefix: Prefix) -> World {
    let mut servers: Vec<Server> = ["a", "b"]
        .iter()
        .map(|name| Server::new(name, EraChoice::Legacy, legacy("2025-11-25", &everything())))
        .collect();
    for (server, own) in servers.iter_mut().zip(["x", "y"]) {
        server.has(ListKind::Tools, &["both", own]);
        server.has(ListKind::Prompts, &["both", own]);
        server.has(ListKind::Resources, &[&format!("file:///{own}"), "file:///both"]);
    }
    servers[1].has(ListKind::Templates, &["db://{table}"]);
    World::with(servers, prefix).begun(&json!({}))
}

fn names(world: &mut World, method: &str, field: &str, name: &str) -> Vec<String> {
    let answer = world.client(&format!(r#"{{"jsonrpc":"2.0","id":"list","method":"{method}"}}"#));
    let result = json(only(&answer))["result"].clone();
    let of = |item: &Value| item[name].as_str().unwrap().to_owned();
    result[field].as_array().unwrap_or_else(|| panic!("{answer:?}")).iter().map(of).collect()
}

#[test]
fn lists_are_one_list_under_published_names() {
    for (prefix, expected) in [
        (Prefix::OnConflict, &["a__both", "b__both", "x", "y"][..]),
        (Prefix::Always, &["a__both", "a__x", "b__both", "b__y"]),
        (Prefix::Never, &["both", "x", "y"]),
    ] {
        let mut world = two(prefix);
        assert_eq!(names(&mut world, "tools/list", "tools", "name"), expected);
        assert_eq!(names(&mut world, "prompts/list", "prompts", "name"), expected);
        assert!(world.wrote(0).is_empty() && world.wrote(1).is_empty());
    }
}

/// G42: under another name everything else stays.
#[test]
fn g42_a_call_goes_to_whose_name_it_is() {
    let mut world = two(Prefix::OnConflict);
    world.client(r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"arguments":{"name":"b__both","n":1.50},"name":"b__both","_meta":{"progressToken":7}}}"#);
    assert_eq!(
        only(&world.wrote(1)),
        r#"{"jsonrpc":"2.0","id":"mcpvisor-2","method":"tools/call","params":{"arguments":{"name":"b__both","n":1.50},"name":"both","_meta":{"progressToken":"mcpvisor-2"}}}"#
    );
    assert!(world.wrote(0).is_empty());
    world.client(r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"x"}}"#);
    assert_eq!(world.one(0)["params"]["name"], "x");
    world.client(r#"{"jsonrpc":"2.0","id":3,"method":"prompts/get","params":{"name":"a__both"}}"#);
    assert_eq!(world.one(0)["params"]["name"], "both");
    world.client(r#"{"jsonrpc":"2.0","id":4,"method":"completion/complete","params":{"argument":{"name":"n","value":""},"ref":{"type":"ref/prompt","name":"b__both"}}}"#);
    assert_eq!(world.one(1)["params"]["ref"]["name"], "both");
    world.client(r#"{"jsonrpc":"2.0","id":5,"method":"completion/complete","params":{"ref":{"type":"ref/resource","uri":"db://{table}"}}}"#);
    assert_eq!(world.one(1)["params"]["ref"]["uri"], "db://{table}");
    // Answers of both come back, though their ids are the same.
    assert!(
        only(&world.server(1, r#"{"jsonrpc":"2.0","id":"mcpvisor-2","result":{}}"#)).contains("\"id\":1")
    );
    assert!(
        only(&world.server(0, r#"{"jsonrpc":"2.0","id":"mcpvisor-2","result":{}}"#)).contains("\"id\":2")
    );
}

#[test]
fn g27_names_of_nobody_and_of_several_are_refused() {
    let mut world = two(Prefix::OnConflict);
    let cases = [
        ("tools/call", r#"{"name":"z"}"#, "Unknown tool: z", -32602),
        ("tools/call", r#"{"name":"both"}"#, "a__both or b__both", -32602),
        ("prompts/get", r#"{"name":"z"}"#, "Unknown prompt: z", -32602),
        ("resources/read", r#"{"uri":"http://z"}"#, "Resource not found: http://z", -32002),
        ("tools/call", "{}", "needs a name", -32602),
        ("tools/call", r#"{"name":7}"#, "needs a name", -32602),
        ("resources/read", "{}", "needs a uri", -32602),
        ("completion/complete", "{}", "needs a ref", -32602),
        ("completion/complete", r#"{"ref":{}}"#, "needs a ref", -32602),
        ("logging/setLevel", "{}", "needs a level", -32602),
        ("tools/list", r#"{"cursor":7}"#, "cursor", -32602),
        ("tasks/list", "{}", "tasks/list", -32601),
    ];
    for (method, params, message, code) in cases {
        let answer =
            world.client(&format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#));
        assert_eq!(error(only(&answer)).0, code, "{answer:?}");
        assert!(json(&answer[0])["error"]["message"].as_str().unwrap().contains(message), "{answer:?}");
    }
    assert!(world.wrote(0).is_empty() && world.wrote(1).is_empty());
    assert_eq!(world.endpoint.in_flight(), 0);
    // What does not reach a server's list needs no admission.
    let (admitted, finished, cancelled) = world.permits();
    assert_eq!((admitted, cancelled), (finished, 0));
}

#[test]
fn a_resource_is_whose_list_or_template_has_it() {
    let mut world = two(Prefix::OnConflict);
    for (uri, server) in [("file:///x", 0), ("file:///y", 1), ("file:///both", 0), ("db://t", 1)] {
        for method in ["resources/read", "resources/subscribe"] {
            world.client(&format!(
                r#"{{"jsonrpc":"2.0","id":"{method} {uri}","method":"{method}","params":{{"uri":"{uri}"}}}}"#
            ));
            assert_eq!(world.one(server)["params"]["uri"], uri);
        }
    }
    let mut never = two(Prefix::Never);
    never.client(r#"{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"file:///both"}}"#);
    assert_eq!(never.one(1)["method"], "resources/read");
}

/// What was subscribed to at one server is unsubscribed there, whoever lists it meanwhile.
#[test]
fn a_subscription_ends_where_it_was_made() {
    let mut world = two(Prefix::OnConflict);
    world.client(r#"{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":"file:///y"}}"#);
    let id = world.one(1)["id"].clone();
    world.server(1, &format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#));
    world.servers[1].has(ListKind::Resources, &[]);
    world.servers[0].has(ListKind::Resources, &["file:///y"]);
    world.client(r#"{"jsonrpc":"2.0","id":1,"method":"resources/unsubscribe","params":{"uri":"file:///y"}}"#);
    assert_eq!(world.one(1)["method"], "resources/unsubscribe");
    assert!(world.wrote(0).is_empty());
}

#[test]
fn a_server_that_runs_again_is_told_what_is_its_own() {
    let mut world = two(Prefix::OnConflict);
    for (uri, server) in [("file:///x", 0), ("file:///y", 1)] {
        world.client(&format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{{"uri":"{uri}"}}}}"#
        ));
        let id = world.one(server)["id"].clone();
        world.server(server, &format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#));
    }
    assert_eq!(
        only(
            &world
                .client(r#"{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"error"}}"#)
        ),
        r#"{"jsonrpc":"2.0","id":1,"result":{}}"#
    );
    assert!(world.server_dies(1).is_empty());
    // What the other has is still there.
    assert_eq!(names(&mut world, "tools/list", "tools", "name"), ["both", "x"]);
    assert_eq!(world.server_runs_again(1).len(), 3);
    assert_eq!(
        world.wrote(1),
        ["own logging/setLevel {\"level\":\"error\"}", "own resources/subscribe {\"uri\":\"file:///y\"}"]
    );
    assert!(world.wrote(0).is_empty());
    world.lost();
    assert_eq!(world.wrote(0), ["own resources/unsubscribe {\"uri\":\"file:///x\"}"]);
}

#[test]
fn pages_lose_nothing_that_stays() {
    let mut server = Server::new("a", EraChoice::Legacy, legacy("2025-11-25", &everything()));
    let all: Vec<String> = (0..2500).map(|n| format!("t{n:05}")).collect();
    let named: Vec<&str> = all.iter().map(String::as_str).collect();
    server.has(ListKind::Tools, &named);
    let other = Server::new("b", EraChoice::Legacy, legacy("2025-11-25", &everything()));
    let mut world = World::with(vec![server, other], Prefix::OnConflict).begun(&json!({}));
    let (mut got, mut cursor, mut pages) = (Vec::new(), Value::Null, 0);
    loop {
        let params = if cursor.is_null() { json!({}) } else { json!({ "cursor": cursor }) };
        let answer =
            world.client(&json!({"jsonrpc":"2.0","id":1,"method":"tools/list","params":params}).to_string());
        let result = json(only(&answer))["result"].clone();
        got.extend(
            result["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap().to_owned()),
        );
        pages += 1;
        // The list changes between two pages.
        let fewer: Vec<&str> = named.iter().copied().filter(|name| *name != "t00999").collect();
        world.servers[0].has(ListKind::Tools, &fewer);
        cursor = result["nextCursor"].clone();
        if cursor.is_null() {
            break;
        }
    }
    assert_eq!((pages, got), (3, all));
}

/// One entry may be longer than a page, and a page of entries that are not is within its bytes.
#[test]
fn pages_have_bounds() {
    let items = |sizes: &[usize]| -> Arc<[Item]> {
        let item = |(n, size): (usize, &usize)| {
            let name = format!("t{n}");
            let raw = json!({"name": name, "description": "x".repeat(*size)});
            Item { name, raw: serde_json::value::to_raw_value(&raw).unwrap().into() }
        };
        sizes.iter().enumerate().map(item).collect()
    };
    let list = [ServerItems { server: "a".into(), items: items(&[2 << 20, 600 << 10, 600 << 10, 10]) }];
    let catalogue = Catalogue::new(&list, Prefix::OnConflict);
    let mut pages = Vec::new();
    let mut after: Option<String> = None;
    loop {
        let page = json(&merged_page(ListKind::Tools, &catalogue, after.as_deref(), false));
        pages.push(page["tools"].as_array().unwrap().len());
        match page["nextCursor"].as_str() {
            Some(cursor) => after = Some(cursor.to_owned()),
            None => break,
        }
    }
    assert_eq!(pages, [1, 1, 2]);
    let modern = json(&merged_page(ListKind::Tools, &catalogue, Some("zzz"), true));
    assert_eq!(modern, json!({"tools": [], "resultType": "complete", "ttlMs": 0, "cacheScope": "private"}));
}

/// G42: in front of one server, lists, cursors and calls are its own; with `always` its names have the prefix.
#[test]
fn g42_one_server_with_and_without_a_prefix() {
    let mut plain = World::of(&["a"]).begun(&json!({}));
    let list = r#"{"jsonrpc":"2.0","id":"mcpvisor-2","method":"tools/list","params":{"cursor":"its own"}}"#;
    plain.client(&list.replace("\"mcpvisor-2\"", "1"));
    assert_eq!(only(&plain.wrote(0)), list);
    let mut server = Server::new("a", EraChoice::Legacy, legacy("2025-11-25", &everything()));
    server.has(ListKind::Tools, &["t"]);
    let mut always = World::with(vec![server], Prefix::Always).begun(&json!({}));
    assert_eq!(names(&mut always, "tools/list", "tools", "name"), ["a__t"]);
    always.client(r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a__t"}}"#);
    assert_eq!(always.one(0)["params"]["name"], "t");
    assert_eq!(
        error(only(
            &always.client(r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"t"}}"#)
        ))
        .0,
        -32602
    );
    // What has no name passes as before.
    always.client(r#"{"jsonrpc":"2.0","id":2,"method":"resources/list"}"#);
    assert_eq!(always.one(0)["method"], "resources/list");
}

/// G11: an errand that is under way when its client cancels, or is lost, answers nobody.
#[test]
fn g11_errands_end_with_their_calls() {
    let mut world = two(Prefix::OnConflict);
    world.slow = true;
    let list = |id: u32| format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/list"}}"#);
    for id in [1, 2, 3] {
        assert!(world.client(&list(id)).is_empty());
    }
    world.client(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#);
    let (kept, _) = world.waiting.remove(0);
    // The session's time is over.
    let ended = world.endpoint.refused(kept, Because::Settled);
    world.end(ended);
    assert_eq!(error(only(&world.heard())), (1013, "cancelled".to_owned()));
    assert!(!world.endpoint.waits(kept) && world.endpoint.errand_done(kept, "{}").is_none());
    let call = world.waiting[0].0;
    assert!(world.endpoint.waits(call));
    assert_eq!(world.lost(), 1);
    assert!(
        world.endpoint.errand_done(call, "{}").is_none() && world.endpoint.invalid(call, 1, "").is_none()
    );
    assert_eq!(world.permits(), (3, 1, 2));
}

/// A name that was looked up while its server died.
#[test]
fn a_call_whose_server_has_gone_meanwhile() {
    let mut world = two(Prefix::OnConflict);
    world.slow = true;
    world.client(r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}}"#);
    assert!(world.server_dies(0).is_empty());
    assert_eq!(error(only(&world.errands())).0, -32602);
    world.server_dies(1);
    world.slow = false;
    let none = world.client(r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#);
    assert_eq!(json(only(&none))["result"]["tools"], json!([]));
    assert_eq!(world.permits(), (2, 2, 0));
}

/// Of other notifications of the client it can't be told whose they are.
#[test]
fn notifications_of_the_client() {
    let mut world = two(Prefix::OnConflict);
    world.client(r#"{"jsonrpc":"2.0","method":"notifications/made/up"}"#);
    assert_eq!(world.endpoint.counters().dropped, 1);
    let changed = r#"{"jsonrpc":"2.0","method":"notifications/roots/list_changed","x":1.0}"#;
    world.client(changed);
    for server in 0..2 {
        assert_eq!(only(&world.wrote(server)), changed);
    }
    let told = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1.50}}"#;
    assert_eq!(only(&world.server(1, told)), told);
}
