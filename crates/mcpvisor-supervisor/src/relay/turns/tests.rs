use super::*;
use crate::api::Requester;
use crate::frames::FrameLog;
use crate::relay::attached::Slot;
use crate::relay::tests::server::{FakeServer, connect_in, ready_with};
use crate::relay::tests::{soon, spawn_call, text, until, usual};
use crate::relay::{Connection, ConnectionOptions, OWN};
use crate::repeats::Gone;
use mcpvisor_mcp::peer::turns::CallLimits;
use serde_json::json;
use std::time::Duration;

fn limited(calls: CallLimits) -> ConnectionOptions {
    ConnectionOptions { calls, ..Default::default() }
}

async fn member(slot: &Slot, server: usize, calls: CallLimits) -> (Connection, FakeServer) {
    let (connection, mut fake) = connect_in(limited(calls), slot.of(server), FrameLog::default());
    let (outcome, ()) = soon(async { tokio::join!(connection.handshake(), fake.shake_hands()) }).await;
    outcome.unwrap();
    (connection, fake)
}

fn load(connection: &Connection) -> (usize, usize) {
    let stats = connection.stats();
    (stats.in_flight, stats.queued)
}

/// Calls beyond the limit wait; the server is never told of more at once; lists and cancellations pass them.
#[tokio::test]
async fn calls_wait_and_nothing_else_does() {
    let (connection, mut server) = ready_with(limited(CallLimits { max_in_flight: 1, ..usual() })).await;
    let first = spawn_call(&connection, "first");
    let id = server.expect("tools/call").await;
    let second = spawn_call(&connection, "second");
    let third = spawn_call(&connection, "third");
    until(|| load(&connection) == (1, 2)).await;
    let list = tokio::spawn({
        let connection = connection.clone();
        async move { connection.items(mcpvisor_mcp::ListKind::Tools).await }
    });
    let listing = server.expect("tools/list").await;
    server.answer(&listing, json!({"tools": []})).await;
    soon(list).await.unwrap().unwrap();
    // The caller of the second gives up: the server never hears of it.
    second.abort();
    until(|| load(&connection) == (1, 1)).await;
    server.answer(&id, json!(1)).await;
    let next = server.next().await;
    assert_eq!(next["params"]["name"], "third", "{next}");
    server.answer(&next["id"], json!(3)).await;
    assert_eq!(
        (text(&soon(first).await.unwrap()), text(&soon(third).await.unwrap())),
        ("1".into(), "3".into())
    );
    assert_eq!(load(&connection), (0, 0));
    connection.end();
}

/// A cancelled call makes room for the next at once.
#[tokio::test]
async fn a_call_that_is_given_up_makes_room() {
    let (connection, mut server) = ready_with(limited(CallLimits { max_in_flight: 1, ..usual() })).await;
    let first = spawn_call(&connection, "first");
    server.expect("tools/call").await;
    let second = spawn_call(&connection, "second");
    until(|| load(&connection) == (1, 1)).await;
    first.abort();
    let both = [server.next().await, server.next().await];
    assert!(both.iter().any(|line| line["method"] == "notifications/cancelled"), "{both:?}");
    let call = both.iter().find(|line| line["params"]["name"] == "second").expect("it has its turn");
    server.answer(&call["id"], json!(2)).await;
    assert_eq!(text(&soon(second).await.unwrap()), "2");
    connection.end();
}

/// G31: calls of one connection are given up at one moment, and taken out in any order: here the one in flight first. The one that waits
/// does not get its place, though nobody has taken it out; nor is one written that is made too late. Without the look at who is wanted the
/// second is written.
#[tokio::test]
async fn g31_what_is_given_up_together_gets_no_turn() {
    let (connection, mut server) = ready_with(limited(CallLimits { max_in_flight: 1, ..usual() })).await;
    let (tell, gone) = tokio::sync::watch::channel(None);
    let call = |name| {
        let (connection, requester) = (connection.clone(), Requester::new(7, None, gone.clone()));
        tokio::spawn(async move { connection.call_tool(&requester, name, &mut None, None).await })
    };
    let first = call("first");
    server.expect("tools/call").await;
    let second = call("second");
    until(|| load(&connection) == (1, 1)).await;
    let other = spawn_call(&connection, "other");
    until(|| load(&connection) == (1, 2)).await;
    tell.send_replace(Some(Gone::Vanished));
    first.abort();
    assert!(matches!(soon(second).await.unwrap(), Err(CallError::GivenUp)));
    assert!(matches!(soon(call("late")).await.unwrap(), Err(CallError::GivenUp)));
    let both = [server.next().await, server.next().await];
    assert!(both.iter().any(|line| line["method"] == "notifications/cancelled"), "{both:?}");
    let call = both.iter().find(|line| line["params"]["name"] == "other").expect("it has its turn");
    server.answer(&call["id"], json!(2)).await;
    assert_eq!(text(&soon(other).await.unwrap()), "2");
    assert_eq!(load(&connection), (0, 0));
    connection.end();
}

