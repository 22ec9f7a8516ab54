//! Registry, sessions, servers and processes, joined by mailboxes.
use super::Seed;
use super::checks;
use super::process::{Process, Program, Signal};
use super::script::{Act, key};
use mcpvisor_lifecycle::registry::{Answer, Phase, Refusal, Registry, RegistryConfig, RegistryEvent};
use mcpvisor_lifecycle::server::{Restart, Server, ServerEvent};
use mcpvisor_lifecycle::session::{ChangeRefusal, Changed, IdleLimit, Limits, OnIdle, Session, SessionEvent};
use mcpvisor_lifecycle::{Incarnation, KeyRef, Moment, Place, RequestId, ServerName, SessionId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// Timers behind this are not waited for: tombstones are older than any scenario.
const HORIZON: Moment = Moment(1_000_000_000_000);

pub(crate) const STDIN_GRACE: Duration = Duration::from_secs(2);
pub(crate) const TERM_GRACE: Duration = Duration::from_secs(3);
pub(crate) const KILL_WAIT: Duration = Duration::from_secs(5);
pub(crate) const DRAIN: Duration = Duration::from_secs(7);

/// Who writes to whom. Letters on one route keep their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Route {
    SessionToRegistry(SessionId),
    RegistryToSession(SessionId),
    ClientToSession(SessionId),
    GateToSession(SessionId),
    ServerToSession(SessionId, u8),
    SessionToServer(SessionId, u8),
    LauncherToServer(SessionId, u8),
    ReaperToServer(SessionId, u8),
    StreamToServer(SessionId, u8),
    /// The runtime's word that an actor is gone overtakes what the actor said before.
    SupervisionToRegistry(SessionId),
    /// What becomes of a session that the reaper ends alone.
    ReaperToRegistry(SessionId),
    SupervisionToSession(SessionId, u8),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Letter {
    Registry(RegistryEvent),
    Session(SessionEvent),
    Server(ServerEvent),
}

/// What can happen next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Choice {
    Letter(Route),
    Act(usize),
    Time,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct ServerActor {
    pub(crate) name: ServerName,
    pub(crate) program: Program,
    pub(crate) machine: Server,
    pub(crate) process: Option<Process>,
    pub(crate) stopped: bool,
    pub(crate) lost: bool,
    pub(crate) standing: Standing,
    /// What ran when it was told to start again.
    pub(crate) restart_of: Option<Incarnation>,
}

/// What a server is to its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Standing {
    Joining,
    Member,
    Held,
    Retired,
    Forgotten,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct SessionActor {
    pub(crate) key: KeyRef,
    pub(crate) machine: Session,
    pub(crate) servers: Vec<ServerActor>,
    pub(crate) gate_open: bool,
    pub(crate) calls: BTreeSet<u64>,
    pub(crate) ended: bool,
    pub(crate) lost: bool,
    /// When something last happened at its gate.
    pub(crate) last: Moment,
    /// Calls that wait at the parked gate; none: it is not parked.
    pub(crate) at_gate: Option<BTreeSet<u64>>,
    /// It was busy when that was looked at.
    pub(crate) wants_quiet: bool,
    /// What is to be added, by the requests.
    pub(crate) changes: BTreeMap<RequestId, (ServerName, Program)>,
}

impl SessionActor {
    pub(crate) fn lives(&self) -> bool {
        self.servers.iter().any(|server| server.process.as_ref().is_some_and(Process::lives))
    }
}

/// What became of a request or a call.
pub(crate) type Outcome = Result<Answer, Refusal>;

/// What became of a change of a session's servers.
pub(crate) type ChangeOutcome = Result<Changed, ChangeRefusal>;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct World {
    pub(crate) now: Moment,
    pub(crate) registry: Registry,
    pub(crate) sessions: BTreeMap<SessionId, SessionActor>,
    pub(crate) clients: Vec<VecDeque<Act>>,
    pub(crate) mail: BTreeMap<Route, VecDeque<Letter>>,
    pub(crate) sent: BTreeSet<RequestId>,
    /// Requests of sessions that use a server which they share, from its answer on.
    pub(crate) holds: BTreeSet<RequestId>,
    /// Waits for the end of a key's session.
    pub(crate) waits: BTreeMap<RequestId, KeyRef>,
    pub(crate) cancelled: BTreeSet<RequestId>,
    /// Changes that were asked for, and their answers.
    pub(crate) changes: BTreeMap<RequestId, Option<ChangeOutcome>>,
    /// Those of which a session knows that nobody waits for them any more.
    pub(crate) given_up: BTreeSet<RequestId>,
    /// Which session each was asked of.
    pub(crate) changed: BTreeMap<RequestId, SessionId>,
    pub(crate) replies: BTreeMap<RequestId, Outcome>,
    /// Its token was revoked.
    pub(crate) revoked: BTreeSet<SessionId>,
    /// The client whose end was to be its session's went while that held its key.
    pub(crate) detached: BTreeSet<SessionId>,
    /// The registry has told the session to close.
    pub(crate) closing: BTreeSet<SessionId>,
    pub(crate) calls: BTreeMap<u64, &'static str>,
    pub(crate) finished: Option<usize>,
    pub(crate) shut_down_at: Option<Moment>,
    pub(crate) finished_at: Option<Moment>,
    /// Someone asked for hurry.
    pub(crate) hurried: bool,
    /// Timers that may still fire although a letter is under way.
    pub(crate) early: u8,
    /// Time passes only when no client can do anything.
    prompt: bool,
    pub(crate) limit: usize,
    pub(crate) launches: u32,
    pub(crate) releases: u32,
    pub(crate) programs: BTreeMap<&'static str, Vec<Program>>,
    /// The keys whose sessions are direct.
    pub(crate) direct: BTreeSet<&'static str>,
    pub(crate) restart: Restart,
    pub(crate) limits: Limits,
    pub(crate) seed: Seed,
}

fn registry(limit: usize) -> RegistryConfig {
    RegistryConfig {
        max_sessions: limit,
        max_sessions_per_user: limit,
        max_sessions_per_tenant: limit,
        tombstones: 100,
        tombstone_age: Duration::from_secs(10_000_000),
        breaker: mcpvisor_lifecycle::BreakerConfig::default(),
        ..RegistryConfig::default()
    }
}

impl World {
    /// A daemon with room for so many sessions, and the clients' scripts.
    pub(crate) fn new(limit: usize, clients: Vec<Vec<Act>>, seed: Seed) -> Self {
        let registry = Registry::new(registry(limit));
        #[cfg(feature = "seeded-bugs")]
        let registry = match checks::bug(seed) {
            Some(bug) => registry.with_bug(bug),
            None => registry,
        };
        Self {
            now: Moment(1_000_000),
            registry,
            sessions: BTreeMap::new(),
            clients: clients.into_iter().map(VecDeque::from).collect(),
            mail: BTreeMap::new(),
            sent: BTreeSet::new(),
            holds: BTreeSet::new(),
            waits: BTreeMap::new(),
            cancelled: BTreeSet::new(),
            changes: BTreeMap::new(),
            given_up: BTreeSet::new(),
            changed: BTreeMap::new(),
            replies: BTreeMap::new(),
            revoked: BTreeSet::new(),
            detached: BTreeSet::new(),
            closing: BTreeSet::new(),
            calls: BTreeMap::new(),
            finished: None,
            shut_down_at: None,
            finished_at: None,
            hurried: false,
            early: 0,
            prompt: true,
            limit,
            launches: 0,
            releases: 0,
            programs: BTreeMap::new(),
            direct: BTreeSet::new(),
            restart: Restart::Temporary,
            limits: Limits::default(),
            seed,
        }
    }

    /// An open that finds no room may take the place of a session that nobody uses.
    pub(crate) fn with_eviction(mut self) -> Self {
        let config = RegistryConfig { evict_after: Some(Duration::ZERO), ..registry(self.limit) };
        let _ = self.registry.step(self.now, RegistryEvent::Reconfigure(config));
        self
    }

    /// The sessions of a key run these programs, and no longer one polite one.
    pub(crate) fn with(mut self, key: &'static str, programs: &[Program]) -> Self {
        self.programs.insert(key, programs.to_vec());
        self
    }

    /// The sessions of a key are direct, with one program.
    pub(crate) fn with_direct(mut self, key: &'static str, program: Program) -> Self {
        self.direct.insert(key);
        self.with(key, &[program])
    }

    pub(crate) fn is_direct(&self, key: &KeyRef) -> bool {
        self.direct.contains(key.key.as_str())
    }

    /// Sessions are closed when they are idle for so long, or busy for so long.
    pub(crate) fn with_idle(mut self, idle: Duration, pin: Duration) -> Self {
        self.limits.idle = Some(IdleLimit { idle, pin, then: OnIdle::Close });
        self
    }

    /// Sessions are parked when they are idle for so long.
    pub(crate) fn with_parking(mut self, idle: Duration) -> Self {
        self.limits.idle = Some(IdleLimit { idle, pin: idle, then: OnIdle::Park });
        self
    }

    /// Servers are started again.
    pub(crate) fn with_restarts(mut self) -> Self {
        self.restart = Restart::Permanent;
        self
    }

    /// Clients may let any time pass between their steps.
    pub(crate) fn with_dawdling_clients(mut self) -> Self {
        self.prompt = false;
        self
    }

    /// So many timers may overtake letters.
    pub(crate) fn with_early_timers(mut self, early: u8) -> Self {
        self.early = early;
        self
    }

    pub(crate) fn choices(&self) -> Vec<Choice> {
        let mut all: Vec<_> = self.mail.keys().map(|route| Choice::Letter(*route)).collect();
        let acts = self.clients.iter().enumerate();
        all.extend(
            acts.filter(|(_, acts)| acts.front().is_some_and(|act| self.is_possible(act)))
                .map(|(index, _)| Choice::Act(index)),
        );
        let at_rest = self.mail.is_empty() && (all.is_empty() || !self.prompt);
        if (at_rest || self.early > 0 && !self.mail.is_empty()) && self.next_timeout().is_some() {
            all.push(Choice::Time);
        }
        all
    }

    pub(crate) fn holder(&self, text: &str) -> Option<(SessionId, Phase)> {
        self.registry.current(&key(text))
    }

    fn is_possible(&self, act: &Act) -> bool {
        let holder = |text: &str| self.holder(text).and_then(|(id, _)| self.sessions.get(&id));
        match act {
            Act::AwaitChange(request) => self.changes.get(&RequestId(*request)).is_some_and(Option::is_some),
            Act::Await(request) => self.replies.contains_key(&RequestId(*request)),
            // A call that waits at a parked gate has not reached its server yet.
            Act::Finish(call) => {
                let mut gates = self.sessions.values().filter_map(|actor| actor.at_gate.as_ref());
                !gates.any(|waiting| waiting.contains(call))
            }
            Act::UntilFree(text) => self.holder(text).is_none(),
            Act::HangUp(text) => {
                holder(text).is_some_and(|actor| actor.servers.iter().any(|server| server.process.is_some()))
            }
            Act::UntilKilled(text) => holder(text).is_some_and(|actor| {
                let mut processes = actor.servers.iter().filter_map(|server| server.process.as_ref());
                processes.any(|process| process.at(Signal::Kill).is_some())
            }),
            Act::Let(text, _) => self.sessions.values().any(|actor| {
                let processes = actor.servers.iter().filter_map(|server| server.process.as_ref());
                actor.key.key.as_str() == *text && processes.into_iter().any(|process| !process.answered)
            }),
            _ => true,
        }
    }

    pub(crate) fn next_timeout(&self) -> Option<Moment> {
        let sessions = self.sessions.values().filter(|actor| !actor.ended);
        let machines = sessions.flat_map(|actor| {
            let servers = actor.servers.iter().filter(|server| !server.lost);
            let own = if actor.lost { None } else { actor.machine.next_timeout() };
            servers.map(|server| server.machine.next_timeout()).chain([own])
        });
        let all = machines.chain([self.registry.next_timeout()]).flatten();
        all.filter(|at| *at < HORIZON).min()
    }

    /// Does one thing, and checks what must always hold.
    pub(crate) fn step(&mut self, choice: Choice) -> Result<(), String> {
        match choice {
            Choice::Letter(route) => {
                let Some(letters) = self.mail.get_mut(&route) else { return Ok(()) };
                let letter = letters.pop_front();
                if letters.is_empty() {
                    self.mail.remove(&route);
                }
                if let Some(letter) = letter {
                    self.deliver(route, letter)?;
                }
            }
            Choice::Act(client) => {
                if let Some(act) = self.clients[client].pop_front() {
                    self.act(act)?;
                }
            }
            Choice::Time => self.tick()?,
        }
        checks::always(self)
    }

    fn tick(&mut self) -> Result<(), String> {
        if !self.mail.is_empty() {
            self.early = self.early.saturating_sub(1);
        }
        self.now = self.next_timeout().unwrap_or(self.now).max(self.now);
        self.tell_registry(&RegistryEvent::Timeout)?;
        let ids: Vec<_> = self.sessions.keys().copied().collect();
        for id in ids {
            self.tell_session(id, SessionEvent::Timeout)?;
            for index in 0..self.sessions[&id].servers.len() {
                self.tell_server(id, index_of(index), ServerEvent::Timeout)?;
            }
        }
        Ok(())
    }

    pub(crate) fn post(&mut self, route: Route, letter: Letter) {
        self.mail.entry(route).or_default().push_back(letter);
    }

    fn deliver(&mut self, route: Route, letter: Letter) -> Result<(), String> {
        match (route, letter) {
            (_, Letter::Registry(event)) => self.tell_registry(&event),
            (
                Route::RegistryToSession(id)
                | Route::ClientToSession(id)
                | Route::GateToSession(id)
                | Route::ServerToSession(id, _)
                | Route::SupervisionToSession(id, _),
                Letter::Session(event),
            ) => self.tell_session(id, event),
            (
                Route::SessionToServer(id, index)
                | Route::LauncherToServer(id, index)
                | Route::ReaperToServer(id, index)
                | Route::StreamToServer(id, index),
                Letter::Server(event),
            ) => self.tell_server(id, index, event),
            (route, letter) => Err(format!("{letter:?} is on the wrong route {route:?}")),
        }
    }

    pub(crate) fn tell_registry(&mut self, event: &RegistryEvent) -> Result<(), String> {
        let before = self.registry.clone();
        if let RegistryEvent::Detached { session } = event
            && before.sessions(None).iter().any(|(holder, _, _)| holder == session)
        {
            self.detached.insert(*session);
        }
        let effects = self.registry.step(self.now, event.clone());
        checks::registry_step(self, &before, event, &effects)?;
        for effect in effects {
            self.run_registry(effect)?;
        }
        Ok(())
    }
}

pub(crate) fn place(server: Place) -> u8 {
    u8::try_from(server.0).expect("a session of a scenario has few servers")
}

pub(crate) fn name(text: &str) -> ServerName {
    ServerName::new(text).expect("names of scenarios have a server's form")
}

pub(crate) fn index_of(index: usize) -> u8 {
    u8::try_from(index).expect("a session of a scenario has few servers")
}
