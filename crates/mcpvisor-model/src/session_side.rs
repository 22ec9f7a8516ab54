//! Tells a session, and carries out what it decides, as `session_actor.rs` does.
use crate::changes::index;
use crate::checks;
use crate::clocked::Clocked;
use crate::mail::{Lane, Letter, Way};
use crate::rules::{Checked, Property, Witness};
use crate::shared::Shared;
use crate::world::{Context, Standing, World, seeded};
use mcpvisor_lifecycle::Place;
use mcpvisor_lifecycle::registry::CloseOptions;
use mcpvisor_lifecycle::server::{Server, ServerReport};
use mcpvisor_lifecycle::session::{CloseReason, SessionEffect, SessionEvent};

impl World {
    pub(crate) fn tell_session_letter(
        &mut self,
        context: &Context<'_>,
        lane: Lane,
        letter: Letter,
    ) -> Checked {
        let event = match (letter, lane.way) {
            (Letter::Begin, _) => SessionEvent::Begin,
            (Letter::Close { reason, now }, _) => {
                SessionEvent::Close { reason, options: CloseOptions { drain: None, now } }
            }
            (Letter::Urge(urgency), _) => SessionEvent::Urge { urgency },
            (Letter::RetryKill, _) => SessionEvent::RetryKill,
            (Letter::AwaitChildren, _) => SessionEvent::AwaitChildren,
            (Letter::ChildrenGone, _) => SessionEvent::ChildrenGone,
            (Letter::StayOpen, _) => SessionEvent::StayOpen,
            (Letter::Quiet, _) => SessionEvent::Quiet,
            (Letter::Wake, _) => SessionEvent::Wake,
            (Letter::Drained, Way::ServerGate(place)) => {
                SessionEvent::ServerDrained { server: Place(u32::from(place)) }
            }
            (Letter::Drained, _) => SessionEvent::Drained,
            (Letter::ClientGone, _) => SessionEvent::ClientGone,
            (Letter::Report(report), Way::FromServer(place)) => {
                // An actor that is lost may have left words behind: the reaper's count, not these.
                if self.cell(lane.session).servers[usize::from(place)].known_lost {
                    return Ok(());
                }
                let kind = context.config.kind(place);
                if matches!(report, ServerReport::Failed(_))
                    && kind.required
                    && context.config.breaker.is_some()
                {
                    self.post(lane.session, Way::FromSession, Letter::StartFailed);
                }
                SessionEvent::Server { server: Place(u32::from(place)), report }
            }
            (Letter::ServerLost, Way::ServerLost(place)) => {
                self.server(lane.session, place).known_lost = true;
                SessionEvent::ServerLost { server: Place(u32::from(place)) }
            }
            (Letter::Reaped { empty }, Way::ServerReaped(place) | Way::ServerNotReaped(place)) => {
                let report = if empty { ServerReport::Stopped } else { ServerReport::Quarantined };
                SessionEvent::Server { server: Place(u32::from(place)), report }
            }
            _ => return Err(Property::OldFacts.broken("a letter is on a lane that is not its own")),
        };
        self.tell_session(context, lane.session, event)
    }

    pub(crate) fn tell_session(
        &mut self,
        context: &Context<'_>,
        session: u8,
        event: SessionEvent,
    ) -> Checked {
        let Some(machine) = &mut self.edit(session).machine else { return Ok(()) };
        context.tell(|| format!("session {session}: {event:?}"));
        let effects = machine.edit().step(event);
        self.run_session(context, session, effects)
    }

    pub(crate) fn session_timer(&mut self, context: &Context<'_>, session: u8) -> Checked {
        let Some(machine) = &mut self.edit(session).machine else { return Ok(()) };
        let looks = machine.get().machine.watches_idleness() && machine.get().machine.fine_state() == "live";
        context.saw_if(machine.get().machine.fine_state() == "draining", Witness::DrainExpired);
        let effects = machine.edit().fire();
        if looks && let Some(left) = &mut self.luck.looks {
            *left -= 1;
        }
        self.run_session(context, session, effects)
    }

