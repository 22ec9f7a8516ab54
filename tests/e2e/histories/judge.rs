//! The judge: is every answer of a history one that the pure registry machine gives, in some order of the requests that
//! were under way at the same time?
//!
//! Between two events that were seen any number of unseen ones may lie: a request reaches the machine, a cancellation does,
//! patience ends, a session becomes ready, fails by itself or ends. The judge looks for unseen events with which the machine
//! gives every answer that was given. It goes on from where it has come furthest with the fewest of them, and knows where it
//! has been; only where there is nothing left to try was an answer wrong. An unseen event that is not needed for the next
//! answer is put off: it can come later as well.
use super::log::{Asked, Event, Kind, Request, Told};
use mcpvisor_lifecycle::registry::{
    CloseOptions, Counts, Goal, IfClosing, IfOpen, Open, Phase, Quota, Registry, RegistryConfig,
    RegistryEffect, RegistryEvent, Target,
};
use mcpvisor_lifecycle::session::{CloseReason, Ended};
use mcpvisor_lifecycle::{Generation, KeyRef, Moment, RequestId, SessionId, SessionKey, Tenant, Uid};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashSet};
use std::time::Duration;

/// Sessions at most, in total; few, so that they are scarce.
pub(crate) const MOST_SESSIONS: usize = 2;
/// And of one tenant.
pub(crate) const MOST_OF_A_TENANT: usize = 1;
/// States at most before the judge gives up on a history, which is then taken for wrong.
const MOST_STATES: usize = 1_000_000;
/// How many unseen events an answer is worth: as many are tried on the way that has come further before another is.
const WORTH: i64 = 4;

const OWNER: Uid = Uid(0);
/// Time stands still in the machine: whose patience ends when is the judge's choice.
const NOW: Moment = Moment(0);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Holder {
    kind: Kind,
    creator: Request,
    reason: Option<CloseReason>,
}

/// Where the machine can be.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct State {
    registry: Registry,
    /// Requests that have reached it and whose answers were not seen yet.
    taken: BTreeSet<Request>,
    /// Of these, what it has answered.
    answered: BTreeMap<Request, Told>,
    /// Of these, those whose cancellation has reached it.
    gone: BTreeSet<Request>,
    sessions: BTreeMap<SessionId, Holder>,
}

impl State {
    fn after(given: u64) -> Self {
        let config = RegistryConfig {
            max_sessions: MOST_SESSIONS,
            max_sessions_per_user: 200,
            max_sessions_per_tenant: MOST_OF_A_TENANT,
            tombstones: 1000,
            tombstone_age: Duration::from_secs(1 << 32),
            breaker: mcpvisor_lifecycle::BreakerConfig::default(),
            ..RegistryConfig::default()
        };
        Self {
            registry: Registry::recover(config, Vec::new(), vec![(OWNER, Generation(given))]),
            taken: BTreeSet::new(),
            answered: BTreeMap::new(),
            gone: BTreeSet::new(),
            sessions: BTreeMap::new(),
        }
    }
}

#[derive(Debug, Clone)]
struct Known {
    client: usize,
    asked: Asked,
    patience: Option<Duration>,
    at: Duration,
    /// Where in the log it was asked; where it was cancelled, by its client's end, too; where it was told, or its client was
    /// gone.
    asked_at: usize,
    cancelled_at: usize,
    over_at: usize,
    /// What it will be told.
    told: Option<Told>,
}

impl Known {
    /// An open that does not wait goes on whatever its requester does.
    fn goes_on(&self) -> bool {
        matches!(self.asked, Asked::Open { wait: false, .. })
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Judge<'a> {
    log: &'a [(Duration, Event)],
    known: BTreeMap<Request, Known>,
    /// When each client was gone.
    vanished: BTreeMap<usize, usize>,
    /// The key of each generation that an answer names.
    keys: BTreeMap<u64, usize>,
    /// How many states were looked at.
    pub(crate) states: usize,
}

/// Where a search has come to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Place {
    /// The next event of the log.
    next: usize,
    state: State,
}

impl<'a> Judge<'a> {
    /// Of one history.
    pub(crate) fn new(log: &'a [(Duration, Event)]) -> Self {
        let mut judge =
            Self { log, known: BTreeMap::new(), vanished: BTreeMap::new(), keys: BTreeMap::new(), states: 0 };
        for (index, (at, event)) in log.iter().enumerate() {
            match event {
                Event::Ask { request, client, asked, patience } => {
                    let known = Known {
                        client: *client,
                        asked: *asked,
                        patience: *patience,
                        at: *at,
                        asked_at: index,
                        told: None,
                        cancelled_at: usize::MAX,
                        over_at: usize::MAX,
                    };
                    judge.known.insert(*request, known);
                }
                Event::Cancel { request } => judge.know(*request).cancelled_at = index,
                Event::Vanish { client } => {
                    judge.vanished.insert(*client, index);
                    let theirs = judge.known.values_mut().filter(|known| known.client == *client);
                    for known in theirs.filter(|known| known.over_at == usize::MAX) {
                        known.over_at = index;
                        known.cancelled_at = known.cancelled_at.min(index);
                    }
                }
                Event::Tell { request, told } => {
                    let known = judge.know(*request);
                    (known.told, known.over_at) = (Some(told.clone()), index);
                    if let (Some(key), Some(generation)) = (known.asked.key(), told.names()) {
                        judge.keys.insert(generation, key);
                    }
                }
            }
        }
        judge
    }

