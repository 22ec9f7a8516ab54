//! Bounds and timers, which the table and the explored orders do not reach.
use super::*;
use std::time::Duration;

const SECOND: u64 = 1_000_000;

fn machine(per_user: usize) -> Repeats {
    let (age, grace) = (Duration::from_secs(60), Duration::from_secs(10));
    Repeats::new(RepeatsConfig { per_user, age, grace })
}

fn ask(asker: u64, uid: u32, name: &str, deadline: Option<u64>) -> RepeatsEvent {
    RepeatsEvent::Ask {
        asker: RequestId(asker),
        owner: Uid(uid),
        name: Name(name.into()),
        digest: 7,
        goes_on: false,
        deadline: deadline.map(Moment),
    }
}

fn answered(work: u64) -> RepeatsEvent {
    RepeatsEvent::Answered { work: Work(work), keep: true }
}

fn take(asker: u64) -> RepeatsEvent {
    RepeatsEvent::Take { asker: RequestId(asker) }
}

/// The memory of answers is bounded per owner, the oldest goes first, and no user pushes out another's.
#[test]
fn a_flood_of_ids_pushes_out_its_owners_own() {
    let mut machine = machine(2);
    let now = Moment(0);
    for (number, uid) in [(1, 1), (2, 2), (3, 1)] {
        let name = format!("n{number}");
        assert_eq!(
            machine.step(now, ask(number, uid, &name, None)),
            [RepeatsEffect::Begin { work: Work(number) }]
        );
        let _ = machine.step(now, answered(number));
        let _ = machine.step(now, take(number));
    }
    // The first user's second is the oldest but one by now, and the other user's is older still.
    let told = machine.step(now, ask(4, 1, "n4", None));
    assert_eq!(told, [RepeatsEffect::Forget { work: Work(1) }, RepeatsEffect::Begin { work: Work(4) }]);
    let again = machine.step(now, ask(5, 2, "n2", None));
    assert_eq!(again, [RepeatsEffect::Answer { asker: RequestId(5), work: Work(2) }]);
}

/// What is under way is never pushed out: a request that finds no place is refused, and leaves nothing.
#[test]
fn requests_under_way_keep_their_places() {
    let mut machine = machine(1);
    let _ = machine.step(Moment(0), ask(1, 1, "a", None));
    let refusal = NotRepeated::TooMany { used: 1, limit: 1 };
    let told = machine.step(Moment(0), ask(2, 1, "b", None));
    assert_eq!(told, [RepeatsEffect::Refuse { asker: RequestId(2), refusal }]);
    assert_eq!((machine.known(), machine.askers()), (1, 1));
    // An answer that nobody has taken yet keeps its place too.
    let _ = machine.step(Moment(0), answered(1));
    assert_eq!(machine.step(Moment(0), ask(3, 1, "b", None)).len(), 1);
    let _ = machine.step(Moment(0), take(1));
    assert_eq!(machine.step(Moment(0), ask(4, 1, "b", None)).len(), 2);
}

/// Each retry has a patience of its own; the work is given up with the last.
#[test]
fn deadlines_are_each_requesters_own() {
    let mut machine = machine(9);
    let _ = machine.step(Moment(0), ask(1, 1, "a", Some(5 * SECOND)));
    let _ = machine.step(Moment(0), ask(2, 1, "a", Some(8 * SECOND)));
    let late =
        |asker| RepeatsEffect::Refuse { asker: RequestId(asker), refusal: NotRepeated::DeadlineExceeded };
    assert_eq!(machine.next_timeout(), Some(Moment(5 * SECOND)));
    assert_eq!(machine.step(Moment(5 * SECOND), RepeatsEvent::Timeout), [late(1)]);
    assert_eq!(machine.next_timeout(), Some(Moment(8 * SECOND)));
    let work = Work(1);
    let told = machine.step(Moment(8 * SECOND), RepeatsEvent::Timeout);
    assert_eq!(told, [late(2), RepeatsEffect::GiveUp { work }, RepeatsEffect::Forget { work }]);
    assert_eq!(machine.next_timeout(), None);
}

/// An answer is remembered from the moment that it is there, however often it is given; a reload changes that for all.
#[test]
fn a_memory_has_its_age() {
    let mut machine = machine(9);
    let _ = machine.step(Moment(0), ask(1, 1, "a", Some(9 * SECOND)));
    let _ = machine.step(Moment(SECOND), answered(1));
    assert_eq!(machine.next_timeout(), Some(Moment(61 * SECOND)), "a deadline is over with the answer");
    let _ = machine.step(Moment(SECOND), take(1));
    let _ = machine.step(Moment(30 * SECOND), ask(2, 1, "a", None));
    let _ = machine.step(Moment(30 * SECOND), take(2));
    assert_eq!(machine.next_timeout(), Some(Moment(61 * SECOND)));
    let config = RepeatsConfig { age: Duration::from_secs(40), ..machine.config.clone() };
    let _ = machine.step(Moment(30 * SECOND), RepeatsEvent::Reconfigure(config));
    assert_eq!(machine.step(Moment(41 * SECOND - 1), RepeatsEvent::Timeout), []);
    let told = machine.step(Moment(41 * SECOND), RepeatsEvent::Timeout);
    assert_eq!(told, [RepeatsEffect::Forget { work: Work(1) }]);
    assert_eq!((machine.known(), machine.next_timeout()), (0, None));
}
