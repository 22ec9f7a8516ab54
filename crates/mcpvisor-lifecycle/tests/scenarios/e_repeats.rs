//! Requests that are sent again, in every order of three requesters, the work's end and time.
use mcpvisor_lifecycle::repeats::{Name, Repeats, RepeatsConfig, RepeatsEffect, RepeatsEvent, Work};
use mcpvisor_lifecycle::{Moment, RequestId, Uid};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const GRACE: Duration = Duration::from_secs(10);
const REQUESTERS: u64 = 3;
/// So many steps show every pair of events behind every other.
const STEPS: usize = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Step {
    Ask(u64),
    Take(u64),
    Vanish(u64),
    Cancel(u64),
    Done,
    DoneWithNothing,
    Time,
}

/// What is known from outside of the machine.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
struct Seen {
    asked: BTreeSet<u64>,
    /// Who waits, by the work that it waits for.
    waits: BTreeMap<u64, Work>,
    /// Who was told and has not taken it, with whose answer it is.
    told: BTreeMap<u64, Work>,
    running: Option<Work>,
    taken: BTreeSet<Work>,
    began: usize,
}

struct Explorer {
    outcomes: BTreeSet<String>,
    seen: BTreeSet<(Seen, String)>,
}

fn possible(seen: &Seen, machine: &Repeats) -> Vec<Step> {
    let mut all = Vec::new();
    for asker in 1..=REQUESTERS {
        if !seen.asked.contains(&asker) {
            all.push(Step::Ask(asker));
            // They are alike: the next one that asks is the first that has not.
            break;
        }
    }
    all.extend(seen.told.keys().map(|asker| Step::Take(*asker)));
    let there = || seen.waits.keys().chain(seen.told.keys());
    all.extend(there().flat_map(|asker| [Step::Vanish(*asker), Step::Cancel(*asker)]));
    if seen.running.is_some() {
        all.extend([Step::Done, Step::DoneWithNothing]);
    }
    if machine.next_timeout().is_some() {
        all.push(Step::Time);
    }
    all
}

fn event(step: Step, seen: &Seen) -> RepeatsEvent {
    let work = seen.running.unwrap_or(Work(0));
    match step {
        Step::Ask(asker) => RepeatsEvent::Ask {
            asker: RequestId(asker),
            owner: Uid(1),
            name: Name("x".into()),
            digest: 1,
            goes_on: false,
            deadline: None,
        },
        Step::Take(asker) => RepeatsEvent::Take { asker: RequestId(asker) },
        Step::Vanish(asker) => RepeatsEvent::Leave { asker: RequestId(asker), cancelled: false },
        Step::Cancel(asker) => RepeatsEvent::Leave { asker: RequestId(asker), cancelled: true },
        Step::Done => RepeatsEvent::Answered { work, keep: true },
        Step::DoneWithNothing => RepeatsEvent::Answered { work, keep: false },
        Step::Time => RepeatsEvent::Timeout,
    }
}

