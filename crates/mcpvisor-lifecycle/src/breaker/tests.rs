//! Counting, several servers and users, and bounds, which the table does not reach.
use super::*;
use crate::Generation;

const SECOND: u64 = 1_000_000;
const A: SpecDigest = SpecDigest(1);
const B: SpecDigest = SpecDigest(2);

fn config() -> BreakerConfig {
    BreakerConfig { failures: 3, period: Duration::from_secs(60), wait: Duration::from_secs(30) }
}

fn session(uid: u32, generation: u64) -> SessionId {
    SessionId { uid: Uid(uid), generation: Generation(generation) }
}

/// Fails `times` times from `now` on, a second apart; the moment after that.
fn fail(breakers: &mut Breakers, now: u64, times: u64) -> Moment {
    for number in 0..times {
        let _ = breakers.failed(Moment(now + number * SECOND), &config(), session(1, number), A);
    }
    Moment(now + (times - 1) * SECOND)
}

/// G29: failures count inside the period alone, and a good start begins anew.
#[test]
fn g29_failures_are_counted_in_the_period_and_since_the_last_good_start() {
    let mut breakers = Breakers::default();
    fail(&mut breakers, 0, 2);
    fail(&mut breakers, 60 * SECOND, 2);
    assert_eq!(breakers.state(Uid(1), A), BreakerState::Closed, "one of the first is too old by then");
    assert!(!breakers.succeeded(Uid(1), &[A]), "it was closed");
    fail(&mut breakers, 62 * SECOND, 2);
    assert_eq!(breakers.state(Uid(1), A), BreakerState::Closed);
    assert!(breakers.failed(Moment(64 * SECOND), &config(), session(1, 9), A));
    assert_eq!(breakers.open(), 1);
    assert!(breakers.succeeded(Uid(1), &[A]), "one that began before closes it as well");
    assert_eq!(breakers, Breakers::default());
}

/// G29: while one is open nothing starts; then one session tries, and the others wait for what comes of it.
#[test]
fn g29_one_session_tries_when_the_time_is_over() {
    let mut breakers = Breakers::default();
    let opened = fail(&mut breakers, 0, 3);
    let broken = breakers.check(opened, Uid(1), &[B, A]).unwrap_err();
    let wait = config().wait;
    assert_eq!(broken, Broken { spec: A, last: session(1, 2), trying: false, retry_after: wait });
    assert_eq!(breakers.check(opened, Uid(1), &[B]), Ok(()), "another server");
    assert_eq!(breakers.check(opened, Uid(2), &[A]), Ok(()), "another user's is his own");
    let due = opened.after(wait);
    assert_eq!(breakers.check(due, Uid(1), &[A]), Ok(()));
    breakers.started(due, session(1, 20), &[A, B]);
    assert!(breakers.check(due, Uid(1), &[A]).unwrap_err().trying);
    // A start from before tells nothing of this one.
    assert!(!breakers.failed(due, &config(), session(1, 3), A));
    assert_eq!(breakers.state(Uid(1), A), BreakerState::HalfOpen);
    // The trial was cancelled: the next one may try.
    breakers.ended(due, session(1, 20), &[A, B]);
    assert_eq!(breakers.check(due, Uid(1), &[A]), Ok(()));
    breakers.started(due, session(1, 21), &[A]);
    assert!(breakers.failed(due, &config(), session(1, 21), A), "one failure of the trial is enough");
    assert_eq!(breakers.check(due, Uid(1), &[A]).unwrap_err().retry_after, wait);
    // Its end comes after its failure, and opens nothing.
    breakers.ended(due, session(1, 21), &[A]);
    assert_eq!(breakers.check(due, Uid(1), &[A]).unwrap_err().retry_after, wait);
}

/// Zero failures are no breaker at all.
#[test]
fn without_a_number_none_opens() {
    let mut breakers = Breakers::default();
    for generation in 0..100 {
        assert!(!breakers.failed(Moment(1), &BreakerConfig::default(), session(1, generation), A));
    }
    assert_eq!(breakers, Breakers::default());
}

/// G43: a user has so many breakers and no more; the one that was touched longest ago goes.
#[test]
fn g43_breakers_are_bounded_for_each_user() {
    let mut breakers = Breakers::default();
    let _ = breakers.failed(Moment(0), &config(), session(2, 1), A);
    for number in 0..=MOST_PER_USER as u64 {
        let _ = breakers.failed(Moment(number), &config(), session(1, number), SpecDigest(number));
    }
    assert_eq!(breakers.all.len(), MOST_PER_USER + 1, "and the other user's");
    assert!(!breakers.all.contains_key(&(Uid(1), SpecDigest(0))), "the oldest made room");
    assert!(breakers.all.contains_key(&(Uid(2), A)));
}
