//! The way to the sessions: each request of a client becomes an event of the registry, and its answer a view.
mod approvals;
mod attach;
mod awake;
mod calls;
mod changes;
mod events;
mod failure;
mod host;
mod processes;
mod profiled;
mod shown;

pub use attach::{Attach, AttachStreams, Attachable, Attachment};
pub use calls::{Call, Progress};
pub use events::EventsWanted;
pub(crate) use host::{Held, Unheld, hold};
pub use profiled::{Given, Profiled};

use self::failure::{failure, lost};
use crate::api::{
    Certificate, Failure, Kept, LogLine, OpenRequest, Opened, Opener, SessionView, StatusView,
    SupervisorConfig, Waited,
};
use crate::certificate;
use crate::core::Core;
use crate::definition;
use crate::events::{EventKind, EventLimits, Events};
use crate::hooks::{HookSet, Hooks, is_hook};
use crate::record::SessionRecord;
use crate::recovery;
use crate::registry_actor::{self, RegistryMsg, Reply};
use crate::relay::exclusive::Relay;
use crate::session_actor::SessionMsg;
use mcpvisor_failpoints::{self as failpoints, Gate};
use mcpvisor_lifecycle::registry::{
    Answer, CloseOptions, Counts, Goal, Open, Queued, RegistryConfig, RegistryEvent, Target, Urgency,
};
use mcpvisor_lifecycle::session::{CloseReason, SessionState};
use mcpvisor_lifecycle::{RequestId, ServerName, SessionId, Uid};
use mcpvisor_process::Containment;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};

/// The way to the sessions; cheap to clone.
///
/// Dropping the future of [`open`](Self::open) before it is done cancels the open (unless its `wait` is false), and of
/// [`call`](Self::call) cancels the call at the server. Dropping any other future only gives up its answer (G14). A
/// key lives below its owner's uid: another user's session is not found (G40).
#[derive(Clone)]
pub struct Supervisor {
    core: Arc<Core>,
}

/// Tells the registry that a requester is gone, unless it has its answer.
struct Cancel<'a> {
    core: &'a Core,
    request: RequestId,
    armed: bool,
}

impl Drop for Cancel<'_> {
    fn drop(&mut self) {
        if self.armed {
            self.core.tell(RegistryEvent::Cancel { request: self.request });
        }
    }
}

impl Supervisor {
    /// Starts the supervision tree on the current tokio runtime.
    ///
    /// # Errors
    /// `internal`, where the registry's actor could not be started.
    pub async fn start(config: SupervisorConfig, containment: Containment) -> Result<Self, Failure> {
        let events = Events::new(config.events, config.user);
        let hooks = Hooks::start(&events, containment.clone(), config.user);
        let core = Arc::new(Core::new(config.registry, containment, events, hooks));
        recovery::take_over(&core, config.kill_wait);
        let mut registry = core.registry.subscribe();
        tokio::spawn(registry_actor::keep(Arc::clone(&core)));
        let started = registry.wait_for(Option::is_some).await;
        started.map_err(|_| Failure::Internal("the registry could not be started".to_owned()))?;
        drop(registry);
        Ok(Self { core })
    }

    #[cfg(test)]
    pub(crate) fn core(&self) -> &Core {
        &self.core
    }

    /// Opens a session, and answers when its required servers are ready (with `wait: false` when it is admitted).
    ///
    /// # Errors
    /// See [`Failure`]; nothing is left of an open that failed, but for what is quarantined.
    pub async fn open(&self, request: OpenRequest) -> Result<Opened, Failure> {
        let id = self.core.request();
        let Reply { result, record, .. } = ask_open(&self.core, id, request).await?;
        match (result, record) {
            (Ok(Answer::Opened { created, .. }), Some(record)) => {
                let opener = Opener { session: record.id, request: id };
                let token = created.then(|| record.token()).flatten();
                Ok(Opened { session: self.view(&record), created, opener, token, kept: Kept(record) })
            }
            (Ok(_), _) => Err(Failure::Internal("an open was answered with something else".to_owned())),
            (Err(refusal), record) => Err(failure(&refusal, record.as_deref())),
        }
    }

    /// Closes a session, and answers with its certificate when nothing of it is left, or when the kill's budget has
    /// run out (`quarantined`). With `wait: false` at once, with what is known by then.
    ///
    /// # Errors
    /// See [`Failure`]. The teardown goes on whatever becomes of its requesters.
    pub async fn close(
        &self,
        target: Target,
        options: CloseOptions,
        wait: bool,
        deadline: Option<Instant>,
    ) -> Result<Arc<Certificate>, Failure> {
        let deadline = deadline.map(|at| self.core.clock.moment(at));
        let (reply, _) = self
            .ask(&target, |request, target| RegistryEvent::Close {
                request,
                target,
                options: options.clone(),
                wait,
                deadline,
            })
            .await?;
        self.certificate(reply)
    }

