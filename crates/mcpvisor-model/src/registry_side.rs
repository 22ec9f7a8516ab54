//! Tells the registry, and carries out what it decides, as `registry_actor.rs` does.
use crate::checks;
use crate::clocked::Clocked;
use crate::config::SPEC;
use crate::mail::{Lane, Letter, Way};
use crate::rules::{Checked, Property, Witness};
use crate::shared::Shared;
use crate::world::{Asked, Cell, Context, ServerCell, World, seeded};
use mcpvisor_lifecycle::registry::{Answer, Phase, RegistryEffect, RegistryEvent};
use mcpvisor_lifecycle::session::{CloseReason, Session};
use mcpvisor_lifecycle::{Approvals, KeyRef, Moment, RequestId, SessionId};

impl World {
    pub(crate) fn tell_registry(&mut self, context: &Context<'_>, event: RegistryEvent) -> Checked {
        let before = self.registry.clone();
        let was_starting = self.is_starting(context, &event);
        context.tell(|| format!("registry: {event:?}"));
        let told = event.clone();
        let effects = self.registry.edit().step(event);
        checks::registry_step(self, context, &before.get().machine, &told, &effects)?;
        checks::tokens(self, context, &told, &effects)?;
        checks::queue(self, context, &before.get().machine, &told, &effects)?;
        checks::breaker(self, context, &told, &effects, was_starting)?;
        self.run_registry(context, effects)
    }

    /// It is a fact of a session that is starting.
    fn is_starting(&self, context: &Context<'_>, event: &RegistryEvent) -> bool {
        let (RegistryEvent::StartFailed { session, .. } | RegistryEvent::SessionReady { session }) = event
        else {
            return false;
        };
        self.place(*session).and_then(|place| self.phase(context, place)) == Some(Phase::Starting)
    }

    pub(crate) fn registry_timer(&mut self, context: &Context<'_>) -> Checked {
        let before = self.registry.clone();
        let effects = self.registry.edit().fire();
        checks::queue(self, context, &before.get().machine, &RegistryEvent::Timeout, &effects)?;
        self.run_registry(context, effects)
    }

    fn run_registry(&mut self, context: &Context<'_>, effects: Vec<RegistryEffect>) -> Checked {
        let closed = effects.iter().filter(|effect| {
            matches!(effect, RegistryEffect::Reply { result: Ok(Answer::Closed { .. }), .. })
        });
        context.saw_if(closed.count() > 1, Witness::ClosedTogether);
        for effect in effects {
            context.tell(|| format!("  registry does {effect:?}"));
            match effect {
                RegistryEffect::Start { session, key, request } => {
                    self.start(context, session, &key, request)?;
                }
                RegistryEffect::Close { session, reason, options } => {
                    let Some(place) = self.place(session) else { continue };
                    context.saw_if(reason == CloseReason::StartCancelled, Witness::StartCancelled);
                    if std::mem::replace(&mut self.edit(place).closing, true) {
                        return Err(Property::Fences.broken("a session is told to close twice"));
                    }
                    checks::close(self, context, place, reason)?;
                    context.saw_if(reason == CloseReason::ParentClosed, Witness::ChildClosed);
                    context.saw_if(reason == CloseReason::Ttl && context.config.ttl, Witness::TimeToLive);
                    let held = self.ended_holders & (1 << self.cell(place).creator) != 0;
                    context.saw_if(reason == CloseReason::LeaseEnded && held, Witness::HolderEnded);
                    self.tell_actor(place, Letter::Close { reason, now: options.now });
                }
                RegistryEffect::Evict { request, among, .. } => self.evict(context, request, &among)?,
                RegistryEffect::RetireGate { session } => {
                    let Some(place) = self.place(session) else { continue };
                    self.retire_gate(context, place)?;
                }
                RegistryEffect::StayOpen { session } => {
                    let Some(place) = self.place(session) else { continue };
                    context.saw(Witness::StayedOpen);
                    self.tell_actor(place, Letter::StayOpen);
                }
                RegistryEffect::AwaitChildren { session } => {
                    let Some(place) = self.place(session) else { continue };
                    context.saw(Witness::ParentWaited);
                    self.tell_actor(place, Letter::AwaitChildren);
                }
                RegistryEffect::ChildrenGone { session } => {
                    let Some(place) = self.place(session) else { continue };
                    self.tell_actor(place, Letter::ChildrenGone);
                }
                RegistryEffect::Urge { session, urgency } => {
                    if urgency > self.urged {
                        return Err(
                            Property::WholeBudgets.broken("a session is hurried, and nobody asked for it")
                        );
                    }
                    let Some(place) = self.place(session) else { continue };
                    self.tell_actor(place, Letter::Urge(urgency));
                }
                RegistryEffect::RetryKill { session } => {
                    let Some(place) = self.place(session) else { continue };
                    context.saw(Witness::Retried);
                    if self.cell(place).machine.is_some() {
                        self.tell_actor(place, Letter::RetryKill);
                    } else {
                        self.reap_session(context, place);
                    }
                }
                RegistryEffect::ReapLost { session } => {
                    if let Some(place) = self.place(session) {
                        self.reap_session(context, place);
                    }
                }
                RegistryEffect::Reply { request, result } => {
                    self.reply(context, request, &result)?;
                }
                RegistryEffect::Forget { .. } => context.saw(Witness::Forgotten),
                RegistryEffect::Revoke { session } => {
                    let Some(place) = self.place(session) else { continue };
                    if std::mem::replace(&mut self.edit(place).revoked, true) {
                        return Err(Property::Tokens.broken("a token is revoked twice"));
                    }
                }
                // The first is for the log, the others were looked at with the step.
                RegistryEffect::Breaker { .. }
                | RegistryEffect::Queued { .. }
                | RegistryEffect::LeftQueue { .. } => {}
                RegistryEffect::Finished { leftovers } => self.finish(context, leftovers)?,
            }
        }
        Ok(())
    }

