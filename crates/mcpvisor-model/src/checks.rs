//! The rules, in the step in which they could be broken.
mod queue;
mod sessions;

pub(crate) use queue::{Breakers, Passed, breaker, queue};
pub(crate) use sessions::{changed, close, health, is_idle, starts, stops, tokens};

use crate::asks::Ask;
use crate::clocked::Clocked;
use crate::config::{Budgets, Config};
use crate::kernel::Tree;
use crate::lost;
use crate::mail::{Lane, Way};
use crate::rules::{Checked, Property, Witness};
use crate::world::{Asked, Context, ServerCell, Standing, World};
use mcpvisor_lifecycle::registry::{
    Answer, Counts, Goal, Phase, Refusal, Registry, RegistryEffect, RegistryEvent, Urgency,
};
use mcpvisor_lifecycle::server::{Failure, OUTPUT_GRACE, Server, ServerEffect, ServerEvent, ServerReport};
use mcpvisor_lifecycle::{Incarnation, SessionId};

/// How many slots are taken.
fn taken(counts: Counts) -> usize {
    counts.starting + counts.live + counts.dying + counts.quarantined
}

/// Before an answer is given.
pub(crate) fn answer(world: &World, result: &Result<Answer, Refusal>) -> Checked {
    let gone = |session: &SessionId| {
        world.place(*session).is_some_and(|place| world.cell(place).over && world.cell(place).is_gone())
    };
    match result {
        Ok(Answer::Closed { session }) if !gone(session) => {
            Err(Property::TrueEnds.broken("a close is told closed before it is"))
        }
        Ok(Answer::Reached { session, goal: Goal::Ready })
            if world.place(*session).is_none_or(|place| world.cell(place).closing) =>
        {
            Err(Property::Fences.broken("a wait is told ready after the close"))
        }
        Ok(Answer::Reached { session, goal: Goal::Closed }) if !gone(session) => {
            Err(Property::TrueEnds.broken("a wait is told closed before it is"))
        }
        Err(Refusal::SessionFailed { session }) if !gone(session) => {
            Err(Property::TrueEnds.broken("a wait is told failed before it is over"))
        }
        Ok(Answer::Opened { session, .. }) => match world.place(*session).map(|place| world.cell(place)) {
            Some(cell) if !cell.closing && !cell.over => Ok(()),
            _ => Err(Property::Fences.broken("an open is told opened after the close")),
        },
        _ => Ok(()),
    }
}

pub(crate) fn registry_step(
    world: &World,
    context: &Context<'_>,
    before: &Registry,
    event: &RegistryEvent,
    effects: &[RegistryEffect],
) -> Checked {
    let after = &world.registry.get().machine;
    let starts = effects.iter().any(|effect| matches!(effect, RegistryEffect::Start { .. }));
    context.saw_if(starts && matches!(event, RegistryEvent::SessionEnded { .. }), Witness::Promoted);
    let unparks = effects.iter().any(|effect| {
        let RegistryEffect::Reply { result, .. } = effect else { return false };
        matches!(result, Err(Refusal::Draining | Refusal::Quarantined { .. }))
    });
    context.saw_if(unparks && !matches!(event, RegistryEvent::Open(_)), Witness::ParkedRefused);
    let closed = effects
        .iter()
        .any(|effect| matches!(effect, RegistryEffect::Reply { result: Ok(Answer::Closed { .. }), .. }));
    context.saw_if(closed && matches!(event, RegistryEvent::Close { .. }), Witness::ClosedFromMemory);
    let fact_of = match event {
        RegistryEvent::SessionReady { session }
        | RegistryEvent::CloseWanted { session, .. }
        | RegistryEvent::StartFailed { session, .. }
        | RegistryEvent::IdleClaimed { session }
        | RegistryEvent::GateRetired { session }
        | RegistryEvent::Used { session }
        | RegistryEvent::SessionEnded { session, .. }
        | RegistryEvent::SessionQuarantined { session }
        | RegistryEvent::SessionLost { session } => Some(*session),
        _ => None,
    };
    if let Some(session) = fact_of {
        let holds = before.sessions(None).iter().any(|(holder, _, _)| *holder == session);
        let late = matches!(event, RegistryEvent::SessionQuarantined { .. });
        context.saw_if(!holds, if late { Witness::LateQuarantine } else { Witness::Stale });
        if !holds && (!effects.is_empty() || before.counts() != after.counts()) {
            return Err(Property::OldFacts.broken("a fact of a session that holds no key does something"));
        }
    }
    if matches!(event, RegistryEvent::Cancel { .. }) && taken(before.counts()) != taken(after.counts()) {
        return Err(Property::Capacity.broken("a cancel frees a slot whose session is not gone"));
    }
    for (session, key, phase) in before.sessions(None) {
        let key = mcpvisor_lifecycle::KeyRef { uid: session.uid, key };
        let now = after.current(&key);
        if now == Some((session, phase)) {
            continue;
        }
        let gone = || world.place(session).is_some_and(|place| world.cell(place).is_gone());
        let quarantined = Phase::Quarantined;
        match now {
            Some((holder, new)) if holder == session => {
                context.saw_if(new == quarantined, Witness::Quarantined);
                if phase == quarantined {
                    return Err(Property::Quarantine.broken("a session leaves quarantine without its end"));
                }
            }
            _ if phase == quarantined && !gone() => {
                return Err(Property::Quarantine.broken("quarantine is left while something lives"));
            }
            _ => context.saw_if(phase == quarantined, Witness::Released),
        }
    }
    Ok(())
}

