//! One key of a registry in every state and variant.
use super::parse::{Words, words};
use mcpvisor_lifecycle::registry::{
    Answer, CloseOptions, Goal, IfClosing, IfOpen, Open, Phase, Quota, Refusal, Registry, RegistryConfig,
    RegistryEffect, RegistryEvent, Target, Urgency,
};
use mcpvisor_lifecycle::session::{CloseReason, Ended};
use mcpvisor_lifecycle::{Generation, KeyRef, Moment, RequestId, SessionId, SessionKey, Uid};
use std::time::Duration;

/// The requests of a variant that wait, by the roles of the table of answers.
pub(crate) const OPENER: RequestId = RequestId(1);
pub(crate) const PARKED: RequestId = RequestId(2);
pub(crate) const CLOSER: RequestId = RequestId(3);
pub(crate) const WAIT_CLOSED: RequestId = RequestId(4);
pub(crate) const WAIT_READY: RequestId = RequestId(5);
const SECOND_OPENER: RequestId = RequestId(6);
const SETUP: RequestId = RequestId(50);
const NEW: RequestId = RequestId(100);

/// A registry, with what its test knows of the key.
#[derive(Clone)]
pub(crate) struct Variant {
    pub(crate) registry: Registry,
    pub(crate) now: Moment,
    pub(crate) holds: Words,
    /// Who waits, in order: the request, and its row in the table of answers.
    pub(crate) waiting: Vec<(RequestId, &'static str)>,
}

pub(crate) fn key() -> KeyRef {
    KeyRef { uid: Uid(1000), key: SessionKey::new("k").expect("it has a key's form") }
}

fn session(generation: u64) -> SessionId {
    SessionId { uid: Uid(1000), generation: Generation(generation) }
}

pub(crate) fn config() -> RegistryConfig {
    RegistryConfig {
        max_sessions: 10,
        max_sessions_per_user: 10,
        max_sessions_per_tenant: 10,
        tombstones: 10,
        tombstone_age: Duration::from_secs(3600),
        breaker: mcpvisor_lifecycle::BreakerConfig::default(),
        ..RegistryConfig::default()
    }
}

/// Every event by its name.
pub(crate) fn events(now: Moment) -> Vec<(String, RegistryEvent)> {
    let mut all = Vec::new();
    for name in ["Open", "Open(no wait)", "Open(other definition)", "Open(fail if open)"] {
        all.push((name.to_owned(), RegistryEvent::Open(open(NEW, name, None))));
    }
    all.push(("Open(fail if closing)".into(), RegistryEvent::Open(open(NEW, "Open(fail if closing)", None))));
    all.push(("Open(late)".into(), RegistryEvent::Open(open(NEW, "Open", Some(now)))));
    for (named, generation) in [("", None), ("older", Some(1)), ("current", Some(2)), ("newer", Some(9))] {
        let target = Target { key: key(), generation: generation.map(Generation) };
        let name = |verb: &str| if named.is_empty() { verb.to_owned() } else { format!("{verb}({named})") };
        all.push((name("Close"), close(NEW, &target, false, true)));
        all.push((
            name("RetryKill"),
            RegistryEvent::RetryKill { request: NEW, target: target.clone(), deadline: None },
        ));
        for (verb, goal) in [("WaitClosed", Goal::Closed), ("WaitReady", Goal::Ready)] {
            let target = target.clone();
            all.push((name(verb), RegistryEvent::Wait { request: NEW, target, goal, deadline: None }));
        }
        if named.is_empty() {
            all.push(("Close(now)".into(), close(NEW, &target, true, true)));
            all.push(("Close(no wait)".into(), close(NEW, &target, false, false)));
        }
    }
    for (name, request) in [("opener", OPENER), ("parked", PARKED), ("closer", CLOSER), ("unknown", NEW)] {
        all.push((format!("Cancel({name})"), RegistryEvent::Cancel { request }));
    }
    let current = session(2);
    all.push(("SessionReady".into(), RegistryEvent::SessionReady { session: current }));
    for reason in [CloseReason::StartFailed, CloseReason::Idle] {
        all.push((
            format!("CloseWanted({reason:?})"),
            RegistryEvent::CloseWanted { session: current, reason },
        ));
    }
    all.push(("IdleClaimed".into(), RegistryEvent::IdleClaimed { session: current }));
    all.push(("Detached".into(), RegistryEvent::Detached { session: current }));
    all.push(("GateRetired".into(), RegistryEvent::GateRetired { session: current }));
    for ended in [Ended::Closed, Ended::Failed] {
        all.push((
            format!("SessionEnded({ended:?})"),
            RegistryEvent::SessionEnded { session: current, ended },
        ));
    }
    all.push(("SessionQuarantined".into(), RegistryEvent::SessionQuarantined { session: current }));
    all.push(("SessionLost".into(), RegistryEvent::SessionLost { session: current }));
    all.push(("Fence".into(), RegistryEvent::Fence));
    for urgency in [Urgency::Drain, Urgency::Hurry, Urgency::Kill] {
        all.push((format!("Shutdown({urgency:?})"), RegistryEvent::Shutdown { urgency }));
    }
    all
}

pub(crate) fn open(request: RequestId, name: &str, deadline: Option<Moment>) -> Open {
    Open {
        request,
        key: key(),
        tenant: None,
        parent: None,
        quota: Quota::default(),
        queue: None,
        definition: if name == "Open(other definition)" { 8 } else { 7 },
        if_closing: if name == "Open(fail if closing)" { IfClosing::Fail } else { IfClosing::Wait },
        if_open: if name == "Open(fail if open)" { IfOpen::Fail } else { IfOpen::Join },
        direct: name == "Open(direct)",
        wait: name != "Open(no wait)",
        deadline,
        specs: Vec::new(),
    }
}

pub(crate) fn close(request: RequestId, target: &Target, now: bool, wait: bool) -> RegistryEvent {
    let options = CloseOptions { drain: None, now };
    RegistryEvent::Close { request, target: target.clone(), options, wait, deadline: None }
}

pub(crate) fn result(result: &Result<Answer, Refusal>) -> String {
    let text = match result {
        Ok(answer) => format!("{answer:?}"),
        Err(refusal) => format!("{refusal:?}"),
    };
    text.split(' ').next().unwrap_or_default().to_owned()
}

pub(crate) fn effect(effect: &RegistryEffect) -> String {
    match effect {
        RegistryEffect::Start { .. } => "Start".to_owned(),
        RegistryEffect::Close { reason, options, .. } if options.now => format!("Close({reason:?}, now)"),
        RegistryEffect::Close { reason, .. } => format!("Close({reason:?})"),
        RegistryEffect::RetireGate { .. } => "RetireGate".to_owned(),
        RegistryEffect::LeftQueue { admitted, .. } => format!("LeftQueue({admitted})"),
        RegistryEffect::Evict { .. } => "Evict".to_owned(),
        RegistryEffect::Revoke { .. } => "Revoke".to_owned(),
        RegistryEffect::StayOpen { .. } => "StayOpen".to_owned(),
        RegistryEffect::AwaitChildren { .. } => "AwaitChildren".to_owned(),
        RegistryEffect::ChildrenGone { .. } => "ChildrenGone".to_owned(),
        RegistryEffect::Urge { urgency, .. } => format!("Urge({urgency:?})"),
        RegistryEffect::RetryKill { .. } => "RetryKill".to_owned(),
        RegistryEffect::ReapLost { .. } => "ReapLost".to_owned(),
        RegistryEffect::Reply { request, result: told } if *request == NEW => {
            format!("Reply({})", result(told))
        }
        RegistryEffect::Reply { request, result: told } => format!("{request:?} {}", result(told)),
        RegistryEffect::Breaker { open, .. } => format!("Breaker({open})"),
        RegistryEffect::Forget { .. } => "Forget".to_owned(),
        RegistryEffect::Queued { position, .. } => format!("Queued({position})"),
        RegistryEffect::Finished { leftovers } => format!("Finished({leftovers})"),
    }
}

pub(crate) fn fine_state(registry: &Registry) -> &'static str {
    match registry.current(&key()) {
        None if registry.find(&Target { key: key(), generation: None }).is_some() => "ended",
        None => "free",
        Some((_, Phase::Starting)) => "starting",
        Some((_, Phase::Live)) => "live",
        Some((_, Phase::Dying)) if registry.is_parked(&key()) => "parked",
        Some((_, Phase::Dying)) => "dying",
        Some((_, Phase::Quarantined)) => "quarantined",
    }
}