    fn start(&mut self, context: &Context<'_>, id: SessionId, key: &KeyRef, request: RequestId) -> Checked {
        let number = usize::try_from(request.0 - 1).expect("asks are few");
        if !matches!(self.asked[number], Asked::Waiting(_)) {
            return Err(Property::OneAnswer.broken("a session is started for an open that nobody waits for"));
        }
        if self.shutdown.is_some() {
            return Err(Property::Fences.broken("a session is started behind the shutdown"));
        }
        let place = context.config.keys.iter().position(|other| other == key);
        let place = u8::try_from(place.expect("asks name keys of the configuration")).expect("keys are few");
        if self.ended_holders & (1 << number) != 0 {
            return Err(Property::Leases.broken("a session is started whose lease has ended"));
        }
        let tenant = context.asks[number].1.tenant();
        let machine = Session::new(context.config.session()).with_limits(context.config.limits());
        let machine = seeded(machine, context.bug);
        self.sessions.push(Shared::new(Cell {
            id,
            key: place,
            tenant,
            machine: Some(Shared::new(Clocked::new(machine))),
            over: false,
            closing: false,
            gate_open: true,
            condemned: false,
            reap_timers: 0,
            recovered: false,
            was_lost: false,
            revoked: false,
            creator: u8::try_from(number).expect("asks are few"),
            tells_drained: false,
            tells_quiet: false,
            parked: false,
            refuses: false,
            last: Moment::default(),
            used: false,
            known_used: false,
            approvals: seeded(Approvals::default(), context.bug),
            servers: vec![ServerCell::default(); context.config.servers.len()],
        }));
        let session = self.place(id).expect("it was just put there");
        self.asked[number] = Asked::Waiting(Some(session));
        self.post(session, Way::FromRegistry, Letter::Begin);
        Ok(())
    }

    fn finish(&mut self, context: &Context<'_>, leftovers: usize) -> Checked {
        context.saw(if leftovers == 0 { Witness::Finished } else { Witness::FinishedWithLeftovers });
        if std::mem::replace(&mut self.finished, true) {
            return Err(Property::Fences.broken("a shutdown finishes twice"));
        }
        let left = self.places().filter(|place| !self.cell(*place).over);
        let quarantined = left.filter(|place| self.phase(context, *place) != Some(Phase::Quarantined));
        if quarantined.count() > 0 {
            return Err(
                Property::TrueEnds.broken("a shutdown finishes before all sessions are over or quarantined")
            );
        }
        Ok(())
    }

    /// A session's actor is told, if there is one.
    pub(crate) fn tell_actor(&mut self, session: u8, letter: Letter) {
        if self.cell(session).machine.is_some() {
            self.post(session, Way::FromRegistry, letter);
        }
    }

    /// A letter arrives.
    pub(crate) fn deliver(&mut self, context: &Context<'_>, lane: Lane) -> Checked {
        let Some(letter) = self.mail.take(lane) else { return Ok(()) };
        let id = self.cell(lane.session).id;
        if let Some(server) = lane.way.server() {
            return self.tell_server_letter(context, lane.session, server, letter);
        }
        if lane.way.to_session() {
            return self.tell_session_letter(context, lane, letter);
        }
        let event = match letter {
            Letter::Ready => RegistryEvent::SessionReady { session: id },
            Letter::Wanted(reason) => RegistryEvent::CloseWanted { session: id, reason },
            Letter::Ended(ended) => RegistryEvent::SessionEnded { session: id, ended },
            Letter::Quarantined => RegistryEvent::SessionQuarantined { session: id },
            Letter::StartFailed => RegistryEvent::StartFailed { session: id, spec: SPEC },
            Letter::Detached => RegistryEvent::Detached { session: id },
            Letter::IdleClaimed => RegistryEvent::IdleClaimed { session: id },
            Letter::Used => {
                let live = self.phase(context, lane.session) == Some(Phase::Live);
                self.edit(lane.session).known_used |= live;
                RegistryEvent::Used { session: id }
            }
            // The record tells whether it has ended.
            Letter::SessionLost if self.cell(lane.session).over => return Ok(()),
            Letter::SessionLost => RegistryEvent::SessionLost { session: id },
            _ => return Err(Property::OldFacts.broken("a letter is on a lane that is not its own")),
        };
        self.tell_registry(context, event)
    }
}
