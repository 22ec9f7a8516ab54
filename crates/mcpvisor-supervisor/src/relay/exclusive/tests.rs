//! Over real pipes and sockets, with both sides in this process.
use super::down::{Came, client_or_end};
use super::*;
use crate::frames::MOST;
use rustix::fs::{OFlags, fcntl_getfl};
use rustix::pipe::{PipeFlags, pipe_with};
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};

struct World {
    relay: Relay,
    gate: Gate,
    /// The server's ends.
    server_in: Option<std::fs::File>,
    server_out: Option<std::fs::File>,
    frames: FrameLog,
    ended: Arc<AtomicUsize>,
    left: Arc<AtomicUsize>,
}

fn counter() -> (Arc<AtomicUsize>, Box<dyn FnOnce() + Send>) {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    let count_up = move || {
        counted.fetch_add(1, Ordering::SeqCst);
    };
    (count, Box::new(count_up))
}

/// A server without a client. The test's own ends block.
fn world() -> World {
    let (server_in, stdin) = pipe_with(PipeFlags::CLOEXEC).unwrap();
    let (stdout, server_out) = pipe_with(PipeFlags::CLOEXEC).unwrap();
    for fd in [&stdin, &stdout] {
        rustix::io::ioctl_fionbio(fd, true).unwrap();
    }
    let (gate, (ended, on_end), (left, on_left)) = (Gate::default(), counter(), counter());
    let on_leave = OnLeave::Server(Duration::from_secs(20), on_left);
    let frames = FrameLog::default();
    let terms = Terms { gate: gate.clone(), most_calls: None, frames: frames.clone() };
    let relay = Relay::start(stdin, stdout, terms, None, on_leave, on_end).unwrap();
    World {
        relay,
        gate,
        server_in: Some(server_in.into()),
        server_out: Some(server_out.into()),
        frames,
        ended,
        left,
    }
}

/// The client's ends: what it writes to, and what it reads from.
fn client(world: &World) -> (std::fs::File, std::fs::File) {
    let (stdin, theirs) = pipe_with(PipeFlags::CLOEXEC).unwrap();
    let (ours, stdout) = pipe_with(PipeFlags::CLOEXEC).unwrap();
    world.relay.attach(Client::new(stdin, stdout).unwrap()).unwrap();
    (theirs.into(), ours.into())
}

/// A blocking step of one of the sides.
async fn step<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let done = tokio::task::spawn_blocking(work);
    tokio::time::timeout(Duration::from_secs(30), done).await.expect("it takes too long").unwrap()
}

async fn read(file: &std::fs::File, count: usize) -> Vec<u8> {
    let mut file = file.try_clone().unwrap();
    step(move || {
        let mut bytes = vec![0; count];
        file.read_exact(&mut bytes).unwrap();
        bytes
    })
    .await
}

async fn read_to_end(mut file: std::fs::File) -> Vec<u8> {
    step(move || {
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).unwrap();
        bytes
    })
    .await
}

async fn until(condition: impl Fn() -> bool) {
    let all = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), all).await.expect("should have happened by now");
}

const CALL: &[u8] = b"{\"id\":1,\"method\":\"a\"}\n";
const ANSWER: &[u8] = b"{\"id\":1,\"result\":{}}\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_passes_and_is_counted_until_its_answer() {
    let world = world();
    let mut server_out = world.server_out.as_ref().unwrap();
    // What the server says before there is a client waits for it.
    server_out.write_all(b"{\"method\":\"early\"}\n").unwrap();
    let (mut say, hear) = client(&world);
    assert_eq!(read(&hear, 19).await, b"{\"method\":\"early\"}\n");
    say.write_all(CALL).unwrap();
    assert_eq!(read(world.server_in.as_ref().unwrap(), CALL.len()).await, CALL);
    assert_eq!((world.gate.in_flight(), world.relay.in_flight()), (1, 1));
    server_out.write_all(ANSWER).unwrap();
    assert_eq!(read(&hear, ANSWER.len()).await, ANSWER);
    until(|| world.gate.in_flight() == 0).await;
    assert!(world.relay.is_attached());
    let frames = world.frames.last(MOST);
    let told: Vec<_> =
        frames.iter().map(|frame| (frame.to_server, frame.method.as_deref(), frame.bytes)).collect();
    assert_eq!(told, [(false, Some("early"), 19), (true, Some("a"), 22), (false, Some("a"), 21)]);
    assert!(frames[2].latency.is_some());
    let second =
        Client::new(pipe_with(PipeFlags::CLOEXEC).unwrap().0, pipe_with(PipeFlags::CLOEXEC).unwrap().1);
    assert_eq!(world.relay.attach(second.unwrap()), Err(Taken::HasClient));
}

