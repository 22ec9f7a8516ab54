use super::*;

async fn pending_calls(
    connection: &Connection,
    server: &mut FakeServer,
    count: usize,
) -> Vec<tokio::task::JoinHandle<Outcome>> {
    let calls: Vec<_> = (0..count).map(|_| spawn_call(connection, "t")).collect();
    for _ in 0..count {
        server.expect("tools/call").await;
    }
    calls
}

/// G11, G19: what is pending gets one answer that names the reason; the server is told.
#[tokio::test]
async fn settling_cancels_and_fails_what_is_pending() {
    let (connection, mut server) = ready().await;
    let calls = pending_calls(&connection, &mut server, 3).await;
    assert_eq!(connection.settle("the session is being closed"), 3);
    for call in calls {
        let outcome = soon(call).await.unwrap();
        assert!(
            matches!(&outcome, Err(CallError::Settled(reason)) if &**reason == "the session is being closed")
        );
    }
    for _ in 0..3 {
        let cancelled = server.next().await;
        assert_eq!(cancelled["method"], "notifications/cancelled");
        assert_eq!(cancelled["params"]["reason"], "the session is being closed");
    }
    assert_eq!(connection.settle("again"), 0);
    assert!(matches!(connection.call_tool(OWN, "t", &mut None, None).await, Err(CallError::Settled(_))));
    assert!(matches!(connection.items(ListKind::Tools).await, Err(CallError::Settled(_))));
    connection.close_stdin();
    assert_eq!(server.line().await, None);
    assert_eq!(server.ended(), 0);
    connection.end();
}

/// Scenario F, 11 and 18, G30: the end of the output fails what is pending and what comes later; a torn line is not delivered.
#[tokio::test]
async fn the_end_of_the_output_is_the_end() {
    let (connection, mut server) = ready().await;
    let calls = pending_calls(&connection, &mut server, 2).await;
    server.write(b"{\"jsonrpc\":\"2.0\",\"id\":\"mcpvisor-2\",\"resu").await;
    let FakeServer { input, output, ended } = server;
    drop(output);
    for call in calls {
        assert!(matches!(soon(call).await.unwrap(), Err(CallError::ServerExited)));
    }
    until(|| ended.load(std::sync::atomic::Ordering::SeqCst) == 1).await;
    assert!(matches!(connection.call_tool(OWN, "t", &mut None, None).await, Err(CallError::ServerExited)));
    assert_eq!((connection.stats().torn_bytes, connection.stats().in_flight), (40, 0));
    connection.end();
    connection.end();
    drop(input);
    assert_eq!(ended.load(std::sync::atomic::Ordering::SeqCst), 1);
}

/// An answer that the server wrote just before it ended is delivered, though the runtime has not read it yet.
#[tokio::test]
async fn ending_delivers_what_was_still_written() {
    let (connection, mut server) = ready().await;
    let (answered, unanswered) = (spawn_call(&connection, "t"), spawn_call(&connection, "t"));
    let ids = [server.next().await, server.next().await];
    let line = format!("{}\n", json!({"jsonrpc":"2.0","id":ids[0]["id"],"result":"last words"}));
    // Written and ended without giving the reading task a turn.
    assert_eq!(rustix::io::write(&server.output, line.as_bytes()), Ok(line.len()));
    connection.end();
    let outcomes = [text(&soon(answered).await.unwrap()), text(&soon(unanswered).await.unwrap())];
    assert!(
        outcomes.contains(&"\"last words\"".to_owned()) && outcomes.contains(&"ServerExited".to_owned()),
        "{outcomes:?}"
    );
    assert_eq!((server.ended(), server.line().await), (0, None));
    // Both pipes are closed, though handles of the connection are left.
    until(|| rustix::io::write(&server.output, b"x\n") == Err(rustix::io::Errno::PIPE)).await;
}

/// A process that escaped holds the output open and goes on writing: ending does not wait for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ending_is_not_held_up_by_an_endless_writer() {
    let (connection, server) = ready().await;
    let FakeServer { output, .. } = server;
    let flood = vec![b'x'; 1 << 16];
    let writer =
        std::thread::spawn(
            move || while rustix::io::write(&output, &flood) != Err(rustix::io::Errno::PIPE) {},
        );
    until(|| lock(&connection.shared.reader).buffered() > 0).await;
    let ending = connection.clone();
    soon(tokio::task::spawn_blocking(move || ending.end())).await.unwrap();
    soon(tokio::task::spawn_blocking(move || writer.join())).await.unwrap().unwrap();
}

