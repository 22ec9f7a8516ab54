//! G38, G39, G40 of the ring and its readers.
use super::*;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

const ME: Uid = Uid(1000);
const OTHER: Uid = Uid(1001);

fn events(most: usize) -> Events {
    Events::new(EventLimits { events: most, bytes: 1 << 20 }, ME)
}

fn subject(key: &str, generation: u64) -> Subject {
    Subject {
        key: Some(SessionKey::new(key).unwrap()),
        generation: Some(Generation(generation)),
        server: None,
    }
}

fn happen(events: &Events, uid: Uid, count: usize) {
    for _ in 0..count {
        events.publish(uid, EventKind::SessionReady, subject("k", 1), Vec::new());
    }
}

fn all() -> Wanted {
    Wanted { since: Some(1), ..Wanted::default() }
}

fn following() -> Wanted {
    Wanted { follow: true, ..all() }
}

/// What is there now: `Ready(None)` is the end, `Pending` waits.
fn poll(stream: &mut EventStream) -> Poll<Option<Told>> {
    pin!(stream.next()).poll(&mut Context::from_waker(Waker::noop()))
}

/// What is there now, as numbers with what was lost before each.
fn drained(stream: &mut EventStream) -> Vec<(u64, u64)> {
    std::iter::from_fn(|| match poll(stream) {
        Poll::Ready(told) => told,
        Poll::Pending => None,
    })
    .map(|told| (told.event.seq, told.lost))
    .collect()
}

#[test]
fn g38_numbers_have_no_gaps_and_what_is_lost_is_told() {
    let events = events(4);
    let mut stream = events.read(ME, following());
    happen(&events, ME, 3);
    assert_eq!(drained(&mut stream), [(1, 0), (2, 0), (3, 0)]);
    happen(&events, ME, 10);
    assert_eq!(drained(&mut stream), [(10, 6), (11, 0), (12, 0), (13, 0)]);
    assert_eq!(poll(&mut stream), Poll::Pending);
    let mut late = events.read(ME, Wanted { since: Some(12), ..Wanted::default() });
    assert_eq!(late.bounds(), (14, 10));
    happen(&events, ME, 1);
    assert_eq!(drained(&mut late), [(12, 0), (13, 0)], "one that does not follow ends where it began");
    assert_eq!(poll(&mut late), Poll::Ready(None));
}

#[test]
fn g38_from_now_on() {
    let events = events(4);
    happen(&events, ME, 3);
    let mut stream = events.read(ME, Wanted { follow: true, ..Wanted::default() });
    assert_eq!(poll(&mut stream), Poll::Pending);
    happen(&events, ME, 1);
    assert_eq!(drained(&mut stream), [(4, 0)]);
    let mut later = events.read(ME, Wanted { since: Some(7), ..following() });
    happen(&events, ME, 3);
    assert_eq!(drained(&mut later), [(7, 0)], "numbers that are to come can be asked for");
}

#[test]
fn bytes_are_bounded_too() {
    let events = Events::new(EventLimits { events: 1000, bytes: 10_000 }, ME);
    let text = "x".repeat(1000);
    for _ in 0..100 {
        events.publish(ME, EventKind::SessionReady, subject("k", 1), vec![("text", text.as_str().into())]);
    }
    let kept = drained(&mut events.read(ME, all()));
    assert!((5..10).contains(&kept.len()), "{kept:?}");
    assert_eq!((kept[0].0 + kept.len() as u64, kept[0].1), (101, kept[0].0 - 1));
    events.set_limits(EventLimits { events: 0, bytes: 0 });
    happen(&events, ME, 1);
    assert_eq!(drained(&mut events.read(ME, all())), [], "nothing is kept");
}

/// G38: also of a reader that was stopped while the ring went round, and where nothing at all is kept.
#[test]
fn g38_the_last_event_of_a_generation_is_told_before_the_end() {
    for most in [0, 2, 100] {
        for stopped in [false, true] {
            let events = events(most);
            let terminal = Terminal::default();
            let key = SessionKey::new("k").ok();
            let wanted = Wanted { key, until: Some(Arc::clone(&terminal)), ..following() };
            let mut stream = events.read(ME, wanted.clone());
            happen(&events, ME, 2);
            let mut told = if stopped { Vec::new() } else { drained(&mut stream) };
            events.publish_last(ME, EventKind::SessionClosed, subject("k", 1), Vec::new(), &terminal);
            // The key is open again: that is another generation.
            happen(&events, ME, if stopped { 5 } else { 0 });
            told.extend(drained(&mut stream));
            assert_eq!(told.last().map(|(seq, _)| *seq), Some(3), "{most} {stopped}");
            assert_eq!(told.iter().map(|(_, lost)| 1 + lost).sum::<u64>(), 3, "{most} {stopped}: {told:?}");
            assert_eq!(poll(&mut stream), Poll::Ready(None), "{most} {stopped}");
            // One that comes late.
            let late = drained(&mut events.read(ME, Wanted { since: Some(100), ..wanted }));
            assert_eq!(late, [(3, 0)], "{most} {stopped}");
        }
    }
}

#[test]
fn a_key_has_its_own_events() {
    let events = events(100);
    for (key, generation) in [("a", 1), ("b", 2), ("a", 3)] {
        events.publish(ME, EventKind::SessionReady, subject(key, generation), Vec::new());
    }
    events.publish_to_all(EventKind::DaemonDraining, &Vec::new());
    let key = SessionKey::new("a").unwrap();
    let of = |generation| Wanted { key: Some(key.clone()), generation, ..all() };
    assert_eq!(drained(&mut events.read(ME, of(None))), [(1, 0), (3, 0)]);
    assert_eq!(drained(&mut events.read(ME, of(Some(Generation(3))))), [(3, 0)]);
    assert!(events.know(ME, &key) && !events.know(OTHER, &key));
    assert!(!events.know(ME, &SessionKey::new("c").unwrap()));
}

/// G40: what one user does shows in no number of another's, and takes nothing of what is kept for it.
#[test]
fn g40_each_user_has_numbers_of_its_own() {
    let events = events(4);
    let mut mine = events.read(ME, following());
    let mut others = events.read(OTHER, following());
    happen(&events, ME, 1);
    happen(&events, OTHER, 1000);
    assert_eq!(drained(&mut mine), [(1, 0)]);
    happen(&events, ME, 1);
    assert_eq!(drained(&mut mine), [(2, 0)]);
    events.publish_to_all(EventKind::DaemonDraining, &Vec::new());
    assert_eq!(drained(&mut mine), [(3, 0)], "what the daemon does is told to each, in its own numbers");
    assert_eq!(drained(&mut others).last(), Some(&(1001, 0)));
}

/// G39: a reader that never reads holds nothing but its place; one that is stopped finds what is left.
#[tokio::test]
async fn g39_readers_cost_nothing() {
    let events = events(16);
    let idle: Vec<_> = (0..1000).map(|_| events.read(ME, following())).collect();
    let waiting = tokio::spawn({
        let mut stream = events.read(ME, following());
        async move { stream.next().await.map(|told| told.event.seq) }
    });
    tokio::task::yield_now().await;
    happen(&events, ME, 100_000);
    assert!(waiting.await.unwrap().is_some(), "one that waits is woken");
    for mut stream in idle {
        assert_eq!(drained(&mut stream).first(), Some(&(99_985, 99_984)));
        stream.finish();
        assert_eq!(poll(&mut stream), Poll::Ready(None));
    }
}
