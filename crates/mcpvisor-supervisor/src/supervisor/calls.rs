//! The tools of a session, and calls of them. Nothing here passes a mailbox but the question whose session it is.
use super::Supervisor;
use super::failure::{CALL_TAIL, call_failure};
use super::host::not_a_host;
use crate::api::{Down, Failure, GivenUp, Meant, Requester, Scope, ToolView, ToolsView};
use crate::core::count;
use crate::record::{ServerRecord, SessionRecord};
use crate::relay::{CallError, Connection};
use mcpvisor_lifecycle::ServerName;
use mcpvisor_lifecycle::registry::{Goal, Target};
use mcpvisor_lifecycle::server::Mode;
use mcpvisor_lifecycle::session::SessionState;
use mcpvisor_mcp::ListKind;
use mcpvisor_mcp::catalogue::{Catalogue, Meaning, Owned, ServerItems};
use mcpvisor_mcp::result::check_result;
use serde_json::value::RawValue;
use std::sync::Arc;
use std::time::Duration;

/// How long an exit may follow the end of the output and still be told with it.
const EXIT_FOLLOWS: Duration = Duration::from_millis(200);

/// How often a call looks for a server that is not just leaving.
const MOST_LOOKS: usize = 4;

/// A call of a tool.
#[derive(Clone)]
pub struct Call {
    /// Who waits for it, and until when.
    pub requester: Requester,
    /// The server that has the tool, where it is named; the tool's name is its own then.
    pub server: Option<ServerName>,
    /// The tool's published name.
    pub tool: String,
    /// An object.
    pub arguments: Option<Box<RawValue>>,
    /// Who hears of its progress.
    pub progress: Option<Progress>,
}

/// Hears the parameters of each `notifications/progress` of a call, as they came. Must not block.
pub type Progress = Arc<dyn Fn(&RawValue) + Send + Sync>;

impl Supervisor {
    /// A session that can be called: shared servers, ready.
    async fn callable(&self, meant: &Meant) -> Result<Arc<SessionRecord>, Failure> {
        let record = self.meant(meant).await?;
        not_a_host(&record)?;
        if record.direct {
            let why = "no byte of a direct session passes through the daemon: it has no tools and no calls";
            return Err(Failure::Unsupported(why.to_owned()));
        }
        let members = record.roster.members();
        if let Some(first) = members.first()
            && members.iter().all(|server| server.spec.mode == Mode::Exclusive)
        {
            return Err(exclusive(&first.spec.name));
        }
        let state = record.live().state;
        if state == SessionState::Quarantined {
            return Err(Failure::Quarantined { session: record.id });
        }
        if state == SessionState::Starting {
            let target = Target { key: record.key.clone(), generation: Some(record.id.generation) };
            self.wait(target, Goal::Ready, None).await?;
        }
        Ok(record)
    }

    async fn catalogue(&self, record: &SessionRecord) -> Result<Catalogue, Failure> {
        let members = record.roster.members();
        let mut servers = Vec::with_capacity(members.len());
        for server in members.iter() {
            let listed = match server.connection() {
                Some(connection) => connection.items(ListKind::Tools).await,
                None => Err(CallError::ServerExited),
            };
            // The names of one that does not run stay its own: it may be started again.
            let items = match listed {
                Ok(items) => Some(items),
                Err(
                    CallError::ServerExited
                    | CallError::NotReady
                    | CallError::Leaving(_)
                    | CallError::LeftUnanswered(_),
                ) => server.last_items(ListKind::Tools),
                Err(error) => return Err(call_failure(error, &server.spec.name, record)),
            };
            servers
                .extend(items.map(|items| ServerItems { server: server.spec.name.as_str().into(), items }));
        }
        Ok(Catalogue::new(&servers, record.prefix))
    }

    /// Its shared servers that can't be called now.
    fn down(&self, record: &SessionRecord) -> Vec<Down> {
        let members = record.roster.members();
        let servers = members.iter().filter(|server| server.spec.mode == Mode::Shared);
        let down = servers.filter(|server| server.connection().is_none());
        down.map(|server| server.down(self.core.clock)).collect()
    }

    /// The tools of a session under their published names, of the servers that run.
    ///
    /// # Errors
    /// `unsupported` of a direct session, and see [`Failure`].
    pub async fn tools(&self, meant: impl Into<Meant>) -> Result<ToolsView, Failure> {
        let record = self.callable(&meant.into()).await?;
        let _permit = self.admit(&record).await?;
        let catalogue = self.catalogue(&record).await?;
        let members = record.roster.members();
        let view = |(name, owned): (&str, &mcpvisor_mcp::catalogue::Owned)| {
            let server = members.iter().find(|server| server.spec.name.as_str() == &*owned.server)?;
            server.connection()?;
            let server = server.spec.name.clone();
            Some(ToolView { name: name.to_owned(), server, raw: Arc::clone(&owned.item.raw) })
        };
        Ok(ToolsView { tools: catalogue.entries().filter_map(view).collect(), down: self.down(&record) })
    }

    /// One call, answered with the server's result as it came. Dropping the future cancels it at the server.
    ///
    /// # Errors
    /// `SessionClosing` once the gate is closed; `CallGivenUp` where its requester does not wait any more; `ServerError` where the server
    /// answered with an error, `BadAnswer` where with what is no result; see [`Failure`].
    pub async fn call(&self, meant: impl Into<Meant>, call: Call) -> Result<Box<RawValue>, Failure> {
        let requester = call.requester.clone();
        let answered = {
            let call = self.call_without_end(meant.into(), call);
            tokio::select! {
                biased;
                // What has happened is told rather than that nobody waits for it.
                answer = call => Ok(answer),
                why = requester.gives_up() => Err(why),
            }
        };
        // What was under way is dropped by now, which has cancelled it, and knows whether the server had it.
        match answered {
            Ok(Err(Failure::SessionClosing { session })) => {
                Err(Failure::CallUnfinished { session, reached: false })
            }
            Ok(answer) => answer,
            Err(why) => Err(Failure::CallGivenUp { why, reached: requester.has_reached() }),
        }
    }

