//! Live sessions that differ from what their profile is now: servers that are the same stay as they are, others are replaced, added, removed.
use super::plan::{self, Has, Step};
use crate::config::{Config, Replace};
use crate::convert;
use crate::daemon::Daemon;
use crate::resolve;
use mcpvisor_control::results::{Owner, ReloadOutcome, ReloadedServer, ReloadedSession};
use mcpvisor_control::{ErrorObject, ServerName as WireServerName};
use mcpvisor_lifecycle::server::Mode;
use mcpvisor_lifecycle::{ServerName, SessionId};
use mcpvisor_supervisor::{Failure, Given, Profiled, ServerSpec, definition_of};
use std::sync::Arc;
use tokio::task::JoinSet;

/// Brings every session to what its profile is now, side by side, and tells of those whose profile has changed or that differed from it. A server that
/// can't be changed leaves the others to go on; the next reload tries it again.
pub(super) async fn apply(daemon: &Daemon, old: &Arc<Config>, new: &Arc<Config>) -> Vec<ReloadedSession> {
    let mut work = JoinSet::new();
    for (place, session) in daemon.supervisor.profiled().into_iter().enumerate() {
        let profile = &session.origin.profile;
        let has_changed = old.profiles.get(profile) != new.profiles.get(profile);
        // That a profile is gone is told once.
        if has_changed || new.profiles.contains_key(profile) {
            let (daemon, new) = (daemon.clone(), Arc::clone(new));
            work.spawn(async move {
                let done = Change { daemon, session }.apply(&new).await;
                (place, Some(done).filter(|done| has_changed || differed(done)))
            });
        }
    }
    let mut done = Vec::new();
    while let Some(one) = work.join_next().await {
        match one {
            Ok((place, one)) => done.extend(one.map(|one| (place, one))),
            Err(error) => tracing::error!(%error, "the change of a session broke"),
        }
    }
    done.sort_unstable_by_key(|(place, _)| *place);
    let done: Vec<_> = done.into_iter().map(|(_, session)| session).collect();
    done.iter().for_each(tell);
    done
}

/// The same of one session that was opened as an older configuration said.
pub(super) async fn catch_up(daemon: &Daemon, session: SessionId) {
    let Some(session) = daemon.supervisor.profiled_session(session) else { return };
    let done = Change { daemon: daemon.clone(), session }.apply(&daemon.config()).await;
    if differed(&done) {
        tell(&done);
    }
}

fn differed(done: &ReloadedSession) -> bool {
    let as_it_was = |server: &ReloadedServer| {
        matches!(server.outcome, ReloadOutcome::Unchanged | ReloadOutcome::RemovedByHand)
    };
    done.error.is_some() || !done.servers.iter().all(as_it_was)
}

/// The log gets what the caller gets.
fn tell(session: &ReloadedSession) {
    let (key, generation, profile) = (&session.key, session.generation, &session.profile);
    if let Some(error) = &session.error {
        let cause = &error.message;
        tracing::warn!(session = %key, generation, profile, cause, "a session was not brought to its changed profile");
    }
    for server in &session.servers {
        let name = &server.name;
        match &server.error {
            None => {
                let outcome = server.outcome.as_str();
                tracing::info!(session = %key, generation, server = %name, outcome, "reloaded");
            }
            Some(error) => {
                let cause = &error.message;
                tracing::warn!(session = %key, generation, server = %name, cause, "a server could not be changed");
            }
        }
    }
}

struct Change {
    daemon: Daemon,
    session: Profiled,
}

impl Change {
    async fn apply(&self, new: &Config) -> ReloadedSession {
        let origin = &self.session.origin;
        let (servers, error) = match resolve::of_origin(new, origin).await {
            Ok(wanted) => (self.bring(new, &wanted).await, None),
            Err(error) => (Vec::new(), Some(error)),
        };
        ReloadedSession {
            key: convert::wire_key(&self.session.target.key.key),
            generation: self.session.session.generation.0,
            owner: Owner { uid: self.session.session.uid.0 },
            profile: origin.profile.clone(),
            servers,
            error,
        }
    }

