//! What happens without an actor: `lost.rs` of the supervisor, the registry's successor, and the next daemon.
use crate::clocked::Clocked;
use crate::kernel::Tree;
use crate::mail::{Letter, Way};
use crate::rules::{Checked, Witness};
use crate::shared::Shared;
use crate::world::{Asked, Context, World, seeded};
use mcpvisor_lifecycle::registry::{Left, Registry, RegistryEvent};
use mcpvisor_lifecycle::session::Ended;
use mcpvisor_lifecycle::{Generation, Tenant, Uid};
use std::collections::BTreeMap;

impl World {
    pub(crate) fn lose_server(&mut self, session: u8, place: u8) {
        self.luck.lost_servers -= 1;
        let server = self.server(session, place);
        server.machine = None;
        server.lost = true;
        self.mail.drop_where(|lane| lane.session == session && lane.way.server() == Some(place));
        self.post(session, Way::ServerLost(place), Letter::ServerLost);
    }

    pub(crate) fn lose_session(&mut self, session: u8) {
        self.luck.lost_sessions -= 1;
        self.end_actors(session);
        self.post(session, Way::SessionLost, Letter::SessionLost);
    }

    /// A session's actor is gone, its servers' with it, and all that was under way to them.
    fn end_actors(&mut self, session: u8) {
        let cell = self.edit(session);
        cell.machine = None;
        for server in &mut cell.servers {
            server.machine = None;
            server.lost = true;
            (server.reaps, server.reap_timers) = (0, 0);
        }
        self.drop_changes(session);
        self.mail.drop_where(|lane| lane.session == session && !lane.way.to_registry());
    }

    /// Kills what lives and what is yet to be born; the outcome is told by `SessionReaped` and `SessionNotReaped`.
    pub(crate) fn reap_session(&mut self, context: &Context<'_>, session: u8) {
        if self.cell(session).over {
            return;
        }
        context.saw(Witness::SessionReaped);
        self.end_actors(session);
        self.close_gate(context, session);
        self.settle_calls(context, session);
        let cell = self.edit(session);
        cell.condemned = true;
        cell.was_lost = true;
        cell.reap_timers += 1;
        for server in &mut cell.servers {
            server.trees.iter_mut().for_each(Tree::kill);
        }
    }

    pub(crate) fn session_reaped(&mut self, session: u8) -> Checked {
        self.end_session(session)?;
        self.post(session, Way::SessionReaped, Letter::Ended(Ended::Failed));
        Ok(())
    }

    /// The same for a server of a session whose actor lives.
    pub(crate) fn reap_server(&mut self, context: &Context<'_>, session: u8, place: u8) {
        context.saw(Witness::ServerReaped);
        let server = self.server(session, place);
        if server.trees.is_empty() {
            self.post(session, Way::ServerReaped(place), Letter::Reaped { empty: true });
            return;
        }
        server.reaps += 1;
        server.reap_timers += 1;
        server.trees.iter_mut().for_each(Tree::kill);
    }

    pub(crate) fn server_reaped(&mut self, session: u8, place: u8) {
        let server = self.server(session, place);
        server.trees.clear();
        for _ in 0..std::mem::take(&mut server.reaps) {
            self.post(session, Way::ServerReaped(place), Letter::Reaped { empty: true });
        }
    }

    /// The registry's actor is lost with all that was told it. Its successor starts from the records.
    pub(crate) fn lose_registry(&mut self, context: &Context<'_>) -> Checked {
        self.luck.lost_registries -= 1;
        let left: Vec<u8> = self.places().filter(|place| !self.cell(*place).over).collect();
        context.saw_if(left.iter().any(|place| self.cell(*place).lives()), Witness::RegistryLost);
        self.mail.drop_where(|lane| lane.way.to_registry());
        self.succeed(context, &left);
        for session in &left {
            self.reap_session(context, *session);
        }
        // Opens fail; who waits for a session asks again.
        for (asked, (_, ask)) in self.asked.iter_mut().zip(context.asks) {
            if let Asked::Waiting(meant) = *asked {
                let is_open = matches!(ask, crate::asks::Ask::Open(_));
                *asked = if is_open { Asked::Answered } else { Asked::Again(meant) };
            }
        }
        self.passed.clear();
        self.breakers.clear();
        self.repeat_shutdown(context)
    }

    /// The daemon is killed: its actors, its clients and the launches under way go with it. What lives is killed by the guardian or the
    /// next daemon's sweep, sooner or later; its keys are blocked until then.
    pub(crate) fn die(&mut self, context: &Context<'_>) -> Checked {
        self.luck.deaths -= 1;
        for session in self.places().collect::<Vec<_>>() {
            if self.cell(session).over {
                continue;
            }
            self.end_actors(session);
            self.drop_calls(session);
            for server in &mut self.edit(session).servers {
                server.trees.retain(|tree| !tree.is_gone() && !tree.unborn);
            }
            if self.cell(session).is_gone() {
                self.end_session(session)?;
            }
        }
        let left: Vec<u8> = self.places().filter(|place| !self.cell(*place).over).collect();
        context.saw_if(!left.is_empty(), Witness::DaemonDied);
        self.mail.drop_where(|_| true);
        self.succeed(context, &left);
        for session in &left {
            self.edit(*session).recovered = true;
            self.reap_session(context, *session);
        }
        for asked in &mut self.asked {
            if matches!(asked, Asked::Waiting(_) | Asked::Again(_)) {
                *asked = Asked::Gone;
            }
        }
        (self.shutdown, self.finished) = (None, false);
        self.passed.clear();
        self.breakers.clear();
        Ok(())
    }

    /// A registry that takes over these sessions.
    fn succeed(&mut self, context: &Context<'_>, left: &[u8]) {
        let config = context.config;
        let taken = left.iter().map(|place| {
            let cell = self.cell(*place);
            Left {
                session: cell.id,
                key: config.keys[usize::from(cell.key)].clone(),
                tenant: cell.tenant.map(|name| Tenant::new(name).expect("it was one before")),
                quota: context.config.quota(),
                direct: config.is_direct(),
            }
        });
        let taken = taken.collect();
        let mut last: BTreeMap<Uid, Generation> = BTreeMap::new();
        for cell in &self.sessions {
            let id = cell.get().id;
            let highest = last.entry(id.uid).or_insert(id.generation);
            *highest = (*highest).max(id.generation);
        }
        let registry = Registry::recover(config.registry(), taken, last.into_iter().collect());
        self.registry = Shared::new(Clocked::new(seeded(registry, context.bug)));
    }

    /// A shutdown that was asked for outlasts the registry that it was asked of.
    fn repeat_shutdown(&mut self, context: &Context<'_>) -> Checked {
        let Some(urgency) = self.shutdown else { return Ok(()) };
        self.finished = false;
        self.tell_registry(context, RegistryEvent::Shutdown { urgency })
    }
}

/// Whether somebody will still hear of what is left of a lost session or server.
pub(crate) fn is_being_told(world: &World, session: u8) -> bool {
    let lane = |way| crate::mail::Lane { session, way };
    world.mail.first(lane(Way::SessionLost)).is_some()
}
