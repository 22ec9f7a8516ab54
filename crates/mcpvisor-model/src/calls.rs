//! Calls of a session: its gate, which may be parked (`gate.rs` of the supervisor), and the desk of those that a person decides (`desk.rs`).
use crate::checks;
use crate::config::server_name;
use crate::mail::{Letter, Way};
use crate::rules::{Checked, Property, Witness};
use crate::world::{Asked, Context, Standing, World};
use mcpvisor_lifecycle::registry::RegistryEvent;
use mcpvisor_lifecycle::session::{Activity, SessionEvent};
use mcpvisor_lifecycle::{Decided, HoldNumber, RequestId, SessionId, Verdict};
use std::time::Duration;

impl World {
    /// The session that holds a key.
    pub(crate) fn holder(&self, context: &Context<'_>, key: u8) -> Option<u8> {
        let holder = self.registry.get().machine.current(&context.config.keys[usize::from(key)]);
        holder.and_then(|(id, _)| self.place(id))
    }

    pub(crate) fn call(&mut self, context: &Context<'_>, number: u8, key: u8, held: bool) {
        self.asked[usize::from(number)] = Asked::Answered;
        match self.holder(context, key) {
            Some(session) => self.pass_gate(context, number, session, held),
            None => context.saw(Witness::CallRefused),
        }
    }

    fn pass_gate(&mut self, context: &Context<'_>, number: u8, session: u8, held: bool) {
        let cell = self.cell(session);
        if !cell.gate_open || cell.refuses {
            self.asked[usize::from(number)] = Asked::Answered;
            context.saw(Witness::CallRefused);
        } else if cell.parked {
            self.asked[usize::from(number)] = Asked::AtGate(session);
            context.saw_if(self.at_gate(session).count() > 1, Witness::WokenByTwo);
            if self.cell(session).machine.is_some() {
                self.post(session, Way::Wake, Letter::Wake);
            }
        } else {
            self.touch(context, session);
            self.uses(session);
            self.asked[usize::from(number)] =
                if held { Asked::ToHold(session) } else { Asked::Calling(session) };
        }
    }

    /// A call that is past the gate is held: the gate may be closed by now.
    pub(crate) fn hold(&mut self, context: &Context<'_>, number: u8) {
        let Asked::ToHold(session) = self.asked[usize::from(number)] else { return };
        // Calls of the model are all of the first server.
        let there = self
            .cell(session)
            .servers
            .first()
            .is_none_or(|server| matches!(server.standing, Standing::Member | Standing::Held));
        match self.edit(session).approvals.hold(&server_name(0), there) {
            Ok(hold) => self.asked[usize::from(number)] = held(session, hold),
            Err(_) => {
                context.saw(Witness::NotHeld);
                self.end_call(context, number);
            }
        }
    }

    /// The registry knows from the first call on that somebody uses the session.
    fn uses(&mut self, session: u8) {
        if !std::mem::replace(&mut self.edit(session).used, true) {
            self.post(session, Way::Use, Letter::Used);
        }
    }

    /// Something happens at the gate, which takes a moment of the session's time where anybody cares for it.
    pub(crate) fn touch(&mut self, context: &Context<'_>, session: u8) {
        if context.config.idle.is_none() || self.cell(session).over {
            return;
        }
        let cell = self.edit(session);
        if let Some(machine) = &mut cell.machine {
            let machine = machine.edit();
            machine.clock = machine.clock.after(Duration::from_micros(1));
            cell.last = machine.clock;
        }
    }

    pub(crate) fn activity(&self, session: u8) -> Activity {
        Activity { last: self.cell(session).last, busy: self.in_flight(session) > 0 }
    }

    /// A held call is in flight, too.
    pub(crate) fn in_flight(&self, session: u8) -> usize {
        let of = |asked: &&Asked| match asked {
            Asked::Calling(place) | Asked::ToHold(place) | Asked::Held(place, _) => *place == session,
            _ => false,
        };
        self.asked.iter().filter(of).count()
    }

    /// Calls that wait for something but themselves.
    pub(crate) fn unsettled(&self, session: u8) -> usize {
        self.those(|asked| match asked {
            Asked::Calling(place) | Asked::Held(place, _) | Asked::AtGate(place) => *place == session,
            _ => false,
        })
        .count()
    }

    fn at_gate(&self, session: u8) -> std::vec::IntoIter<u8> {
        self.those(move |asked| *asked == Asked::AtGate(session))
    }

