//! Calls: in flight, held for a person, at a gate that is parked; and what has none for a while.
use super::{A, ALONE, B, more, opens, sized};
use crate::asks::{Ask, OpenAsk, close, open};
use crate::config::{Config, Luck, ServerKind};
use crate::rules::Witness as W;
use mcpvisor_lifecycle::server::{Mode, Restart};
use mcpvisor_lifecycle::session::OnIdle;

fn call(key: u8) -> Ask {
    Ask::Call { key, held: false }
}

pub(super) fn calls(large: bool) -> Config {
    let about = "calls race a close, which drains them, and the opener's giving up";
    let config = Config {
        servers: vec![ALONE],
        drain: true,
        luck: Luck { vanish: 1, lost_sessions: more(large, 1), ..Luck::default() },
        expects: vec![W::CallDrained, W::CallCut, W::CallRefused, W::GaveUpLate],
        ..sized(large, ["calls", "calls, large"], about)
    };
    let config = config.client(&[opens(A)]).client(&[call(A)]).client(&[close(A)]);
    if large { config.client(&[call(A)]) } else { config }
}

pub(super) fn held_calls(large: bool) -> Config {
    let about =
        "calls are held for a person, who decides, or does not, or twice, while the session is closed";
    let config = Config {
        servers: vec![ALONE],
        drain: true,
        luck: Luck { vanish: more(large, 1), ..Luck::default() },
        expects: vec![W::Approved, W::Denied, W::HoldEnded, W::HeldAtClose, W::NotHeld, W::DecidedAgain],
        ..sized(large, ["held calls", "held calls, large"], about)
    };
    let held = Ask::Call { key: A, held: true };
    let decide = |approve| Ask::Decide { key: A, approve };
    let config =
        config.client(&[opens(A), close(A)]).client(&[held]).client(&[decide(true)]).client(&[decide(false)]);
    if large { config.client(&[held]) } else { config }
}

pub(super) fn idle(large: bool) -> Config {
    let about = "a session is idle for too long, while it is called, or opened by another one";
    let config = Config {
        servers: vec![ALONE],
        drain: true,
        idle: Some(OnIdle::Close),
        patient: !large,
        expects: vec![W::ClosedForIdleness, W::StayedOpen, W::Joined, W::CallRefused],
        ..sized(large, ["idle", "idle, large"], about)
    };
    config.client(&[opens(A)]).client(&[call(A)]).client(&[opens(A)])
}

pub(super) fn evictions(large: bool) -> Config {
    let about =
        "an open takes the place of a session that nobody uses, while that is called, closed or opened again";
    let config = Config {
        slots: [1, 1, 1],
        servers: vec![ALONE],
        drain: true,
        patient: true,
        idle: Some(OnIdle::Close),
        evict: true,
        luck: Luck { looks: Some(1), vanish: more(!large, 1), ..Luck::default() },
        expects: vec![W::MadeRoom, W::NobodyMadeRoom, W::Full, W::CallRefused],
        ..sized(large, ["evictions", "evictions, large"], about)
    };
    let config = config.client(&[opens(A), call(A)]).client(&[opens(B), close(B)]);
    if large { config.client(&[close(A), opens(A)]) } else { config }
}

pub(super) fn idle_tree(large: bool) -> Config {
    let about = "a session is idle, and there is one below it";
    let config = Config {
        servers: if large { vec![ALONE] } else { Vec::new() },
        patient: true,
        idle: Some(OnIdle::Close),
        luck: Luck { looks: Some(3), vanish: more(!large, 1), ..Luck::default() },
        expects: vec![W::ClosedForIdleness, W::StayedOpen],
        ..sized(large, ["idle tree", "idle tree, large"], about)
    };
    let below = Ask::Open(OpenAsk { parent: Some(A), ..open(B) });
    config.client(&[opens(A), below]).client(&[call(A)]).client(&[close(B)])
}

pub(super) fn parking(large: bool) -> Config {
    let about = "a session that is idle is parked, and woken by two calls";
    let config = Config {
        servers: vec![ALONE],
        drain: true,
        idle: Some(OnIdle::Park),
        patient: !large,
        luck: Luck { failed_launches: 1, ..Luck::default() },
        expects: vec![W::Parked, W::Woken, W::WokenByTwo, W::NotWoken],
        ..sized(large, ["parking", "parking, large"], about)
    };
    config.client(&[opens(A)]).client(&[call(A)]).client(&[call(A)])
}

pub(super) fn health(large: bool) -> Config {
    let about = "a server is asked whether it is well, while it is busy, silent, or closed";
    let config = Config {
        servers: vec![ServerKind { mode: Mode::Shared, ..ALONE }],
        restart: Restart::Permanent,
        drain: true,
        health: true,
        patient: !large,
        luck: Luck { looks: Some(2 + more(large, 1)), ..Luck::default() },
        expects: vec![W::Unhealthy, W::BusyIsWell],
        ..sized(large, ["health", "health, large"], about)
    };
    config.client(&[opens(A)]).client(&[call(A)]).client(&[close(A)])
}
