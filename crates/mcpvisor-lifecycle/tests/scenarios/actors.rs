//! Carries out the effects of the machines, as the daemon's actors do.
use super::checks;
use super::process::{Handshake, POLITE, Process, Program, Signal, Told};
use super::world::{
    DRAIN, KILL_WAIT, Letter, Route, STDIN_GRACE, ServerActor, SessionActor, Standing, TERM_GRACE, World,
    name, place,
};
use mcpvisor_lifecycle::registry::{Answer, RegistryEffect, RegistryEvent};
use mcpvisor_lifecycle::server::{Mode, Server, ServerConfig, ServerEffect, ServerEvent, ServerReport};
use mcpvisor_lifecycle::session::{
    Activity, CloseReason, Session, SessionConfig, SessionEffect, SessionEvent, SessionServer,
};
use mcpvisor_lifecycle::{KeyRef, Moment, Place, ServerName, SessionId};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// What a session's gate knows.
fn activity(actor: &SessionActor) -> Activity {
    Activity { last: actor.last, busy: !actor.calls.is_empty() }
}

impl World {
    pub(crate) fn run_registry(&mut self, effect: RegistryEffect) -> Result<(), String> {
        let tell = |world: &mut Self, session, event| {
            world.post(Route::RegistryToSession(session), Letter::Session(event));
        };
        match effect {
            RegistryEffect::Start { session, key, .. } => {
                self.create(session, key);
                tell(self, session, SessionEvent::Begin);
            }
            RegistryEffect::Close { session, reason, options } => {
                if !self.closing.insert(session) {
                    return Err(format!("G15: {session:?} is closed twice"));
                }
                match reason {
                    CloseReason::Idle => checks::idle(self, session)?,
                    CloseReason::Evicted => checks::evicted(self, session)?,
                    _ => {}
                }
                tell(self, session, SessionEvent::Close { reason, options });
            }
            RegistryEffect::RetireGate { session } => {
                let (now, limit) = (self.now, self.limits.idle);
                let actor = self.actor(session);
                if limit.is_some_and(|limit| limit.due(activity(actor)) <= now) {
                    actor.gate_open = false;
                    self.tell_registry(&RegistryEvent::GateRetired { session })?;
                } else {
                    tell(self, session, SessionEvent::StayOpen);
                }
            }
            RegistryEffect::Evict { request, among, .. } => {
                let unused = |id: &SessionId| {
                    let actor = &self.sessions[id];
                    actor.gate_open && actor.calls.is_empty()
                };
                let idle = among.into_iter().filter(unused).min_by_key(|id| self.sessions[id].last);
                match idle {
                    Some(session) => {
                        self.actor(session).gate_open = false;
                        self.tell_registry(&RegistryEvent::Evicted { request, session })?;
                    }
                    None => self.tell_registry(&RegistryEvent::NobodyIdle { request })?,
                }
            }
            RegistryEffect::Revoke { session } => {
                if !self.revoked.insert(session) {
                    return Err(format!("G41: the token of {session:?} is revoked twice"));
                }
            }
            RegistryEffect::StayOpen { session } => tell(self, session, SessionEvent::StayOpen),
            RegistryEffect::AwaitChildren { session } => tell(self, session, SessionEvent::AwaitChildren),
            RegistryEffect::ChildrenGone { session } => tell(self, session, SessionEvent::ChildrenGone),
            RegistryEffect::Urge { session, urgency } => {
                if !self.hurried {
                    return Err(format!("G14: {session:?} is hurried, and nobody asked for it"));
                }
                tell(self, session, SessionEvent::Urge { urgency });
            }
            RegistryEffect::RetryKill { session } => tell(self, session, SessionEvent::RetryKill),
            RegistryEffect::ReapLost { session } => self.reap_session(session),
            RegistryEffect::Reply { request, result } => {
                checks::reply(self, request, &result)?;
                if let Ok(Answer::Opened { session, created: false }) = &result {
                    self.happened(*session);
                }
                if let Ok(Answer::Opened { session, .. }) = &result
                    && self.holds.contains(&request)
                {
                    if !self.actor(*session).gate_open {
                        return Err(format!(
                            "G28: {request:?} is given {session:?}, which is being torn down"
                        ));
                    }
                    // In the step of the answer.
                    self.actor(*session).calls.insert(request.0);
                    self.happened(*session);
                }
                self.replies.insert(request, result);
            }
            RegistryEffect::Forget { .. } | RegistryEffect::Breaker { .. } => {}
            // Nobody waits for a slot here.
            RegistryEffect::Queued { .. } | RegistryEffect::LeftQueue { .. } => {}
            RegistryEffect::Finished { leftovers } => {
                self.finished_at = Some(self.now);
                if self.finished.replace(leftovers).is_some() {
                    return Err("G35: a shutdown finished twice".to_owned());
                }
            }
        }
        Ok(())
    }

