//! What is known of a session outside of its actors: read by `list` and `show` without asking anyone, and still there
//! when an actor is lost. Each record is written by the one actor that owns the session or the server.
mod server;

use crate::api::{
    Certificate, OpenRequest, Origin, Policy, Secret, ServerSpec, ServerView, SessionView, Token,
};
use crate::clock::Clock;
use crate::core::Core;
use crate::definition;
use crate::desk::{Desk, Tell};
use crate::events::{Events, Terminal};
use crate::frames::MOST;
use crate::gate::Gate;
use crate::recovery::Former;
use crate::relay::Connection;
use crate::relay::attached::Slot;
use crate::relay::exclusive::Relay;
use crate::roster::{Roster, Servers};
use crate::session_actor::SessionMsg;
use mcpvisor_lifecycle::registry::{Left, Quota};
use mcpvisor_lifecycle::server::{Mode, ServerState, Stage};
use mcpvisor_lifecycle::session::{CloseReason, Limits, OnIdle, SessionState};
use mcpvisor_lifecycle::{KeyRef, Moment, ServerName, SessionId, SessionKey, Tenant};
use mcpvisor_mcp::catalogue::Prefix;
use mcpvisor_process::{ContainmentKind, HolderWatch, LeftId};
use ractor::ActorRef;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::Notify;

pub(crate) use server::ServerRecord;

/// Locks, also after a panic elsewhere: each write to a record is whole by itself.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a state waits for, with the moments that it waits from and to.
pub(crate) type Waiting = Option<(&'static str, Moment, Option<Moment>)>;

/// A session, from its admission until its tombstone is gone.
pub(crate) struct SessionRecord {
    pub(crate) id: SessionId,
    pub(crate) key: KeyRef,
    pub(crate) tenant: Option<Tenant>,
    /// What else it takes from the limits.
    pub(crate) quota: Quota,
    /// The key of the session that it was opened below.
    pub(crate) parent: Option<SessionKey>,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) created_at: SystemTime,
    pub(crate) lease: String,
    pub(crate) limits: Limits,
    pub(crate) drain: Duration,
    pub(crate) direct: bool,
    /// Its one server's client came with the open, and is relayed.
    pub(crate) relayed: bool,
    /// The name of its scope: uid and generation, unique in this instance.
    pub(crate) scope: Arc<str>,
    pub(crate) gate: Gate,
    /// Somebody has called it, or was attached: told to the registry once.
    pub(crate) used: AtomicBool,
    /// Tells those who wait that it has ended.
    over: Notify,
    pub(crate) roster: Roster,
    /// What it was made from.
    pub(crate) origin: Option<Arc<Origin>>,
    /// The servers that come from there, with the digests of the definitions by which they were last brought here. Written by one
    /// reload at a time.
    given: Mutex<Vec<(ServerName, u64)>>,
    /// The digests of the servers that do not come from there.
    pub(crate) own_servers: Vec<u64>,
    /// How the names of its servers' tools and prompts are published.
    pub(crate) prefix: Prefix,
    /// What holds for all its servers together.
    pub(crate) policy: Policy,
    /// Its calls that are held for a person.
    pub(crate) desk: Desk,
    /// The client of its shared servers.
    pub(crate) slot: Slot,
    /// A former daemon had it; this one only brings it to its end.
    pub(crate) former: Option<FormerScope>,
    /// Where its events are published.
    pub(crate) events: Events,
    /// Its last event.
    pub(crate) terminal: Terminal,
    live: Mutex<SessionLive>,
    /// The process of its lease, until its end.
    holder: Mutex<Option<HolderWatch>>,
    /// What its token is compared with; none once that is revoked.
    secret: Mutex<Option<Secret>>,
    /// Set once the session is reaped without its actors: nothing is launched any more.
    condemned: Mutex<bool>,
}

/// Where a session lies that a former daemon has left.
pub(crate) struct FormerScope {
    pub(crate) left: LeftId,
    pub(crate) containment: ContainmentKind,
    pub(crate) kill_wait: Duration,
}

