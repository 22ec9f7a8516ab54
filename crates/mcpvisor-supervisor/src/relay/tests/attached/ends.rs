//! How calls, servers and clients end.
use super::*;

/// A client that ends its stream has its answers, within the drain; what servers ask has an error at once.
#[tokio::test]
async fn a_client_that_half_closes_has_its_answers() {
    let mut world = world(&["a"]).await;
    let (attached, mut client) = world.client(&json!({"roots": {}})).await;
    for id in 1..=3 {
        client.say(&call(id, "t")).await;
    }
    world.servers[0].say(&json!({"jsonrpc": "2.0", "id": "q", "method": "roots/list"})).await;
    assert_eq!(client.next().await["method"], "roots/list");
    let FakeServer { mut input, output, .. } = client;
    drop(output);
    let mut ids = Vec::new();
    let mut refused = false;
    while ids.len() < 3 || !refused {
        let message = world.servers[0].next().await;
        if message["method"] == "tools/call" {
            ids.push(message["id"].clone());
        } else {
            assert_eq!((&message["id"], kind(&message)), (&json!("q"), "cancelled"));
            refused = true;
        }
    }
    // Nobody else can come before it has gone.
    assert!(world.record.slot.client().is_some());
    for id in &ids {
        world.servers[0].answer(id, json!("late")).await;
    }
    let mut text = String::new();
    soon(tokio::io::AsyncReadExt::read_to_string(&mut input, &mut text)).await.unwrap();
    assert_eq!(text.matches("\"late\"").count(), 3, "{text}");
    soon(attached.ended()).await;
    assert!(attached.client_left_first() && world.record.slot.client().is_none());
    assert_eq!(world.record.gate.in_flight(), 0);
}

/// The drain's time is over: its call is cancelled, and it goes.
#[tokio::test(start_paused = true)]
async fn a_client_that_half_closes_waits_no_longer_than_a_drain() {
    let mut world = world_with(&["a"], Duration::from_secs(3)).await;
    let (attached, mut client) = world.client(&json!({})).await;
    client.say(&call(1, "t")).await;
    let id = world.servers[0].expect("tools/call").await;
    let FakeServer { mut input, output, .. } = client;
    let since = tokio::time::Instant::now();
    drop(output);
    soon(attached.ended()).await;
    // G11: it was admitted, so it has its answer.
    let mut line = String::new();
    soon(tokio::io::AsyncBufReadExt::read_line(&mut input, &mut line)).await.unwrap();
    let answer: Value = serde_json::from_str(&line).unwrap();
    assert_eq!((&answer["id"], &answer["error"]["data"]["kind"]), (&json!(1), &json!("cancelled")));
    assert!((3..=5).contains(&since.elapsed().as_secs()), "{:?}", since.elapsed());
    let cancelled = world.servers[0].next().await;
    assert_eq!(
        (&cancelled["method"], &cancelled["params"]["requestId"]),
        (&json!("notifications/cancelled"), &id)
    );
    assert_eq!(world.record.gate.in_flight(), 0);
}

/// G39: the calls of a lost client are cancelled at once, what servers ask has an error, subscriptions end.
#[tokio::test]
async fn g39_a_lost_client_leaves_nothing() {
    for how in ["told", "both ends", "the reading end"] {
        let mut world = world(&["a"]).await;
        let (attached, mut client) = world.client(&json!({"roots": {}})).await;
        client.say(&json!({"jsonrpc": "2.0", "id": 1, "method": "resources/subscribe", "params": {"uri": "file:///a"}})).await;
        let id = world.servers[0].expect("resources/subscribe").await;
        world.servers[0].answer(&id, json!({})).await;
        client.next().await;
        client.say(&call("c", "t")).await;
        let id = world.servers[0].expect("tools/call").await;
        world.servers[0].say(&json!({"jsonrpc": "2.0", "id": 7, "method": "roots/list"})).await;
        client.next().await;
        let mut kept = None;
        match how {
            "told" => attached.client_lost(),
            "both ends" => drop(client),
            _ => {
                let FakeServer { input, output, .. } = client;
                drop(input);
                kept = Some(output);
            }
        }
        let mut heard = Vec::new();
        for _ in 0..3 {
            heard.push(world.servers[0].next().await);
        }
        let has = |what: &dyn Fn(&Value) -> bool| heard.iter().any(what);
        assert!(
            has(&|m| m["method"] == "notifications/cancelled" && m["params"]["requestId"] == id),
            "{how}: {heard:?}"
        );
        assert!(has(&|m| m["id"] == json!(7) && kind(m) == "cancelled"), "{how}: {heard:?}");
        assert!(
            has(&|m| m["method"] == "resources/unsubscribe" && m["params"]["uri"] == "file:///a"),
            "{how}: {heard:?}"
        );
        soon(attached.ended()).await;
        world.has_no_client().await;
        assert_eq!(world.record.gate.in_flight(), 0);
        drop(kept);
        // A late answer is swallowed, and not the next client's.
        world.servers[0].answer(&id, json!("late")).await;
        let (_attached, mut next) = world.client(&json!({})).await;
        next.say(&json!({"jsonrpc": "2.0", "id": "p", "method": "ping"})).await;
        assert_eq!(next.next().await["id"], "p");
    }
}