impl Variant {
    fn then(&self, events: &[RegistryEvent], add: &[&str]) -> Self {
        let mut next = self.clone();
        for event in events {
            next.now = next.now.after(Duration::from_millis(1));
            let _ = next.registry.step(next.now, event.clone());
        }
        next.holds.extend(words(add));
        next
    }

    fn waits(mut self, request: RequestId, role: &'static str) -> Self {
        self.waiting.push((request, role));
        self
    }

    fn without(mut self, word: &str) -> Self {
        self.holds.remove(word);
        self
    }

    /// The same behind the fence, or with no room, as far as that can be.
    fn fences(self, all: &mut Vec<Self>) {
        if self.holds.contains("admitting") && !self.registry.is_parked(&key()) {
            all.push(self.then(&[RegistryEvent::Fence], &["fenced"]).without("admitting").without("room"));
        }
        all.push(self);
    }

    /// The openers' row changes with the reason of the end.
    fn openers(mut self, role: &'static str) -> Self {
        for entry in &mut self.waiting {
            if entry.0 == OPENER {
                entry.1 = role;
            }
        }
        self
    }
}

fn wait(request: RequestId, goal: Goal) -> RegistryEvent {
    let target = Target { key: key(), generation: None };
    RegistryEvent::Wait { request, target, goal, deadline: None }
}

fn any() -> Target {
    Target { key: key(), generation: None }
}

