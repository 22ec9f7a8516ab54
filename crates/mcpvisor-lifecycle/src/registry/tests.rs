//! Limits and takeover, which the tables and scenarios with one user and one limit do not reach.
use super::*;
use crate::breaker::{Broken, SpecDigest};
use crate::session::{CloseReason, Ended};
use crate::{BreakerConfig, Tenant};
use std::time::Duration;

const NOW: Moment = Moment(1_000);

fn config(total: usize, user: usize, tenant: usize) -> RegistryConfig {
    RegistryConfig {
        max_sessions: total,
        max_sessions_per_user: user,
        max_sessions_per_tenant: tenant,
        tombstones: 10,
        tombstone_age: Duration::from_secs(60),
        breaker: BreakerConfig::default(),
        ..RegistryConfig::default()
    }
}

fn key(uid: u32, text: &str) -> KeyRef {
    KeyRef { uid: Uid(uid), key: SessionKey::new(text).unwrap() }
}

fn open(request: u64, key: KeyRef, tenant: Option<&str>) -> RegistryEvent {
    RegistryEvent::Open(Open {
        request: RequestId(request),
        key,
        tenant: tenant.map(|text| Tenant::new(text).unwrap()),
        parent: None,
        quota: Quota::default(),
        queue: None,
        definition: 7,
        if_closing: IfClosing::Wait,
        if_open: IfOpen::Join,
        direct: false,
        wait: true,
        deadline: None,
        specs: Vec::new(),
    })
}

/// A session whose servers were changed is joined by opens of what it is now, and of an older generation nothing changes.
#[test]
fn g3_a_session_is_what_it_was_last_said_to_be() {
    let mut registry = Registry::new(config(9, 9, 9));
    let _ = registry.step(NOW, open(1, key(1, "a"), None));
    let ready = RegistryEvent::SessionReady { session: session(1, 1) };
    let _ = registry.step(NOW, ready);
    let late = RegistryEvent::Redefine { session: session(1, 9), definition: 8 };
    assert_eq!(registry.step(NOW, late), []);
    let joined = registry.step(NOW, open(2, key(1, "a"), None));
    assert!(refused(&joined).is_none(), "{joined:?}");
    assert_eq!(registry.step(NOW, RegistryEvent::Redefine { session: session(1, 1), definition: 8 }), []);
    let other = registry.step(NOW, open(3, key(1, "a"), None));
    assert!(matches!(refused(&other), Some(Refusal::SessionExists { .. })), "{other:?}");
}

fn session(uid: u32, generation: u64) -> SessionId {
    SessionId { uid: Uid(uid), generation: Generation(generation) }
}

fn close(request: u64, key: KeyRef) -> RegistryEvent {
    RegistryEvent::Close {
        request: RequestId(request),
        target: Target { key, generation: None },
        options: CloseOptions::default(),
        wait: true,
        deadline: None,
    }
}

fn full(scope: CapacityScope, used: usize, limit: usize) -> Refusal {
    // Nothing is known of when a session ends here.
    Refusal::CapacityExhausted { scope, used, limit, retry_after: Duration::from_secs(1) }
}

fn refused(effects: &[RegistryEffect]) -> Option<&Refusal> {
    effects.iter().find_map(|effect| match effect {
        RegistryEffect::Reply { result: Err(refusal), .. } => Some(refusal),
        _ => None,
    })
}

fn starts(effects: &[RegistryEffect]) -> bool {
    effects.iter().any(|effect| matches!(effect, RegistryEffect::Start { .. }))
}

/// G6: the limits hold in total, per user and per tenant of one user, and are refused in that order.
#[test]
fn g6_each_limit_is_counted_on_its_own() {
    let mut registry = Registry::new(config(4, 3, 2));
    let mut number = 0;
    let mut next = |registry: &mut Registry, uid, tenant| {
        number += 1;
        registry.step(NOW, open(number, key(uid, &format!("k{number}")), tenant))
    };
    for _ in 0..2 {
        assert!(starts(&next(&mut registry, 1, Some("t"))));
    }
    let effects = next(&mut registry, 1, Some("t"));
    assert_eq!(refused(&effects), Some(&full(CapacityScope::Tenant, 2, 2)));
    assert!(starts(&next(&mut registry, 1, None)));
    let effects = next(&mut registry, 1, Some("u"));
    assert_eq!(refused(&effects), Some(&full(CapacityScope::User, 3, 3)));
    // A tenant of the same name below another user is another tenant.
    assert!(starts(&next(&mut registry, 2, Some("t"))));
    let effects = next(&mut registry, 2, None);
    assert_eq!(refused(&effects), Some(&full(CapacityScope::Total, 4, 4)));
    // G7: an end frees one slot of each.
    let ended = RegistryEvent::SessionEnded { session: session(1, 1), ended: Ended::Closed };
    let _ = registry.step(NOW, ended);
    assert!(starts(&next(&mut registry, 1, Some("t"))));
    assert_eq!(registry.counts().starting, 4);
}

