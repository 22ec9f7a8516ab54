//! The table of requests that may be sent again.
use super::parse::{Table, Words, words};
use mcpvisor_lifecycle::repeats::{Name, NotRepeated, Repeats, RepeatsConfig, RepeatsEffect, RepeatsEvent};
use mcpvisor_lifecycle::repeats::{RepeatsEvent as Event, Work};
use mcpvisor_lifecycle::{Moment, RequestId, Uid};
use std::time::Duration;

const FIRST: RequestId = RequestId(1);
const SECOND: RequestId = RequestId(2);
const NEW: RequestId = RequestId(9);
const BEGIN: Moment = Moment(1_000_000);
const GRACE: Duration = Duration::from_secs(10);
const AGE: Duration = Duration::from_secs(60);

/// The machine with one id, and what its test knows of it.
#[derive(Clone)]
struct Variant {
    machine: Repeats,
    state: &'static str,
    holds: Words,
}

fn config(per_user: usize) -> RepeatsConfig {
    RepeatsConfig { per_user, age: AGE, grace: GRACE }
}

fn ask(asker: RequestId, digest: u64, goes_on: bool, deadline: Option<Moment>) -> Event {
    Event::Ask { asker, owner: Uid(1000), name: Name("x".into()), digest, goes_on, deadline }
}

impl Variant {
    fn new(per_user: usize, word: &'static str) -> Self {
        Self { machine: Repeats::new(config(per_user)), state: "unknown", holds: words(&[word]) }
    }

    fn then(&self, state: &'static str, events: &[Event], more: &[&str]) -> Self {
        let mut next = self.clone();
        for event in events {
            let _ = next.machine.step(BEGIN, event.clone());
        }
        next.state = state;
        next.holds.extend(words(more));
        next
    }

    fn without(mut self, word: &str) -> Self {
        self.holds.remove(word);
        self
    }
}

fn variants() -> Vec<Variant> {
    let kept = Event::Answered { work: Work(1), keep: true };
    let vanish = |asker| Event::Leave { asker, cancelled: false };
    let take = |asker| Event::Take { asker };
    let mut all = vec![Variant::new(1, "room"), Variant::new(0, "full")];
    for (goes_on, word) in [(false, "patient"), (true, "goes on")] {
        let alone =
            Variant::new(9, word).then("running", &[ask(FIRST, 7, goes_on, None)], &["alone", "untaken"]);
        let two = alone.then("running", &[ask(SECOND, 7, goes_on, None)], &["others"]).without("alone");
        let answered = alone.then("answered", std::slice::from_ref(&kept), &[]);
        let both = two.then("answered", std::slice::from_ref(&kept), &[]);
        let remembered = answered.then("remembered", &[take(FIRST)], &["taken"]).without("untaken");
        let again = remembered.then("answered", &[ask(FIRST, 7, goes_on, None)], &[]);
        if goes_on {
            let nobody = alone.then("running", &[vanish(FIRST)], &["nobody"]).without("alone");
            all.push(nobody.then("remembered", std::slice::from_ref(&kept), &[]));
            all.push(nobody);
        } else {
            let deserted = alone.then("deserted", &[vanish(FIRST)], &[]).without("alone");
            all.push(deserted.then("unclaimed", std::slice::from_ref(&kept), &[]));
            all.push(deserted);
        }
        all.extend([alone, two, answered, both, remembered, again]);
    }
    all
}

fn events() -> Vec<(&'static str, Event)> {
    let leave = |cancelled| Event::Leave { asker: FIRST, cancelled };
    vec![
        ("Ask", ask(NEW, 7, false, None)),
        ("Ask(late)", ask(NEW, 7, false, Some(BEGIN))),
        ("Ask(other)", ask(NEW, 8, false, None)),
        ("Take", Event::Take { asker: FIRST }),
        ("Leave(vanished)", leave(false)),
        ("Leave(cancelled)", leave(true)),
        ("Answered(kept)", Event::Answered { work: Work(1), keep: true }),
        ("Answered(left nothing)", Event::Answered { work: Work(1), keep: false }),
        ("Timeout", Event::Timeout),
    ]
}

fn effect(effect: &RepeatsEffect) -> String {
    match effect {
        RepeatsEffect::Begin { .. } => "Begin".into(),
        RepeatsEffect::Answer { .. } => "Answer".into(),
        RepeatsEffect::Refuse { refusal, .. } => match refusal {
            NotRepeated::OtherRequest => "Refuse(OtherRequest)".into(),
            NotRepeated::TooMany { .. } => "Refuse(TooMany)".into(),
            NotRepeated::DeadlineExceeded => "Refuse(DeadlineExceeded)".into(),
        },
        RepeatsEffect::GiveUp { .. } => "GiveUp".into(),
        RepeatsEffect::Forget { .. } => "Forget".into(),
    }
}

/// What the outside can tell: whether the id is known, and what is waited for.
fn outline(machine: &Repeats, now: Moment) -> &'static str {
    let due = machine.next_timeout();
    match (machine.known(), machine.askers()) {
        (0, _) => "unknown",
        (_, 0) if due.is_none() => "running",
        (_, 0) if due.is_some_and(|at| at <= now.after(GRACE)) => "waits for a retry",
        (_, 0) => "remembered",
        (_, _) if due.is_none() => "running",
        _ => "answered",
    }
}

#[test]
fn the_table_of_repeats_is_what_the_machine_does() {
    let table = Table::read("repeats");
    for variant in variants() {
        for (name, event) in events() {
            let mut machine = variant.machine.clone();
            let now = match event {
                RepeatsEvent::Timeout => machine.next_timeout().unwrap_or(BEGIN),
                _ => BEGIN,
            };
            let effects: Vec<_> = machine.step(now, event).iter().map(effect).collect();
            let case = format!("{}, {name}, {:?}", variant.state, variant.holds);
            let (line, next, wanted) = match table.row(variant.state, name, &variant.holds) {
                None => (0, variant.state.to_owned(), Vec::new()),
                Some(row) => (row.line, row.next.clone(), row.effects.clone()),
            };
            assert_eq!(effects, wanted, "effects of {case} (line {line})");
            let next = match next.as_str() {
                "deserted" | "unclaimed" => "waits for a retry",
                other => other,
            };
            assert_eq!(outline(&machine, now), next, "next state of {case} (line {line})");
        }
    }
    table.assert_all_used();
}
