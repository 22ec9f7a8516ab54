//! Cancel, close, shut down or kill the client while the daemon stands at a gate: at every gate of an open, a change of a session's servers, a close and
//! a shutdown. `docs/failpoints.md` names the gates and says what must come of it; this holds the daemon against the page.
mod again;
mod changes;
mod gates;
mod scenarios;
mod stage;
mod sweep;
mod table;
mod waiting;

use mcpvisor_testkit::{Containment, Scene};
use stage::{GRACE, Stage};
use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use sweep::{What, play};
use table::{Action, Row, rows};

/// Plays an action at every gate of a table.
fn sweep(
    scene: &Arc<Scene>,
    containment: Containment,
    (name, what): (&str, What),
    action: Action,
    of: impl Fn(&Row) -> bool,
) {
    let mut stage = None;
    let mut wrong = Vec::new();
    let mut seen = BTreeSet::new();
    for row in rows(name).iter().filter(|row| of(row)) {
        let Some(expected) = row.expected(action) else { continue };
        let current = stage.take().unwrap_or_else(|| Stage::set(scene, containment, GRACE, None));
        eprintln!("{containment} {name}: {action:?} at {}", row.gate);
        let (came, left) = play(current, what, row, action);
        if !row.allows(action, &came) {
            wrong.push(format!("{action:?} at {}: expected `{expected}`, came `{came}`", row.gate));
        }
        seen.insert(came);
        stage = left;
    }
    if let Some(Stage { daemon, gates, other, .. }) = stage {
        drop((gates, other));
        daemon.finish();
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(seen.len() > 1, "{name}: {action:?} does the same at every gate: {seen:?}");
}

/// Plays where the machine has this containment. Long, since a sweep is many plays: the limit is for one that hangs.
fn on(containment: Containment, play: impl FnOnce(&Arc<Scene>, Containment) + Send + 'static) {
    mcpvisor_testkit::scene_within(Duration::from_secs(300), move |scene| {
        if containment.is_possible(scene) {
            play(scene, containment);
        }
    });
}

/// A test for each action: a module with the sweep's name.
macro_rules! sweeps {
    ($($(#[$meta:meta])* fn $name:ident() = $containment:ident, $table:literal, $what:ident, [$($test:ident: $action:ident),*], $of:expr;)*) => {
        $(
            $(#[$meta])*
            mod $name {
                use super::*;

                $(#[test]
                fn $test() {
                    on(Containment::$containment, |scene, containment| {
                        sweep(scene, containment, ($table, What::$what), Action::$action, $of);
                    });
                })*
            }
        )*
    };
}

sweeps! {
    fn g7_g17_g22_an_open_at_every_gate() =
        Cgroup, "an open at a gate", Open, [cancel: Cancel, close: Close, shutdown: Shutdown, kill: Kill], |_| true;
    fn g7_g17_g22_an_open_at_every_gate_with_keepers() =
        Keeper, "an open at a gate", Open, [cancel: Cancel, close: Close, shutdown: Shutdown, kill: Kill], |_| true;
    fn g12_g13_g14_g20_a_close_at_every_gate() =
        Cgroup, "a close at a gate", Close, [cancel: Cancel, close: Close, shutdown: Shutdown, kill: Kill], |_| true;
    // A keeper reaps its server itself.
    fn g12_g13_g14_g20_a_close_at_every_gate_with_keepers() =
        Keeper, "a close at a gate", Close, [cancel: Cancel, close: Close, shutdown: Shutdown, kill: Kill], |row| row.gate != "reaper.exit";
    fn g35_a_shutdown_at_every_gate() =
        Cgroup, "a shutdown at a gate", Shutdown, [cancel: Cancel, close: Close, shutdown: Shutdown, kill: Kill], |_| true;
    fn g7_a_requester_that_gives_up_at_every_gate() =
        Cgroup, "giving up at a gate", GiveUp, [close: Close, shutdown: Shutdown], |_| true;
    fn g7_g22_a_direct_open_at_every_gate() =
        Cgroup, "a direct open at a gate", Direct, [close: Close, shutdown: Shutdown, kill: Kill], |_| true;
    fn g22_g26_an_add_at_every_gate() =
        Cgroup, "an add at a gate", Add, [cancel: Cancel, close: Close, shutdown: Shutdown, kill: Kill], |_| true;
    // What comes before the launch is the same.
    fn g22_g26_an_add_at_every_gate_with_keepers() =
        Keeper, "an add at a gate", Add, [cancel: Cancel, close: Close, shutdown: Shutdown, kill: Kill], |row| row.gate.starts_with("launch.");
    fn g26_an_add_that_is_given_up_at_every_gate() =
        Cgroup, "giving up an add at a gate", GiveUpAdd, [close: Close, shutdown: Shutdown], |_| true;
    fn g14_g26_a_remove_at_every_gate() =
        Cgroup, "a remove at a gate", Remove, [cancel: Cancel, close: Close, shutdown: Shutdown, kill: Kill], |_| true;
    fn d5_g26_a_replacement_at_every_gate() =
        Cgroup, "a replacement at a gate", Reload, [cancel: Cancel, close: Close, shutdown: Shutdown], |_| true;
    fn e1_g19_a_call_that_wakes_at_every_gate() =
        Cgroup, "a call that wakes at a gate", Wake, [cancel: Cancel, close: Close, shutdown: Shutdown], |_| true;
    fn g6_g7_an_open_that_waits_for_a_slot_at_every_gate() =
        Cgroup, "an open that waits for a slot at a gate", Queued, [cancel: Cancel, close: Close, shutdown: Shutdown, kill: Kill], |_| true;
    fn g14_g29_a_restart_at_every_gate() =
        Cgroup, "a restart at a gate", Restart, [cancel: Cancel, close: Close, shutdown: Shutdown], |_| true;
}

/// With a guard taken out of the machines the sweep fails, at the gate where it matters.
fn control(
    bug: &'static str,
    name: &'static str,
    what: What,
    gate: &'static str,
    action: Action,
    grace: Duration,
) {
    on(Containment::Cgroup, move |scene, containment| {
        let rows = rows(name);
        let row = rows.iter().find(|row| row.gate == gate).expect("a gate of the table");
        let played = |bug| {
            let stage = Stage::set(scene, containment, grace, bug);
            let socket = stage.daemon.socket().to_owned();
            let came = std::panic::catch_unwind(AssertUnwindSafe(|| play(stage, what, row, action).0));
            // The daemon was killed with its stage: what it could not remove is.
            let _ = std::fs::remove_file(socket);
            came
        };
        let sound = played(None).expect("with every guard in place the play ends well");
        assert!(row.allows(action, &sound), "with every guard in place came `{sound}`");
        // A check that panics has noticed it, too.
        if let Ok(came) = played(Some(bug)) {
            assert!(!row.allows(action, &came), "{bug} was not noticed at {gate}: came `{came}`");
        }
    });
}

macro_rules! controls {
    ($(fn $name:ident() = $bug:literal, $table:literal, $what:ident, $gate:literal, $action:ident, $grace:expr;)*) => {
        $(
            #[test]
            fn $name() {
                control($bug, $table, What::$what, $gate, Action::$action, $grace);
            }
        )*
    };
}

controls! {
    fn control_g7() = "G7CancelFreesAtOnce", "an open at a gate", Open, "launch.birth", Cancel, GRACE;
    fn control_g13() = "G13JoinedCloseIsAnsweredEarly", "a close at a gate", Close, "server.stop", Close, GRACE;
    fn control_g14() = "G14CancelHurries", "a close at a gate", Close, "reaper.stdin", Cancel, Duration::from_secs(2);
    fn control_g17() = "G17LateLaunchIsForgotten", "an open at a gate", Open, "launch.birth", Close, GRACE;
    fn control_g20() = "G20WaitSaysClosedEarly", "a close at a gate", Close, "server.stop", Cancel, GRACE;
    fn control_g22() = "G22ReadyAfterClose", "an open at a gate", Open, "session.ready", Close, GRACE;
    fn control_g26() = "G26AddOutlivesTheClose", "an add at a gate", Add, "server.shook", Close, GRACE;
    fn control_g26_cancel() = "G26CancelIsForgotten", "an add at a gate", Add, "launch.birth", Cancel, GRACE;
    fn control_g26_late_cancel() = "G26AnswerOnItsWayIsForgotten", "an add at a gate", Add, "session.ready", Cancel, GRACE;
    fn control_g35() = "G35ShutdownSkipsStarting", "an open at a gate", Open, "launch.birth", Shutdown, GRACE;
}

/// The page and the daemon have the same gates, and every one is in a sweep.
#[test]
fn every_gate_is_on_the_page() {
    mcpvisor_testkit::scene(|scene| {
        let mut stage = Stage::set(scene, Containment::Keeper, GRACE, None);
        let known: BTreeSet<String> = stage.gates.all().into_iter().collect();
        let told: BTreeSet<String> = table::gates().into_iter().collect();
        let missing: Vec<_> = known.symmetric_difference(&told).collect();
        assert!(missing.is_empty(), "gates that only the daemon, or only the page, has: {missing:?}");
        let Stage { daemon, gates, other, .. } = stage;
        drop((gates, other));
        daemon.finish();
    });
}
