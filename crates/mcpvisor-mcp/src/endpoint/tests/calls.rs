//! In front of one server.
use super::*;

fn begun() -> World {
    World::of(&["a"]).begun(&json!({}))
}

/// G11: half a surrogate pair is JSON, and an id that no text can hold.
#[test]
fn g11_an_id_that_is_no_text_has_its_answer() {
    let mut world = begun();
    assert!(
        world
            .client(r#"{"jsonrpc":"2.0","id":"\ud800","method":"tools/call","params":{"name":"t"}}"#)
            .is_empty()
    );
    assert_eq!((world.wrote(0).len(), world.endpoint.in_flight()), (1, 1));
    let again = world.client(r#"{"jsonrpc":"2.0","id":"\ud800","method":"tools/list"}"#);
    assert!(again[0].contains("is in flight"), "{again:?}");
}

/// G42: value, type and text of ids and progress tokens come back, and all else passes as it is.
#[test]
fn g42_ids_keep_their_type_and_their_text() {
    let ids = [
        "1",
        "\"1\"",
        "1.0",
        "1e0",
        "-0",
        "123456789012345678901234567890",
        r#""\u0041\"""#,
        "\"A\\\"x\"",
        "\"\"",
        r#""mcpvisor-2""#,
    ];
    let mut world = begun();
    let mut asked = Vec::new();
    for id in ids {
        let line = format!(
            r#"{{ "method":"tools/call","id" : {id},"params":{{"name":"t","arguments":{{"z":0.70,"a":1e2,"id":{id}}},"_meta":{{"progressToken":{id},"odd":[]}}}},"jsonrpc":"2.0", "more":null}}"#
        );
        assert!(world.client(&line).is_empty(), "{id}");
        let wrote = world.wrote(0);
        let ours = format!("\"{}\"", json(only(&wrote))["id"].as_str().unwrap());
        let expected = line.replacen(&format!("\"id\" : {id}"), &format!("\"id\" : {ours}"), 1).replacen(
            &format!("\"progressToken\":{id}"),
            &format!("\"progressToken\":{ours}"),
            1,
        );
        assert_eq!(wrote[0], expected);
        asked.push((id, ours));
    }
    assert_eq!(world.endpoint.in_flight(), ids.len());
    for (id, ours) in asked.iter().rev() {
        let progress = format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progress":0.10,"progressToken":{ours}}}}}"#
        );
        assert_eq!(only(&world.server(0, &progress)), progress.replace(ours, id));
        let answer = format!(r#"{{"result":{{"n":1.00,"id":{ours}}},"jsonrpc":"2.0","id":{ours}}}"#);
        let expected = format!(r#"{{"result":{{"n":1.00,"id":{ours}}},"jsonrpc":"2.0","id":{id}}}"#);
        assert_eq!(only(&world.server(0, &answer)), expected);
        // Progress of a call that is over is nobody's.
        assert!(world.server(0, &progress).is_empty());
    }
    assert_eq!(world.permits(), (10, 10, 0));
}

#[test]
fn an_id_that_is_in_flight_is_refused() {
    let mut world = begun();
    let call = |id: &str| format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"x/y"}}"#);
    assert!(world.client(&call("1")).is_empty());
    assert_eq!(error(only(&world.client(&call("1")))), (-32600, String::new()));
    // Others that look like it are others.
    for other in ["\"1\"", "1.0", "1e0"] {
        assert!(world.client(&call(other)).is_empty(), "{other}");
    }
    assert_eq!(world.wrote(0).len(), 4);
    world.server(0, r#"{"jsonrpc":"2.0","id":"mcpvisor-2","result":{}}"#);
    assert!(world.client(&call("1")).is_empty(), "it is over");
    assert_eq!(world.wrote(0).len(), 1);
    // The same string in another text is the same id.
    assert!(world.client(&call(r#""A""#)).is_empty());
    assert_eq!(error(only(&world.client(&call(r#""\u0041""#)))).0, -32600);
}

/// G43: what has to be kept of a request is short.
#[test]
fn g43_what_is_kept_of_a_request_is_short() {
    let mut world = begun();
    let long = "x".repeat(LONGEST_ID);
    let id = world.client(&format!(r#"{{"jsonrpc":"2.0","id":"{long}","method":"x"}}"#));
    assert_eq!(error(only(&id)).0, -32600);
    assert!(id[0].len() < 300 && json(&id[0])["id"].is_null());
    let token = world.client(&format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"x","params":{{"_meta":{{"progressToken":"{long}"}}}}}}"#
    ));
    assert_eq!(error(only(&token)).0, -32602);
    assert!(world.wrote(0).is_empty());
    // A subscription to what is very long passes, and is not made again.
    let uri = "x".repeat(LONGEST_URI + 1);
    assert!(
        world
            .client(&format!(
                r#"{{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{{"uri":"{uri}"}}}}"#
            ))
            .is_empty()
    );
    let id = world.one(0)["id"].clone();
    world.server(0, &format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#));
    world.server_dies(0);
    world.server_runs_again(0);
    assert!(world.wrote(0).is_empty());
}

#[test]
fn a_servers_error_and_an_answer_without_an_id() {
    let mut world = begun();
    world.client(r#"{"jsonrpc":"2.0","id":1.0,"method":"tools/call","params":{"name":"t"}}"#);
    let error = r#"{"jsonrpc":"2.0","error":{"data":{"x":1.0},"code":-5,"message":"m"},"id":"mcpvisor-2"}"#;
    assert_eq!(only(&world.server(0, error)), error.replace("\"mcpvisor-2\"", "1.0"));
    world.client(r#"{"jsonrpc":"2.0","id":2.0,"method":"tools/call","params":{"name":"t"}}"#);
    let bare = world.server(0, r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"what?"}}"#);
    assert_eq!(only(&bare), r#"{"jsonrpc":"2.0","id":2.0,"error":{"code":-32700,"message":"what?"}}"#);
    assert_eq!(world.permits(), (2, 2, 0));
    // An answer to nothing is nobody's.
    assert!(world.server(0, r#"{"jsonrpc":"2.0","id":"mcpvisor-3","result":{}}"#).is_empty());
    assert!(world.server(0, r#"{"jsonrpc":"2.0","id":2,"result":{}}"#).is_empty());
}

#[test]
fn an_answer_over_the_longest_line_is_an_error_of_its_call() {
    let mut world = begun();
    world.client(r#"{"jsonrpc":"2.0","id":"q","method":"tools/call","params":{"name":"t"}}"#);
    let mut framer = Framer::new(100);
    let line = format!("{{\"jsonrpc\":\"2.0\",\"id\":\"mcpvisor-2\",\"result\":\"{}\"}}\n", "x".repeat(500));
    let mut input = line.as_bytes();
    let Some(Frame::TooLong(over)) = framer.next_frame(&mut input) else { panic!("not too long") };
    for event in world.servers[0].peer.handle_too_long(&over, 100) {
        let PeerEvent::Answered { token, answer } = event else { panic!("{event:?}") };
        let ended = world.endpoint.answered(token, 0, &answer);
        world.end(ended);
    }
    let heard = world.heard();
    assert_eq!(error(only(&heard)), (1018, "server_error".to_owned()));
    assert_eq!(json(&heard[0])["id"], "q");
}

#[test]
fn a_call_that_the_client_cancels_has_no_answer() {
    let mut world = begun();
    world.client(r#"{"jsonrpc":"2.0","id":1.0,"method":"tools/call","params":{"name":"t"}}"#);
    world.wrote(0);
    // Another id is another call's.
    assert!(
        world
            .client(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#)
            .is_empty()
    );
    assert!(world.wrote(0).is_empty());
    let words = r#"{"method":"notifications/cancelled","params":{"reason":"ünd so","requestId": 1.0, "x":1.50},"jsonrpc":"2.0"}"#;
    assert!(world.client(words).is_empty());
    assert_eq!(only(&world.wrote(0)), words.replace("1.0,", "\"mcpvisor-2\","));
    assert!(world.server(0, r#"{"jsonrpc":"2.0","id":"mcpvisor-2","result":{}}"#).is_empty());
    assert_eq!((world.permits(), world.endpoint.in_flight()), ((1, 0, 1), 0));
    // Again, and of nothing: no harm.
    assert!(world.client(words).is_empty());
    for odd in [r#","params":{}"#, "", r#","params":{"requestId":null}"#, r#","params":[]"#] {
        assert!(
            world
                .client(&format!(r#"{{"jsonrpc":"2.0","method":"notifications/cancelled"{odd}}}"#))
                .is_empty()
        );
    }
    assert!(world.wrote(0).is_empty());
    // The id is free again.
    assert!(
        world.client(r#"{"jsonrpc":"2.0","id":1.0,"method":"tools/call","params":{"name":"t"}}"#).is_empty()
    );
    assert_eq!(world.one(0)["id"], "mcpvisor-3");
}

/// G11: behind the boundary nothing is admitted; what is in flight has its answer or a stated reason.
#[test]
fn g11_a_session_that_drains() {
    let mut world = begun();
    for id in [1, 2] {
        world.client(&format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"t"}}}}"#
        ));
    }
    world.closed = true;
    let refused = world.client(r#"{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"t"}}"#);
    assert_eq!(error(only(&refused)), (1004, "session_closing".to_owned()));
    assert_eq!(world.wrote(0).len(), 2);
    assert!(
        only(&world.server(0, r#"{"jsonrpc":"2.0","id":"mcpvisor-2","result":{}}"#)).contains("\"id\":1")
    );
    let settled = world.settle();
    assert_eq!(error(only(&settled)), (1013, "cancelled".to_owned()));
    assert_eq!(json(&settled[0])["id"], 2);
    assert_eq!(world.one(0)["method"], "notifications/cancelled");
    assert_eq!(world.permits(), (2, 2, 0));
}

#[test]
fn a_server_that_ends_and_runs_again() {
    let mut world = begun();
    for (id, method, params) in [
        (1, "logging/setLevel", r#"{"level":"debug"}"#),
        (2, "resources/subscribe", r#"{"uri":"file:///a"}"#),
        (3, "resources/subscribe", r#"{"uri":"file:///b"}"#),
        (4, "resources/unsubscribe", r#"{"uri":"file:///b"}"#),
        (5, "resources/subscribe", r#"{"uri":"refused"}"#),
    ] {
        world.client(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#));
        let ours = world.one(0)["id"].clone();
        let outcome = if id == 5 { r#""error":{"code":-1,"message":""}"# } else { r#""result":{}"# };
        world.server(0, &format!(r#"{{"jsonrpc":"2.0","id":{ours},{outcome}}}"#));
    }
    world.client(r#"{"jsonrpc":"2.0","id":"in flight","method":"tools/call","params":{"name":"t"}}"#);
    world.wrote(0);
    let ended = world.server_dies(0);
    assert_eq!(error(only(&ended)), (1015, "server_exited".to_owned()));
    let meanwhile = world.client(r#"{"jsonrpc":"2.0","id":9,"method":"tools/list"}"#);
    assert_eq!(error(only(&meanwhile)), (1015, "server_exited".to_owned()));
    assert_eq!(
        world.server_runs_again(0),
        ["tools", "prompts", "resources"]
            .map(|list| format!(r#"{{"jsonrpc":"2.0","method":"notifications/{list}/list_changed"}}"#))
    );
    assert_eq!(
        world.wrote(0),
        ["own logging/setLevel {\"level\":\"debug\"}", "own resources/subscribe {\"uri\":\"file:///a\"}"]
    );
    // A client that is lost leaves nothing behind.
    assert_eq!(world.lost(), 0);
    assert_eq!(world.wrote(0), ["own resources/unsubscribe {\"uri\":\"file:///a\"}"]);
    assert_eq!(world.permits(), (6, 6, 0));
}

#[test]
fn a_lost_client() {
    let mut world = World::of(&["a"]).begun(&json!({"roots": {}}));
    for id in [1, 2] {
        world.client(&format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"t"}}}}"#
        ));
    }
    world.wrote(0);
    assert_eq!(world.server(0, r#"{"jsonrpc":"2.0","id":7,"method":"roots/list"}"#).len(), 1);
    assert_eq!(world.lost(), 2);
    let wrote = world.wrote(0);
    let cancelled = |id: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":"{id}","reason":"given up"}}}}"#
        )
    };
    // The newest first: what waits for its turn is taken back before a call in flight gives it one.
    assert_eq!(wrote[..2], [cancelled("mcpvisor-3"), cancelled("mcpvisor-2")]);
    assert_eq!((json(&wrote[2])["id"].clone(), error(&wrote[2])), (json!(7), (1013, "cancelled".to_owned())));
    assert_eq!(world.permits(), (2, 0, 2));
    // Nothing is said any more, whatever servers do.
    assert!(world.server(0, r#"{"jsonrpc":"2.0","id":"mcpvisor-2","result":{}}"#).is_empty());
    assert!(world.server(0, r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#).is_empty());
    assert!(world.server(0, r#"{"jsonrpc":"2.0","id":8,"method":"roots/list"}"#).is_empty());
    assert_eq!(world.one(0)["error"]["code"], -32601);
    assert!(world.server_dies(0).is_empty() && world.server_runs_again(0).is_empty());
    assert!(world.wrote(0).is_empty());
}

#[test]
fn bounds() {
    let mut world = begun();
    world.endpoint.most_calls = 2;
    let call = |id: u32| format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"x"}}"#);
    assert!(world.client(&call(1)).is_empty() && world.client(&call(2)).is_empty());
    assert_eq!(error(only(&world.client(&call(3)))), (1009, "overloaded".to_owned()));
    assert_eq!((world.wrote(0).len(), world.permits()), (2, (2, 0, 0)));
    world.server(0, r#"{"jsonrpc":"2.0","id":"mcpvisor-3","result":{}}"#);
    assert!(world.client(&call(3)).is_empty());
}

#[test]
fn lines_that_are_too_long_are_errors_of_their_requests() {
    let mut world = World::of(&["a"]).begun(&json!({"roots": {}}));
    let long = "x".repeat(6000);
    let said = [
        format!(r#"{{"jsonrpc":"2.0","id":1.0,"method":"x","params":"{long}"}}"#),
        format!(r#"{{"method":"x","params":"{long}","jsonrpc":"2.0","id":1.0}}"#),
        // The method stands behind what was thrown away.
        format!(r#"{{"jsonrpc":"2.0","id":1.0,"params":"{long}","method":"x"}}"#),
    ];
    for line in said {
        let answer = world.client_too_long(&line);
        assert_eq!(error(only(&answer)).0, -32600);
        assert!(answer[0].contains("\"id\":1.0"), "{answer:?}");
    }
    // A notification has no answer; what is no object has one without an id.
    assert!(
        world.client_too_long(&format!(r#"{{"jsonrpc":"2.0","method":"x","params":"{long}"}}"#)).is_empty()
    );
    assert!(only(&world.client_too_long(&format!("[{long}]"))).contains("\"id\":null"));
    assert!(world.wrote(0).is_empty());
    // An answer to a server's request settles it.
    let asked = world.server(0, r#"{"jsonrpc":"2.0","id":"s","method":"roots/list"}"#);
    let id = json(only(&asked))["id"].clone();
    assert!(world.client_too_long(&format!(r#"{{"jsonrpc":"2.0","id":{id},"result":"{long}"}}"#)).is_empty());
    let wrote = world.wrote(0);
    assert_eq!((json(only(&wrote))["id"].clone(), error(&wrote[0]).0), (json!("s"), -32600));
}

#[test]
fn noise_is_answered_and_counted() {
    let mut world = begun();
    for (line, code) in [
        ("what", -32700),
        ("{", -32700),
        ("7", -32700),
        (r#"{"id":1,"method":"x"}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":null,"method":"x"}"#, -32600),
    ] {
        let answer = world.client(line);
        assert_eq!(error(only(&answer)).0, code, "{line}");
        assert!(json(&answer[0])["id"].is_null());
    }
    // Answers to nothing.
    world.client(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
    world.client(r#"{"jsonrpc":"2.0","id":"mcpvisor-99","result":{}}"#);
    assert_eq!(world.endpoint.counters(), Counters { noise: 5, unmatched: 2, dropped: 0 });
    assert!(world.wrote(0).is_empty());
}

/// G42: what is unknown passes, a notification as well as a request.
#[test]
fn g42_unknown_messages_pass() {
    let mut world = begun();
    let note = r#"{"params":{"n":1.0},"method":"notifications/made/up","jsonrpc":"2.0","x":[]}"#;
    world.client(note);
    assert_eq!(only(&world.wrote(0)), note);
    assert_eq!(only(&world.server(0, note)), note);
    // Parameters that are an array are the server's to refuse.
    world.client(r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":[1,{"progressToken":2}]}"#);
    assert_eq!(
        only(&world.wrote(0)),
        r#"{"jsonrpc":"2.0","id":"mcpvisor-2","method":"tools/call","params":[1,{"progressToken":2}]}"#
    );
}

/// Parameters with a member twice keep their progress token: the last counts, for where the call goes as well.
#[test]
fn a_member_twice_costs_no_progress() {
    let mut world = begun();
    let line = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","uri":1,"uri":2,"_meta":{"progressToken":"a","progressToken":"b"}}}"#;
    assert!(world.client(line).is_empty());
    let wrote = world.wrote(0);
    let ours = json(only(&wrote))["id"].as_str().unwrap().to_owned();
    assert!(only(&wrote).contains(&format!(r#""progressToken":"a","progressToken":"{ours}""#)), "{wrote:?}");
    let progress = format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progress":1,"progressToken":"{ours}"}}}}"#
    );
    assert_eq!(only(&world.server(0, &progress)), progress.replace(&ours, "b"));
}
