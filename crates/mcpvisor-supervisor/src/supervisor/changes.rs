//! Changes of a live session's servers: add, remove, restart, replace.
use super::Supervisor;
use super::failure::lost;
use super::host::not_a_host;
use crate::api::{Changed, Failure, ServerSpec};
use crate::certificate;
use crate::core::Core;
use crate::record::{ServerRecord, SessionRecord};
use crate::relay::exclusive::Relay;
use crate::session_actor::{Change, ChangeReply, SessionMsg, What};
use mcpvisor_failpoints::{self as failpoints, Gate};
use mcpvisor_lifecycle::registry::{Goal, Target};
use mcpvisor_lifecycle::server::{Mode, ServerState};
use mcpvisor_lifecycle::session::{ChangeRefusal, Changed as Done, MOST_SERVERS, SessionState};
use mcpvisor_lifecycle::{RequestId, ServerName, SessionId};
use ractor::ActorRef;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Tells the session that who asked for a change is gone, unless there is an answer.
struct Cancel {
    actor: ActorRef<SessionMsg>,
    request: Option<RequestId>,
}

impl Drop for Cancel {
    fn drop(&mut self) {
        if let Some(request) = self.request {
            let _ = self.actor.send_message(SessionMsg::CancelChange(request));
        }
    }
}

impl Supervisor {
    /// Adds a server to a live session, and answers when it is ready. Dropping the future undoes it, unless it is done.
    /// `handed` is dropped as soon as the session has been told, and before any wait for a session that is not ready: what is asked after that is done after this.
    ///
    /// # Errors
    /// `ServerExists`, `ServerFailed` (nothing of it is left), `SessionClosed`, `SessionClosing`; `Unsupported` of a session of one
    /// client; and see [`Failure`].
    pub async fn add_server(
        &self,
        target: Target,
        spec: ServerSpec,
        deadline: Option<Instant>,
        handed: impl Send,
    ) -> Result<Changed, Failure> {
        let (name, what) =
            (spec.name.clone(), What::Add { required: spec.required, significant: spec.significant });
        self.change(target, name, what, Some(spec), deadline, handed).await
    }

    /// The answer of an add does not reach its requester: it cancels late, and the server is removed again. One that somebody has changed
    /// since stays.
    pub fn unheard_add(&self, added: &Changed) {
        let session = SessionId { uid: added.session.owner, generation: added.session.generation };
        let actor = self.core.record(session).and_then(|record| record.live().actor.clone());
        if let Some(actor) = actor {
            let _ = actor.send_message(SessionMsg::CancelChange(added.request));
        }
    }

    /// Puts a server in the place of the one that has its name, once it is ready; that one drains and is ended then. A failure leaves the
    /// old one as it is. Dropping the future undoes it, unless it is done.
    ///
    /// # Errors
    /// As of [`Supervisor::add_server`].
    pub async fn replace_server(
        &self,
        target: Target,
        spec: ServerSpec,
        deadline: Option<Instant>,
        handed: impl Send,
    ) -> Result<Changed, Failure> {
        let (name, what) =
            (spec.name.clone(), What::Replace { required: spec.required, significant: spec.significant });
        self.change(target, name, what, Some(spec), deadline, handed).await
    }

    /// Removes a server from a live session: its tools are gone at once, its calls in flight have the drain's time, and the answer comes
    /// when nothing of it is left. It goes on whatever becomes of its requester (G14).
    ///
    /// # Errors
    /// `ServerQuarantined` where something of it can't be killed; it is removed all the same, and a second remove tries the kill again.
    pub async fn remove_server(
        &self,
        target: Target,
        name: ServerName,
        drain: Option<Duration>,
        deadline: Option<Instant>,
        handed: impl Send,
    ) -> Result<Changed, Failure> {
        self.change(target, name, What::Remove { drain }, None, deadline, handed).await
    }

