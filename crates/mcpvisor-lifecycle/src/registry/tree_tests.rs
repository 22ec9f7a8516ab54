//! Trees: what is refused, what is said to whom, and in which order.
use super::*;
use crate::session::Ended;
use std::time::Duration;

const NOW: Moment = Moment(1_000);

fn key(text: &str) -> KeyRef {
    KeyRef { uid: Uid(7), key: SessionKey::new(text).unwrap() }
}

fn open(request: u64, text: &str, parent: Option<&str>) -> RegistryEvent {
    RegistryEvent::Open(Open {
        request: RequestId(request),
        key: key(text),
        tenant: None,
        parent: parent.map(|text| key(text).key),
        quota: Quota::default(),
        queue: None,
        definition: 7,
        if_closing: IfClosing::Wait,
        if_open: IfOpen::Join,
        direct: false,
        specs: Vec::new(),
        wait: true,
        deadline: None,
    })
}

fn close(request: u64, text: &str, now: bool) -> RegistryEvent {
    RegistryEvent::Close {
        request: RequestId(request),
        target: Target { key: key(text), generation: None },
        options: CloseOptions { drain: None, now },
        wait: true,
        deadline: None,
    }
}

fn session(generation: u64) -> SessionId {
    SessionId { uid: Uid(7), generation: Generation(generation) }
}

fn ended(generation: u64) -> RegistryEvent {
    RegistryEvent::SessionEnded { session: session(generation), ended: Ended::Closed }
}

fn registry() -> Registry {
    Registry::new(RegistryConfig {
        max_sessions: 100,
        max_sessions_per_user: 100,
        max_sessions_per_tenant: 100,
        tombstones: 10,
        tombstone_age: Duration::from_secs(60),
        breaker: crate::BreakerConfig::default(),
        ..RegistryConfig::default()
    })
}

/// A chain of live sessions, each below the one before: `k1`, `k2`, and so on.
fn chain(length: u64) -> Registry {
    let mut registry = registry();
    for number in 1..=length {
        let parent = (number > 1).then(|| format!("k{}", number - 1));
        let effects = registry.step(NOW, open(number, &format!("k{number}"), parent.as_deref()));
        assert!(matches!(effects[..], [RegistryEffect::Start { .. }]), "{effects:?}");
        let _ = registry.step(NOW, RegistryEvent::SessionReady { session: session(number) });
    }
    registry
}

fn told(effects: &[RegistryEffect]) -> Vec<String> {
    let number = |session: &SessionId| session.generation.0;
    let text = |effect: &RegistryEffect| match effect {
        RegistryEffect::Close { session, reason, options } if options.now => {
            format!("close {} now: {reason:?}", number(session))
        }
        RegistryEffect::Close { session, reason, .. } => format!("close {}: {reason:?}", number(session)),
        RegistryEffect::AwaitChildren { session } => format!("await children of {}", number(session)),
        RegistryEffect::ChildrenGone { session } => format!("children of {} gone", number(session)),
        RegistryEffect::Urge { session, urgency } => format!("urge {}: {urgency:?}", number(session)),
        RegistryEffect::Reply { request, result: Ok(answer) } => format!("{}: {answer:?}", request.0),
        RegistryEffect::Reply { request, result: Err(refusal) } => format!("{}: {refusal:?}", request.0),
        other => format!("{other:?}"),
    };
    effects.iter().map(text).collect()
}

/// G21: everything below is told to close in the step of the parent's close, and each waits for what is below it.
#[test]
fn g21_a_chain_is_closed_from_its_end() {
    let mut registry = chain(3);
    let effects = registry.step(NOW, close(10, "k1", false));
    assert_eq!(
        told(&effects),
        [
            "await children of 1",
            "close 1: Requested",
            "await children of 2",
            "close 2: ParentClosed",
            "close 3: ParentClosed"
        ]
    );
    assert_eq!(registry.counts().dying, 3, "each counts until its own end");
    assert_eq!(told(&registry.step(NOW, ended(3))), ["children of 2 gone"]);
    assert_eq!(told(&registry.step(NOW, ended(2))), ["children of 1 gone"]);
    let last = told(&registry.step(NOW, ended(1)));
    assert_eq!(last.len(), 1, "{last:?}");
    assert!(last[0].starts_with("10: Closed"), "{last:?}");
}

/// Who is in a hurry is so for the whole tree, before the close and after it.
#[test]
fn hurry_reaches_what_is_waited_for() {
    let mut registry = chain(3);
    let _ = registry.step(NOW, close(10, "k2", false));
    assert_eq!(
        told(&registry.step(NOW, close(11, "k1", true))),
        ["await children of 1", "close 1 now: Requested", "urge 2: Hurry", "urge 3: Hurry"]
    );
    let kill = registry.step(NOW, RegistryEvent::Shutdown { urgency: Urgency::Kill });
    assert_eq!(told(&kill), ["urge 1: Kill", "urge 2: Kill", "urge 3: Kill"]);
}

