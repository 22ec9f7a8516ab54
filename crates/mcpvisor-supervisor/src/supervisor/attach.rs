//! The one client of an exclusive server, or of a session's shared ones.
use super::Supervisor;
use super::host::not_a_host;
use crate::api::{Failure, Kept, Meant};
use crate::core::Core;
use crate::gate::Presence;
use crate::record::{ServerRecord, SessionRecord};
use crate::relay::attached::{Attached as SharedClient, Refused};
use crate::relay::exclusive::{Client, Relay, Taken};
use mcpvisor_lifecycle::registry::{Goal, RegistryEvent, Target};
use mcpvisor_lifecycle::server::{Mode, ServerState};
use mcpvisor_lifecycle::session::SessionState;
use mcpvisor_lifecycle::{Generation, ServerName, SessionId};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Where the client's messages come from and go to.
#[derive(Debug)]
pub enum AttachStreams {
    /// A pipe or a socket for each direction. Their flags are never changed.
    Two {
        /// What the client says.
        stdin: OwnedFd,
        /// What it hears.
        stdout: OwnedFd,
    },
    /// One socket.
    One {
        /// For both directions.
        socket: OwnedFd,
        /// What was read from it already.
        first: Vec<u8>,
        /// What the client is to hear before the server's first byte.
        greeting: Vec<u8>,
    },
}

/// What a client wants to be attached to.
#[derive(Debug, Clone, Copy, Default)]
pub struct Attach<'a> {
    /// One server only.
    pub server: Option<&'a ServerName>,
    /// As the one client of an exclusive server.
    pub exclusive: bool,
    /// Its end is the session's, and revokes the session's token.
    pub close_on_detach: bool,
}

/// What a client may be attached to.
#[derive(Clone)]
pub struct Attachable {
    record: Arc<SessionRecord>,
    to: To,
    detach: Option<Detach>,
    _presence: Arc<Presence>,
}

#[derive(Clone)]
enum To {
    /// One exclusive server.
    Exclusive(ServerName, Relay),
    /// The session's shared servers as one, or one of them.
    Shared(Option<ServerName>),
}

/// A client that is attached.
#[derive(Clone)]
pub struct Attachment {
    attached: Attached,
    detach: Option<Detach>,
}

/// Tells the registry that the client has gone whose end is the session's; once, whoever notices it first.
#[derive(Clone)]
struct Detach {
    core: Arc<Core>,
    session: SessionId,
    told: Arc<AtomicBool>,
}

impl Detach {
    fn tell(&self) {
        if !self.told.swap(true, Ordering::Relaxed) {
            self.core.tell(RegistryEvent::Detached { session: self.session });
        }
    }
}

#[derive(Clone)]
enum Attached {
    Exclusive(Relay),
    Shared(Arc<SharedClient>),
}

impl Supervisor {
    /// Finds what a client is to be attached to; a session that starts is waited for.
    ///
    /// # Errors
    /// `Unsupported` where an exclusive server is asked for as a shared one, or the other way, or the session is direct; `Invalid` of a
    /// server that it does not have; and see [`Failure`].
    pub async fn attachable(
        &self,
        meant: impl Into<Meant>,
        attach: Attach<'_>,
    ) -> Result<Attachable, Failure> {
        let Attach { server, exclusive, close_on_detach } = attach;
        let record = self.meant(&meant.into()).await?;
        not_a_host(&record)?;
        let state = record.live().state;
        match state {
            SessionState::Quarantined => return Err(Failure::Quarantined { session: record.id }),
            SessionState::Draining | SessionState::Stopping => {
                return Err(Failure::SessionClosing { session: record.id });
            }
            SessionState::Starting => {
                let target = Target { key: record.key.clone(), generation: Some(record.id.generation) };
                self.wait(target, Goal::Ready, None).await?;
            }
            _ => {}
        }
        // Until it is attached itself: a parked session is awake by then, and stays so.
        let presence = if exclusive {
            which(&record, server)?;
            self.enter(&record).await?
        } else {
            shared(&record, server)?;
            self.enter(&record).await?
        };
        let to = if exclusive {
            let server = which(&record, server)?;
            let (relay, ready) = {
                let live = server.live();
                (live.relay.clone(), live.state == ServerState::Ready)
            };
            let name = server.spec.name.clone();
            match relay.filter(|_| ready) {
                Some(relay) => To::Exclusive(name, relay),
                None => return Err(does_not_run(&name)),
            }
        } else {
            To::Shared(server.cloned())
        };
        let detach = close_on_detach.then(|| Detach {
            core: Arc::clone(&self.core),
            session: record.id,
            told: Arc::default(),
        });
        Ok(Attachable { record, to, detach, _presence: Arc::new(presence) })
    }

    /// Resolves when the clients of an ended session have everything that was for them.
    pub async fn delivered(&self, Kept(record): &Kept) {
        for server in record.servers().iter() {
            let relay = server.live().delivering.clone();
            if let Some(relay) = relay {
                relay.delivered().await;
            }
        }
        if let Some(client) = record.slot.client() {
            client.ended().await;
        }
    }
}