    /// Ends a server by its ladder and starts it again; answers when it is ready.
    ///
    /// # Errors
    /// `ServerFailed` where it is not at its first try: it goes on by its restart policy.
    pub async fn restart_server(
        &self,
        target: Target,
        name: ServerName,
        drain: Option<Duration>,
        deadline: Option<Instant>,
        handed: impl Send,
    ) -> Result<Changed, Failure> {
        // One that sessions share is started again where its process is, and so for all of them.
        let record = self.resolve(target.clone(), true).await?;
        let Some(host) = Self::host_of(&record, &name) else {
            return self.change(target, name, What::Restart { drain }, None, deadline, handed).await;
        };
        let of_host = Target { key: host.key.clone(), generation: Some(host.id.generation) };
        let restart = async {
            let done =
                self.change_members(of_host, name.clone(), What::Restart { drain }, None, handed).await?;
            Ok(self.ready_again(&record, &host, &name, done.request).await)
        };
        match deadline {
            None => restart.await,
            Some(at) => {
                tokio::time::timeout_at(at.into(), restart).await.unwrap_or(Err(Failure::DeadlineExceeded))
            }
        }
    }

    /// Waits until the session has followed a server that was started again elsewhere, or no longer does.
    async fn ready_again(
        &self,
        record: &Arc<SessionRecord>,
        host: &SessionRecord,
        name: &ServerName,
        request: RequestId,
    ) -> Changed {
        let server = record.server(name);
        if let Some(server) = &server {
            let follows = async {
                loop {
                    let turned = server.turned.notified();
                    tokio::pin!(turned);
                    turned.as_mut().enable();
                    let (state, pid) = {
                        let live = server.live();
                        (live.state, live.pid)
                    };
                    // The process there is another now: this one may not have heard yet of the former one's end.
                    let newest = host.servers().first().and_then(|server| server.live().pid);
                    let behind = state == ServerState::Ready && newest.is_some() && newest != pid;
                    let turns =
                        matches!(state, ServerState::Starting | ServerState::Backoff | ServerState::Stopping);
                    if !behind && !turns {
                        return;
                    }
                    turned.await;
                }
            };
            let _ = tokio::time::timeout(server.spec.start, follows).await;
        }
        Changed {
            session: record.view(self.core.clock, record.containment(self.core.containment.kind())),
            server: server.map(|server| server.view(self.core.clock)),
            certificate: None,
            proof: None,
            request,
        }
    }

    /// Ends a server that another is to take the place of; answers when nothing of it is left. It stays the session's, and can't be called,
    /// until it is replaced, removed or started again.
    ///
    /// # Errors
    /// `ServerQuarantined` where something of it can't be killed; and see [`Failure`].
    pub async fn yield_server(&self, target: Target, name: ServerName) -> Result<Changed, Failure> {
        self.change(target, name, What::Yield, None, None, ()).await
    }

    async fn change(
        &self,
        target: Target,
        name: ServerName,
        what: What,
        spec: Option<ServerSpec>,
        deadline: Option<Instant>,
        handed: impl Send,
    ) -> Result<Changed, Failure> {
        let change = self.change_without_deadline(target, name, what, spec, handed);
        match deadline {
            None => change.await,
            Some(at) => {
                tokio::time::timeout_at(at.into(), change).await.unwrap_or(Err(Failure::DeadlineExceeded))
            }
        }
    }

    async fn change_without_deadline(
        &self,
        target: Target,
        name: ServerName,
        what: What,
        spec: Option<ServerSpec>,
        handed: impl Send,
    ) -> Result<Changed, Failure> {
        not_a_host(&*self.resolve(target.clone(), true).await?)?;
        self.change_members(target, name, what, spec, handed).await
    }

    async fn change_members(
        &self,
        target: Target,
        name: ServerName,
        what: What,
        spec: Option<ServerSpec>,
        handed: impl Send,
    ) -> Result<Changed, Failure> {
        let mut handed = Some(handed);
        let record = self.changeable(target, &mut handed).await?;
        if let Some(spec) = spec.as_ref().filter(|spec| spec.mode != Mode::Shared)
            && !record.policy.hold.is_empty()
        {
            return Err(Failure::Unsupported(format!(
                "server {} is not shared: calls of the session are held for approval, and the daemon never speaks to it",
                spec.name
            )));
        }
        if let Some(server) = record.server(&name).filter(|_| !matches!(what, What::Add { .. })) {
            not_attached(&server)?;
        }
        // A session that is parked is awake for the change, and none is idle meanwhile. A restart is the start of what does not run.
        let asleep = record.gate.is_parked();
        let _present = if asleep && matches!(what, What::Restart { .. }) {
            self.used(&record);
            None
        } else {
            if asleep {
                handed = None;
            }
            match self.enter(&record).await {
                Err(failed @ Failure::StartFailed { .. }) => return Err(failed),
                entered => entered.ok(),
            }
        };
        failpoints::pass(Gate::ChangeFound).await;
        let session = record.id;
        let Some(actor) = record.live().actor.clone() else {
            return Err(if record.has_ended() { Failure::SessionClosed { session } } else { lost() });
        };
        let request = self.core.request();
        let (answer, reply) = oneshot::channel();
        let change = Change { request, name: name.clone(), what };
        let mut cancel = Cancel { actor: actor.clone(), request: Some(request) };
        let _ = actor.send_message(SessionMsg::Change(change, spec.map(Box::new), answer));
        drop(handed);
        let reply = reply.await;
        cancel.request = None;
        match reply {
            Ok(reply) => changed(&self.core, &record, &name, request, reply),
            // The session's actor is gone: with the session, or lost.
            Err(_) if record.has_ended() => Err(Failure::SessionClosed { session }),
            Err(_) => Err(lost()),
        }
    }

