//! Changes of a live session's servers, as `session_actor/change.rs` carries them and `reload/sessions.rs` of the daemon asks for them.
use crate::asks::{Ask, What};
use crate::checks;
use crate::config::server_name;
use crate::mail::{Letter, Way};
use crate::rules::{Checked, Property, Witness};
use crate::world::{Asked, Context, ServerCell, Standing, World};
use mcpvisor_lifecycle::session::{ChangeRefusal, Changed, SessionEffect, SessionEvent, SessionServer};
use mcpvisor_lifecycle::{Place, RequestId};
use std::time::Duration;

impl World {
    /// Sends the next step of a change. One that is under way to the session is one that was not sent yet.
    pub(crate) fn change(&mut self, context: &Context<'_>, number: u8, key: u8) -> Checked {
        let (session, step) = match self.asked[usize::from(number)] {
            Asked::Between(session, step) => (Some(session), step),
            _ => (self.holder(context, key), 0),
        };
        let Some(session) = session.filter(|session| self.cell(*session).machine.is_some()) else {
            self.asked[usize::from(number)] = Asked::Answered;
            context.saw(Witness::ChangeRefused);
            return Ok(());
        };
        self.asked[usize::from(number)] = Asked::Changing(session, step);
        let event = event(context, number, step);
        self.tell_session(context, session, event)
    }

    pub(crate) fn cancel_change(&mut self, context: &Context<'_>, number: u8) -> Checked {
        let asked = self.asked[usize::from(number)];
        let (Asked::Changing(session, _) | Asked::Added(session)) = asked else { return Ok(()) };
        context.saw_if(matches!(asked, Asked::Added(_)), Witness::AddTakenBack);
        self.asked[usize::from(number)] = Asked::Gone;
        let request = RequestId(u64::from(number) + 1);
        self.tell_session(context, session, SessionEvent::CancelChange { request })
    }

    /// The session's actor is gone, and who asked it learns that.
    pub(crate) fn drop_changes(&mut self, session: u8) {
        for asked in &mut self.asked {
            match asked {
                Asked::Changing(of, _) | Asked::Between(of, _) | Asked::Added(of) if *of == session => {
                    *asked = Asked::Answered;
                }
                _ => {}
            }
        }
    }

    pub(crate) fn run_change(
        &mut self,
        context: &Context<'_>,
        session: u8,
        effect: &SessionEffect,
    ) -> Checked {
        match *effect {
            SessionEffect::CreateServer { request, server, replaces } => {
                self.create(context, session, request, index(server), replaces.map(index))
            }
            SessionEffect::PublishServer { server, replaces } => {
                let state = self.cell(session).machine.as_ref().map(|it| it.get().machine.fine_state());
                if state != Some("live") {
                    return Err(Property::Changes.broken("a server is published behind the close"));
                }
                if let Some(old) = replaces {
                    self.stand(session, index(old), &[Standing::Member, Standing::Held], Standing::Retired)?;
                }
                self.stand(session, index(server), &[Standing::Joining], Standing::Member)
            }
            SessionEffect::RetireServer { server } => {
                let from = [Standing::Member, Standing::Held, Standing::Retired];
                self.stand(session, index(server), &from, Standing::Retired)?;
                self.drain_server(session, index(server));
                if index(server) == 0 {
                    self.end_held_calls(context, session);
                }
                Ok(())
            }
            SessionEffect::HoldServer { server } => {
                self.stand(session, index(server), &[Standing::Member], Standing::Held)?;
                self.drain_server(session, index(server));
                Ok(())
            }
            SessionEffect::RestartServer { server } => {
                let place = index(server);
                self.stand(session, place, &[Standing::Member, Standing::Held], Standing::Member)?;
                let it = self.server(session, place);
                it.restart_of = it.machine.as_ref().and_then(|machine| {
                    let incarnation = machine.get().machine.incarnation()?;
                    u8::try_from(incarnation.0).ok()
                });
                self.tell_server_actor(session, place, Letter::Restart);
                Ok(())
            }
            SessionEffect::ForgetServer { server } => self.forget(session, index(server)),
            SessionEffect::Reply { request, result } => self.answer_change(context, session, request, result),
            _ => Ok(()),
        }
    }

    fn create(
        &mut self,
        context: &Context<'_>,
        session: u8,
        request: RequestId,
        server: u8,
        replaces: Option<u8>,
    ) -> Checked {
        let (_, ask) = context.asks[place(request)];
        let alone = matches!(ask, Ask::Change { what: What::StopFirst, .. });
        if usize::from(server) != self.cell(session).servers.len() {
            return Err(Property::Changes.broken("a place is given twice"));
        }
        let (standing, replaces) = (Standing::Joining, replaces.map(|old| (old, alone)));
        let added_by = u8::try_from(request.0 - 1).ok();
        self.edit(session).servers.push(ServerCell { standing, replaces, added_by, ..ServerCell::default() });
        Ok(())
    }

