//! The configurations: bounded ones that are walked through, and two wide ones for random histories.
//!
//! To look at something new, add a configuration here, with the witnesses that show that it was reached.
mod bugs;
mod calls;
mod changes;
mod tenants;
mod wide;

pub use bugs::finder;
pub use wide::wide;

use crate::asks::{Ask, OpenAsk, close, key, open};
use crate::config::{Budgets, Config, Luck, ServerKind};
use crate::rules::Witness as W;
use mcpvisor_lifecycle::registry::{Goal, Urgency};
use mcpvisor_lifecycle::server::{Mode, Restart};
use mcpvisor_lifecycle::session::CloseReason;

const A: u8 = 0;
const B: u8 = 1;
const C: u8 = 2;

const EXCLUSIVE: ServerKind = ServerKind { mode: Mode::Exclusive, required: true, helper: true };
/// One that leaves nothing behind.
const ALONE: ServerKind = ServerKind { helper: false, ..EXCLUSIVE };

fn opens(key: u8) -> Ask {
    Ask::Open(open(key))
}

fn wait(key: u8, goal: Goal) -> Ask {
    Ask::Wait { key, goal, deadline: None }
}

/// Those that come in two sizes, with how many states each has at least.
const SIZED: &[Sized] = &[
    (reopen, [190_000, 530_000]),
    (full, [100_000, 2_100_000]),
    (limits, [34_000, 650_000]),
    (shutdown, [80_000, 310_000]),
    (hurried_shutdown, [9_000, 84_000]),
    (restart, [100_000, 365_000]),
    (handshake, [3_200, 295_000]),
    (direct, [118_000, 440_000]),
    (lost_server, [41_000, 350_000]),
    (lost_session, [8_000, 1_450_000]),
    (lost_registry, [147_000, 490_000]),
    (recovery, [46_000, 340_000]),
    (two_servers, [109_000, 880_000]),
    (ladder, [10_000, 126_000]),
    (quarantine, [53_000, 460_000]),
    (deadlines, [136_000, 410_000]),
    (late_notes, [109_000, 670_000]),
    (tenants::tree, [160_000, 220_000]),
    (tenants::leases, [69_000, 600_000]),
    (tenants::detach, [25_000, 136_000]),
    (tenants::time_to_live, [70_000, 1_450_000]),
    (tenants::queue, [30_000, 980_000]),
    (tenants::own_limits, [2_000, 52_000]),
    (tenants::slots, [4_700, 1_080_000]),
    (tenants::breaker, [1_600, 195_000]),
    (tenants::open_breaker, [17_000, 26_500]),
    (calls::calls, [40_000, 220_000]),
    (calls::held_calls, [30_000, 1_300_000]),
    (calls::idle, [260_000, 390_000]),
    (calls::evictions, [300_000, 1]),
    (calls::idle_tree, [48_000, 540_000]),
    (calls::parking, [510_000, 670_000]),
    (calls::health, [280_000, 1_120_000]),
    (changes::adds, [49_000, 780_000]),
    (changes::cancelled_adds, [21_500, 370_000]),
    (changes::removes, [16_500, 610_000]),
    (changes::replacements, [63_000, 440_000]),
    (changes::stop_first, [82_000, 970_000]),
    (changes::restarts, [263_000, 1_440_000]),
    (changes::stop_commands, [63_000, 300_000]),
    (changes::eras, [26_000, 850_000]),
];

type Sized = (fn(bool) -> Config, [usize; 2]);

fn all_of(large: bool) -> impl Iterator<Item = Config> {
    SIZED.iter().map(move |(config, states)| Config { states: states[usize::from(large)], ..config(large) })
}

/// Those that every run of the tests walks through.
#[must_use]
pub fn suite() -> Vec<Config> {
    all_of(false).chain([memory()]).collect()
}

/// All of them.
#[must_use]
pub fn all() -> Vec<Config> {
    suite().into_iter().chain(all_of(true)).collect()
}

