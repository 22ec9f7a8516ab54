//! What clients do: ask, go away, and ask again of the registry's successor (`supervisor.rs`).
use crate::asks::Ask;
use crate::checks;
use crate::mail::{Letter, Way};
use crate::rules::{Checked, Property, Witness};
use crate::world::{Asked, Context, World};
use mcpvisor_lifecycle::RequestId;
use mcpvisor_lifecycle::registry::{Answer, Goal, Phase, Refusal, RegistryEvent, Urgency};

impl World {
    pub(crate) fn ask(&mut self, context: &Context<'_>, number: usize) -> Checked {
        let (_, ask) = context.asks[number];
        if let Asked::Again(meant) = self.asked[number] {
            return self.ask_again(context, number, meant);
        }
        let call = u8::try_from(number).expect("asks are few");
        match ask {
            Ask::Call { key, held } => {
                self.call(context, call, key, held);
                return Ok(());
            }
            Ask::Decide { key, approve } => {
                self.asked[number] = Asked::Answered;
                return self.decide(context, key, approve);
            }
            Ask::Change { key, .. } => return self.change(context, call, key),
            _ => {}
        }
        match ask {
            Ask::Shutdown(urgency) => {
                self.asked[number] = Asked::Answered;
                self.urged = self.urged.max(urgency);
                self.shutdown = self.shutdown.max(Some(urgency));
                let starting = self.registry.get().machine.counts().starting > 0;
                context.saw_if(starting, Witness::ShutdownWhileStarting);
            }
            Ask::Lease { key, reason } => {
                self.asked[number] = Asked::Answered;
                let holder = self.registry.get().machine.current(&context.config.keys[usize::from(key)]);
                if let Some(session) = holder.and_then(|(id, _)| self.place(id)) {
                    self.post(session, Way::Lease, Letter::Wanted(reason));
                }
            }
            Ask::Detach { key } => {
                self.asked[number] = Asked::Answered;
                if let Some(session) = self.holder(context, key) {
                    self.post(session, Way::Lease, Letter::Detached);
                }
            }
            Ask::Close { now: true, .. } => {
                self.urged = self.urged.max(Urgency::Hurry);
                self.asked[number] = Asked::Waiting(self.meant(ask));
            }
            _ => self.asked[number] = Asked::Waiting(self.meant(ask)),
        }
        if let Asked::Waiting(Some(session)) = self.asked[number] {
            let retried = context.asks[..number]
                .iter()
                .zip(&self.asked)
                .any(|((_, other), asked)| *asked == Asked::Gone && other.key() == ask.key());
            context.saw_if(retried && !self.cell(session).over, Witness::Vanished);
        }
        if let Some(event) = context.config.event(number, ask, None) {
            self.tell_registry(context, event)?;
        }
        if let Asked::Opened(session) = self.asked[number] {
            self.asked[number] = Asked::Joined(session);
        }
        if let (Ask::Open(_), Asked::Waiting(Some(session))) = (ask, self.asked[number]) {
            let cell = self.cell(session);
            context.saw_if(cell.recovered && !cell.over, Witness::WaitedForRecovered);
        }
        Ok(())
    }

    /// The last session of the key, or the one that the ask names: what is asked again where the registry is lost.
    fn meant(&self, ask: Ask) -> Option<u8> {
        let key = ask.key()?;
        let named = match ask {
            Ask::Close { generation, .. } => generation,
            _ => None,
        };
        let meant = self.places().filter(|place| {
            let cell = self.cell(*place);
            cell.key == key && named.is_none_or(|named| cell.id.generation.0 == named)
        });
        meant.last()
    }

    fn ask_again(&mut self, context: &Context<'_>, number: usize, meant: Option<u8>) -> Checked {
        let (_, ask) = context.asks[number];
        context.saw(Witness::AskedAgain);
        self.asked[number] = Asked::Waiting(meant);
        let generation = meant.map(|session| self.cell(session).id.generation);
        if let Some(session) = meant
            && self.cell(session).over
        {
            // Its record answers.
            let result = Ok(Answer::Closed { session: self.cell(session).id });
            return self.reply(context, RequestId(number as u64 + 1), &result);
        }
        match context.config.event(number, ask, generation) {
            Some(event) => self.tell_registry(context, event),
            None => Ok(()),
        }
    }