/// The client's descriptors are the client's: their flags stay as they were.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flags_are_left_alone_and_sockets_pass_too() {
    let world = world();
    let ((say, stdin), (hear, stdout)) = (UnixStream::pair().unwrap(), UnixStream::pair().unwrap());
    let kept = stdin.try_clone().unwrap();
    world.relay.attach(Client::new(stdin.into(), stdout.into()).unwrap()).unwrap();
    (&say).write_all(CALL).unwrap();
    assert_eq!(read(world.server_in.as_ref().unwrap(), CALL.len()).await, CALL);
    assert!(!fcntl_getfl(&kept).unwrap().contains(OFlags::NONBLOCK));
    drop(kept);
    // The end of what it says, with an answer still to come.
    say.shutdown(std::net::Shutdown::Write).unwrap();
    until(|| !world.relay.is_attached()).await;
    assert_eq!(world.left.load(Ordering::SeqCst), 0, "the server goes when the call is answered");
    world.server_out.as_ref().unwrap().write_all(ANSWER).unwrap();
    assert_eq!(read(&std::os::fd::OwnedFd::from(hear).into(), ANSWER.len()).await, ANSWER);
    until(|| world.left.load(Ordering::SeqCst) == 1).await;
    assert!(world.relay.client_left_first());
}

/// G11, G30: the end of the output answers what is pending, once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_of_the_server_answers_its_calls() {
    let mut world = world();
    let (mut say, hear) = client(&world);
    say.write_all(CALL).unwrap();
    read(world.server_in.as_ref().unwrap(), CALL.len()).await;
    world.server_out.as_ref().unwrap().write_all(b"{\"id\":1,\"res").unwrap();
    world.server_out = None;
    let heard = String::from_utf8(read_to_end(hear).await).unwrap();
    let error = heard.strip_prefix("{\"id\":1,\"res\n").expect("the torn line is ended");
    assert!(error.contains("\"server_exited\"") && error.lines().count() == 1, "{error}");
    until(|| world.ended.load(Ordering::SeqCst) == 1).await;
    assert_eq!(world.gate.in_flight(), 0);
    world.relay.end();
    world.relay.delivered().await;
    assert_eq!(world.ended.load(Ordering::SeqCst), 1);
    assert!(!world.relay.client_left_first());
}

/// G39: a client that does not read holds its own server up, and nothing is lost when it reads again, even after the server's end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_slow_client_has_not_read_waits_in_the_pipes() {
    let mut world = world();
    let (_say, hear) = client(&world);
    let line = format!("{{\"method\":\"n\",\"params\":\"{}\"}}\n", "x".repeat(1000));
    let all = line.repeat(1000);
    let (mut server_out, text) = (world.server_out.take().unwrap(), all.clone());
    let writing = tokio::task::spawn_blocking(move || server_out.write_all(text.as_bytes()).unwrap());
    // Two pipes and a chunk hold less than a third of it.
    tokio::task::yield_now().await;
    assert!(!writing.is_finished());
    let mut heard = read(&hear, 900_000).await;
    writing.await.unwrap();
    world.relay.end();
    heard.extend(read_to_end(hear).await);
    assert!(heard == all.as_bytes(), "{} of {} bytes", heard.len(), all.len());
    world.relay.delivered().await;
}

/// Rule 10: a client that is lost has its calls cancelled at the server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_client_is_told_to_the_server() {
    let world = world();
    let (mut say, hear) = client(&world);
    say.write_all(CALL).unwrap();
    read(world.server_in.as_ref().unwrap(), CALL.len()).await;
    // Nobody hears any more, though somebody still could speak.
    drop(hear);
    until(|| world.gate.in_flight() == 0).await;
    world.relay.close_stdin();
    let mut world = world;
    let told = String::from_utf8(read_to_end(world.server_in.take().unwrap()).await).unwrap();
    assert!(told.contains("notifications/cancelled") && told.contains("\"requestId\":1"), "{told}");
    until(|| world.left.load(Ordering::SeqCst) == 1).await;
    // What it still says is not read any more.
    until(|| (&say).write_all(CALL).is_err()).await;
}

/// A client is attached or refused, and never to nothing.
#[tokio::test]
async fn a_client_that_comes_while_the_end_is_being_seen() {
    let (come, client) = oneshot::channel();
    let hung_up = async {
        come.send(()).expect("it is not refused");
    };
    assert_eq!(client_or_end(client, hung_up).await, Came::Client(()));
    let (come, client) = oneshot::channel();
    assert_eq!(client_or_end(client, async {}).await, Came::OutputEnd);
    assert!(come.send(()).is_err(), "it is refused");
    let (come, client) = oneshot::channel::<()>();
    drop(come);
    assert_eq!(client_or_end(client, std::future::pending()).await, Came::RelayEnd);
}

/// G11: nothing of a client that comes while the server ends stays in flight. A call was, as long as one that came after the end of
/// the server's output was admitted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_comes_with_the_servers_end() {
    for _ in 0..200 {
        let mut world = world();
        let (stdin, mut say) =
            pipe_with(PipeFlags::CLOEXEC).map(|(ours, theirs)| (ours, std::fs::File::from(theirs))).unwrap();
        let (hear, stdout) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        say.write_all(CALL).unwrap();
        let client = Client::new(stdin, stdout).unwrap();
        world.server_out = None;
        let attached = world.relay.attach(client);
        assert_eq!(attached.is_ok(), world.relay.has_had_client());
        let heard = read_to_end(hear.into()).await;
        assert!(attached.is_ok() || heard.is_empty(), "{attached:?}");
        until(|| world.gate.in_flight() == 0).await;
        until(|| world.ended.load(Ordering::SeqCst) == 1).await;
    }
}
