use super::*;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;

fn counter() -> (Arc<AtomicU64>, Box<dyn FnOnce() + Send>) {
    let calls = Arc::new(AtomicU64::new(0));
    let called = calls.clone();
    (
        calls,
        Box::new(move || {
            called.fetch_add(1, SeqCst);
        }),
    )
}

#[test]
fn an_empty_gate_tells_at_once() {
    let (calls, on_empty) = counter();
    let gate = Gate::default();
    gate.close(on_empty);
    assert_eq!(calls.load(SeqCst), 1);
    assert_eq!(gate.admit().err(), Some(Shut::Closed));
}

#[test]
fn the_last_permit_tells_and_the_ends_are_counted() {
    let (calls, on_empty) = counter();
    let gate = Gate::default();
    gate.admit().unwrap().finish();
    let permits: Vec<Permit> = (0..3).map(|_| gate.admit().unwrap()).collect();
    gate.close(on_empty);
    assert_eq!((gate.in_flight(), gate.drained()), (3, Drained::default()));
    let mut permits = permits.into_iter();
    permits.next().unwrap().finish();
    permits.next().unwrap().cancel();
    assert_eq!(calls.load(SeqCst), 0);
    drop(permits.next());
    assert_eq!(calls.load(SeqCst), 1);
    assert_eq!((gate.in_flight(), gate.drained()), (0, Drained { finished: 1, cancelled: 2 }));
}

#[test]
fn every_closer_is_told() {
    let gate = Gate::default();
    let permit = gate.admit().unwrap();
    let closers: Vec<_> = (0..3)
        .map(|_| {
            let (calls, on_empty) = counter();
            gate.close(on_empty);
            calls
        })
        .collect();
    permit.finish();
    let (late, on_empty) = counter();
    gate.close(on_empty);
    for calls in closers.iter().chain([&late]) {
        assert_eq!(calls.load(SeqCst), 1);
    }
}

#[test]
fn a_callback_may_use_the_gate() {
    let gate = Gate::default();
    let again = gate.clone();
    gate.close(Box::new(move || {
        assert_eq!((again.in_flight(), again.admit().err()), (0, Some(Shut::Closed)));
    }));
}

/// G11: threads call in a loop while another closes. Each admitted call ends once, none is admitted after the close has
/// returned, and the gate tells exactly once, when nothing is in flight.
///
/// Negative controls: with `admit` reading `closed` under one lock and counting under another, the check "nothing in flight
/// when told" fails within a few hundred rounds; with `close` reading the count before it sets `closed`, a round ends without
/// `on_empty` having been called.
#[test]
fn calls_race_a_close() {
    const CALLERS: u64 = 4;
    let (mut raced, mut at_once) = (0, 0);
    for round in 0..2000u64 {
        let gate = Gate::default();
        let start = Barrier::new(CALLERS as usize + 1);
        let told = Arc::new(AtomicU64::new(0));
        let closed = AtomicU64::new(0);
        let after_close: u64 = thread::scope(|scope| {
            let callers: Vec<_> = (0..CALLERS)
                .map(|caller| {
                    let (gate, start, told, closed) = (&gate, &start, &told, &closed);
                    scope.spawn(move || {
                        start.wait();
                        let mut drained = 0;
                        for call in 0.. {
                            let closed_before = closed.load(SeqCst) == 1;
                            let Ok(permit) = gate.admit() else { break };
                            assert!(!closed_before, "admitted after the close had returned");
                            assert_eq!(told.load(SeqCst), 0, "told with a call in flight");
                            if (call + caller) % 3 == 0 {
                                thread::yield_now();
                            }
                            drained += u64::from(gate.0.state.lock().unwrap().closed);
                            if call % 2 == 0 { permit.finish() } else { permit.cancel() }
                        }
                        drained
                    })
                })
                .collect();
            start.wait();
            for _ in 0..round % 50 {
                std::hint::spin_loop();
            }
            let (counted, seen) = (told.clone(), gate.clone());
            gate.close(Box::new(move || {
                assert_eq!(seen.in_flight(), 0);
                counted.fetch_add(1, SeqCst);
            }));
            closed.store(1, SeqCst);
            at_once += told.load(SeqCst);
            callers.into_iter().map(|caller| caller.join().unwrap()).sum()
        });
        assert_eq!((told.load(SeqCst), gate.in_flight()), (1, 0));
        let Drained { finished, cancelled } = gate.drained();
        assert!(finished + cancelled >= after_close);
        assert!(finished + cancelled <= CALLERS);
        raced += u64::from(finished + cancelled > 0);
    }
    assert!(raced > 0 && at_once > 0, "the sweep told no outcomes apart: {raced} raced, {at_once} at once");
}