/// The one of a name.
#[must_use]
pub fn named(name: &str) -> Option<Config> {
    all().into_iter().find(|config| config.name == name)
}

/// A configuration in two sizes: the small one is for every run of the tests.
fn sized(large: bool, name: [&'static str; 2], about: &'static str) -> Config {
    Config::new(name[usize::from(large)], about)
}

/// Some of something, where the size is large.
fn more(large: bool, count: u8) -> u8 {
    if large { count } else { 0 }
}

fn reopen(large: bool) -> Config {
    let about = "a key is opened and closed by two at once, who may go away, and opened again";
    let config = Config {
        luck: Luck { vanish: 1 + more(large, 1), ..Luck::default() },
        expects: vec![
            W::Closed,
            W::ClosedTogether,
            W::Joined,
            W::Promoted,
            W::ParkedRefused,
            W::StartCancelled,
            W::Vanished,
            W::GaveUpLate,
            W::BornLate,
            W::LaunchFailed,
            W::HelperLeft,
            W::KilledInTime,
            W::Quarantined,
            W::Released,
            W::RefusedQuarantined,
            W::Retried,
            W::LateQuarantine,
            W::ReadyTooLate,
        ],
        ..sized(large, ["reopen", "reopen, large"], about)
    };
    config.client(&[opens(A), close(A)]).client(&[close(A), opens(A)])
}

fn full(large: bool) -> Config {
    let about = "two keys and one slot; openers go away, launches fail, and others retry";
    let config = Config {
        slots: [1, 1, 1],
        luck: Luck { vanish: 1 + more(large, 1), failed_launches: 1, ..Luck::default() },
        expects: vec![W::Full, W::FullWhileDying, W::LaunchFailed, W::Vanished, W::StartCancelled],
        ..sized(large, ["full", "full, large"], about)
    };
    if large {
        config.client(&[opens(A), opens(B)]).client(&[opens(B), close(A)])
    } else {
        config.client(&[opens(A), close(A)]).client(&[opens(B)])
    }
}

fn limits(large: bool) -> Config {
    let of = |key, tenant| Ask::Open(OpenAsk { tenant, ..open(key) });
    let about = "two users and two tenants; a parked open changes its tenant";
    let config = Config {
        keys: vec![key(1, "a"), key(1, "b"), key(2, "a")],
        slots: [2, 1, 1],
        luck: Luck { vanish: more(large, 1), failed_launches: more(large, 1), ..Luck::default() },
        servers: vec![ServerKind { helper: false, ..EXCLUSIVE }],
        expects: vec![W::FullForUser, W::Full, W::Promoted],
        ..sized(large, ["limits", "limits, large"], about)
    };
    config.client(&[of(A, Some("t")), close(A)]).client(&[of(A, Some("u")), of(B, None)])
}

fn shutdown(large: bool) -> Config {
    let about = "a shutdown meets what starts, lives, dies and is parked";
    let config = Config {
        luck: Luck { vanish: 1, exits: more(large, 1), ..Luck::default() },
        expects: vec![W::ShutdownWhileStarting, W::Finished, W::FinishedWithLeftovers, W::ParkedRefused],
        ..sized(large, ["shutdown", "shutdown, large"], about)
    };
    config.client(&[opens(A), close(A), opens(A)]).client(&[Ask::Shutdown(Urgency::Drain)])
}

fn hurried_shutdown(large: bool) -> Config {
    let about = "a shutdown is asked for twice, the second time without patience";
    let config = Config {
        luck: Luck { vanish: more(large, 1), exits: more(large, 1), ..Luck::default() },
        drain: true,
        budgets: Budgets::Distinct,
        expects: vec![W::Urged, W::DrainExpired, W::Finished, W::FinishedWithLeftovers],
        ..sized(large, ["hurried shutdown", "hurried shutdown, large"], about)
    };
    config.client(&[opens(A)]).client(&[Ask::Shutdown(Urgency::Drain), Ask::Shutdown(Urgency::Kill)])
}

fn restart(large: bool) -> Config {
    let about = "a server ends by itself and is started again, while a close comes";
    let config = Config {
        restart: Restart::Transient,
        streams: true,
        luck: Luck { exits: 1 + more(large, 1), ..Luck::default() },
        expects: vec![W::Restarted, W::StoppedInBackoff, W::Stale, W::HelperLeft],
        ..sized(large, ["restart", "restart, large"], about)
    };
    config.client(&[opens(A), close(A)])
}

fn handshake(large: bool) -> Config {
    let about = "a shared server that fails its handshake, or exits in it";
    let config = Config {
        servers: vec![ServerKind { mode: Mode::Shared, helper: large, ..EXCLUSIVE }],
        restart: Restart::Permanent,
        streams: true,
        luck: Luck { exits: more(large, 1), failed_handshakes: 1, ..Luck::default() },
        expects: vec![W::HandshakeFailed, W::KilledInTime],
        ..sized(large, ["handshake", "handshake, large"], about)
    };
    config.client(&[opens(A), close(A)])
}

fn direct(large: bool) -> Config {
    let about = "a client hangs up, or goes away, while its direct server exits or is closed";
    let config = Config {
        servers: vec![ServerKind { mode: Mode::Direct, helper: large, ..EXCLUSIVE }],
        luck: Luck { exits: 1, hangups: 1 + more(large, 1), ..Luck::default() },
        expects: vec![W::HungUp, W::WaitReached, W::Quarantined],
        ..sized(large, ["direct", "direct, large"], about)
    };
    config.client(&[opens(A), wait(A, Goal::Closed)]).client(&[close(A)])
}

fn lost_server(large: bool) -> Config {
    let about = "a server's actor is lost at any time; its tree is reaped without it";
    let config = Config {
        luck: Luck { lost_servers: 1, failed_launches: more(large, 1), ..Luck::default() },
        expects: vec![W::ServerReaped, W::Quarantined, W::Retried, W::Released],
        ..sized(large, ["lost server", "lost server, large"], about)
    };
    let config = config.client(&[opens(A), close(A)]);
    if large {
        config.client(&[Ask::RetryKill { key: A }, opens(A)])
    } else {
        config.client(&[Ask::RetryKill { key: A }])
    }
}

fn lost_session(large: bool) -> Config {
    let about = "a session's actor is lost at any time; its trees are reaped without it";
    let config = Config {
        luck: Luck { lost_sessions: 1, ..Luck::default() },
        expects: vec![W::SessionReaped, W::Stale, W::Quarantined, W::Released],
        ..sized(large, ["lost session", "lost session, large"], about)
    };
    let config = config.client(&[opens(A), close(A)]);
    if large {
        config.client(&[close(A), Ask::RetryKill { key: A }]).client(&[opens(A)])
    } else {
        config.client(&[Ask::RetryKill { key: A }])
    }
}

fn lost_registry(large: bool) -> Config {
    let about = "the registry's actor is lost; its successor blocks the keys, waits are asked again, a shutdown goes on";
    let config = Config {
        luck: Luck { lost_registries: 1, ..Luck::default() },
        expects: vec![W::RegistryLost, W::AskedAgain, W::Finished, W::ParkedRefused],
        ..sized(large, ["lost registry", "lost registry, large"], about)
    };
    config
        .client(&[opens(A), close(A)])
        .client(&[Ask::Shutdown(Urgency::Drain)])
        .client(&[opens(A), wait(A, Goal::Closed)][..1 + usize::from(large)])
}

fn recovery(large: bool) -> Config {
    let about = "the daemon dies; the next one blocks the keys of what is left, and serves the others";
    let config = Config {
        luck: Luck { deaths: 1, vanish: more(large, 1), ..Luck::default() },
        expects: vec![W::DaemonDied, W::RecoveredKeyOpened, W::WaitedForRecovered],
        ..sized(large, ["recovery", "recovery, large"], about)
    };
    config.client(&[opens(A), close(A)]).client(&[opens(A)])
}

fn two_servers(large: bool) -> Config {
    let about = "one server is required and one is not; either may exit";
    let config = Config {
        servers: vec![
            ServerKind { helper: false, ..EXCLUSIVE },
            ServerKind { required: false, helper: large, ..EXCLUSIVE },
        ],
        luck: Luck { exits: more(large, 1), failed_launches: 1, ..Luck::default() },
        expects: vec![W::FailedTogether, W::Quarantined],
        ..sized(large, ["two servers", "two servers, large"], about)
    };
    config.client(&[opens(A), close(A)])
}

fn ladder(large: bool) -> Config {
    let about = "each rung and the drain have their own times";
    let config = Config {
        drain: true,
        budgets: Budgets::Distinct,
        polite_helpers: true,
        streams: large,
        luck: Luck { vanish: more(large, 1), ..Luck::default() },
        expects: vec![W::DrainExpired, W::KilledInTime, W::HelperLeft],
        ..sized(large, ["ladder", "ladder, large"], about)
    };
    let config = config.client(&[opens(A), close(A)]);
    config.client(&[Ask::Close { key: A, generation: None, now: true, wait: true }])
}

fn memory() -> Config {
    let exactly = |generation| Ask::Close { key: A, generation: Some(generation), now: false, wait: true };
    Config {
        servers: vec![ServerKind { helper: false, ..EXCLUSIVE }],
        tombstones: 1,
        tombstone_age: Some(10),
        expects: vec![W::ClosedFromMemory, W::Forgotten, W::WaitReached],
        states: 35_000,
        ..Config::new("memory", "ended sessions are remembered, closed and waited for, and forgotten")
    }
    .client(&[opens(A), exactly(1), opens(A), exactly(1)])
    .client(&[exactly(2), wait(A, Goal::Closed)])
}

fn quarantine(large: bool) -> Config {
    let about = "a kill runs out of time, is tried again by two, and works in the end";
    let config = Config {
        luck: Luck { vanish: more(large, 1), ..Luck::default() },
        expects: vec![W::Quarantined, W::Released, W::Retried, W::RefusedQuarantined, W::ParkedRefused],
        ..sized(large, ["quarantine", "quarantine, large"], about)
    };
    config.client(&[opens(A), close(A), Ask::RetryKill { key: A }]).client(&[close(A), opens(A)])
}

fn deadlines(large: bool) -> Config {
    let until = |key, deadline| Ask::Open(OpenAsk { deadline: Some(deadline), ..open(key) });
    let about = "opens and waits run out of time";
    let config = Config {
        expects: vec![W::Expired, W::StartCancelled, W::Promoted],
        ..sized(large, ["deadlines", "deadlines, large"], about)
    };
    let config = config.client(&[until(A, 1), close(A)]);
    let wait = Ask::Wait { key: A, goal: Goal::Ready, deadline: Some(3) };
    if large { config.client(&[until(A, 2), wait]) } else { config.client(&[until(A, 2)]) }
}

fn late_notes(large: bool) -> Config {
    let about = "notes of tasks and leases come when their session is over and its key is held by the next";
    let config = Config {
        luck: Luck { lost_sessions: more(large, 1), ..Luck::default() },
        servers: vec![ServerKind { helper: false, ..EXCLUSIVE }],
        expects: vec![W::Stale, W::LateQuarantine, W::Promoted],
        ..sized(large, ["late notes", "late notes, large"], about)
    };
    config
        .client(&[opens(A), Ask::Lease { key: A, reason: CloseReason::Idle }, close(A)])
        .client(&[opens(A), Ask::Lease { key: A, reason: CloseReason::Ttl }])
}