/// The server has closed its input but still answers.
#[tokio::test]
async fn a_server_that_closed_its_input_answers_what_it_has_read() {
    let (connection, mut server) = ready().await;
    let call = spawn_call(&connection, "t");
    let id = server.expect("tools/call").await;
    let FakeServer { input, output, ended } = server;
    drop(input);
    until_exited(&connection).await;
    let mut server =
        FakeServer { input: tokio::io::BufReader::new(receiver(server::pipe().0).unwrap()), output, ended };
    server.answer(&id, json!("still here")).await;
    assert_eq!(text(&soon(call).await.unwrap()), "\"still here\"");
    connection.end();
}

async fn until_exited(connection: &Connection) {
    let outcome = soon(connection.call_tool(OWN, "t", &mut None, None)).await;
    assert!(matches!(outcome, Err(CallError::ServerExited)), "{outcome:?}");
}

/// What is queued is written before the input is closed, if the server reads; and if it does not, the input is closed all the
/// same, soon.
#[tokio::test]
async fn closing_the_input_flushes_but_does_not_wait() {
    for reads in [true, false] {
        let (connection, mut server) = ready().await;
        let big = RawValue::from_string(format!("\"{}\"", "x".repeat(1 << 20))).unwrap();
        let call = tokio::spawn({
            let connection = connection.clone();
            async move { connection.call_tool(OWN, "t", &mut Some(big), None).await }
        });
        until(|| connection.stats().in_flight == 1).await;
        connection.close_stdin();
        assert!(matches!(connection.call_tool(OWN, "t", &mut None, None).await, Err(CallError::Settled(_))));
        if reads {
            let id = server.expect("tools/call").await;
            assert_eq!(server.line().await, None);
            server.answer(&id, json!("done")).await;
            assert_eq!(text(&soon(call).await.unwrap()), "\"done\"");
            assert_eq!(connection.stats().unwritten_lines, 0);
        } else {
            until(|| connection.stats().unwritten_lines == 1).await;
            let torn = server.line().await.unwrap();
            assert!(!torn.ends_with('\n') && torn.len() < 1 << 20);
            assert_eq!(server.line().await, None);
            connection.end();
            assert!(matches!(soon(call).await.unwrap(), Err(CallError::ServerExited)));
        }
        connection.end();
    }
}

/// Closing what has nothing queued closes the descriptor in the call itself.
#[tokio::test]
async fn closing_an_idle_input_is_immediate() {
    let (connection, server) = ready().await;
    connection.close_stdin();
    let mut byte = [0; 1];
    assert_eq!(rustix::io::read(server.input.get_ref(), &mut byte[..]), Ok(0));
    connection.end();
}

/// G11: calls race the end of the server and a settlement; each gets exactly one answer, and none hangs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_call_gets_an_answer_whatever_happens() {
    let mut seen = std::collections::BTreeSet::new();
    for round in 0..60u64 {
        let (connection, mut server) = ready().await;
        let calls: Vec<_> = (0..40).map(|_| spawn_call(&connection, "t")).collect();
        let killer = tokio::spawn({
            let connection = connection.clone();
            async move {
                for _ in 0..round {
                    tokio::task::yield_now().await;
                }
                match round % 3 {
                    0 => connection.end(),
                    1 => {
                        connection.settle("closing");
                    }
                    _ => connection.close_stdin(),
                }
            }
        });
        let serving = tokio::spawn(async move {
            for _ in 0..20 {
                let mut line = String::new();
                match tokio::io::AsyncBufReadExt::read_line(&mut server.input, &mut line).await {
                    Ok(count) if count > 0 => {}
                    _ => return,
                }
                let message: Value = serde_json::from_str(&line).unwrap();
                let answer = format!("{}\n", json!({"jsonrpc":"2.0","id":message["id"],"result":1}));
                if tokio::io::AsyncWriteExt::write_all(&mut server.output, answer.as_bytes()).await.is_err() {
                    return;
                }
            }
        });
        soon(killer).await.unwrap();
        soon(serving).await.unwrap();
        for call in calls {
            seen.insert(match soon(call).await.unwrap() {
                Ok(_) => "answered",
                Err(CallError::ServerExited) => "exited",
                Err(CallError::Settled(_)) => "settled",
                Err(error) => panic!("{error:?}"),
            });
        }
        assert_eq!(connection.stats().in_flight, 0);
        connection.end();
    }
    assert_eq!(seen.len(), 3, "the sweep told too few outcomes apart: {seen:?}");
}
