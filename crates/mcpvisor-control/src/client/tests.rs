use super::*;
use crate::params::{Drain, SessionShow, Status};
use crate::{ErrorKind, results};
use tokio::io::{AsyncBufReadExt, BufReader};

struct Daemon {
    lines: BufReader<OwnedReadHalf>,
    write: OwnedWriteHalf,
}

impl Daemon {
    fn pair() -> (Client, Self) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (read, write) = theirs.into_split();
        (Client::over(ours), Self { lines: BufReader::new(read), write })
    }

    /// The next line; None at the end.
    async fn line(&mut self) -> Option<Message> {
        let mut line = String::new();
        let got = self.lines.read_line(&mut line).await.unwrap();
        (got > 0).then(|| Message::parse(line.as_bytes()).unwrap())
    }

    async fn request(&mut self) -> (Id, String) {
        match self.line().await {
            Some(Message::Request { id, method, .. }) => (id, method),
            other => panic!("{other:?}"),
        }
    }

    async fn send(&mut self, line: &[u8]) {
        self.write.write_all(line).await.unwrap();
    }
}

fn show(key: &str) -> SessionShow {
    SessionShow { key: key.parse().unwrap(), generation: None, user: None, frames: false }
}

#[tokio::test]
async fn answers_find_their_requests_in_any_order() {
    let (client, mut daemon) = Daemon::pair();
    let (first, second) = (client.clone(), client.clone());
    let first = tokio::spawn(async move { first.call(&Drain {}).await });
    let (first_id, _) = daemon.request().await;
    let second = tokio::spawn(async move { second.call(&show("a")).await });
    let (second_id, method) = daemon.request().await;
    assert_eq!(method, "session/show");
    let error = ErrorObject::new(ErrorKind::NotFound, "no");
    daemon.send(&message::error_response(Some(&second_id), &error)).await;
    assert!(matches!(second.await.unwrap(), Err(Error::Refused(got)) if *got == error));
    daemon.send(&message::response(&first_id, serde_json::json!({"state": "draining"})).unwrap()).await;
    assert_eq!(first.await.unwrap().unwrap().state, results::DaemonState::Draining);
}

#[tokio::test]
async fn a_dropped_request_is_cancelled_and_its_late_answer_passed_over() {
    let (client, mut daemon) = Daemon::pair();
    let other = client.clone();
    let task = tokio::spawn(async move { other.call(&Status {}).await.map(drop) });
    let (id, _) = daemon.request().await;
    task.abort();
    let Some(Message::Notification { method, params }) = daemon.line().await else { panic!() };
    assert_eq!(method, method::CANCELLED);
    let cancelled: Cancelled = serde_json::from_str(params.unwrap().get()).unwrap();
    assert_eq!(cancelled.request_id, id);
    daemon
        .send(&message::error_response(Some(&id), &ErrorObject::new(ErrorKind::Cancelled, "cancelled")))
        .await;
    // The connection is still good.
    let task = tokio::spawn(async move { client.call(&Drain {}).await });
    let (id, _) = daemon.request().await;
    daemon.send(&message::response(&id, serde_json::json!({"state": "draining"})).unwrap()).await;
    task.await.unwrap().unwrap();
}

#[tokio::test]
async fn an_answered_request_is_not_cancelled_and_the_last_clone_ends_the_connection() {
    let (client, mut daemon) = Daemon::pair();
    let task = tokio::spawn(async move { client.call(&Drain {}).await });
    let (id, _) = daemon.request().await;
    daemon.send(&message::response(&id, serde_json::json!({"state": "draining"})).unwrap()).await;
    task.await.unwrap().unwrap();
    assert!(daemon.line().await.is_none());
}

#[tokio::test]
async fn the_end_of_the_connection_answers_all_requests_those_to_come_too() {
    let (client, mut daemon) = Daemon::pair();
    let other = client.clone();
    let task = tokio::spawn(async move { other.call(&Drain {}).await });
    daemon.request().await;
    drop(daemon);
    assert!(matches!(task.await.unwrap(), Err(Error::Disconnected(_))));
    assert!(matches!(client.call(&Drain {}).await, Err(Error::Disconnected(_))));
}

#[tokio::test]
async fn notifications_are_given_in_order_and_once() {
    let (client, mut daemon) = Daemon::pair();
    for number in 0..3 {
        daemon.send(&message::notification("log", serde_json::json!({ "n": number })).unwrap()).await;
    }
    let mut notifications = client.notifications().unwrap();
    assert!(client.notifications().is_none());
    for number in 0..3 {
        let notification = notifications.recv().await.unwrap();
        assert_eq!(notification.params.unwrap().get(), format!("{{\"n\":{number}}}"));
    }
    // Nobody reads any more: more than are held come, and answers still find their way.
    drop(notifications);
    let task = tokio::spawn(async move { client.call(&Drain {}).await });
    let (id, _) = daemon.request().await;
    for _ in 0..2 * NOTIFICATIONS {
        daemon.send(&message::notification("log", ()).unwrap()).await;
    }
    daemon.send(&message::response(&id, serde_json::json!({"state": "draining"})).unwrap()).await;
    task.await.unwrap().unwrap();
}

#[tokio::test]
async fn nonsense_ends_the_connection_with_a_reason() {
    let (client, mut daemon) = Daemon::pair();
    let task = tokio::spawn(async move { client.call(&Drain {}).await });
    daemon.request().await;
    daemon.send(b"nonsense\n").await;
    assert!(matches!(task.await.unwrap(), Err(Error::Disconnected(reason)) if reason.contains("JSON-RPC")));
}
