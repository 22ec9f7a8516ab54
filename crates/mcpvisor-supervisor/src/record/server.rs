//! What is known of one server of a session.
use super::{SessionRecord, Waiting, lock};
use crate::api::{Down, ServerCertificate, ServerSpec, ServerView, StartFailure, StopCommandEnd, Waits};
use crate::clock::Clock;
use crate::definition;
use crate::frames::FrameLog;
use crate::relay::exclusive::Relay;
use crate::relay::{Connection, LastItems};
use crate::stderr_log::{StderrLine, StderrLog};
use mcpvisor_lifecycle::server::{Mode, ServerState, Stage};
use mcpvisor_lifecycle::{Incarnation, SpecDigest};
use mcpvisor_mcp::{Item, ListKind};
use mcpvisor_process::{Exit, ScopeId};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, watch};

/// How much of an ended server's stderr is kept with its tombstone, in bytes.
const KEPT_STDERR: usize = 4096;

/// When to ask again for a server that is being started again or replaced: about as long as a polite end takes.
const RETRY_HELD: Duration = Duration::from_secs(1);

/// A server of a session.
pub(crate) struct ServerRecord {
    /// Its place in the session.
    pub(crate) index: usize,
    /// Where it stands among the session's servers: its place, or that of the server that it was to replace.
    pub(crate) rank: usize,
    pub(crate) spec: ServerSpec,
    pub(crate) digest: SpecDigest,
    /// Of the whole definition.
    pub(crate) definition: u64,
    /// How it is started; none of one that is gone, so that what is remembered of an ended session is small.
    launch: Mutex<Option<Arc<ServerSpec>>>,
    /// The stderr of its newest process; those who follow it hear of the next one, and of the session's end.
    pub(crate) stderr: watch::Sender<Option<StderrLog>>,
    /// What was last said to it and by it, all incarnations together.
    pub(crate) frames: FrameLog,
    /// Told when `exit` is written.
    pub(crate) exited: Notify,
    /// Told when its public state is another.
    pub(crate) turned: Notify,
    /// Told when the stop command is gone.
    pub(crate) command_over: Notify,
    live: Mutex<ServerLive>,
}

/// The part of a server's record that changes.
pub(crate) struct ServerLive {
    pub(crate) state: ServerState,
    pub(crate) stage: Stage,
    pub(crate) restarts: u32,
    pub(crate) waiting: Waiting,
    pub(crate) pid: Option<u32>,
    /// The scope of the newest incarnation, and whether it is known to be empty.
    pub(crate) scope: Option<(Incarnation, ScopeId)>,
    pub(crate) empty: bool,
    pub(crate) connection: Option<Connection>,
    /// It is to be started again, and asked nothing before.
    pub(crate) held: bool,
    /// What a server that does not run had, as it was last listed.
    pub(crate) last_items: LastItems,
    /// Of an exclusive server, in place of a connection.
    pub(crate) relay: Option<Relay>,
    /// The relay that has ended, and may still deliver.
    pub(crate) delivering: Option<Relay>,
    pub(crate) era: Option<&'static str>,
    pub(crate) protocol: Option<String>,
    /// The last lines of the processes before this one.
    pub(crate) past_stderr: Vec<StderrLine>,
    pub(crate) exit: Option<Exit>,
    pub(crate) last_exit: Option<Instant>,
    /// False once the emptiness of one of its scopes rested on a search.
    pub(crate) proven: bool,
    /// The first line of its stdout that was no message.
    pub(crate) noise: Option<String>,
    /// When its teardown began.
    pub(crate) stopping_since: Option<Instant>,
    pub(crate) failure: Option<StartFailure>,
    pub(crate) certificate: Option<ServerCertificate>,
    /// The scope of the stop command that runs.
    pub(crate) command_scope: Option<ScopeId>,
    /// How that of the newest incarnation ended.
    pub(crate) stop_command: Option<StopCommandEnd>,
    /// The session that has the process, of a server that this one shares with others and uses now.
    pub(crate) host: Option<Arc<SessionRecord>>,
}

