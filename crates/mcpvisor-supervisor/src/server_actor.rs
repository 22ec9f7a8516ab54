//! Drives the server machine: launches, speaks the handshake, runs the stop ladder, tells the session.
//!
//! Messages become events, `step` decides, effects are carried out. Nothing is awaited in a handler; what takes time is a
//! task or a thread of the process layer, whose answer is a message.
mod command;
mod era;
mod failure;
mod health;
mod launch;
mod reach;
mod relay;

use crate::api::{DirectStreams, Scope, ServerSpec, StartFailure};
use crate::certificate;
use crate::clock::{Alarm, Clock};
use crate::core::Core;
use crate::direct;
use crate::eras::Eras;
use crate::frames::LAST;
use crate::record::{ServerRecord, SessionRecord};
use crate::session_actor::SessionMsg;
use crate::supervisor::Unheld;
use mcpvisor_failpoints::{self as failpoints, Gate};
use mcpvisor_lifecycle::Incarnation;
use mcpvisor_lifecycle::registry::Urgency;
use mcpvisor_lifecycle::server::{
    Failure, Server, ServerConfig, ServerEffect, ServerEvent, ServerReport, ServerState,
};
use mcpvisor_mcp::{EraChoice, HandshakeError, ListKind, Negotiated};
use mcpvisor_process::{Containment, Exit, LaunchError, Launched, ScopeFact, ScopeId};
use ractor::{Actor, ActorProcessingErr, ActorRef, SupervisionEvent};
use reach::{Reach, Reached};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// How much of a server's stderr an error carries, in bytes.
const TAIL: usize = 4096;
/// How many lines of a server's former processes are kept.
const PAST_LINES: usize = 100;
const BACKOFF: Duration = Duration::from_millis(200);
const LONGEST_BACKOFF: Duration = Duration::from_secs(30);

pub(crate) enum ServerMsg {
    Start,
    Stop {
        term_first: bool,
    },
    Urge(Urgency),
    Restart,
    RetryKill,
    Launched(Incarnation, Result<Launched, LaunchError>),
    /// A server whose process is not the session's was connected to, or could not be.
    Reached(Incarnation, Result<Reached, Unheld>),
    /// The connection to one is closed.
    Parted(Incarnation),
    Handshake(Incarnation, Result<Negotiated, HandshakeError>),
    Scope(Incarnation, ScopeFact),
    OutputEnded(Incarnation),
    InputEnded(Incarnation),
    /// Nothing of the stop command is left.
    CommandEnded(Incarnation),
    Alarm,
    #[cfg(test)]
    Panic,
}

impl ServerMsg {
    /// Where a test can hold it.
    fn gate(&self) -> Option<Gate> {
        match self {
            Self::Start => Some(Gate::ServerStart),
            Self::Stop { .. } => Some(Gate::ServerStop),
            Self::Restart => Some(Gate::ServerRestart),
            Self::Launched(..) | Self::Reached(..) => Some(Gate::ServerLaunched),
            Self::Handshake(..) => Some(Gate::ServerShook),
            Self::Scope(_, ScopeFact::MainExited { .. }) => Some(Gate::ServerExited),
            Self::Scope(_, ScopeFact::Empty { .. }) => Some(Gate::ServerEmpty),
            Self::Alarm => Some(Gate::ServerTimeout),
            _ => None,
        }
    }
}

pub(crate) struct ServerActor;

pub(crate) struct ServerArguments {
    pub(crate) session: Arc<SessionRecord>,
    pub(crate) record: Arc<ServerRecord>,
    pub(crate) parent: ActorRef<SessionMsg>,
    pub(crate) core: Arc<Core>,
    pub(crate) containment: Containment,
    pub(crate) clock: Clock,
    pub(crate) eras: Arc<Eras>,
    pub(crate) direct: Option<DirectStreams>,
}