    fn know(&mut self, request: Request) -> &mut Known {
        self.known.get_mut(&request).expect("what is answered or cancelled was asked")
    }

    /// Judges it, of a daemon at rest that has given `last` as its last generation.
    ///
    /// # Errors
    /// The answer that was wrong, and why.
    pub(crate) fn judge(&mut self, last: u64) -> Result<(), String> {
        let begin = Place { next: 0, state: State::after(last) };
        let mut seen = HashSet::from([begin.clone()]);
        // By worth; of the same, the older first, so that what came to the kernel first is tried first.
        let mut open = BinaryHeap::from([(0, Reverse(0), Next(begin))]);
        let mut furthest = 0;
        while let Some((worth, _, Next(Place { next, state }))) = open.pop() {
            let Some((at, event)) = self.log.get(next) else { return Ok(()) };
            furthest = furthest.max(next);
            let mut after = Vec::new();
            if let Event::Tell { request, told } = event {
                let state = self.answer_questions(state, next);
                let fits = self.fits(&state, *request, told, next);
                // One that was given up may have reached the machine all the same, and have done something there.
                let may_have = told.is("cancelled") && !state.taken.contains(request);
                if fits.is_none() || may_have {
                    let unseen = self.unseen(&state, *at, next).into_iter();
                    after.extend(unseen.map(|state| (worth - 1, Place { next, state })));
                }
                if fits == Some(true) {
                    let state = self.without(state, *request);
                    after.push((worth + WORTH, Place { next: next + 1, state }));
                }
            } else {
                after.push((worth, Place { next: next + 1, state }));
            }
            for (worth, place) in after {
                if seen.insert(place.clone()) {
                    open.push((worth, Reverse(seen.len()), Next(place)));
                }
            }
            self.states = seen.len();
            if self.states > MOST_STATES {
                return Err(format!(
                    "the judge gives up after {MOST_STATES} states: {}",
                    self.wrong(furthest)
                ));
            }
        }
        Err(self.wrong(furthest))
    }

    fn wrong(&self, furthest: usize) -> String {
        match &self.log[furthest] {
            (at, Event::Tell { request, told }) => {
                let known = &self.known[request];
                let after = (*at - known.at).as_millis();
                format!(
                    "request {request} ({:?}) was told {told:?} after {after} ms, which the machine says in no order of what was asked",
                    known.asked
                )
            }
            (_, event) => format!("{event:?} was not come by"),
        }
    }

    /// Whether this state explains the answer; None where it does not yet.
    fn fits(&self, state: &State, request: Request, told: &Told, next: usize) -> Option<bool> {
        let known = &self.known[&request];
        if told.is("cancelled") {
            // Whoever is told so has left nothing behind: it never reached the machine, or was withdrawn from it.
            let harmless =
                !state.taken.contains(&request) || state.gone.contains(&request) || known.goes_on();
            return (known.cancelled_at < next && harmless).then_some(true);
        }
        let answered = state.answered.get(&request)?;
        if let (Told::Stopping { generation }, Told::Done { .. }) = (answered, told) {
            // Who does not wait is told what is known when the answer is written: the end, where that has come by then.
            let session = SessionId { uid: OWNER, generation: Generation(*generation) };
            return (!state.sessions.contains_key(&session)).then_some(true);
        }
        Some(answered == told)
    }

    /// Questions that this state answers are answered: they change nothing, so that the first chance is as good as any.
    fn answer_questions(&self, mut state: State, next: usize) -> State {
        let is_open = |known: &Known| (known.asked_at..=known.over_at).contains(&next);
        for (request, known) in
            self.known.iter().filter(|(_, known)| known.asked.is_question() && is_open(known))
        {
            if let Some(told) = &known.told
                && !state.taken.contains(request)
                && question(&state.registry, known.asked, told)
            {
                state.taken.insert(*request);
                state.answered.insert(*request, told.clone());
            }
        }
        state
    }

