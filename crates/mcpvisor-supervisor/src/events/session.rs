//! What is told of a session and its servers, from the records.
use super::{Event, EventKind, Field, Fields, Subject};
use crate::api::{Certificate, OpenRequest, ServerCertificate, StartFailure};
use crate::record::{ServerRecord, SessionRecord};
use mcpvisor_lifecycle::KeyRef;
use mcpvisor_lifecycle::registry::Refusal;
use mcpvisor_lifecycle::server::ServerState;
use mcpvisor_lifecycle::session::SessionState;
use std::sync::Arc;
use std::time::Instant;

impl SessionRecord {
    /// Publishes an event of this session, or of one of its servers.
    pub(crate) fn publish(&self, server: Option<&ServerRecord>, kind: EventKind, data: Fields) -> Arc<Event> {
        self.events.publish(self.key.uid, kind, self.subject(server), data)
    }

    fn subject(&self, server: Option<&ServerRecord>) -> Subject {
        Subject {
            key: Some(self.key.key.clone()),
            generation: Some(self.id.generation),
            server: server.map(|server| server.spec.name.clone()),
        }
    }

    /// It was admitted.
    pub(crate) fn tell_admitted(&self) {
        let servers = Field::list(&*self.servers(), |server| Field::from(&server.spec.name));
        let data = vec![
            ("tenant", self.tenant.as_ref().into()),
            ("lease", self.lease.as_str().into()),
            ("servers", servers),
        ];
        self.publish(None, EventKind::SessionStarting, data);
    }

    /// It has come into a state that is neither its first nor a final one; a quarantine is told with its report.
    pub(crate) fn tell_state(&self, state: SessionState) {
        let kind = match state {
            SessionState::Ready => EventKind::SessionReady,
            SessionState::Degraded => EventKind::SessionDegraded,
            SessionState::Draining => EventKind::SessionDraining,
            SessionState::Stopping => EventKind::SessionStopping,
            SessionState::Starting
            | SessionState::Quarantined
            | SessionState::Closed
            | SessionState::Failed => return,
        };
        let closing = self.live().closing;
        let data = closing.map(|(_, reason)| ("reason", Field::from(reason)));
        self.publish(None, kind, data.into_iter().collect());
    }

    /// The kill has left something.
    pub(crate) fn tell_quarantined(&self, certificate: &Certificate) {
        let remaining = Field::list(&certificate.remaining, |(pid, command)| {
            Field::Object(vec![("pid", (*pid).into()), ("command", command.as_str().into())])
        });
        let data = vec![
            ("reason", certificate.reason.into()),
            ("left", certificate.remaining.len().into()),
            ("remaining", remaining),
        ];
        self.publish(None, EventKind::SessionQuarantined, data);
    }

    /// Nothing is left of it: its last event, in the step in which its final state is written.
    pub(crate) fn tell_ended(&self, certificate: &Certificate) {
        let kind = match certificate.state {
            SessionState::Failed => EventKind::SessionFailed,
            _ => EventKind::SessionClosed,
        };
        let mut data = vec![
            ("outcome", certificate.outcome.into()),
            ("proof", certificate.proof.into()),
            ("reason", certificate.reason.into()),
            ("drained", certificate.drained.into()),
            ("duration_ms", certificate.duration.into()),
            ("servers", Field::list(&certificate.servers, ended_server)),
        ];
        data.extend(
            certificate.failure.as_ref().map(|failure| ("failure", Field::Object(failed(failure, true)))),
        );
        self.events.publish_last(self.key.uid, kind, self.subject(None), data, &self.terminal);
    }

    /// A server of it has come into the state that its record tells.
    pub(crate) fn tell_server(&self, server: &ServerRecord) {
        let (kind, data) = {
            let live = server.live();
            let kind = match live.state {
                ServerState::Starting => EventKind::ServerStarting,
                ServerState::Ready => EventKind::ServerReady,
                ServerState::Backoff => EventKind::ServerBackoff,
                ServerState::Stopping => EventKind::ServerStopping,
                ServerState::Stopped => EventKind::ServerStopped,
                ServerState::Failed => EventKind::ServerFailed,
            };
            let mut data = vec![("restarts", live.restarts.into())];
            match live.state {
                ServerState::Ready => data.extend([
                    ("pid", live.pid.into()),
                    ("era", live.era.into()),
                    ("protocol", live.protocol.as_deref().into()),
                ]),
                // It goes on, and the session is what leaves.
                ServerState::Stopping | ServerState::Stopped if server.spec.scope.is_apart() => {
                    if live.state == ServerState::Stopped {
                        data.extend([("stage", Field::Nothing), ("exit", Field::Nothing)]);
                    } else {
                        data.push(("pid", live.pid.into()));
                    }
                    data.extend([("detached", true.into()), ("scope", server.spec.scope.as_str().into())]);
                }
                ServerState::Stopping => data.push(("pid", live.pid.into())),
                ServerState::Stopped => {
                    data.extend([("stage", live.stage.into()), ("exit", live.exit.into())]);
                }
                ServerState::Backoff | ServerState::Failed => {
                    data.extend(live.failure.as_ref().into_iter().flat_map(|failure| failed(failure, false)));
                }
                ServerState::Starting => {}
            }
            (kind, data)
        };
        self.publish(Some(server), kind, data);
    }
}