/// G6: new limits bind what is admitted from now on, and end nothing.
#[test]
fn g6_lower_limits_end_no_session() {
    let mut registry = Registry::new(config(2, 2, 2));
    for number in 1..=2 {
        let _ = registry.step(NOW, open(number, key(1, &format!("k{number}")), None));
    }
    assert_eq!(registry.step(NOW, RegistryEvent::Reconfigure(config(1, 1, 1))), []);
    let effects = registry.step(NOW, open(3, key(1, "k3"), None));
    assert_eq!(refused(&effects), Some(&full(CapacityScope::Total, 2, 1)));
    assert_eq!(registry.counts().limit, 1);
}

/// A session of `tenant` that is torn down, with an open of `parked` that waits for its key.
fn parked(limits: RegistryConfig, tenant: &str, parked: &str) -> Registry {
    let mut registry = Registry::new(limits);
    let _ = registry.step(NOW, open(1, key(1, "other"), Some("t")));
    let _ = registry.step(NOW, open(2, key(1, "k"), Some(tenant)));
    let _ = registry.step(NOW, RegistryEvent::SessionReady { session: session(1, 2) });
    let _ = registry.step(NOW, close(3, key(1, "k")));
    assert_eq!(registry.step(NOW, open(4, key(1, "k"), Some(parked))), []);
    registry
}

/// G6: the slot passes to the parked open before anybody else, even where the limits were lowered meanwhile; only
/// another tenant's limit is looked at.
#[test]
fn g6_a_parked_open_takes_its_predecessors_slot() {
    let end = RegistryEvent::SessionEnded { session: session(1, 2), ended: Ended::Closed };
    let mut same = parked(config(2, 2, 1), "u", "u");
    let _ = same.step(NOW, RegistryEvent::Reconfigure(config(1, 1, 0)));
    assert!(starts(&same.step(NOW, end.clone())));
    assert_eq!(same.current(&key(1, "k")), Some((session(1, 3), Phase::Starting)));
    let mut other = parked(config(2, 2, 1), "u", "t");
    let effects = other.step(NOW, end);
    assert_eq!(refused(&effects), Some(&full(CapacityScope::Tenant, 1, 1)));
    assert_eq!((other.current(&key(1, "k")), other.is_parked(&key(1, "k"))), (None, false));
    assert_eq!(other.waiting_requests(), 1, "of the open of the other key");
}

fn left_behind(session: SessionId, direct: bool) -> Left {
    Left { session, key: key(1, "k"), tenant: None, quota: Quota::default(), direct }
}

/// G39: who waits for a direct session's end is told of its quarantine, also by a registry that took it over; every other
/// wait goes on.
#[test]
fn g39_a_wait_for_a_direct_session_is_answered_at_its_quarantine() {
    let id = session(1, 7);
    let wait = |request| RegistryEvent::Wait {
        request: RequestId(request),
        target: Target { key: key(1, "k"), generation: None },
        goal: Goal::Closed,
        deadline: None,
    };
    let told = |request| RegistryEffect::Reply {
        request: RequestId(request),
        result: Ok(Answer::Quarantined { session: id }),
    };
    for direct in [false, true] {
        let mut registry = Registry::recover(config(1, 1, 1), vec![left_behind(id, direct)], vec![]);
        assert_eq!(registry.step(NOW, wait(1)), [], "direct: {direct}");
        let effects = registry.step(NOW, RegistryEvent::SessionQuarantined { session: id });
        assert_eq!(effects == [told(1)], direct, "{effects:?}");
        let effects = registry.step(NOW, wait(2));
        assert_eq!(effects == [told(2)], direct, "{effects:?}");
        assert_eq!(registry.waiting_requests(), if direct { 0 } else { 2 });
    }
}

