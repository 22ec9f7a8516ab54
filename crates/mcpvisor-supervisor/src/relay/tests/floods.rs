use super::*;

/// Scenario F, 13: notifications are read and counted as fast as they come, nothing of them is kept, and answers get through.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_notifications() {
    let (connection, mut server) = ready().await;
    let note = format!(
        "{}\n",
        json!({"jsonrpc":"2.0","method":"notifications/message","params":{"data":"x".repeat(80)}})
    );
    let flood = note.repeat(1000);
    let call = spawn_call(&connection, "t");
    let id = server.expect("tools/call").await;
    for _ in 0..50 {
        server.write(flood.as_bytes()).await;
    }
    server.answer(&id, json!("through")).await;
    for _ in 0..50 {
        server.write(flood.as_bytes()).await;
    }
    assert_eq!(text(&soon(call).await.unwrap()), "\"through\"");
    until(|| connection.stats().passed_over.notifications == 100_000).await;
    assert!(lock(&connection.shared.reader).buffered() <= 4096);
    connection.end();
}

/// Scenario F, 24, G39: a server that does not read is told apart by `Overloaded`, and nobody waits for it.
#[tokio::test]
async fn a_server_that_does_not_read_overloads_itself_alone() {
    let options = ConnectionOptions { max_queued_lines: 8, max_queued_bytes: 100_000, ..Default::default() };
    let (stuck, mut stuck_server) = ready_with(options).await;
    let (other, mut other_server) = ready().await;
    let argument = || RawValue::from_string(format!("\"{}\"", "x".repeat(20_000))).unwrap();
    let mut calls = Vec::new();
    // A pipe's worth is written, then the queue fills.
    soon(async {
        loop {
            let connection = stuck.clone();
            let call =
                tokio::spawn(
                    async move { connection.call_tool(OWN, "t", &mut Some(argument()), None).await },
                );
            tokio::task::yield_now().await;
            tokio::time::sleep(Duration::from_millis(1)).await;
            if call.is_finished() {
                assert!(matches!(call.await.unwrap(), Err(CallError::Overloaded)));
                break;
            }
            calls.push(call);
        }
    })
    .await;
    assert!(calls.len() >= 4 && calls.len() < 20, "{}", calls.len());
    assert_eq!(stuck.stats().in_flight, calls.len());

    let call = spawn_call(&other, "t");
    let id = other_server.expect("tools/call").await;
    other_server.answer(&id, json!(1)).await;
    soon(call).await.unwrap().unwrap();

    // It reads again: everything that was accepted arrives, once and in order.
    let mut numbers = Vec::new();
    for call in calls {
        let id = stuck_server.expect("tools/call").await;
        numbers.push(id.as_str().unwrap()["mcpvisor-".len()..].parse::<u64>().unwrap());
        stuck_server.answer(&id, json!(1)).await;
        soon(call).await.unwrap().unwrap();
    }
    assert!(numbers.is_sorted());
    stuck.end();
    other.end();
}

/// G31: a call that was given up before it was written leaves no trace, so that calls to a stopped server don't pile up.
#[tokio::test]
async fn a_call_given_up_before_it_was_written_is_taken_back() {
    let (connection, mut server) = ready().await;
    let big = RawValue::from_string(format!("\"{}\"", "x".repeat(1 << 20))).unwrap();
    let blocking = tokio::spawn({
        let connection = connection.clone();
        async move { connection.call_tool(OWN, "first", &mut Some(big), None).await }
    });
    until(|| connection.stats().in_flight == 1).await;
    for _ in 0..5000 {
        let mut none = None;
        tokio::select! {
            biased;
            outcome = connection.call_tool(OWN, "never", &mut none, None) => panic!("{outcome:?}"),
            () = std::future::ready(()) => {}
        }
    }
    assert_eq!((connection.stats().in_flight, connection.stats().unwritten_lines), (1, 0));
    let last = spawn_call(&connection, "last");
    let first = server.next().await;
    assert_eq!(first["params"]["name"], "first");
    let second = server.next().await;
    assert_eq!(second["params"]["name"], "last");
    server.answer(&first["id"], json!(1)).await;
    server.answer(&second["id"], json!(2)).await;
    assert_eq!(text(&soon(blocking).await.unwrap()), "1");
    assert_eq!(text(&soon(last).await.unwrap()), "2");
    connection.end();
}

/// A server that asks without end and reads nothing: the answers to it are bounded, and dropped ones counted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_to_a_server_that_does_not_read_are_bounded() {
    let (connection, mut server) =
        ready_with(ConnectionOptions { max_queued_lines: 8, ..Default::default() }).await;
    let requests = format!("{}\n", json!({"jsonrpc":"2.0","id":0,"method":"roots/list"})).repeat(1000);
    for _ in 0..20 {
        server.write(requests.as_bytes()).await;
    }
    until(|| connection.stats().passed_over.server_requests == 20_000).await;
    assert!(connection.stats().unwritten_lines > 10_000);
    connection.end();
}

/// Many calls at once through one connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_calls_at_once() {
    let calls = CallLimits { max_in_flight: 1000, ..usual() };
    let (connection, mut server) = ready_with(ConnectionOptions { calls, ..Default::default() }).await;
    let calls: Vec<_> = (0..1000)
        .map(|n| {
            let connection = connection.clone();
            let arguments = RawValue::from_string(n.to_string()).unwrap();
            tokio::spawn(async move { (n, connection.call_tool(OWN, "t", &mut Some(arguments), None).await) })
        })
        .collect();
    let mut messages = Vec::new();
    for _ in 0..1000 {
        messages.push(server.next().await);
    }
    for message in messages.iter().rev() {
        server.answer(&message["id"], message["params"]["arguments"].clone()).await;
    }
    for call in calls {
        let (n, outcome): (i32, Outcome) = soon(call).await.unwrap();
        assert_eq!(text(&outcome), n.to_string());
    }
    assert_eq!(connection.stats().in_flight, 0);
    connection.end();
}