/// The part of a session's record that changes.
pub(crate) struct SessionLive {
    pub(crate) state: SessionState,
    /// Since when, and why, it is being torn down.
    pub(crate) closing: Option<(Instant, CloseReason)>,
    /// The newest report: of a quarantine, and in the end the final one.
    pub(crate) certificate: Option<Arc<Certificate>>,
    pub(crate) actor: Option<ActorRef<SessionMsg>>,
}

impl SessionRecord {
    pub(crate) fn new(
        id: SessionId,
        key: &KeyRef,
        request: &mut OpenRequest,
        direct: bool,
        events: Events,
    ) -> Self {
        let relayed = request.is_relayed();
        let origin = request.origin.take().map(Arc::new);
        let (given, own) = request
            .servers
            .split_at(origin.as_ref().map_or(0, |origin| origin.servers.min(request.servers.len())));
        let given = given.iter().map(|server| (server.name.clone(), definition::server(server))).collect();
        let own_servers = own.iter().map(definition::server).collect();
        let quota = request.quota();
        let servers = std::mem::take(&mut request.servers);
        let servers = servers
            .into_iter()
            .enumerate()
            .map(|(index, spec)| Arc::new(ServerRecord::new(index, index, spec)));
        Self {
            id,
            key: key.clone(),
            tenant: request.tenant.clone(),
            quota,
            parent: request.parent.take(),
            labels: std::mem::take(&mut request.labels),
            created_at: SystemTime::now(),
            lease: std::mem::take(&mut request.lease),
            limits: request.limits,
            drain: request.drain,
            direct,
            relayed,
            scope: scope_name(id),
            gate: Gate::default(),
            used: AtomicBool::new(false),
            over: Notify::new(),
            roster: Roster::new(servers.collect()),
            origin,
            given: Mutex::new(given),
            own_servers,
            prefix: request.prefix,
            slot: Slot::new(request.policy.max_in_flight).for_many(key.key.is_of_shared()),
            policy: std::mem::take(&mut request.policy),
            desk: Desk::new(Tell { events: events.clone(), key: key.clone(), generation: id.generation }),
            former: None,
            events,
            terminal: Terminal::default(),
            live: Mutex::new(SessionLive {
                state: SessionState::Starting,
                closing: None,
                certificate: None,
                actor: None,
            }),
            holder: Mutex::default(),
            secret: Mutex::new(request.secret.take()),
            condemned: Mutex::new(false),
        }
    }

    /// The record of a session that a former daemon has left: it is dying.
    pub(crate) fn of_former(former: Former, kill_wait: Duration, core: &Core) -> Self {
        let shared = former.key.key.is_of_shared();
        let quota = Quota { processes: former.servers.len(), shared, ..Quota::default() };
        let servers = former.servers.into_iter().enumerate();
        let servers = servers.map(|(index, (name, mode))| {
            let server = ServerRecord::new(index, index, ServerSpec::unknown(name, mode, kill_wait));
            {
                let mut live = server.live();
                live.state = ServerState::Stopping;
                live.waiting = Some(("what a former daemon has left of it", core.clock.now(), None));
                // The guardian, the keepers and the sweep know no other rung.
                live.stage = Stage::Sigkill;
                live.stopping_since = Some(Instant::now());
            }
            Arc::new(server)
        });
        Self {
            id: former.id,
            tenant: former.tenant,
            quota,
            parent: None,
            labels: former.labels,
            created_at: former.created_at,
            lease: "none".to_owned(),
            limits: Limits::default(),
            drain: Duration::ZERO,
            direct: false,
            relayed: false,
            scope: scope_name(former.id),
            gate: Gate::default(),
            used: AtomicBool::new(false),
            over: Notify::new(),
            roster: Roster::new(servers.collect()),
            origin: None,
            given: Mutex::default(),
            own_servers: Vec::new(),
            prefix: Prefix::default(),
            slot: Slot::default(),
            policy: Policy::default(),
            desk: Desk::default(),
            former: Some(FormerScope { left: former.left, containment: former.containment, kill_wait }),
            events: core.events.clone(),
            terminal: Terminal::default(),
            key: former.key,
            live: Mutex::new(SessionLive {
                state: SessionState::Stopping,
                closing: Some((Instant::now(), CloseReason::DaemonLost)),
                certificate: None,
                actor: None,
            }),
            holder: Mutex::default(),
            secret: Mutex::default(),
            condemned: Mutex::new(true),
        }
    }