/// G36: what a former registry left blocks its keys and slots until it is gone; generations go on.
#[test]
fn g36_what_is_recovered_blocks_its_key_until_it_is_gone() {
    let left = session(1, 7);
    let mut registry =
        Registry::recover(config(1, 1, 1), vec![left_behind(left, false)], vec![(Uid(1), Generation(3))]);
    assert_eq!(registry.current(&key(1, "k")), Some((left, Phase::Dying)));
    let effects = registry.step(NOW, open(1, key(1, "x"), None));
    assert_eq!(refused(&effects), Some(&full(CapacityScope::Total, 1, 1)));
    assert_eq!(registry.step(NOW, open(2, key(1, "k"), None)), [], "it parks");
    // There is no actor to hurry or to ask for another kill.
    assert_eq!(registry.step(NOW, close(3, key(1, "k"))), []);
    let effects = registry.step(NOW, RegistryEvent::SessionQuarantined { session: left });
    assert_eq!(refused(&effects), Some(&Refusal::Quarantined { session: left }));
    let effects = registry.step(NOW, close(4, key(1, "k")));
    assert_eq!(effects, [RegistryEffect::ReapLost { session: left }]);
    let _ = registry.step(NOW, RegistryEvent::SessionEnded { session: left, ended: Ended::Failed });
    assert!(starts(&registry.step(NOW, open(5, key(1, "k"), None))));
    assert_eq!(
        registry.current(&key(1, "k")),
        Some((session(1, 8), Phase::Starting)),
        "no number comes twice"
    );
}

/// G40: a user's generations and keys are that user's alone.
#[test]
fn g40_users_share_neither_keys_nor_numbers() {
    let mut registry = Registry::new(config(9, 9, 9));
    for (number, uid) in [(1, 1), (2, 2), (3, 1)] {
        let _ = registry.step(NOW, open(number, key(uid, &format!("k{uid}-{number}")), None));
    }
    let of = |uid| registry.sessions(Some(Uid(uid))).into_iter().map(|(id, _, _)| id).collect::<Vec<_>>();
    assert_eq!(of(1), [session(1, 1), session(1, 2)]);
    assert_eq!(of(2), [session(2, 1)]);
    assert_eq!(registry.sessions(None).len(), 3);
    assert_eq!(registry.find(&Target { key: key(2, "k1-1"), generation: None }), None);
}

/// G24: a start that nobody waits for belongs to the open that did not wait, and to nobody's patience.
#[test]
fn g24_an_open_that_does_not_wait_holds_the_start() {
    let mut registry = Registry::new(config(9, 9, 9));
    let _ = registry.step(NOW, open(1, key(1, "k"), None));
    let RegistryEvent::Open(mut held) = open(2, key(1, "k"), None) else { unreachable!("it is an open") };
    held.wait = false;
    let effects = registry.step(NOW, RegistryEvent::Open(held));
    let answer = Answer::Opened { session: session(1, 1), created: false };
    assert_eq!(effects, [RegistryEffect::Reply { request: RequestId(2), result: Ok(answer) }]);
    assert_eq!(registry.step(NOW, RegistryEvent::Cancel { request: RequestId(1) }), []);
    assert_eq!(registry.current(&key(1, "k")), Some((session(1, 1), Phase::Starting)));
    let wanted = RegistryEvent::CloseWanted { session: session(1, 1), reason: CloseReason::Ttl };
    assert!(matches!(&registry.step(NOW, wanted)[..], [RegistryEffect::Close { .. }]));
}

