//! A server that sessions share has a session of its own, its *host*: from the one to the other.
//!
//! The host is opened, joined or waited for like any session, by a key that is made of the server's definition. Whoever holds it is
//! counted at its gate as an attached client is, so that its idle limit is the linger.
use super::failure::failure;
use super::{Supervisor, ask_open};
use crate::api::{Failure, OpenRequest, Policy, Scope, ServerSpec, StartFailure};
use crate::core::Core;
use crate::definition;
use crate::gate::Presence;
use crate::record::{ServerRecord, SessionRecord};
use crate::relay::exclusive::Client;
use mcpvisor_lifecycle::KeyRef;
use mcpvisor_lifecycle::SessionKey;
use mcpvisor_lifecycle::registry::{IfClosing, IfOpen};
use mcpvisor_lifecycle::server::ServerState;
use mcpvisor_lifecycle::session::{CloseReason, IdleLimit, Limits, OnIdle};
use mcpvisor_mcp::catalogue::Prefix;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

/// An idle limit is not zero.
const LEAST_LINGER: Duration = Duration::from_millis(1);
/// Whoever holds it does so for as long as it likes: ten years.
const NO_PIN: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// A host that a session uses, until it is dropped.
pub(crate) struct Held {
    pub(crate) record: Arc<SessionRecord>,
    _presence: Presence,
}

/// Why a server that sessions share can't be used.
#[derive(Debug, Clone)]
pub(crate) struct Unheld {
    /// As in [`StartFailure::cause`].
    pub(crate) cause: &'static str,
    pub(crate) message: String,
    /// How the server failed, where it did.
    pub(crate) failure: Option<Box<StartFailure>>,
}

impl Unheld {
    pub(crate) fn new(cause: &'static str, message: impl Into<String>) -> Self {
        Self { cause, message: message.into(), failure: None }
    }

    pub(crate) fn failed(failure: StartFailure) -> Self {
        Self { cause: failure.cause, message: failure.message.clone(), failure: Some(Box::new(failure)) }
    }
}

/// Opens the host of a session's server, joins it, or waits until its key is free. Dropping the future gives it up.
pub(crate) async fn hold(core: &Core, session: &SessionRecord, spec: &ServerSpec) -> Result<Held, Unheld> {
    let Scope::Daemon { profile, linger } = &spec.scope else {
        return Err(Unheld::new("internal", "it is not shared with other sessions"));
    };
    let key = SessionKey::of_shared(profile, &spec.name, definition::server(spec));
    let request = OpenRequest {
        key: KeyRef { uid: session.key.uid, key },
        tenant: None,
        parent: None,
        profile: None,
        administrator: false,
        queue: None,
        position: None,
        labels: std::collections::BTreeMap::new(),
        servers: vec![ServerSpec {
            scope: Scope::Session,
            required: true,
            significant: false,
            ..spec.clone()
        }],
        origin: None,
        drain: session.drain,
        direct: None,
        if_closing: IfClosing::Wait,
        if_open: IfOpen::Join,
        wait: true,
        deadline: None,
        prefix: Prefix::Never,
        policy: Policy::default(),
        lease: "none".to_owned(),
        holder: None,
        secret: None,
        limits: Limits {
            ttl: None,
            idle: Some(IdleLimit { idle: (*linger).max(LEAST_LINGER), pin: NO_PIN, then: OnIdle::Close }),
        },
    };
    let reply = ask_open(core, core.request(), request).await;
    let reply = reply.map_err(|error| Unheld::new("internal", error.to_string()))?;
    match (reply.result, reply.record, reply.presence) {
        (Ok(_), Some(record), Some(presence)) => Ok(Held { record, _presence: presence }),
        (Ok(_), ..) => Err(Unheld::new("internal", "it was opened and is gone")),
        (Err(refusal), record, _) => Err(match failure(&refusal, record.as_deref()) {
            Failure::StartFailed { failure: Some(failure), .. }
            | Failure::SessionFailed { failure: Some(failure), .. } => Unheld::failed(*failure),
            Failure::CapacityExhausted { used, limit, .. } => Unheld::new(
                "capacity",
                format!("there are {used} processes of at most {limit}, and it would be one more"),
            ),
            Failure::Quarantined { .. } => {
                let key = record.map(|record| record.key.key.to_string()).unwrap_or_default();
                let text = "what is left of it could not be killed, and is quarantined as";
                Unheld::new("quarantined", format!("{text} {key}"))
            }
            error => Unheld::new("shared", error.to_string()),
        }),
    }
}

