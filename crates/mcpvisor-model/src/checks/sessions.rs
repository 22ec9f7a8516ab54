//! The rules about trees, idleness, leases and changes of servers.
use crate::config::Config;
use crate::kernel::Tree;
use crate::rules::{Checked, Property, Witness};
use crate::world::{Cell, Context, ServerCell, Standing, World};
use mcpvisor_lifecycle::SessionId;
use mcpvisor_lifecycle::registry::{Phase, RegistryEffect, RegistryEvent};
use mcpvisor_lifecycle::server::{ServerEffect, ServerEvent};
use mcpvisor_lifecycle::session::{ChangeRefusal, Changed, CloseReason};

/// Its gate was quiet for long enough, by its own clock.
pub(crate) fn is_idle(world: &World, context: &Context<'_>, session: u8) -> bool {
    let (Some(limit), Some(machine)) = (context.config.limits().idle, &world.cell(session).machine) else {
        return false;
    };
    limit.due(world.activity(session)) <= machine.get().clock
}

/// Before the registry closes a session.
pub(crate) fn close(world: &World, context: &Context<'_>, session: u8, reason: CloseReason) -> Checked {
    if reason == CloseReason::Idle && context.config.idle.is_some() {
        if !is_idle(world, context, session) {
            return Err(Property::Idleness.broken("a session is closed for idleness after it was used"));
        }
        context.saw(Witness::ClosedForIdleness);
    }
    if reason == CloseReason::Evicted {
        if world.in_flight(session) > 0 {
            return Err(Property::Idleness.broken("a session that is called makes room for another one"));
        }
        context.saw(Witness::MadeRoom);
    }
    if reason == CloseReason::StartCancelled && world.cell(session).known_used {
        return Err(Property::Calls.broken("a session that is in use is cancelled by who opened it"));
    }
    Ok(())
}

/// A live session watches its idleness, by one timer.
pub(crate) fn watches(config: &Config, cell: &Cell) -> Checked {
    let Some(machine) = &cell.machine else { return Ok(()) };
    let machine = &machine.get().machine;
    if config.idle.is_some()
        && !config.is_direct()
        && machine.fine_state() == "live"
        && !machine.watches_idleness()
    {
        return Err(Property::Idleness.broken("a session is live, and nothing watches its idleness"));
    }
    Ok(())
}

/// Before a server is told to start.
pub(crate) fn starts(server: &ServerCell) -> Checked {
    let Some(machine) = &server.machine else { return Ok(()) };
    let over = matches!(machine.get().machine.fine_state(), "idle" | "stopped" | "ended" | "failed");
    if over { Ok(()) } else { Err(Property::Idleness.broken("a server is started that was not over")) }
}

/// Before the servers of a session that is being closed are told to stop.
pub(crate) fn stops(world: &World, context: &Context<'_>, session: u8) -> Checked {
    let below = below(world, world.cell(session).id);
    if below.iter().any(|phase| *phase != Phase::Quarantined) {
        return Err(
            Property::Trees.broken("a session's servers stop, and what is below it has still its own")
        );
    }
    context.saw_if(!below.is_empty(), Witness::ChildQuarantined);
    if world.unsettled(session) > 0 {
        return Err(Property::Calls.broken("a session's servers stop, and a call is not settled"));
    }
    Ok(())
}

fn below(world: &World, parent: SessionId) -> Vec<Phase> {
    let registry = &world.registry.get().machine;
    let all = registry.sessions(None).into_iter();
    all.filter(|(id, ..)| registry.parent(*id) == Some(parent)).map(|(_, _, phase)| phase).collect()
}

/// Nothing is open below a session that is closed, and nothing outlives what it is below, but for what the kernel holds.
pub(crate) fn trees(world: &World) -> Checked {
    let registry = &world.registry.get().machine;
    let all = registry.sessions(None);
    for (id, _, phase) in &all {
        let Some(parent) = registry.parent(*id) else { continue };
        let above = all.iter().find(|(holder, ..)| *holder == parent).map(|(_, _, phase)| *phase);
        let is_open = |phase| matches!(phase, Phase::Starting | Phase::Live);
        if is_open(*phase) && !above.is_some_and(is_open) {
            return Err(Property::Trees.broken("a session is open below one that is closed"));
        }
        let over = world.place(parent).is_some_and(|place| {
            let cell = world.cell(place);
            cell.over && !cell.was_lost
        });
        if over && *phase != Phase::Quarantined {
            return Err(Property::Trees.broken("a session outlives the one that it was opened below"));
        }
    }
    Ok(())
}