/// Every state in every variant.
pub(crate) fn variants() -> Vec<Variant> {
    let mut all = Vec::new();
    let holds = words(&["admitting", "room", "not shut down"]);
    let empty = Variant { registry: Registry::new(config()), now: Moment(1_000), holds, waiting: vec![] };
    let first =
        [RegistryEvent::Open(open(SETUP, "Open", None)), RegistryEvent::SessionReady { session: session(1) }];
    let end = |ended| {
        [close(SETUP, &any(), false, false), RegistryEvent::SessionEnded { session: session(1), ended }]
    };
    let well = empty.then(&first, &["ended well"]).then(&end(Ended::Closed), &[]);
    let badly = empty.then(&first, &["ended badly"]).then(&end(Ended::Failed), &[]);
    for free in [&empty, &well, &badly] {
        let full = RegistryConfig { max_sessions: 0, ..config() };
        all.push(free.then(&[RegistryEvent::Reconfigure(full)], &["full"]).without("room"));
        let down = [RegistryEvent::Shutdown { urgency: Urgency::Kill }];
        let down = free.then(&down, &["fenced", "shut down"]);
        all.push(down.without("admitting").without("room").without("not shut down"));
        free.clone().fences(&mut all);
    }
    held(&well, "Open", "relay", &mut all);
    held(&well, "Open(direct)", "direct", &mut all);
    all
}

/// A key that is held by a session of a mode.
fn held(well: &Variant, opened: &str, mode: &str, all: &mut Vec<Variant>) {
    let waits = if mode == "direct" { "wait for closed, direct" } else { "wait for closed" };
    let starting = well
        .then(
            &[
                RegistryEvent::Open(open(OPENER, opened, None)),
                wait(WAIT_CLOSED, Goal::Closed),
                wait(WAIT_READY, Goal::Ready),
            ],
            &["tellable", mode],
        )
        .waits(OPENER, "opener")
        .waits(WAIT_CLOSED, waits)
        .waits(WAIT_READY, "wait for ready");
    let alone = starting.then(&[], &["nobody else"]);
    let others = starting
        .then(&[RegistryEvent::Open(open(SECOND_OPENER, "Open", None))], &[])
        .waits(SECOND_OPENER, "opener");
    let held = starting.then(&[RegistryEvent::Open(open(SETUP, "Open(no wait)", None))], &[]);
    for variant in [alone.clone(), others.clone(), held.clone()] {
        variant.fences(all);
    }
    let ready = RegistryEvent::SessionReady { session: session(2) };
    for starting in [&alone, &others, &held] {
        let mut live = starting.then(std::slice::from_ref(&ready), &[]);
        live.waiting = vec![(WAIT_CLOSED, waits)];
        live.fences(all);
    }
    let mut joined = alone.then(&[ready, RegistryEvent::Open(open(SETUP, "Open", None))], &[]);
    joined.waiting = vec![(WAIT_CLOSED, waits)];
    joined.without("nobody else").fences(all);
    for dying in dying(&alone) {
        let parked = dying.then(&[RegistryEvent::Open(open(PARKED, "Open", None))], &[]);
        if parked.registry.is_parked(&key()) {
            all.push(parked.waits(PARKED, "parked open"));
        }
        quarantined(&dying, all);
        dying.fences(all);
    }
}

/// The ways into a teardown.
fn dying(starting: &Variant) -> Vec<Variant> {
    let id = session(2);
    let someone = "opener, closed by someone";
    let lost = RegistryEvent::SessionLost { session: id };
    let shutdown = |urgency| RegistryEvent::Shutdown { urgency };
    let tell = |urgency: Urgency, word| {
        let down = starting.then(&[shutdown(urgency)], &[word, "shut down", "fenced"]).openers(someone);
        down.without("admitting").without("room").without("not shut down")
    };
    let failed = RegistryEvent::CloseWanted { session: id, reason: CloseReason::StartFailed };
    let closed = starting.then(&[close(CLOSER, &any(), false, true)], &["unhurried"]);
    let hurried = starting.then(&[close(CLOSER, &any(), true, true)], &["hurried"]);
    vec![
        closed.waits(CLOSER, "closer").openers(someone),
        hurried.waits(CLOSER, "closer").openers(someone),
        starting.then(&[failed], &["unhurried"]).openers("opener, failed by itself"),
        starting
            .then(&[lost], &["unhurried", "lost"])
            .without("tellable")
            .openers("opener, failed by itself"),
        tell(Urgency::Drain, "unhurried"),
        tell(Urgency::Hurry, "hurried"),
    ]
}

fn quarantined(dying: &Variant, all: &mut Vec<Variant>) {
    let id = session(2);
    let mut resting = dying.then(&[RegistryEvent::SessionQuarantined { session: id }], &["resting"]);
    resting.waiting.retain(|(_, role)| matches!(*role, "wait for closed" | "wait for ready"));
    let target = any();
    let retry = RegistryEvent::RetryKill { request: CLOSER, target, deadline: None };
    let mut retrying = resting.then(&[retry], &["retrying"]).without("resting");
    retrying.waiting.push((CLOSER, "closer"));
    let lost = RegistryEvent::SessionLost { session: id };
    let reaping = resting.then(&[lost], &["lost", "retrying"]).without("resting").without("tellable");
    if dying.holds.contains("tellable") {
        reaping.fences(all);
    }
    for variant in [resting, retrying] {
        variant.fences(all);
    }
}
