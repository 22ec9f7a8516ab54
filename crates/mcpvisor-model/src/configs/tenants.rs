//! Who may open what: trees, leases, waits for a slot, breakers.
use super::{A, ALONE, B, C, more, opens, sized};
use crate::asks::{Ask, OpenAsk, close, key, open};
use crate::config::{Config, Luck};
use crate::rules::Witness as W;

const D: u8 = 3;

fn below(key: u8, parent: u8) -> Ask {
    Ask::Open(OpenAsk { parent: Some(parent), ..open(key) })
}

pub(super) fn tree(large: bool) -> Config {
    let about = "a session is opened below another one, which is closed meanwhile";
    let config = Config {
        servers: vec![ALONE],
        luck: Luck { vanish: 1, ..Luck::default() },
        slots: [3, 3, 3],
        expects: vec![W::ChildClosed, W::ParentWaited, W::ParentRefused],
        ..sized(large, ["tree", "tree, large"], about)
    };
    if large {
        let luck = Luck { lost_sessions: 1, ..Luck::default() };
        Config { servers: Vec::new(), luck, ..config }
            .client(&[opens(A), below(B, A), below(C, B)])
            .client(&[close(A), opens(A)])
            .client(&[close(B), below(B, A)])
    } else {
        let config = config.client(&[opens(A), below(B, A)]).client(&[close(A)]);
        Config { expects: [config.expects.clone(), vec![W::ChildQuarantined]].concat(), ..config }
    }
}

pub(super) fn leases(large: bool) -> Config {
    let of = |key| Ask::Open(OpenAsk { holder: true, ..open(key) });
    let about = "processes that hold leases end, while their opens start, live, are parked, or have joined";
    let config = Config {
        servers: vec![ALONE],
        luck: Luck { holders: 1 + more(large, 1), vanish: more(large, 1), ..Luck::default() },
        expects: vec![W::HolderEnded, W::HolderEndedFirst, W::Joined, W::Promoted],
        ..sized(large, ["leases", "leases, large"], about)
    };
    config.client(&[of(A), close(A)]).client(&[of(A)])
}

pub(super) fn detach(large: bool) -> Config {
    let about = "a client whose end is its session's goes, while the key is closed and opened again";
    let config = Config {
        servers: vec![ALONE],
        luck: Luck { lost_sessions: more(large, 1), ..Luck::default() },
        expects: vec![W::Revoked, W::Promoted],
        ..sized(large, ["detach", "detach, large"], about)
    };
    config.client(&[opens(A), Ask::Detach { key: A }]).client(&[close(A), opens(A)])
}

pub(super) fn time_to_live(large: bool) -> Config {
    let about = "sessions have a time to live, and are closed and opened again";
    let config = Config {
        servers: vec![ALONE],
        ttl: true,
        luck: Luck { vanish: more(large, 1), exits: more(large, 1), ..Luck::default() },
        expects: vec![W::TimeToLive, W::Joined],
        ..sized(large, ["time to live", "time to live, large"], about)
    };
    config.client(&[opens(A), close(A)]).client(&[opens(A)])
}

/// Sessions without servers: what they do is known, and there can be more of them.
pub(super) fn queue(large: bool) -> Config {
    let of = |key, tenant, queue| Ask::Open(OpenAsk { tenant, queue: Some(queue), ..open(key) });
    let about = "two users and two tenants wait for the one slot, or give up";
    let config = Config {
        keys: vec![key(1, "a"), key(1, "b"), key(1, "c"), key(2, "a"), key(2, "b")],
        slots: if large { [2, 1, 1] } else { [1, 1, 1] },
        servers: Vec::new(),
        luck: Luck { vanish: 1, ..Luck::default() },
        expects: vec![
            W::Queued,
            W::Served,
            W::UsersTookTurns,
            if large { W::PassedOver } else { W::TenantsTookTurns },
            W::QueueExpired,
        ],
        ..sized(large, ["queue", "queue, large"], about)
    };
    let config = config
        .client(&[of(A, Some("t"), 7), close(A)])
        .client(&[of(B, Some("t"), 7), close(B)])
        .client(&[of(C, Some("u"), 7), close(C)])
        .client(&[of(D, None, 5), close(D)]);
    if large { config.client(&[of(4, None, 7), close(4)]) } else { config }
}

pub(super) fn own_limits(large: bool) -> Config {
    let of = |key, tenant| Ask::Open(OpenAsk { tenant, queue: Some(7), ..open(key) });
    let about = "each of two users has a session and waits for another: who has no room is passed over";
    let config = Config {
        keys: vec![key(1, "a"), key(1, "b"), key(1, "c"), key(2, "a"), key(2, "b")],
        slots: [2, 1, 1],
        servers: Vec::new(),
        luck: Luck { vanish: more(large, 2), ..Luck::default() },
        expects: vec![W::Queued, W::Served, W::PassedOver, W::QueueExpired],
        ..sized(large, ["own limits", "own limits, large"], about)
    };
    config
        .client(&[of(A, Some("t")), close(A)])
        .client(&[of(B, Some("t"))])
        .client(&[of(D, None), close(D)])
        .client(&[of(4, None)])
}

pub(super) fn slots(large: bool) -> Config {
    let of = |key, tenant| Ask::Open(OpenAsk { tenant, queue: Some(7), holder: true, ..open(key) });
    let about =
        "an open waits for its key and another one for the slot, which is the first one's; holders end";
    let config = Config {
        slots: [1, 1, 1],
        servers: if large { vec![ALONE] } else { Vec::new() },
        luck: Luck { holders: 1, vanish: more(!large, 1), ..Luck::default() },
        expects: vec![W::Queued, W::Served, W::Promoted, W::HolderEndedFirst, W::QueueExpired],
        ..sized(large, ["slots", "slots, large"], about)
    };
    config.client(&[of(A, Some("t")), close(A)]).client(&[of(A, Some("t"))]).client(&[of(B, Some("u"))])
}

pub(super) fn breaker(large: bool) -> Config {
    let about = "a start fails, and then one session at a time may try";
    let config = Config {
        servers: vec![ALONE],
        slots: [3, 3, 3],
        breaker: Some((1 + u32::from(large), true)),
        patient: true,
        luck: Luck { failed_launches: 2 + more(large, 1), ..Luck::default() },
        expects: vec![W::BreakerRefused, W::BreakerTried],
        ..sized(large, ["breaker", "breaker, large"], about)
    };
    let config = config.client(&[opens(A), opens(A)]).client(&[opens(B), opens(B)]);
    if large { config.client(&[opens(C)]) } else { config }
}

pub(super) fn open_breaker(large: bool) -> Config {
    let about = "a start fails, and nobody may try again";
    let config = Config {
        servers: vec![ALONE],
        patient: large,
        breaker: Some((1, false)),
        luck: Luck { failed_launches: 1, ..Luck::default() },
        expects: vec![W::BreakerRefused],
        ..sized(large, ["open breaker", "open breaker, large"], about)
    };
    let config = config.client(&[opens(A)]).client(&[opens(A), close(A)]);
    if large { config.client(&[opens(B)]) } else { config }
}