/// A token means its session, for as long as that holds its key and nobody has revoked it.
pub(crate) fn tokens(
    world: &World,
    context: &Context<'_>,
    event: &RegistryEvent,
    effects: &[RegistryEffect],
) -> Checked {
    let registry = &world.registry.get().machine;
    for place in world.places() {
        let cell = world.cell(place);
        let key = &context.config.keys[usize::from(cell.key)];
        let revokes = |effect: &RegistryEffect| *effect == RegistryEffect::Revoke { session: cell.id };
        let revoked = cell.revoked
            || effects.iter().any(revokes)
            || *event == (RegistryEvent::Detached { session: cell.id });
        let holds = world.phase(context, place).is_some();
        match registry.presented(key, cell.id) {
            Ok(other) if other != cell.id => {
                return Err(Property::Tokens.broken("a token means another session than its own"));
            }
            Ok(_) if revoked => return Err(Property::Tokens.broken("a token that was revoked is good")),
            Err(_) if holds && !revoked => {
                return Err(Property::Tokens.broken("the token of a session is not known"));
            }
            _ => context.saw_if(revoked, Witness::Revoked),
        }
    }
    Ok(())
}

/// Before a change is answered.
pub(crate) fn changed(world: &World, session: u8, result: &Result<Changed, ChangeRefusal>) -> Checked {
    let of = |server: mcpvisor_lifecycle::Place| {
        &world.cell(session).servers[usize::from(crate::changes::index(server))]
    };
    let true_yet = match *result {
        Ok(Changed::Added { server } | Changed::Replaced { server }) => {
            of(server).standing == Standing::Member
        }
        Ok(Changed::Removed { server }) => of(server).standing == Standing::Forgotten,
        Ok(Changed::Yielded { server }) => of(server).trees.is_empty(),
        Ok(Changed::Restarted { server }) => {
            let it = of(server);
            it.trees.last().is_none_or(|tree| Some(tree.incarnation) > it.restart_of)
        }
        // Of an add nothing is left. A restart that failed goes on by its policy.
        Err(ChangeRefusal::Failed { server }) => {
            let it = of(server);
            it.standing == Standing::Forgotten || it.standing == Standing::Member && it.replaces.is_none()
        }
        Err(_) => true,
    };
    if true_yet { Ok(()) } else { Err(Property::Changes.broken("a change is told before it is true")) }
}

/// What must never run at once does not.
pub(crate) fn alone(cell: &Cell) -> Checked {
    for server in &cell.servers {
        let Some((old, true)) = server.replaces else { continue };
        let exists = |server: &ServerCell| server.trees.iter().any(|tree| !Tree::is_gone(tree));
        if exists(server) && exists(&cell.servers[usize::from(old)]) {
            return Err(Property::Changes.broken("a server runs beside the one that was to make room for it"));
        }
    }
    Ok(())
}

/// A look at a server that is busy, or was heard of, does not end it.
pub(crate) fn health(context: &Context<'_>, well: bool, busy: bool, effects: &[ServerEffect]) -> Checked {
    let ended = effects.iter().any(|effect| matches!(effect, ServerEffect::Terminate { .. }));
    context.saw_if(ended, Witness::Unhealthy);
    context.saw_if(busy && !ended, Witness::BusyIsWell);
    if well && ended { Err(Property::Health.broken("a server that is well is ended")) } else { Ok(()) }
}

/// A server is launched again in the start of another era once, and because that was told.
pub(crate) fn eras(context: &Context<'_>, event: ServerEvent, effects: &[ServerEffect]) {
    let again = effects.iter().any(|effect| matches!(effect, ServerEffect::Launch { .. }));
    let released = effects.iter().any(|effect| matches!(effect, ServerEffect::Release { .. }));
    let told = effects.iter().any(|effect| matches!(effect, ServerEffect::Report(_)));
    let over = matches!(event, ServerEvent::ScopeEmpty { .. } | ServerEvent::CommandEnded { .. });
    context.saw_if(again && released && !told && over, Witness::OtherEra);
}
