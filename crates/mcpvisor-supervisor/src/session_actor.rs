//! Drives the session machine: starts its servers' actors, drains, stops, writes the certificate.
mod change;

pub(crate) use change::{Change, ChangeReply, What};

use self::change::Changes;
use crate::api::{DirectStreams, Outcome, ServerSpec};
use crate::certificate::{self, End};
use crate::clock::Alarm;
use crate::core::{Core, count};
use crate::definition;
use crate::lost;
use crate::record::{ServerRecord, SessionRecord};
use crate::registry_actor::RegistryMsg;
use crate::server_actor::{ServerActor, ServerArguments, ServerMsg};
use mcpvisor_failpoints::{self as failpoints, Gate};
use mcpvisor_lifecycle::registry::{CloseOptions, RegistryEvent, Urgency};
use mcpvisor_lifecycle::server::{Mode, ServerReport, ServerState};
use mcpvisor_lifecycle::session::{
    CloseReason, Ended, Session, SessionConfig, SessionEffect, SessionEvent, SessionServer, SessionState,
};
use mcpvisor_lifecycle::{Place, RequestId};
use mcpvisor_process::ScopeReport;
use ractor::{Actor, ActorProcessingErr, ActorRef, ActorRuntime, SupervisionEvent};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::oneshot;

pub(crate) enum SessionMsg {
    Begin,
    Close(CloseReason, CloseOptions),
    AwaitChildren,
    ChildrenGone,
    Urge(Urgency),
    RetryKill,
    ClientGone,
    /// The client of a relayed session has ended its stream.
    ClientLeft,
    Drained,
    /// No call is in flight and no client attached any more.
    Quiet,
    StayOpen,
    /// Someone waits at the parked gate.
    Wake,
    /// A change of its servers is asked for; `spec` of an add.
    Change(Change, Option<Box<ServerSpec>>, oneshot::Sender<ChangeReply>),
    /// Who asked for it is gone.
    CancelChange(RequestId),
    ServerDrained(Place),
    Server(Place, ServerReport),
    /// The reaper's word on a server whose actor is lost.
    Reaped(Place, Option<Arc<ScopeReport>>),
    Alarm,
    #[cfg(test)]
    Panic,
    #[cfg(test)]
    PanicServer(Place),
}

impl SessionMsg {
    /// Where a test can hold it.
    fn gate(&self) -> Option<Gate> {
        match self {
            Self::Begin => Some(Gate::SessionBegin),
            Self::Close(..) => Some(Gate::SessionClose),
            Self::Drained => Some(Gate::SessionDrained),
            Self::Server(_, ServerReport::Ready) => Some(Gate::SessionReady),
            Self::Server(_, ServerReport::Stopped) => Some(Gate::SessionStopped),
            Self::Server(_, ServerReport::Relaunched) => Some(Gate::SessionRelaunched),
            Self::Change(..) => Some(Gate::SessionChange),
            Self::Wake => Some(Gate::SessionWake),
            Self::CancelChange(_) => Some(Gate::SessionCancelChange),
            Self::ServerDrained(_) => Some(Gate::SessionServerDrained),
            _ => None,
        }
    }
}

pub(crate) struct SessionActor;

pub(crate) struct SessionArguments {
    pub(crate) core: Arc<Core>,
    pub(crate) record: Arc<SessionRecord>,
    pub(crate) direct: Option<DirectStreams>,
}

pub(crate) struct Driver {
    machine: Session,
    core: Arc<Core>,
    record: Arc<SessionRecord>,
    direct: Option<DirectStreams>,
    /// The servers' actors; none before the start or after a loss.
    servers: BTreeMap<Place, ActorRef<ServerMsg>>,
    changes: Changes,
    alarm: Alarm,
    span: tracing::Span,
}

impl Actor for SessionActor {
    type Msg = SessionMsg;
    type State = Driver;
    type Arguments = SessionArguments;

    async fn pre_start(
        &self,
        _: ActorRef<SessionMsg>,
        arguments: SessionArguments,
    ) -> Result<Driver, ActorProcessingErr> {
        let SessionArguments { core, record, direct } = arguments;
        let servers = record.servers();
        let machine = Session::new(SessionConfig {
            servers: servers
                .iter()
                .map(|server| SessionServer {
                    name: server.spec.name.clone(),
                    required: server.spec.required,
                    significant: server.spec.significant,
                })
                .collect(),
            drain: record.drain,
            direct: record.direct,
        })
        .with_limits(record.limits);
        let span = record.span();
        let (servers, changes) = (BTreeMap::new(), Changes::default());
        Ok(Driver { machine, core, record, direct, servers, changes, alarm: Alarm::default(), span })
    }