/// After a session's step.
pub(crate) fn session(config: &Config, world: &World, place: u8) -> Checked {
    let cell = world.cell(place);
    let Some(machine) = &cell.machine else { return Ok(()) };
    let closing = matches!(machine.get().machine.fine_state(), "draining" | "stopping" | "quarantined");
    if closing && cell.gate_open {
        return Err(Property::Fences.broken("a session is torn down with its gate open"));
    }
    sessions::watches(config, cell)?;
    sessions::alone(cell)
}

pub(crate) fn server_step(
    context: &Context<'_>,
    place: u8,
    server: &ServerCell,
    before: &Clocked<Server>,
    after: &Clocked<Server>,
    event: ServerEvent,
    effects: &[ServerEffect],
) -> Checked {
    let current = before.machine.incarnation();
    if incarnation_of(event).is_some_and(|of| Some(of) != current) {
        context.saw(Witness::Stale);
        if !effects.is_empty() || before != after {
            return Err(Property::OldFacts.broken("a fact of an older incarnation does something"));
        }
    }
    for effect in effects {
        match effect {
            ServerEffect::Report(ServerReport::Ready) if server.stopped => {
                return Err(Property::Fences.broken("a server that was stopped is told ready"));
            }
            ServerEffect::Launch { .. } if server.stopped => {
                return Err(Property::Fences.broken("a server is started after its stop"));
            }
            ServerEffect::Kill { .. } => kill_is_due(before, event)?,
            ServerEffect::Report(ServerReport::Failed(Failure::Exited))
                if server.client_first == Some(true) =>
            {
                return Err(
                    Property::TrueEnds.broken("a direct server that ended with its client is told failed")
                );
            }
            _ => {}
        }
    }
    sessions::eras(context, event, effects);
    rung_has_its_budget(context, place, before, after)
}

fn incarnation_of(event: ServerEvent) -> Option<Incarnation> {
    match event {
        ServerEvent::Launched { incarnation }
        | ServerEvent::LaunchFailed { incarnation }
        | ServerEvent::HandshakeDone { incarnation }
        | ServerEvent::HandshakeFailed { incarnation }
        | ServerEvent::MainExited { incarnation, .. }
        | ServerEvent::OutputEnded { incarnation }
        | ServerEvent::ClientCame { incarnation }
        | ServerEvent::GivenUp { incarnation }
        | ServerEvent::InputEnded { incarnation }
        | ServerEvent::OtherEra { incarnation }
        | ServerEvent::Looked { incarnation, .. }
        | ServerEvent::CommandEnded { incarnation }
        | ServerEvent::ScopeEmpty { incarnation } => Some(incarnation),
        _ => None,
    }
}

