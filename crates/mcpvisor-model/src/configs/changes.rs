//! Servers of a live session that are added, removed, replaced and started again; stop commands; other eras.
use super::{A, ALONE, more, opens, sized};
use crate::asks::{Ask, What, close};
use crate::config::{Budgets, Config, Luck, ServerKind};
use crate::rules::Witness as W;
use mcpvisor_lifecycle::server::{Mode, Restart};

fn change(server: u8, what: What) -> Ask {
    Ask::Change { key: A, server, what }
}

pub(super) fn adds(large: bool) -> Config {
    let about = "a server is added, or fails to be, or its requester goes, while the session is closed";
    let config = Config {
        servers: vec![ALONE],
        drain: true,
        patient: !large,
        luck: Luck { failed_launches: 1, vanish: more(large, 1), ..Luck::default() },
        expects: vec![W::Added, W::AddUndone, W::ChangeRefused],
        ..sized(large, ["adds", "adds, large"], about)
    };
    config.client(&[opens(A), change(1, What::Add)]).client(&[close(A)])
}

pub(super) fn cancelled_adds(large: bool) -> Config {
    let about =
        "who asks for a server goes, at any time, while it is started again or removed by another one";
    let config = Config {
        servers: if large { vec![ALONE] } else { Vec::new() },
        drain: true,
        luck: Luck { vanish: 1, failed_launches: more(large, 1), ..Luck::default() },
        expects: vec![W::Added, W::AddTakenBack, W::ChangeRefused],
        ..sized(large, ["cancelled adds", "cancelled adds, large"], about)
    };
    let config = config.client(&[opens(A), change(1, What::Add)]);
    if large {
        config.client(&[change(1, What::Remove { drain: true })])
    } else {
        config.client(&[change(1, What::Restart { drain: false })])
    }
}

pub(super) fn removes(large: bool) -> Config {
    let about = "a server is removed by two, exits, won't die, and the session is closed";
    let config = Config {
        servers: vec![ServerKind { required: false, ..ALONE }],
        drain: true,
        luck: Luck { exits: more(large, 1), vanish: more(large, 1), ..Luck::default() },
        expects: vec![W::Removed, W::ChangeRefused],
        ..sized(large, ["removes", "removes, large"], about)
    };
    let remove = |drain| change(0, What::Remove { drain });
    config.client(&[opens(A), remove(true), remove(false)]).client(&[remove(true), close(A)])
}

pub(super) fn replacements(large: bool) -> Config {
    let about = "a server is put in the place of another, which drains, while that one is removed";
    let config = Config {
        servers: vec![ServerKind { required: false, ..ALONE }],
        drain: true,
        luck: Luck { failed_launches: 1, exits: more(large, 1), ..Luck::default() },
        expects: vec![W::Replaced, W::AddUndone, W::ChangeRefused],
        ..sized(large, ["replacements", "replacements, large"], about)
    };
    let remove = change(0, What::Remove { drain: true });
    config.client(&[opens(A), change(0, What::Replace)]).client(&[remove])
}

pub(super) fn stop_first(large: bool) -> Config {
    let about = "a server makes room for another, and is started again where that one fails";
    let config = Config {
        servers: vec![ServerKind { required: false, helper: large, ..ALONE }],
        restart: if large { Restart::Transient } else { Restart::Temporary },
        drain: true,
        luck: Luck { failed_launches: 1, exits: more(large, 1), ..Luck::default() },
        expects: vec![W::StoppedFirst, W::StartedAgain, W::ChangeRefused],
        ..sized(large, ["stop first", "stop first, large"], about)
    };
    config.client(&[opens(A), change(0, What::StopFirst)]).client(&[close(A)])
}

pub(super) fn restarts(large: bool) -> Config {
    let about = "a server is started again on request, exits, and is closed";
    let config = Config {
        servers: vec![ALONE],
        restart: Restart::Transient,
        drain: true,
        patient: true,
        luck: Luck { exits: more(large, 1), ..Luck::default() },
        expects: vec![W::RestartedByHand, W::Restarted, W::ChangeRefused],
        ..sized(large, ["restarts", "restarts, large"], about)
    };
    let restart = |drain| change(0, What::Restart { drain });
    let config = config.client(&[opens(A), restart(true)]);
    if large { config.client(&[close(A)]) } else { config.client(&[restart(false), close(A)]) }
}

pub(super) fn stop_commands(large: bool) -> Config {
    let about = "a server has a stop command, which hangs, or ends before or after everything else";
    let config = Config {
        servers: vec![ServerKind { helper: !large, ..ALONE }],
        stop_command: true,
        budgets: if large { Budgets::Distinct } else { Budgets::Any },
        luck: Luck { exits: 1, lost_servers: more(large, 1), ..Luck::default() },
        expects: vec![W::CommandRan, W::CommandKilled, W::Quarantined, W::Released],
        ..sized(large, ["stop commands", "stop commands, large"], about)
    };
    config.client(&[opens(A), close(A)]).client(&[Ask::RetryKill { key: A }])
}

pub(super) fn eras(large: bool) -> Config {
    let about = "a server is asked in another era, once in a start";
    let config = Config {
        servers: vec![ServerKind { mode: Mode::Shared, ..ALONE }],
        restart: Restart::Permanent,
        streams: true,
        stop_command: large,
        patient: !large,
        luck: Luck { failed_handshakes: 2, eras: 1, ..Luck::default() },
        budgets: if large { Budgets::Distinct } else { Budgets::Any },
        expects: vec![W::OtherEra, W::HandshakeFailed],
        ..sized(large, ["eras", "eras, large"], about)
    };
    config.client(&[opens(A), close(A)])
}