    pub(crate) fn vanish(&mut self, context: &Context<'_>, number: usize) -> Checked {
        self.luck.vanish -= 1;
        let call = u8::try_from(number).expect("asks are few");
        match self.asked[number] {
            Asked::Calling(_) | Asked::ToHold(_) | Asked::AtGate(_) | Asked::Held(..) => {
                return self.give_call_up(context, call);
            }
            Asked::Changing(..) | Asked::Added(_) => return self.cancel_change(context, call),
            _ => {}
        }
        context.saw_if(matches!(self.asked[number], Asked::Opened(_)), Witness::GaveUpLate);
        self.asked[number] = Asked::Gone;
        self.tell_registry(context, RegistryEvent::Cancel { request: RequestId(number as u64 + 1) })
    }

    /// An answer reaches its caller.
    pub(crate) fn reply(
        &mut self,
        context: &Context<'_>,
        request: RequestId,
        result: &Result<Answer, Refusal>,
    ) -> Checked {
        context.tell(|| format!("request {} is answered: {result:?}", request.0));
        let number = usize::try_from(request.0 - 1).expect("asks are few");
        if !matches!(self.asked[number], Asked::Waiting(_)) {
            return Err(Property::OneAnswer.broken("a request that does not wait is answered"));
        }
        checks::answer(self, result)?;
        self.asked[number] = match result {
            Ok(Answer::Opened { session, .. }) => self.place(*session).map_or(Asked::Answered, Asked::Opened),
            _ => Asked::Answered,
        };
        if let Ok(Answer::Opened { session, created: false }) = result
            && let Some(place) = self.place(*session)
        {
            self.touch(context, place);
        }
        self.witness_answer(context, result);
        Ok(())
    }

    fn witness_answer(&self, context: &Context<'_>, result: &Result<Answer, Refusal>) {
        match result {
            Ok(Answer::Closed { .. }) => context.saw(Witness::Closed),
            Ok(Answer::Reached { goal: Goal::Closed, .. }) => context.saw(Witness::WaitReached),
            Ok(Answer::Opened { session, created }) => {
                context.saw_if(!created, Witness::Joined);
                let opened = self.place(*session).map(|place| self.cell(place));
                let recovered = self.sessions.iter().any(|cell| {
                    let cell = cell.get();
                    cell.recovered && opened.is_some_and(|opened| opened.key == cell.key)
                });
                context.saw_if(recovered, Witness::RecoveredKeyOpened);
            }
            Err(Refusal::CapacityExhausted { scope, .. }) => {
                context.saw(Witness::Full);
                let counts = self.registry.get().machine.counts();
                context.saw_if(counts.dying > 0, Witness::FullWhileDying);
                let total = matches!(scope, mcpvisor_lifecycle::registry::CapacityScope::Total);
                context.saw_if(!total, Witness::FullForUser);
            }
            Err(Refusal::HolderEnded) => context.saw(Witness::HolderEndedFirst),
            Err(Refusal::ParentClosing { .. } | Refusal::ParentNotFound) => {
                context.saw(Witness::ParentRefused);
            }
            Err(Refusal::Quarantined { .. }) => context.saw(Witness::RefusedQuarantined),
            Err(Refusal::DeadlineExceeded { .. }) | Ok(Answer::NotYet { .. }) => {
                context.saw(Witness::Expired);
            }
            _ => {}
        }
    }

    /// The phase in which the registry holds a session; none where it holds its key no more.
    pub(crate) fn phase(&self, context: &Context<'_>, session: u8) -> Option<Phase> {
        let cell = self.cell(session);
        let key = &context.config.keys[usize::from(cell.key)];
        let held = self.registry.get().machine.current(key);
        held.filter(|(id, _)| *id == cell.id).map(|(_, phase)| phase)
    }
}
