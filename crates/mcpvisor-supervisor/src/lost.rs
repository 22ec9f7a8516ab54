//! Reaping without an actor: what a session's or a server's scope needs when the actor that owned it is gone, and what
//! is told of a scope that can't be emptied. The reaper does the work; these only ask it, and listen.
use crate::api::Outcome;
use crate::certificate::{self, End};
use crate::core::Core;
use crate::record::{ServerRecord, SessionRecord};
use crate::registry_actor::RegistryMsg;
use mcpvisor_lifecycle::registry::RegistryEvent;
use mcpvisor_lifecycle::session::{CloseReason, Ended, SessionState};
use mcpvisor_process::{ScopeFact, ScopeId, ScopeReport, SessionReports};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a quarantine in which nothing lives is held back: the word that nothing is left follows at once.
const EMPTY_FOLLOWS: Duration = Duration::from_secs(1);

/// Kills and reaps a server's scope, and that of its stop command. `told` hears the report when both are empty, and None each time that
/// the kill's budget has run out before.
pub(crate) fn reap_server(
    core: &Arc<Core>,
    server: &Arc<ServerRecord>,
    told: impl Fn(Option<Arc<ScopeReport>>) + Send + Sync + 'static,
) {
    let command = server.live().command_scope.clone();
    if let Some(command) = &command {
        // It is watched by who runs it, and that is no actor.
        core.containment.kill(command);
    }
    let told = Arc::new(told);
    let runtime = tokio::runtime::Handle::current();
    let (observer, of) = (Arc::clone(&told), Arc::clone(server));
    let emptied = move |report| {
        let (observer, of) = (Arc::clone(&observer), Arc::clone(&of));
        runtime.spawn(async move {
            of.command_gone().await;
            observer(Some(report));
        });
    };
    match server.unreaped_scope() {
        Some(scope) => {
            core.containment.kill(&scope);
            core.containment.observe(
                &scope,
                Arc::new(move |fact| {
                    if let ScopeFact::Empty { report } = fact {
                        emptied(report);
                    }
                }),
            );
        }
        None if command.is_some() => emptied(Arc::new(nothing())),
        None => return told(Some(Arc::new(nothing()))),
    }
    server.live().stopping_since.get_or_insert_with(Instant::now);
    let (budget, server) = (server.spec.kill_wait, Arc::clone(server));
    tokio::spawn(async move {
        tokio::time::sleep(budget).await;
        let left = {
            let live = server.live();
            !live.empty || live.command_scope.is_some()
        };
        if left {
            told(None);
        }
    });
}

/// What is left of a server's scope: pid and command line of each process. Its certificate is written anew.
pub(crate) async fn remaining(core: &Core, server: &ServerRecord) -> Vec<(u32, String)> {
    let command = server.live().command_scope.clone();
    let mut left = report_of(core, command).await.map_or_else(Vec::new, |report| report.remaining);
    let Some(report) = report_of(core, server.unreaped_scope()).await else { return left };
    let certificate = certificate::of_server(server, &report, Instant::now());
    server.live().certificate = Some(certificate);
    left.extend(report.remaining);
    left
}

/// The report of a scope in which nothing was ever born.
fn nothing() -> ScopeReport {
    ScopeReport {
        processes: Vec::new(),
        remaining: Vec::new(),
        peak_memory_bytes: None,
        cpu: None,
        last_exit: Instant::now(),
        proven: true,
    }
}

/// Writes down what the reaper said of a server that has no actor any more.
pub(crate) fn settle(server: &ServerRecord, report: &ScopeReport) {
    if !report.processes.is_empty() {
        let certificate = certificate::of_server(server, report, Instant::now());
        server.live().certificate = Some(certificate);
    }
    let mut live = server.live();
    live.empty = true;
    live.proven &= report.proven;
    live.pid = None;
    if !report.processes.is_empty() {
        live.last_exit = live.last_exit.max(Some(report.last_exit));
    }
    if let Some(connection) = live.connection.take() {
        connection.end();
    }
}

