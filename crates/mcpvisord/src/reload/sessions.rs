//! Live sessions whose profile has changed: servers that are the same stay as they are, others are replaced, added, removed.
use crate::config::{Config, Replace};
use crate::convert;
use crate::daemon::Daemon;
use crate::resolve;
use mcpvisor_control::results::{Owner, ReloadOutcome, ReloadedServer, ReloadedSession};
use mcpvisor_control::{ErrorObject, ServerName as WireServerName};
use mcpvisor_lifecycle::ServerName;
use mcpvisor_lifecycle::server::Mode;
use mcpvisor_supervisor::{Failure, Profiled, ServerSpec, is_same_server};
use std::sync::Arc;
use tokio::task::JoinSet;

/// Brings every session of a changed profile to what its profile is now, side by side. A server that can't be changed leaves the others to go on.
pub(super) async fn apply(daemon: &Daemon, old: &Arc<Config>, new: &Arc<Config>) -> Vec<ReloadedSession> {
    let mut work = JoinSet::new();
    for (place, session) in daemon.supervisor.profiled().into_iter().enumerate() {
        let profile = &session.origin.profile;
        if old.profiles.get(profile) != new.profiles.get(profile) {
            let (daemon, old, new) = (daemon.clone(), Arc::clone(old), Arc::clone(new));
            work.spawn(async move { (place, Change { daemon, session }.apply(&old, &new).await) });
        }
    }
    let mut done = Vec::new();
    while let Some(one) = work.join_next().await {
        match one {
            Ok(one) => done.push(one),
            Err(error) => tracing::error!(%error, "the change of a session broke"),
        }
    }
    done.sort_unstable_by_key(|(place, _)| *place);
    let done: Vec<_> = done.into_iter().map(|(_, session)| session).collect();
    done.iter().for_each(tell);
    done
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
    async fn apply(&self, old: &Config, new: &Config) -> ReloadedSession {
        let origin = &self.session.origin;
        let resolved = async {
            let wanted = resolve::of_origin(new, origin).await?;
            Ok::<_, ErrorObject>((resolve::of_origin(old, origin).await?, wanted))
        };
        let (servers, error) = match resolved.await {
            Ok((former, wanted)) => (self.bring(new, &former, &wanted).await, None),
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

    /// From the former servers to those that are wanted, one after the other: so the order of the profile is that of their age.
    async fn bring(&self, new: &Config, former: &[ServerSpec], wanted: &[ServerSpec]) -> Vec<ReloadedServer> {
        let mut done = Vec::new();
        for server in wanted {
            let before = former.iter().find(|known| known.name == server.name);
            let (outcome, result) = match before {
                Some(before) if is_same_server(before, server) => (ReloadOutcome::Unchanged, Ok(())),
                Some(before) if self.stops_first(new, before, server) => {
                    (ReloadOutcome::Replaced, self.stop_first(before, server).await)
                }
                Some(_) => (ReloadOutcome::Replaced, self.start_first(server).await),
                None => (ReloadOutcome::Added, self.add(server).await),
            };
            done.push(self.told(&server.name, outcome, result));
        }
        for gone in former.iter().filter(|known| wanted.iter().all(|server| server.name != known.name)) {
            let removed = self.remove(&gone.name).await;
            done.push(self.told(&gone.name, ReloadOutcome::Removed, removed));
        }
        if done.iter().all(|server| server.outcome != ReloadOutcome::Failed) {
            self.daemon.supervisor.redefine(self.session.session, wanted);
        }
        done
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
        let replaced = self.daemon.supervisor.replace_server(target, server.clone(), None).await;
        replaced.map(drop).map_err(|failure| self.error(failure))
    }

    /// Where the new one does not start, the former is started again.
    async fn stop_first(&self, before: &ServerSpec, server: &ServerSpec) -> Result<(), ErrorObject> {
        self.remove(&before.name).await?;
        let Err(mut error) = self.add(server).await else { return Ok(()) };
        error.message += match self.add(before).await {
            Ok(()) => "; the former server was started again",
            Err(_) => "; the former server could not be started again",
        };
        Err(error)
    }

    async fn add(&self, server: &ServerSpec) -> Result<(), ErrorObject> {
        let target = self.session.target.clone();
        let added = self.daemon.supervisor.add_server(target, server.clone(), None).await;
        added.map(drop).map_err(|failure| self.error(failure))
    }

    async fn remove(&self, name: &ServerName) -> Result<(), ErrorObject> {
        let target = self.session.target.clone();
        let removed = self.daemon.supervisor.remove_server(target, name.clone(), None, None).await;
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
