use super::*;

#[tokio::test]
async fn a_legacy_server() {
    let (connection, mut server) = connect();
    assert!(matches!(connection.call_tool(OWN, "t", &mut None, None).await, Err(CallError::NotReady)));
    assert!(matches!(connection.items(ListKind::Tools).await, Err(CallError::NotReady)));
    let (outcome, ()) = soon(async { tokio::join!(connection.handshake(), server.shake_hands()) }).await;
    for agreed in [outcome, soon(connection.handshake()).await] {
        let agreed = agreed.unwrap();
        assert_eq!((agreed.era.as_str(), &*agreed.protocol), ("legacy", "2025-11-25"));
        assert!(agreed.offers.tools);
        assert_eq!(agreed.server, Some(("fake".into(), "1".into())));
    }
    connection.end();
    assert_eq!(server.line().await, None);
}

#[tokio::test]
async fn a_modern_server() {
    let (connection, mut server) = connect();
    let serve = async {
        let id = server.expect("initialize").await;
        let error = json!({"code":-32022,"message":"no","data":{"supported":["2026-07-28"]}});
        server.say(&json!({"jsonrpc":"2.0","id":id,"error":error})).await;
        let id = server.expect("server/discover").await;
        server.answer(&id, json!({"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}})).await;
        // It tells of changes to those only that have asked for that.
        let listen = server.next().await;
        assert_eq!(listen["method"], "subscriptions/listen");
        assert_eq!(listen["params"]["notifications"]["toolsListChanged"], true);
    };
    let (outcome, ()) = soon(async { tokio::join!(connection.handshake(), serve) }).await;
    let outcome = outcome.unwrap();
    assert_eq!(connection.stats().in_flight, 0, "the daemon's own is not counted");
    assert_eq!((outcome.era.as_str(), &*outcome.protocol), ("modern", "2026-07-28"));
    let call = spawn_call(&connection, "t");
    let message = server.next().await;
    assert_eq!(message["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"], "2026-07-28");
    server.answer(&message["id"], json!(1)).await;
    assert_eq!(text(&soon(call).await.unwrap()), "1");
    connection.end();
}

#[tokio::test]
async fn a_refusal_and_an_odd_version() {
    let (connection, mut server) = connect();
    let serve = async {
        let id = server.expect("initialize").await;
        server.answer(&id, json!({"protocolVersion":"1999-01-01"})).await;
    };
    let (outcome, ()) = soon(async { tokio::join!(connection.handshake(), serve) }).await;
    let text = outcome.unwrap_err().to_string();
    assert!(text.contains("1999-01-01") && text.contains("2025-11-25"), "{text}");
    assert!(matches!(connection.call_tool(OWN, "t", &mut None, None).await, Err(CallError::NotReady)));
    connection.end();
}

#[tokio::test]
async fn it_fails_when_the_server_ends_or_the_start_is_given_up() {
    let (connection, server) = connect();
    drop(server);
    assert!(matches!(soon(connection.handshake()).await, Err(HandshakeError::ServerExited)));
    connection.end();

    let (connection, mut server) = connect();
    let handshake = tokio::spawn({
        let connection = connection.clone();
        async move { connection.handshake().await }
    });
    let id = server.expect("initialize").await;
    assert_eq!(connection.settle("closing"), 0);
    assert!(
        matches!(soon(handshake).await.unwrap(), Err(HandshakeError::Settled(reason)) if &*reason == "closing")
    );
    // A late answer changes nothing, and `initialize` was not cancelled.
    server.answer(&id, json!({"protocolVersion":"2025-11-25"})).await;
    server.expect("notifications/initialized").await;
    assert!(matches!(connection.handshake().await, Err(HandshakeError::Settled(_))));
    assert!(matches!(connection.call_tool(OWN, "t", &mut None, None).await, Err(CallError::Settled(_))));
    connection.end();
}

/// Scenario F, 05: a banner that is glued to the first message is shown.
#[tokio::test]
async fn noise_before_the_handshake_is_kept_for_the_error() {
    let (connection, mut server) = connect();
    let handshake = tokio::spawn({
        let connection = connection.clone();
        async move { connection.handshake().await }
    });
    let id = server.expect("initialize").await;
    server.write(b"loading\nStarting\x1b[1m server... ").await;
    server.answer(&id, json!({})).await;
    until(|| connection.stats().passed_over.noise == 2).await;
    let noise = connection.stats().noise.unwrap();
    assert!(noise.starts_with("Starting\\x1b[1m server... {\"id\":\"mcpvisor-1\""), "{noise}");
    assert!(!handshake.is_finished());
    connection.end();
    assert!(matches!(soon(handshake).await.unwrap(), Err(HandshakeError::ServerExited)));
}