/// G7: an opener that gives up while its answer is on the way leaves no session that nobody was told of; others keep theirs.
#[test]
fn g7_an_opener_that_gives_up_late_leaves_nothing() {
    let started = |others: &[u64]| {
        let mut registry = Registry::new(config(9, 9, 9));
        let _ = registry.step(NOW, open(1, key(1, "k"), None));
        for other in others {
            let _ = registry.step(NOW, open(*other, key(1, "k"), None));
        }
        let ready = registry.step(NOW, RegistryEvent::SessionReady { session: session(1, 1) });
        assert_eq!(ready.len(), 1 + others.len(), "all are answered");
        registry
    };
    let cancel = |number| RegistryEvent::Cancel { request: RequestId(number) };
    let closes = |effects: &[RegistryEffect]| {
        matches!(effects, [RegistryEffect::Close { reason: CloseReason::StartCancelled, .. }])
    };
    let mut alone = started(&[]);
    assert!(closes(&alone.step(NOW, cancel(1))));
    assert_eq!(alone.step(NOW, cancel(1)), [], "once");
    let mut shared = started(&[2]);
    assert_eq!(shared.step(NOW, cancel(1)), []);
    assert!(closes(&shared.step(NOW, cancel(2))), "the last one");
    let mut joined = started(&[]);
    assert_eq!(joined.step(NOW, open(2, key(1, "k"), None)).len(), 1);
    assert_eq!(joined.step(NOW, cancel(1)), []);
    assert_eq!(joined.current(&key(1, "k")), Some((session(1, 1), Phase::Live)));
    let mut used = started(&[]);
    assert_eq!(used.step(NOW, RegistryEvent::Used { session: session(1, 1) }), []);
    assert_eq!(used.step(NOW, cancel(1)), []);
    assert_eq!(used.current(&key(1, "k")), Some((session(1, 1), Phase::Live)));
    let mut above = started(&[]);
    let RegistryEvent::Open(child) = open(2, key(1, "child"), None) else { unreachable!() };
    let child = Open { parent: Some(key(1, "k").key), ..child };
    assert!(starts(&above.step(NOW, RegistryEvent::Open(child))));
    assert_eq!(above.step(NOW, cancel(1)), []);
    assert_eq!(above.current(&key(1, "k")), Some((session(1, 1), Phase::Live)));
}

/// G6: of several sessions of one user, each gives back its own slot and no other's.
#[test]
fn g6_each_session_gives_back_its_own_slot() {
    let mut registry = Registry::new(config(9, 2, 2));
    for number in 1..=2 {
        assert!(starts(&registry.step(NOW, open(number, key(1, &format!("k{number}")), Some("t")))));
    }
    let _ = registry.step(NOW, close(3, key(1, "k1")));
    let ended = RegistryEvent::SessionEnded { session: session(1, 1), ended: Ended::Closed };
    let _ = registry.step(NOW, ended);
    assert!(starts(&registry.step(NOW, open(4, key(1, "k3"), None))));
    let effects = registry.step(NOW, open(5, key(1, "k4"), None));
    assert_eq!(refused(&effects), Some(&full(CapacityScope::User, 2, 2)), "k2 and k3 are there");
}

/// G10: a wait whose deadline is past is answered in its own step; one whose deadline is to come waits.
#[test]
fn g10_a_wait_without_patience_is_answered_at_once() {
    let mut registry = Registry::new(config(9, 9, 9));
    let _ = registry.step(NOW, open(1, key(1, "k"), None));
    let mut wait = |request: u64, deadline: u64| {
        let target = Target { key: key(1, "k"), generation: None };
        let deadline = Some(Moment(deadline));
        registry.step(
            NOW,
            RegistryEvent::Wait { request: RequestId(request), target, goal: Goal::Closed, deadline },
        )
    };
    let not_yet = |request| RegistryEffect::Reply {
        request: RequestId(request),
        result: Ok(Answer::NotYet { session: session(1, 1) }),
    };
    assert_eq!(wait(2, NOW.0 - 1), [not_yet(2)]);
    assert_eq!(wait(3, NOW.0), [not_yet(3)]);
    assert_eq!(wait(4, NOW.0 + 1), []);
}

/// G3: a target means the generation that holds the key, one that is over, or nothing.
#[test]
fn g3_a_target_is_current_stale_or_unknown() {
    let mut registry = Registry::new(RegistryConfig { tombstones: 0, ..config(9, 9, 9) });
    let target =
        |generation: Option<u64>| Target { key: key(1, "k"), generation: generation.map(Generation) };
    assert_eq!(registry.resolve(&target(None)), Err(Refusal::NotFound));
    for number in 1..=2 {
        let _ = registry.step(NOW, open(number, key(1, "k"), None));
        let _ = registry.step(NOW, close(number + 10, key(1, "k")));
        let session = session(1, number);
        let _ = registry.step(NOW, RegistryEvent::SessionEnded { session, ended: Ended::Closed });
    }
    let _ = registry.step(NOW, open(3, key(1, "k"), None));
    assert_eq!(registry.resolve(&target(None)), Ok(session(1, 3)));
    assert_eq!(registry.resolve(&target(Some(3))), Ok(session(1, 3)));
    for older in 1..=2 {
        let stale = Refusal::StaleGeneration { session: session(1, older) };
        assert_eq!(registry.resolve(&target(Some(older))), Err(stale));
    }
    assert_eq!(registry.resolve(&target(Some(4))), Err(Refusal::NotFound));
}

