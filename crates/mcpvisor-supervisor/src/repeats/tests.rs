use super::*;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::Notify;

/// Work that ends when it is let, counts how often it began and was undone, and answers with how often it began.
#[derive(Clone, Default)]
struct Tried {
    began: Arc<AtomicUsize>,
    dropped: Arc<AtomicUsize>,
    undone: Arc<AtomicUsize>,
    go: Arc<Notify>,
}

struct CountDrop(Arc<AtomicUsize>);

impl Drop for CountDrop {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Tried {
    fn work(&self, keep: bool) -> impl Future<Output = Done<usize>> + Send + 'static {
        let tried = self.clone();
        async move {
            let _dropped = CountDrop(Arc::clone(&tried.dropped));
            let began = tried.began.fetch_add(1, Ordering::SeqCst) + 1;
            tried.go.notified().await;
            let undone = Arc::clone(&tried.undone);
            let undo: Undo = Box::new(move || {
                undone.fetch_add(1, Ordering::SeqCst);
            });
            Done { answer: began, keep, undo: Some(undo) }
        }
    }

    fn counts(&self) -> [usize; 3] {
        [&self.began, &self.dropped, &self.undone].map(|count| count.load(Ordering::SeqCst))
    }
}

fn repeats(grace: Duration) -> Repeats<usize> {
    Repeats::new(RepeatsConfig { per_user: 4, age: Duration::from_secs(3600), grace })
}

fn repeat(digest: u64) -> Repeat {
    Repeat { owner: Uid(1), id: "x".into(), digest, goes_on: false, deadline: None }
}

async fn until(what: impl Fn() -> bool) {
    let wait = async {
        while !what() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), wait).await.expect("what is waited for comes");
}

/// E.4: one answer, also of one that joins while the first runs, and of one that comes later.
#[tokio::test]
async fn e4_everyone_has_the_first_answer() {
    let (repeats, tried) = (repeats(Duration::from_secs(10)), Tried::default());
    let ask = || {
        let (repeats, work) = (repeats.clone(), tried.work(true));
        tokio::spawn(async move { repeats.once(repeat(7), || None, work).await })
    };
    let (first, second) = (ask(), ask());
    until(|| lock(&repeats.0.state).machine.askers() == 2).await;
    tried.go.notify_one();
    assert_eq!((first.await.unwrap(), second.await.unwrap()), (Ok(1), Ok(1)));
    assert_eq!(ask().await.unwrap(), Ok(1));
    let other = repeats.once(repeat(8), || None, tried.work(true)).await;
    assert_eq!(other, Err(NoAnswer::Refused(NotRepeated::OtherRequest)));
    assert_eq!(tried.counts(), [1, 1, 0]);
}

/// G24: who vanishes is waited for; a retry finds the same work.
#[tokio::test]
async fn g24_a_retry_after_a_lost_connection_finds_the_work() {
    let (repeats, tried) = (repeats(Duration::from_secs(60)), Tried::default());
    let (other, work) = (repeats.clone(), tried.work(true));
    let first = tokio::spawn(async move { other.once(repeat(7), || None, work).await });
    until(|| tried.counts()[0] == 1).await;
    first.abort();
    until(|| lock(&repeats.0.state).machine.askers() == 0).await;
    assert_eq!(tried.counts(), [1, 0, 0]);
    tried.go.notify_one();
    assert_eq!(repeats.once(repeat(7), || None, tried.work(true)).await, Ok(1));
}

/// The grace is over, or the requester said that it wants nothing: the work is stopped, or undone where it was done.
#[tokio::test]
async fn work_that_nobody_wants_is_stopped_or_undone() {
    let (short, tried) = (repeats(Duration::from_millis(20)), Tried::default());
    let (other, work) = (short.clone(), tried.work(true));
    let first = tokio::spawn(async move { other.once(repeat(7), || Some(Gone::Vanished), work).await });
    until(|| tried.counts()[0] == 1).await;
    first.abort();
    until(|| tried.counts() == [1, 1, 0]).await;
    // One whose answer comes when its requester has gone.
    let (other, work) = (short.clone(), tried.work(true));
    let second = tokio::spawn(async move { other.once(repeat(7), || Some(Gone::Vanished), work).await });
    tried.go.notify_one();
    let _ = second.await.unwrap();
    until(|| tried.counts() == [2, 2, 1]).await;
    let (long, tried) = (repeats(Duration::from_secs(3600)), Tried::default());
    let (other, work) = (long.clone(), tried.work(true));
    let third = tokio::spawn(async move { other.once(repeat(7), || Some(Gone::Cancelled), work).await });
    until(|| tried.counts()[0] == 1).await;
    third.abort();
    until(|| tried.counts() == [1, 1, 0]).await;
    assert_eq!(lock(&long.0.state).works.len(), 0);
}

/// Work that breaks is answered for, and forgotten.
#[tokio::test]
async fn work_that_breaks_is_no_answer() {
    let repeats = repeats(Duration::from_secs(10));
    let broken = repeats.once(repeat(7), || None, async { panic!("it was told to") }).await;
    assert_eq!(broken, Err(NoAnswer::Broke));
    let done = async { Done { answer: 5, keep: false, undo: None } };
    assert_eq!(repeats.once(repeat(8), || None, done).await, Ok(5), "the id is free again");
    let state = lock(&repeats.0.state);
    assert_eq!((state.works.len(), state.askers.len(), state.machine.known()), (0, 0, 0));
}