/// G21, G35: a shutdown is the reason of all, and keeps the order.
#[test]
fn a_shutdown_closes_each_once_and_says_so() {
    let mut registry = chain(2);
    let effects = told(&registry.step(NOW, RegistryEvent::Shutdown { urgency: Urgency::Drain }));
    assert_eq!(effects, ["await children of 1", "close 1: Shutdown", "close 2: Shutdown"]);
}

/// G21: a parent waits for no kernel; what it told the child stays told.
#[test]
fn g21_a_quarantined_child_lets_its_parent_go() {
    let mut registry = chain(2);
    let _ = registry.step(NOW, close(10, "k1", false));
    let quarantined = RegistryEvent::SessionQuarantined { session: session(2) };
    assert_eq!(told(&registry.step(NOW, quarantined.clone())), ["children of 1 gone"]);
    assert_eq!(told(&registry.step(NOW, quarantined)), [] as [&str; 0], "and that once");
    let _ = registry.step(NOW, ended(1));
    assert_eq!(registry.current(&key("k2")), Some((session(2), Phase::Quarantined)));
    assert_eq!(registry.parent(session(2)), Some(session(1)));
}

/// What can't be below: of nobody, of one that is closed, of itself, of another user's, too deep.
#[test]
fn a_parent_must_be_open() {
    let mut registry = chain(16);
    let mut refusal = |text: &str, parent: &str| {
        let effects = registry.step(NOW, open(50, text, Some(parent)));
        assert!(matches!(effects[..], [RegistryEffect::Reply { .. }]), "G9: {effects:?}");
        told(&effects)
    };
    assert_eq!(refusal("x", "nobody"), ["50: ParentNotFound"]);
    assert_eq!(refusal("x", "x"), ["50: ParentNotFound"]);
    assert_eq!(refusal("x", "k16"), ["50: TooDeep { limit: 16 }"]);
    let RegistryEvent::Open(mut foreign) = open(51, "x", Some("k1")) else { unreachable!() };
    foreign.key.uid = Uid(8);
    assert_eq!(told(&registry.step(NOW, RegistryEvent::Open(foreign))), ["51: ParentNotFound"]);
    let _ = registry.step(NOW, close(10, "k15", false));
    let closing = told(&registry.step(NOW, open(52, "x", Some("k15"))));
    assert!(closing[0].starts_with("52: ParentClosing"), "{closing:?}");
    assert!(registry.parent(session(17)).is_none());
}

/// An open that waits for its key is below the generation that it found: where that is closed meanwhile, it is refused.
#[test]
fn a_parked_open_whose_parent_closes_is_refused() {
    let mut registry = chain(1);
    let _ = registry.step(NOW, open(2, "c", Some("k1")));
    let _ = registry.step(NOW, close(3, "c", false));
    assert_eq!(told(&registry.step(NOW, open(4, "c", Some("k1")))), [] as [&str; 0]);
    let _ = registry.step(NOW, close(5, "k1", false));
    let effects = told(&registry.step(NOW, ended(2)));
    assert!(effects.iter().any(|told| told.starts_with("4: ParentClosing")), "{effects:?}");
    assert!(effects.contains(&"children of 1 gone".to_owned()), "{effects:?}");
    assert_eq!(registry.current(&key("c")), None);
}

/// A session that ends without a close, and one whose actor is lost, takes what is below it along.
#[test]
fn an_end_without_a_close_closes_what_is_below() {
    let mut registry = chain(2);
    let lost = told(&registry.step(NOW, RegistryEvent::SessionLost { session: session(1) }));
    assert!(lost.contains(&"close 2: ParentClosed".to_owned()), "{lost:?}");
    assert_eq!(told(&registry.step(NOW, ended(2))), [] as [&str; 0], "there is no actor to tell");
    let mut registry = chain(2);
    assert_eq!(told(&registry.step(NOW, ended(1))), ["close 2: ParentClosed"]);
    assert_eq!(told(&registry.step(NOW, ended(2))), [] as [&str; 0]);
    assert_eq!(registry.sessions(None), []);
}

/// G3: a session belongs below one generation: the next one of that key has nothing to do with it.
#[test]
fn g3_a_child_is_of_one_generation() {
    let mut registry = chain(2);
    let _ = registry.step(NOW, close(10, "k1", false));
    let _ = registry.step(NOW, RegistryEvent::SessionQuarantined { session: session(2) });
    let _ = registry.step(NOW, ended(1));
    let _ = registry.step(NOW, open(11, "k1", None));
    assert_eq!(told(&registry.step(NOW, close(12, "k1", false))), ["close 3: Requested"]);
}