    /// Tries the kill of a quarantined session again; answered like a close.
    ///
    /// # Errors
    /// `NotQuarantined` of any other session, and see [`Failure`].
    pub async fn retry_kill(
        &self,
        target: Target,
        deadline: Option<Instant>,
    ) -> Result<Arc<Certificate>, Failure> {
        let deadline = deadline.map(|at| self.core.clock.moment(at));
        let (reply, _) = self
            .ask(&target, |request, target| RegistryEvent::RetryKill { request, target, deadline })
            .await?;
        self.certificate(reply)
    }

    fn certificate(&self, reply: Reply) -> Result<Arc<Certificate>, Failure> {
        match (reply.result, reply.record) {
            (Ok(Answer::Stopping { .. }), Some(record)) => Ok(Arc::new(stopping(&record))),
            (Ok(_), Some(record)) => record
                .live()
                .certificate
                .clone()
                .ok_or_else(|| Failure::Internal("an ended session has no certificate".to_owned())),
            (Ok(_), None) => Err(Failure::Internal("an ended session has no record".to_owned())),
            (Err(refusal), record) => Err(failure(&refusal, record.as_deref())),
        }
    }

    /// Waits until a session is closed, or ready. Of a direct session a wait for closed is also answered, as not reached, when
    /// it is quarantined.
    ///
    /// # Errors
    /// `NotFound` of a key that is not known (never taken for closed, G20); of a wait for ready, how the session ended.
    pub async fn wait(
        &self,
        target: Target,
        goal: Goal,
        deadline: Option<Instant>,
    ) -> Result<Waited, Failure> {
        let deadline = deadline.map(|at| self.core.clock.moment(at));
        let (reply, _) = self
            .ask(&target, |request, target| RegistryEvent::Wait { request, target, goal, deadline })
            .await?;
        match (reply.result, reply.record) {
            // The session ended while the registry was lost: it never became ready.
            (Ok(Answer::Closed { session }), Some(_)) if goal == Goal::Ready => {
                Err(Failure::SessionFailed { session, failure: None })
            }
            (Ok(answer), Some(record)) => {
                let reached = matches!(answer, Answer::Reached { .. } | Answer::Closed { .. });
                Ok(waited(&record, reached))
            }
            (Ok(_), None) => Err(Failure::Internal("an ended session has no record".to_owned())),
            (Err(refusal), record) => Err(failure(&refusal, record.as_deref())),
        }
    }

    /// Asks the registry, and asks its successor where it is lost meanwhile: the session that was meant is then named by
    /// its generation, so that the answer is about the same one.
    async fn ask(
        &self,
        target: &Target,
        event: impl Fn(RequestId, Target) -> RegistryEvent,
    ) -> Result<(Reply, RequestId), Failure> {
        let mut target = target.clone();
        let mut registry = self.core.registry.subscribe();
        loop {
            let current = registry.borrow_and_update().clone();
            let meant = self.current(&target);
            let request = self.core.request();
            let mut cancel = Cancel { core: &self.core, request, armed: true };
            let (answer, reply) = oneshot::channel();
            let event = event(request, target.clone());
            let sent = current.is_some_and(|registry| {
                registry.send_message(RegistryMsg::Ask { request, event, reply: answer }).is_ok()
            });
            if sent && let Ok(reply) = reply.await {
                cancel.armed = false;
                return Ok((reply, request));
            }
            cancel.armed = false;
            registry.changed().await.map_err(|_| lost())?;
            if let Some(record) = meant {
                if record.has_ended() {
                    let session = record.id;
                    let answer = Answer::Closed { session };
                    return Ok((Reply { result: Ok(answer), record: Some(record), presence: None }, request));
                }
                target.generation = Some(record.id.generation);
            }
        }
    }

    /// The record that a target means now, for the case that the registry is lost.
    fn current(&self, target: &Target) -> Option<Arc<SessionRecord>> {
        match target.generation {
            None => self.core.latest(&target.key),
            Some(generation) => self.core.record(SessionId { uid: target.key.uid, generation }),
        }
    }

    /// The opens that wait for a slot, of one user or of all, in the order of their turns.
    ///
    /// # Errors
    /// `internal`, while the registry is being replaced.
    pub async fn queued(&self, of: Option<Uid>) -> Result<Vec<Queued>, Failure> {
        let (answer, reply) = oneshot::channel();
        self.core.send(RegistryMsg::Queued { of, reply: answer });
        reply.await.map_err(|_| lost())
    }