impl SessionRecord {
    /// A server's tools are the session's from now on; perhaps in the place of another of its name.
    pub(crate) fn tell_added(&self, server: &ServerRecord, replaces: bool) {
        self.publish(Some(server), EventKind::ServerAdded, vec![("replaces", replaces.into())]);
    }

    /// A server's tools are not the session's any more.
    pub(crate) fn tell_removed(&self, server: &ServerRecord) {
        self.publish(Some(server), EventKind::ServerRemoved, Fields::new());
    }
}

fn ended_server(server: &ServerCertificate) -> Field {
    if let Some(detached) = &server.detached {
        return Field::Object(vec![
            ("name", (&server.name).into()),
            ("detached", true.into()),
            ("scope", detached.scope.into()),
        ]);
    }
    Field::Object(vec![
        ("name", (&server.name).into()),
        ("stage", server.stage.into()),
        ("exit", server.exit.into()),
        ("duration_ms", server.duration.into()),
    ])
}

/// How a server failed; its last words are in `show` and in the certificate.
fn failed(failure: &StartFailure, named: bool) -> Fields {
    let mut data = Fields::new();
    if named {
        data.push(("server", (&failure.server).into()));
    }
    data.extend([
        ("cause", failure.cause.into()),
        ("message", failure.message.as_str().into()),
        ("exit", failure.exit.into()),
    ]);
    data
}

/// An open that got no session.
pub(crate) struct Refused {
    data: Fields,
}

impl Refused {
    /// None: a session was opened for it, and that one's events tell how it ended.
    pub(crate) fn of(refusal: &Refusal) -> Option<Self> {
        let error = match refusal {
            Refusal::Draining => "draining",
            Refusal::SessionExists { .. } => "session_exists",
            Refusal::SessionClosing { .. } => "session_closing",
            Refusal::Quarantined { .. } => "quarantined",
            Refusal::CapacityExhausted { .. } => "capacity_exhausted",
            Refusal::DeadlineExceeded { .. } => "deadline_exceeded",
            Refusal::ParentClosing { .. } => "session_closing",
            Refusal::ParentNotFound => "not_found",
            Refusal::TooDeep { .. } | Refusal::HolderEnded => "invalid_request",
            Refusal::Broken(_) => "start_failed",
            Refusal::SessionClosed { .. }
            | Refusal::SessionFailed { .. }
            | Refusal::StartFailed { .. }
            // No open is answered so.
            | Refusal::StaleGeneration { .. }
            | Refusal::NotFound
            | Refusal::NotQuarantined { .. } => return None,
        };
        let mut data = vec![("error", error.into())];
        if let Refusal::CapacityExhausted { scope, used, limit, retry_after } = refusal {
            data.extend([
                ("scope", scope.as_str().into()),
                ("used", (*used).into()),
                ("limit", (*limit).into()),
                ("retry_after_ms", (*retry_after).into()),
            ]);
        }
        Some(Self { data })
    }

    pub(crate) fn publish(self, events: &super::Events, key: &KeyRef) {
        let subject = Subject { key: Some(key.key.clone()), ..Subject::default() };
        events.publish(key.uid, EventKind::SessionRefused, subject, self.data);
    }
}

/// An open that waits for a slot.
pub(crate) struct InQueue {
    key: KeyRef,
    since: Instant,
}

impl InQueue {
    /// It begins to.
    pub(crate) fn begin(events: &super::Events, open: &OpenRequest, position: usize) -> Self {
        let queued = Self { key: open.key.clone(), since: Instant::now() };
        let data = vec![("position", position.into()), ("tenant", open.tenant.as_ref().into())];
        queued.publish(events, EventKind::CapacityQueued, data);
        queued
    }

    /// It has its slot, or waits for none any more.
    pub(crate) fn leave(self, events: &super::Events, admitted: bool) {
        let kind = if admitted { EventKind::CapacityAdmitted } else { EventKind::CapacityLeft };
        self.publish(events, kind, vec![("waited_ms", self.since.elapsed().into())]);
    }

    fn publish(&self, events: &super::Events, kind: EventKind, data: Fields) {
        let subject = Subject { key: Some(self.key.key.clone()), ..Subject::default() };
        events.publish(self.key.uid, kind, subject, data);
    }
}