pub(crate) struct Driver {
    machine: Server,
    arguments: ServerArguments,
    alarm: Alarm,
    /// Watches the client's hang-up in direct mode; holds the copy of stdin.
    hang_up: Option<direct::Watch>,
    /// Why the newest incarnation could not be used, in words, until it is reported.
    cause: Option<(&'static str, String)>,
    /// How the handshake with the newest incarnation begins.
    era: EraChoice,
    /// The newest incarnation was ready.
    was_ready: bool,
    /// What the start waited for when its time ran out.
    waited_for: Option<String>,
    /// What the server was asked last, to learn whether it is still there.
    asked: &'static str,
    /// What was agreed with the newest incarnation, until it is ready and a client that is attached is told.
    renewed: Option<Negotiated>,
    /// The incarnation that runs and can't be spoken to: its launch is answered by its end.
    unusable: Option<Incarnation>,
    /// The state that was last told of.
    told: Option<ServerState>,
    /// Kills the stop command that runs.
    cut_command: Option<oneshot::Sender<()>>,
    /// Of a server whose process is not the session's.
    reach: Reach,
    span: tracing::Span,
    spec: Arc<ServerSpec>,
}

impl Actor for ServerActor {
    type Msg = ServerMsg;
    type State = Driver;
    type Arguments = ServerArguments;

    async fn pre_start(
        &self,
        _: ActorRef<ServerMsg>,
        arguments: ServerArguments,
    ) -> Result<Driver, ActorProcessingErr> {
        let machine = Server::new(config(&arguments));
        let span = arguments.session.server_span(&arguments.record);
        let spec = arguments.record.launch().ok_or("a server's definition is gone")?;
        Ok(Driver {
            machine,
            arguments,
            alarm: Alarm::default(),
            hang_up: None,
            cause: None,
            era: EraChoice::Auto,
            was_ready: false,
            waited_for: None,
            asked: "ping",
            renewed: None,
            unusable: None,
            told: None,
            cut_command: None,
            reach: Reach::default(),
            span,
            spec,
        })
    }

