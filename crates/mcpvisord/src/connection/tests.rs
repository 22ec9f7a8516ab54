use super::*;
use crate::config::{Config, Containment};
use crate::start::{Parts, Role, supervise};
use mcpvisor_lifecycle::registry::Urgency;
use serde_json::{Value, json};
use std::sync::OnceLock;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

/// The threads of containment are one per process; each test has a supervisor of its own.
fn parts() -> &'static Parts {
    static PARTS: OnceLock<Parts> = OnceLock::new();
    // Nothing is ever launched by these tests, so what it would be launched in does not matter.
    PARTS.get_or_init(|| {
        Parts::start(&[], Containment::Auto, Role::Serving { state: None })
            .unwrap_or_else(|error| panic!("{error:?}"))
    })
}

struct Client {
    stream: BufReader<UnixStream>,
    daemon: Daemon,
    served: tokio::task::JoinHandle<()>,
}

impl Client {
    async fn new(config: &str) -> Self {
        let config = Arc::new(Config::parse("test", config).unwrap());
        let rights = parts().rights(Vec::new(), false);
        let containment = parts().containment.clone();
        let (daemon, _) =
            supervise(containment, config, rights, None).await.unwrap_or_else(|error| panic!("{error:?}"));
        let (ours, theirs) = UnixStream::pair().unwrap();
        let peer = Peer::of(&theirs).unwrap();
        let served = tokio::spawn(serve(daemon.clone(), theirs, peer));
        Self { stream: BufReader::new(ours), daemon, served }
    }

    async fn send(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).await.unwrap();
        self.stream.write_all(b"\n").await.unwrap();
    }

    async fn receive(&mut self) -> Value {
        let mut line = String::new();
        let read = self.stream.read_line(&mut line);
        let count = tokio::time::timeout(Duration::from_secs(10), read).await.expect("an answer").unwrap();
        assert!(count > 0, "the daemon ended the connection");
        serde_json::from_str(&line).unwrap()
    }

    async fn ask(&mut self, method: &str, params: Value) -> Value {
        self.send(&json!({"jsonrpc":"2.0","id":"q","method":method,"params":params}).to_string()).await;
        let answer = self.receive().await;
        assert_eq!(answer["id"], "q");
        answer
    }

    async fn refused(&mut self, method: &str, params: Value) -> (String, String) {
        let answer = self.ask(method, params).await;
        let error = &answer["error"];
        (error["data"]["kind"].as_str().unwrap().to_owned(), error["message"].as_str().unwrap().to_owned())
    }
}

#[tokio::test]
async fn hello_and_status_have_their_shapes() {
    let mut client = Client::new("[daemon]\nmax_sessions = 7\n").await;
    let hello = client.ask("daemon/hello", json!({"client":"test/1\u{1b}[2J"})).await;
    assert_eq!(hello["result"]["protocol"], 1);
    assert_eq!(hello["result"]["instance"].as_str().unwrap().len(), 16);
    let status = client.ask("daemon/status", json!({})).await;
    assert_eq!(status["result"]["state"], "running");
    assert_eq!(status["result"]["sessions"]["limit"], 7);
    assert_eq!(status["result"]["sessions"]["used"], 0);
}