/// G35: the fence is told while it stands, and not before.
#[test]
fn g35_a_fence_is_told() {
    for event in [RegistryEvent::Fence, RegistryEvent::Shutdown { urgency: Urgency::Drain }] {
        let mut registry = Registry::new(config(9, 9, 9));
        assert!(!registry.is_fenced());
        let _ = registry.step(NOW, event);
        assert!(registry.is_fenced());
    }
}

/// G29: an open is refused, and leaves no trace, while the breaker of one of its servers is open; a key that is open is joined all
/// the same; a parked open is refused when its turn comes; a reload closes all.
#[test]
fn g29_g9_an_open_breaker_refuses_what_would_start() {
    let breaker =
        BreakerConfig { failures: 1, period: Duration::from_secs(60), wait: Duration::from_secs(30) };
    let limits = RegistryConfig { breaker, ..config(9, 9, 9) };
    let mut registry = Registry::new(limits.clone());
    let spec = SpecDigest(5);
    let with = |request, name: &str| match open(request, key(1, name), None) {
        RegistryEvent::Open(open) => RegistryEvent::Open(Open { specs: vec![spec], ..open }),
        other => other,
    };
    // One that lives, one that is being closed, and one that fails.
    let _ = registry.step(NOW, with(1, "live"));
    let _ = registry.step(NOW, RegistryEvent::SessionReady { session: session(1, 1) });
    let _ = registry.step(NOW, with(2, "dying"));
    let _ = registry.step(NOW, close(3, key(1, "dying")));
    let late = RegistryEvent::StartFailed { session: session(1, 2), spec };
    assert_eq!(registry.step(NOW, late), [], "what fails under a teardown does not count");
    assert_eq!(registry.step(NOW, with(4, "dying")), [], "parked");
    let _ = registry.step(NOW, with(5, "failing"));
    let failed = session(1, 3);
    let opened = [RegistryEffect::Breaker { session: failed, open: true }];
    assert_eq!(registry.step(NOW, RegistryEvent::StartFailed { session: failed, spec }), opened);
    assert_eq!(registry.open_breakers(), 1);
    let _ = registry.step(NOW, RegistryEvent::SessionEnded { session: failed, ended: Ended::Failed });
    let before = registry.clone();
    let retry_after = breaker.wait;
    let broken = Refusal::Broken(Broken { spec, last: failed, trying: false, retry_after });
    let effects = registry.step(NOW, with(6, "failing"));
    assert_eq!(refused(&effects), Some(&broken));
    assert_eq!(registry, before, "G9: not even a generation is used up");
    let joined = registry.step(NOW, with(7, "live"));
    assert!(refused(&joined).is_none() && !starts(&joined), "{joined:?}");
    let end = RegistryEvent::SessionEnded { session: session(1, 2), ended: Ended::Closed };
    let effects = registry.step(NOW, end);
    let parked = RegistryEffect::Reply { request: RequestId(4), result: Err(broken) };
    assert!(effects.contains(&parked), "when its turn comes: {effects:?}");
    assert!(!starts(&effects) && registry.current(&key(1, "dying")).is_none());
    // The one that may try, and what closes the breaker.
    let due = NOW.after(breaker.wait);
    assert!(starts(&registry.step(due, with(8, "failing"))));
    let trying =
        Refusal::Broken(Broken { spec, last: failed, trying: true, retry_after: Duration::from_secs(1) });
    assert_eq!(refused(&registry.step(due, with(9, "other"))), Some(&trying));
    let effects = registry.step(due, RegistryEvent::SessionReady { session: session(1, 4) });
    assert_eq!(effects[0], RegistryEffect::Breaker { session: session(1, 4), open: false });
    assert!(starts(&registry.step(due, with(10, "other"))));
    let _ = registry.step(due, RegistryEvent::StartFailed { session: session(1, 5), spec });
    assert_eq!(registry.open_breakers(), 1);
    let _ = registry.step(due, RegistryEvent::Reconfigure(limits));
    assert_eq!(registry.open_breakers(), 0);
}