/// A server that ends: its calls have one error each, what it asked is given up, the other goes on; when it runs again it is told
/// what the client had set, and the client that lists may be others.
#[tokio::test]
async fn g11_a_server_that_ends_and_runs_again() {
    let mut world = world(&["a", "b"]).await;
    let (_attached, mut client) = world.client(&json!({"roots": {}})).await;
    client.say(&json!({"jsonrpc": "2.0", "id": "l", "method": "tools/list"})).await;
    list_tools(&mut world.servers[0], &["x"]).await;
    list_tools(&mut world.servers[1], &["y"]).await;
    client.next().await;
    client.say(&json!({"jsonrpc": "2.0", "id": "level", "method": "logging/setLevel", "params": {"level": "debug"}})).await;
    for server in &mut world.servers {
        let id = server.expect("logging/setLevel").await;
        server.answer(&id, json!({})).await;
    }
    client.next().await;
    for (id, name) in [(1, "x"), (2, "y"), (3, "x")] {
        client.say(&call(id, name)).await;
    }
    for _ in 0..2 {
        world.servers[0].expect("tools/call").await;
    }
    let other = world.servers[1].expect("tools/call").await;
    world.servers[0].say(&json!({"jsonrpc": "2.0", "id": 9, "method": "roots/list"})).await;
    let asked = client.next().await;
    // Its last words come before its end.
    world.servers[0]
        .say(&json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": "last words"}}))
        .await;
    end(&world.record, 0);
    let mut heard = Vec::new();
    for _ in 0..4 {
        heard.push(client.next().await);
    }
    assert_eq!(heard[0]["params"]["data"], "last words");
    let mut failed: Vec<u64> = heard
        .iter()
        .filter(|m| !m["error"].is_null())
        .map(|m| {
            assert_eq!(kind(m), "server_exited");
            m["id"].as_u64().unwrap()
        })
        .collect();
    failed.sort_unstable();
    assert_eq!(failed, [1, 3]);
    let given_up =
        |m: &Value| m["method"] == "notifications/cancelled" && m["params"]["requestId"] == asked["id"];
    assert!(heard.iter().any(given_up), "{heard:?}");
    world.servers[1].answer(&other, json!("still here")).await;
    assert_eq!(client.next().await["result"], "still here");
    client.say(&call(4, "x")).await;
    assert_eq!(kind(&client.next().await), "server_exited", "the name is its own while it does not run");
    until(|| world.record.gate.in_flight() == 0).await;
    let mut again = start(&world.record, 0).await;
    assert_eq!(again.next().await["params"]["level"], "debug");
    for list in ["tools", "prompts", "resources"] {
        assert_eq!(client.next().await["method"], format!("notifications/{list}/list_changed"));
    }
    client.say(&call(5, "new")).await;
    list_tools(&mut again, &["new"]).await;
    let id = again.expect("tools/call").await;
    again.answer(&id, json!("again")).await;
    assert_eq!(client.next().await["result"], "again");
}

/// G11, G19: at the end of the drain each call has one answer that says why, an errand too; what servers ask has one as well.
#[tokio::test]
async fn g11_g19_what_is_pending_at_the_settlement() {
    let mut world = world(&["a", "b"]).await;
    let (attached, mut client) = world.client(&json!({"roots": {}})).await;
    client.say(&json!({"jsonrpc": "2.0", "id": "l", "method": "tools/list"})).await;
    list_tools(&mut world.servers[0], &["x"]).await;
    list_tools(&mut world.servers[1], &["y"]).await;
    client.next().await;
    client.say(&call("in flight", "x")).await;
    let id = world.servers[0].expect("tools/call").await;
    // Lists that are not there yet.
    client.say(&json!({"jsonrpc": "2.0", "id": "errand", "method": "resources/list"})).await;
    client.say(&json!({"jsonrpc": "2.0", "id": "found", "method": "resources/read", "params": {"uri": "file:///a"}})).await;
    client.say(&json!({"jsonrpc": "2.0", "id": "level", "method": "logging/setLevel", "params": {"level": "debug"}})).await;
    world.servers[0].say(&json!({"jsonrpc": "2.0", "id": 7, "method": "roots/list"})).await;
    let asked = client.next().await;
    assert_eq!(asked["method"], "roots/list");
    until(|| world.record.gate.in_flight() == 4).await;
    settle(&world.record);
    let cancelled = client.next().await;
    assert_eq!(
        (&cancelled["method"], &cancelled["params"]["requestId"]),
        (&json!("notifications/cancelled"), &asked["id"])
    );
    let mut ids = Vec::new();
    for _ in 0..4 {
        let answer = client.next().await;
        assert_eq!(kind(&answer), "cancelled", "{answer}");
        ids.push(answer["id"].as_str().unwrap().to_owned());
    }
    ids.sort();
    assert_eq!(ids, ["errand", "found", "in flight", "level"]);
    assert_eq!(world.record.gate.in_flight(), 0);
    client.say(&call("late", "x")).await;
    assert_eq!(kind(&client.next().await), "session_closing");
    let mut heard = Vec::new();
    while !(heard.iter().any(|m: &Value| m["id"] == json!(7) && kind(m) == "session_closing")
        && heard
            .iter()
            .any(|m: &Value| m["method"] == "notifications/cancelled" && m["params"]["requestId"] == id))
    {
        heard.push(world.servers[0].next().await);
    }
    // What a server asks now has its answer at once.
    world.servers[0].say(&json!({"jsonrpc": "2.0", "id": 8, "method": "roots/list"})).await;
    let answered = |m: &Value| m["id"] == json!(8) && kind(m) == "session_closing";
    loop {
        if answered(&world.servers[0].next().await) {
            break;
        }
    }
    world.record.slot.session_over();
    assert_eq!(client.line().await, None, "then its stream ends");
    soon(attached.ended()).await;
    assert!(!attached.client_left_first(), "the session was first");
}

/// An errand that was admitted just before the settlement, and begins after it, is no empty list.
#[tokio::test]
async fn g11_an_errand_of_a_settled_session_is_no_empty_list() {
    let world = world(&["a", "b"]).await;
    let (_attached, mut client) = world.client(&json!({})).await;
    // The connections alone: as for a line that was read before the gate was closed.
    for server in world.record.servers().iter() {
        server.any_connection().unwrap().settle("the session is being closed");
    }
    for line in [
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}),
        call(1, "x"),
        json!({"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": {"uri": "x"}}),
        json!({"jsonrpc": "2.0", "id": 1, "method": "logging/setLevel", "params": {"level": "debug"}}),
    ] {
        client.say(&line).await;
        let answer = client.next().await;
        assert_eq!(kind(&answer), "cancelled", "{line}: {answer}");
    }
    until(|| world.record.gate.in_flight() == 0).await;
}

