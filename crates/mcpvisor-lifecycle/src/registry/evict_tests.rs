//! Who makes room for whom, and when it may be worth to try again.
use super::*;
use crate::session::{CloseReason, Ended};
use crate::{ProfileName, Tenant};
use std::time::Duration;

const NOW: Moment = Moment(1_000_000);
const SECOND: u64 = 1_000_000;

fn config(total: usize) -> RegistryConfig {
    let evict_after = Some(Duration::from_secs(10));
    RegistryConfig { max_sessions: total, evict_after, ..RegistryConfig::default() }
}

fn lifetime() -> Lifetime {
    Lifetime { idle: Some(Duration::from_secs(30)), ttl: None, teardown: Duration::from_secs(9) }
}

fn ask(request: u64, uid: u32) -> Open {
    Open {
        request: RequestId(request),
        key: KeyRef { uid: Uid(uid), key: SessionKey::new(&format!("k{request}")).unwrap() },
        tenant: None,
        parent: None,
        quota: Quota { processes: 1, lifetime: lifetime(), ..Quota::default() },
        queue: None,
        definition: 7,
        if_closing: IfClosing::Wait,
        if_open: IfOpen::Join,
        direct: false,
        wait: true,
        deadline: None,
        specs: Vec::new(),
    }
}

fn session(uid: u32, generation: u64) -> SessionId {
    SessionId { uid: Uid(uid), generation: Generation(generation) }
}

/// Opened, and live.
fn live(registry: &mut Registry, open: Open, generation: u64) -> SessionId {
    let session = session(open.key.uid.0, generation);
    let _ = registry.step(NOW, RegistryEvent::Open(open));
    let _ = registry.step(NOW, RegistryEvent::SessionReady { session });
    assert!(registry.sessions(None).contains(&(session, registry.keys[&session].key.clone(), Phase::Live)));
    session
}

/// The sessions that are asked to make room; none where the open is answered otherwise.
fn asked(registry: &mut Registry, open: Open) -> Option<Vec<SessionId>> {
    registry.step(NOW, RegistryEvent::Open(open)).into_iter().find_map(|effect| match effect {
        RegistryEffect::Evict { among, .. } => Some(among),
        _ => None,
    })
}

/// What the requester of an open is told of the want of room.
fn full(effects: &[RegistryEffect]) -> Option<(CapacityScope, Duration)> {
    effects.iter().find_map(|effect| match effect {
        RegistryEffect::Reply {
            result: Err(Refusal::CapacityExhausted { scope, retry_after, .. }), ..
        } => Some((*scope, *retry_after)),
        _ => None,
    })
}

/// G2, G9: opens of one key, while room is made for the first of them, make no other session go; they join, or are refused as any others.
/// Without the look for room that is made already, the second open asks for another session: "it waits with the first" fails.
#[test]
fn g2_g9_opens_of_one_key_make_room_once() {
    let mut registry = Registry::new(config(2));
    let victim = live(&mut registry, ask(1, 1), 1);
    live(&mut registry, ask(2, 1), 2);
    let key = ask(3, 1).key;
    assert!(asked(&mut registry, ask(3, 1)).is_some());
    let _ = registry.step(NOW, RegistryEvent::Evicted { request: RequestId(3), session: victim });
    let joins = Open { key: key.clone(), ..ask(4, 1) };
    let fails = Open { key: key.clone(), if_open: IfOpen::Fail, ..ask(5, 1) };
    let other = Open { key: key.clone(), definition: 8, ..ask(6, 1) };
    let leaves = Open { key, ..ask(7, 1) };
    for open in [joins, fails, other, leaves] {
        assert!(registry.step(NOW, RegistryEvent::Open(open)).is_empty(), "it waits with the first");
    }
    let _ = registry.step(NOW, RegistryEvent::Cancel { request: RequestId(7) });
    let ended = registry.step(NOW, RegistryEvent::SessionEnded { session: victim, ended: Ended::Closed });
    let refused = |effects: &[RegistryEffect], number: u64| {
        effects.iter().any(|effect| {
            let RegistryEffect::Reply { request, result } = effect else { return false };
            *request == RequestId(number) && matches!(result, Err(Refusal::SessionExists { .. }))
        })
    };
    assert!(refused(&ended, 5) && refused(&ended, 6), "{ended:?}");
    let session = session(1, 3);
    let ready = registry.step(NOW, RegistryEvent::SessionReady { session });
    for (number, begins) in [(3, true), (4, false)] {
        let answer = Ok(Answer::Opened { session, created: begins });
        let reply = RegistryEffect::Reply { request: RequestId(number), result: answer };
        assert!(ready.contains(&reply), "{number}: {ready:?}");
    }
    assert_eq!(registry.counts().live, 2);
}