    fn those(&self, like: impl Fn(&Asked) -> bool) -> std::vec::IntoIter<u8> {
        let all: Vec<u8> =
            (0..=u8::MAX).zip(&self.asked).filter(|(_, asked)| like(asked)).map(|(at, _)| at).collect();
        all.into_iter()
    }

    /// A call is over, however.
    pub(crate) fn end_call(&mut self, context: &Context<'_>, number: u8) {
        let asked = std::mem::replace(&mut self.asked[usize::from(number)], Asked::Answered);
        let (Asked::Calling(session) | Asked::ToHold(session) | Asked::Held(session, _)) = asked else {
            return;
        };
        self.touch(context, session);
        let drains = self.cell(session).tells_drained;
        context.saw_if(drains && matches!(asked, Asked::Calling(_)), Witness::CallDrained);
        self.tell_if_empty(session);
    }

    fn tell_if_empty(&mut self, session: u8) {
        if self.in_flight(session) > 0 {
            return;
        }
        let cell = self.edit(session);
        let drained = !cell.gate_open && std::mem::take(&mut cell.tells_drained);
        let quiet = std::mem::take(&mut cell.tells_quiet);
        if self.cell(session).machine.is_none() {
            return;
        }
        if drained {
            self.post(session, Way::Gate, Letter::Drained);
        }
        if quiet {
            self.post(session, Way::Gate, Letter::Quiet);
        }
    }

    /// The gate is closed, whoever waits at it is refused, and nobody decides anything any more.
    pub(crate) fn close_gate(&mut self, context: &Context<'_>, session: u8) {
        self.edit(session).gate_open = false;
        for number in self.edit(session).approvals.close() {
            let held = self.those(|asked| *asked == held(session, number)).next();
            context.saw_if(held.is_some(), Witness::HeldAtClose);
            held.into_iter().for_each(|call| self.end_call(context, call));
        }
        for call in self.at_gate(session) {
            self.asked[usize::from(call)] = Asked::Answered;
        }
        self.edit(session).tells_drained = true;
        self.tell_if_empty(session);
    }

    /// The server of the session's calls is removed: nothing is held for it any more.
    pub(crate) fn end_held_calls(&mut self, context: &Context<'_>, session: u8) {
        for number in self.edit(session).approvals.server_gone(&server_name(0)) {
            let call = self.those(|asked| *asked == held(session, number)).next();
            call.into_iter().for_each(|call| self.end_call(context, call));
        }
    }

    /// What is in flight is answered with an error.
    pub(crate) fn settle_calls(&mut self, context: &Context<'_>, session: u8) {
        for call in self.those(|asked| *asked == Asked::Calling(session)) {
            context.saw(Witness::CallCut);
            self.edit(session).tells_drained = false;
            self.end_call(context, call);
        }
    }

    /// A session's end leaves no call without an answer.
    pub(crate) fn check_calls_over(&self, session: u8) -> Checked {
        if self.unsettled(session) > 0 {
            return Err(Property::Calls.broken("a session ends, and a call of it has no answer"));
        }
        Ok(())
    }

    pub(crate) fn give_call_up(&mut self, context: &Context<'_>, number: u8) -> Checked {
        match self.asked[usize::from(number)] {
            Asked::Held(session, hold) => self.verdict(context, session, hold, Verdict::Withdrawn)?,
            Asked::Calling(_) | Asked::ToHold(_) => self.end_call(context, number),
            _ => {}
        }
        self.asked[usize::from(number)] = Asked::Gone;
        Ok(())
    }

    /// Who made them is gone with the daemon.
    pub(crate) fn drop_calls(&mut self, session: u8) {
        let of = |asked: &Asked| match asked {
            Asked::Calling(of) | Asked::ToHold(of) | Asked::AtGate(of) | Asked::Held(of, _) => *of == session,
            _ => false,
        };
        for call in self.those(of) {
            self.asked[usize::from(call)] = Asked::Gone;
        }
    }

    // Held calls.

    pub(crate) fn hold_times_out(&mut self, context: &Context<'_>, number: u8) -> Checked {
        let Asked::Held(session, hold) = self.asked[usize::from(number)] else { return Ok(()) };
        self.verdict(context, session, hold, Verdict::TimedOut)
    }

    pub(crate) fn decide(&mut self, context: &Context<'_>, key: u8, approve: bool) -> Checked {
        let verdict = if approve { Verdict::Approved } else { Verdict::Denied };
        match self.holder(context, key) {
            Some(session) => self.verdict(context, session, 1, verdict),
            None => Ok(()),
        }
    }

