//! Drives the registry machine: creates the sessions' actors, answers requests, reaps what lost its actor.
use crate::api::OpenRequest;
use crate::clock::Alarm;
use crate::core::{Core, count};
use crate::events::{EventKind, InQueue, Refused};
use crate::gate::{Presence, Seen};
use crate::lost;
use crate::record::SessionRecord;
use crate::session_actor::{SessionActor, SessionArguments, SessionMsg};
use mcpvisor_failpoints::{self as failpoints, Gate};
use mcpvisor_lifecycle::registry::{
    Answer, Counts, Open, Queued, Refusal, Registry, RegistryEffect, RegistryEvent, Target,
};
use mcpvisor_lifecycle::session::Ended;
use mcpvisor_lifecycle::{KeyRef, RequestId, SessionId, Uid};
use mcpvisor_process::HolderWatch;
use ractor::{Actor, ActorId, ActorProcessingErr, ActorRef, ActorRuntime, SupervisionEvent};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// An answer with the record that it speaks of, taken in the same step: a tombstone may be evicted right after.
pub(crate) struct Reply {
    pub(crate) result: Result<Answer, Refusal>,
    pub(crate) record: Option<Arc<SessionRecord>>,
    /// Of a server that sessions share: whoever opened it uses it from this step on, so that no claim to be idle comes between.
    pub(crate) presence: Option<Presence>,
}

pub(crate) enum RegistryMsg {
    Open {
        open: Open,
        request: Box<OpenRequest>,
        reply: oneshot::Sender<Reply>,
    },
    /// Any other request that is answered.
    Ask {
        request: RequestId,
        event: RegistryEvent,
        reply: oneshot::Sender<Reply>,
    },
    /// A fact, or a command that nobody waits for.
    Event(RegistryEvent),
    /// The session that a request other than `close` and `wait` means; with `ended`, also one that is over and that
    /// no generation was named of.
    Resolve {
        target: Target,
        ended: bool,
        reply: oneshot::Sender<Result<SessionId, Refusal>>,
    },
    /// The session that a token means, which is the true one of this session.
    Present {
        key: KeyRef,
        session: SessionId,
        reply: oneshot::Sender<Result<SessionId, Refusal>>,
    },
    Counts {
        /// Counts, whether fenced, facts dropped, breakers open.
        reply: oneshot::Sender<(Counts, bool, u64, u64)>,
    },
    /// Who waits for a slot, of one user or of all.
    Queued {
        of: Option<Uid>,
        reply: oneshot::Sender<Vec<Queued>>,
    },
    Alarm,
    #[cfg(test)]
    Panic,
}

impl RegistryMsg {
    /// Where a test can hold it.
    fn gate(&self) -> Option<Gate> {
        match self {
            Self::Open { .. } => Some(Gate::RegistryOpen),
            Self::Resolve { .. } => Some(Gate::RegistryResolve),
            Self::Ask { event: RegistryEvent::Close { .. }, .. } => Some(Gate::RegistryClose),
            Self::Event(RegistryEvent::Cancel { .. }) => Some(Gate::RegistryCancel),
            Self::Event(RegistryEvent::SessionReady { .. }) => Some(Gate::RegistryReady),
            Self::Event(RegistryEvent::SessionEnded { .. }) => Some(Gate::RegistryEnded),
            Self::Event(RegistryEvent::Shutdown { .. }) => Some(Gate::RegistryShutdown),
            _ => None,
        }
    }
}

pub(crate) struct RegistryActor;

pub(crate) struct Driver {
    core: Arc<Core>,
    machine: Registry,
    alarm: Alarm,
    replies: HashMap<RequestId, oneshot::Sender<Reply>>,
    /// What is to be opened, until it is started, joined or refused.
    opens: HashMap<RequestId, Box<OpenRequest>>,
    actors: HashMap<ActorId, SessionId>,
    /// What waits for a slot.
    queued: HashMap<RequestId, InQueue>,
    /// The processes that are to hold the leases of what is to be opened.
    holders: HashMap<RequestId, HolderWatch>,
}

impl Actor for RegistryActor {
    type Msg = RegistryMsg;
    type State = Driver;
    type Arguments = Arc<Core>;

