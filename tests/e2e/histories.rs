//! Random histories of several clients on the real daemon, with the pure registry machine as the judge (G1, G2, G3, G6, G7, G12,
//! G13, G14, G20, G22).
//!
//! `cargo xtask histories [COUNT [SEED]]` plays more of them, and plays one again by its seed. What clients ask follows from the
//! seed alone; the order in which the kernel lets them does not, so a history that failed may have to be played some times to
//! fail again. What happened is printed in full.
mod judge;
mod log;
pub(crate) mod outside;
pub(crate) mod play;

use self::judge::Judge;
use self::log::{Event, Told};
use self::outside::Outside;
use self::play::Play;
use mcpvisor_testkit::{Containment, Daemon, Setup, scene_within};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Histories on one daemon; then the oracle looks.
const BATCH: u64 = 50;

/// What the histories of a run came to.
#[derive(Debug, Default)]
struct Tally {
    histories: u64,
    answers: BTreeMap<String, u64>,
    /// States that the judge looked at for one of them, at most.
    most: usize,
}

impl Tally {
    fn count(&mut self, log: &[(Duration, Event)]) {
        self.histories += 1;
        for (_, event) in log {
            if let Event::Tell { told, .. } = event {
                *self.answers.entry(word(told)).or_default() += 1;
            }
        }
    }
}

fn word(told: &Told) -> String {
    match told {
        Told::Refused { kind, .. } => kind.split(':').next().unwrap_or(kind).to_owned(),
        other => format!("{other:?}").split([' ', '(']).next().unwrap_or_default().to_owned(),
    }
}

fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

/// Plays `usual` histories, or as many as are asked for.
fn histories(containment: Containment, usual: u64, first: u64) {
    // Of a long run a quarter is on keepers; one history alone, played again by its seed, is on both.
    let count = match (number("MCPVISOR_HISTORIES", 0), containment) {
        (0, _) => usual,
        (all, Containment::Keeper) => all.div_ceil(4),
        (all, Containment::Cgroup) => all - all / 4,
    };
    let seed = number("MCPVISOR_SEED", first);
    let tally = Arc::new(Mutex::new(Tally::default()));
    let mut done = 0;
    while done < count {
        let some = BATCH.min(count - done);
        let (from, ours) = (seed + done, tally.clone());
        scene_within(Duration::from_secs(600), move |scene| {
            if !containment.is_possible(scene) {
                return;
            }
            let setup = Setup::on(containment)
                .daemon(&format!("max_sessions = {}", judge::MOST_SESSIONS))
                .daemon(&format!("max_sessions_per_tenant = {}", judge::MOST_OF_A_TENANT))
                .config("[timeouts]\nstdin_grace = \"15ms\"\nterm_grace = \"15ms\"\ndrain = \"200ms\"\nstart = \"60s\"");
            let daemon = Daemon::start(scene, &setup);
            let outside = Outside::of(&daemon, containment);
            let mut last = 0;
            for seed in from..from + some {
                let play = Play::new(scene, &daemon, &outside, seed);
                let (mut wrong, after) = play.play();
                let log = play.log.take();
                let mut judge = Judge::new(&log);
                wrong.extend(judge.judge(last).err());
                last = after;
                let mut tally = ours.lock().unwrap_or_else(PoisonError::into_inner);
                tally.count(&log);
                tally.most = tally.most.max(judge.states);
                assert!(
                    wrong.is_empty(),
                    "history {seed} on {containment}:\n{}\n{}",
                    wrong.join("\n"),
                    tell(&log)
                );
            }
            daemon.finish();
        });
        done += some;
        let tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
        println!("{} histories on {containment}, the last with seed {}", tally.histories, seed + done - 1);
    }
    let tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
    println!(
        "{} histories on {containment}: {:?}; at most {} states",
        tally.histories, tally.answers, tally.most
    );
    // Histories that come to little say little.
    if tally.histories >= 50 {
        let missing: Vec<&str> =
            EXPECTED.iter().filter(|word| !tally.answers.contains_key(**word)).copied().collect();
        assert!(missing.is_empty(), "no history comes to {missing:?}: {:?}", tally.answers);
    }
}

const EXPECTED: [&str; 14] = [
    "Opened",
    "Done",
    "Stopping",
    "NotYet",
    "Shown",
    "Counts",
    "cancelled",
    "capacity_exhausted",
    "deadline_exceeded",
    "not_found",
    "session_closed",
    "session_closing",
    "session_exists",
    "invalid_request",
];

/// The whole log, for people.
fn tell(log: &[(Duration, Event)]) -> String {
    let mut text = String::new();
    for (at, event) in log {
        let _ = writeln!(text, "{:9.3} ms {event:?}", at.as_secs_f64() * 1000.0);
    }
    text
}

#[test]
fn every_answer_is_one_that_the_machine_gives_on_cgroups() {
    histories(Containment::Cgroup, 70, 1);
}

#[test]
fn every_answer_is_one_that_the_machine_gives_on_keepers() {
    histories(Containment::Keeper, 50, 1_000_001);
}
