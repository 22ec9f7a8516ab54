use super::*;

fn page(names: &[&str], cursor: Option<&str>) -> Value {
    let tools: Vec<Value> = names.iter().map(|name| json!({"name":name,"x":0.5})).collect();
    json!({"tools":tools,"nextCursor":cursor})
}

fn spawn_tools(connection: &Connection) -> tokio::task::JoinHandle<Result<Vec<String>, CallError>> {
    let connection = connection.clone();
    tokio::spawn(async move {
        connection
            .items(ListKind::Tools)
            .await
            .map(|tools| tools.iter().map(|tool| tool.name.clone()).collect())
    })
}

#[tokio::test]
async fn pages_are_collected_and_kept_until_they_change() {
    let (connection, mut server) = ready().await;
    assert_eq!(connection.stats().tools, None);
    let listing = spawn_tools(&connection);
    let id = server.expect("tools/list").await;
    server.answer(&id, page(&["a", "b"], Some("next"))).await;
    let second = server.next().await;
    assert_eq!(second["params"]["cursor"], "next");
    server.answer(&second["id"], page(&["c"], None)).await;
    assert_eq!(soon(listing).await.unwrap().unwrap(), ["a", "b", "c"]);
    assert_eq!(soon(spawn_tools(&connection)).await.unwrap().unwrap(), ["a", "b", "c"]);
    assert_eq!(connection.stats().tools, Some(3));

    // Scenario F, 23: the change is told before the answer, and whoever has the answer sees the new tools.
    let call = spawn_call(&connection, "a");
    let id = server.expect("tools/call").await;
    server.say(&json!({"jsonrpc":"2.0","method":"notifications/tools/list_changed"})).await;
    server.answer(&id, json!(1)).await;
    soon(call).await.unwrap().unwrap();
    let listing = spawn_tools(&connection);
    let id = server.expect("tools/list").await;
    server.answer(&id, page(&["d"], None)).await;
    assert_eq!(soon(listing).await.unwrap().unwrap(), ["d"]);
    assert_eq!(connection.stats().tools, Some(1));
    connection.end();
}

#[tokio::test]
async fn a_listing_that_was_overtaken_by_a_change_is_not_kept() {
    let (connection, mut server) = ready().await;
    let listing = spawn_tools(&connection);
    let id = server.expect("tools/list").await;
    server.say(&json!({"jsonrpc":"2.0","method":"notifications/tools/list_changed"})).await;
    server.answer(&id, page(&["old"], None)).await;
    assert_eq!(soon(listing).await.unwrap().unwrap(), ["old"]);
    let listing = spawn_tools(&connection);
    let id = server.expect("tools/list").await;
    server.answer(&id, page(&["new"], None)).await;
    assert_eq!(soon(listing).await.unwrap().unwrap(), ["new"]);
    connection.end();
}

#[tokio::test]
async fn a_server_without_tools_is_not_asked() {
    let (connection, mut server) = connect();
    let serve = async {
        let id = server.expect("initialize").await;
        server.answer(&id, json!({"protocolVersion":"2024-11-05","capabilities":{}})).await;
    };
    let (outcome, ()) = soon(async { tokio::join!(connection.handshake(), serve) }).await;
    assert!(!outcome.unwrap().offers.tools);
    assert!(soon(connection.items(ListKind::Tools)).await.unwrap().is_empty());
    assert_eq!(connection.stats().tools, Some(0));
    connection.end();
}

#[tokio::test]
async fn several_askers_share_one_listing_and_survive_the_first_of_them() {
    let (connection, mut server) = ready().await;
    let first = spawn_tools(&connection);
    server.expect("tools/list").await;
    let others: Vec<_> = (0..4).map(|_| spawn_tools(&connection)).collect();
    tokio::task::yield_now().await;
    first.abort();
    server.expect("notifications/cancelled").await;
    let id = server.expect("tools/list").await;
    server.answer(&id, page(&["a"], None)).await;
    for other in others {
        assert_eq!(soon(other).await.unwrap().unwrap(), ["a"]);
    }
    connection.end();
    assert_eq!(server.line().await, None, "nothing more was asked");
}

#[tokio::test]
async fn a_listing_that_is_not_valid_is_an_error_and_not_kept() {
    let (connection, mut server) = ready().await;
    let listing = spawn_tools(&connection);
    let id = server.expect("tools/list").await;
    server.answer(&id, json!({"tools":7})).await;
    assert!(matches!(soon(listing).await.unwrap(), Err(CallError::BadAnswer(_))));
    let listing = spawn_tools(&connection);
    let id = server.expect("tools/list").await;
    server.answer(&id, page(&["a", "b"], None)).await;
    assert_eq!(soon(listing).await.unwrap().unwrap(), ["a", "b"]);
    connection.end();
}