    async fn pre_start(
        &self,
        myself: ActorRef<RegistryMsg>,
        core: Arc<Core>,
    ) -> Result<Driver, ActorProcessingErr> {
        // What a lost predecessor left: each is reaped without its actors, and blocks its key until then.
        let (ended, left): (Vec<_>, Vec<_>) =
            core.records().into_iter().partition(|record| record.has_ended());
        // Its tombstones went with it; whoever waited for one of these holds the record.
        ended.iter().for_each(|record| core.forget(record.id));
        let taken = left.iter().map(|record| record.left()).collect();
        let machine = Registry::recover(core.config(), taken, core.last_generations());
        // It is found from now on: the end of a session may come before this has returned.
        core.registry.send_replace(Some(myself.clone()));
        for record in &left {
            lost::reap_session(&core, record);
        }
        // A former daemon's are told of where they are taken over.
        let lost = left.iter().filter(|record| record.former.is_none()).count();
        let mut driver = Driver {
            core,
            machine,
            alarm: Alarm::default(),
            replies: HashMap::new(),
            opens: HashMap::new(),
            queued: HashMap::new(),
            holders: HashMap::new(),
            actors: HashMap::new(),
        };
        if lost > 0 {
            tracing::error!(sessions = lost, "the registry was lost; its sessions are being reaped");
        }
        for event in driver.core.told_for_good() {
            driver.step(&myself, event);
        }
        driver.arm(&myself);
        Ok(driver)
    }

    async fn handle(
        &self,
        myself: ActorRef<RegistryMsg>,
        message: RegistryMsg,
        driver: &mut Driver,
    ) -> Result<(), ActorProcessingErr> {
        failpoints::pass(Gate::RegistryMessage).await;
        if let Some(gate) = message.gate() {
            failpoints::pass(gate).await;
        }
        driver.receive(&myself, message);
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<RegistryMsg>,
        event: SupervisionEvent,
        driver: &mut Driver,
    ) -> Result<(), ActorProcessingErr> {
        if let SupervisionEvent::ActorTerminated(who, ..) | SupervisionEvent::ActorFailed(who, _) = event {
            driver.child_ended(&myself, who.get_id());
        }
        Ok(())
    }
}

impl Driver {
    fn receive(&mut self, myself: &ActorRef<RegistryMsg>, message: RegistryMsg) {
        match message {
            RegistryMsg::Open { open, mut request, reply } => {
                self.replies.insert(open.request, reply);
                self.watch_holder(open.request, &mut request);
                self.opens.insert(open.request, request);
                self.step(myself, RegistryEvent::Open(open));
            }
            RegistryMsg::Ask { request, event, reply } => {
                self.replies.insert(request, reply);
                self.step(myself, event);
            }
            RegistryMsg::Event(event) => {
                if let RegistryEvent::Cancel { request } = event {
                    self.replies.remove(&request);
                    self.opens.remove(&request);
                    self.holders.remove(&request);
                }
                if let RegistryEvent::SessionQuarantined { .. } = event {
                    count(&self.core.counters.quarantined);
                }
                self.step(myself, event);
            }
            RegistryMsg::Resolve { target, ended, reply } => {
                let found = match self.machine.find(&target) {
                    Some(session) if ended && target.generation.is_none() => Ok(session),
                    _ => self.machine.resolve(&target),
                };
                let _ = reply.send(found);
            }
            RegistryMsg::Present { key, session, reply } => {
                let _ = reply.send(self.machine.presented(&key, session));
            }
            RegistryMsg::Counts { reply } => {
                let machine = &self.machine;
                let breakers = machine.open_breakers() as u64;
                let _ =
                    reply.send((machine.counts(), machine.is_fenced(), machine.dropped_facts(), breakers));
            }
            RegistryMsg::Queued { of, reply } => {
                let _ = reply.send(self.machine.queued(of));
            }
            RegistryMsg::Alarm => self.step(myself, RegistryEvent::Timeout),
            #[cfg(test)]
            RegistryMsg::Panic => panic!("the registry's actor was told to panic"),
        }
    }

    fn step(&mut self, myself: &ActorRef<RegistryMsg>, event: RegistryEvent) {
        let effects = self.machine.step(self.core.clock.now(), event);
        // Answers carry records: none is forgotten before every answer of its step is given.
        let (forgotten, effects): (Vec<_>, Vec<_>) =
            effects.into_iter().partition(|effect| matches!(effect, RegistryEffect::Forget { .. }));
        for effect in effects.into_iter().chain(forgotten) {
            self.act(myself, effect);
        }
        self.arm(myself);
    }

    fn arm(&mut self, myself: &ActorRef<RegistryMsg>) {
        self.alarm.set(self.machine.next_timeout(), self.core.clock, myself, || RegistryMsg::Alarm);
    }

