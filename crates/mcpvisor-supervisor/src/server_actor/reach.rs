//! Servers whose processes are not the session's: someone else's behind a socket, and those that sessions share.
//!
//! The machine is that of any server. Its launch is the connecting here, and its scope is the connection: each rung of the ladder closes
//! that, and then the scope is empty. Nobody is signalled, and nothing is waited for.
use super::{Driver, ServerMsg};
use crate::api::{Scope, ServerSpec, StartFailure};
use crate::certificate;
use crate::relay::{Connection, ConnectionOptions};
use crate::supervisor::{Held, Unheld, hold};
use mcpvisor_lifecycle::Incarnation;
use mcpvisor_lifecycle::server::{Restart, ServerEffect, ServerEvent, ServerReport};
use ractor::ActorRef;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

/// For a server that sessions share its host has the time: every wait for that has an end of its own.
const HOSTS_TIME: Duration = Duration::from_secs(365 * 24 * 3600);
/// How soon a socket is tried again whose queue of connections is full.
const FULL: Duration = Duration::from_millis(20);

/// The way to such a server.
#[derive(Default)]
pub(super) struct Reach {
    /// The connecting that is under way.
    task: Option<AbortHandle>,
    /// The session that has the process, from the first connection to the last report: also while that starts it again.
    held: Option<Arc<Held>>,
    /// How the server failed there.
    failure: Option<StartFailure>,
}

/// What was connected to.
pub(crate) struct Reached {
    socket: OwnedFd,
    held: Option<Arc<Held>>,
}

impl Reach {
    /// A failure as it was where the process is.
    pub(super) fn explained(&mut self, failure: StartFailure) -> StartFailure {
        match self.failure.take() {
            Some(there) => StartFailure { server: failure.server, ..there },
            None => failure,
        }
    }
}

/// When a server is started again: one that sessions share by its host alone.
pub(super) fn restart(spec: &ServerSpec) -> Restart {
    if matches!(spec.scope, Scope::Daemon { .. }) { Restart::Followed } else { spec.restart }
}

pub(super) fn start(spec: &ServerSpec) -> Duration {
    if matches!(spec.scope, Scope::Daemon { .. }) { HOSTS_TIME } else { spec.start }
}

impl Driver {
    pub(super) fn is_apart(&self) -> bool {
        self.arguments.record.spec.scope.is_apart()
    }

    /// Whether the effect is another one than of a process.
    pub(super) fn act_apart(&mut self, myself: &ActorRef<ServerMsg>, effect: &ServerEffect) -> bool {
        match *effect {
            ServerEffect::Launch { incarnation } => self.reach_for(myself, incarnation),
            ServerEffect::CloseStdin { incarnation }
            | ServerEffect::Terminate { incarnation }
            | ServerEffect::Kill { incarnation } => self.part(myself, incarnation),
            _ => return false,
        }
        true
    }

    fn reach_for(&mut self, myself: &ActorRef<ServerMsg>, incarnation: Incarnation) {
        self.choose_era();
        self.was_ready = false;
        let answer = myself.clone();
        let done = move |result| {
            let _ = answer.send_message(ServerMsg::Reached(incarnation, result));
        };
        let session = Arc::clone(&self.arguments.session);
        if session.may_launch().is_none() {
            return done(Err(Unheld::new("killed", "the session is being reaped")));
        }
        {
            let mut live = self.arguments.record.live();
            live.held = false;
            live.stopping_since = None;
            live.certificate = None;
        }
        let (core, spec, held) =
            (Arc::clone(&self.arguments.core), Arc::clone(&self.spec), self.reach.held.clone());
        let task = async move {
            done(match &spec.scope {
                Scope::External { socket } => reach_socket(socket).await,
                _ => {
                    let held = match held {
                        Some(held) => Ok(held),
                        None => hold(&core, &session, &spec).await.map(Arc::new),
                    };
                    match held {
                        Ok(held) => held.attach().await.map(|socket| Reached { socket, held: Some(held) }),
                        Err(error) => Err(error),
                    }
                }
            });
        };
        self.reach.task = Some(tokio::spawn(task).abort_handle());
    }

    pub(super) fn reached(
        &mut self,
        myself: &ActorRef<ServerMsg>,
        incarnation: Incarnation,
        result: Result<Reached, Unheld>,
    ) -> Option<ServerEvent> {
        if self.machine.incarnation() != Some(incarnation) {
            return None;
        }
        let given_up = self.reach.task.take().is_none();
        let error = match result {
            Ok(reached) => match self.talk(myself, incarnation, reached) {
                Ok(()) => return Some(ServerEvent::Launched { incarnation }),
                Err(error) => Unheld::new("internal", error.to_string()),
            },
            Err(error) => error,
        };
        if !given_up {
            self.cause = Some((error.cause, error.message));
            self.reach.failure = error.failure.map(|failure| *failure);
        }
        Some(ServerEvent::LaunchFailed { incarnation })
    }