/// A kill comes when the time of SIGTERM is over, when someone may hurry it, or of what was never answered.
fn kill_is_due(before: &Clocked<Server>, event: ServerEvent) -> Checked {
    let due = match event {
        ServerEvent::Timeout => matches!(before.machine.fine_state(), "term" | "launching" | "command"),
        ServerEvent::Urge { urgency } => urgency == Urgency::Kill,
        ServerEvent::RetryKill => true,
        ServerEvent::CommandEnded { .. } => before.machine.fine_state() == "command",
        // What a kill has left is killed again before the next start.
        ServerEvent::Restart => matches!(before.machine.fine_state(), "launching" | "stuck"),
        // A launch that is given up, or that comes too late.
        ServerEvent::Stop { .. } => before.machine.fine_state() == "launching",
        ServerEvent::Launched { .. } => matches!(before.machine.fine_state(), "aborting" | "stuck"),
        _ => false,
    };
    if due { Ok(()) } else { Err(Property::WholeBudgets.broken("a server is killed before its time")) }
}

/// A rung that is entered has the whole of its own time (G16).
fn rung_has_its_budget(
    context: &Context<'_>,
    place: u8,
    before: &Clocked<Server>,
    after: &Clocked<Server>,
) -> Checked {
    let rung = after.machine.fine_state();
    if rung == before.machine.fine_state() || context.config.budgets == Budgets::Any && rung != "settling" {
        return Ok(());
    }
    let budgets = context.config.server(place);
    let own = match rung {
        "settling" => OUTPUT_GRACE,
        "stdin" => budgets.stdin_grace,
        "term" => budgets.term_grace,
        "command" => budgets.stop_command.unwrap_or_default(),
        "kill" | "aborting" => budgets.kill_wait,
        _ => return Ok(()),
    };
    if after.machine.next_timeout() == Some(after.clock.after(own)) {
        Ok(())
    } else {
        Err(Property::WholeBudgets.broken("a rung begins without the whole of its budget"))
    }
}

impl World {
    /// After every step.
    pub(crate) fn check(&self, context: &Context<'_>) -> Checked {
        self.check_keys_and_slots(context)?;
        for place in self.places() {
            self.check_owned(context, place)?;
            self.check_waits(context, place)?;
        }
        sessions::trees(self)?;
        if self.is_at_rest(context) { self.check_rest(context) } else { Ok(()) }
    }

    fn check_keys_and_slots(&self, context: &Context<'_>) -> Checked {
        let open: Vec<_> = self
            .sessions
            .iter()
            .map(crate::shared::Shared::get)
            .filter(|cell| !cell.over || !cell.is_gone())
            .collect();
        for (at, cell) in open.iter().enumerate() {
            if open[..at].iter().any(|other| other.key == cell.key) {
                return Err(Property::OneGeneration.broken("two generations of a key exist"));
            }
        }
        let [total, per_user, per_tenant] = context.config.slots;
        let same_user = |uid| open.iter().filter(|cell| cell.id.uid == uid).count();
        let same_tenant = |uid, tenant: Option<&str>| {
            open.iter().filter(|cell| cell.id.uid == uid && cell.tenant == tenant).count()
        };
        let over = open.len() > total
            || open.iter().any(|cell| {
                same_user(cell.id.uid) > per_user
                    || cell.tenant.is_some() && same_tenant(cell.id.uid, cell.tenant) > per_tenant
            });
        if over {
            return Err(Property::Capacity.broken("more sessions exist than there are slots"));
        }
        if taken(self.registry.get().machine.counts()) < open.len() {
            return Err(Property::Capacity.broken("a session exists that holds no slot"));
        }
        Ok(())
    }

    /// What lives or may be born belongs to a session that holds its key, and to a machine or the reaper.
    fn check_owned(&self, context: &Context<'_>, place: u8) -> Checked {
        let cell = self.cell(place);
        if cell.is_gone() {
            return Ok(());
        }
        if self.phase(context, place).is_none() {
            return Err(Property::Owned.broken("something lives whose session holds no key"));
        }
        if cell.condemned {
            return Ok(());
        }
        if cell.machine.is_none() {
            let told = lost::is_being_told(self, place);
            return if told { Ok(()) } else { Err(Property::Owned.broken("a lost session is not reaped")) };
        }
        for (at, server) in (0..=u8::MAX).zip(&cell.servers) {
            for tree in server.trees.iter().filter(|tree| !tree.is_gone()) {
                let told = self.mail.first(Lane { session: place, way: Way::ServerLost(at) }).is_some();
                if !(server.reaps > 0 || told || is_run_by(server, tree)) {
                    return Err(Property::Owned.broken("something lives, and no server knows of it"));
                }
            }
        }
        Ok(())
    }