    fn act(&mut self, myself: &ActorRef<RegistryMsg>, effect: RegistryEffect) {
        match effect {
            RegistryEffect::Start { session, key, request } => self.start(myself, session, &key, request),
            RegistryEffect::Close { session, reason, options } => {
                self.tell(session, SessionMsg::Close(reason, options));
            }
            RegistryEffect::RetireGate { session } => self.retire_gate(myself, session),
            RegistryEffect::Evict { request, among, idle } => self.evict(myself, request, &among, idle),
            RegistryEffect::Revoke { session } => self.revoke(session),
            RegistryEffect::StayOpen { session } => self.tell(session, SessionMsg::StayOpen),
            RegistryEffect::AwaitChildren { session } => self.tell(session, SessionMsg::AwaitChildren),
            RegistryEffect::ChildrenGone { session } => self.tell(session, SessionMsg::ChildrenGone),
            RegistryEffect::Urge { session, urgency } => self.tell(session, SessionMsg::Urge(urgency)),
            RegistryEffect::RetryKill { session } => self.retry_kill(session),
            RegistryEffect::ReapLost { session } => {
                if let Some(record) = self.core.record(session) {
                    lost::reap_session(&self.core, &record);
                }
            }
            RegistryEffect::Queued { request, position } => {
                if let Some(open) = self.opens.get(&request) {
                    if let Some(told) = &open.position {
                        told.send_replace(position);
                    }
                    let events = &self.core.events;
                    self.queued.entry(request).or_insert_with(|| InQueue::begin(events, open, position));
                }
            }
            RegistryEffect::LeftQueue { request, admitted } => {
                if let Some(queued) = self.queued.remove(&request) {
                    queued.leave(&self.core.events, admitted);
                }
            }
            RegistryEffect::Reply { request, result } => self.reply(request, result),
            RegistryEffect::Breaker { session, open } => self.breaker(session, open),
            RegistryEffect::Forget { session } => self.core.forget(session),
            RegistryEffect::Finished { leftovers } => {
                self.core.finished.send_replace(Some(leftovers));
            }
        }
    }

    /// From now on, so that nothing is admitted for a process that has ended meanwhile. One that has already is told of at once.
    fn watch_holder(&mut self, request: RequestId, open: &mut OpenRequest) {
        let Some(holder) = open.holder.take() else { return };
        let core = Arc::downgrade(&self.core);
        let ended = move || {
            if let Some(core) = core.upgrade() {
                core.tell(RegistryEvent::HolderEnded { request });
            }
        };
        self.holders.insert(request, self.core.containment.watch_holder(holder, Box::new(ended)));
    }

    fn start(
        &mut self,
        myself: &ActorRef<RegistryMsg>,
        session: SessionId,
        key: &KeyRef,
        request: RequestId,
    ) {
        let Some(mut open) = self.opens.remove(&request) else {
            tracing::error!(session = %key.key, "an open was started whose definition is gone");
            self.step(myself, RegistryEvent::SessionEnded { session, ended: Ended::Failed });
            return;
        };
        let is_direct = open.is_direct();
        open.servers.iter_mut().for_each(|server| self.core.environments.share(&mut server.env));
        let events = self.core.events.clone();
        let record = Arc::new(SessionRecord::new(session, key, &mut open, is_direct, events));
        let direct = open.direct.take();
        self.core.remember(&record);
        if let Some(watch) = self.holders.remove(&request) {
            record.hold(Some(watch));
        }
        if !record.is_host() {
            count(&self.core.counters.opened);
        }
        record.tell_admitted();
        tracing::debug!(parent: &record.span(), uid = key.uid.0, "session admitted");
        let arguments =
            SessionArguments { core: Arc::clone(&self.core), record: Arc::clone(&record), direct };
        match ActorRuntime::<SessionActor>::spawn_linked_instant(
            None,
            SessionActor,
            arguments,
            myself.get_cell(),
        ) {
            Ok((actor, _)) => {
                self.actors.insert(actor.get_id(), session);
                let _ = actor.send_message(SessionMsg::Begin);
                record.live().actor = Some(actor);
            }
            Err(error) => {
                tracing::error!(session = %key.key, %error, "a session's actor could not be started");
                self.step(myself, RegistryEvent::SessionLost { session });
            }
        }
    }

    fn tell(&self, session: SessionId, message: SessionMsg) {
        let actor = self.core.record(session).and_then(|record| record.live().actor.clone());
        if let Some(actor) = actor {
            let _ = actor.send_message(message);
        }
    }

    fn retire_gate(&mut self, myself: &ActorRef<RegistryMsg>, session: SessionId) {
        let Some(record) = self.core.record(session) else { return };
        let now = self.core.clock.now();
        let over = |seen| {
            let limit = record.limits.idle;
            limit.is_some_and(|limit| limit.due(self.core.activity(seen)) <= now)
        };
        if record.gate.retire(over) {
            self.step(myself, RegistryEvent::GateRetired { session });
        } else {
            self.tell(session, SessionMsg::StayOpen);
        }
    }