    fn without(&self, mut state: State, request: Request) -> State {
        let known = &self.known[&request];
        // One that goes on without its requester may still be on its way; it reaches the machine once.
        if !(known.goes_on() && known.cancelled_at < usize::MAX) {
            state.taken.remove(&request);
        }
        state.answered.remove(&request);
        state.gone.remove(&request);
        state
    }

    /// The states after one unseen event.
    fn unseen(&self, state: &State, at: Duration, next: usize) -> Vec<State> {
        let mut after = Vec::new();
        for (request, known) in self.known.iter().filter(|(_, known)| known.asked_at < next) {
            let cancelled = known.cancelled_at < next;
            let lingers = cancelled && known.goes_on();
            if known.asked.is_question() || (known.over_at < next && !lingers && known.told.is_some()) {
                continue;
            }
            let late = known.patience.is_some_and(|patience| at >= known.at + patience);
            if !state.taken.contains(request) {
                // Patience of nothing is looked at by the machine itself; so is one that ends on the way.
                let at_once = known.patience == Some(Duration::ZERO);
                if !at_once {
                    after.extend(self.deliver(state, *request, None));
                }
                if at_once || late {
                    after.extend(self.deliver(state, *request, Some(NOW)));
                }
            } else if !state.gone.contains(request) {
                // Who gives up withdraws, also while an answer is on its way.
                if cancelled && !known.goes_on() {
                    after.extend(self.withdraw(state, *request, None));
                }
                if late && !state.answered.contains_key(request) {
                    let told = match known.asked {
                        Asked::WaitClosed { .. } | Asked::WaitReady { .. } => Told::NotYet,
                        _ => Told::Refused { kind: "deadline_exceeded".to_owned(), generation: None },
                    };
                    after.extend(self.withdraw(state, *request, Some(told)));
                }
            }
        }
        for (session, _, phase) in state.registry.sessions(None) {
            let holder = state.sessions[&session];
            let facts = self.facts(session, phase, holder, next);
            after.extend(facts.into_iter().filter_map(|fact| self.step(state.clone(), fact)));
        }
        after
    }

    /// What a session may say of itself.
    fn facts(&self, session: SessionId, phase: Phase, holder: Holder, next: usize) -> Vec<RegistryEvent> {
        let mut facts = Vec::new();
        if phase == Phase::Starting && holder.kind.can_be_ready() {
            facts.push(RegistryEvent::SessionReady { session });
        }
        if matches!(phase, Phase::Starting | Phase::Live) {
            if holder.kind.can_fail() {
                let starting = phase == Phase::Starting;
                let reason = if starting { CloseReason::StartFailed } else { CloseReason::ServersFailed };
                facts.push(RegistryEvent::CloseWanted { session, reason });
            }
            if self.vanished.get(&self.known[&holder.creator].client).is_some_and(|index| *index < next) {
                facts.push(RegistryEvent::CloseWanted { session, reason: CloseReason::LeaseEnded });
            }
        }
        if phase == Phase::Dying {
            let failed = [CloseReason::StartFailed, CloseReason::ServersFailed, CloseReason::Internal];
            let by_itself = holder.reason.is_some_and(|reason| failed.contains(&reason));
            let ended = if by_itself { Ended::Failed } else { Ended::Closed };
            facts.push(RegistryEvent::SessionEnded { session, ended });
        }
        facts
    }

    /// The request reaches the machine.
    fn deliver(&self, state: &State, request: Request, deadline: Option<Moment>) -> Option<State> {
        let mut state = state.clone();
        state.taken.insert(request);
        let id = RequestId(request);
        let target = |key: usize, generation: Option<u64>| Target {
            key: key_ref(key),
            generation: generation.map(Generation),
        };
        let event = match self.known[&request].asked {
            Asked::Open { key, kind, tenant, wait, join, park, .. } => RegistryEvent::Open(Open {
                request: id,
                key: key_ref(key),
                tenant: tenant.then(|| Tenant::new("t").expect("a letter is a tenant")),
                parent: None,
                quota: Quota::default(),
                queue: None,
                definition: kind as u64 * 2 + u64::from(tenant),
                if_closing: if park { IfClosing::Wait } else { IfClosing::Fail },
                if_open: if join { IfOpen::Join } else { IfOpen::Fail },
                direct: false,
                wait,
                deadline,
                specs: Vec::new(),
            }),
            Asked::Close { key, generation, now, wait } => RegistryEvent::Close {
                request: id,
                target: target(key, generation),
                options: CloseOptions { drain: None, now },
                wait,
                deadline,
            },
            Asked::WaitClosed { key, generation } => RegistryEvent::Wait {
                request: id,
                target: target(key, generation),
                goal: Goal::Closed,
                deadline,
            },
            Asked::WaitReady { key } => {
                RegistryEvent::Wait { request: id, target: target(key, None), goal: Goal::Ready, deadline }
            }
            Asked::Kill { key, generation } => {
                RegistryEvent::RetryKill { request: id, target: target(key, generation), deadline }
            }
            Asked::Show { .. } | Asked::Call { .. } | Asked::Status => return None,
        };
        self.step(state, event)
    }

