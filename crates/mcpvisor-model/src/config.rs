//! A bounded configuration: who asks for what, what servers there are, and how much bad luck there may be.
use crate::asks::{Ask, key, tenant};
use crate::rules::Witness;
use mcpvisor_lifecycle::registry::{
    CloseOptions, IfClosing, IfOpen, Lifetime, Open, Quota, RegistryConfig, RegistryEvent, Target,
};
use mcpvisor_lifecycle::server::{Health, Mode, Restart, ServerConfig};
use mcpvisor_lifecycle::session::{IdleLimit, Limits, OnIdle, SessionConfig, SessionServer};
use mcpvisor_lifecycle::{BreakerConfig, Generation, KeyRef, Moment, RequestId, ServerName, SpecDigest};
use std::time::Duration;

/// Longer than any history.
const LONG: Duration = Duration::from_secs(10_000_000);
/// The one server spec that breakers know.
pub(crate) const SPEC: SpecDigest = SpecDigest(1);
/// How long a session may be idle: more than there are things that happen at its gate, each of which takes a microsecond.
pub(crate) const IDLE: Duration = Duration::from_micros(100);
/// How long a call may hold that off.
const PIN: Duration = Duration::from_micros(10_000);

/// How long rungs and timers are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Budgets {
    /// None has a length, so that all clocks stand still and states are few.
    Any,
    /// Each has another one, so that one that is taken from another is seen.
    Distinct,
}

/// How much may go wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Luck {
    /// Callers that go away.
    pub vanish: u8,
    /// Main processes that end by themselves.
    pub exits: u8,
    /// Clients of direct servers that hang up or go away.
    pub hangups: u8,
    /// Launches that fail by themselves.
    pub failed_launches: u8,
    /// Handshakes that fail.
    pub failed_handshakes: u8,
    /// Server actors that are lost.
    pub lost_servers: u8,
    /// Session actors that are lost.
    pub lost_sessions: u8,
    /// Registry actors that are lost.
    pub lost_registries: u8,
    /// Deaths of the daemon.
    pub deaths: u8,
    /// Processes that end which hold a lease.
    pub holders: u8,
    /// Handshakes that tell of another era.
    pub eras: u8,
    /// Looks at who is idle, or healthy; none: as many as there are timers for them.
    pub looks: Option<u8>,
}

/// A server of every session.
#[derive(Debug, Clone, Copy)]
pub struct ServerKind {
    /// How it is spoken to.
    pub mode: Mode,
    /// Its failure is the session's.
    pub required: bool,
    /// It leaves a helper behind.
    pub helper: bool,
}

/// See the module.
#[derive(Debug, Clone)]
pub struct Config {
    /// Its name.
    pub name: &'static str,
    /// What it is for.
    pub about: &'static str,
    /// One script per client.
    pub clients: Vec<Vec<Ask>>,
    /// The keys that asks name, with their owners.
    pub keys: Vec<KeyRef>,
    /// Slots in total, per user, per tenant.
    pub slots: [usize; 3],
    /// How many ended sessions are remembered.
    pub tombstones: usize,
    /// For how long, in microseconds of the registry's clock; none for longer than any history.
    pub tombstone_age: Option<u64>,
    /// Of every session.
    pub servers: Vec<ServerKind>,
    /// Whether they are started again, at most once.
    pub restart: Restart,
    /// See there.
    pub budgets: Budgets,
    /// Sessions drain before they stop.
    pub drain: bool,
    /// SIGTERM ends helpers too.
    pub polite_helpers: bool,
    /// The end of the output and the answers of handshakes are on their way for a while, and so can be late.
    pub streams: bool,
    /// What is added, or put in another's place.
    pub added: ServerKind,
    /// Servers have a command that ends what they started elsewhere.
    pub stop_command: bool,
    /// No start runs out of time.
    pub patient: bool,
    /// Servers are asked whether they are well; one question without an answer is the end of one.
    pub health: bool,
    /// What becomes of sessions that are idle for too long.
    pub idle: Option<OnIdle>,
    /// An open that finds no room takes the place of a session that nobody uses.
    pub evict: bool,
    /// Sessions have a time to live.
    pub ttl: bool,
    /// So many failed starts open the breaker of the one spec that there is; and whether its wait ever ends.
    pub breaker: Option<(u32, bool)>,
    /// How much may go wrong.
    pub luck: Luck,
    /// What must have happened in it.
    pub expects: Vec<Witness>,
    /// At least so many states there are; less means that something is not tried any more.
    pub states: usize,
}

impl Config {
    /// One exclusive server with a helper, room for two sessions, no bad luck, nobody who asks.
    #[must_use]
    pub fn new(name: &'static str, about: &'static str) -> Self {
        Self {
            name,
            about,
            clients: Vec::new(),
            keys: vec![key(1000, "a"), key(1000, "b"), key(1000, "c"), key(1000, "d")],
            slots: [2, 2, 2],
            tombstones: 100,
            tombstone_age: None,
            servers: vec![ServerKind { mode: Mode::Exclusive, required: true, helper: true }],
            restart: Restart::Temporary,
            budgets: Budgets::Any,
            drain: false,
            polite_helpers: false,
            streams: false,
            added: ServerKind { mode: Mode::Exclusive, required: false, helper: false },
            stop_command: false,
            patient: false,
            health: false,
            idle: None,
            evict: false,
            ttl: false,
            breaker: None,
            luck: Luck::default(),
            expects: Vec::new(),
            states: 0,
        }
    }

