//! Calls of the client that the session's policy holds for a person.
//!
//! A call that was not approved is answered with a result that is an error (`isError`), not with an error of JSON-RPC: hosts show results to
//! their models, which can then do without the tool, and many end the turn at an error of the protocol.
use super::super::Connection;
use super::super::shared::lock;
use super::Attached;
use crate::desk::{Refused, ToHold};
use crate::record::ServerRecord;
use mcpvisor_lifecycle::HoldNumber;
use mcpvisor_mcp::endpoint::CallKey;
use mcpvisor_mcp::hold::called;
use mcpvisor_mcp::peer::Forward;
use mcpvisor_mcp::relay::Because;
use serde_json::json;
use std::sync::Arc;

/// Whether a call goes to its server.
enum Passes {
    Freely,
    /// If a person approves it.
    Held(Held),
    /// Nobody can tell what it calls.
    Never,
}

/// A call that a person is to approve.
struct Held {
    /// The name under which it was called.
    tool: String,
    /// Whose it is. Its number may be another's when it is approved.
    server: Arc<ServerRecord>,
}

impl Attached {
    /// Passes a call on to its server, a held one when it is approved.
    pub(super) fn pass_on(
        self: &Arc<Self>,
        call: CallKey,
        face: usize,
        forward: Forward<'_>,
        touched: &mut Vec<Connection>,
    ) {
        match self.passes(face, &forward) {
            Passes::Freely => self.ask(call, face, &forward, touched),
            Passes::Never => self.unclear(call),
            Passes::Held(held) => {
                let (client, forward) = (Arc::clone(self), forward.into_owned());
                // Held until the task is known, so that it can't end before it is.
                let mut errands = lock(&self.errands);
                let task = tokio::spawn(async move {
                    client.when_approved(call, face, &held, &forward).await;
                    lock(&client.errands).remove(&call);
                    client.flush();
                });
                errands.insert(call, task.abort_handle());
            }
        }
    }

    /// The same within an errand of the call's.
    pub(super) async fn pass_on_here(self: &Arc<Self>, call: CallKey, face: usize, forward: Forward<'_>) {
        match self.passes(face, &forward) {
            Passes::Freely => {
                let mut touched = Vec::new();
                self.ask(call, face, &forward, &mut touched);
                self.flush_servers(&mut touched);
            }
            Passes::Never => self.unclear(call),
            Passes::Held(held) => self.when_approved(call, face, &held, &forward).await,
        }
    }

    fn passes(&self, face: usize, forward: &Forward<'_>) -> Passes {
        let policy = &self.record.policy;
        if forward.method != "tools/call" || policy.hold.is_empty() {
            return Passes::Freely;
        }
        let Some(server) = self.server(face) else { return Passes::Freely };
        let Some(called) = called(&forward.line) else { return Passes::Never };
        let own =
            forward.rename.as_ref().and_then(|(_, quoted)| serde_json::from_slice::<String>(quoted).ok());
        if !policy.holds(&server.spec.name, &called.name, own.as_deref().unwrap_or(&called.name)) {
            return Passes::Freely;
        }
        Passes::Held(Held { tool: called.name.into_owned(), server })
    }

    async fn when_approved(self: &Arc<Self>, call: CallKey, face: usize, held: &Held, forward: &Forward<'_>) {
        let (tool, server) = (held.tool.as_str(), &held.server.spec.name);
        let arguments = called(&forward.line).and_then(|called| called.arguments);
        let patience = self.record.policy.approval_timeout;
        let there = || self.record.has(server);
        match self.record.desk.approval(ToHold { server, there: &there, tool, arguments, patience }).await {
            Ok(()) => match self.still(face, &held.server) {
                Some(face) => {
                    let mut touched = Vec::new();
                    self.ask(call, face, forward, &mut touched);
                    self.flush_servers(&mut touched);
                }
                None => {
                    let ended = self.endpoint().refused(call, Because::ServerLeft);
                    self.finish(ended);
                }
            },
            Err(Refused::ServerGone(_)) => {
                let ended = self.endpoint().refused(call, Because::ServerLeft);
                self.finish(ended);
            }
            Err(Refused::Closing) => {
                let ended = self.endpoint().refused(call, Because::Closing);
                self.withdrawn(ended);
            }
            Err(Refused::Full(_)) => {
                let ended = self.endpoint().refused(call, Because::Overloaded);
                self.finish(ended);
            }
            Err(Refused::Denied(number, why)) => {
                let why = why.map_or_else(
                    || "a person has denied it".to_owned(),
                    |why| format!("a person has denied it, and says: {why}"),
                );
                self.not_approved(call, held, (number, "denied"), &why);
            }
            Err(Refused::TimedOut(number, after)) => {
                let why = format!("nobody has approved it within {after:?}");
                self.not_approved(call, held, (number, "timed_out"), &why);
            }
        }
    }

    fn unclear(&self, call: CallKey) {
        let text = "tools of this session are held for approval, and it can't be told which one is called";
        let ended = self.endpoint().invalid(call, -32602, text);
        self.finish(ended);
    }

    fn not_approved(
        &self,
        call: CallKey,
        Held { tool, server }: &Held,
        (number, decision): (HoldNumber, &str),
        why: &str,
    ) {
        let about = json!({
            "kind": "permission_denied",
            "from": "mcpvisor",
            "approval": format!("{}.{}", self.record.id.generation.0, number.0),
            "decision": decision,
            "server": server.spec.name.as_str(),
        });
        let text = format!("The call of {tool} was not carried out: {why}.");
        let mut result = json!({
            "content": [{ "type": "text", "text": text }],
            "isError": true,
            "_meta": { "mcpvisor/error": about },
        });
        let mut endpoint = self.endpoint();
        if endpoint.is_modern() {
            result["resultType"] = "complete".into();
        }
        let ended = endpoint.errand_done(call, &result.to_string());
        drop(endpoint);
        self.finish(ended);
    }
}
