//! A connection that carries MCP from an answer on.
use super::{Connection, locked};
use crate::dispatch::{Attaching, begin_attach};
use crate::wire::Line;
use mcpvisor_control::message::error_response;
use mcpvisor_control::params::SessionAttach;
use mcpvisor_control::{ErrorKind, ErrorObject, Id, Message, Method, parse_params};
use mcpvisor_supervisor::{AttachStreams, Attachment};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdStream;
use tokio::net::UnixStream;
use tokio::sync::watch;

/// The request that makes the connection carry MCP, if this line is one. What is wrong with it is said as of any other request.
pub(super) fn asked(line: &Line) -> Option<(Id, SessionAttach)> {
    let name = Method::SessionAttach.as_str();
    memchr::memmem::find(&line.bytes, name.as_bytes())?;
    let Ok(Message::Request { id, method, params }) = Message::parse(&line.bytes) else { return None };
    let attach: SessionAttach = (method == name).then(|| parse_params(params.as_deref()))?.ok()?;
    attach.descriptors.is_none().then_some((id, attach))
}

impl Connection {
    /// Finds the server; says so where there is none to be had.
    pub(super) async fn begin_attach(&self, id: Id, params: SessionAttach) -> Option<Attaching> {
        let (_not_cancelled, gone) = watch::channel(None);
        let alone = locked(&self.in_flight).is_empty();
        let begun = if alone {
            begin_attach(self.context(id.clone(), super::turns::Place::default(), gone), params).await
        } else {
            Err(ErrorObject::new(
                ErrorKind::InvalidRequest,
                "other requests are in flight on this connection, which session/attach would make carry MCP",
            ))
        };
        begun.map_err(|error| self.outbox.push(error_response(Some(&id), &error))).ok()
    }

    /// From now on the stream carries MCP. `rest` was read behind the request.
    pub(super) fn attach(
        &self,
        stream: UnixStream,
        attaching: Attaching,
        rest: Vec<u8>,
    ) -> Result<Attachment, Refusal> {
        // A refusal is told on the same socket, which the attempt takes.
        let both = stream.into_std().and_then(|stream| Ok((stream.try_clone()?, stream)));
        let (spare, socket) = match both {
            Ok((spare, stream)) => (spare, OwnedFd::from(stream)),
            Err(error) => {
                tracing::warn!(pid = self.peer.pid, %error, "a client could not be attached");
                return Err(Refusal(None));
            }
        };
        attaching
            .attach(|greeting| AttachStreams::One { socket, first: rest, greeting })
            .map_err(|line| Refusal(Some((spare, line))))
    }

    /// Carries MCP until the conversation is over.
    pub(super) async fn carry(&self, attachment: &Attachment) {
        tokio::select! {
            () = attachment.ended() => {}
            _ = self.daemon.ended() => attachment.client_lost(),
        }
    }
}

/// What is to be told to a client that could not be attached, if it can be told.
pub(super) struct Refusal(Option<(StdStream, Vec<u8>)>);

impl Refusal {
    pub(super) async fn tell(self) {
        let Some((stream, line)) = self.0 else { return };
        match UnixStream::from_std(stream) {
            Ok(stream) => write_all(&stream, &line).await,
            Err(error) => tracing::debug!(%error, "a refusal could not be told"),
        }
    }
}

async fn write_all(stream: &UnixStream, mut line: &[u8]) {
    while !line.is_empty() {
        match stream.try_write(line) {
            Ok(count) => line = &line[count..],
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                if stream.writable().await.is_err() {
                    return;
                }
            }
            Err(_) => return,
        }
    }
}