    async fn handle(
        &self,
        myself: ActorRef<SessionMsg>,
        message: SessionMsg,
        driver: &mut Driver,
    ) -> Result<(), ActorProcessingErr> {
        if let Some(gate) = message.gate() {
            failpoints::pass(gate).await;
        }
        driver.receive(&myself, message);
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<SessionMsg>,
        event: SupervisionEvent,
        driver: &mut Driver,
    ) -> Result<(), ActorProcessingErr> {
        if let SupervisionEvent::ActorTerminated(who, ..) | SupervisionEvent::ActorFailed(who, _) = event {
            driver.child_ended(&myself, &who);
        }
        Ok(())
    }
}

impl Driver {
    fn receive(&mut self, myself: &ActorRef<SessionMsg>, message: SessionMsg) {
        let span = self.span.clone();
        let _entered = span.enter();
        let event = match message {
            SessionMsg::Begin => SessionEvent::Begin,
            SessionMsg::Close(reason, options) => {
                self.record.live().closing.get_or_insert((Instant::now(), reason));
                SessionEvent::Close { reason, options }
            }
            SessionMsg::AwaitChildren => SessionEvent::AwaitChildren,
            SessionMsg::ChildrenGone => SessionEvent::ChildrenGone,
            SessionMsg::Urge(urgency) => SessionEvent::Urge { urgency },
            SessionMsg::RetryKill => SessionEvent::RetryKill,
            SessionMsg::ClientGone => SessionEvent::ClientGone,
            SessionMsg::ClientLeft => {
                // The same as the end of any other lease.
                let session = self.record.id;
                self.core.tell(RegistryEvent::CloseWanted { session, reason: CloseReason::LeaseEnded });
                return;
            }
            SessionMsg::Drained => SessionEvent::Drained,
            SessionMsg::Quiet => SessionEvent::Quiet,
            SessionMsg::StayOpen => SessionEvent::StayOpen,
            SessionMsg::Wake => SessionEvent::Wake,
            SessionMsg::Change(change, spec, reply) => {
                self.changes.begin(&change, spec, reply);
                change.event()
            }
            SessionMsg::CancelChange(request) => {
                self.changes.cancel(request);
                SessionEvent::CancelChange { request }
            }
            SessionMsg::ServerDrained(server) => SessionEvent::ServerDrained { server },
            SessionMsg::Server(server, report) => {
                // An actor that is lost may have left words behind: the reaper's count, not these.
                if !self.servers.contains_key(&server) {
                    return;
                }
                if let ServerReport::Failed(_) = report {
                    self.tell_failed(server);
                }
                self.deny_held(server, report);
                SessionEvent::Server { server, report }
            }
            SessionMsg::Reaped(server, Some(report)) => {
                if let Some(record) = self.record.roster.at(server) {
                    lost::settle(&record, &report);
                }
                SessionEvent::Server { server, report: ServerReport::Stopped }
            }
            SessionMsg::Reaped(server, None) => {
                SessionEvent::Server { server, report: ServerReport::Quarantined }
            }
            SessionMsg::Alarm => SessionEvent::Timeout,
            #[cfg(test)]
            SessionMsg::Panic => panic!("a session's actor was told to panic"),
            #[cfg(test)]
            SessionMsg::PanicServer(server) => {
                self.tell(server, ServerMsg::Panic);
                return;
            }
        };
        self.step(myself, event);
    }

    fn step(&mut self, myself: &ActorRef<SessionMsg>, event: SessionEvent) {
        let effects = self.machine.step(self.core.clock.now(), event);
        for effect in effects {
            self.act(myself, &effect);
        }
        self.changes.step_is_over();
        self.alarm.set(self.machine.next_timeout(), self.core.clock, myself, || SessionMsg::Alarm);
    }

