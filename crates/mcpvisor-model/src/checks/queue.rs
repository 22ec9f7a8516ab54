//! Turns of those that wait for a slot, and what breakers let through.
use crate::rules::{Checked, Property, Witness};
use crate::world::{Context, World};
use mcpvisor_lifecycle::registry::{Queued, Registry, RegistryEffect, RegistryEvent};
use mcpvisor_lifecycle::{RequestId, Uid};
use std::collections::BTreeMap;

/// An open that waits for a slot, and the asks that got one while it could have had it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Passed {
    waits: u8,
    by: Vec<u8>,
}

/// What is known of each user's breaker, from what was told alone.
pub(crate) type Breakers = BTreeMap<Uid, Breaker>;

/// Of the one spec that there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct Breaker {
    failures: u32,
    open: bool,
    /// The session that tries.
    trial: Option<u8>,
}

fn number(request: RequestId) -> u8 {
    u8::try_from(request.0 - 1).expect("asks are few")
}

/// Whose an ask is: the user, and the user's tenant.
fn whose(context: &Context<'_>, ask: u8) -> (u32, Option<&'static str>) {
    let (_, ask) = context.asks[usize::from(ask)];
    let key = ask.key().expect("an open has a key");
    (context.config.keys[usize::from(key)].uid.0, ask.tenant())
}

/// How much is taken by what holds a key.
struct Taken<'a> {
    context: &'a Context<'a>,
    held: Vec<(u32, Option<&'static str>)>,
}

impl Taken<'_> {
    fn fits(&self, ask: u8) -> bool {
        let [total, per_user, per_tenant] = self.context.config.slots;
        let (user, tenant) = whose(self.context, ask);
        let of_user = self.held.iter().filter(|(other, _)| *other == user).count();
        let of_tenant = self.held.iter().filter(|other| **other == (user, tenant)).count();
        self.held.len() < total && of_user < per_user && (tenant.is_none() || of_tenant < per_tenant)
    }
}

/// After a step of the registry.
pub(crate) fn queue(
    world: &mut World,
    context: &Context<'_>,
    before: &Registry,
    event: &RegistryEvent,
    effects: &[RegistryEffect],
) -> Checked {
    let after = world.registry.get().machine.queued(None);
    if world.passed.is_empty() && after.is_empty() {
        return Ok(());
    }
    positions(&before.queued(None), &after, effects)?;
    // What ended in this step is free before anybody is served.
    let ended = match event {
        RegistryEvent::SessionEnded { session, .. } => Some(*session),
        _ => None,
    };
    let held = before.sessions(None).into_iter().filter(|(id, ..)| Some(*id) != ended);
    let held = held.filter_map(|(id, ..)| {
        let tenant = world.place(id).map(|place| world.cell(place).tenant)?;
        Some((id.uid.0, tenant))
    });
    let mut taken = Taken { context, held: held.collect() };
    for effect in effects {
        let RegistryEffect::Start { request, .. } = effect else { continue };
        let served = number(*request);
        if let Some(at) = world.passed.iter().position(|passed| passed.waits == served) {
            serve(world, &taken, at)?;
        } else if matches!(event, RegistryEvent::Open(_))
            && world.passed.iter().any(|passed| taken.fits(passed.waits))
        {
            return Err(Property::Turns.broken("who comes later passes one that waits for a slot"));
        }
        taken.held.push(whose(context, served));
    }
    // In the order of arrival: those that are new stand behind the others.
    world.passed.retain(|passed| after.iter().any(|queued| number(queued.request) == passed.waits));
    for queued in after {
        let waits = number(queued.request);
        if !world.passed.iter().any(|passed| passed.waits == waits) {
            context.saw(Witness::Queued);
            world.passed.push(Passed { waits, by: Vec::new() });
        }
    }
    let expired = matches!(event, RegistryEvent::Timeout);
    let refused = effects.iter().any(|effect| {
        use mcpvisor_lifecycle::registry::Refusal::CapacityExhausted;
        matches!(effect, RegistryEffect::Reply { result: Err(CapacityExhausted { .. }), .. })
    });
    context.saw_if(expired && refused, Witness::QueueExpired);
    Ok(())
}