    fn server_down(&self, server: &ServerRecord) -> Failure {
        let (exit, stderr_tail) = (server.exit(), server.stderr_tail(CALL_TAIL));
        Failure::ServerDown { down: server.down(self.core.clock), exit, stderr_tail }
    }

    async fn call_without_end(&self, meant: Meant, call: Call) -> Result<Box<RawValue>, Failure> {
        let Call { requester, server, tool, arguments, progress } = call;
        let record = self.callable(&meant).await?;
        let permit = self.admit(&record).await?;
        count(&self.core.counters.calls);
        let mut arguments = arguments;
        // Of a call that was approved: no other tool is called for it.
        let mut approved = None;
        // A server that leaves just now refuses what it was not asked before: another may stand in its place.
        let mut looks = 0;
        let (server, answer) = loop {
            let (name, own) = match &approved {
                Some(meant) => Clone::clone(meant),
                None => self.owner(&record, server.as_ref(), &tool).await?,
            };
            let (server, connection) = match self.callee(&record, &name) {
                Ok(found) => found,
                Err(failure) => {
                    permit.withdraw();
                    return Err(failure);
                }
            };
            if approved.is_none() && record.policy.holds(&server.spec.name, &tool, &own) {
                drop(connection);
                let asked = self.approved(&record, &server.spec.name, &tool, arguments.as_deref());
                if let Err(failure) = asked.await {
                    // It never reached a server.
                    permit.withdraw();
                    return Err(failure);
                }
                // Its server may have been started again meanwhile, or have left: it is looked up once more.
                approved = Some((name, own));
                continue;
            }
            let answer = connection.call_tool(&requester, &own, &mut arguments, progress.clone()).await;
            looks += 1;
            if matches!(answer, Err(CallError::Leaving(_))) && looks < MOST_LOOKS {
                continue;
            }
            break (server, answer);
        };
        let owner = &server.spec.name;
        // What the daemon itself says in the place of a server that sessions share is no word of that server.
        let shared = matches!(server.spec.scope, Scope::Daemon { .. });
        let answer = answer.map_err(|error| if shared { error.of_the_host() } else { error });
        let answer = answer.and_then(|result| {
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
                Err(Failure::CallUnfinished { session: record.id, reached: true })
            }
            Err(CallError::GivenUp) => {
                permit.withdraw();
                let why = requester.given_up().unwrap_or(GivenUp::Gone);
                Err(Failure::CallGivenUp { why, reached: false })
            }
            Err(CallError::NotWritten) => {
                permit.finish();
                exit_is_known(&record, owner).await;
                Err(self.server_down(&server))
            }
            Err(CallError::Closing) => {
                permit.withdraw();
                Err(Failure::SessionClosing { session: record.id })
            }
            Err(error @ (CallError::LeftUnanswered(_) | CallError::LeftUnwritten(_))) => {
                permit.cancel();
                Err(call_failure(error, owner, &record))
            }
            Err(error) => {
                permit.finish();
                if matches!(error, CallError::ServerExited) {
                    exit_is_known(&record, owner).await;
                }
                Err(call_failure(error, owner, &record))
            }
        }
    }

    /// The server of this name, where it can be called now.
    fn callee(&self, record: &SessionRecord, name: &str) -> Result<(Arc<ServerRecord>, Connection), Failure> {
        let members = record.roster.members();
        let Some(server) = members.iter().find(|server| server.spec.name.as_str() == name) else {
            return Err(Failure::Invalid(format!("the session has no server {name}")));
        };
        if server.spec.mode == Mode::Exclusive {
            return Err(exclusive(&server.spec.name));
        }
        let connection = server.connection().ok_or_else(|| self.server_down(server))?;
        Ok((Arc::clone(server), connection))
    }

    /// Whose a tool is, and its name there.
    async fn owner(
        &self,
        record: &SessionRecord,
        server: Option<&ServerName>,
        tool: &str,
    ) -> Result<(String, String), Failure> {
        Ok(match server {
            Some(server) => (server.as_str().to_owned(), tool.to_owned()),
            None => {
                let catalogue = self.catalogue(record).await?;
                match catalogue.find(tool) {
                    Meaning::One(owned) => (owned.server.to_string(), owned.item.name),
                    Meaning::Ambiguous { mut names, owners } => {
                        let with_server =
                            |owned: &Owned| format!("{} --server {}", owned.item.name, owned.server);
                        names.extend(owners.iter().map(with_server));
                        let text = format!(
                            "several servers have a tool {tool}: say which by {}",
                            names.join(" or ")
                        );
                        return Err(Failure::Invalid(text));
                    }
                    Meaning::Unknown => {
                        let mut text = format!("the session has no tool {tool}");
                        let published: Vec<&str> = catalogue
                            .entries()
                            .filter(|(_, owned)| owned.item.name == tool)
                            .map(|(name, _)| name)
                            .collect();
                        if !published.is_empty() {
                            text.push_str(&format!(": it is published as {}", published.join(" and ")));
                        }
                        let down: Vec<String> =
                            self.down(record).iter().map(|down| down.server.to_string()).collect();
                        if !down.is_empty() {
                            text.push_str(&format!(
                                ", as far as is known of {}, which does not run",
                                down.join(" and ")
                            ));
                        }
                        return Err(Failure::Invalid(text));
                    }
                }
            }
        })
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
