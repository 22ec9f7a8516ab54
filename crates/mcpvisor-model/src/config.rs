//! A bounded configuration: who asks for what, what servers there are, and how much bad luck there may be.
use crate::rules::Witness;
use mcpvisor_lifecycle::registry::{
    CloseOptions, Goal, IfClosing, IfOpen, Open, Quota, RegistryConfig, RegistryEvent, Target, Urgency,
};
use mcpvisor_lifecycle::server::{Mode, Restart, ServerConfig};
use mcpvisor_lifecycle::session::{CloseReason, SessionConfig, SessionServer};
use mcpvisor_lifecycle::{Generation, KeyRef, Moment, RequestId, ServerName, SessionKey, Tenant, Uid};
use std::time::Duration;

/// An open; the key is a place in [`Config::keys`].
#[derive(Debug, Clone, Copy)]
pub struct OpenAsk {
    /// Which key.
    pub key: u8,
    /// Two opens are the same session if it is equal.
    pub definition: u64,
    /// Waits for ready.
    pub wait: bool,
    /// Joins an open session.
    pub join: bool,
    /// Waits for a key that is being torn down.
    pub park: bool,
    /// Its quota group.
    pub tenant: Option<&'static str>,
    /// On the registry's clock, in microseconds.
    pub deadline: Option<u64>,
}

/// What a client of the model does.
#[derive(Debug, Clone, Copy)]
pub enum Ask {
    /// Opens a key.
    Open(OpenAsk),
    /// Closes what holds a key, or one generation.
    Close {
        /// Which key.
        key: u8,
        /// Which generation; none for the one that holds the key.
        generation: Option<u64>,
        /// Without a drain.
        now: bool,
        /// Waits for the end.
        wait: bool,
    },
    /// Waits.
    Wait {
        /// Which key.
        key: u8,
        /// What for.
        goal: Goal,
        /// On the registry's clock, in microseconds.
        deadline: Option<u64>,
    },
    /// Tries a kill again.
    RetryKill {
        /// Which key.
        key: u8,
    },
    /// Has the daemon shut down; answered at once, as far as the model goes.
    Shutdown(Urgency),
    /// A lease wants to close what holds a key now; its word is on its way for a while.
    Lease {
        /// Which key.
        key: u8,
        /// Why.
        reason: CloseReason,
    },
}

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
            tombstones: self.tombstones,
            tombstone_age: self.tombstone_age.map_or(Duration::from_secs(10_000_000), Duration::from_micros),
            breaker: mcpvisor_lifecycle::BreakerConfig::default(),
            ..RegistryConfig::default()
        }
    }

    pub(crate) fn session(&self) -> SessionConfig {
        let servers = self.servers.iter().enumerate();
        SessionConfig {
            servers: servers
                .map(|(place, kind)| SessionServer {
                    name: server_name(place),
                    required: kind.required,
                    significant: false,
                })
                .collect(),
            drain: if self.drain { Duration::from_micros(1) } else { Duration::ZERO },
            direct: self.is_direct(),
        }
    }

    pub(crate) fn server(&self, place: usize) -> ServerConfig {
        let span = |micros| match self.budgets {
            Budgets::Any => Duration::ZERO,
            Budgets::Distinct => Duration::from_micros(micros),
        };
        ServerConfig {
            mode: self.servers[place].mode,
            start: span(1_000),
            stdin_grace: span(20),
            term_grace: span(30),
            stop_command: None,
            kill_wait: span(50),
            restart: self.restart,
            restart_intensity: 1,
            restart_period: Duration::from_secs(1_000),
            backoff: span(2),
            longest_backoff: span(2),
            health: None,
            seed: 7,
        }
    }

    pub(crate) fn is_direct(&self) -> bool {
        self.servers.iter().any(|kind| kind.mode == Mode::Direct)
    }

    /// What the registry is told of an ask; none of a lease, whose word goes by mail.
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
                parent: None,
                quota: Quota::default(),
                queue: None,
                definition: open.definition,
                if_closing: if open.park { IfClosing::Wait } else { IfClosing::Fail },
                if_open: if open.join { IfOpen::Join } else { IfOpen::Fail },
                direct: self.is_direct(),
                wait: open.wait,
                deadline: open.deadline.map(Moment),
                specs: Vec::new(),
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
            Ask::Lease { .. } => return None,
        })
    }
}

impl Ask {
    /// Whether an answer is owed.
    pub(crate) fn is_answered(self) -> bool {
        !matches!(self, Self::Shutdown(_) | Self::Lease { .. })
    }

    /// An open that is not content with being admitted.
    pub(crate) fn waits_for_ready(self) -> bool {
        matches!(self, Self::Open(OpenAsk { wait: true, .. }))
    }

    pub(crate) fn key(self) -> Option<u8> {
        match self {
            Self::Open(OpenAsk { key, .. })
            | Self::Close { key, .. }
            | Self::Wait { key, .. }
            | Self::RetryKill { key }
            | Self::Lease { key, .. } => Some(key),
            Self::Shutdown(_) => None,
        }
    }
}

/// An open that waits, joins and parks.
#[must_use]
pub fn open(key: u8) -> OpenAsk {
    OpenAsk { key, definition: 7, wait: true, join: true, park: true, tenant: None, deadline: None }
}

/// A close that waits.
#[must_use]
pub fn close(key: u8) -> Ask {
    Ask::Close { key, generation: None, now: false, wait: true }
}

/// A key of a user.
#[must_use]
pub fn key(uid: u32, name: &str) -> KeyRef {
    KeyRef { uid: Uid(uid), key: SessionKey::new(name).expect("the model's keys have a key's form") }
}

fn tenant(name: &str) -> Tenant {
    Tenant::new(name).expect("the model's tenants have a tenant's form")
}

pub(crate) fn server_name(place: usize) -> ServerName {
    ServerName::new(["s0", "s1"][place]).expect("the model's servers have a server's form")
}
