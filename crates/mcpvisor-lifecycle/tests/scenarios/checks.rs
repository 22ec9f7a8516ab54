//! What must hold always, and at the end of every history.
use super::process::{Process, Signal};
use super::script::Act;
use super::world::{Outcome, ServerActor, World};
use mcpvisor_lifecycle::registry::{Answer, Goal, Phase, Registry, RegistryEffect, RegistryEvent};
use mcpvisor_lifecycle::server::{Failure, ServerEffect, ServerEvent, ServerReport};
use mcpvisor_lifecycle::session::SessionState;
use mcpvisor_lifecycle::{Incarnation, RequestId, SessionId};
use std::collections::BTreeMap;

#[cfg(feature = "seeded-bugs")]
pub(crate) fn bug(seed: super::Seed) -> Option<mcpvisor_lifecycle::seeded::Bug> {
    let seed = seed?;
    let mut all = mcpvisor_lifecycle::seeded::Bug::ALL.into_iter();
    Some(all.find(|bug| format!("{bug:?}") == seed).expect("a control names a bug that exists"))
}

fn slots(registry: &Registry) -> usize {
    let counts = registry.counts();
    counts.starting
        + counts.live
        + counts.dying
        + counts.quarantined
        + counts.shared
        + counts.shared_quarantined
}

/// After every step.
pub(crate) fn always(world: &World) -> Result<(), String> {
    let (mut alive, mut open) = (BTreeMap::new(), BTreeMap::new());
    for actor in world.sessions.values() {
        *alive.entry(&actor.key).or_insert(0) += usize::from(actor.lives());
        *open.entry(&actor.key).or_insert(0) += usize::from(!actor.ended);
    }
    if let Some((key, _)) = alive.iter().find(|(_, count)| **count > 1) {
        return Err(format!("G1: two generations of {key:?} have living processes"));
    }
    if let Some((key, _)) = open.iter().find(|(_, count)| **count > 1) {
        let dying = world
            .sessions
            .iter()
            .any(|(id, actor)| actor.key == **key && !actor.ended && world.closing.contains(id));
        let guarantee = if dying { "G1" } else { "G2" };
        return Err(format!("{guarantee}: two generations of {key:?} exist"));
    }
    trees(world)?;
    idleness(world)?;
    tokens(world)?;
    let sessions: usize = open.values().sum();
    if sessions > world.limit {
        return Err(format!("G6: {sessions} sessions exist, and the limit is {}", world.limit));
    }
    for (request, key) in &world.waits {
        let unanswered = !world.replies.contains_key(request) && !world.cancelled.contains(request);
        let quarantined = matches!(world.registry.current(key), Some((_, Phase::Quarantined)));
        if unanswered && quarantined && world.is_direct(key) {
            return Err(format!("G39: {request:?} waits for the kernel on a direct session"));
        }
    }
    if slots(&world.registry) < sessions {
        return Err(format!("G6: {sessions} sessions exist, and {} slots are taken", slots(&world.registry)));
    }
    Ok(())
}

/// A token means its session from the admission until nothing is left of that, or until it is revoked, and never another one.
fn tokens(world: &World) -> Result<(), String> {
    for (id, actor) in &world.sessions {
        let presented = world.registry.presented(&actor.key, *id);
        let holds = world.registry.current(&actor.key).is_some_and(|(holder, _)| holder == *id);
        let detached = world.detached.contains(id);
        match presented {
            Ok(meant) if meant != *id => return Err(format!("G41: the token of {id:?} means {meant:?}")),
            Ok(_) if detached => return Err(format!("G41: the token of {id:?} outlives its client's end")),
            Ok(_) if !holds => return Err(format!("G41: the token of {id:?} outlives it")),
            Err(_) if holds && !detached => {
                return Err(format!("G41: {id:?} is there, and its token is none"));
            }
            _ => {}
        }
        if detached != world.revoked.contains(id) {
            return Err(format!("G41: the token of {id:?} is not what it was said to be"));
        }
    }
    Ok(())
}

/// Before a session is closed for being idle.
pub(crate) fn idle(world: &World, id: SessionId) -> Result<(), String> {
    let actor = &world.sessions[&id];
    // Without a limit it is a wish like any other.
    let Some(limit) = world.limits.idle else { return Ok(()) };
    let held_off = if actor.calls.is_empty() { limit.idle } else { limit.idle.max(limit.pin) };
    if world.now < actor.last.after(held_off) {
        let (calls, last) = (actor.calls.len(), world.now.since(actor.last));
        return Err(format!("G32: {id:?} is closed as idle {last:?} after it was used, with {calls} calls"));
    }
    Ok(())
}

