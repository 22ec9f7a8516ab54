//! Against small servers in this process, over real pipes.
mod attached;
mod calls;
mod ends;
mod floods;
mod handshake;
pub(super) mod server;
mod tools;

use super::*;
use serde_json::{Value, json};
use server::{FakeServer, connect, ready, ready_with};
use std::time::Duration;

/// Nothing here takes long; a budget only ends a test that hangs.
pub(super) async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(30), future).await.expect("should have happened by now")
}

/// Lets other tasks run until the condition holds.
pub(super) async fn until(condition: impl Fn() -> bool) {
    soon(async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
}

/// The limits of calls as they are by default.
pub(super) fn usual() -> CallLimits {
    ConnectionOptions::default().calls
}

pub(super) type Outcome = Result<Box<RawValue>, CallError>;

pub(super) fn spawn_call(connection: &Connection, name: &'static str) -> tokio::task::JoinHandle<Outcome> {
    let connection = connection.clone();
    tokio::spawn(async move { connection.call_tool(OWN, name, &mut None, None).await })
}

pub(super) fn text(outcome: &Outcome) -> String {
    match outcome {
        Ok(raw) => raw.get().to_owned(),
        Err(CallError::ServerError(error)) => format!("error {}", error.get()),
        Err(error) => format!("{error:?}"),
    }
}

#[tokio::test]
async fn pipes_that_would_block_are_refused() {
    use rustix::pipe::{PipeFlags, pipe_with};
    let nonblocking = || pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).unwrap();
    let blocking = || pipe_with(PipeFlags::CLOEXEC).unwrap();
    for ((_, stdin), (stdout, _)) in [(blocking(), nonblocking()), (nonblocking(), blocking())] {
        assert!(
            Connection::start(
                stdin,
                stdout,
                ConnectionOptions::default(),
                Slot::default(),
                FrameLog::default(),
                Box::new(|| ())
            )
            .is_err()
        );
    }
}

/// What a connection costs while nothing happens: itself and two small tasks, and no buffer.
#[tokio::test]
async fn an_idle_connection_is_small() {
    let (connection, mut server) = ready().await;
    let call = spawn_call(&connection, "big");
    let id = server.expect("tools/call").await;
    server.answer(&id, json!("x".repeat(1 << 20))).await;
    soon(call).await.unwrap().unwrap();
    let pipe = Arc::new(receiver(server::pipe().0).unwrap());
    let tasks = size_of_val(&reader::run(connection.shared.clone(), pipe))
        + size_of_val(&outbox::run(connection.shared.clone()));
    assert!(size_of::<Shared>() + tasks < 4096, "{} + {tasks}", size_of::<Shared>());
    assert_eq!(lock(&connection.shared.reader).buffered(), 0);
    connection.end();
}