/// What may and may not follow.
fn look(
    seen: &mut Seen,
    step: Step,
    effects: &[RepeatsEffect],
    outcomes: &mut BTreeSet<String>,
) -> Result<(), String> {
    match step {
        Step::Ask(asker) => {
            seen.asked.insert(asker);
        }
        Step::Take(asker) => {
            seen.taken.extend(seen.told.remove(&asker));
        }
        Step::Vanish(asker) | Step::Cancel(asker) => {
            seen.waits.remove(&asker);
            seen.told.remove(&asker);
        }
        Step::Done | Step::DoneWithNothing => seen.running = None,
        Step::Time => {}
    }
    for effect in effects {
        match effect {
            RepeatsEffect::Begin { work } => {
                if let Some(other) = seen.running.replace(*work) {
                    return Err(format!("E.4: {work:?} is begun beside {other:?}"));
                }
                seen.began += 1;
                outcomes.insert(format!("begun {} times", seen.began));
            }
            RepeatsEffect::Answer { asker, work } => {
                seen.waits.remove(&asker.0);
                seen.told.insert(asker.0, *work);
                outcomes
                    .insert(format!("answered at {step:?}").split('(').next().unwrap_or_default().to_owned());
                if seen.running == Some(*work) {
                    return Err(format!("E.4: {asker:?} is answered before there is an answer"));
                }
            }
            RepeatsEffect::GiveUp { work } => {
                if seen.waits.values().any(|other| other == work) {
                    return Err(format!("G24: {work:?} is given up although somebody waits for it"));
                }
                if matches!(step, Step::Vanish(_)) {
                    return Err(format!("G24: {work:?} is given up although its requester may come back"));
                }
                if seen.taken.contains(work) {
                    return Err(format!("G24: {work:?} is undone although somebody has its answer"));
                }
                seen.running = seen.running.filter(|running| running != work);
                outcomes
                    .insert(format!("given up by {step:?}").split('(').next().unwrap_or_default().to_owned());
            }
            RepeatsEffect::Refuse { asker, refusal } => {
                return Err(format!("E.4: {asker:?} is refused: {refusal:?}"));
            }
            RepeatsEffect::Forget { .. } => {}
        }
    }
    Ok(())
}

impl Explorer {
    fn visit(&mut self, now: Moment, machine: &Repeats, seen: &Seen, left: usize) -> Result<(), String> {
        if left == 0 || !self.seen.insert((seen.clone(), format!("{left} {now:?} {machine:?}"))) {
            return Ok(());
        }
        for step in possible(seen, machine) {
            let (mut machine, mut next) = (machine.clone(), seen.clone());
            let now = if step == Step::Time { machine.next_timeout().unwrap_or(now) } else { now };
            let effects = machine.step(now, event(step, seen));
            // A new requester waits for what is under way.
            let current = match effects.first() {
                Some(RepeatsEffect::Begin { work }) => Some(*work),
                _ => seen.running,
            };
            if let (Step::Ask(asker), Some(work)) = (step, current) {
                next.waits.insert(asker, work);
            }
            look(&mut next, step, &effects, &mut self.outcomes)
                .map_err(|wrong| format!("{wrong}; last {step:?}"))?;
            self.visit(now, &machine, &next, left - 1)?;
        }
        Ok(())
    }
}

fn every_order(machine: &Repeats) -> Result<BTreeSet<String>, String> {
    let mut explorer = Explorer { outcomes: BTreeSet::new(), seen: BTreeSet::new() };
    explorer.visit(Moment(1), machine, &Seen::default(), STEPS)?;
    Ok(explorer.outcomes)
}

fn machine() -> Repeats {
    Repeats::new(RepeatsConfig { per_user: 9, age: Duration::from_secs(60), grace: GRACE })
}

/// E.4, G24: one id is one work and one answer; only who cancels, or stays away for the whole grace, gives it up.
#[test]
fn g24_e4_a_request_that_is_sent_again_is_carried_out_once() {
    let outcomes = every_order(&machine()).unwrap_or_else(|wrong| panic!("{wrong}"));
    for expected in [
        "begun 1 times",
        "begun 3 times",
        "answered at Ask",
        "answered at Done",
        "given up by Cancel",
        "given up by Time",
    ] {
        assert!(outcomes.contains(expected), "no order comes to {expected}: {outcomes:?}");
    }
}

/// With a guard taken out some order shows it.
#[cfg(feature = "seeded-bugs")]
#[test]
fn control_g24_repeats() {
    use mcpvisor_lifecycle::seeded::RepeatsBug;
    for bug in [RepeatsBug::VanishingCancels, RepeatsBug::ARetryComesTooLate, RepeatsBug::ACancelIsEverybodys]
    {
        let wrong =
            every_order(&machine().with_bug(bug)).expect_err("some order must show that the guard is gone");
        assert!(wrong.starts_with("G24:"), "{bug:?} breaks something else: {wrong}");
    }
}
