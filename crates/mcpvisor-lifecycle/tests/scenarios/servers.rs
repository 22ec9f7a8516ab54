//! What clients do to the world: requests, calls, and the fates of processes.
use super::process::{Launch, Process, Told};
use super::script::{Act, open_shared};
use super::world::{Letter, Route, World, index_of, name as server};
use mcpvisor_lifecycle::registry::{Goal, RegistryEvent, Urgency};
use mcpvisor_lifecycle::session::{SessionEvent, SessionState};
use mcpvisor_lifecycle::{Place, RequestId, SessionId};

impl World {
    pub(crate) fn act(&mut self, act: Act) -> Result<(), String> {
        match act {
            Act::Send(mut event) => {
                if let RegistryEvent::Open(open) = &mut event {
                    open.direct = self.is_direct(&open.key);
                }
                self.note(&event);
                self.tell_registry(&event)
            }
            Act::Await(_) | Act::AwaitChange(_) | Act::UntilFree(_) | Act::UntilKilled(_) => Ok(()),
            Act::Let(key, works) => {
                self.each_process(key, |process| {
                    let hangs = matches!(process.program.launch, Launch::Hangs | Launch::HangsForGood);
                    if hangs { process.go(works) } else { Vec::new() }
                });
                Ok(())
            }
            Act::Exit(key, normal) => {
                self.each_process(key, |process| process.exit(normal, false));
                Ok(())
            }
            Act::HangUp(key) => {
                if self.direct.contains(key) {
                    self.each_process(key, Process::hang_up);
                }
                Ok(())
            }
            Act::Free(key) => {
                self.each_process(key, |process| {
                    process.program.obeys_kill = true;
                    process.exit(false, true)
                });
                Ok(())
            }
            Act::Call(key, call) => self.call(key, call),
            Act::Hold(key, number) => {
                self.holds.insert(RequestId(number));
                self.act(Act::Send(RegistryEvent::Open(open_shared(number, key))))
            }
            Act::Finish(call) => {
                let admitted = self.sessions.iter().find(|(_, actor)| actor.calls.contains(&call));
                if let Some(id) = admitted.map(|(id, _)| *id) {
                    self.actor(id).calls.remove(&call);
                    self.happened(id);
                    self.answer_call(call, "result")?;
                    self.drained(id);
                }
                Ok(())
            }
            Act::Add(key, request, name, program) => self.ask_add(key, request, name, program, false),
            Act::Replace(key, request, name, program) => self.ask_add(key, request, name, program, true),
            Act::Remove(key, request, name) => {
                let request = RequestId(request);
                self.ask_change(
                    key,
                    request,
                    SessionEvent::Remove { request, name: server(name), drain: None },
                )
            }
            Act::Restart(key, request, name) => {
                let request = RequestId(request);
                self.ask_change(
                    key,
                    request,
                    SessionEvent::Restart { request, name: server(name), drain: None },
                )
            }
            Act::CancelChange(key, request) => self.cancel_change(key, RequestId(request)),
            Act::LoseSession(key) => {
                if let Some((session, _)) = self.holder(key)
                    && !self.sessions[&session].ended
                {
                    self.actor(session).lost = true;
                    let event = RegistryEvent::SessionLost { session };
                    self.post(Route::SupervisionToRegistry(session), Letter::Registry(event));
                }
                Ok(())
            }
            Act::LoseServer(key) => {
                // Before the session begins, its servers have no actors.
                let holder = self.holder(key).map(|(id, _)| id);
                if let Some(id) = holder.filter(|id| self.sessions[id].machine.fine_state() != "new") {
                    let server = &mut self.actor(id).servers[0];
                    server.lost = true;
                    let event = SessionEvent::ServerLost { server: Place(0) };
                    self.post(Route::SupervisionToSession(id, 0), Letter::Session(event));
                }
                Ok(())
            }
        }
    }

    fn note(&mut self, event: &RegistryEvent) {
        match event {
            RegistryEvent::Open(open) => {
                self.sent.insert(open.request);
            }
            RegistryEvent::Close { request, options, .. } => {
                self.sent.insert(*request);
                self.hurried |= options.now;
            }
            RegistryEvent::Wait { request, target, goal, .. } => {
                self.sent.insert(*request);
                if *goal == Goal::Closed {
                    self.waits.insert(*request, target.key.clone());
                }
            }
            RegistryEvent::RetryKill { request, .. } => {
                self.sent.insert(*request);
            }
            RegistryEvent::Cancel { request } if !self.replies.contains_key(request) => {
                self.cancelled.insert(*request);
            }
            RegistryEvent::Shutdown { urgency } => {
                self.hurried |= *urgency > Urgency::Drain;
                self.shut_down_at = self.shut_down_at.or(Some(self.now));
            }
            _ => {}
        }
    }

    /// Every process of the sessions of a key, held or not.
    fn each_process(&mut self, key: &str, change: impl Fn(&mut Process) -> Vec<Told>) {
        let ids: Vec<SessionId> = self.sessions.keys().copied().collect();
        for id in ids {
            if self.sessions[&id].key.key.as_str() != key {
                continue;
            }
            for index in 0..self.sessions[&id].servers.len() {
                let server = &mut self.actor(id).servers[index];
                if let Some(process) = &mut server.process {
                    let told = change(process);
                    self.tell_of_process(id, index_of(index), told);
                }
            }
        }
    }

    fn call(&mut self, key: &str, call: u64) -> Result<(), String> {
        let holder = self.holder(key).map(|(id, _)| id);
        let Some(id) = holder.filter(|id| self.sessions[id].gate_open) else {
            return self.answer_call(call, "refused");
        };
        let state = self.sessions[&id].machine.state();
        if let Some(waiting) = &mut self.actor(id).at_gate {
            waiting.insert(call);
            self.post(Route::GateToSession(id), Letter::Session(SessionEvent::Wake));
            return Ok(());
        }
        match state {
            SessionState::Ready | SessionState::Degraded => {
                self.actor(id).calls.insert(call);
                self.happened(id);
                Ok(())
            }
            SessionState::Starting => self.answer_call(call, "refused"),
            state => Err(format!("G11: a call is admitted while the session is {state:?}")),
        }
    }

    /// Whoever waits at the gate is let in, or is told so.
    pub(crate) fn let_in(&mut self, id: SessionId, refused: Option<&'static str>) -> Result<(), String> {
        for call in self.actor(id).at_gate.take().unwrap_or_default() {
            match refused {
                Some(answer) => self.answer_call(call, answer)?,
                None => drop(self.actor(id).calls.insert(call)),
            }
            self.happened(id);
        }
        Ok(())
    }

    /// Something has happened at the session's gate.
    pub(crate) fn happened(&mut self, id: SessionId) {
        let now = self.now;
        let actor = self.actor(id);
        actor.last = now;
        if actor.calls.is_empty() && std::mem::take(&mut actor.wants_quiet) {
            self.post(Route::GateToSession(id), Letter::Session(SessionEvent::Quiet));
        }
    }

    pub(crate) fn answer_call(&mut self, call: u64, answer: &'static str) -> Result<(), String> {
        match self.calls.insert(call, answer) {
            None => Ok(()),
            Some(before) => Err(format!("G11: call {call} is answered with {before} and {answer}")),
        }
    }

    /// The gate is closed and nothing is in flight any more.
    pub(crate) fn drained(&mut self, id: SessionId) {
        let actor = &self.sessions[&id];
        if !actor.gate_open && actor.calls.is_empty() {
            self.post(Route::GateToSession(id), Letter::Session(SessionEvent::Drained));
        }
    }
}