/// Kills and reaps every scope of a session whose actor is lost, and then ends it in the registry (`SessionLost`).
pub(crate) fn reap_session(core: &Arc<Core>, record: &Arc<SessionRecord>) {
    record.condemn();
    if let Some(actor) = record.live().actor.take() {
        actor.kill();
    }
    let was = {
        let mut live = record.live();
        live.closing.get_or_insert_with(|| (Instant::now(), CloseReason::Internal));
        std::mem::replace(&mut live.state, SessionState::Stopping)
    };
    if was != SessionState::Stopping {
        record.tell_state(SessionState::Stopping);
    }
    record.close_gate(Box::new(|| ()));
    for server in record.servers().iter() {
        if let Some(connection) = &server.live().connection {
            connection.settle("the session is being reaped");
        }
    }
    let budget = record.kill_wait();
    let (told_core, told_record) = (Arc::clone(core), Arc::clone(record));
    let runtime = tokio::runtime::Handle::current();
    let empty = Box::new(move |reports: SessionReports| {
        runtime.spawn(async move {
            match told_record.former {
                Some(_) => end_former(&told_core, &told_record, &reports),
                None => end_lost(&told_core, &told_record, &reports),
            }
        });
    });
    match &record.former {
        Some(former) => core.containment.kill_left(&former.left, empty),
        None => core.containment.kill_session(Arc::clone(&record.scope), empty),
    }
    let (core, record) = (Arc::clone(core), Arc::clone(record));
    tokio::spawn(async move {
        tokio::time::sleep(budget).await;
        if !record.has_ended() {
            report_quarantined(&core, &record).await;
        }
    });
}

fn end_lost(core: &Arc<Core>, record: &Arc<SessionRecord>, reports: &[(ScopeId, Arc<ScopeReport>)]) {
    if record.has_ended() {
        return;
    }
    for server in record.servers().iter() {
        let scope = server.live().scope.clone();
        let report = reports.iter().find(|(of, _)| scope.as_ref().is_some_and(|(_, scope)| scope == of));
        match report {
            Some((_, report)) => settle(server, report),
            None => settle(server, &nothing()),
        }
    }
    for (scope, _) in reports {
        core.containment.release(scope);
    }
    let proven = record.servers().iter().all(|server| server.live().proven);
    core.end_session(record, Ended::Failed, CloseReason::Internal, proven);
}

/// The end of a session that a former daemon has left. A leaf begins with its server's place in the session.
fn end_former(core: &Arc<Core>, record: &Arc<SessionRecord>, reports: &[(ScopeId, Arc<ScopeReport>)]) {
    if record.has_ended() {
        return;
    }
    for server in record.servers().iter() {
        let is_its =
            |scope: &ScopeId| scope.leaf.split('-').next() == Some(server.index.to_string().as_str());
        let mut whole = nothing();
        for (_, report) in reports.iter().filter(|(scope, _)| is_its(scope)) {
            whole.processes.extend(report.processes.iter().cloned());
            whole.proven &= report.proven;
        }
        settle(server, &whole);
    }
    let proven = reports.iter().all(|(_, report)| report.proven);
    core.end_session(record, Ended::Failed, CloseReason::DaemonLost, proven);
}

async fn report_of(core: &Core, scope: Option<ScopeId>) -> Option<ScopeReport> {
    let (answer, report) = tokio::sync::oneshot::channel();
    core.containment.report(
        &scope?,
        Box::new(move |report| {
            let _ = answer.send(report);
        }),
    );
    report.await.ok()
}

/// Writes a report that lists what is left, and tells the registry.
pub(crate) async fn report_quarantined(core: &Arc<Core>, record: &Arc<SessionRecord>) {
    let mut remaining = Vec::new();
    if let Some(former) = &record.former {
        remaining = core.containment.report_left(&former.left).remaining;
    }
    for server in record.servers().iter() {
        remaining.extend(self::remaining(core, server).await);
    }
    // It may have become empty meanwhile; then the end is the last word (G5). Where the look finds nothing alive, the reaper's word of
    // that is on its way, and is waited for: a quarantine tells what is left.
    if remaining.is_empty() {
        let ended = tokio::time::timeout(EMPTY_FOLLOWS, record.over()).await.is_ok();
        if !ended {
            for server in record.servers().iter() {
                remaining.extend(self::remaining(core, server).await);
            }
        }
    }
    if record.has_ended() {
        return;
    }
    let reason = record.live().closing.map_or(CloseReason::Internal, |(_, reason)| reason);
    let (outcome, state) = (Outcome::Quarantined, SessionState::Quarantined);
    let end = End { outcome, state, reason, remaining, proven: false };
    let certificate = certificate::of_session(record, record.containment(core.containment.kind()), end);
    let left = certificate.remaining.len();
    tracing::error!(parent: &record.span(), left, "session is quarantined");
    {
        let mut live = record.live();
        if matches!(live.state, SessionState::Closed | SessionState::Failed) {
            return;
        }
        record.tell_quarantined(&certificate);
        live.certificate = Some(Arc::new(certificate));
        live.state = state;
    }
    // Nothing is left for its client to wait for: the rest is the kernel's.
    record.slot.session_over();
    core.send(RegistryMsg::Event(RegistryEvent::SessionQuarantined { session: record.id }));
}