    /// From the kill to the quarantine, where no actor has a machine that knows it.
    pub(crate) fn kill_wait(&self) -> Duration {
        let servers = self.servers();
        let servers = servers.iter().map(|server| server.spec.kill_wait);
        servers.chain(self.former.as_ref().map(|former| former.kill_wait)).max().unwrap_or_default()
    }

    /// What contains it, or contained it.
    pub(crate) fn containment(&self, daemon: ContainmentKind) -> ContainmentKind {
        self.former.as_ref().map_or(daemon, |former| former.containment)
    }

    /// What each record of the log carries.
    pub(crate) fn span(&self) -> tracing::Span {
        tracing::info_span!(parent: None, "session", session = %self.key.key, generation = self.id.generation.0)
    }

    /// The same of one of its servers.
    pub(crate) fn server_span(&self, server: &ServerRecord) -> tracing::Span {
        let (key, generation) = (&self.key.key, self.id.generation.0);
        tracing::info_span!(parent: None, "server", session = %key, generation, server = %server.spec.name)
    }

    /// What a registry that takes over must know of it.
    pub(crate) fn left(&self) -> Left {
        Left {
            session: self.id,
            key: self.key.clone(),
            tenant: self.tenant.clone(),
            quota: self.quota.clone(),
            direct: self.direct,
        }
    }