    fn act(&mut self, myself: &ActorRef<SessionMsg>, effect: &SessionEffect) {
        let session = self.record.id;
        match *effect {
            SessionEffect::StartServer { server } => self.start(myself, server),
            SessionEffect::CloseGate => {
                let drained = myself.clone();
                self.record.close_gate(Box::new(move || {
                    let _ = drained.send_message(SessionMsg::Drained);
                }));
            }
            SessionEffect::SettleCalls => self.settle_calls(),
            SessionEffect::StopServer { server, term_first } => {
                self.tell(server, ServerMsg::Stop { term_first });
            }
            SessionEffect::ReportReady => {
                self.record.gate.touch();
                self.core.tell(RegistryEvent::SessionReady { session });
            }
            SessionEffect::LookAtActivity => {
                let told = myself.clone();
                let seen = self.record.gate.look(Box::new(move || {
                    let _ = told.send_message(SessionMsg::Quiet);
                }));
                self.step(myself, SessionEvent::Activity(self.core.activity(seen)));
            }
            SessionEffect::ParkGate => {
                let (now, limit) = (self.core.clock.now(), self.record.limits.idle);
                let over = |seen| limit.is_some_and(|limit| limit.due(self.core.activity(seen)) <= now);
                let parked = self.record.gate.park(over);
                self.step(myself, SessionEvent::GateParked { parked });
            }
            SessionEffect::OpenGate => self.record.gate.unpark(),
            SessionEffect::RefuseWaiting => self.record.gate.refuse(),
            SessionEffect::ClaimIdle => self.core.tell(RegistryEvent::IdleClaimed { session }),
            SessionEffect::UrgeServer { server, urgency } => self.tell(server, ServerMsg::Urge(urgency)),
            SessionEffect::RetryKillServer { server } => self.retry_kill(myself, server),
            SessionEffect::ReapServer { server } => self.reap(myself, server),
            SessionEffect::RestartServer { server } => self.tell(server, ServerMsg::Restart),
            SessionEffect::CreateServer { request, server, replaces } => {
                self.create(request, server, replaces);
            }
            SessionEffect::PublishServer { server, replaces } => self.publish(server, replaces),
            SessionEffect::RetireServer { server } => self.retire(myself, server),
            SessionEffect::HoldServer { server } => self.hold(myself, server),
            SessionEffect::SettleServer { server } => self.settle_server(server),
            SessionEffect::ForgetServer { server } => self.forget(server),
            SessionEffect::Reply { request, result } => self.answer(request, result),
            SessionEffect::WantClose { reason } => {
                self.core.tell(RegistryEvent::CloseWanted { session, reason });
            }
            SessionEffect::ReportQuarantined => self.report_quarantined(),
            SessionEffect::End { ended, reason } => self.end(myself, ended, reason),
            SessionEffect::Changed(state) => self.changed(state),
        }
    }

    fn tell(&self, server: Place, message: ServerMsg) {
        if let Some(actor) = self.servers.get(&server) {
            // An actor that is lost is noticed by its supervision event, and its scope is reaped then.
            let _ = actor.send_message(message);
        }
    }

    fn start(&mut self, myself: &ActorRef<SessionMsg>, server: Place) {
        // It was parked: its actor is there still.
        if let Some(actor) = self.servers.get(&server) {
            let _ = actor.send_message(ServerMsg::Start);
            return;
        }
        let Some(record) = self.record.roster.at(server) else { return };
        let name = record.spec.name.clone();
        let arguments = ServerArguments {
            session: Arc::clone(&self.record),
            record: Arc::clone(&record),
            parent: myself.clone(),
            core: Arc::clone(&self.core),
            containment: self.core.containment.clone(),
            clock: self.core.clock,
            eras: Arc::clone(&self.core.eras),
            direct: match record.spec.mode {
                Mode::Direct | Mode::Exclusive => self.direct.take(),
                Mode::Shared => None,
            },
        };
        match ActorRuntime::<ServerActor>::spawn_linked_instant(
            None,
            ServerActor,
            arguments,
            myself.get_cell(),
        ) {
            Ok((actor, _)) => {
                let _ = actor.send_message(ServerMsg::Start);
                self.servers.insert(server, actor);
            }
            Err(error) => {
                tracing::error!(server = %name, %error, "a server's actor could not be started");
                self.step(myself, SessionEvent::ServerLost { server });
            }
        }
    }

    /// A server with a breaker has failed; whether that was a start the registry knows.
    fn tell_failed(&self, server: Place) {
        let has_breaker = |server: &Arc<ServerRecord>| definition::has_breaker(&server.spec);
        let Some(server) = self.record.roster.at(server).filter(has_breaker) else { return };
        let own_fault = server.live().failure.as_ref().is_some_and(|failure| failure.is_the_servers_own());
        if own_fault {
            let (session, spec) = (self.record.id, server.digest);
            self.core.tell(RegistryEvent::StartFailed { session, spec });
        }
    }