/// Before a session is closed to make room.
pub(crate) fn evicted(world: &World, id: SessionId) -> Result<(), String> {
    let actor = &world.sessions[&id];
    if actor.gate_open || !actor.calls.is_empty() {
        return Err(format!(
            "G32: {id:?} makes room with {} calls, gate open: {}",
            actor.calls.len(),
            actor.gate_open
        ));
    }
    Ok(())
}

/// A live session watches its idleness, by one timer.
fn idleness(world: &World) -> Result<(), String> {
    for (id, _, phase) in world.registry.sessions(None) {
        let Some(actor) = world.sessions.get(&id) else { continue };
        let live = matches!(actor.machine.state(), SessionState::Ready | SessionState::Degraded);
        let limited = world.limits.idle.is_some() && !world.is_direct(&actor.key);
        // A parked session has nothing to watch.
        let limited = limited && actor.at_gate.is_none() && actor.machine.fine_state() == "live";
        if phase == Phase::Live && live && limited && !actor.lost && !actor.machine.watches_idleness() {
            return Err(format!("G33: {id:?} is live, and nothing watches its idleness"));
        }
    }
    Ok(())
}

/// Nothing is open below a session that is closed, and nothing outlives what it is below, but for what the kernel holds.
fn trees(world: &World) -> Result<(), String> {
    for (id, key, phase) in world.registry.sessions(None) {
        let Some(parent) = world.registry.parent(id) else { continue };
        let above = world.registry.sessions(None).into_iter().find(|(holder, _, _)| *holder == parent);
        let above = above.map(|(_, _, phase)| phase);
        let is_open = matches!(phase, Phase::Starting | Phase::Live);
        if is_open && !matches!(above, Some(Phase::Starting | Phase::Live)) {
            return Err(format!("G21: {key:?} is {phase:?} below {parent:?}, which is {above:?}"));
        }
        let over = world.sessions.get(&parent).is_some_and(|actor| actor.ended && !actor.lost);
        if over && phase != Phase::Quarantined {
            return Err(format!("G21: {key:?} outlives {parent:?}, below which it was opened"));
        }
    }
    Ok(())
}

pub(crate) fn registry_step(
    world: &World,
    before: &Registry,
    event: &RegistryEvent,
    effects: &[RegistryEffect],
) -> Result<(), String> {
    let fact_of = match event {
        RegistryEvent::SessionReady { session }
        | RegistryEvent::CloseWanted { session, .. }
        | RegistryEvent::IdleClaimed { session }
        | RegistryEvent::GateRetired { session }
        | RegistryEvent::Detached { session }
        | RegistryEvent::SessionEnded { session, .. }
        | RegistryEvent::SessionQuarantined { session }
        | RegistryEvent::SessionLost { session } => Some(*session),
        _ => None,
    };
    if let Some(session) = fact_of {
        let holds = |id: &SessionId| before.sessions(None).iter().any(|(holder, _, _)| holder == id);
        if !holds(&session) && (!effects.is_empty() || before.counts() != world.registry.counts()) {
            return Err(format!("G3: {event:?} of a session that is over does {effects:?}"));
        }
    }
    if let RegistryEvent::Cancel { .. } = event
        && slots(before) != slots(&world.registry)
    {
        return Err("G7: a cancel frees a slot whose session is not gone".to_owned());
    }
    Ok(())
}

/// Before an answer is given.
pub(crate) fn reply(world: &World, request: RequestId, result: &Outcome) -> Result<(), String> {
    if let Some(before) = world.replies.get(&request) {
        return Err(format!("{request:?} is answered twice: {before:?} and {result:?}"));
    }
    if world.cancelled.contains(&request) {
        return Err(format!("{request:?} was cancelled and is answered with {result:?}"));
    }
    let gone = |session: &SessionId| {
        let actor = &world.sessions[session];
        actor.ended && !actor.lives()
    };
    match result {
        Ok(Answer::Closed { session }) if !gone(session) => {
            Err(format!("G13: {request:?} is told that {session:?} is closed before it is"))
        }
        Ok(Answer::Reached { session, goal: Goal::Closed }) if !gone(session) => {
            Err(format!("G20: {request:?} is told that {session:?} is closed before it is"))
        }
        Ok(Answer::Opened { session, .. }) if world.closing.contains(session) => {
            Err(format!("G22: {request:?} is told that {session:?} is open after its close"))
        }
        _ => Ok(()),
    }
}

