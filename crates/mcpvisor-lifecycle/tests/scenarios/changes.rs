//! Changes of a live session's servers, as the daemon's actors carry them.
use super::process::Program;
use super::world::{ChangeOutcome, Letter, Route, Standing, World, name, place};
use mcpvisor_lifecycle::server::Mode;
use mcpvisor_lifecycle::session::{
    ChangeRefusal, Changed, SessionEffect, SessionEvent, SessionServer, SessionState,
};
use mcpvisor_lifecycle::{Place, RequestId, SessionId};

impl World {
    pub(crate) fn ask_add(
        &mut self,
        key: &str,
        request: u64,
        text: &str,
        program: Program,
        replace: bool,
    ) -> Result<(), String> {
        let request = RequestId(request);
        if let Some((id, _)) = self.holder(key) {
            self.actor(id).changes.insert(request, (name(text), program));
        }
        let server = SessionServer { name: name(text), required: false, significant: false };
        self.ask_change(key, request, SessionEvent::Add { request, server, replace })
    }

    pub(crate) fn ask_change(
        &mut self,
        key: &str,
        request: RequestId,
        event: SessionEvent,
    ) -> Result<(), String> {
        self.changes.insert(request, None);
        match self.holder(key) {
            Some((id, _)) => {
                self.changed.insert(request, id);
                self.post(Route::ClientToSession(id), Letter::Session(event));
            }
            None => self.unheard(&event)?,
        }
        Ok(())
    }

    pub(crate) fn cancel_change(&mut self, key: &str, request: RequestId) -> Result<(), String> {
        if self.changes.get(&request).is_some_and(Option::is_none) {
            self.cancelled.insert(request);
            if let Some((id, _)) = self.holder(key) {
                let event = SessionEvent::CancelChange { request };
                self.post(Route::ClientToSession(id), Letter::Session(event));
            }
        }
        Ok(())
    }

    /// The session's actor is gone: whoever asked it learns that.
    pub(crate) fn unheard(&mut self, event: &SessionEvent) -> Result<(), String> {
        match event {
            SessionEvent::Add { request, .. }
            | SessionEvent::Remove { request, .. }
            | SessionEvent::Yield { request, .. }
            | SessionEvent::Restart { request, .. } => {
                self.answer_change(*request, Err(ChangeRefusal::Closed))
            }
            _ => Ok(()),
        }
    }

    fn answer_change(&mut self, request: RequestId, result: ChangeOutcome) -> Result<(), String> {
        if self.cancelled.contains(&request) {
            // Its answer was on the way.
            return Ok(());
        }
        match self.changes.insert(request, Some(result)) {
            Some(Some(before)) => Err(format!("G26: {request:?} is answered with {before:?} and {result:?}")),
            _ => Ok(()),
        }
    }

    pub(crate) fn run_change(&mut self, id: SessionId, effect: &SessionEffect) -> Result<(), String> {
        let command = |world: &mut Self, server: Place, event| {
            world.post(Route::SessionToServer(id, place(server)), Letter::Server(event));
        };
        match effect {
            SessionEffect::CreateServer { request, server, .. } => {
                let (name, program) = self.actor(id).changes[request].clone();
                let mut actor = self.server(name, Mode::Shared, program);
                actor.standing = Standing::Joining;
                if usize::from(place(*server)) != self.sessions[&id].servers.len() {
                    return Err(format!("G26: {server:?} is given twice"));
                }
                self.actor(id).servers.push(actor);
            }
            SessionEffect::PublishServer { server, replaces } => {
                let state = self.sessions[&id].machine.state();
                if !matches!(state, SessionState::Ready | SessionState::Degraded) {
                    return Err(format!("G26: {server:?} is published while the session is {state:?}"));
                }
                if let Some(old) = replaces {
                    self.standing(id, *old, &[Standing::Member], Standing::Retired)?;
                }
                self.standing(id, *server, &[Standing::Joining], Standing::Member)?;
            }
            SessionEffect::RetireServer { server } => {
                let from = [Standing::Member, Standing::Retired];
                self.standing(id, *server, &from, Standing::Retired)?;
                self.drained_later(id, *server);
            }
            SessionEffect::HoldServer { server } => {
                self.standing(id, *server, &[Standing::Member], Standing::Held)?;
                self.drained_later(id, *server);
            }
            SessionEffect::SettleServer { .. } => {}
            SessionEffect::RestartServer { server } => {
                let actor = &mut self.actor(id).servers[usize::from(place(*server))];
                if actor.standing != Standing::Held && actor.standing != Standing::Member {
                    return Err(format!("G26: {server:?} is {:?} and started again", actor.standing));
                }
                actor.standing = Standing::Member;
                actor.restart_of = actor.machine.incarnation();
                command(self, *server, mcpvisor_lifecycle::server::ServerEvent::Restart);
            }
            SessionEffect::ForgetServer { server } => {
                if self.sessions[&id].servers[usize::from(place(*server))].process.is_some() {
                    return Err(format!("G12: {server:?} is forgotten, and something of it is left"));
                }
                let from = [Standing::Joining, Standing::Retired];
                self.standing(id, *server, &from, Standing::Forgotten)?;
            }
            SessionEffect::Reply { request, result } => {
                self.check_change(id, *request, result)?;
                self.answer_change(*request, *result)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// One letter stands for the last answer of a held or retired server.
    fn drained_later(&mut self, id: SessionId, server: Place) {
        self.post(Route::GateToSession(id), Letter::Session(SessionEvent::ServerDrained { server }));
    }

    fn standing(
        &mut self,
        id: SessionId,
        server: Place,
        from: &[Standing],
        to: Standing,
    ) -> Result<(), String> {
        let actor = &mut self.actor(id).servers[usize::from(place(server))];
        if !from.contains(&actor.standing) {
            return Err(format!("G26: {server:?} is {:?} and becomes {to:?}", actor.standing));
        }
        actor.standing = to;
        Ok(())
    }

    fn check_change(&self, id: SessionId, request: RequestId, result: &ChangeOutcome) -> Result<(), String> {
        if self.given_up.contains(&request) && matches!(result, Ok(Changed::Added { .. })) {
            return Err(format!("G26: {request:?} is done although nobody waits for it any more"));
        }
        let of = |server: &Place| &self.sessions[&id].servers[usize::from(place(*server))];
        let wrong = match result {
            Ok(Changed::Added { server } | Changed::Replaced { server }) => {
                of(server).standing != Standing::Member
            }
            Ok(Changed::Removed { server }) => of(server).standing != Standing::Forgotten,
            Ok(Changed::Yielded { server }) => of(server).process.is_some(),
            Ok(Changed::Restarted { server }) => {
                let now = of(server).process.as_ref().map(|process| process.incarnation);
                now.is_some() && now <= of(server).restart_of
            }
            // Of an add that failed nothing is left; a restart that failed goes on by its policy.
            Err(ChangeRefusal::Failed { server }) => {
                of(server).restart_of.is_none() && of(server).standing != Standing::Forgotten
            }
            Err(_) => false,
        };
        match wrong {
            true => Err(format!("G26: {request:?} is told {result:?} before it is true")),
            false => Ok(()),
        }
    }
}
