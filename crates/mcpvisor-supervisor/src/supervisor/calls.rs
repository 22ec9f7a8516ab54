//! The tools of a session, and calls of them. Nothing here passes a mailbox but the question whose session it is.
use super::Supervisor;
use super::failure::call_failure;
use crate::api::{Failure, ToolView};
use crate::catalogue::{Catalogue, Meaning, Owner, ServerTools};
use crate::core::count;
use crate::record::SessionRecord;
use crate::relay::CallError;
use mcpvisor_lifecycle::ServerName;
use mcpvisor_lifecycle::registry::{Goal, Target};
use mcpvisor_lifecycle::server::Mode;
use mcpvisor_lifecycle::session::SessionState;
use mcpvisor_mcp::tools::check_result;
use serde_json::value::RawValue;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long an exit may follow the end of the output and still be told with it.
const EXIT_FOLLOWS: Duration = Duration::from_millis(200);

impl Supervisor {
    /// A session that can be called: shared servers, ready.
    async fn callable(&self, target: Target) -> Result<Arc<SessionRecord>, Failure> {
        let record = self.resolve(target.clone(), false).await?;
        if record.direct {
            let why = "no byte of a direct session passes through the daemon: it has no tools and no calls";
            return Err(Failure::Unsupported(why.to_owned()));
        }
        if record.servers.iter().all(|server| server.spec.mode == Mode::Exclusive) {
            return Err(exclusive(&record.servers[0].spec.name));
        }
        let state = record.live().state;
        if state == SessionState::Quarantined {
            return Err(Failure::Quarantined { session: record.id });
        }
        if state == SessionState::Starting {
            let target = Target { generation: Some(record.id.generation), ..target };
            self.wait(target, Goal::Ready, None).await?;
        }
        Ok(record)
    }

    async fn catalogue(&self, record: &SessionRecord) -> Result<Catalogue, Failure> {
        let mut servers = Vec::with_capacity(record.servers.len());
        for server in &record.servers {
            let Some(connection) = server.connection() else { continue };
            match connection.tools().await {
                Ok(tools) => servers.push(ServerTools { server: server.spec.name.clone(), tools }),
                Err(CallError::ServerExited) => {}
                Err(error) => return Err(call_failure(error, &server.spec.name, record)),
            }
        }
        Ok(Catalogue::new(&servers))
    }

    /// The tools of a session under their published names.
    ///
    /// # Errors
    /// `unsupported` of a direct session, and see [`Failure`].
    pub async fn tools(&self, target: Target) -> Result<Vec<ToolView>, Failure> {
        let record = self.callable(target).await?;
        let _permit = record.gate.admit().map_err(|_| Failure::SessionClosing { session: record.id })?;
        Ok(self.catalogue(&record).await?.tools())
    }

    /// One call, answered with the server's result as it came. Dropping the future cancels it at the server.
    ///
    /// # Errors
    /// `SessionClosing` once the gate is closed; `ServerError` where the server answered with an error, `BadAnswer` where with what is
    /// no result; see [`Failure`].
    pub async fn call(
        &self,
        target: Target,
        server: Option<ServerName>,
        tool: String,
        arguments: Option<Box<RawValue>>,
        deadline: Option<Instant>,
    ) -> Result<Box<RawValue>, Failure> {
        let call = self.call_without_deadline(target, server, tool, arguments);
        match deadline {
            None => call.await,
            Some(at) => {
                tokio::time::timeout_at(at.into(), call).await.unwrap_or(Err(Failure::DeadlineExceeded))
            }
        }
    }

    async fn call_without_deadline(
        &self,
        target: Target,
        server: Option<ServerName>,
        tool: String,
        arguments: Option<Box<RawValue>>,
    ) -> Result<Box<RawValue>, Failure> {
        let record = self.callable(target).await?;
        let permit = record.gate.admit().map_err(|_| Failure::SessionClosing { session: record.id })?;
        count(&self.core.counters.calls);
        let owner = match server {
            Some(server) => Owner { server, tool },
            None => match self.catalogue(&record).await?.find(&tool) {
                Meaning::One(owner) => owner,
                Meaning::Ambiguous(names) => {
                    let text =
                        format!("several servers have a tool {tool}: say which by {}", names.join(" or "));
                    return Err(Failure::Invalid(text));
                }
                Meaning::Unknown => return Err(Failure::Invalid(format!("the session has no tool {tool}"))),
            },
        };
        let Some(server) = record.server(&owner.server) else {
            return Err(Failure::Invalid(format!("the session has no server {}", owner.server)));
        };
        if server.spec.mode == Mode::Exclusive {
            permit.withdraw();
            return Err(exclusive(&owner.server));
        }
        let Some(connection) = server.connection() else {
            return Err(call_failure(CallError::ServerExited, &owner.server, &record));
        };
        let answer = connection.call_tool(&owner.tool, arguments).await.and_then(|result| {
            check_result(&result).map_err(|error| CallError::BadAnswer(error.to_string()))?;
            Ok(result)
        });
        match answer {
            Ok(result) => {
                permit.finish();
                Ok(result)
            }
            Err(CallError::Settled(_)) => {
                permit.cancel();
                Err(Failure::SessionClosing { session: record.id })
            }
            Err(error) => {
                permit.finish();
                if matches!(error, CallError::ServerExited) {
                    exit_is_known(&record, &owner.server).await;
                }
                Err(call_failure(error, &owner.server, &record))
            }
        }
    }
}

fn exclusive(server: &ServerName) -> Failure {
    Failure::Unsupported(format!(
        "server {server} is exclusive: the daemon never speaks to it, and only the client that is attached to it can call it"
    ))
}

/// Waits until it is known how the server ended: the end of its output is seen first, its exit a moment later. Not for long,
/// since a server may live on without its output.
async fn exit_is_known(record: &SessionRecord, server: &ServerName) {
    let Some(server) = record.server(server) else { return };
    let exited = server.exited.notified();
    // Without a notification in between, `exited` hears of an exit that comes after this look.
    if server.live().exit.is_none() {
        let _ = tokio::time::timeout(EXIT_FOLLOWS, exited).await;
    }
}