    async fn handle(
        &self,
        myself: ActorRef<ServerMsg>,
        message: ServerMsg,
        state: &mut Driver,
    ) -> Result<(), ActorProcessingErr> {
        if let Some(gate) = message.gate() {
            failpoints::pass(gate).await;
        }
        state.receive(&myself, message);
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        _: ActorRef<ServerMsg>,
        _: SupervisionEvent,
        _: &mut Driver,
    ) -> Result<(), ActorProcessingErr> {
        // A server's actor has no children.
        Ok(())
    }
}

fn config(arguments: &ServerArguments) -> ServerConfig {
    let spec = &arguments.record.spec;
    let id = arguments.session.id;
    ServerConfig {
        mode: spec.mode,
        start: reach::start(spec),
        stdin_grace: spec.stdin_grace,
        term_grace: spec.term_grace,
        stop_command: spec
            .stop_command
            .as_ref()
            .filter(|_| !spec.scope.is_apart())
            .map(|command| command.timeout),
        kill_wait: spec.kill_wait,
        restart: reach::restart(spec),
        restart_intensity: spec.restart_intensity,
        restart_period: spec.restart_period,
        backoff: BACKOFF,
        longest_backoff: LONGEST_BACKOFF,
        health: spec.health.filter(|_| !matches!(spec.scope, Scope::Daemon { .. })),
        // Differs between servers, so that those that failed together don't come back together.
        seed: id.generation.0 ^ (u64::from(id.uid.0) << 32) ^ ((arguments.record.index as u64) << 20),
    }
}

impl Driver {
    fn receive(&mut self, myself: &ActorRef<ServerMsg>, message: ServerMsg) {
        let span = self.span.clone();
        let _entered = span.enter();
        if matches!(message, ServerMsg::Start | ServerMsg::Restart) {
            self.let_go();
        }
        let event = match message {
            ServerMsg::Start => ServerEvent::Start,
            ServerMsg::Stop { term_first } => ServerEvent::Stop { term_first },
            ServerMsg::Urge(urgency) => ServerEvent::Urge { urgency },
            ServerMsg::Restart => ServerEvent::Restart,
            ServerMsg::RetryKill => ServerEvent::RetryKill,
            ServerMsg::Launched(incarnation, result) => match self.launched(myself, incarnation, result) {
                Some(event) => event,
                None => return,
            },
            ServerMsg::Reached(incarnation, result) => match self.reached(myself, incarnation, result) {
                Some(event) => event,
                None => return,
            },
            ServerMsg::Parted(incarnation) => ServerEvent::ScopeEmpty { incarnation },
            ServerMsg::Handshake(incarnation, result) => {
                if let Err(HandshakeError::Locked(_)) = result {
                    self.step(myself, ServerEvent::OtherEra { incarnation });
                }
                self.shook_hands(myself, incarnation, result)
            }
            ServerMsg::Scope(incarnation, fact) => {
                if matches!(fact, ScopeFact::Empty { .. }) && self.had_client(incarnation) {
                    self.step(myself, ServerEvent::ClientCame { incarnation });
                }
                self.scope_told(incarnation, fact)
            }
            ServerMsg::OutputEnded(incarnation) if self.is_apart() => self.cut_off(myself, incarnation),
            ServerMsg::OutputEnded(incarnation) => {
                if self.runs(incarnation) {
                    self.cause
                        .get_or_insert(("output_ended", "it closed its stdout while it ran".to_owned()));
                }
                ServerEvent::OutputEnded { incarnation }
            }
            ServerMsg::InputEnded(incarnation) => {
                self.arguments.containment.stdin_closed(&self.scope(incarnation));
                ServerEvent::InputEnded { incarnation }
            }
            ServerMsg::CommandEnded(incarnation) => ServerEvent::CommandEnded { incarnation },
            ServerMsg::Alarm => {
                let starts = self.machine.state() == ServerState::Starting;
                if starts && self.machine.next_timeout() <= Some(self.arguments.clock.now()) {
                    self.cause.get_or_insert(("timeout", String::new()));
                    self.waited_for = Some(self.arguments.record.waits_for());
                }
                self.look(myself);
                return;
            }
            #[cfg(test)]
            ServerMsg::Panic => panic!("a server's actor was told to panic"),
        };
        self.step(myself, event);
    }

    /// It is the newest one, and ready.
    fn runs(&self, incarnation: Incarnation) -> bool {
        self.machine.incarnation() == Some(incarnation) && self.machine.state() == ServerState::Ready
    }

    fn step(&mut self, myself: &ActorRef<ServerMsg>, event: ServerEvent) {
        let effects = self.machine.step(self.arguments.clock.now(), event);
        self.publish();
        for effect in effects {
            self.act(myself, &effect);
        }
        self.tell();
        self.alarm.set(self.machine.next_timeout(), self.arguments.clock, myself, || ServerMsg::Alarm);
    }

    /// Writes down what others may read.
    fn publish(&self) {
        let mut live = self.arguments.record.live();
        live.state = self.machine.state();
        live.stage = self.machine.stage();
        live.restarts = self.machine.restarts();
        live.waiting = self.machine.waits_for();
        if live.state == ServerState::Stopping && live.stopping_since.is_none() {
            live.stopping_since = Some(Instant::now());
        }
    }

    /// Publishes the state where it is another one: once in a step, and before the session hears of it.
    fn tell(&mut self) {
        let state = self.arguments.record.live().state;
        if self.told != Some(state) {
            self.told = Some(state);
            self.arguments.record.turned.notify_waiters();
            self.arguments.session.tell_server(&self.arguments.record);
        }
    }