    /// To the servers that are wanted, one after the other: so the order of the profile is that of their age.
    async fn bring(&self, new: &Config, wanted: &[ServerSpec]) -> Vec<ReloadedServer> {
        let (mut done, mut given) = (Vec::new(), Vec::new());
        for server in wanted {
            let has = self.session.given.iter().find(|has| has.name == server.name);
            let definition = definition_of(server);
            let of = |has: &Given| Has { definition: has.definition, member: has.spec.is_some() };
            let (outcome, result) =
                match (plan::step(has.map(of), definition), has.and_then(|has| has.spec.as_ref())) {
                    (Step::Keep, _) => (ReloadOutcome::Unchanged, Ok(())),
                    (Step::LeaveAway, _) => (ReloadOutcome::RemovedByHand, Ok(())),
                    (Step::Replace, Some(before)) if self.stops_first(new, before, server) => {
                        (ReloadOutcome::Replaced, self.stop_first(server).await)
                    }
                    (Step::Replace, Some(_)) => (ReloadOutcome::Replaced, self.start_first(server).await),
                    (Step::Replace, None) | (Step::Add, _) => (ReloadOutcome::Added, self.add(server).await),
                };
            match &result {
                Ok(()) => given.push((server.name.clone(), definition)),
                Err(_) => given.extend(has.filter(|has| self.runs(has)).map(as_given)),
            }
            done.push(self.told(&server.name, outcome, result));
        }
        for gone in
            self.session.given.iter().filter(|has| wanted.iter().all(|server| server.name != has.name))
        {
            if gone.spec.is_none() {
                // It was removed by hand before.
                continue;
            }
            let removed = self.remove(&gone.name).await;
            if removed.is_err() && self.runs(gone) {
                given.push(as_given(gone));
            }
            done.push(self.told(&gone.name, ReloadOutcome::Removed, removed));
        }
        self.daemon.supervisor.redefine(self.session.session, given);
        done
    }

    /// It is a member of the session still.
    fn runs(&self, given: &Given) -> bool {
        let now = self.daemon.supervisor.profiled_session(self.session.session);
        now.is_some_and(|now| now.given.iter().any(|of| of.name == given.name && of.spec.is_some()))
    }

    /// An exclusive server has one client and can't be two; others say so in the profile.
    fn stops_first(&self, new: &Config, before: &ServerSpec, server: &ServerSpec) -> bool {
        let profile = new.profiles.get(&self.session.origin.profile);
        let written = profile.and_then(|profile| profile.servers.iter().find(|of| of.name == server.name));
        before.mode == Mode::Exclusive
            || server.mode == Mode::Exclusive
            || written.is_some_and(|written| written.replace == Replace::StopFirst)
    }

    async fn start_first(&self, server: &ServerSpec) -> Result<(), ErrorObject> {
        let target = self.session.target.clone();
        let replaced = self.daemon.supervisor.replace_server(target, server.clone(), None, ()).await;
        replaced.map(drop).map_err(|failure| self.error(failure))
    }

    /// Where the new one does not start, the former is started again.
    async fn stop_first(&self, server: &ServerSpec) -> Result<(), ErrorObject> {
        let (supervisor, target) = (&self.daemon.supervisor, &self.session.target);
        let yielded = supervisor.yield_server(target.clone(), server.name.clone()).await;
        yielded.map_err(|failure| self.error(failure))?;
        let Err(mut error) = self.start_first(server).await else { return Ok(()) };
        let again = supervisor.restart_server(target.clone(), server.name.clone(), None, None, ()).await;
        error.message += match again {
            Ok(_) => "; the former server was started again",
            Err(_) => "; the former server could not be started again at once",
        };
        Err(error)
    }

    async fn add(&self, server: &ServerSpec) -> Result<(), ErrorObject> {
        let target = self.session.target.clone();
        let added = self.daemon.supervisor.add_server(target, server.clone(), None, ()).await;
        added.map(drop).map_err(|failure| self.error(failure))
    }

    async fn remove(&self, name: &ServerName) -> Result<(), ErrorObject> {
        let target = self.session.target.clone();
        let removed = self.daemon.supervisor.remove_server(target, name.clone(), None, None, ()).await;
        removed.map(drop).map_err(|failure| self.error(failure))
    }

    fn error(&self, failure: Failure) -> ErrorObject {
        convert::error(failure, Some(&self.session.target.key.key))
    }

    fn told(
        &self,
        name: &ServerName,
        outcome: ReloadOutcome,
        result: Result<(), ErrorObject>,
    ) -> ReloadedServer {
        let name: WireServerName = convert::wire_server_name(name);
        match result {
            Ok(()) => ReloadedServer { name, outcome, error: None },
            Err(error) => ReloadedServer { name, outcome: ReloadOutcome::Failed, error: Some(error) },
        }
    }
}

fn as_given(has: &Given) -> (ServerName, u64) {
    (has.name.clone(), has.definition)
}
