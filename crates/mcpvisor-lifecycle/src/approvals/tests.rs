use super::*;
use std::collections::BTreeMap;

fn server(which: u64) -> ServerName {
    ServerName::new(&format!("s{which}")).unwrap()
}

const VERDICTS: [Verdict; 4] = [Verdict::Approved, Verdict::Denied, Verdict::TimedOut, Verdict::Withdrawn];

#[test]
fn the_first_decision_stands_and_the_second_hears_of_it() {
    for first in VERDICTS {
        for second in VERDICTS {
            let mut approvals = Approvals::default();
            let number = approvals.hold(&server(1), true).unwrap();
            assert_eq!(approvals.decide(number, first), Decided::Now);
            assert_eq!(approvals.decide(number, second), Decided::Before(first));
            assert_eq!(approvals.close(), []);
            assert_eq!(approvals.decide(number, second), Decided::Before(first));
            assert_eq!(approvals.held(), 0);
        }
    }
}

#[test]
fn a_call_that_was_never_held_is_unknown() {
    let mut approvals = Approvals::default();
    assert_eq!(approvals.decide(HoldNumber(1), Verdict::Approved), Decided::Unknown);
    let number = approvals.hold(&server(1), true).unwrap();
    assert_eq!(number, HoldNumber(1), "a decision before it was held is none");
    assert_eq!(approvals.decide(number, Verdict::Denied), Decided::Now);
}

/// G19: what is held at a close is denied with the close as its reason, and nothing is held afterwards.
#[test]
fn g19_a_close_ends_what_is_held() {
    let mut approvals = Approvals::default();
    let held: Vec<_> = (0..3).map(|_| approvals.hold(&server(1), true).unwrap()).collect();
    approvals.decide(held[1], Verdict::Approved);
    assert_eq!(approvals.close(), [held[0], held[2]]);
    assert_eq!(approvals.hold(&server(1), true), Err(NotHeld::Closed));
    assert_eq!(approvals.decide(held[0], Verdict::Approved), Decided::Before(Verdict::Closed));
    assert_eq!(approvals.decide(held[1], Verdict::Denied), Decided::Before(Verdict::Approved));
    assert_eq!(approvals.close(), []);
}

/// G19: what is held for a server that is removed is denied with that as its reason, and nothing is held for it afterwards; others are left
/// alone, and one of the same name that comes later is another. Without the look at whether it is there, a call that found the server a moment
/// before is held for nobody.
#[test]
fn g19_a_server_that_is_removed_takes_its_held_calls_along() {
    let mut approvals = Approvals::default();
    let held: Vec<_> = [1, 2, 1].map(|of| approvals.hold(&server(of), true).unwrap()).into();
    assert_eq!(approvals.server_gone(&server(1)), [held[0], held[2]]);
    assert_eq!(approvals.decide(held[0], Verdict::Approved), Decided::Before(Verdict::ServerGone));
    assert_eq!(approvals.hold(&server(1), false), Err(NotHeld::ServerGone));
    assert_eq!(approvals.held(), 1);
    assert_eq!(approvals.decide(held[1], Verdict::Approved), Decided::Now);
    assert!(approvals.hold(&server(1), true).is_ok());
    assert_eq!(approvals.server_gone(&server(2)), []);
}

#[test]
fn what_is_held_and_what_is_remembered_is_bounded() {
    let mut approvals = Approvals::default();
    let first = approvals.hold(&server(1), true).unwrap();
    for _ in 1..MOST_HELD {
        approvals.hold(&server(1), true).unwrap();
    }
    assert_eq!(approvals.hold(&server(1), true), Err(NotHeld::Full(MOST_HELD)));
    approvals.decide(first, Verdict::Denied);
    for _ in 0..MOST_REMEMBERED {
        let number = approvals.hold(&server(1), true).unwrap();
        approvals.decide(number, Verdict::Withdrawn);
    }
    assert_eq!(approvals.decide(first, Verdict::Approved), Decided::Unknown, "it is forgotten");
    assert_eq!(approvals.close().len(), MOST_HELD - 1);
    assert!(approvals.decided.len() <= MOST_REMEMBERED);
}

/// All orders of everything that can happen to two calls and their session, up to seven steps: each call ends once, by what came first.
#[test]
fn every_order_decides_each_call_once() {
    #[derive(Clone, Copy, PartialEq)]
    enum Step {
        Hold,
        Decide(u64, Verdict),
        Gone(u64),
        Close,
    }
    // The first is held for one server, the second for another.
    let mut steps = vec![Step::Hold, Step::Close, Step::Gone(1), Step::Gone(2)];
    for verdict in [Verdict::Approved, Verdict::Denied, Verdict::Withdrawn] {
        steps.extend([Step::Decide(1, verdict), Step::Decide(2, verdict)]);
    }
    let mut worlds = vec![(Approvals::default(), BTreeMap::<u64, Option<Verdict>>::new(), false)];
    for _ in 0..7 {
        let mut next = Vec::new();
        for (approvals, known, closed) in &worlds {
            for step in &steps {
                let (mut approvals, mut known, mut closed) = (approvals.clone(), known.clone(), *closed);
                match *step {
                    Step::Hold if known.len() == 2 => continue,
                    Step::Hold => match approvals.hold(&server(known.len() as u64 + 1), true) {
                        Ok(number) => {
                            assert!(!closed);
                            assert!(known.insert(number.0, None).is_none());
                        }
                        Err(why) => assert!(closed && why == NotHeld::Closed),
                    },
                    Step::Decide(number, verdict) => {
                        let decided = approvals.decide(HoldNumber(number), verdict);
                        let wanted = match known.get(&number) {
                            None => Decided::Unknown,
                            Some(Some(first)) => Decided::Before(*first),
                            Some(None) => Decided::Now,
                        };
                        assert_eq!(decided, wanted);
                        if decided == Decided::Now {
                            known.insert(number, Some(verdict));
                        }
                    }
                    Step::Gone(of) => {
                        let gone: Vec<u64> =
                            approvals.server_gone(&server(of)).into_iter().map(|number| number.0).collect();
                        let open = known.get_mut(&of).filter(|verdict| verdict.is_none());
                        assert_eq!(gone, open.iter().map(|_| of).collect::<Vec<_>>());
                        if let Some(verdict) = open {
                            *verdict = Some(Verdict::ServerGone);
                        }
                    }
                    Step::Close => {
                        let held: Vec<u64> = approvals.close().into_iter().map(|number| number.0).collect();
                        let open: Vec<u64> =
                            known.iter().filter(|(_, of)| of.is_none()).map(|(n, _)| *n).collect();
                        assert_eq!(held, open);
                        known.values_mut().for_each(|of| *of = of.or(Some(Verdict::Closed)));
                        closed = true;
                    }
                }
                assert_eq!(approvals.held(), known.values().filter(|of| of.is_none()).count());
                next.push((approvals, known, closed));
            }
        }
        next.sort_by_key(|(approvals, ..)| format!("{approvals:?}"));
        next.dedup_by(|a, b| a.0 == b.0);
        worlds = next;
    }
    assert!(worlds.len() > 20, "the orders differ: {}", worlds.len());
}
