//! What the actors share, and what is still there when one of them is lost.
use crate::clock::Clock;
use crate::environments::Environments;
use crate::eras::Eras;
use crate::events::{EventKind, Events};
use crate::gate::Seen;
use crate::hooks::Hooks;
use crate::record::{SessionRecord, lock};
use crate::registry_actor::RegistryMsg;
use mcpvisor_lifecycle::registry::{RegistryConfig, RegistryEvent};
use mcpvisor_lifecycle::session::Activity;
use mcpvisor_lifecycle::{Generation, KeyRef, RequestId, SessionId, Uid};
use mcpvisor_process::Containment;
use ractor::ActorRef;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use tokio::sync::watch;

/// What has happened since the start, for `status`.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) opened: AtomicU64,
    pub(crate) closed: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) quarantined: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) calls: AtomicU64,
    pub(crate) lost_actors: AtomicU64,
}

pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Counters {
    pub(crate) fn all(&self) -> BTreeMap<&'static str, u64> {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        BTreeMap::from([
            ("sessions_opened", read(&self.opened)),
            ("sessions_closed", read(&self.closed)),
            ("sessions_failed", read(&self.failed)),
            ("sessions_quarantined", read(&self.quarantined)),
            ("requests_refused", read(&self.refused)),
            ("tool_calls", read(&self.calls)),
            ("actors_lost", read(&self.lost_actors)),
        ])
    }
}

#[derive(Default)]
struct Records {
    all: BTreeMap<SessionId, Arc<SessionRecord>>,
    /// The last that held each key.
    latest: BTreeMap<KeyRef, SessionId>,
}

/// See the module.
pub(crate) struct Core {
    pub(crate) containment: Containment,
    pub(crate) clock: Clock,
    pub(crate) counters: Counters,
    pub(crate) eras: Arc<Eras>,
    pub(crate) environments: Environments,
    pub(crate) events: Events,
    pub(crate) hooks: Hooks,
    /// The registry's actor; another one after a loss.
    pub(crate) registry: watch::Sender<Option<ActorRef<RegistryMsg>>>,
    /// The number of sessions left, once a shutdown is complete.
    pub(crate) finished: watch::Sender<Option<usize>>,
    /// The fence and the shutdowns that were asked for: they hold for a registry's successor too.
    for_good: Mutex<Vec<RegistryEvent>>,
    config: Mutex<RegistryConfig>,
    records: Mutex<Records>,
    last_generations: Mutex<BTreeMap<Uid, Generation>>,
    next_request: AtomicU64,
}

impl Core {
    pub(crate) fn new(
        config: RegistryConfig,
        containment: Containment,
        events: Events,
        hooks: Hooks,
    ) -> Self {
        Self {
            containment,
            clock: Clock::start(),
            counters: Counters::default(),
            eras: Arc::default(),
            environments: Environments::default(),
            events,
            hooks,
            registry: watch::Sender::new(None),
            finished: watch::Sender::new(None),
            for_good: Mutex::default(),
            config: Mutex::new(config),
            records: Mutex::default(),
            last_generations: Mutex::default(),
            next_request: AtomicU64::new(1),
        }
    }

    /// Casts to the registry's actor. While it is lost nobody hears: its successor starts from the records.
    pub(crate) fn send(&self, message: RegistryMsg) {
        let registry = self.registry.borrow().clone();
        if let Some(registry) = registry {
            let _ = registry.send_message(message);
        }
    }

    /// Tells the registry of a fact or a command that nobody waits for.
    pub(crate) fn tell(&self, event: RegistryEvent) {
        self.send(RegistryMsg::Event(event));
    }

    /// Tells the registry what is never taken back. It is written down first: a registry that is lost, or is just being replaced, has a
    /// successor that looks there once it can be told things (G35).
    pub(crate) fn tell_for_good(&self, event: RegistryEvent) {
        let (new, first) = {
            let mut told = lock(&self.for_good);
            let (new, first) = (!told.contains(&event), told.is_empty());
            if new {
                told.push(event.clone());
            }
            (new, first)
        };
        let urgency = match event {
            RegistryEvent::Shutdown { urgency } if new => Some(urgency),
            _ => None,
        };
        self.tell(event);
        // Behind it: whoever reads of the fence, and opens, is refused.
        if first {
            self.events.publish_to_all(EventKind::DaemonDraining, &Vec::new());
        }
        if let Some(urgency) = urgency {
            self.events.publish_to_all(EventKind::DaemonShutdown, &vec![("urgency", urgency.into())]);
        }
    }

    pub(crate) fn told_for_good(&self) -> Vec<RegistryEvent> {
        lock(&self.for_good).clone()
    }

    /// What a gate has seen, for the machines.
    pub(crate) fn activity(&self, seen: Seen) -> Activity {
        Activity { last: self.clock.moment(seen.last), busy: seen.busy }
    }

    pub(crate) fn request(&self) -> RequestId {
        RequestId(self.next_request.fetch_add(1, Ordering::Relaxed))
    }

    pub(crate) fn config(&self) -> RegistryConfig {
        lock(&self.config).clone()
    }

    pub(crate) fn set_config(&self, config: RegistryConfig) {
        *lock(&self.config) = config;
    }

    pub(crate) fn remember(&self, record: &Arc<SessionRecord>) {
        {
            let mut records = lock(&self.records);
            records.latest.insert(record.key.clone(), record.id);
            records.all.insert(record.id, Arc::clone(record));
        }
        let mut last = lock(&self.last_generations);
        let highest = last.entry(record.id.uid).or_insert(record.id.generation);
        *highest = (*highest).max(record.id.generation);
    }

    pub(crate) fn forget(&self, session: SessionId) {
        let mut records = lock(&self.records);
        if let Some(record) = records.all.remove(&session)
            && records.latest.get(&record.key) == Some(&session)
        {
            records.latest.remove(&record.key);
        }
    }

    pub(crate) fn record(&self, session: SessionId) -> Option<Arc<SessionRecord>> {
        lock(&self.records).all.get(&session).cloned()
    }

    /// The last that held a key.
    pub(crate) fn latest(&self, key: &KeyRef) -> Option<Arc<SessionRecord>> {
        let records = lock(&self.records);
        records.latest.get(key).and_then(|session| records.all.get(session)).cloned()
    }

    /// All that are remembered, the ended ones too, in order of owner and generation.
    pub(crate) fn records(&self) -> Vec<Arc<SessionRecord>> {
        lock(&self.records).all.values().cloned().collect()
    }

    pub(crate) fn last_generations(&self) -> Vec<(Uid, Generation)> {
        lock(&self.last_generations).iter().map(|(uid, generation)| (*uid, *generation)).collect()
    }
}