impl Held {
    /// The one server.
    pub(crate) fn server(&self) -> Option<Arc<ServerRecord>> {
        self.record.servers().first().cloned()
    }

    /// Attaches a client to the server as soon as it runs: the client's end of the socket.
    pub(crate) async fn attach(&self) -> Result<OwnedFd, Unheld> {
        loop {
            self.runs().await?;
            let told = |error: std::io::Error| Unheld::new("resources", error.to_string());
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)
                .map_err(|error| told(error.into()))?;
            let client = Client::over_socket(theirs, Vec::new(), Vec::new()).map_err(told)?;
            if self.record.slot.attach(&self.record, None, client).is_err() {
                return Err(self.why_over());
            }
            // Whoever was attached before the server's end hears of that; the other way round nobody would.
            if self.state() == Some(ServerState::Ready) {
                return Ok(ours);
            }
        }
    }

    fn state(&self) -> Option<ServerState> {
        let server = self.server()?;
        let live = server.live();
        let held = live.held;
        Some(live.state).filter(|state| !held || *state != ServerState::Ready)
    }

    /// Waits until the server runs, and no longer than it may come to that.
    async fn runs(&self) -> Result<(), Unheld> {
        let Some(server) = self.server() else { return Err(self.why_over()) };
        loop {
            let (turned, over) = (server.turned.notified(), self.record.over());
            tokio::pin!(turned);
            // Before the look: what turns after it is not missed.
            turned.as_mut().enable();
            if let Some(over) = self.over() {
                return Err(over);
            }
            match self.state() {
                Some(ServerState::Ready) if server.connection().is_some() => return Ok(()),
                _ => {}
            }
            tokio::select! {
                () = turned => {}
                () = over => {}
            }
        }
    }

    /// Why it is not started again, once it is not.
    pub(crate) fn over(&self) -> Option<Unheld> {
        let ending = self.record.live().closing.is_some() || self.record.has_ended();
        let ended = matches!(self.state(), Some(ServerState::Failed | ServerState::Stopped));
        (ending || ended).then(|| self.why_over())
    }

    /// How the server failed last, as far as is known.
    pub(crate) fn last_failure(&self) -> Option<StartFailure> {
        let server = self.server()?;
        server.live().failure.clone()
    }

    fn why_over(&self) -> Unheld {
        let closing = self.record.live().closing.map(|(_, reason)| reason);
        match self.last_failure() {
            _ if closing == Some(CloseReason::Requested) => {
                let key = &self.record.key.key;
                Unheld::new("closed", format!("it was closed for all sessions that share it, as {key}"))
            }
            Some(failure) => Unheld::failed(failure),
            None => Unheld::new("exited", "it was ended"),
        }
    }
}

impl Supervisor {
    /// The session that has the process of a session's server, where that is shared with others and used now.
    pub(super) fn host_of(
        record: &SessionRecord,
        server: &mcpvisor_lifecycle::ServerName,
    ) -> Option<Arc<SessionRecord>> {
        let server = record.server(server)?;
        server.live().host.clone()
    }
}

/// What a session that only has a server for others can't be asked for.
pub(super) fn not_a_host(record: &SessionRecord) -> Result<(), Failure> {
    match record.is_host() {
        false => Ok(()),
        true => Err(Failure::Unsupported(
            "sessions share this server, and it is used through them alone".to_owned(),
        )),
    }
}