    fn act(&mut self, myself: &ActorRef<ServerMsg>, effect: &ServerEffect) {
        if self.is_apart() && self.act_apart(myself, effect) {
            return;
        }
        let containment = &self.arguments.containment;
        match *effect {
            ServerEffect::Launch { incarnation } => self.launch(myself, incarnation),
            ServerEffect::Handshake { incarnation } => {
                if self.era_is_remembered() {
                    self.step(myself, ServerEvent::OtherEra { incarnation });
                }
                self.shake_hands(myself, incarnation);
            }
            ServerEffect::AskHealth { .. } => {
                let connection = self.arguments.record.any_connection();
                self.asked = connection.map_or(self.asked, |connection| connection.ask_health());
            }
            ServerEffect::CloseStdin { incarnation } => {
                containment.stdin_closed(&self.scope(incarnation));
                let live = self.arguments.record.live();
                if let Some(connection) = &live.connection {
                    connection.close_stdin();
                }
                if let Some(relay) = &live.relay {
                    relay.close_stdin();
                }
            }
            ServerEffect::Terminate { incarnation } => containment.terminate(&self.scope(incarnation)),
            ServerEffect::Kill { incarnation } => containment.kill(&self.scope(incarnation)),
            ServerEffect::StopCommand { incarnation } => self.run_command(myself, incarnation),
            ServerEffect::KillCommand { incarnation } => self.kill_command(incarnation),
            ServerEffect::Release { incarnation } => self.release(incarnation),
            ServerEffect::Report(report) => self.report(report),
        }
    }

    fn scope(&self, incarnation: Incarnation) -> ScopeId {
        ScopeId {
            session: Arc::clone(&self.arguments.session.scope),
            leaf: format!("{}-{}", self.arguments.record.index, incarnation.0).into(),
        }
    }

    // Handshake.

    fn shake_hands(&self, myself: &ActorRef<ServerMsg>, incarnation: Incarnation) {
        let Some(connection) = self.arguments.record.live().connection.clone() else { return };
        let answer = myself.clone();
        tokio::spawn(async move {
            failpoints::pass(Gate::HandshakeBegun).await;
            let result = match connection.handshake().await {
                // The tools are listed at once: who calls one must know whose it is. A server that can't list them
                // is no worse a server; the next `tools` asks again.
                Ok(handshake) => {
                    failpoints::pass(Gate::HandshakeAnswered).await;
                    if let Err(error) = connection.items(ListKind::Tools).await {
                        tracing::debug!(%error, "the tools could not be listed at the start");
                    }
                    failpoints::pass(Gate::HandshakeListed).await;
                    Ok(handshake)
                }
                Err(error) => Err(error),
            };
            let _ = answer.send_message(ServerMsg::Handshake(incarnation, result));
        });
    }

    fn shook_hands(
        &mut self,
        myself: &ActorRef<ServerMsg>,
        incarnation: Incarnation,
        result: Result<Negotiated, HandshakeError>,
    ) -> ServerEvent {
        match result {
            Ok(handshake) => {
                if self.machine.incarnation() == Some(incarnation) {
                    let mut live = self.arguments.record.live();
                    live.era = Some(handshake.era.as_str());
                    live.protocol = Some(handshake.protocol.to_string());
                    drop(live);
                    self.remember_era(&handshake);
                    self.renewed = Some(handshake);
                }
                ServerEvent::HandshakeDone { incarnation }
            }
            // The end of its output is no answer of its own: the exit that explains it comes in a moment.
            Err(HandshakeError::ServerExited) if self.is_apart() => self.cut_off(myself, incarnation),
            Err(HandshakeError::ServerExited) => ServerEvent::OutputEnded { incarnation },
            Err(error) => {
                if self.machine.incarnation() == Some(incarnation) {
                    self.cause.get_or_insert(("handshake", error.to_string()));
                }
                ServerEvent::HandshakeFailed { incarnation }
            }
        }
    }

    // The end.

