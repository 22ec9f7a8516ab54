//! Attaching a client to a session's shared servers, or to an exclusive one.
use super::access::Access;
use crate::connection::Context;
use crate::convert;
use crate::resolve;
use crate::wire::Descriptors;
use mcpvisor_control::message::{error_response, response};
use mcpvisor_control::params::SessionAttach;
use mcpvisor_control::results::{Attached, ConversationEnd};
use mcpvisor_control::{ErrorKind, ErrorObject, Id};
use mcpvisor_supervisor::{Attach, AttachStreams, Attachable, Attachment};

/// With descriptors of the client's own: answered when the conversation is over. A requester that goes before is a client that is lost.
pub(super) async fn attach(
    context: Context,
    params: SessionAttach,
    descriptors: Descriptors,
) -> Result<Attached, ErrorObject> {
    let Some(names) = &params.descriptors else {
        return Err(ErrorObject::new(
            ErrorKind::InvalidRequest,
            "session/attach without descriptors makes the connection carry MCP: no other request may be in flight on it",
        ));
    };
    let (stdin, stdout) = resolve::attached(names, descriptors)?;
    let attachable = find(&context, &params).await?;
    let mut attached = told(&params, &attachable);
    let attachment = attachable
        .attach(AttachStreams::Two { stdin, stdout })
        .map_err(|failure| convert::error(failure, Some(&convert::key_name(&params.key))))?;
    audit(&context, &params, &attached);
    let _lost = LostWhenDropped(&attachment);
    attachment.ended().await;
    let client_first = attachment.client_left_first();
    attached.first_end = Some(if client_first { ConversationEnd::Client } else { ConversationEnd::Server });
    Ok(attached)
}

struct LostWhenDropped<'a>(&'a Attachment);

impl Drop for LostWhenDropped<'_> {
    fn drop(&mut self) {
        // Of one that has ended by itself this changes nothing.
        self.0.client_lost();
    }
}

/// A client that is to be attached over its connection.
pub(crate) struct Attaching {
    id: Id,
    attachable: Attachable,
    attached: Attached,
}

/// The first step of an attachment over the connection itself: finds the server.
pub(crate) async fn begin(context: Context, params: SessionAttach) -> Result<Attaching, ErrorObject> {
    let attachable = find(&context, &params).await?;
    let attached = told(&params, &attachable);
    audit(&context, &params, &attached);
    Ok(Attaching { id: context.id, attachable, attached })
}

impl Attaching {
    /// The second: the server's first byte comes behind the answer. An error comes as the line to answer with.
    pub(crate) fn attach(
        self,
        streams: impl FnOnce(Vec<u8>) -> AttachStreams,
    ) -> Result<Attachment, Vec<u8>> {
        let refused = |error: &ErrorObject| error_response(Some(&self.id), error);
        let answer = response(&self.id, &self.attached).map_err(|error| {
            refused(&ErrorObject::new(ErrorKind::Internal, format!("the answer can't be told: {error}")))
        })?;
        let key = convert::key_name(&self.attached.key);
        let attached = self.attachable.attach(streams(answer));
        attached.map_err(|failure| refused(&convert::error(failure, Some(&key))))
    }
}

async fn find(context: &Context, params: &SessionAttach) -> Result<Attachable, ErrorObject> {
    let access = Access::of(context, params.user, &params.key, params.generation, params.token.as_ref())?;
    let server = params.server.as_ref().map(convert::server_name);
    let attach = Attach {
        server: server.as_ref(),
        exclusive: params.exclusive,
        close_on_detach: params.close_on_detach,
    };
    let found = context.daemon.supervisor.attachable(access.meant.clone(), attach);
    let found = context.within(params.deadline_ms, found).await?;
    found.map_err(|failure| access.error(failure))
}

fn told(params: &SessionAttach, attachable: &Attachable) -> Attached {
    Attached {
        key: params.key.clone(),
        generation: attachable.generation().0,
        server: attachable.server().map(convert::wire_server_name),
        first_end: None,
    }
}

fn audit(context: &Context, params: &SessionAttach, attached: &Attached) {
    let (uid, pid) = (context.peer.uid, context.peer.pid);
    let (session, generation) = (&attached.key, attached.generation);
    let server = attached.server.as_ref().map(tracing::field::display);
    let (by_token, close_on_detach) = (params.token.is_some(), params.close_on_detach);
    tracing::info!(%session, generation, server, uid, pid, by_token, close_on_detach, "client attached");
}