    /// One more client.
    #[must_use]
    pub fn client(mut self, script: &[Ask]) -> Self {
        self.clients.push(script.to_vec());
        self
    }

    /// All asks, with the client of each; the place is the request's number less one.
    pub(crate) fn asks(&self) -> impl Iterator<Item = (usize, Ask)> {
        self.clients
            .iter()
            .enumerate()
            .flat_map(|(client, script)| script.iter().map(move |ask| (client, *ask)))
    }

    pub(crate) fn registry(&self) -> RegistryConfig {
        let [max_sessions, max_sessions_per_user, max_sessions_per_tenant] = self.slots;
        RegistryConfig {
            max_sessions,
            max_sessions_per_user,
            max_sessions_per_tenant,
            evict_after: self.evict.then_some(Duration::ZERO),
            tombstones: self.tombstones,
            tombstone_age: self.tombstone_age.map_or(LONG, Duration::from_micros),
            breaker: self.breaker.map_or_else(BreakerConfig::default, |(failures, ends)| BreakerConfig {
                failures,
                period: LONG,
                wait: if ends { Duration::ZERO } else { LONG },
            }),
            ..RegistryConfig::default()
        }
    }

    /// What a session counts as. How long it may be idle matters to evictions alone.
    pub(crate) fn quota(&self) -> Quota {
        let idle = self.idle.filter(|_| self.evict).map(|_| IDLE);
        Quota { lifetime: Lifetime { idle, ..Lifetime::default() }, ..Quota::default() }
    }

    pub(crate) fn session(&self) -> SessionConfig {
        let servers = self.servers.iter().enumerate();
        SessionConfig {
            servers: servers
                .map(|(place, kind)| SessionServer {
                    name: server_name(u8::try_from(place).expect("servers are few")),
                    required: kind.required,
                    significant: false,
                })
                .collect(),
            drain: if self.drain { Duration::from_micros(1) } else { Duration::ZERO },
            direct: self.is_direct(),
        }
    }

    /// Of a session that is not direct.
    pub(crate) fn limits(&self) -> Limits {
        let idle = self.idle.map(|then| IdleLimit { idle: IDLE, pin: PIN, then });
        Limits { ttl: self.ttl.then_some(Duration::ZERO), idle }
    }

    /// The kind of a server by its place in its session.
    pub(crate) fn kind(&self, place: u8) -> ServerKind {
        self.servers.get(usize::from(place)).copied().unwrap_or(self.added)
    }

    pub(crate) fn server(&self, place: u8) -> ServerConfig {
        let span = |micros| match self.budgets {
            Budgets::Any => Duration::ZERO,
            Budgets::Distinct => Duration::from_micros(micros),
        };
        ServerConfig {
            mode: self.kind(place).mode,
            start: if self.patient { LONG } else { span(1_000) },
            stdin_grace: span(20),
            term_grace: span(30),
            stop_command: self.stop_command.then(|| span(40)),
            kill_wait: span(50),
            restart: self.restart,
            restart_intensity: 1,
            restart_period: Duration::from_secs(1_000),
            backoff: span(2),
            longest_backoff: span(2),
            health: self.health.then_some(Health {
                interval: Duration::from_micros(1),
                timeout: Duration::from_micros(1),
                misses: 1,
            }),
            seed: 7,
        }
    }

    pub(crate) fn is_direct(&self) -> bool {
        self.servers.iter().any(|kind| kind.mode == Mode::Direct)
    }

    /// What the registry is told of an ask; none of what others are told.
    pub(crate) fn event(
        &self,
        number: usize,
        ask: Ask,
        generation: Option<Generation>,
    ) -> Option<RegistryEvent> {
        let request = RequestId(number as u64 + 1);
        let target = |key: u8, named: Option<u64>| Target {
            key: self.keys[usize::from(key)].clone(),
            generation: generation.or(named.map(Generation)),
        };
        Some(match ask {
            Ask::Open(open) => RegistryEvent::Open(Open {
                request,
                key: self.keys[usize::from(open.key)].clone(),
                tenant: open.tenant.map(tenant),
                parent: open.parent.map(|key| self.keys[usize::from(key)].key.clone()),
                quota: self.quota(),
                queue: open.queue.map(Moment),
                definition: open.definition,
                if_closing: if open.park { IfClosing::Wait } else { IfClosing::Fail },
                if_open: if open.join { IfOpen::Join } else { IfOpen::Fail },
                direct: self.is_direct(),
                wait: open.wait,
                deadline: open.deadline.map(Moment),
                specs: self.breaker.map(|_| SPEC).into_iter().collect(),
            }),
            Ask::Close { key, generation, now, wait } => RegistryEvent::Close {
                request,
                target: target(key, generation),
                options: CloseOptions { drain: None, now },
                wait,
                deadline: None,
            },
            Ask::Wait { key, goal, deadline } => RegistryEvent::Wait {
                request,
                target: target(key, None),
                goal,
                deadline: deadline.map(Moment),
            },
            Ask::RetryKill { key } => {
                RegistryEvent::RetryKill { request, target: target(key, None), deadline: None }
            }
            Ask::Shutdown(urgency) => RegistryEvent::Shutdown { urgency },
            Ask::Lease { .. }
            | Ask::Detach { .. }
            | Ask::Call { .. }
            | Ask::Decide { .. }
            | Ask::Change { .. } => return None,
        })
    }
}

/// A server's name by its number.
pub(crate) fn server_name(number: u8) -> ServerName {
    ServerName::new(&format!("s{number}")).expect("the model's servers have a server's form")
}
