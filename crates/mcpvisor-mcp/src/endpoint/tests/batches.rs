//! Arrays of messages, which revision 2025-03-26 has and no other.
use super::*;

fn begun(protocol: &str) -> World {
    let server = Server::new("a", EraChoice::Legacy, legacy(protocol, &everything()));
    World::with(vec![server], Prefix::OnConflict).begun(&json!({"roots": {}}))
}

#[test]
fn where_it_was_not_negotiated_an_array_is_refused() {
    for protocol in ["2024-11-05", "2025-06-18", "2025-11-25"] {
        let mut world = begun(protocol);
        let answer = world.client(r#" [{"jsonrpc":"2.0","id":1,"method":"x"}]"#);
        assert_eq!(error(only(&answer)).0, -32600, "{protocol}");
        assert!(json(&answer[0])["id"].is_null() && world.wrote(0).is_empty());
    }
}

#[test]
fn a_batch_is_split_and_its_answers_gathered() {
    let mut world = begun("2025-03-26");
    let asked = world.server(0, r#"{"jsonrpc":"2.0","id":5,"method":"roots/list"}"#);
    let theirs = json(only(&asked))["id"].to_string();
    let batch = format!(
        r#"[ {{"jsonrpc":"2.0","id":1.0,"method":"x","params":{{"n":1.50}}}},
             {{"jsonrpc":"2.0","id":"1","method":"y"}}, {{"jsonrpc":"2.0","id":2,"method":"ping"}},
             {{"jsonrpc":"2.0","method":"notifications/z"}},{{"jsonrpc":"2.0","id":{theirs},"result":{{}}}},7,{{"jsonrpc":"2.0","id":1.0,"method":"again"}}]"#
    );
    assert!(world.client(&batch).is_empty());
    let wrote = world.wrote(0);
    assert_eq!(
        wrote,
        [
            r#"{"jsonrpc":"2.0","id":"mcpvisor-2","method":"x","params":{"n":1.50}}"#,
            r#"{"jsonrpc":"2.0","id":"mcpvisor-3","method":"y"}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/z"}"#,
            r#"{"jsonrpc":"2.0","id":5,"result":{}}"#,
        ]
    );
    assert!(world.server(0, r#"{"jsonrpc":"2.0","id":"mcpvisor-3","result":{"n":1.50}}"#).is_empty());
    let whole = world.server(0, r#"{"jsonrpc":"2.0","id":"mcpvisor-2","result":{}}"#);
    let answers = json(only(&whole));
    let mut ids: Vec<String> = answers
        .as_array()
        .unwrap()
        .iter()
        .map(|answer| format!("{} {}", answer["id"], answer["error"]["code"]))
        .collect();
    ids.sort();
    assert_eq!(ids, ["\"1\" null", "1.0 -32600", "1.0 null", "2 null", "null -32600"]);
    assert!(whole[0].contains(r#"{"jsonrpc":"2.0","id":"1","result":{"n":1.50}}"#));
    assert_eq!(world.permits(), (2, 2, 0));
}

#[test]
fn a_call_of_a_batch_may_be_cancelled_or_lose_its_server() {
    let mut world = begun("2025-03-26");
    let batch = r#"[{"jsonrpc":"2.0","id":1,"method":"x"},{"jsonrpc":"2.0","id":2,"method":"y"}]"#;
    let cancel = |id: u32| {
        format!(r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#)
    };
    world.client(batch);
    assert!(world.client(&cancel(1)).is_empty());
    assert_eq!(
        only(&world.server(0, r#"{"jsonrpc":"2.0","id":"mcpvisor-3","result":{}}"#)),
        r#"[{"jsonrpc":"2.0","id":2,"result":{}}]"#
    );
    // All of it cancelled: no answer at all.
    world.client(batch);
    assert!(world.client(&cancel(2)).is_empty() && world.client(&cancel(1)).is_empty());
    // The last one cancelled: what has come is said.
    world.client(batch);
    assert!(world.server(0, r#"{"jsonrpc":"2.0","id":"mcpvisor-6","result":{}}"#).is_empty());
    assert_eq!(only(&world.client(&cancel(2))), r#"[{"jsonrpc":"2.0","id":1,"result":{}}]"#);
    world.client(batch);
    let ended = world.server_dies(0);
    assert_eq!(json(only(&ended)).as_array().unwrap().len(), 2);
    assert!(world.endpoint.batches.is_empty() && world.endpoint.ids.is_empty());
}

#[test]
fn of_notifications_alone_there_is_no_answer_and_of_nothing_an_error() {
    let mut world = begun("2025-03-26");
    assert!(world.client(r#"[{"jsonrpc":"2.0","method":"notifications/x"}]"#).is_empty());
    assert_eq!(error(only(&world.client("[]"))).0, -32600);
    assert_eq!(error(only(&world.client("[1"))).0, -32700);
    let many = format!("[{}]", vec!["1"; MOST_IN_BATCH + 1].join(","));
    assert_eq!(error(only(&world.client(&many))).0, -32600);
    assert!(world.endpoint.batches.is_empty());
    // A batch of errors is a batch.
    assert_eq!(json(only(&world.client("[1,[]]"))).as_array().unwrap().len(), 2);
}

/// G43: what waits for the rest of its batch is bounded.
#[test]
fn g43_the_answers_of_a_batch_are_bounded() {
    let mut world = begun("2025-03-26");
    world.client(r#"[{"jsonrpc":"2.0","id":1,"method":"x"},{"jsonrpc":"2.0","id":2,"method":"y"},{"jsonrpc":"2.0","id":3,"method":"z"}]"#);
    let big = "x".repeat(MOST_OF_BATCH / 2);
    for id in [2, 3] {
        assert!(
            world
                .server(0, &format!(r#"{{"jsonrpc":"2.0","id":"mcpvisor-{id}","result":"{big}"}}"#))
                .is_empty()
        );
    }
    let whole = world.server(0, r#"{"jsonrpc":"2.0","id":"mcpvisor-4","result":{}}"#);
    let answers = json(only(&whole));
    assert_eq!(answers[1]["error"]["code"], 1018);
    assert!(answers[0]["result"].is_string() && answers[2]["result"].is_object());
}

/// An answer that is passed on from its head alone may be broken behind it: in an array that would be everybody's loss.
#[test]
fn a_broken_answer_breaks_no_batch() {
    let mut world = begun("2025-03-26");
    world.client(r#"[{"jsonrpc":"2.0","id":1,"method":"x"},{"jsonrpc":"2.0","id":2,"method":"y"}]"#);
    for (id, line) in [
        (2, r#"{"jsonrpc":"2.0","id":"mcpvisor-2","result":{"n":1.50}}"#),
        (3, r#"{"jsonrpc":"2.0","id":"mcpvisor-3","result":{]"#),
    ] {
        let call = world.endpoint.calls.iter().find(|(_, known)| known.raw_id.get() == (id - 1).to_string());
        let call = *call.expect("it waits").0;
        let raw_id = &line[line.find("\"mcpvisor-").unwrap()..][..12];
        let answer = crate::peer::Answer::Unread { line: line.as_bytes(), raw_id };
        let ended = world.endpoint.answered(call, 0, &answer);
        world.end(ended);
    }
    let heard = world.heard();
    let answers = json(only(&heard));
    assert!(heard[0].contains(r#"{"jsonrpc":"2.0","id":1,"result":{"n":1.50}}"#), "{heard:?}");
    assert_eq!((&answers[1]["id"], &answers[1]["error"]["code"]), (&json!(2), &json!(1018)));
}