    fn view(&self, record: &SessionRecord) -> SessionView {
        record.view(self.core.clock, self.core.containment.kind())
    }

    /// The sessions that hold a key now, of one user or of all, in order of owner and generation.
    pub async fn list(&self, of: Option<Uid>) -> Vec<SessionView> {
        let records = self.core.records();
        let mine = records.iter().filter(|record| of.is_none_or(|uid| record.key.uid == uid));
        // Those that only have a server which others share are seen in these.
        let hidden =
            |record: &SessionRecord| record.is_host() && record.live().state != SessionState::Quarantined;
        mine.filter(|record| !record.has_ended() && !hidden(record)).map(|record| self.view(record)).collect()
    }

    /// One session, with `frames` their heads too; where its key is free again and no generation is named, the last that held it.
    ///
    /// # Errors
    /// `NotFound`, `StaleGeneration`.
    pub async fn show(&self, target: Target, frames: bool) -> Result<SessionView, Failure> {
        let record = self.resolve(target, true).await?;
        Ok(record.full_view(self.core.clock, self.core.containment.kind(), frames))
    }

    async fn resolve(&self, target: Target, ended: bool) -> Result<Arc<SessionRecord>, Failure> {
        let (answer, reply) = oneshot::channel();
        self.core.send(RegistryMsg::Resolve { target, ended, reply: answer });
        let session = reply.await.map_err(|_| lost())?.map_err(|refusal| failure(&refusal, None))?;
        self.core.record(session).ok_or(Failure::NotFound)
    }

    /// The daemon as a whole.
    ///
    /// # Errors
    /// `internal`, while the registry is being replaced.
    pub async fn status(&self) -> Result<StatusView, Failure> {
        let (answer, reply) = oneshot::channel();
        self.core.send(RegistryMsg::Counts { reply: answer });
        let (counts, draining, dropped, open_breakers) = reply.await.map_err(|_| lost())?;
        let mut counters = self.core.counters.all();
        counters.insert("facts_dropped", dropped);
        counters.insert("breakers_open", open_breakers);
        counters.extend(self.core.hooks.counters());
        Ok(StatusView {
            counts,
            draining,
            processes: self
                .all_processes(None)
                .await
                .iter()
                .filter(|process| !is_hook(&process.scope))
                .count(),
            containment: self.core.containment.kind(),
            uptime: self.core.clock.uptime(),
            counters,
        })
    }

    /// How many sessions there are, and whether the registry admits no more. Answered by the registry's actor alone, so that the
    /// answer shows that it works.
    ///
    /// # Errors
    /// `internal`, while the registry is being replaced.
    pub async fn counts(&self) -> Result<(Counts, bool), Failure> {
        let (answer, reply) = oneshot::channel();
        self.core.send(RegistryMsg::Counts { reply: answer });
        let (counts, draining, ..) = reply.await.map_err(|_| lost())?;
        Ok((counts, draining))
    }

    /// The last `lines` of the servers' stderr; then, with `follow`, what comes, until the session ends.
    ///
    /// # Errors
    /// `NotFound`, `StaleGeneration`, `Invalid` of a server that the session does not have.
    pub async fn logs(
        &self,
        target: Target,
        server: Option<ServerName>,
        lines: usize,
        follow: bool,
    ) -> Result<mpsc::Receiver<LogLine>, Failure> {
        let record = self.resolve(target, true).await?;
        if let Some(name) = server.as_ref().filter(|name| record.server(name).is_none()) {
            return Err(Failure::Invalid(format!("the session has no server {name}")));
        }
        Ok(crate::logs::read(&record, server.as_ref(), lines, follow))
    }

    /// The open `cgroup.kill` of the one server of a shim's session; none where its scope is no cgroup.
    pub async fn kill_file(&self, session: SessionId) -> Option<OwnedFd> {
        let record = self.core.record(session).filter(|record| record.direct || record.relayed)?;
        let scope = record.servers().first()?.unreaped_scope()?;
        failpoints::pass(Gate::OpenKillFile).await;
        let (answer, file) = oneshot::channel();
        self.core.containment.kill_file(
            &scope,
            Box::new(move |file| {
                let _ = answer.send(file);
            }),
        );
        file.await.ok().flatten()
    }

    // The daemon.

    /// The answer of an open that waited does not reach its requester: it cancels late. What others were told of, or use, stays. A shim's
    /// session is its own alone, and ends with its lease.
    pub fn unheard(&self, opener: Opener) {
        let own = self.core.record(opener.session).is_some_and(|record| record.direct || record.relayed);
        if own {
            self.lease_ended(opener.session);
        } else {
            self.core.tell(RegistryEvent::Cancel { request: opener.request });
        }
    }

