//! Sessions, processes and the daemon's state, for people.
use super::certificate::{indent, start_failure, stderr_tail};
use super::escape;
use super::frames;
use super::style::Style;
use super::table::{or_none, table};
use super::units::{bytes, count, span};
use mcpvisor_control::SessionKey;
use mcpvisor_control::results::{Frame, Process, Server, Session, SessionState, Status};

fn state(session: SessionState, style: Style) -> String {
    match session {
        SessionState::Ready => style.good(session.as_str()),
        SessionState::Failed | SessionState::Quarantined => style.bad(session.as_str()),
        _ => session.as_str().to_owned(),
    }
}

/// `list`. With `owners`, also whose they are.
pub(crate) fn sessions(sessions: &[Session], owners: bool, style: Style) -> String {
    let mut header =
        vec!["KEY", "GEN", "STATE", "SERVERS", "IN FLIGHT", "LEASE", "TENANT", "LABELS", "CREATED"];
    if owners {
        header.insert(0, "UID");
    }
    let rows = sessions.iter().map(|session| {
        let labels: Vec<_> = session.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let servers: Vec<_> = session.servers.iter().map(|server| server.name.as_str()).collect();
        let mut row = vec![
            session.key.to_string(),
            session.generation.to_string(),
            session.state.to_string(),
            servers.join(","),
            or_none(session.in_flight),
            session.lease.clone(),
            or_none(session.tenant.as_ref()),
            if labels.is_empty() { "-".to_owned() } else { labels.join(",") },
            session.created_at.clone(),
        ];
        if owners {
            row.insert(0, session.owner.uid.to_string());
        }
        row
    });
    table(style, &header, rows)
}

/// `show` and `open`.
pub(crate) fn session(session: &Session, style: Style) -> String {
    let name = style.strong(&format!("{}@{}", session.key, session.generation));
    let mut text = format!("{name} {}\n", state(session.state, style));
    if let Some(failure) = &session.failure {
        text += &indent(&start_failure(failure));
    }
    let mut facts = vec![
        format!("owner: uid {}", session.owner.uid),
        format!("created: {}", escape::line(&session.created_at)),
        format!("lease: {}", escape::line(&session.lease)),
        format!("containment: {}", session.containment),
    ];
    facts.extend(session.expires_at.as_ref().map(|at| format!("expires: {}", escape::line(at))));
    let idle = session.idle_ms.map(|ms| format!("idle for {}", span(ms as f64 / 1_000.0)));
    let limit = session.idle_limit_ms.map(|ms| {
        let what = if session.parks { "parked" } else { "closed" };
        format!("{what} after {}", span(ms as f64 / 1_000.0))
    });
    facts.extend(idle.map(|idle| match limit {
        Some(limit) => format!("{idle}, {limit}"),
        None => idle,
    }));
    facts.extend(session.tenant.as_ref().map(|tenant| format!("tenant: {tenant}")));
    facts.extend(session.parent.as_ref().map(|parent| format!("parent: {parent}")));
    facts.extend(session.attached.map(|attached| format!("clients: {attached}")));
    facts.extend(session.in_flight.map(|calls| format!("calls in flight: {calls}")));
    facts.extend(
        session
            .queued
            .filter(|calls| *calls > 0)
            .map(|calls| format!("calls that wait for their turn: {calls}")),
    );
    let held = session.held.filter(|calls| *calls > 0);
    facts.extend(held.map(|calls| format!("calls that are held for approval: {calls}")));
    let waiting = Some(session.waiting).filter(|calls| *calls > 0);
    facts.extend(waiting.map(|calls| format!("calls and clients that wait for the servers' start: {calls}")));
    facts.extend(
        session
            .labels
            .iter()
            .map(|(name, value)| format!("label: {}={}", escape::line(name), escape::line(value))),
    );
    for fact in facts {
        text += &format!("  {fact}\n");
    }
    text += &indent(&servers(session.servers.iter(), style));
    let told = session.failure.as_ref().map(|failure| &failure.server);
    for server in &session.servers {
        text += &remarks(server, told == Some(&server.name));
        if let Some(frames) = &server.frames {
            text += &last_frames(server, frames, style);
        }
    }
    text
}

