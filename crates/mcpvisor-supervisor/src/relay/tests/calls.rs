use super::*;
use crate::api::FrameKind;
use crate::frames::MOST;

#[tokio::test]
async fn answers_come_in_any_order_and_as_they_are() {
    let (connection, mut server) = ready().await;
    let (slow, quick) = (spawn_call(&connection, "slow"), spawn_call(&connection, "quick"));
    let (first, second) = (server.next().await, server.next().await);
    let (slow_id, quick_id) = if first["params"]["name"] == "slow" {
        (&first["id"], &second["id"])
    } else {
        (&second["id"], &first["id"])
    };
    server
        .write(
            format!("{{\"jsonrpc\":\"2.0\",\"id\":{quick_id},\"result\":{{\"b\":0.70,\"a\":1}}}}\r\n")
                .as_bytes(),
        )
        .await;
    assert_eq!(text(&soon(quick).await.unwrap()), r#"{"b":0.70,"a":1}"#);
    assert_eq!(connection.stats().in_flight, 1);
    server.say(&json!({"jsonrpc":"2.0","id":slow_id,"error":{"code":-5,"message":"m"}})).await;
    assert_eq!(text(&soon(slow).await.unwrap()), r#"error {"code":-5,"message":"m"}"#);
    connection.end();
}

#[tokio::test]
async fn arguments_are_passed_as_they_are() {
    let (connection, mut server) = ready().await;
    let arguments = RawValue::from_string("{\n\"n\": 1.10 }".to_owned()).unwrap();
    let mut arguments = Some(arguments);
    let call = connection.call_tool(OWN, "t", &mut arguments, None);
    let serve = async {
        let line = server.line().await.unwrap();
        assert!(line.contains("\"arguments\":{ \"n\": 1.10 }"), "{line}");
        let message: Value = serde_json::from_str(&line).unwrap();
        server.answer(&message["id"], json!("ok")).await;
    };
    let (outcome, ()) = soon(async { tokio::join!(call, serve) }).await;
    assert_eq!(text(&outcome), "\"ok\"");
    connection.end();
}

#[tokio::test]
async fn what_passes_is_noted() {
    let (connection, mut server) = ready().await;
    let call = spawn_call(&connection, "t");
    let id = server.expect("tools/call").await;
    server.write(b"Listening...\n").await;
    server.say(&json!({"jsonrpc":"2.0","id":0,"method":"roots/list"})).await;
    server.next().await;
    server.answer(&id, json!("ok")).await;
    assert_eq!(text(&soon(call).await.unwrap()), "\"ok\"");
    let frames = connection.shared.frames.last(MOST);
    let told: Vec<_> = frames
        .iter()
        .map(|frame| (frame.to_server, frame.kind, frame.method.as_deref(), frame.latency.is_some()))
        .collect();
    assert_eq!(
        told,
        [
            (true, FrameKind::Request, Some("initialize"), false),
            (false, FrameKind::Response, Some("initialize"), true),
            (true, FrameKind::Notification, Some("notifications/initialized"), false),
            (true, FrameKind::Request, Some("tools/call"), false),
            (false, FrameKind::Noise, None, false),
            (false, FrameKind::Request, Some("roots/list"), false),
            (true, FrameKind::Response, Some("roots/list"), true),
            (false, FrameKind::Response, Some("tools/call"), true),
        ]
    );
    connection.end();
}

#[tokio::test]
async fn a_dropped_call_is_cancelled_at_the_server_and_its_late_answer_swallowed() {
    let (connection, mut server) = ready().await;
    let call = spawn_call(&connection, "t");
    let id = server.expect("tools/call").await;
    call.abort();
    let cancelled = server.next().await;
    assert_eq!(cancelled["method"], "notifications/cancelled");
    assert_eq!(cancelled["params"]["requestId"], id);
    assert_eq!(connection.stats().in_flight, 0);
    server.answer(&id, json!("late")).await;
    until(|| connection.stats().passed_over.late == 1).await;
    let next = spawn_call(&connection, "t");
    let next_id = server.expect("tools/call").await;
    assert_ne!(next_id, id);
    server.answer(&next_id, json!("mine")).await;
    assert_eq!(text(&soon(next).await.unwrap()), "\"mine\"");
    connection.end();
}

/// Scenario F, 15: a server is never left waiting for an answer of ours.
#[tokio::test]
async fn a_servers_requests_are_answered_at_once() {
    let (connection, mut server) = ready().await;
    for method in ["ping", "roots/list", "sampling/createMessage", "elicitation/create", "made/up"] {
        server.say(&json!({"jsonrpc":"2.0","id":0,"method":method})).await;
        let answer = server.next().await;
        assert_eq!(answer["id"], 0);
        match method {
            "ping" => assert_eq!(answer["result"], json!({})),
            _ => assert_eq!(answer["error"]["code"], -32601),
        }
    }
    connection.end();
}

/// G30: an over-long line fails its request, and the stream goes on.
#[tokio::test]
async fn an_over_long_answer_fails_its_call_alone() {
    let (connection, mut server) =
        ready_with(ConnectionOptions { max_line: 10_000, ..Default::default() }).await;
    let (one, other) = (spawn_call(&connection, "one"), spawn_call(&connection, "other"));
    let (first, second) = (server.next().await, server.next().await);
    let (one_id, other_id) = if first["params"]["name"] == "one" {
        (&first["id"], &second["id"])
    } else {
        (&second["id"], &first["id"])
    };
    server.answer(one_id, json!("x".repeat(1 << 20))).await;
    server.answer(other_id, json!("fits")).await;
    let outcome = soon(one).await.unwrap();
    assert!(
        matches!(outcome, Err(CallError::TooLong { bytes, cap: 10_000 }) if bytes > 1 << 20),
        "{outcome:?}"
    );
    assert_eq!(text(&soon(other).await.unwrap()), "\"fits\"");
    assert_eq!(connection.stats().passed_over.too_long, 1);
    connection.end();
}

#[tokio::test]
async fn a_big_answer_comes_whole() {
    let (connection, mut server) = ready().await;
    let call = spawn_call(&connection, "big");
    let id = server.expect("tools/call").await;
    let big = "é€😀x".repeat(400_000);
    server.answer(&id, json!(big)).await;
    let answer: String = serde_json::from_str(soon(call).await.unwrap().unwrap().get()).unwrap();
    assert!(answer == big);
    connection.end();
}

/// Scenario F, 20 and 21: frames are cut by newlines and not by reads.
#[tokio::test]
async fn tiny_and_merged_writes() {
    let (connection, mut server) = ready().await;
    let (first, second) = (spawn_call(&connection, "t"), spawn_call(&connection, "t"));
    let ids = [server.expect("tools/call").await, server.expect("tools/call").await];
    let line = format!("{}\n", json!({"jsonrpc":"2.0","id":ids[0],"result":"é€😀"}));
    for byte in line.as_bytes() {
        server.write(&[*byte]).await;
        tokio::task::yield_now().await;
    }
    let note = json!({"jsonrpc":"2.0","method":"notifications/message","params":{}}).to_string();
    let (half, rest) = note.split_at(20);
    let merged = format!("{note}\n{}\n{half}", json!({"jsonrpc":"2.0","id":ids[1],"result":"é€😀"}));
    server.write(merged.as_bytes()).await;
    for call in [first, second] {
        assert_eq!(text(&soon(call).await.unwrap()), "\"é€😀\"");
    }
    server.write(format!("{rest}\n").as_bytes()).await;
    until(|| connection.stats().passed_over.notifications == 2).await;
    assert_eq!(connection.stats().passed_over.noise, 0);
    connection.end();
}

#[tokio::test]
async fn the_calls_that_wait_are_bounded() {
    let (connection, mut server) = ready_with(ConnectionOptions {
        calls: CallLimits { max_in_flight: 2, max_queued: 0, ..usual() },
        ..Default::default()
    })
    .await;
    let calls = [spawn_call(&connection, "t"), spawn_call(&connection, "t")];
    let id = server.expect("tools/call").await;
    server.expect("tools/call").await;
    assert!(matches!(connection.call_tool(OWN, "t", &mut None, None).await, Err(CallError::QueueFull(_))));
    server.answer(&id, json!(1)).await;
    until(|| connection.stats().in_flight == 1).await;
    let third = spawn_call(&connection, "t");
    server.expect("tools/call").await;
    connection.end();
    let outcomes = [soon(third).await.unwrap(), soon(calls.into_iter().next().unwrap()).await.unwrap()];
    assert!(outcomes.iter().any(|outcome| matches!(outcome, Err(CallError::ServerExited))), "{outcomes:?}");
}