    fn create(&mut self, id: SessionId, key: KeyRef) {
        let programs = self.programs.get(key.key.as_str()).cloned().unwrap_or_else(|| vec![POLITE]);
        let servers: Vec<_> =
            programs.iter().zip(["one", "two", "three"]).map(|(_, text)| name(text)).collect();
        let config = SessionConfig {
            servers: servers
                .iter()
                .map(|name| SessionServer { name: name.clone(), required: true, significant: false })
                .collect(),
            drain: DRAIN,
            direct: self.is_direct(&key),
        };
        let mode = if config.direct { Mode::Direct } else { Mode::Shared };
        let machine = self.seeded(Session::new(config)).with_limits(self.limits);
        let actor = SessionActor {
            key,
            machine,
            servers: servers
                .into_iter()
                .zip(programs)
                .map(|(name, program)| self.server(name, mode, program))
                .collect(),
            gate_open: true,
            calls: BTreeSet::new(),
            ended: false,
            lost: false,
            last: self.now,
            at_gate: None,
            wants_quiet: false,
            changes: BTreeMap::new(),
        };
        self.sessions.insert(id, actor);
    }

    #[cfg_attr(
        not(feature = "seeded-bugs"),
        expect(clippy::unused_self, reason = "the seed is of use with the feature only")
    )]
    fn seeded(&self, machine: Session) -> Session {
        #[cfg(feature = "seeded-bugs")]
        if let Some(bug) = checks::bug(self.seed) {
            return machine.with_bug(bug);
        }
        machine
    }

    pub(crate) fn server(&self, name: ServerName, mode: Mode, program: Program) -> ServerActor {
        let machine = Server::new(ServerConfig {
            mode,
            start: Duration::from_secs(30),
            stdin_grace: STDIN_GRACE,
            term_grace: TERM_GRACE,
            stop_command: None,
            kill_wait: KILL_WAIT,
            restart: self.restart,
            restart_intensity: 1,
            restart_period: Duration::from_secs(60),
            backoff: Duration::from_secs(1),
            longest_backoff: Duration::from_secs(1),
            health: None,
            seed: 7,
        });
        #[cfg(feature = "seeded-bugs")]
        let machine = match checks::bug(self.seed) {
            Some(bug) => machine.with_bug(bug),
            None => machine,
        };
        let (process, standing) = (None, Standing::Member);
        ServerActor {
            name,
            program,
            machine,
            process,
            stopped: false,
            lost: false,
            standing,
            restart_of: None,
        }
    }

    pub(crate) fn tell_session(&mut self, id: SessionId, event: SessionEvent) -> Result<(), String> {
        let Some(actor) = self.sessions.get_mut(&id) else { return Ok(()) };
        if actor.lost || actor.ended {
            return self.unheard(&event);
        }
        if let SessionEvent::CancelChange { request } = event {
            self.given_up.insert(request);
        }
        let effects = actor.machine.step(self.now, event);
        for effect in effects {
            self.run_session(id, &effect)?;
        }
        Ok(())
    }

    fn run_session(&mut self, id: SessionId, effect: &SessionEffect) -> Result<(), String> {
        let report = |world: &mut Self, event| {
            world.post(Route::SessionToRegistry(id), Letter::Registry(event));
        };
        let command = |world: &mut Self, server: Place, event| {
            world.post(Route::SessionToServer(id, place(server)), Letter::Server(event));
        };
        if self.sessions[&id].ended {
            return Err(format!("G5: {id:?} does {effect:?} after its end"));
        }
        match effect {
            SessionEffect::StartServer { server } => command(self, *server, ServerEvent::Start),
            SessionEffect::StopServer { server, term_first } => {
                command(self, *server, ServerEvent::Stop { term_first: *term_first });
            }
            SessionEffect::UrgeServer { server, urgency } => {
                command(self, *server, ServerEvent::Urge { urgency: *urgency });
            }
            SessionEffect::RetryKillServer { server } => command(self, *server, ServerEvent::RetryKill),
            SessionEffect::ReapServer { server } => self.reap_server(id, place(*server)),
            SessionEffect::CreateServer { .. }
            | SessionEffect::PublishServer { .. }
            | SessionEffect::RetireServer { .. }
            | SessionEffect::HoldServer { .. }
            | SessionEffect::SettleServer { .. }
            | SessionEffect::RestartServer { .. }
            | SessionEffect::ForgetServer { .. }
            | SessionEffect::Reply { .. } => self.run_change(id, effect)?,
            SessionEffect::CloseGate => {
                self.actor(id).gate_open = false;
                self.let_in(id, Some("refused"))?;
                self.drained(id);
            }
            SessionEffect::SettleCalls => {
                for call in std::mem::take(&mut self.actor(id).calls) {
                    self.answer_call(call, "error")?;
                }
            }
            SessionEffect::ReportReady => {
                self.happened(id);
                report(self, RegistryEvent::SessionReady { session: id });
            }
            SessionEffect::LookAtActivity => {
                let actor = self.actor(id);
                let activity = activity(actor);
                actor.wants_quiet = activity.busy;
                self.tell_session(id, SessionEvent::Activity(activity))?;
            }
            SessionEffect::ParkGate => {
                let (now, limit) = (self.now, self.limits.idle);
                let actor = self.actor(id);
                let parked =
                    limit.is_some_and(|limit| limit.due(activity(actor)) <= now) && actor.calls.is_empty();
                if parked {
                    actor.at_gate = Some(BTreeSet::new());
                }
                self.tell_session(id, SessionEvent::GateParked { parked })?;
            }
            SessionEffect::OpenGate => {
                self.happened(id);
                self.let_in(id, None)?;
            }
            SessionEffect::RefuseWaiting => self.let_in(id, Some("failed"))?,
            SessionEffect::ClaimIdle => report(self, RegistryEvent::IdleClaimed { session: id }),
            SessionEffect::WantClose { reason } => {
                report(self, RegistryEvent::CloseWanted { session: id, reason: *reason });
            }
            SessionEffect::ReportQuarantined => {
                report(self, RegistryEvent::SessionQuarantined { session: id });
            }
            SessionEffect::End { ended, .. } => {
                let actor = self.actor(id);
                if actor.lives() {
                    return Err(format!("G12: {id:?} ends with a process alive"));
                }
                actor.ended = true;
                report(self, RegistryEvent::SessionEnded { session: id, ended: *ended });
            }
            SessionEffect::Changed(_) => {}
        }
        Ok(())
    }

    pub(crate) fn actor(&mut self, id: SessionId) -> &mut SessionActor {
        self.sessions.get_mut(&id).expect("effects come from sessions that exist")
    }

    pub(crate) fn tell_server(
        &mut self,
        id: SessionId,
        index: u8,
        mut event: ServerEvent,
    ) -> Result<(), String> {
        let now = self.now;
        let actor = &mut self.actor(id).servers[usize::from(index)];
        if actor.lost {
            return Ok(());
        }
        // Whether the client has hung up is looked at when the exit is told, and not when it happened.
        if let (ServerEvent::MainExited { hung_up, .. }, Some(process)) = (&mut event, &actor.process) {
            *hung_up = process.hung_up;
        }
        // Of a session that was parked: whoever stopped it starts it.
        actor.stopped &= event != ServerEvent::Start;
        let effects = actor.machine.step(now, event);
        checks::server_step(actor, event, &effects)?;
        actor.stopped |= matches!(event, ServerEvent::Stop { .. });
        for effect in effects {
            self.run_server(id, index, effect)?;
        }
        Ok(())
    }

    fn run_server(&mut self, id: SessionId, index: u8, effect: ServerEffect) -> Result<(), String> {
        let now = self.now;
        match effect {
            ServerEffect::Launch { incarnation } => {
                self.launches += 1;
                let server = &mut self.actor(id).servers[usize::from(index)];
                let program = server.program;
                if server.process.is_some() {
                    return Err("G29: launched before the old incarnation was released".to_owned());
                }
                let (process, told) = Process::launch(incarnation, program);
                server.process = Some(process);
                self.tell_of_process(id, index, told);
            }
            ServerEffect::Handshake { incarnation } => {
                let server = &self.sessions[&id].servers[usize::from(index)];
                let answer = match server.process.as_ref().map(|process| process.program.handshake) {
                    Some(Handshake::Works) => ServerEvent::HandshakeDone { incarnation },
                    Some(Handshake::Fails) => ServerEvent::HandshakeFailed { incarnation },
                    Some(Handshake::Hangs) | None => return Ok(()),
                };
                self.post(Route::StreamToServer(id, index), Letter::Server(answer));
            }
            ServerEffect::AskHealth { .. } => {}
            ServerEffect::CloseStdin { .. } => self.signal(id, index, now, Signal::Stdin),
            ServerEffect::Terminate { .. } => self.signal(id, index, now, Signal::Term),
            ServerEffect::Kill { .. } => self.signal(id, index, now, Signal::Kill),
            // No server of these scenarios has a stop command.
            ServerEffect::StopCommand { .. } | ServerEffect::KillCommand { .. } => {}
            ServerEffect::Release { incarnation } => {
                self.releases += 1;
                let hurried = self.hurried;
                let server = &mut self.actor(id).servers[usize::from(index)];
                let process = server.process.take();
                checks::release(process.as_ref(), incarnation, hurried)?;
            }
            ServerEffect::Report(report) => {
                let event = SessionEvent::Server { server: Place(u32::from(index)), report };
                self.post(Route::ServerToSession(id, index), Letter::Session(event));
            }
        }
        Ok(())
    }

    fn signal(&mut self, id: SessionId, index: u8, now: Moment, signal: Signal) {
        let server = &mut self.actor(id).servers[usize::from(index)];
        if let Some(process) = &mut server.process {
            let told = process.signal(now, signal);
            self.tell_of_process(id, index, told);
        }
    }

    pub(crate) fn tell_of_process(&mut self, id: SessionId, index: u8, told: Vec<Told>) {
        let Some(process) = &self.sessions[&id].servers[usize::from(index)].process else { return };
        let incarnation = process.incarnation;
        for fact in told {
            let (route, event) = match fact {
                Told::Launched => (Route::LauncherToServer(id, index), ServerEvent::Launched { incarnation }),
                Told::LaunchFailed => {
                    (Route::LauncherToServer(id, index), ServerEvent::LaunchFailed { incarnation })
                }
                Told::MainExited { normal } => {
                    let event = ServerEvent::MainExited { incarnation, normal, hung_up: false };
                    (Route::ReaperToServer(id, index), event)
                }
                Told::InputEnded => {
                    (Route::StreamToServer(id, index), ServerEvent::InputEnded { incarnation })
                }
                Told::Empty => (Route::ReaperToServer(id, index), ServerEvent::ScopeEmpty { incarnation }),
            };
            self.post(route, Letter::Server(event));
        }
    }

    /// The reaper without the server's actor: it knows the outcome from the kernel.
    pub(crate) fn reap_server(&mut self, id: SessionId, index: u8) {
        let now = self.now;
        let server = &mut self.actor(id).servers[usize::from(index)];
        if let Some(process) = &mut server.process {
            process.reaped = true;
            let _ = process.signal(now, Signal::Kill);
        }
        let left = server.process.as_ref().is_some_and(|process| process.lives() || !process.answered);
        let report = if left { ServerReport::Quarantined } else { ServerReport::Stopped };
        let event = SessionEvent::Server { server: Place(u32::from(index)), report };
        if !left && server.process.take().is_some() {
            self.releases += 1;
        }
        self.post(Route::ServerToSession(id, index), Letter::Session(event));
    }

    /// The reaper without the session's actor.
    fn reap_session(&mut self, id: SessionId) {
        let now = self.now;
        let mut released = 0;
        let actor = self.actor(id);
        for server in &mut actor.servers {
            server.lost = true;
            if let Some(process) = &mut server.process {
                process.reaped = true;
                let _ = process.signal(now, Signal::Kill);
                if !process.lives() && process.answered {
                    server.process = None;
                    released += 1;
                }
            }
        }
        let left = actor.servers.iter().any(|server| server.process.is_some());
        actor.ended = !left;
        self.releases += released;
        let ended = mcpvisor_lifecycle::session::Ended::Failed;
        let event = if left {
            RegistryEvent::SessionQuarantined { session: id }
        } else {
            RegistryEvent::SessionEnded { session: id, ended }
        };
        self.post(Route::ReaperToRegistry(id), Letter::Registry(event));
    }
}