/// G6: the slot is the evictor's, in the step in which it is free; nobody else has it, not even a reopen of the same key.
#[test]
fn g6_an_evicted_slot_goes_to_the_one_that_it_was_evicted_for() {
    let mut registry = Registry::new(config(1));
    let one = live(&mut registry, ask(1, 1), 1);
    assert_eq!(asked(&mut registry, ask(2, 1)), Some(vec![one]));
    let request = RequestId(2);
    let effects = registry.step(NOW, RegistryEvent::Evicted { request, session: one });
    let wanted = RegistryEffect::Close {
        session: one,
        reason: CloseReason::Evicted,
        options: CloseOptions::default(),
    };
    assert_eq!(effects, [wanted]);
    assert_eq!((registry.counts().dying, registry.waiting_requests()), (1, 1));
    let reopen = Open { request: RequestId(3), key: ask(1, 1).key, ..ask(3, 1) };
    assert_eq!(registry.step(NOW, RegistryEvent::Open(reopen)), []);
    let queued = Open { queue: Some(Moment(90 * SECOND)), ..ask(4, 2) };
    assert_eq!(
        registry.step(NOW, RegistryEvent::Open(queued)),
        [RegistryEffect::Queued { request: RequestId(4), position: 1 }]
    );
    let effects = registry.step(NOW, RegistryEvent::SessionEnded { session: one, ended: Ended::Closed });
    let key = ask(2, 1).key;
    assert_eq!(effects[0], RegistryEffect::Start { session: session(1, 2), key, request });
    assert_eq!(full(&effects).map(|(scope, _)| scope), Some(CapacityScope::Total), "the reopen has no slot");
    assert_eq!((registry.counts().starting, registry.sessions(None).len()), (1, 1));
}

/// Own sessions alone, those of the scope that is full, with an idle limit, and nothing below them.
#[test]
fn g6_only_what_helps_and_may_be_closed_is_asked() {
    let profile = ProfileName::new("p").ok();
    let tenant = Tenant::new("t").ok();
    let mut registry = Registry::new(RegistryConfig { max_sessions_per_tenant: 2, ..config(7) });
    let with = |request, change: &dyn Fn(&mut Open)| {
        let mut open = ask(request, 1);
        change(&mut open);
        open
    };
    let plain = live(&mut registry, ask(1, 1), 1);
    live(&mut registry, ask(2, 2), 1);
    live(&mut registry, with(3, &|open| open.quota.lifetime.idle = None), 2);
    live(&mut registry, with(4, &|open| open.direct = true), 3);
    live(&mut registry, with(5, &|open| open.quota.administrator = true), 4);
    let parent = live(&mut registry, with(6, &|open| open.tenant.clone_from(&tenant)), 5);
    let child = with(7, &|open| {
        (open.parent, open.tenant) = (Some(ask(6, 1).key.key), tenant.clone());
    });
    let child = live(&mut registry, child, 6);
    // The total is full: any of them, but for those that may not be.
    assert_eq!(asked(&mut registry, ask(8, 1)), Some(vec![plain, child]));
    let _ = registry.step(NOW, RegistryEvent::NobodyIdle { request: RequestId(8) });
    // The tenant is full too: only its own.
    assert_eq!(asked(&mut registry, with(9, &|open| open.tenant.clone_from(&tenant))), Some(vec![child]));
    let _ = registry.step(NOW, RegistryEvent::NobodyIdle { request: RequestId(9) });
    // Nobody makes room for a session that is to be below it.
    let below = with(10, &|open| open.parent = Some(ask(1, 1).key.key));
    assert_eq!(asked(&mut registry, below), Some(vec![child]));
    let _ = registry.step(NOW, RegistryEvent::NobodyIdle { request: RequestId(10) });
    // What no end makes room for asks nobody; neither does another user who has none of those.
    let huge = with(11, &|open| open.quota.processes = 1_000);
    assert_eq!(asked(&mut registry, huge), None);
    let _ = registry.step(NOW, RegistryEvent::SessionEnded { session: session(2, 1), ended: Ended::Closed });
    live(&mut registry, with(12, &|open| open.quota.profile.clone_from(&profile)), 7);
    assert_eq!(asked(&mut registry, ask(13, 2)), None);
    assert!(registry.sessions(None).iter().any(|(id, ..)| *id == parent));
    // And where it is not configured nobody is.
    let _ = registry.step(NOW, RegistryEvent::Reconfigure(RegistryConfig { evict_after: None, ..config(7) }));
    assert_eq!(asked(&mut registry, ask(14, 1)), None);
}