impl Attachable {
    /// The session's generation.
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.record.id.generation
    }

    /// The server's name, where it is one.
    #[must_use]
    pub fn server(&self) -> Option<&ServerName> {
        match &self.to {
            To::Exclusive(server, _) => Some(server),
            To::Shared(server) => server.as_ref(),
        }
    }

    /// Attaches the client.
    ///
    /// # Errors
    /// `Unsupported` where there is a client already, an exclusive server has just ended, or the streams can't be relayed; `SessionClosing`.
    pub fn attach(self, streams: AttachStreams) -> Result<Attachment, Failure> {
        let detach = self.detach.clone();
        let attachment = Attachment { attached: self.connect(streams)?, detach };
        if attachment.detach.is_some() {
            // Also where nobody waits for its end any more.
            let watched = attachment.clone();
            tokio::spawn(async move { watched.ended().await });
        }
        Ok(attachment)
    }

    fn connect(self, streams: AttachStreams) -> Result<Attached, Failure> {
        let client = client(streams).map_err(|error| {
            Failure::Unsupported(format!("the client's streams can't be relayed: {error}"))
        })?;
        let session = self.record.id;
        match self.to {
            To::Exclusive(server, relay) => match relay.attach(client) {
                Ok(()) => Ok(Attached::Exclusive(relay)),
                Err(Taken::HasClient) => Err(Failure::Unsupported(
                    "the server has its one client already; it is exclusive, and ends with it".to_owned(),
                )),
                Err(Taken::Stopping) => Err(match self.record.live().state {
                    // It ended by itself a moment ago.
                    SessionState::Ready | SessionState::Degraded => does_not_run(&server),
                    _ => Failure::SessionClosing { session },
                }),
            },
            To::Shared(server) => {
                let attached = self.record.slot.attach(&self.record, server.as_ref(), client);
                let attached = attached.map_err(|refused| match refused {
                    Refused::HasClient => Failure::Unsupported(
                        "a client is attached to the session's shared servers already, and they serve one at a time".to_owned(),
                    ),
                    Refused::Closing => Failure::SessionClosing { session },
                })?;
                // A session that ended just now has not seen this client.
                if self.record.has_ended() {
                    attached.session_over();
                }
                Ok(Attached::Shared(attached))
            }
        }
    }
}

impl Attachment {
    /// Resolves when the conversation is over and the client has everything that was for it. By then the session's token is revoked, and
    /// its close has begun, where this client's end is the session's.
    pub async fn ended(&self) {
        match &self.attached {
            Attached::Exclusive(relay) => relay.delivered().await,
            Attached::Shared(client) => client.ended().await,
        }
        if let Some(detach) = &self.detach {
            detach.tell();
        }
    }

    /// The client ended its stream while the other side's still went on.
    #[must_use]
    pub fn client_left_first(&self) -> bool {
        match &self.attached {
            Attached::Exclusive(relay) => relay.client_left_first(),
            Attached::Shared(client) => client.client_left_first(),
        }
    }

    /// The client's connection is gone: its calls are cancelled.
    pub fn client_lost(&self) {
        match &self.attached {
            Attached::Exclusive(relay) => relay.client_lost(),
            Attached::Shared(client) => client.client_lost(),
        }
    }
}

fn does_not_run(server: &ServerName) -> Failure {
    Failure::Unsupported(format!("server {server} does not run now"))
}

fn client(streams: AttachStreams) -> io::Result<Client> {
    match streams {
        AttachStreams::Two { stdin, stdout } => Client::new(stdin, stdout),
        AttachStreams::One { socket, first, greeting } => Client::over_socket(socket, first, greeting),
    }
}

/// The exclusive server that is meant; where none is named, the only one.
fn which(record: &SessionRecord, name: Option<&ServerName>) -> Result<Arc<ServerRecord>, Failure> {
    let server = match name {
        Some(name) => record
            .server(name)
            .ok_or_else(|| Failure::Invalid(format!("the session has no server {name}")))?,
        None => match &*record.roster.members() {
            [only] => Arc::clone(only),
            _ => return Err(Failure::Invalid("the session has several servers: say which".to_owned())),
        },
    };
    let name = &server.spec.name;
    let why = match server.spec.mode {
        Mode::Exclusive => return Ok(Arc::clone(&server)),
        Mode::Shared => "is shared: the daemon speaks to it, and no client alone can",
        Mode::Direct => "is direct: it was born with its client's streams",
    };
    Err(Failure::Unsupported(format!("server {name} {why}")))
}

/// Whether a client can be attached to shared servers: all that the session has, or the one that is named.
fn shared(record: &SessionRecord, name: Option<&ServerName>) -> Result<(), Failure> {
    let why = |server: &ServerRecord| match server.spec.mode {
        Mode::Shared => None,
        Mode::Exclusive => Some(Failure::Unsupported(format!(
            "server {} is exclusive: attach to it with `--exclusive`",
            server.spec.name
        ))),
        Mode::Direct => Some(Failure::Unsupported(format!(
            "server {} is direct: it was born with its client's streams",
            server.spec.name
        ))),
    };
    match name {
        Some(name) => {
            let server = record.server(name);
            let server =
                server.ok_or_else(|| Failure::Invalid(format!("the session has no server {name}")))?;
            why(&server).map_or(Ok(()), Err)
        }
        None => {
            let members = record.roster.members();
            if members.iter().any(|server| server.spec.mode == Mode::Shared) {
                return Ok(());
            }
            members.iter().find_map(|server| why(server)).map_or(Ok(()), Err)
        }
    }
}