    pub(crate) fn live(&self) -> MutexGuard<'_, SessionLive> {
        lock(&self.live)
    }

    /// It has a server that other sessions share, and is opened, used and ended for them alone.
    pub(crate) fn is_host(&self) -> bool {
        self.key.key.is_of_shared()
    }

    /// All its servers, those too that are being added or removed, in the order in which names are theirs.
    pub(crate) fn servers(&self) -> Servers {
        self.roster.all()
    }

    /// The server that has this name; else one that is being added or removed.
    pub(crate) fn server(&self, name: &ServerName) -> Option<Arc<ServerRecord>> {
        let of = |servers: Servers| servers.iter().find(|server| server.spec.name == *name).cloned();
        of(self.roster.members()).or_else(|| of(self.roster.all()))
    }

    /// Whether a server of this name is a member, and has not ended for good.
    pub(crate) fn has(&self, name: &ServerName) -> bool {
        let members = self.roster.members();
        members.iter().any(|server| {
            server.spec.name == *name
                && !matches!(server.live().state, ServerState::Failed | ServerState::Stopped)
        })
    }

    /// Nothing is admitted any more, `on_empty` as in [`Gate::close`]. Calls in flight go on; those that wait for their turn or for a person
    /// never reached a server and hear so at once; and what servers wait for from the client is settled, so that none of them uses up the
    /// drain.
    pub(crate) fn close_gate(&self, on_empty: Box<dyn FnOnce() + Send>) {
        self.gate.close(on_empty);
        self.desk.close();
        self.slot.clients().iter().for_each(|client| client.closing());
        for server in self.servers().iter() {
            let connection = server.any_connection();
            connection.iter().for_each(Connection::stop_waiting);
        }
    }

    pub(crate) fn given(&self) -> MutexGuard<'_, Vec<(ServerName, u64)>> {
        lock(&self.given)
    }

    /// The relays of its exclusive servers that run.
    pub(crate) fn relays(&self) -> Vec<Relay> {
        self.servers().iter().filter_map(|server| server.live().relay.clone()).collect()
    }

    /// From now on this process's end is known to whoever has started the watch; none: nobody needs to know any more.
    pub(crate) fn hold(&self, watch: Option<HolderWatch>) {
        let before = std::mem::replace(&mut *lock(&self.holder), watch);
        drop(before);
    }

    /// Its token, for the one who opens it.
    pub(crate) fn token(&self) -> Option<Token> {
        lock(&self.secret).clone().map(|secret| Token { session: self.id, secret })
    }

    /// Whether this is the true secret of its token.
    pub(crate) fn has_secret(&self, shown: &Secret) -> bool {
        lock(&self.secret).as_ref().is_some_and(|secret| secret.is(shown))
    }

    /// Nothing is the true secret any more, whatever becomes of the registry.
    pub(crate) fn revoke(&self) {
        *lock(&self.secret) = None;
    }

    /// From now on nothing of this session is launched.
    pub(crate) fn condemn(&self) {
        *lock(&self.condemned) = true;
    }

    /// Holds off a condemnation while the guard lives; none where the session is condemned already. A launch is
    /// handed over under it, so that what reaps a lost session finds every launch that was ever begun (G17).
    pub(crate) fn may_launch(&self) -> Option<MutexGuard<'_, bool>> {
        Some(lock(&self.condemned)).filter(|condemned| !**condemned)
    }

    /// It has ended: the certificate is the last word.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.live().state, SessionState::Closed | SessionState::Failed)
    }

    /// Its end is written: tells whoever waits for that.
    pub(crate) fn tell_over(&self) {
        self.over.notify_waiters();
    }

    /// Resolves when it has ended.
    pub(crate) async fn over(&self) {
        let over = self.over.notified();
        tokio::pin!(over);
        // Before the look: an end that comes after it is not missed.
        over.as_mut().enable();
        if !self.has_ended() {
            over.await;
        }
    }

    pub(crate) fn view(&self, clock: Clock, containment: ContainmentKind) -> SessionView {
        let (state, certificate) = {
            let live = self.live();
            (live.state, live.certificate.clone())
        };
        let servers: Vec<ServerView> = {
            let (all, members) = (self.servers(), self.roster.members());
            let is_member = |server: &Arc<ServerRecord>| members.iter().any(|of| Arc::ptr_eq(of, server));
            let view = |server| ServerView { member: is_member(server), ..server.view(clock) };
            all.iter().map(view).collect()
        };
        // A call that waits or is held was admitted, too.
        let queued: usize = servers.iter().filter_map(|server| server.queued).sum();
        let held = self.desk.held();
        let in_flight = (!self.direct).then(|| self.gate.in_flight().saturating_sub(queued + held));
        SessionView {
            key: self.key.key.clone(),
            generation: self.id.generation,
            owner: self.key.uid,
            state,
            tenant: self.tenant.clone(),
            parent: self.parent.clone(),
            labels: self.labels.clone(),
            created_at: self.created_at,
            lease: self.lease.clone(),
            expires_at: self.limits.ttl.and_then(|ttl| self.created_at.checked_add(ttl)),
            attached: Some(if self.direct {
                usize::from(!self.has_ended())
            } else {
                let relayed = self.relays().iter().filter(|relay| relay.is_attached()).count();
                relayed + self.slot.clients().len()
            }),
            in_flight,
            queued: in_flight.map(|_| queued),
            held: in_flight.map(|_| held),
            waiting: self.gate.waiting(),
            idle_for: self.idle_for(state),
            idle: self.limits.idle.map(|limit| limit.idle),
            containment: self.containment(containment),
            parked: self.gate.is_parked(),
            parks: self.limits.idle.is_some_and(|limit| limit.then == OnIdle::Park),
            servers,
            certificate,
        }
    }

    /// How long no call was in flight and no client attached; none while there is one, of a session that is not open, and where that
    /// can't be known.
    pub(crate) fn idle_for(&self, state: SessionState) -> Option<Duration> {
        let seen = self.gate.seen();
        let open = matches!(state, SessionState::Ready | SessionState::Degraded);
        (open && !self.direct && !seen.busy).then(|| seen.last.elapsed())
    }

    /// The same with what is told of one session only: how its servers last failed, and with `frames` their last ones.
    pub(crate) fn full_view(&self, clock: Clock, containment: ContainmentKind, frames: bool) -> SessionView {
        let mut view = self.view(clock, containment);
        for (view, server) in view.servers.iter_mut().zip(self.servers().iter()) {
            if view.name != server.spec.name {
                // Servers have come or gone since.
                break;
            }
            view.failure.clone_from(&server.live().failure);
            view.frames = (frames && view.mode != Mode::Direct).then(|| server.frames.last(MOST));
        }
        view
    }
}

/// The name of a session's scope.
pub(crate) fn scope_name(id: SessionId) -> Arc<str> {
    format!("{}-{}", id.uid.0, id.generation.0).into()
}