/// Both limits of time, on the real clock, and that the clock stands still when nothing waits.
#[tokio::test]
async fn the_clock_ends_what_takes_too_long() {
    let calls = CallLimits {
        max_in_flight: 1,
        queue_timeout: Duration::from_millis(50),
        call_timeout: Some(Duration::from_millis(300)),
        ..usual()
    };
    let (connection, mut server) = ready_with(limited(calls)).await;
    let first = spawn_call(&connection, "first");
    let id = server.expect("tools/call").await;
    let second = spawn_call(&connection, "second");
    assert!(
        matches!(soon(second).await.unwrap(), Err(CallError::QueueTimeout { load, .. }) if load.in_flight == 1)
    );
    assert!(
        matches!(soon(first).await.unwrap(), Err(CallError::TimedOut(overrun)) if overrun.key == "call_timeout")
    );
    let cancelled = server.next().await;
    assert_eq!(
        (&cancelled["method"], &cancelled["params"]["requestId"]),
        (&json!("notifications/cancelled"), &id)
    );
    until(|| lock(&connection.shared.state).clock.is_none()).await;
    assert_eq!(load(&connection), (0, 0));
    // It goes on as before, and a late answer is nobody's.
    server.answer(&id, json!("late")).await;
    let third = spawn_call(&connection, "third");
    let id = server.expect("tools/call").await;
    server.answer(&id, json!(3)).await;
    assert_eq!(text(&soon(third).await.unwrap()), "3");
    connection.end();
}

/// G19: at a close those that wait hear so at once, and the one in flight is finished.
#[tokio::test]
async fn g19_a_close_refuses_those_that_wait() {
    let (connection, mut server) = ready_with(limited(CallLimits { max_in_flight: 1, ..usual() })).await;
    let first = spawn_call(&connection, "first");
    let id = server.expect("tools/call").await;
    let second = spawn_call(&connection, "second");
    until(|| load(&connection) == (1, 1)).await;
    connection.stop_waiting();
    assert!(matches!(soon(second).await.unwrap(), Err(CallError::Closing)));
    let late = connection.call_tool(OWN, "late", &mut None, None).await;
    assert!(matches!(late, Err(CallError::Closing)));
    server.answer(&id, json!(1)).await;
    assert_eq!(text(&soon(first).await.unwrap()), "1");
    connection.end();
}

/// G31: what waited at a server that ends was certainly not written, and is told so.
#[tokio::test]
async fn g31_what_waits_at_the_servers_end_was_not_written() {
    let (connection, mut server) = ready_with(limited(CallLimits { max_in_flight: 1, ..usual() })).await;
    let first = spawn_call(&connection, "first");
    server.expect("tools/call").await;
    let second = spawn_call(&connection, "second");
    until(|| load(&connection) == (1, 1)).await;
    drop(server);
    assert!(matches!(soon(first).await.unwrap(), Err(CallError::ServerExited)));
    assert!(matches!(soon(second).await.unwrap(), Err(CallError::NotWritten)));
    connection.end();
}

/// G11, G31: a server that leaves is asked nothing more, and those that wait still have their turns; it is quiet when none is left.
#[tokio::test]
async fn g11_those_that_wait_for_a_leaving_server_have_their_turns() {
    let (connection, mut server) = ready_with(limited(CallLimits { max_in_flight: 1, ..usual() })).await;
    let (first, second) = (spawn_call(&connection, "first"), spawn_call(&connection, "second"));
    let id = server.expect("tools/call").await;
    until(|| load(&connection) == (1, 1)).await;
    let quiet = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&quiet);
    connection.retire("leaves", Box::new(move || told.store(true, SeqCst)));
    let mut arguments = Some(serde_json::value::to_raw_value(&1).unwrap());
    let late = connection.call_tool(OWN, "late", &mut arguments, None).await;
    assert!(matches!(late, Err(CallError::Leaving(_))) && arguments.is_some(), "another may be asked");
    server.answer(&id, json!(1)).await;
    let id = server.expect("tools/call").await;
    assert!(!quiet.load(SeqCst));
    server.answer(&id, json!(2)).await;
    assert_eq!(text(&soon(first).await.unwrap()), "1");
    assert_eq!(text(&soon(second).await.unwrap()), "2");
    until(|| quiet.load(SeqCst)).await;
    connection.end();
}