    /// The client of a direct session never waits for the kernel (G39).
    fn check_waits(&self, context: &Context<'_>, place: u8) -> Checked {
        if !context.config.is_direct() || self.phase(context, place) != Some(Phase::Quarantined) {
            return Ok(());
        }
        let waits = self.asked.iter().zip(context.asks).any(|(asked, (_, ask))| {
            let for_the_end = matches!(ask, Ask::Wait { goal: Goal::Closed, .. });
            for_the_end && *asked == Asked::Waiting(Some(place))
        });
        if waits {
            Err(Property::OneAnswer.broken("the client of a direct session waits for the kernel"))
        } else {
            Ok(())
        }
    }

    fn check_rest(&self, context: &Context<'_>) -> Checked {
        let waits = |asked: &Asked| !asked.is_settled();
        // Who waits for the end of a live session may wait for ever.
        let for_a_live_one = |asked: &Asked, ask: &Ask| match (asked, ask) {
            (Asked::Waiting(Some(session)), Ask::Wait { goal: Goal::Closed, .. }) => {
                self.phase(context, *session) == Some(Phase::Live)
            }
            _ => false,
        };
        let mut behind = usize::MAX;
        for (asked, (client, ask)) in self.asked.iter().zip(context.asks) {
            if for_a_live_one(asked, ask) {
                behind = *client;
            } else if waits(asked) && *client != behind {
                return Err(Property::Rest.broken("a request is never answered"));
            }
        }
        let mut open = 0;
        for place in self.places() {
            let cell = self.cell(place);
            match self.phase(context, place) {
                None if cell.over => {}
                None => return Err(Property::Rest.broken("a session that is not over holds no key")),
                Some(_) if cell.over => {
                    return Err(Property::Rest.broken("a session that is over holds its key"));
                }
                Some(Phase::Live)
                    if !cell.known_used
                        && ![Asked::Opened(place), Asked::Joined(place)]
                            .iter()
                            .any(|told| self.asked.contains(told)) =>
                {
                    return Err(Property::Rest.broken("a session lives, and nobody was told of it"));
                }
                Some(Phase::Live) => {
                    self.check_live_at_rest(context, place)?;
                    open += 1;
                }
                Some(Phase::Starting) => return Err(Property::Rest.broken("a session starts for ever")),
                Some(Phase::Dying) => return Err(Property::Rest.broken("a session dies for ever")),
                Some(Phase::Quarantined) => {
                    return Err(Property::Rest.broken("a session is quarantined, and nothing of it is left"));
                }
            }
        }
        if taken(self.registry.get().machine.counts()) != open {
            return Err(Property::Rest.broken("a slot is lost"));
        }
        if self.shutdown.is_some() && (!self.finished || open > 0) {
            return Err(Property::Rest.broken("a shutdown never finishes, or leaves a session"));
        }
        Ok(())
    }
}

impl World {
    /// A live session that nothing happens to any more.
    fn check_live_at_rest(&self, context: &Context<'_>, place: u8) -> Checked {
        let cell = self.cell(place);
        if self.ended_holders & (1 << cell.creator) != 0 {
            return Err(Property::Leases.broken("a session lives whose lease has ended"));
        }
        if context.config.ttl {
            return Err(Property::Leases.broken("a session outlives its time"));
        }
        let unknown = |server: &ServerCell| {
            let gone = server.added_by.is_some_and(|ask| self.asked[usize::from(ask)] == Asked::Gone);
            gone && server.standing == Standing::Member
                && server.restart_of.is_none()
                && server.replaces.is_none()
        };
        if context.config.idle.is_none() && cell.servers.iter().any(unknown) {
            return Err(Property::Changes.broken("a server stays that nobody was told of"));
        }
        let state = cell.machine.as_ref().map(|machine| machine.get().machine.fine_state());
        let watched = context.config.idle.is_some() && self.luck.looks.is_none_or(|looks| looks > 0);
        if watched && state != Some("parked") {
            return Err(Property::Idleness.broken("a session that nobody uses stays"));
        }
        Ok(())
    }
}

/// Its server is at work on this incarnation.
fn is_run_by(server: &ServerCell, tree: &Tree) -> bool {
    server.machine.as_ref().is_some_and(|machine| {
        let machine = &machine.get().machine;
        let over = matches!(machine.fine_state(), "stopped" | "ended" | "failed" | "backoff" | "idle");
        !over && machine.incarnation() == Some(Incarnation(u32::from(tree.incarnation)))
    })
}
