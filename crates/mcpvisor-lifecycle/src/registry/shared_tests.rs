//! Servers that sessions share: what they take from the limits, and what refuses them.
use super::*;
use crate::ServerName;
use crate::session::{CloseReason, Ended};

const NOW: Moment = Moment(1_000);

fn shared(request: u64, definition: u64) -> Open {
    let server = ServerName::new("s").unwrap();
    Open {
        request: RequestId(request),
        key: KeyRef { uid: Uid(1), key: SessionKey::of_shared("p", &server, definition) },
        tenant: None,
        parent: None,
        quota: Quota { processes: 1, shared: true, ..Quota::default() },
        queue: None,
        definition,
        if_closing: IfClosing::Wait,
        if_open: IfOpen::Join,
        direct: false,
        wait: true,
        deadline: None,
        specs: Vec::new(),
    }
}

fn refusal(effects: &[RegistryEffect]) -> Option<&Refusal> {
    effects.iter().find_map(|effect| match effect {
        RegistryEffect::Reply { result, .. } => result.as_ref().err(),
        _ => None,
    })
}

fn started(effects: &[RegistryEffect]) -> SessionId {
    let started = effects.iter().find_map(|effect| match effect {
        RegistryEffect::Start { session, .. } => Some(*session),
        _ => None,
    });
    started.expect("it is admitted")
}

/// G6: it takes its process from the limits and no slot, from its admission to the reap.
#[test]
fn g6_g28_a_shared_server_takes_its_process_and_no_slot() {
    let config = RegistryConfig { max_sessions: 1, max_processes: 1, ..RegistryConfig::default() };
    let mut registry = Registry::new(config);
    let session = started(&registry.step(NOW, RegistryEvent::Open(shared(1, 1))));
    let counts = registry.counts();
    assert_eq!((counts.starting, counts.shared, counts.shared_quarantined), (0, 1, 0));
    let own = Open {
        quota: Quota::default(),
        key: KeyRef { uid: Uid(1), key: SessionKey::new("k").unwrap() },
        ..shared(2, 7)
    };
    started(&registry.step(NOW, RegistryEvent::Open(own)));
    assert_eq!((registry.counts().starting, registry.counts().shared), (1, 1), "there is a slot");
    let full = registry.step(NOW, RegistryEvent::Open(shared(3, 2)));
    let refused = refusal(&full);
    assert!(
        matches!(refused, Some(Refusal::CapacityExhausted { scope, used: 1, limit: 1, .. }) if *scope == CapacityScope::Processes),
        "{refused:?}"
    );
    // Its key is blocked, and it is counted, until nothing of it is left.
    let close = RegistryEvent::CloseWanted { session, reason: CloseReason::Idle };
    let _ = registry.step(NOW, close);
    let _ = registry.step(NOW, RegistryEvent::SessionQuarantined { session });
    let counts = registry.counts();
    assert_eq!((counts.quarantined, counts.shared, counts.shared_quarantined), (0, 0, 1));
    let blocked = registry.step(NOW, RegistryEvent::Open(shared(4, 1)));
    assert_eq!(refusal(&blocked), Some(&Refusal::Quarantined { session }));
    let _ = registry.step(NOW, RegistryEvent::SessionEnded { session, ended: Ended::Closed });
    assert_eq!((registry.counts().shared, registry.counts().shared_quarantined), (0, 0));
    started(&registry.step(NOW, RegistryEvent::Open(shared(5, 2))));
}

/// G35: what was admitted before a fence gets what it needs; a shutdown refuses it, and counts what is left of it.
#[test]
fn g35_g28_a_fence_lets_it_pass_and_a_shutdown_does_not() {
    let mut registry = Registry::new(RegistryConfig::default());
    let _ = registry.step(NOW, RegistryEvent::Fence);
    let session = started(&registry.step(NOW, RegistryEvent::Open(shared(1, 1))));
    let urgency = Urgency::Drain;
    let _ = registry.step(NOW, RegistryEvent::Shutdown { urgency });
    let late = registry.step(NOW, RegistryEvent::Open(shared(2, 2)));
    assert_eq!(refusal(&late), Some(&Refusal::Draining));
    let left = registry.step(NOW, RegistryEvent::SessionQuarantined { session });
    assert!(left.contains(&RegistryEffect::Finished { leftovers: 1 }), "{left:?}");
}

/// A fence leaves who waits for the key of one; a shutdown does not.
#[test]
fn g35_g28_who_waits_for_its_key_is_refused_by_a_shutdown_alone() {
    let mut registry = Registry::new(RegistryConfig::default());
    let session = started(&registry.step(NOW, RegistryEvent::Open(shared(1, 1))));
    let _ = registry.step(NOW, RegistryEvent::SessionReady { session });
    let _ = registry.step(NOW, RegistryEvent::CloseWanted { session, reason: CloseReason::Idle });
    assert_eq!(registry.step(NOW, RegistryEvent::Open(shared(2, 1))), []);
    assert_eq!(registry.step(NOW, RegistryEvent::Fence), []);
    let fenced = registry.step(NOW, RegistryEvent::Shutdown { urgency: Urgency::Drain });
    assert_eq!(refusal(&fenced), Some(&Refusal::Draining));
}