    fn settle_calls(&self) {
        // First: what a client asks of several servers must not take an answer of less for all of it.
        self.record.slot.clients().iter().for_each(|client| client.settle());
        for server in self.record.servers().iter() {
            let (connection, relay) = {
                let live = server.live();
                (live.connection.clone(), live.relay.clone())
            };
            if let Some(connection) = connection {
                connection.settle("the session is being closed");
            }
            if let Some(relay) = relay {
                relay.settle();
            }
        }
    }

    fn changed(&self, state: SessionState) {
        // The final states are written, and told of, by `end`, with the certificate; a quarantine is told of with its report.
        if !matches!(state, SessionState::Closed | SessionState::Failed) {
            self.record.live().state = state;
        }
        self.record.tell_state(state);
        tracing::debug!(state = ?state, "session changed");
    }

    // What is lost, and what can't be killed.

    fn child_ended(&mut self, myself: &ActorRef<SessionMsg>, who: &ractor::ActorCell) {
        let place = self.servers.iter().find(|(_, actor)| actor.get_id() == who.get_id());
        // A server's actor ends with its session, or when the session has forgotten it: one that ends before is lost.
        let Some(server) = place.map(|(server, _)| *server) else { return };
        self.servers.remove(&server);
        if let Some(record) = self.record.roster.at(server) {
            let span = self.record.server_span(&record);
            tracing::error!(parent: &span, "a server's actor is lost");
        }
        self.step(myself, SessionEvent::ServerLost { server });
    }

    fn retry_kill(&mut self, myself: &ActorRef<SessionMsg>, server: Place) {
        match self.servers.get(&server) {
            Some(actor) => {
                let _ = actor.send_message(ServerMsg::RetryKill);
            }
            None => self.reap(myself, server),
        }
    }

    fn reap(&self, myself: &ActorRef<SessionMsg>, server: Place) {
        let Some(record) = self.record.roster.at(server) else { return };
        let told = myself.clone();
        lost::reap_server(&self.core, &record, move |report| {
            let _ = told.send_message(SessionMsg::Reaped(server, report));
        });
    }

    fn report_quarantined(&self) {
        let (core, record) = (Arc::clone(&self.core), Arc::clone(&self.record));
        tokio::spawn(async move { lost::report_quarantined(&core, &record).await });
    }

    fn end(&self, myself: &ActorRef<SessionMsg>, ended: Ended, reason: CloseReason) {
        let proven = self.record.servers().iter().all(|server| server.live().proven);
        self.core.end_session(&self.record, ended, reason, proven);
        myself.stop(None);
    }
}

impl Core {
    /// Writes the certificate and the final state in one step, and tells the registry. Nothing of the session exists.
    pub(crate) fn end_session(
        &self,
        record: &Arc<SessionRecord>,
        ended: Ended,
        reason: CloseReason,
        proven: bool,
    ) {
        if record.former.is_none() {
            self.containment.release_session(Arc::clone(&record.scope));
        }
        for server in record.servers().iter() {
            end_server(record, server, ended);
        }
        let state = match ended {
            Ended::Closed => SessionState::Closed,
            Ended::Failed => SessionState::Failed,
        };
        let end = End { outcome: Outcome::Closed, state, reason, remaining: Vec::new(), proven };
        let certificate = certificate::of_session(record, record.containment(self.containment.kind()), end);
        if !record.is_host() {
            count(match ended {
                Ended::Closed => &self.counters.closed,
                Ended::Failed => &self.counters.failed,
            });
        }
        let took_ms = certificate.duration.as_secs_f64() * 1e3;
        tracing::info!(parent: &record.span(), ?reason, state = ?state, took_ms, "session ended");
        {
            let mut live = record.live();
            record.tell_ended(&certificate);
            live.certificate = Some(Arc::new(certificate));
            live.state = state;
            live.actor = None;
        }
        record.tell_over();
        record.hold(None);
        record.slot.session_over();
        record.servers().iter().for_each(|server| server.shrink());
        self.send(RegistryMsg::Event(RegistryEvent::SessionEnded { session: record.id, ended }));
    }
}

/// A server of an ended session shows how it ended, whatever its actor last wrote.
fn end_server(record: &SessionRecord, server: &ServerRecord, ended: Ended) {
    let was = {
        let mut live = server.live();
        live.waiting = None;
        live.pid = None;
        let was = live.state;
        if !(ended == Ended::Failed && was == ServerState::Failed) {
            live.state = ServerState::Stopped;
        }
        was
    };
    // One whose actor was lost has nobody else to say so.
    if !matches!(was, ServerState::Stopped | ServerState::Failed) {
        record.tell_server(server);
    }
}