    /// A session whose servers can be changed; one that starts is waited for.
    async fn changeable(
        &self,
        target: Target,
        handed: &mut Option<impl Send>,
    ) -> Result<Arc<SessionRecord>, Failure> {
        let record = self.resolve(target.clone(), true).await?;
        let session = record.id;
        if record.direct {
            let why = "a direct session has the one server of its client, and no other";
            return Err(Failure::Unsupported(why.to_owned()));
        }
        if record.relayed {
            let why = "a relayed session has the one server of its client, and no other";
            return Err(Failure::Unsupported(why.to_owned()));
        }
        let state = record.live().state;
        match state {
            SessionState::Closed | SessionState::Failed => Err(Failure::SessionClosed { session }),
            SessionState::Quarantined => Err(Failure::Quarantined { session }),
            SessionState::Starting => {
                *handed = None;
                let target = Target { generation: Some(session.generation), ..target };
                self.wait(target, Goal::Ready, None).await?;
                Ok(record)
            }
            // The session's machine decides, one after the other.
            _ => Ok(record),
        }
    }
}

fn not_attached(server: &ServerRecord) -> Result<(), Failure> {
    let attached = server.live().relay.as_ref().is_some_and(Relay::is_attached);
    match attached {
        false => Ok(()),
        true => Err(Failure::Unsupported(format!(
            "server {} is exclusive and has its client: it ends when that leaves",
            server.spec.name
        ))),
    }
}

fn changed(
    core: &Core,
    record: &Arc<SessionRecord>,
    name: &ServerName,
    request: RequestId,
    reply: ChangeReply,
) -> Result<Changed, Failure> {
    let (session, name) = (record.id, name.clone());
    let ChangeReply { result, server, remaining } = reply;
    match result {
        Ok(done) => {
            let kind = record.containment(core.containment.kind());
            let view = record.view(core.clock, kind);
            let removed = matches!(done, Done::Removed { .. });
            let shown = server.as_ref().filter(|_| !removed).map(|server| server.view(core.clock));
            let gone = server.filter(|_| removed);
            let proof = gone.as_ref().and_then(|server| certificate::proof(server, kind));
            let certificate = gone.map(|server| certificate::of_removed(&server));
            Ok(Changed { session: view, server: shown, certificate, proof, request })
        }
        Err(ChangeRefusal::Direct) => Err(Failure::Unsupported("the session is direct".to_owned())),
        Err(ChangeRefusal::Starting) => Err(Failure::Unsupported("the session is not ready yet".to_owned())),
        Err(ChangeRefusal::Closing) => Err(Failure::SessionClosing { session }),
        Err(ChangeRefusal::Closed) => Err(Failure::SessionClosed { session }),
        Err(ChangeRefusal::NoServer) => Err(Failure::Invalid(format!("the session has no server {name}"))),
        Err(ChangeRefusal::NameTaken) => Err(Failure::ServerExists { server: name }),
        Err(ChangeRefusal::Busy) => Err(Failure::ServerBusy { server: name }),
        Err(ChangeRefusal::TooMany) => {
            Err(Failure::Invalid(format!("a session has at most {MOST_SERVERS} servers")))
        }
        Err(ChangeRefusal::Failed { .. }) => {
            let failure = server.and_then(|server| server.live().failure.clone()).map(Box::new);
            Err(Failure::ServerFailed { session, server: name, failure })
        }
        Err(ChangeRefusal::Quarantined { .. }) => {
            Err(Failure::ServerQuarantined { session, server: name, remaining })
        }
    }
}