/// G19, G31: when its time is over, those that wait hear that they were not written, and the one in flight that it was not answered.
#[tokio::test]
async fn g19_those_that_outwait_a_leaving_server_are_settled() {
    let (connection, mut server) = ready_with(limited(CallLimits { max_in_flight: 1, ..usual() })).await;
    let (first, second) = (spawn_call(&connection, "first"), spawn_call(&connection, "second"));
    server.expect("tools/call").await;
    until(|| load(&connection) == (1, 1)).await;
    let quiet = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&quiet);
    connection.retire("leaves", Box::new(move || told.store(true, SeqCst)));
    assert_eq!(connection.settle_retired("leaves"), 2);
    assert!(matches!(soon(first).await.unwrap(), Err(CallError::LeftUnanswered(_))));
    assert!(matches!(soon(second).await.unwrap(), Err(CallError::LeftUnwritten(_))));
    until(|| quiet.load(SeqCst)).await;
    server.expect("notifications/cancelled").await;
    connection.close_stdin();
    assert_eq!(server.line().await, None, "it never hears of the second");
    connection.end();
}

/// G31: what waits when the server's input is closed is not written any more, and is told so.
#[tokio::test]
async fn g31_what_waits_at_the_end_of_the_input_was_not_written() {
    let (connection, mut server) = ready_with(limited(CallLimits { max_in_flight: 1, ..usual() })).await;
    let (first, second) = (spawn_call(&connection, "first"), spawn_call(&connection, "second"));
    let id = server.expect("tools/call").await;
    until(|| load(&connection) == (1, 1)).await;
    connection.close_stdin();
    assert!(matches!(soon(second).await.unwrap(), Err(CallError::NotWritten)));
    assert_eq!(server.line().await, None);
    server.answer(&id, json!(1)).await;
    assert_eq!(text(&soon(first).await.unwrap()), "1");
    connection.end();
}

/// What servers have together: a call at one waits for one at another, and is woken by its end, however that comes.
#[tokio::test]
async fn servers_of_a_session_share_its_limit() {
    let slot = Slot::new(Some(1));
    let (one, mut first) = member(&slot, 0, usual()).await;
    let (two, mut second) = member(&slot, 1, usual()).await;
    let at_one = spawn_call(&one, "a");
    let id = first.expect("tools/call").await;
    let at_two = spawn_call(&two, "b");
    until(|| load(&two) == (0, 1)).await;
    first.answer(&id, json!(1)).await;
    let id = second.expect("tools/call").await;
    assert_eq!(text(&soon(at_one).await.unwrap()), "1");
    // The end of a server gives back the places of its calls.
    let waits = spawn_call(&one, "c");
    until(|| load(&one) == (0, 1)).await;
    two.end();
    assert!(matches!(soon(at_two).await.unwrap(), Err(CallError::ServerExited)));
    let _ = id;
    let id = first.expect("tools/call").await;
    first.answer(&id, json!(2)).await;
    assert_eq!(text(&soon(waits).await.unwrap()), "2");
    one.end();
    assert_eq!(slot.together.running.load(SeqCst), 0);
}

/// Many calls of two servers race for few places: each is answered, and never more are in flight than the session may have.
///
/// Negative control: without the second look in `take`, or without the flag, calls stay in the queue, and the test runs out of time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn places_are_neither_lost_nor_made() {
    let slot = Slot::new(Some(3));
    let most = Arc::new(AtomicUsize::new(0));
    let (mut all, mut echoes) = (Vec::new(), Vec::new());
    for server in 0..2 {
        let (connection, mut fake) = member(&slot, server, CallLimits { max_in_flight: 2, ..usual() }).await;
        let (seen, together) = (Arc::clone(&most), Arc::clone(&slot.together));
        let echo = tokio::spawn(async move {
            for _ in 0..300 {
                let id = fake.expect("tools/call").await;
                seen.fetch_max(together.running.load(SeqCst), SeqCst);
                fake.answer(&id, json!(1)).await;
            }
        });
        for _ in 0..300 {
            all.push(spawn_call(&connection, "t"));
        }
        echoes.push((echo, connection));
    }
    for call in all {
        soon(call).await.unwrap().unwrap();
    }
    for (echo, connection) in echoes {
        soon(echo).await.unwrap();
        connection.end();
    }
    assert!(most.load(SeqCst) <= 3, "{most:?}");
    assert_eq!(slot.together.running.load(SeqCst), 0);
}