pub(crate) fn server_step(
    actor: &ServerActor,
    event: ServerEvent,
    effects: &[ServerEffect],
) -> Result<(), String> {
    let ready = effects.contains(&ServerEffect::Report(ServerReport::Ready));
    if actor.stopped && ready {
        return Err(format!("G17: {event:?} publishes a server that was stopped"));
    }
    let followed = actor.process.as_ref().is_some_and(|process| process.followed);
    if followed && effects.contains(&ServerEffect::Report(ServerReport::Failed(Failure::Exited))) {
        return Err("G34: a server that left with its client has failed".to_owned());
    }
    if actor.stopped && effects.iter().any(|effect| matches!(effect, ServerEffect::Launch { .. })) {
        return Err("G29: a server is started after its stop".to_owned());
    }
    Ok(())
}

/// An incarnation is released once, and with nothing left of it.
pub(crate) fn release(
    process: Option<&Process>,
    incarnation: Incarnation,
    hurried: bool,
) -> Result<(), String> {
    match process {
        None => Err(format!("G15: {incarnation:?} is released twice")),
        Some(process) if process.lives() => Err(format!("G12: {incarnation:?} is released while it lives")),
        Some(process) => {
            let (term, kill) = (process.at(Signal::Term), process.at(Signal::Kill));
            if let (Some(term), Some(kill)) = (term, kill)
                && !hurried
                && !process.reaped
                && kill.since(term) < super::world::TERM_GRACE
            {
                return Err(format!("G16: killed {:?} after SIGTERM", kill.since(term)));
            }
            Ok(())
        }
    }
}

/// When nothing is under way, nobody waits at a parked gate: the session is awake, or says why it is not.
pub(crate) fn gates(world: &World) -> Result<(), String> {
    let mut actors = world.sessions.iter().filter(|(_, actor)| !actor.lost && !actor.ended);
    match actors.find(|(_, actor)| actor.at_gate.iter().any(|calls| !calls.is_empty())) {
        Some((id, _)) => Err(format!("G19: a call waits for ever at the parked gate of {id:?}")),
        None => Ok(()),
    }
}

/// When nothing can happen any more.
pub(crate) fn at_rest(world: &World) -> Result<(), String> {
    gates(world)?;
    for request in &world.sent {
        if !world.replies.contains_key(request) && !world.cancelled.contains(request) {
            return Err(format!("{request:?} is never answered"));
        }
    }
    for (request, answer) in &world.changes {
        // With the session's actor its answers are lost: who asked learns that.
        let lost = world.changed.get(request).is_some_and(|id| world.sessions[id].lost);
        if answer.is_none() && !lost && !world.cancelled.contains(request) {
            return Err(format!("the change {request:?} is never answered"));
        }
    }
    // A launch that never hung needs nobody to let it go.
    let stuck = |acts: &&std::collections::VecDeque<Act>| {
        !matches!(acts.front(), None | Some(Act::Let(..) | Act::AwaitChange(_)))
    };
    if let Some(acts) = world.clients.iter().find(stuck) {
        return Err(format!("a client waits for ever: {acts:?}"));
    }
    for (id, actor) in &world.sessions {
        let holds = world.registry.current(&actor.key).filter(|(holder, _)| holder == id);
        match holds {
            None if !actor.ended => return Err(format!("G4: {id:?} is not gone, and holds no key")),
            Some((_, phase)) if actor.ended => {
                return Err(format!("G7: {id:?} is gone, and still {phase:?}"));
            }
            Some((_, phase @ (Phase::Starting | Phase::Dying))) => {
                return Err(format!("{id:?} is {phase:?} for ever"));
            }
            _ => {}
        }
    }
    let left: u32 = world
        .sessions
        .values()
        .flat_map(|actor| &actor.servers)
        .map(|server| u32::from(server.process.is_some()))
        .sum();
    if world.launches != world.releases + left {
        return Err(format!("G15: {} launches, {} releases, {left} left", world.launches, world.releases));
    }
    Ok(())
}