    fn forget(&mut self, session: u8, server: u8) -> Checked {
        if !self.cell(session).servers[usize::from(server)].trees.is_empty() {
            return Err(Property::Changes.broken("a server is forgotten, and something of it is left"));
        }
        self.stand(session, server, &[Standing::Joining, Standing::Retired], Standing::Forgotten)?;
        self.server(session, server).machine = None;
        self.mail.drop_where(|lane| lane.session == session && lane.way.server() == Some(server));
        Ok(())
    }

    /// One letter stands for the last answer of a held or retired server.
    fn drain_server(&mut self, session: u8, server: u8) {
        self.post(session, Way::ServerGate(server), Letter::Drained);
    }

    fn stand(&mut self, session: u8, server: u8, from: &[Standing], to: Standing) -> Checked {
        let it = self.server(session, server);
        if !from.contains(&it.standing) {
            return Err(Property::Changes.broken("a server becomes what it can't be"));
        }
        it.standing = to;
        Ok(())
    }

    fn answer_change(
        &mut self,
        context: &Context<'_>,
        session: u8,
        request: RequestId,
        result: Result<Changed, ChangeRefusal>,
    ) -> Checked {
        let number = place(request);
        context.tell(|| format!("request {} is answered: {result:?}", request.0));
        let Asked::Changing(_, step) = self.asked[number] else {
            return Err(Property::OneAnswer.broken("a change that does not wait is answered"));
        };
        checks::changed(self, session, &result)?;
        self.witness_change(context, session, step, &result);
        let (_, ask) = context.asks[number];
        let stops_first = matches!(ask, Ask::Change { what: What::StopFirst, .. });
        self.asked[number] = match (stops_first, step, &result) {
            (true, 0, Ok(_)) => Asked::Between(session, 1),
            (true, 1, Err(_)) => Asked::Between(session, 2),
            (_, _, Ok(Changed::Added { .. })) => Asked::Added(session),
            _ => Asked::Answered,
        };
        Ok(())
    }

    fn witness_change(
        &self,
        context: &Context<'_>,
        session: u8,
        step: u8,
        result: &Result<Changed, ChangeRefusal>,
    ) {
        context.saw(match result {
            Ok(Changed::Added { .. }) => Witness::Added,
            Ok(Changed::Replaced { .. }) if step == 1 => Witness::StoppedFirst,
            Ok(Changed::Replaced { .. }) => Witness::Replaced,
            Ok(Changed::Removed { .. }) => Witness::Removed,
            Ok(Changed::Restarted { .. }) if step == 2 => Witness::StartedAgain,
            Ok(Changed::Restarted { .. }) => Witness::RestartedByHand,
            Ok(Changed::Yielded { .. }) => return,
            Err(ChangeRefusal::Failed { .. }) => Witness::AddUndone,
            Err(ChangeRefusal::Closed) if self.cell(session).closing => Witness::AddUndone,
            Err(_) => Witness::ChangeRefused,
        });
    }
}

fn event(context: &Context<'_>, number: u8, step: u8) -> SessionEvent {
    let request = RequestId(u64::from(number) + 1);
    let (_, Ask::Change { server, what, .. }) = context.asks[usize::from(number)] else {
        unreachable!("nothing else is sent to a session by its client")
    };
    let name = server_name(server);
    let budget = |drain: bool| if drain { None } else { Some(Duration::ZERO) };
    let add = |replace| {
        let server = SessionServer { name: name.clone(), required: false, significant: false };
        SessionEvent::Add { request, server, replace }
    };
    match (what, step) {
        (What::Add, _) => add(false),
        (What::Replace, _) | (What::StopFirst, 1) => add(true),
        (What::StopFirst, 0) => SessionEvent::Yield { request, name },
        (What::StopFirst, _) => SessionEvent::Restart { request, name, drain: None },
        (What::Remove { drain }, _) => SessionEvent::Remove { request, name, drain: budget(drain) },
        (What::Restart { drain }, _) => SessionEvent::Restart { request, name, drain: budget(drain) },
    }
}

fn place(request: RequestId) -> usize {
    usize::try_from(request.0 - 1).expect("asks are few")
}

/// As the world counts them.
pub(crate) fn index(server: Place) -> u8 {
    u8::try_from(server.0).expect("sessions of the model have few servers")
}
