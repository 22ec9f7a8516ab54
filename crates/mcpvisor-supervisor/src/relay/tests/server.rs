//! A server of a few lines, told by the test what to say.
use super::*;
use rustix::pipe::{PipeFlags, pipe_with};
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

pub(super) fn pipe() -> (OwnedFd, OwnedFd) {
    pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).unwrap()
}

pub(in crate::relay) struct FakeServer {
    pub(super) input: BufReader<pipe::Receiver>,
    pub(super) output: pipe::Sender,
    /// How often `on_end` was called.
    pub(super) ended: Arc<AtomicUsize>,
}

pub(in crate::relay) fn connect_in(
    options: ConnectionOptions,
    slot: Slot,
    frames: FrameLog,
) -> (Connection, FakeServer) {
    let ((input, stdin), (stdout, output)) = (pipe(), pipe());
    let ended = Arc::new(AtomicUsize::new(0));
    let server = FakeServer {
        input: BufReader::new(receiver(input).unwrap()),
        output: pipe::Sender::from_owned_fd(output).unwrap(),
        ended: ended.clone(),
    };
    let on_end = Box::new(move || {
        ended.fetch_add(1, Ordering::SeqCst);
    });
    (Connection::start(stdin, stdout, options, slot, frames, on_end).unwrap(), server)
}

pub(super) fn connect_with(options: ConnectionOptions) -> (Connection, FakeServer) {
    connect_in(options, Slot::default(), FrameLog::default())
}

pub(super) fn connect() -> (Connection, FakeServer) {
    connect_with(ConnectionOptions::default())
}

pub(in crate::relay) async fn ready_with(options: ConnectionOptions) -> (Connection, FakeServer) {
    let (connection, mut server) = connect_with(options);
    let (outcome, ()) = soon(async { tokio::join!(connection.handshake(), server.shake_hands()) }).await;
    assert_eq!(&*outcome.unwrap().protocol, "2025-11-25");
    (connection, server)
}

pub(super) async fn ready() -> (Connection, FakeServer) {
    ready_with(ConnectionOptions::default()).await
}

impl FakeServer {
    /// The next line, whole; None at the end of the input.
    pub(crate) async fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let count = soon(self.input.read_line(&mut line)).await.unwrap();
        (count > 0).then_some(line)
    }

    pub(in crate::relay) async fn next(&mut self) -> Value {
        serde_json::from_str(&self.line().await.expect("the input should go on")).unwrap()
    }

    /// The id of the next message, which must be this request.
    pub(in crate::relay) async fn expect(&mut self, method: &str) -> Value {
        let message = self.next().await;
        assert_eq!(message["method"], method, "{message}");
        message["id"].clone()
    }

    pub(in crate::relay) async fn shake_hands(&mut self) {
        let id = self.expect("initialize").await;
        let result = json!({"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"fake","version":"1"}});
        self.answer(&id, result).await;
        self.expect("notifications/initialized").await;
    }

    pub(super) async fn write(&mut self, bytes: &[u8]) {
        soon(self.output.write_all(bytes)).await.unwrap();
    }

    pub(super) async fn say(&mut self, message: &Value) {
        self.write(format!("{message}\n").as_bytes()).await;
    }

    pub(in crate::relay) async fn answer(&mut self, id: &Value, result: Value) {
        self.say(&json!({"jsonrpc":"2.0","id":id,"result":result})).await;
    }

    pub(super) fn ended(&self) -> usize {
        self.ended.load(Ordering::SeqCst)
    }
}