    fn verdict(&mut self, context: &Context<'_>, session: u8, hold: u8, verdict: Verdict) -> Checked {
        let number = HoldNumber(hold.into());
        let call = self.those(|asked| *asked == Asked::Held(session, hold)).next();
        let decided = self.edit(session).approvals.decide(number, verdict);
        context.tell(|| format!("held call {hold} of session {session}: {verdict:?}, {decided:?}"));
        let call = match (decided, call) {
            (Decided::Now, Some(call)) => call,
            (Decided::Now, None) => {
                return Err(Property::Calls.broken("a held call is decided that waits for nobody"));
            }
            (Decided::Before(_) | Decided::Unknown, Some(_)) => {
                return Err(Property::Calls.broken("a call waits for a decision, and can't be decided"));
            }
            (_, None) => {
                context.saw(Witness::DecidedAgain);
                return Ok(());
            }
        };
        match verdict {
            Verdict::Approved => {
                context.saw(Witness::Approved);
                self.asked[usize::from(call)] = Asked::Calling(session);
            }
            _ => {
                let denied = verdict == Verdict::Denied;
                context.saw(if denied { Witness::Denied } else { Witness::HoldEnded });
                self.end_call(context, call);
            }
        }
        Ok(())
    }

    // Being idle.

    pub(crate) fn look_at_activity(&mut self, context: &Context<'_>, session: u8) -> Checked {
        let activity = self.activity(session);
        self.edit(session).tells_quiet = activity.busy;
        self.tell_session(context, session, SessionEvent::Activity(activity))
    }

    pub(crate) fn park_gate(&mut self, context: &Context<'_>, session: u8) -> Checked {
        let busy = self.in_flight(session) > 0;
        let cell = self.cell(session);
        let parked = cell.gate_open && !busy && checks::is_idle(self, context, session);
        self.edit(session).parked |= parked;
        context.saw(if parked { Witness::Parked } else { Witness::StayedOpen });
        self.tell_session(context, session, SessionEvent::GateParked { parked })
    }

    pub(crate) fn retire_gate(&mut self, context: &Context<'_>, session: u8) -> Checked {
        let id = self.cell(session).id;
        if self.cell(session).gate_open && checks::is_idle(self, context, session) {
            self.edit(session).gate_open = false;
            return self.tell_registry(context, RegistryEvent::GateRetired { session: id });
        }
        context.saw(Witness::StayedOpen);
        self.tell_actor(session, Letter::StayOpen);
        Ok(())
    }

    /// The first of them that nobody uses: which was idle for longest does not matter to any rule.
    pub(crate) fn evict(
        &mut self,
        context: &Context<'_>,
        request: RequestId,
        among: &[SessionId],
    ) -> Checked {
        let places = among.iter().filter_map(|session| self.place(*session));
        let free =
            places.into_iter().find(|place| self.cell(*place).gate_open && self.in_flight(*place) == 0);
        let Some(place) = free else {
            context.saw(Witness::NobodyMadeRoom);
            return self.tell_registry(context, RegistryEvent::NobodyIdle { request });
        };
        let session = self.cell(place).id;
        self.edit(place).gate_open = false;
        self.tell_registry(context, RegistryEvent::Evicted { request, session })
    }

    pub(crate) fn open_gate(&mut self, context: &Context<'_>, session: u8) {
        self.edit(session).parked = false;
        self.touch(context, session);
        for call in self.at_gate(session) {
            context.saw(Witness::Woken);
            let held = matches!(context.asks[usize::from(call)].1, crate::asks::Ask::Call { held: true, .. });
            self.pass_gate(context, call, session, held);
        }
    }

    pub(crate) fn refuse_waiting(&mut self, context: &Context<'_>, session: u8) {
        self.edit(session).refuses = true;
        for call in self.at_gate(session) {
            context.saw(Witness::NotWoken);
            self.asked[usize::from(call)] = Asked::Answered;
        }
    }

    // Processes that hold leases.

    /// The process that was to hold the lease of an open's session has ended. From then on nothing of that open may stay.
    pub(crate) fn holder_ends(&mut self, context: &Context<'_>, number: u8) -> Checked {
        self.luck.holders -= 1;
        self.ended_holders |= 1 << number;
        let request = RequestId(u64::from(number) + 1);
        self.tell_registry(context, RegistryEvent::HolderEnded { request })
    }
}

fn held(session: u8, number: HoldNumber) -> Asked {
    Asked::Held(session, u8::try_from(number.0).expect("a configuration holds few calls"))
}