    /// The one of these that is idle for longest makes room; one that was used since the look is passed over.
    fn evict(
        &mut self,
        myself: &ActorRef<RegistryMsg>,
        request: RequestId,
        among: &[SessionId],
        idle: Duration,
    ) {
        let unused = |seen: Seen| !seen.busy && seen.last.elapsed() >= idle;
        let records = among.iter().filter_map(|session| self.core.record(*session));
        let mut idlest: Vec<_> = records.map(|record| (record.gate.seen().last, record)).collect();
        idlest.sort_by_key(|(last, _)| *last);
        let found = idlest.into_iter().find(|(_, record)| record.gate.retire(unused));
        self.step(
            myself,
            match found {
                Some((_, record)) => RegistryEvent::Evicted { request, session: record.id },
                None => RegistryEvent::NobodyIdle { request },
            },
        );
    }

    fn revoke(&self, session: SessionId) {
        let Some(record) = self.core.record(session) else { return };
        record.revoke();
        tracing::info!(parent: &record.span(), "the client whose end is the session's has gone; its token is revoked");
    }

    fn retry_kill(&self, session: SessionId) {
        let Some(record) = self.core.record(session) else { return };
        let actor = record.live().actor.clone();
        match actor {
            Some(actor) if actor.send_message(SessionMsg::RetryKill).is_ok() => {}
            _ => lost::reap_session(&self.core, &record),
        }
    }

    fn reply(&mut self, request: RequestId, result: Result<Answer, Refusal>) {
        if let Err(refusal) = &result {
            count(&self.core.counters.refused);
            let open = self.opens.get(&request);
            if let Some((refused, open)) = Refused::of(refusal).zip(open) {
                refused.publish(&self.core.events, &open.key);
            }
        }
        let session = match &result {
            Ok(
                Answer::Opened { session, .. }
                | Answer::Closed { session }
                | Answer::Quarantined { session }
                | Answer::Stopping { session }
                | Answer::Reached { session, .. }
                | Answer::NotYet { session },
            ) => Some(*session),
            Err(
                Refusal::SessionExists { session }
                | Refusal::SessionClosing { session }
                | Refusal::SessionClosed { session }
                | Refusal::SessionFailed { session }
                | Refusal::StartFailed { session }
                | Refusal::Quarantined { session }
                | Refusal::ParentClosing { session }
                | Refusal::StaleGeneration { session }
                | Refusal::NotQuarantined { session },
            ) => Some(*session),
            // The one that failed last, which says why.
            Err(Refusal::Broken(broken)) => Some(broken.last),
            Err(Refusal::DeadlineExceeded { session }) => *session,
            Err(
                Refusal::Draining
                | Refusal::HolderEnded
                | Refusal::CapacityExhausted { .. }
                | Refusal::NotFound
                | Refusal::ParentNotFound
                | Refusal::TooDeep { .. },
            ) => None,
        };
        let starts_later = matches!(result, Ok(Answer::Opened { created: true, .. }));
        let record = session.and_then(|session| self.core.record(session));
        if let (Ok(Answer::Opened { created: false, .. }), Some(record)) = (&result, &record) {
            record.gate.touch();
        }
        if let Some(reply) = self.replies.remove(&request) {
            let opened = record.as_ref().filter(|record| record.is_host() && result.is_ok());
            let presence = opened.and_then(|record| record.gate.enter().ok());
            // A requester that went away needs no answer.
            let _ = reply.send(Reply { result, record, presence });
        }
        // One that was answered before its session starts (it waits for the key, its requester does not) is kept.
        if !starts_later {
            self.opens.remove(&request);
            self.holders.remove(&request);
        }
    }

    fn breaker(&self, session: SessionId, open: bool) {
        let Some(record) = self.core.record(session) else { return };
        let _entered = record.span().entered();
        record.publish(
            None,
            if open { EventKind::BreakerOpened } else { EventKind::BreakerClosed },
            Vec::new(),
        );
        match open {
            true => tracing::warn!("a server's starts fail again and again: it is not started for a while"),
            false => tracing::info!("a server that was not started for a while starts again"),
        }
    }

    fn child_ended(&mut self, myself: &ActorRef<RegistryMsg>, who: ActorId) {
        let Some(session) = self.actors.remove(&who) else { return };
        // The supervision event overtakes the end note; the record tells whether there is one.
        let ended = self.core.record(session).is_none_or(|record| record.has_ended());
        if ended {
            return;
        }
        count(&self.core.counters.lost_actors);
        tracing::error!(generation = session.generation.0, uid = session.uid.0, "a session's actor is lost");
        self.step(myself, RegistryEvent::SessionLost { session });
    }
}

/// Keeps a registry's actor alive until the runtime ends: one that is lost is followed by one that recovers.
pub(crate) async fn keep(core: Arc<Core>) {
    loop {
        let spawned = RegistryActor::spawn(None, RegistryActor, Arc::clone(&core)).await;
        match spawned {
            Ok((_, ended)) => {
                let _ = ended.await;
                count(&core.counters.lost_actors);
                tracing::error!("the registry's actor is lost; another one takes over");
            }
            Err(error) => {
                tracing::error!(%error, "the registry's actor could not be started");
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
        }
    }
}