    /// The request wants no answer any more, or gets this one since its patience is over: the same to the machine.
    fn withdraw(&self, state: &State, request: Request, told: Option<Told>) -> Option<State> {
        let mut state = state.clone();
        match told {
            None => drop(state.gone.insert(request)),
            Some(told) => self.answer(&mut state, request, told)?,
        }
        self.step(state, RegistryEvent::Cancel { request: RequestId(request) })
    }

    /// None where something would be told that was not.
    fn step(&self, mut state: State, event: RegistryEvent) -> Option<State> {
        if let RegistryEvent::SessionEnded { session, .. } = event {
            state.sessions.remove(&session);
        }
        for effect in state.registry.step(NOW, event) {
            match effect {
                RegistryEffect::Start { session, request, .. } => {
                    let creator = request.0;
                    let Asked::Open { key, kind, .. } = self.known[&creator].asked else { return None };
                    if self.keys.get(&session.generation.0).is_some_and(|named| *named != key) {
                        return None;
                    }
                    // Whoever was told of another session has not begun this one.
                    let told = self.known[&creator].told.as_ref();
                    if let Some(Told::Opened { generation, .. }) = told
                        && *generation != session.generation.0
                    {
                        return None;
                    }
                    state.sessions.insert(session, Holder { kind, creator, reason: None });
                }
                RegistryEffect::Close { session, reason, .. } => {
                    if let Some(holder) = state.sessions.get_mut(&session) {
                        holder.reason = Some(reason);
                    }
                }
                RegistryEffect::Reply { request, result } => {
                    self.answer(&mut state, request.0, Told::by_machine(&result))?;
                }
                _ => {}
            }
        }
        Some(state)
    }

    /// Notes what the machine answers; None where something else was told.
    fn answer(&self, state: &mut State, request: Request, told: Told) -> Option<()> {
        let known = &self.known[&request];
        // Where nothing was told, or that it was cancelled, nobody hears this answer.
        let fits = match &known.told {
            None => true,
            Some(will) => will.is("cancelled") || *will == told || is_overtaken(known.asked, &told, will),
        };
        fits.then(|| drop(state.answered.insert(request, told)))
    }
}

/// Whether a close that does not wait was told of the end instead of the beginning.
fn is_overtaken(asked: Asked, answered: &Told, told: &Told) -> bool {
    match (asked, answered, told) {
        (
            Asked::Close { wait: false, .. },
            Told::Stopping { generation },
            Told::Done { generation: ended },
        ) => generation == ended,
        _ => false,
    }
}

fn key_ref(key: usize) -> KeyRef {
    KeyRef { uid: OWNER, key: SessionKey::new(&format!("k{key}")).expect("a letter and a digit are a key") }
}

/// Whether the machine in this state gives this answer to a question.
fn question(registry: &Registry, asked: Asked, told: &Told) -> bool {
    match (asked, told) {
        (Asked::Status, Told::Counts([starting, live, dying, quarantined])) => {
            let Counts { starting: s, live: l, dying: d, quarantined: q, .. } = registry.counts();
            [s, l, d, q].map(|count| count as u64) == [*starting, *live, *dying, *quarantined]
        }
        (Asked::Show { key, generation }, told) => {
            let target = Target { key: key_ref(key), generation: generation.map(Generation) };
            let found = match registry.find(&target) {
                Some(session) if target.generation.is_none() => Ok(session),
                _ => registry.resolve(&target),
            };
            *told
                == match found {
                    Ok(session) => Told::Shown { generation: session.generation.0 },
                    Err(refusal) => Told::by_refusal(&refusal),
                }
        }
        (Asked::Call { key }, told) => match (registry.current(&key_ref(key)), told) {
            // A call that was admitted is answered in the drain, too.
            (Some((_, Phase::Live | Phase::Dying)), Told::Called) => true,
            (None, told) => told.is("not_found"),
            (Some(_), Told::Refused { kind, .. }) => CALL_REFUSALS.contains(&kind.as_str()),
            _ => false,
        },
        _ => false,
    }
}

/// What a call of a session that is there may be told.
const CALL_REFUSALS: [&str; 7] = [
    "session_closing",
    "session_closed",
    "session_failed",
    "server_exited",
    "invalid_request",
    "unsupported",
    "deadline_exceeded",
];

/// A place in the queue, whose order says nothing.
#[derive(Debug)]
struct Next(Place);

impl PartialEq for Next {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Next {}

impl PartialOrd for Next {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Next {
    fn cmp(&self, _: &Self) -> std::cmp::Ordering {
        std::cmp::Ordering::Equal
    }
}