fn servers<'a>(servers: impl Iterator<Item = &'a Server>, style: Style) -> String {
    let header = ["SERVER", "STATE", "MODE", "PID", "TOOLS", "IN FLIGHT", "RESTARTS", "PROTOCOL"];
    let rows = servers.map(|server| {
        vec![
            server.name.to_string(),
            server.state.to_string(),
            server.mode.to_string(),
            or_none(server.pid),
            or_none(server.tools),
            or_none(server.in_flight),
            server.restarts.to_string(),
            or_none(server.protocol.as_ref()),
        ]
    });
    table(style, &header, rows)
}

/// `server add` and `server restart`.
pub(crate) fn changed_server(key: &SessionKey, server: &Server, done: &str, style: Style) -> String {
    let text = format!("{key}/{} {}\n", style.strong(server.name.as_str()), style.good(done));
    text + &indent(&servers(std::iter::once(server), style))
}

/// Those that are kept, and of a session that has ended those of its failure.
fn last_frames(server: &Server, kept: &[Frame], style: Style) -> String {
    let failure = server.last_failure.as_ref().map(|failure| failure.frames.as_slice());
    let frames = if kept.is_empty() { failure.unwrap_or_default() } else { kept };
    let head = match frames.len() {
        0 => "no frames",
        _ => "last frames",
    };
    format!("  {}: {head}\n", server.name) + &indent(&indent(&frames::frames(frames, style)))
}

/// What a server waits for and what went wrong with it.
fn remarks(server: &Server, failure_is_told: bool) -> String {
    let mut text = String::new();
    if server.aside {
        text += &format!("  {} is being added or removed: its tools are not the session's\n", server.name);
    }
    match (server.scope.as_deref(), &server.host) {
        (Some("daemon"), Some(host)) => {
            let users = server.users.map(|users| format!(", {users} of them now")).unwrap_or_default();
            text += &format!("  {}: sessions share it{users}; it is {host} itself\n", server.name);
        }
        (Some("daemon"), None) => text += &format!("  {}: sessions share it\n", server.name),
        (Some("external"), _) => text += &format!("  {}: someone else runs it\n", server.name),
        _ => {}
    }
    if let Some(waits) = &server.waits_for {
        let left =
            waits.left_ms.map(|ms| format!(", {} left", span(ms as f64 / 1_000.0))).unwrap_or_default();
        let since = span(waits.since_ms as f64 / 1_000.0);
        text += &format!("  {} waits for {} since {since}{left}\n", server.name, escape::line(&waits.what));
    }
    if let Some(queued) = server.queued.filter(|queued| *queued > 0) {
        let calls = count(queued, "call waits", "calls wait");
        text += &format!("  {}: {calls} for a turn\n", server.name);
    }
    if server.stderr_dropped > 0 {
        let lines = count(server.stderr_dropped, "line", "lines");
        text += &format!("  {}: {lines} of its stderr made room for newer ones\n", server.name);
    }
    if let Some(error) = &server.last_error {
        text += &format!("  {}: last error: {}\n", server.name, escape::line(error));
    }
    if let Some(failure) = server.last_failure.as_ref().filter(|_| !failure_is_told) {
        text += &indent(&stderr_tail(&failure.stderr_tail));
    }
    text
}

