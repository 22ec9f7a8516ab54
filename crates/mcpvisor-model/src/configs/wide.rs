//! Everything at once, for random histories.
use super::{A, B, C, EXCLUSIVE, opens, wait};
use crate::asks::{Ask, OpenAsk, What, close, key, open};
use crate::config::{Budgets, Config, Luck, ServerKind};
use mcpvisor_lifecycle::registry::{Goal, Urgency};
use mcpvisor_lifecycle::server::{Mode, Restart};
use mcpvisor_lifecycle::session::{CloseReason, OnIdle};

/// The configuration of a seed: every second one has the servers of live sessions changed, calls, trees and waits for slots.
#[must_use]
pub fn wide(seed: u64) -> Config {
    if seed.is_multiple_of(2) { busy(seed) } else { quiet() }
}

/// Opens, closes and leases, with all bad luck.
fn quiet() -> Config {
    let all = |key, tenant| Ask::Open(OpenAsk { tenant, ..open(key) });
    Config {
        keys: vec![key(1, "a"), key(1, "b"), key(2, "a"), key(1, "c")],
        slots: [3, 2, 2],
        tombstones: 3,
        servers: vec![
            ServerKind { mode: Mode::Shared, ..EXCLUSIVE },
            ServerKind { required: false, helper: false, ..EXCLUSIVE },
        ],
        restart: Restart::Transient,
        budgets: Budgets::Distinct,
        drain: true,
        streams: true,
        luck: Luck {
            vanish: 4,
            exits: 3,
            hangups: 0,
            failed_launches: 1,
            failed_handshakes: 1,
            lost_servers: 2,
            lost_sessions: 1,
            lost_registries: 1,
            deaths: 1,
            ..Luck::default()
        },
        ..Config::new("wide", "everything at once, for random histories")
    }
    .client(&[opens(A), close(A), opens(A), wait(A, Goal::Ready), close(A), opens(A)])
    .client(&[opens(A), opens(B), Ask::Lease { key: A, reason: CloseReason::Idle }, close(B), opens(B)])
    .client(&[all(B, Some("t")), close(A), Ask::RetryKill { key: A }, wait(B, Goal::Closed), opens(A)])
    .client(&[
        all(C, Some("u")),
        Ask::Open(OpenAsk { wait: false, definition: 8, ..open(C) }),
        close(C),
        opens(3),
    ])
    .client(&[
        Ask::Open(OpenAsk { deadline: Some(5), join: false, ..open(A) }),
        Ask::Close { key: A, generation: Some(1), now: true, wait: true },
        Ask::RetryKill { key: B },
        Ask::Shutdown(Urgency::Drain),
        Ask::Shutdown(Urgency::Kill),
    ])
}

/// What sessions do while they live, with limits that differ from seed to seed.
fn busy(seed: u64) -> Config {
    let one_in = |many: u64| (seed / 2).is_multiple_of(many);
    let of = |key, tenant, parent| {
        Ask::Open(OpenAsk { tenant, parent, queue: Some(9), holder: true, ..open(key) })
    };
    let call = |key, held| Ask::Call { key, held };
    let change = |server, what| Ask::Change { key: A, server, what };
    let restart = change(0, What::Restart { drain: true });
    let idle = match seed / 2 % 4 {
        0 => Some(OnIdle::Close),
        1 => Some(OnIdle::Park),
        _ => None,
    };
    Config {
        keys: vec![key(1, "a"), key(1, "b"), key(2, "a"), key(1, "c")],
        slots: if one_in(2) { [2, 2, 1] } else { [1, 1, 1] },
        tombstones: 3,
        servers: vec![
            ServerKind { mode: Mode::Shared, helper: false, ..EXCLUSIVE },
            ServerKind { required: false, helper: false, ..EXCLUSIVE },
        ],
        restart: Restart::Transient,
        budgets: Budgets::Distinct,
        drain: true,
        streams: true,
        stop_command: one_in(3),
        patient: !one_in(5),
        health: one_in(7),
        idle,
        ttl: one_in(11),
        breaker: one_in(6).then_some((1, one_in(12))),
        luck: Luck {
            vanish: 3,
            exits: 2,
            failed_launches: 2,
            failed_handshakes: 1,
            lost_servers: 1,
            lost_sessions: 1,
            holders: 1,
            eras: 1,
            looks: Some(9),
            ..Luck::default()
        },
        ..Config::new("wide", "everything at once, for random histories")
    }
    .client(&[of(A, Some("t"), None), of(B, Some("u"), Some(A)), close(B), of(B, Some("t"), None)])
    .client(&[
        of(A, Some("t"), None),
        change(2, What::Add),
        change(1, What::Remove { drain: true }),
        close(A),
    ])
    .client(&[of(A, Some("t"), None), change(1, What::StopFirst), restart, of(C, None, None), close(C)])
    .client(&[of(A, Some("t"), None), call(A, false), change(0, What::Replace), call(A, true), opens(3)])
    .client(&[of(B, Some("u"), None), call(A, true), call(B, false), wait(A, Goal::Closed)])
    .client(&[
        of(A, Some("t"), None),
        Ask::Decide { key: A, approve: true },
        Ask::Decide { key: A, approve: false },
        Ask::Detach { key: A },
        Ask::Shutdown(Urgency::Drain),
    ])
}
