//! Which processes there are, and whose.
use super::Supervisor;
use crate::api::{Failure, ProcessView};
use crate::record::{SessionRecord, scope_name};
use mcpvisor_lifecycle::registry::Target;
use mcpvisor_lifecycle::{Place, ServerName, Uid};
use mcpvisor_process::ProcessInfo;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::oneshot;

/// A session that uses a server which others share, and what it is called there.
type User = (Arc<SessionRecord>, ServerName);

impl Supervisor {
    pub(super) async fn all_processes(&self, session: Option<Arc<str>>) -> Vec<ProcessInfo> {
        let (answer, processes) = oneshot::channel();
        self.core.containment.processes(
            session,
            Box::new(move |processes| {
                let _ = answer.send(processes);
            }),
        );
        processes.await.unwrap_or_default()
    }

    /// The processes of one session, or of all of one user, or of all. Those of a server that sessions share are told of each session
    /// that uses it.
    ///
    /// # Errors
    /// `NotFound`, `StaleGeneration`.
    pub async fn processes(
        &self,
        of: Option<Uid>,
        target: Option<Target>,
    ) -> Result<Vec<ProcessView>, Failure> {
        let only = match target {
            Some(target) => Some(self.resolve(target, false).await?),
            None => None,
        };
        let users = match &only {
            Some(record) => users(std::slice::from_ref(record)),
            None => users(&self.core.records()),
        };
        let mut processes = self.all_processes(only.as_ref().map(|record| Arc::clone(&record.scope))).await;
        if only.is_some() {
            for host in users.keys() {
                processes.extend(self.all_processes(Some(Arc::clone(host))).await);
            }
        }
        let records: HashMap<_, _> =
            self.core.records().into_iter().map(|record| (scope_name(record.id), record)).collect();
        let mut views = Vec::new();
        for process in &processes {
            let shared = users.get(&process.scope.session).map(Vec::as_slice).unwrap_or_default();
            views.extend(shared.iter().map(|(record, server)| view(process, record, server.clone())));
            if let Some(record) = records.get(&process.scope.session).filter(|_| shared.is_empty()) {
                views.extend(server_of(process, record).map(|server| view(process, record, server)));
            }
        }
        views.retain(|(owner, _)| of.is_none_or(|uid| *owner == uid));
        Ok(views.into_iter().map(|(_, view)| view).collect())
    }
}

/// By the scope of the server's own session.
fn users(records: &[Arc<SessionRecord>]) -> HashMap<Arc<str>, Vec<User>> {
    let mut users: HashMap<Arc<str>, Vec<User>> = HashMap::new();
    for record in records {
        for server in record.servers().iter() {
            let host = server.live().host.clone();
            if let Some(host) = host {
                let user = (Arc::clone(record), server.spec.name.clone());
                users.entry(Arc::clone(&host.scope)).or_default().push(user);
            }
        }
    }
    users
}

/// A leaf begins with its server's place in the session.
fn server_of(process: &ProcessInfo, record: &SessionRecord) -> Option<ServerName> {
    let index: u32 = process.scope.leaf.split('-').next()?.parse().ok()?;
    Some(record.roster.at(Place(index))?.spec.name.clone())
}

fn view(process: &ProcessInfo, record: &SessionRecord, server: ServerName) -> (Uid, ProcessView) {
    let shared = record.is_host() || record.scope != process.scope.session;
    let view = ProcessView {
        pid: process.pid,
        ppid: process.ppid,
        key: record.key.key.clone(),
        generation: record.id.generation,
        server,
        scope: if shared { "daemon" } else { "session" },
        command: process.command.clone(),
        memory_bytes: process.memory_bytes,
        cpu: process.cpu,
        escaped: process.escaped,
    };
    (record.key.uid, view)
}