fn serve(world: &mut World, taken: &Taken<'_>, at: usize) -> Checked {
    let context = taken.context;
    let served = world.passed.remove(at).waits;
    let (user, tenant) = whose(context, served);
    context.saw(Witness::Served);
    for (place, passed) in world.passed.iter_mut().enumerate() {
        let (other, line) = whose(context, passed.waits);
        if !taken.fits(passed.waits) {
            context.saw_if(place < at, Witness::PassedOver);
            continue;
        }
        let before = |twice: &dyn Fn(u8) -> bool| passed.by.iter().any(|by| twice(*by));
        let again = if other != user {
            before(&|by| whose(context, by).0 == user)
        } else if line != tenant {
            before(&|by| whose(context, by) == (user, tenant))
        } else {
            place < at
        };
        if again {
            return Err(Property::Turns.broken("someone is served twice while another one waits for a turn"));
        }
        passed.by.push(served);
    }
    // Who is served has had a turn: the others of the user, and of the tenant, begin to wait for theirs anew.
    for passed in &mut world.passed {
        let (other, line) = whose(context, passed.waits);
        if other == user {
            passed.by.retain(|by| whose(context, *by).0 == user);
            if line == tenant {
                passed.by.clear();
            }
        }
    }
    if let Some(next) = world.passed.first() {
        let (other, line) = whose(context, next.waits);
        context.saw_if(other != user, Witness::UsersTookTurns);
        context.saw_if(other == user && line != tenant, Witness::TenantsTookTurns);
    }
    Ok(())
}

/// Each that waits was told where it stands.
fn positions(before: &[Queued], after: &[Queued], effects: &[RegistryEffect]) -> Checked {
    for queued in after {
        let was = before.iter().find(|old| old.request == queued.request).map(|old| old.position);
        let told = effects.iter().rev().find_map(|effect| match effect {
            RegistryEffect::Queued { request, position } if *request == queued.request => Some(*position),
            _ => None,
        });
        if told.or(was) != Some(queued.position) {
            return Err(Property::Turns.broken("one that waits for a slot is not told where it stands"));
        }
    }
    Ok(())
}

/// The same for the breaker.
pub(crate) fn breaker(
    world: &mut World,
    context: &Context<'_>,
    event: &RegistryEvent,
    effects: &[RegistryEffect],
    was_starting: bool,
) -> Checked {
    let Some((failures, ends)) = context.config.breaker else { return Ok(()) };
    if let RegistryEvent::StartFailed { session, .. }
    | RegistryEvent::SessionReady { session }
    | RegistryEvent::SessionEnded { session, .. } = event
    {
        let place = world.place(*session);
        let breaker = world.breakers.entry(session.uid).or_default();
        if breaker.trial.is_some() && breaker.trial == place {
            breaker.trial = None;
        }
        match event {
            RegistryEvent::StartFailed { .. } if was_starting && !breaker.open => {
                breaker.failures += 1;
                breaker.open = breaker.failures >= failures;
            }
            RegistryEvent::SessionReady { .. } if was_starting => *breaker = Breaker::default(),
            _ => {}
        }
    }
    for effect in effects {
        match effect {
            RegistryEffect::Start { session, .. } => {
                let breaker = world.breakers.entry(session.uid).or_default();
                if !breaker.open {
                    continue;
                }
                if !ends || breaker.trial.is_some() {
                    return Err(Property::Health.broken("a session starts that a breaker forbids"));
                }
                context.saw(Witness::BreakerTried);
                // It gets its place in this step.
                breaker.trial = u8::try_from(world.sessions.len()).ok();
            }
            RegistryEffect::Reply {
                result: Err(mcpvisor_lifecycle::registry::Refusal::Broken(_)), ..
            } => {
                context.saw(Witness::BreakerRefused);
            }
            _ => {}
        }
    }
    Ok(())
}
