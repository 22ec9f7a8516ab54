//! The one client of an exclusive server.
use super::Supervisor;
use crate::api::Failure;
use crate::record::{ServerRecord, SessionRecord};
use crate::relay::exclusive::{Client, Relay, Taken};
use mcpvisor_lifecycle::registry::{Goal, Target};
use mcpvisor_lifecycle::server::{Mode, ServerState};
use mcpvisor_lifecycle::session::SessionState;
use mcpvisor_lifecycle::{Generation, ServerName, SessionId};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

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

/// An exclusive server that a client may be attached to.
#[derive(Clone)]
pub struct Attachable {
    record: Arc<SessionRecord>,
    server: ServerName,
    relay: Relay,
}

/// A client that is attached.
#[derive(Clone)]
pub struct Attachment {
    relay: Relay,
}

impl Supervisor {
    /// Finds the server that a client is to be attached to; a session that starts is waited for.
    ///
    /// # Errors
    /// `Unsupported` of a server that is not exclusive, or of a session that has no one such; `Invalid` of a server that it does not
    /// have; and see [`Failure`].
    pub async fn attachable(
        &self,
        target: Target,
        server: Option<&ServerName>,
    ) -> Result<Attachable, Failure> {
        let record = self.resolve(target.clone(), false).await?;
        let state = record.live().state;
        match state {
            SessionState::Quarantined => return Err(Failure::Quarantined { session: record.id }),
            SessionState::Draining | SessionState::Stopping => {
                return Err(Failure::SessionClosing { session: record.id });
            }
            SessionState::Starting => {
                let target = Target { generation: Some(record.id.generation), ..target };
                self.wait(target, Goal::Ready, None).await?;
            }
            _ => {}
        }
        let server = which(&record, server)?;
        let (relay, ready) = {
            let live = server.live();
            (live.relay.clone(), live.state == ServerState::Ready)
        };
        match relay.filter(|_| ready) {
            Some(relay) => {
                Ok(Attachable { record: Arc::clone(&record), server: server.spec.name.clone(), relay })
            }
            None => Err(does_not_run(&server.spec.name)),
        }
    }

    /// Resolves when the clients of an ended session have everything that was for them.
    pub async fn delivered(&self, session: SessionId) {
        let Some(record) = self.core.record(session) else { return };
        for server in &record.servers {
            let relay = server.live().delivering.clone();
            if let Some(relay) = relay {
                relay.delivered().await;
            }
        }
    }
}

impl Attachable {
    /// The session's generation.
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.record.id.generation
    }

    /// The server's name.
    #[must_use]
    pub fn server(&self) -> &ServerName {
        &self.server
    }

    /// Attaches the client.
    ///
    /// # Errors
    /// `Unsupported` where the server has its client already or has just ended, or the streams can't be relayed; `SessionClosing`.
    pub fn attach(self, streams: AttachStreams) -> Result<Attachment, Failure> {
        let client = client(streams).map_err(|error| {
            Failure::Unsupported(format!("the client's streams can't be relayed: {error}"))
        })?;
        match self.relay.attach(client) {
            Ok(()) => Ok(Attachment { relay: self.relay }),
            Err(Taken::HasClient) => Err(Failure::Unsupported(
                "the server has its one client already; it is exclusive, and ends with it".to_owned(),
            )),
            Err(Taken::Stopping) => Err(match self.record.live().state {
                // It ended by itself a moment ago.
                SessionState::Ready | SessionState::Degraded => does_not_run(&self.server),
                _ => Failure::SessionClosing { session: self.record.id },
            }),
        }
    }
}

impl Attachment {
    /// Resolves when the server is gone and the client has everything that was for it.
    pub async fn ended(&self) {
        self.relay.delivered().await;
    }

    /// The client ended its stream while the server's still went on.
    #[must_use]
    pub fn client_left_first(&self) -> bool {
        self.relay.client_left_first()
    }

    /// The client's connection is gone: its calls are cancelled.
    pub fn client_lost(&self) {
        self.relay.client_lost();
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
fn which<'a>(record: &'a SessionRecord, name: Option<&ServerName>) -> Result<&'a Arc<ServerRecord>, Failure> {
    let server = match name {
        Some(name) => record
            .server(name)
            .ok_or_else(|| Failure::Invalid(format!("the session has no server {name}")))?,
        None => match record.servers.as_slice() {
            [only] => only,
            _ => return Err(Failure::Invalid("the session has several servers: say which".to_owned())),
        },
    };
    let name = &server.spec.name;
    let why = match server.spec.mode {
        Mode::Exclusive => return Ok(server),
        Mode::Shared => "is shared: the daemon speaks to it, and no client alone can",
        Mode::Direct => "is direct: it was born with its client's streams",
    };
    Err(Failure::Unsupported(format!("server {name} {why}")))
}