    fn scope_told(&mut self, incarnation: Incarnation, fact: ScopeFact) -> ServerEvent {
        match fact {
            ScopeFact::MainExited { exit } => {
                let hung_up = self.hang_up.as_ref().is_some_and(direct::Watch::client_hung_up);
                if self.machine.incarnation() == Some(incarnation) {
                    self.arguments.record.live().exit = Some(exit);
                    self.arguments.record.exited.notify_waiters();
                    // The client must get its EPIPE: no copy of a dead server's stdin is held.
                    self.drop_hang_up();
                }
                ServerEvent::MainExited { incarnation, normal: exit == Exit::Code(0), hung_up }
            }
            ScopeFact::Empty { report } => {
                if self.machine.incarnation() == Some(incarnation) {
                    self.drop_hang_up();
                    if !report.proven {
                        self.cause =
                            Some(("keeper_lost", "the keeper that contained it was killed".to_owned()));
                    }
                    let certificate = certificate::of_server(&self.arguments.record, &report, Instant::now());
                    let mut live = self.arguments.record.live();
                    live.empty = true;
                    live.proven &= report.proven;
                    live.last_exit = live.last_exit.max(Some(report.last_exit));
                    live.certificate = Some(certificate);
                }
                if self.unusable == Some(incarnation) {
                    return ServerEvent::LaunchFailed { incarnation };
                }
                ServerEvent::ScopeEmpty { incarnation }
            }
        }
    }

    fn drop_hang_up(&mut self) {
        self.hang_up = None;
    }

    fn release(&mut self, incarnation: Incarnation) {
        self.drop_hang_up();
        self.arguments.record.live().pid = None;
        self.arguments.record.end_connection();
        if self.is_apart() {
            return;
        }
        let mut live = self.arguments.record.live();
        if let Some(relay) = live.relay.take() {
            let (passed_over, noise) = relay.stats();
            tracing::debug!(?passed_over, "the relay has ended");
            live.noise = noise;
            relay.end();
            live.delivering = Some(relay);
        }
        drop(live);
        if let Some(stderr) = &*self.arguments.record.stderr.borrow() {
            stderr.close();
        }
        self.arguments.containment.release(&self.scope(incarnation));
    }

    fn report(&mut self, report: ServerReport) {
        let (name, place) = (self.arguments.record.spec.name.clone(), self.arguments.record.place());
        let parent = self.arguments.parent.clone();
        let failure = match report {
            ServerReport::Failed(failure) => Some(failure),
            // The machine knows by itself why it restarts; a person reads it in `last_error`.
            ServerReport::Restarting => Some(Failure::Exited),
            // It is not over, and may never be: why it is being ended must be told now (G23).
            ServerReport::Quarantined => self.machine.ends_for(),
            _ => None,
        };
        let Some(failure) = failure else {
            if report == ServerReport::Ready {
                self.was_ready = true;
                self.cause = None;
                // A host's clients come once it runs.
                let client = self.arguments.session.slot.client();
                if let Some((client, negotiated)) = client.zip(self.renewed.take()) {
                    client.server_ready(self.arguments.record.index, negotiated);
                }
            }
            self.tell();
            self.after_report(report);
            let _ = parent.send_message(SessionMsg::Server(place, report));
            return;
        };
        if !self.was_ready {
            self.forget_era();
        }
        let (noted, waited_for) = (self.cause.clone(), self.waited_for.clone());
        let (cause, message) = self.why(failure);
        let record = &self.arguments.record;
        // The last words of a server are the best explanation: they are read before anyone is told.
        let stderr_tail = record.stderr.borrow().as_ref().map_or_else(String::new, |stderr| {
            stderr.drain();
            stderr.tail(TAIL)
        });
        let (stderr_tail, frames) = (stderr_tail.into(), record.frames.last(LAST).into());
        let mut live = record.live();
        let exit = live.exit;
        if report == ServerReport::Quarantined {
            // Once the kernel has let go it is told again.
            self.cause = noted;
        } else {
            self.waited_for = None;
        }
        let waited_for = waited_for.filter(|_| cause == "timeout");
        let server = name.clone();
        let failure = StartFailure { server, cause, message, waited_for, exit, stderr_tail, frames };
        live.failure = Some(self.reach.explained(failure));
        drop(live);
        self.tell();
        self.after_report(report);
        let _ = parent.send_message(SessionMsg::Server(place, report));
    }
}