impl ServerRecord {
    pub(crate) fn new(index: usize, rank: usize, mut spec: ServerSpec) -> Self {
        let digest = definition::spec(&spec);
        let definition = definition::server(&spec);
        let launch = Mutex::new(Some(Arc::new(spec.clone())));
        (spec.args, spec.env, spec.limits) = (Vec::new(), Arc::default(), Vec::new());
        if let Some(command) = &mut spec.stop_command {
            command.args = Vec::new();
        }
        Self {
            index,
            rank,
            spec,
            digest,
            definition,
            launch,
            stderr: watch::Sender::new(None),
            frames: FrameLog::default(),
            exited: Notify::new(),
            turned: Notify::new(),
            command_over: Notify::new(),
            live: Mutex::new(ServerLive {
                state: ServerState::Starting,
                stage: Stage::Itself,
                restarts: 0,
                waiting: None,
                pid: None,
                scope: None,
                empty: true,
                connection: None,
                held: false,
                last_items: LastItems::default(),
                relay: None,
                delivering: None,
                era: None,
                protocol: None,
                past_stderr: Vec::new(),
                exit: None,
                last_exit: None,
                proven: true,
                noise: None,
                stopping_since: None,
                failure: None,
                certificate: None,
                command_scope: None,
                stop_command: None,
                host: None,
            }),
        }
    }