/// `ps`: below each server its tree.
pub(crate) fn processes(processes: &[Process], style: Style) -> String {
    let header = ["SESSION", "SERVER", "PID", "PPID", "MEMORY", "CPU", "ESCAPED", "COMMAND"];
    let rows = in_tree(processes).into_iter().map(|(depth, process)| {
        vec![
            process.generation.map_or_else(
                || process.session.to_string(),
                |generation| format!("{}@{generation}", process.session),
            ),
            match &process.scope {
                Some(scope) => format!("{} ({})", process.server, escape::line(scope)),
                None => process.server.to_string(),
            },
            process.pid.to_string(),
            process.ppid.to_string(),
            or_none(process.memory_bytes.map(bytes)),
            or_none(process.cpu_ms.map(|ms| format!("{ms} ms"))),
            if process.escaped { "yes" } else { "no" }.to_owned(),
            format!("{}{}", "  ".repeat(depth), process.command),
        ]
    });
    table(style, &header, rows)
}

/// Children below their parents, in the order of pids; sessions and servers in the order in which they came.
fn in_tree(processes: &[Process]) -> Vec<(usize, &Process)> {
    fn same(a: &Process, b: &Process) -> bool {
        (&a.session, a.generation, &a.server) == (&b.session, b.generation, &b.server)
    }
    fn below<'a>(group: &[&'a Process], parent: u32, depth: usize, out: &mut Vec<(usize, &'a Process)>) {
        // A parent is never its own child, but what the daemon tells is no reason to recurse for ever.
        for process in group.iter().filter(|process| process.ppid == parent && process.pid != parent) {
            if depth < 64 && !out.iter().any(|(_, seen)| seen.pid == process.pid) {
                out.push((depth, process));
                below(group, process.pid, depth + 1, out);
            }
        }
    }
    let mut out = Vec::new();
    let mut rest: Vec<&Process> = processes.iter().collect();
    while let Some(first) = rest.first().copied() {
        let (mut group, others): (Vec<_>, Vec<_>) =
            rest.into_iter().partition(|process| same(process, first));
        group.sort_by_key(|process| process.pid);
        let mut tree = Vec::new();
        for root in &group {
            let has_parent = group.iter().any(|other| other.pid == root.ppid && other.pid != root.pid);
            if !has_parent {
                tree.push((0, *root));
                below(&group, root.pid, 1, &mut tree);
            }
        }
        // A listing that was not taken in one instant may show a circle; nothing is left out for it.
        for process in group {
            if !tree.iter().any(|(_, seen)| seen.pid == process.pid) {
                tree.push((0, process));
            }
        }
        out.extend(tree);
        rest = others;
    }
    out
}

/// `status`.
pub(crate) fn status(status: &Status, style: Style) -> String {
    let sessions = &status.sessions;
    let mut text = format!(
        "mcpvisord {} {}, up for {}, instance {}{}\n",
        escape::line(&status.version),
        style.strong(status.state.as_str()),
        span(status.uptime_ms as f64 / 1_000.0),
        escape::line(&status.instance),
        status.pid.map(|pid| format!(", pid {pid}")).unwrap_or_default(),
    );
    text += &format!(
        "  {} of at most {}: {} starting, {} live, {} being closed, {} quarantined\n",
        count(sessions.used, "session", "sessions"),
        sessions.limit,
        sessions.starting,
        sessions.live,
        sessions.dying,
        sessions.quarantined,
    );
    if sessions.queued > 0 {
        text += &format!("  {} for a slot\n", count(sessions.queued, "open waits", "opens wait"));
    }
    let shared = &status.shared_servers;
    if shared.used + shared.quarantined > 0 {
        let servers = count(shared.used + shared.quarantined, "server", "servers");
        text += &format!("  {servers} that sessions share, {} of them quarantined\n", shared.quarantined);
    }
    text += &format!(
        "  {}, held by {}\n",
        status
            .processes
            .map_or_else(|| "processes unknown".to_owned(), |number| count(number, "process", "processes")),
        status.containment,
    );
    for (name, value) in &status.counters {
        text += &format!("  {}: {value}\n", escape::line(name));
    }
    text
}

#[cfg(test)]
mod tests;