    /// The conversation begins.
    fn talk(
        &mut self,
        myself: &ActorRef<ServerMsg>,
        incarnation: Incarnation,
        Reached { socket, held }: Reached,
    ) -> io::Result<()> {
        let record = Arc::clone(&self.arguments.record);
        let ended = myself.clone();
        let on_end = Box::new(move || {
            let _ = ended.send_message(ServerMsg::OutputEnded(incarnation));
        });
        let (usual, calls) = (ConnectionOptions::default(), record.spec.call_limits());
        let options = ConnectionOptions { max_line: record.spec.max_line, era: self.era, calls, ..usual };
        let slot = self.arguments.session.slot.of(record.index);
        let output = socket.try_clone()?;
        let connection = Connection::start(socket, output, options, slot, record.frames.clone(), on_end)?;
        let host = held.as_ref().map(|held| Arc::clone(&held.record));
        let pid = held.as_ref().and_then(|held| held.server()).and_then(|server| server.live().pid);
        let mut live = record.live();
        (live.connection, live.pid, live.host) = (Some(connection), pid, host);
        drop(live);
        self.reach.held = held;
        Ok(())
    }

    /// Gives the connection up, or the connecting.
    fn part(&mut self, myself: &ActorRef<ServerMsg>, incarnation: Incarnation) {
        if let Some(task) = self.reach.task.take() {
            task.abort();
            let given_up = Err(Unheld::new("killed", "it was given up"));
            let _ = myself.send_message(ServerMsg::Reached(incarnation, given_up));
            return;
        }
        let certificate = certificate::of_detached(&self.arguments.record);
        self.arguments.record.live().certificate.get_or_insert(certificate);
        self.arguments.record.end_connection();
        let _ = myself.send_message(ServerMsg::Parted(incarnation));
    }

    /// The other side has closed the connection. What is left of it is closed with its release.
    pub(super) fn cut_off(&mut self, myself: &ActorRef<ServerMsg>, incarnation: Incarnation) -> ServerEvent {
        if self.machine.incarnation() == Some(incarnation) {
            let held = self.reach.held.clone();
            let over = held.as_ref().and_then(|held| held.over());
            if over.is_some() {
                // Else a restart would be promised that nobody makes.
                self.step(myself, ServerEvent::GivenUp { incarnation });
            }
            let why = over.unwrap_or_else(|| match held.and_then(|held| held.last_failure()) {
                Some(failure) => Unheld::failed(failure),
                None => Unheld::new("disconnected", "it closed the connection"),
            });
            self.cause.get_or_insert((why.cause, why.message));
            self.reach.failure = why.failure.map(|failure| *failure);
        }
        ServerEvent::ScopeEmpty { incarnation }
    }

    /// Nothing is used of its host any more.
    pub(super) fn let_go(&mut self) {
        self.reach.held = None;
        self.arguments.record.live().host = None;
    }

    /// What follows from a report, once it is written down why.
    pub(super) fn after_report(&mut self, report: ServerReport) {
        if matches!(report, ServerReport::Stopped | ServerReport::Ended | ServerReport::Failed(_)) {
            self.let_go();
        }
        // Sessions that use it learn of its end by the end of their connections, and come again when it runs.
        if self.arguments.session.is_host() && report != ServerReport::Ready {
            self.arguments.session.slot.clients().iter().for_each(|client| client.session_over());
        }
    }
}

/// Connects to a server that someone else runs. The path may lie on a mount that is dead: so a thread of its own looks it up, and neither
/// that nor anyone else waits where too many connections wait already.
async fn reach_socket(path: &Path) -> Result<Reached, Unheld> {
    let told = |error: io::Error| Unheld::new("connect", format!("{}: {error}", path.display()));
    loop {
        let (answer, connected) = oneshot::channel();
        let at: PathBuf = path.to_owned();
        let looks = std::thread::Builder::new().name("connect".to_owned()).spawn(move || {
            let _ = answer.send(try_socket(&at));
        });
        looks.map_err(told)?;
        match connected.await {
            Ok(Ok(socket)) => return Ok(Reached { socket, held: None }),
            Ok(Err(Errno::AGAIN)) => tokio::time::sleep(FULL).await,
            Ok(Err(error)) => return Err(told(error.into())),
            Err(_) => return Err(Unheld::new("internal", "the thread that connects was lost")),
        }
    }
}

fn try_socket(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(socket.as_fd(), &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}