    fn run_session(&mut self, context: &Context<'_>, session: u8, effects: Vec<SessionEffect>) -> Checked {
        for effect in effects {
            context.tell(|| format!("  session {session} does {effect:?}"));
            match effect {
                SessionEffect::StartServer { server } => {
                    self.start_server(context, session, index(server))?;
                }
                SessionEffect::CloseGate => self.close_gate(context, session),
                SessionEffect::SettleCalls => self.settle_calls(context, session),
                SessionEffect::SettleServer { .. } | SessionEffect::Changed(_) => {}
                SessionEffect::LookAtActivity => self.look_at_activity(context, session)?,
                SessionEffect::ClaimIdle => self.post(session, Way::FromSession, Letter::IdleClaimed),
                SessionEffect::ParkGate => self.park_gate(context, session)?,
                SessionEffect::OpenGate => self.open_gate(context, session),
                SessionEffect::RefuseWaiting => self.refuse_waiting(context, session),
                SessionEffect::CreateServer { .. }
                | SessionEffect::PublishServer { .. }
                | SessionEffect::RetireServer { .. }
                | SessionEffect::HoldServer { .. }
                | SessionEffect::RestartServer { .. }
                | SessionEffect::ForgetServer { .. }
                | SessionEffect::Reply { .. } => self.run_change(context, session, &effect)?,
                SessionEffect::StopServer { server, term_first } => {
                    if self.is_stopping(session) {
                        checks::stops(self, context, session)?;
                    }
                    self.tell_server_actor(session, index(server), Letter::Stop { term_first });
                }
                SessionEffect::UrgeServer { server, urgency } => {
                    if urgency > self.urged {
                        return Err(
                            Property::WholeBudgets.broken("a server is hurried, and nobody asked for it")
                        );
                    }
                    self.tell_server_actor(session, index(server), Letter::Urge(urgency));
                }
                SessionEffect::RetryKillServer { server } => {
                    let place = index(server);
                    if self.cell(session).servers[usize::from(place)].known_lost {
                        self.reap_server(context, session, place);
                    } else {
                        self.tell_server_actor(session, place, Letter::RetryKill);
                    }
                }
                SessionEffect::ReapServer { server } => self.reap_server(context, session, index(server)),
                SessionEffect::ReportReady => {
                    context.saw_if(self.cell(session).closing, Witness::ReadyTooLate);
                    self.touch(context, session);
                    self.post(session, Way::FromSession, Letter::Ready);
                }
                SessionEffect::WantClose { reason } => {
                    let failed = matches!(reason, CloseReason::StartFailed | CloseReason::ServersFailed);
                    let two = self.cell(session).servers.len() > 1;
                    context.saw_if(failed && two, Witness::FailedTogether);
                    self.post(session, Way::FromSession, Letter::Wanted(reason));
                }
                SessionEffect::ReportQuarantined => {
                    self.post(session, Way::QuarantineNote, Letter::Quarantined);
                }
                SessionEffect::End { ended, .. } => {
                    self.end_session(session)?;
                    self.post(session, Way::FromSession, Letter::Ended(ended));
                }
            }
        }
        checks::session(context.config, self, session)
    }

    fn is_stopping(&self, session: u8) -> bool {
        let machine = self.cell(session).machine.as_ref();
        machine
            .is_some_and(|it| matches!(it.get().machine.fine_state(), "stopping" | "quarantined" | "ended"))
    }

    fn start_server(&mut self, context: &Context<'_>, session: u8, place: u8) -> Checked {
        let server = self.server(session, place);
        checks::starts(server)?;
        if server.standing == Standing::Held {
            server.standing = Standing::Member;
        }
        // One that was parked has its actor still.
        if server.machine.is_none() && !server.lost {
            let machine = seeded(Server::new(context.config.server(place)), context.bug);
            server.machine = Some(Shared::new(Clocked::new(machine)));
        }
        self.tell_server_actor(session, place, Letter::Start);
        Ok(())
    }

    pub(crate) fn tell_server_actor(&mut self, session: u8, place: u8, letter: Letter) {
        if self.cell(session).servers[usize::from(place)].machine.is_some() {
            self.post(session, Way::ToServer(place), letter);
        }
    }

    /// The record is written, and the session's actors end, with their mail.
    pub(crate) fn end_session(&mut self, session: u8) -> Checked {
        self.check_calls_over(session)?;
        self.drop_changes(session);
        if !self.cell(session).is_gone() {
            return Err(Property::TrueEnds.broken("a session ends, and something of it lives or may be born"));
        }
        let cell = self.edit(session);
        cell.over = true;
        cell.machine = None;
        cell.gate_open = false;
        cell.parked = false;
        (cell.tells_drained, cell.tells_quiet) = (false, false);
        cell.condemned = false;
        cell.closing = false;
        cell.reap_timers = 0;
        cell.servers.clear();
        self.mail.drop_where(|lane| lane.session == session && !lane.way.to_registry());
        Ok(())
    }
}