    /// How a session that was kept has ended, where it has.
    #[must_use]
    pub fn ended(&self, kept: &Kept) -> Option<Waited> {
        kept.0.has_ended().then(|| waited(&kept.0, true))
    }

    /// A session's lease has ended: its client's connection is gone. Of a direct session: straight to SIGTERM. What the client of a
    /// relayed one has in flight is cancelled.
    pub fn lease_ended(&self, session: SessionId) {
        let Some(record) = self.core.record(session) else { return };
        if record.relayed {
            record.relays().iter().for_each(Relay::client_lost);
        }
        let actor = record.live().actor.clone();
        match actor {
            Some(actor) if record.direct => {
                let _ = actor.send_message(SessionMsg::ClientGone);
            }
            _ => self.core.tell(RegistryEvent::CloseWanted { session, reason: CloseReason::LeaseEnded }),
        }
    }

    /// Admits nothing more; sessions that exist go on.
    pub fn fence(&self) {
        self.core.tell_for_good(RegistryEvent::Fence);
    }

    /// Tears everything down; a later call only raises the urgency.
    pub fn shutdown(&self, urgency: Urgency) {
        self.core.tell_for_good(RegistryEvent::Shutdown { urgency });
    }

    /// Resolves when a shutdown is complete: the number of quarantined sessions that are left.
    pub async fn finished(&self) -> usize {
        let mut finished = self.core.finished.subscribe();
        let left = finished.wait_for(Option::is_some).await;
        left.ok().and_then(|left| *left).unwrap_or(0)
    }

    /// The hooks that run from now on.
    pub fn use_hooks(&self, hooks: HookSet) {
        self.core.hooks.set(hooks);
    }

    /// Lets hooks that wait or run come to their ends for at most `grace`, and kills the rest. To be called when all else is done.
    pub async fn end_hooks(&self, grace: Duration) {
        self.core.hooks.end(grace).await;
    }

    /// A reload's new limits; they bind what is admitted, and what is kept, from now on.
    pub fn reconfigure(&self, config: RegistryConfig, events: EventLimits) {
        self.core.set_config(config.clone());
        self.core.tell(RegistryEvent::Reconfigure(config));
        self.core.events.set_limits(events);
        self.core.events.publish_to_all(EventKind::DaemonReloaded, &Vec::new());
    }
}

/// Has the registry open a session. Dropping the future cancels that, where the open is waited for.
async fn ask_open(core: &Core, id: RequestId, mut request: OpenRequest) -> Result<Reply, Failure> {
    let mut open = Open {
        request: id,
        key: request.key.clone(),
        tenant: request.tenant.clone(),
        parent: request.parent.clone(),
        quota: request.quota(),
        queue: request.queue.map(|at| core.clock.moment(at)),
        definition: definition::digest(&request, id),
        if_closing: request.if_closing,
        if_open: request.if_open,
        direct: request.is_direct(),
        wait: request.wait,
        deadline: request.deadline.map(|at| core.clock.moment(at)),
        specs: Vec::new(),
    };
    if request.direct.is_some() {
        definition::make_the_clients_own(&mut request);
    }
    open.specs = definition::with_breakers(&request);
    let mut cancel = Cancel { core, request: id, armed: open.wait };
    let (answer, reply) = oneshot::channel();
    core.send(RegistryMsg::Open { open, request: Box::new(request), reply: answer });
    let reply = reply.await;
    cancel.armed = false;
    reply.map_err(|_| lost())
}

fn waited(record: &SessionRecord, reached: bool) -> Waited {
    let live = record.live();
    Waited {
        key: record.key.key.clone(),
        generation: record.id.generation,
        state: live.state,
        reached,
        certificate: live.certificate.clone(),
    }
}

/// What is known of a teardown that has only begun.
fn stopping(record: &SessionRecord) -> Certificate {
    use crate::api::{Outcome, Proof};
    let live = record.live();
    if let Some(certificate) = live
        .certificate
        .as_ref()
        .filter(|_| matches!(live.state, SessionState::Closed | SessionState::Failed))
    {
        return Certificate::clone(certificate);
    }
    Certificate {
        key: record.key.key.clone(),
        generation: record.id.generation,
        outcome: Outcome::Stopping,
        state: live.state,
        proof: Some(Proof::None),
        reason: live.closing.map_or(CloseReason::Requested, |(_, reason)| reason),
        drained: certificate::drained(record),
        duration: live.closing.map_or(Duration::ZERO, |(since, _)| since.elapsed()),
        servers: Vec::new(),
        remaining: Vec::new(),
        acknowledged_after: None,
        failure: None,
    }
}