/// G32: who wants to know of the end of what is going on is told once, of calls and of clients.
#[test]
fn g32_quiet_is_told_once_after_a_look() {
    let gate = Gate::default();
    let (calls, on_quiet) = counter();
    assert!(!gate.look(on_quiet).busy);
    gate.admit().unwrap().finish();
    assert_eq!(calls.load(SeqCst), 0, "it was quiet when it was looked at");
    let (permit, presence) = (gate.admit().unwrap(), gate.enter().unwrap());
    let before = gate.seen();
    let (calls, on_quiet) = counter();
    assert!(gate.look(on_quiet).busy);
    permit.finish();
    assert_eq!(calls.load(SeqCst), 0, "a client is there still");
    drop(presence);
    assert_eq!(calls.load(SeqCst), 1);
    let after = gate.seen();
    assert!(!after.busy && after.last >= before.last);
    gate.admit().unwrap().cancel();
    assert_eq!(calls.load(SeqCst), 1, "once");
}

/// G32: of a thousand calls that race the end of an idle session each is before it, and there is no end, or is refused.
#[test]
fn g32_calls_race_the_end_for_idleness() {
    let (mut won, mut refused) = (0, 0);
    for round in 0..1_000_u32 {
        let gate = Gate::default();
        let start = Barrier::new(2);
        let (admitted, retired) = thread::scope(|scope| {
            let caller = scope.spawn(|| {
                start.wait();
                (0..round % 50).for_each(|_| std::hint::spin_loop());
                if round % 2 == 0 { gate.admit().map(Permit::finish).is_ok() } else { gate.enter().is_ok() }
            });
            let seen = gate.seen();
            start.wait();
            let retired = gate.retire(|now| now == seen);
            (caller.join().unwrap(), retired)
        });
        assert!(admitted != retired, "round {round}: a call is lost, or a session is closed that was used");
        if admitted { won += 1 } else { refused += 1 }
    }
    assert!(won > 0 && refused > 0, "one order was seen only: {won}, {refused}");
}

/// Parked, the gate lets nobody in and nobody off: who comes is told so, until it is opened, refused or closed.
#[test]
fn a_parked_gate_is_not_a_closed_one() {
    let gate = Gate::default();
    let permit = gate.admit().unwrap();
    assert!(!gate.park(|_| true), "a call is in flight");
    permit.finish();
    assert!(!gate.park(|_| false) && gate.park(|_| true) && gate.is_parked());
    assert_eq!((gate.admit().err(), gate.enter().err()), (Some(Shut::Parked), Some(Shut::Parked)));
    gate.unpark();
    gate.admit().unwrap().finish();
    assert!(gate.park(|_| true));
    gate.refuse();
    assert_eq!(gate.admit().err(), Some(Shut::Refused));
    let (calls, on_empty) = counter();
    gate.close(on_empty);
    assert_eq!((gate.admit().err(), calls.load(SeqCst), gate.is_parked()), (Some(Shut::Closed), 1, false));
    assert!(!gate.park(|_| true) && !gate.retire(|_| true));
}