    /// To be held for one statement or a block of its own: a guard in an expression lives to its end, and a second one in the
    /// same expression waits for ever.
    pub(crate) fn live(&self) -> MutexGuard<'_, ServerLive> {
        lock(&self.live)
    }

    /// The whole definition.
    pub(crate) fn launch(&self) -> Option<Arc<ServerSpec>> {
        lock(&self.launch).clone()
    }

    /// The session has ended: keeps the end of the stderr and nothing else that is large. Those who follow it hear of the end.
    pub(crate) fn shrink(&self) {
        drop(lock(&self.launch).take());
        self.frames.clear();
        let log = self.stderr.send_replace(None);
        let mut live = self.live();
        let mut lines = std::mem::take(&mut live.past_stderr);
        lines.extend(log.iter().flat_map(|log| log.lines(usize::MAX)));
        let mut bytes = 0;
        let kept = lines.iter().rev().take_while(|line| {
            bytes += line.bytes.len();
            bytes <= KEPT_STDERR
        });
        let kept = kept.count();
        live.past_stderr = lines.split_off(lines.len() - kept);
        live.past_stderr.shrink_to_fit();
    }

    /// The record that has its process's words: its host's where it is shared with other sessions, else its own.
    pub(crate) fn speaker(self: &Arc<Self>) -> Arc<Self> {
        let host = self.live().host.clone();
        host.and_then(|host| host.servers().first().cloned()).unwrap_or_else(|| Arc::clone(self))
    }

    /// How its main process ended.
    pub(crate) fn exit(&self) -> Option<Exit> {
        self.live().exit
    }

    /// The end of its stderr, at most about `most` bytes. Not escaped.
    pub(crate) fn stderr_tail(&self, most: usize) -> String {
        if let Some(log) = &*self.stderr.borrow() {
            return log.tail(most);
        }
        let live = self.live();
        let lines = live.past_stderr.iter().map(|line| &line.bytes[..line.bytes.len().min(most)]);
        let lines = lines.map(|line| line.strip_suffix(b"\r").unwrap_or(line));
        lines.map(String::from_utf8_lossy).collect::<Vec<_>>().join("\n")
    }

    /// The scope of its newest process, unless it is known to be empty.
    pub(crate) fn unreaped_scope(&self) -> Option<ScopeId> {
        let live = self.live();
        live.scope.as_ref().filter(|_| !live.empty).map(|(_, scope)| scope.clone())
    }

    /// Resolves when no stop command runs.
    pub(crate) async fn command_gone(&self) {
        loop {
            let over = self.command_over.notified();
            if self.live().command_scope.is_none() {
                return;
            }
            over.await;
        }
    }

    /// The connection of a server that can be called now.
    pub(crate) fn connection(&self) -> Option<Connection> {
        let live = self.live();
        live.connection.clone().filter(|_| live.state == ServerState::Ready && !live.held)
    }

    /// Ends the connection. Who is told of that takes locks of its own, under some of which servers are looked at: so this one is not
    /// held meanwhile.
    pub(crate) fn end_connection(&self) {
        let connection = {
            let mut live = self.live();
            let Some(connection) = live.connection.take() else { return };
            live.noise = connection.stats().noise;
            for (kept, listed) in live.last_items.iter_mut().zip(connection.last_items()) {
                *kept = listed.or_else(|| kept.take());
            }
            connection
        };
        connection.end();
    }

    /// The connection, whatever the server's state is.
    pub(crate) fn any_connection(&self) -> Option<Connection> {
        self.live().connection.clone()
    }

    /// What it had when it was last listed; it may not run any more.
    pub(crate) fn last_items(&self, kind: ListKind) -> Option<Arc<[Item]>> {
        let live = self.live();
        let newest =
            live.connection.as_ref().and_then(|connection| connection.last_items()[kind as usize].clone());
        newest.or_else(|| live.last_items[kind as usize].clone())
    }

    /// Why it can't be called now.
    pub(crate) fn down(&self, clock: Clock) -> Down {
        let live = self.live();
        let until =
            live.waiting.and_then(|(_, _, until)| until).filter(|_| live.state == ServerState::Backoff);
        // One that is held is about to be stopped, and it or another is started then.
        let state = if live.held { ServerState::Stopping } else { live.state };
        let retry_after = match until {
            Some(until) => Some(until.since(clock.now())),
            None => live.held.then_some(RETRY_HELD),
        };
        Down { server: self.spec.name.clone(), state, retry_after }
    }

    pub(crate) fn view(&self, clock: Clock) -> ServerView {
        let live = self.live();
        let stats = live.connection.as_ref().map(Connection::stats);
        let now = clock.now();
        ServerView {
            name: self.spec.name.clone(),
            scope: self.spec.scope.as_str(),
            host: live.host.as_ref().map(|host| host.key.key.clone()),
            users: live.host.as_ref().map(|host| host.slot.clients().len()),
            member: true,
            state: live.state,
            mode: self.spec.mode,
            // What has exited has none, though something that it left, or its stop command, is still there.
            // The scope of a shared one is its host's.
            pid: live.pid.filter(|_| live.exit.is_none() && (!live.empty || live.host.is_some())),
            restarts: live.restarts,
            era: live.era,
            protocol: live.protocol.clone(),
            tools: stats.as_ref().and_then(|stats| stats.tools),
            queued: match self.spec.mode {
                Mode::Shared => Some(stats.as_ref().map_or(0, |stats| stats.queued)),
                Mode::Exclusive | Mode::Direct => None,
            },
            in_flight: match self.spec.mode {
                Mode::Shared => Some(stats.map_or(0, |stats| stats.in_flight)),
                Mode::Exclusive => Some(live.relay.as_ref().map_or(0, Relay::in_flight)),
                Mode::Direct => None,
            },
            last_error: live.failure.as_ref().map(|failure| failure.message.clone()),
            waits_for: live.waiting.map(|(what, since, until)| Waits {
                what: live.connection.as_ref().filter(|_| live.state == ServerState::Starting).map_or(
                    what.into(),
                    |connection| match connection.waits_for() {
                        Some(method) => format!("the answer to {method}").into(),
                        None => what.into(),
                    },
                ),
                since: now.since(since),
                left: until.map(|until| until.since(now)),
            }),
            stderr_dropped: self.stderr.borrow().as_ref().map_or(0, StderrLog::dropped_lines),
            failure: None,
            frames: None,
        }
    }
}