/// What the requester is told follows from what is known of those that count against the limit.
#[test]
fn the_next_try_is_when_something_may_have_ended() {
    let told = |lifetimes: &[Lifetime], close: bool, uid: u32, at: u64| {
        let mut registry = Registry::new(RegistryConfig { evict_after: None, ..config(lifetimes.len()) });
        for (index, lifetime) in lifetimes.iter().enumerate() {
            let mut open = ask(index as u64 + 1, 1);
            open.quota.lifetime = *lifetime;
            live(&mut registry, open, index as u64 + 1);
        }
        if close {
            let reason = CloseReason::LeaseEnded;
            let _ = registry.step(NOW, RegistryEvent::CloseWanted { session: session(1, 1), reason });
        }
        let now = Moment(NOW.0 + at * SECOND / 1000);
        full(&registry.step(now, RegistryEvent::Open(ask(99, uid)))).expect("it is full").1.as_millis()
    };
    let none = Lifetime::default();
    let ttl = |seconds| Lifetime { ttl: Some(Duration::from_secs(seconds)), ..none };
    let (idle, dying) = (lifetime(), Lifetime { teardown: Duration::from_secs(9), ..none });
    assert_eq!(told(&[none], false, 1, 0), 1_000, "nothing is known");
    assert_eq!(told(&[ttl(20), ttl(7), none], false, 1, 0), 7_000, "the soonest");
    assert_eq!(told(&[ttl(20), ttl(7), none], false, 1, 6_990), 100, "never at once");
    assert_eq!(told(&[ttl(4_000)], false, 1, 0), 60_000, "never much later");
    assert_eq!(told(&[idle], false, 1, 10_000), 20_000, "its idle limit, if nobody uses it");
    assert_eq!(told(&[idle], false, 1, 40_000), 1_000, "somebody has used it, and when is not known");
    assert_eq!(told(&[dying], false, 1, 0), 1_000);
    assert_eq!(told(&[dying, ttl(20)], true, 1, 4_000), 5_000, "what is left of its teardown's budget");
    assert_eq!(told(&[dying], true, 1, 12_000), 100, "its budget is over");
    assert_eq!(told(&[ttl(7)], false, 2, 0), 1_000, "G40: of others nothing is told");
}

/// Each refusal says so, whatever is full.
#[test]
fn every_refusal_for_want_of_room_says_when_to_try_again() {
    let told = |config: RegistryConfig, open: Open| {
        let mut registry = Registry::new(RegistryConfig { evict_after: None, ..config });
        let _ = registry.step(NOW, RegistryEvent::Open(ask(1, 1)));
        full(&registry.step(NOW, RegistryEvent::Open(open))).expect("it is full")
    };
    let minute = Duration::from_secs(60);
    assert_eq!(told(config(1), ask(2, 1)).0, CapacityScope::Total);
    assert_eq!(told(config(0), ask(2, 1)), (CapacityScope::Total, minute), "no end makes room");
    let mut huge = ask(2, 1);
    huge.quota.processes = 1_000;
    assert_eq!(told(config(9), huge), (CapacityScope::SessionProcesses, minute));
    let mut registry =
        Registry::new(RegistryConfig { max_queued_per_user: 1, evict_after: None, ..config(1) });
    let until = |request, seconds| Open { queue: Some(Moment(NOW.0 + seconds * SECOND)), ..ask(request, 1) };
    let _ = registry.step(NOW, RegistryEvent::Open(ask(1, 1)));
    let _ = registry.step(NOW, RegistryEvent::Open(until(2, 5)));
    let third = full(&registry.step(NOW, RegistryEvent::Open(until(3, 50))));
    assert_eq!(
        third,
        Some((CapacityScope::Queue, Duration::from_secs(5))),
        "when the next one leaves the queue"
    );
    let late = registry.step(Moment(NOW.0 + 5 * SECOND), RegistryEvent::Timeout);
    assert_eq!(
        full(&late),
        Some((CapacityScope::Total, Duration::from_secs(25))),
        "after its wait as before it"
    );
}