/// G43: whatever a client sends, it gets an answer, and the connection goes on.
#[tokio::test]
async fn g43_what_is_no_request_is_answered_and_the_connection_goes_on() {
    let mut client = Client::new("[daemon]\nmax_line = \"4K\"\n").await;
    for text in [
        "nonsense",
        "",
        "[]",
        "{}",
        "42",
        "\u{1b}]0;x\u{7}",
        "{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"x\"}",
    ] {
        client.send(text).await;
        let answer = client.receive().await;
        assert_eq!(answer["id"], Value::Null, "{text}");
        assert_eq!(answer["error"]["data"]["kind"], "invalid_request", "{text}");
    }
    client.send(&"x".repeat(5000)).await;
    assert!(client.receive().await["error"]["message"].as_str().unwrap().contains("longer than 4096"));
    let deep =
        format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"daemon/hello\",\"params\":{}", "[".repeat(3000));
    client.send(&deep).await;
    assert_eq!(client.receive().await["error"]["data"]["kind"], "invalid_request");
    for (method, params, kind) in [
        ("no/such", json!({}), "invalid_request"),
        ("session/show", json!({"key":"a/b"}), "invalid_request"),
        ("session/show", json!({"key":"a","kay":1}), "invalid_request"),
        ("session/show", json!([]), "invalid_request"),
        ("session/show", json!({"key":"a"}), "not_found"),
        ("session/wait", json!({"key":"a"}), "not_found"),
        ("session/kill", json!({"key":"a"}), "not_found"),
        ("tool/list", json!({"key":"a"}), "not_found"),
        ("tool/call", json!({"key":"a","tool":"t"}), "not_found"),
        ("tool/call", json!({"key":"a","tool":"t","arguments":[1]}), "invalid_request"),
        ("log/read", json!({"key":"a"}), "not_found"),
        ("process/list", json!({"key":"a"}), "not_found"),
        ("session/attach", json!({"key":"a"}), "not_found"),
        ("session/attach", json!({"key":"a","exclusive":true}), "not_found"),
        (
            "session/attach",
            json!({"key":"a","exclusive":true,"descriptors":["stdin","stdout"]}),
            "invalid_request",
        ),
        ("approval/decide", json!({"id":"1.1","decision":"deny"}), "not_found"),
        ("approval/decide", json!({"id":"1","decision":"deny"}), "invalid_request"),
        // This one has no configuration file to read again.
        ("daemon/reload", json!({}), "unsupported"),
        ("session/open", json!({}), "invalid_request"),
        ("session/open", json!({"profile":"nope"}), "invalid_request"),
        ("session/open", json!({"ttl_ms":0}), "invalid_request"),
        ("session/open", json!({"parent":"x"}), "invalid_request"),
        ("session/open", json!({"lease":"pid:2147483647"}), "invalid_request"),
        ("session/open", json!({"request_id":"x"}), "invalid_request"),
        ("session/open", json!({"request_id":"","profile":"nope"}), "invalid_request"),
        ("session/open", json!({"request_id":"x","wait":false,"lease":"connection"}), "invalid_request"),
        (
            "session/open",
            json!({"relay":{"descriptors":["stdin","stdout"]},"servers":[{"name":"a","command":["x"]}]}),
            "invalid_request",
        ),
        (
            "session/open",
            json!({"direct":{"descriptors":["stdin","stdout"]},"servers":[{"name":"a","command":["x"]}]}),
            "invalid_request",
        ),
    ] {
        let (told, message) = client.refused(method, params.clone()).await;
        assert_eq!(told, kind, "{method} {params}: {message}");
    }
    // An unknown key is an outcome of a close.
    let closed = client.ask("session/close", json!({"key":"a"})).await;
    assert_eq!(closed["result"]["results"][0]["outcome"], "not_found");
    // Answers and unknown notifications are passed over.
    client.send(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#).await;
    client.send(r#"{"jsonrpc":"2.0","method":"notifications/whatever"}"#).await;
    client.send(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":99}}"#).await;
    assert!(client.ask("daemon/hello", json!({})).await["result"].is_object());
}

fn told(outbox: &Outbox) -> Vec<Value> {
    let lines = outbox.queued();
    lines.iter().map(|line| serde_json::from_slice(line).unwrap()).collect()
}

fn owed(id: i64) -> (Owed, Outbox) {
    let (in_flight, outbox, id) = (InFlight::default(), Outbox::new(1 << 20), Id::Number(id));
    locked(&in_flight).insert(id.clone(), Flight { gone: watch::channel(None).0, answered: false });
    let charge = crate::budget::Budget::new(0, 0).charge(0);
    (Owed { in_flight, outbox: outbox.clone(), id, gift: Gift::default(), _charge: charge }, outbox)
}

/// G43: a handler that panics costs its own request only, which is answered.
#[tokio::test]
async fn g43_a_handler_that_panics_is_answered_for() {
    let (owed, outbox) = owed(7);
    let task = tokio::spawn(async move {
        let nothing: Vec<Result<Box<RawValue>, ErrorObject>> = Vec::new();
        // Out of bounds: a defect as one of a handler would be.
        owed.pay(nothing[owed.outbox.queued().len()].clone());
    });
    assert!(task.await.unwrap_err().is_panic());
    let told = told(&outbox);
    assert_eq!(
        (told.len(), &told[0]["id"], &told[0]["error"]["data"]["kind"]),
        (1, &json!(7), &json!("internal"))
    );
}

#[tokio::test]
async fn a_request_is_answered_once() {
    let (owed, outbox) = owed(7);
    owed.pay(Ok(RawValue::from_string("1".into()).unwrap()));
    owed.pay(Ok(RawValue::from_string("2".into()).unwrap()));
    drop(owed);
    assert_eq!(told(&outbox), [json!({"jsonrpc":"2.0","id":7,"result":1})]);
}

#[tokio::test]
async fn what_has_happened_is_told_rather_than_that_it_was_given_up() {
    let never = std::future::pending::<Result<Box<RawValue>, ErrorObject>>();
    let told = cancellable(never, async {}).await.unwrap_err();
    assert_eq!(told.kind(), ErrorKind::Cancelled);
    let raw = RawValue::from_string("1".into()).unwrap();
    assert_eq!(cancellable(async { Ok(raw) }, async {}).await.unwrap().get(), "1");
}

#[tokio::test]
async fn drain_refuses_opens_and_tells_why() {
    let mut client = Client::new("").await;
    assert_eq!(client.ask("daemon/drain", json!({})).await["result"]["state"], "draining");
    assert_eq!(client.ask("daemon/status", json!({})).await["result"]["state"], "draining");
    let open = json!({"key":"k","servers":[{"name":"a","command":["true"]}],"cwd":"/"});
    // This process's parent may be a namespace away in odd places: the refusal for draining is what counts where it is not.
    let (kind, _) = client.refused("session/open", open).await;
    assert_eq!(kind, "draining");
}

#[tokio::test]
async fn shutdown_is_answered_before_the_connection_ends() {
    let mut client = Client::new("").await;
    client.send(r#"{"jsonrpc":"2.0","id":1,"method":"daemon/shutdown","params":{"wait":true}}"#).await;
    let answer = client.receive().await;
    assert_eq!(answer["result"]["quarantined"], 0);
    let mut rest = String::new();
    assert_eq!(client.stream.read_line(&mut rest).await.unwrap(), 0, "{rest}");
    client.served.await.unwrap();
}

#[tokio::test]
async fn a_connection_ends_with_its_client() {
    let client = Client::new("").await;
    drop(client.stream);
    tokio::time::timeout(Duration::from_secs(10), client.served).await.unwrap().unwrap();
    client.daemon.shut_down(Urgency::Drain);
    assert_eq!(client.daemon.ended().await, 0);
}

/// G40: a foreign session is not found, whatever is asked of it; and nobody but root names another user.
#[tokio::test]
async fn g40_only_root_names_another_user() {
    let mut client = Client::new("").await;
    let me = rustix::process::geteuid().as_raw();
    let (kind, _) = client.refused("session/show", json!({"key":"a","user":me + 1})).await;
    assert_eq!(kind, if me == 0 { "not_found" } else { "permission_denied" });
}

#[tokio::test]
async fn many_requests_are_answered_each_once() {
    let mut client = Client::new("").await;
    let mut text = String::new();
    for id in 0..500 {
        text += &json!({"jsonrpc":"2.0","id":id,"method":"session/show","params":{"key":"k"}}).to_string();
        text += "\n";
    }
    client.send(text.trim_end()).await;
    let mut seen = std::collections::HashSet::new();
    for _ in 0..500 {
        assert!(seen.insert(client.receive().await["id"].as_u64().unwrap()));
    }
}

/// G39, G43: a client that asks and asks and never reads is not read any more. Without the wait for the outbox to be low, 900,000
/// requests were taken, and the daemon grew to 1.8 GB.
#[tokio::test]
async fn g43_a_client_that_does_not_read_its_answers_is_not_read() {
    let client = Client::new("").await;
    let stream = client.stream.get_ref();
    let line = b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"no/such\"}\n".repeat(100);
    let mut sent = 0;
    loop {
        // Held up for this long the daemon has not been in any other test.
        let writable = tokio::time::timeout(Duration::from_secs(2), stream.writable()).await;
        let Ok(writable) = writable else { break };
        writable.unwrap();
        match stream.try_write(&line) {
            Ok(count) => sent += count,
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock),
        }
        assert!(sent < 16 << 20, "the client is read without end");
    }
    // It is served again as soon as it reads.
    let mut all = vec![0; 64 << 10];
    let mut read = 0;
    while read < 256 << 10 {
        stream.readable().await.unwrap();
        match stream.try_read(&mut all) {
            Ok(0) => panic!("the connection was ended"),
            Ok(count) => read += count,
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock),
        }
    }
}

/// A client that shuts down its own direction gets what it has asked for, and then the end.
#[tokio::test]
async fn who_says_no_more_is_answered() {
    let mut client = Client::new("").await;
    let wait = json!({"key": "nobody", "generation": 1});
    for (id, method, params) in [(1, "daemon/status", json!({})), (2, "session/wait", wait)] {
        client.send(&json!({"jsonrpc":"2.0","id":id,"method":method,"params":params}).to_string()).await;
    }
    client.stream.get_mut().shutdown().await.unwrap();
    let mut ids = vec![client.receive().await["id"].clone(), client.receive().await["id"].clone()];
    ids.sort_by_key(Value::to_string);
    assert_eq!(ids, [json!(1), json!(2)]);
    let mut rest = String::new();
    let end = client.stream.read_line(&mut rest);
    assert_eq!(tokio::time::timeout(Duration::from_secs(10), end).await.expect("the end").unwrap(), 0);
    client.served.await.unwrap();
}