/// A server whose queue is full is told at least that there is an answer that it can't have.
#[tokio::test]
async fn an_answer_for_which_there_is_no_room() {
    let mut world = world(&["a"]).await;
    let (_attached, mut client) = world.client(&json!({"roots": {}})).await;
    world.servers[0].say(&json!({"jsonrpc": "2.0", "id": "q", "method": "roots/list"})).await;
    let asked = client.next().await;
    // It reads nothing: more than a pipe holds is queued.
    let filler =
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "x".repeat(3 << 20)}});
    client.say(&filler).await;
    client.say(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": "y".repeat(3 << 20)})).await;
    client.say(&json!({"jsonrpc": "2.0", "id": 2, "method": "ping"})).await;
    assert_eq!(client.next().await["id"], 2);
    assert_eq!(world.servers[0].next().await["method"], "tools/call");
    let answer = world.servers[0].next().await;
    assert_eq!((&answer["id"], kind(&answer)), (&json!("q"), "overloaded"));
}

/// G31: a call that is cancelled before it was written never reaches the server.
#[tokio::test]
async fn g31_a_call_that_was_never_written_is_taken_back() {
    let mut world = world(&["a"]).await;
    let (_attached, mut client) = world.client(&json!({})).await;
    let both = format!(
        "{}\n{}\n{}\n",
        call(1, "taken back"),
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}),
        call(2, "written")
    );
    client.write(both.as_bytes()).await;
    assert_eq!(world.servers[0].next().await["params"]["name"], "written");
    assert_eq!(world.record.gate.in_flight(), 1);
}
