//! Clients that take nothing, or little (G39).
use super::*;
use tokio::time::Instant;

fn note(bytes: usize) -> Value {
    json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": "x".repeat(bytes)}})
}

/// Cut after so much virtual time, with a call in flight.
async fn cut_after(world: &World) -> Duration {
    let since = Instant::now();
    while world.record.slot.client().is_some() {
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(since.elapsed() < Duration::from_secs(600), "never cut");
    }
    since.elapsed()
}

#[tokio::test(start_paused = true)]
async fn g39_a_client_that_takes_nothing_is_cut_by_time() {
    let mut world = world(&["a"]).await;
    let (attached, mut client) = world.client(&json!({})).await;
    client.say(&call(1, "t")).await;
    let id = world.servers[0].expect("tools/call").await;
    // More than the pipe holds.
    world.servers[0].say(&note(200 << 10)).await;
    let took = cut_after(&world).await;
    assert!((55..65).contains(&took.as_secs()), "{took:?}");
    let cancelled = world.servers[0].next().await;
    assert_eq!(
        (&cancelled["method"], &cancelled["params"]["requestId"]),
        (&json!("notifications/cancelled"), &id)
    );
    soon(attached.ended()).await;
    assert!(!attached.client_left_first(), "the daemon was first");
    assert_eq!(world.record.gate.in_flight(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_takes_a_little_now_and_then_is_not_cut() {
    let mut world = world(&["a"]).await;
    let (_attached, mut client) = world.client(&json!({})).await;
    world.servers[0].say(&note(900 << 10)).await;
    let mut got = 0;
    let mut buffer = vec![0; 64 << 10];
    for _ in 0..6 {
        tokio::time::sleep(Duration::from_secs(50)).await;
        got += client.input.get_mut().try_read(&mut buffer).unwrap();
        assert!(world.record.slot.client().is_some(), "{got}");
    }
    assert!(got > 200 << 10, "{got}");
    let since = Instant::now();
    let took = cut_after(&world).await;
    assert!(took >= Duration::from_secs(50), "{took:?} since {since:?}");
}

/// By bytes: what is queued for it is bounded, and the server goes on, whoever else calls it.
#[tokio::test]
async fn g39_a_client_that_takes_nothing_is_cut_by_bytes_and_delays_nobody() {
    let mut world = world(&["a", "b"]).await;
    let (attached, mut client) = world.client(&json!({})).await;
    let connection = world.record.servers()[0].connection().unwrap();
    client.say(&json!({"jsonrpc": "2.0", "id": 1, "method": "resources/list"})).await;
    world.servers[1].expect("resources/list").await;
    let mut said = 0;
    while world.record.slot.client().is_some() {
        world.servers[0].say(&note(1 << 20)).await;
        said += 1;
        assert!(said < 32, "never cut");
        // Another caller of the same server waits for nothing.
        let other = spawn_call(&connection, "t");
        loop {
            let asked = world.servers[0].next().await;
            if asked["method"] == "tools/call" {
                world.servers[0].answer(&asked["id"], json!("ok")).await;
                break;
            }
        }
        assert_eq!(text(&soon(other).await.unwrap()), "\"ok\"");
    }
    // One longest line and 4 MiB; the pipe holds something, too.
    assert!((8..16).contains(&said), "{said} MiB");
    soon(attached.ended()).await;
    let cancelled = world.servers[1].next().await;
    assert_eq!(cancelled["method"], "notifications/cancelled");
    until(|| world.record.gate.in_flight() == 0).await;
    // Another may come.
    drop(client);
    let (_attached, _client) = world.client(&json!({})).await;
}

/// A client that has much to read is not read; when it reads, everything comes, once and in order.
#[tokio::test]
async fn a_client_with_much_to_read_is_not_read_meanwhile() {
    let mut world = world(&["a"]).await;
    let (_attached, client) = world.client(&json!({})).await;
    world.servers[0].say(&note(2 << 20)).await;
    // Once that is queued, pings fill the pipe and are not answered: the client would wait for ever if it did not read.
    until(|| world.record.servers()[0].connection().unwrap().stats().passed_over.notifications == 1).await;
    let FakeServer { mut input, mut output, .. } = client;
    let write = async {
        for id in 0..2000 {
            let line = format!(
                "{}\n",
                json!({"jsonrpc": "2.0", "id": id, "method": "ping", "params": {"x": "y".repeat(100)}})
            );
            output.write_all(line.as_bytes()).await.unwrap();
        }
    };
    let stuck = tokio::time::timeout(Duration::from_millis(300), async {
        tokio::pin!(write);
        (&mut write).await;
    });
    assert!(stuck.await.is_err(), "it was read without end");
    let mut line = String::new();
    soon(input.read_line(&mut line)).await.unwrap();
    assert!(line.len() > 2 << 20);
    let mut next = 0;
    while next < 100 {
        line.clear();
        soon(input.read_line(&mut line)).await.unwrap();
        assert_eq!(serde_json::from_str::<Value>(&line).unwrap()["id"], next);
        next += 1;
    }
}
