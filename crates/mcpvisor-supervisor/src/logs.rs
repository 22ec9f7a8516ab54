//! Reading the servers' stderr: what is kept, and what comes.
use crate::api::LogLine;
use crate::record::{ServerRecord, SessionRecord};
use crate::stderr_log::{StderrLine, StderrLog};
use mcpvisor_lifecycle::ServerName;
use std::sync::Arc;
use tokio::sync::mpsc;

/// Lines that wait for a slow reader; a server's log bounds what waits before them.
const QUEUE: usize = 64;

/// The last `lines` of one server's stderr or of all, in order of time; then, with `follow`, what comes until the session
/// ends. Dropping the receiver ends it.
pub(crate) fn read(
    record: &Arc<SessionRecord>,
    server: Option<&ServerName>,
    lines: usize,
    follow: bool,
) -> mpsc::Receiver<LogLine> {
    let servers: Vec<_> = record
        .servers()
        .iter()
        .filter(|of| server.is_none_or(|name| of.spec.name == *name))
        .cloned()
        .collect();
    let (send, receive) = mpsc::channel(QUEUE);
    let mut kept: Vec<LogLine> = Vec::new();
    for server in &servers {
        kept.extend(past_and_present(&server.speaker(), lines).into_iter().map(|line| shown(server, &line)));
    }
    kept.sort_by_key(|line| line.at);
    let older = kept.len().saturating_sub(lines);
    kept.drain(..older);
    let record = Arc::clone(record);
    tokio::spawn(async move {
        let following: Vec<_> = if follow {
            servers.iter().map(|server| server.speaker().stderr.subscribe()).collect()
        } else {
            Vec::new()
        };
        for line in kept {
            if send.send(line).await.is_err() {
                return;
            }
        }
        for (server, log) in servers.into_iter().zip(following) {
            tokio::spawn(follow_server(Arc::clone(&record), server, log, send.clone()));
        }
    });
    receive
}

fn past_and_present(server: &ServerRecord, lines: usize) -> Vec<StderrLine> {
    let mut all = server.live().past_stderr.clone();
    if let Some(log) = &*server.stderr.borrow() {
        all.extend(log.lines(lines));
    }
    let older = all.len().saturating_sub(lines);
    all.drain(..older);
    all
}

/// Every line from now on, of this process of the server and of those that follow it.
async fn follow_server(
    record: Arc<SessionRecord>,
    server: Arc<ServerRecord>,
    mut log: tokio::sync::watch::Receiver<Option<StderrLog>>,
    send: mpsc::Sender<LogLine>,
) {
    loop {
        let current = log.borrow_and_update().clone();
        if let Some(current) = current {
            let mut lines = current.follow(0);
            loop {
                let line = tokio::select! {
                    line = lines.next() => line,
                    () = send.closed() => return,
                };
                let Some(line) = line else { break };
                if send.send(shown(&server, &line)).await.is_err() {
                    return;
                }
            }
        }
        if record.has_ended() {
            return;
        }
        tokio::select! {
            changed = log.changed() => if changed.is_err() { return },
            () = send.closed() => return,
        }
    }
}

fn shown(server: &ServerRecord, line: &StderrLine) -> LogLine {
    LogLine {
        server: server.spec.name.clone(),
        at: line.at,
        bytes: line.bytes.to_vec(),
        dropped: line.dropped,
    }
}
