//! Tools, processes, lines of stderr.
use super::{milliseconds, names, session, timestamp};
use mcpvisor_control::results;
use mcpvisor_supervisor::{Down, LogLine, ProcessView, ToolView};
use serde_json::{Map, Value};

/// A tool as its server tells it, under the name to call it by.
pub(crate) fn tool(view: &ToolView) -> results::Tool {
    let mut rest: Map<String, Value> = serde_json::from_str(view.raw.get()).unwrap_or_default();
    for ours in ["name", "server"] {
        rest.remove(ours);
    }
    let text = |value: Option<Value>| value.and_then(|value| value.as_str().map(str::to_owned));
    results::Tool {
        name: view.name.clone(),
        server: names::server(&view.server),
        title: text(rest.remove("title")),
        description: text(rest.remove("description")),
        input_schema: rest.remove("inputSchema").unwrap_or_default(),
        rest,
    }
}

/// A server that can't be called now.
pub(crate) fn down(down: &Down) -> results::ServerDown {
    results::ServerDown {
        name: names::server(&down.server),
        state: session::server_state(down.state),
        retry_after_ms: down.retry_after.map(milliseconds),
    }
}

/// A process of a session.
pub(crate) fn process(view: &ProcessView) -> results::Process {
    results::Process {
        pid: view.pid,
        ppid: view.ppid,
        session: names::key(&view.key),
        generation: Some(view.generation.0),
        server: names::server(&view.server),
        command: view.command.clone(),
        memory_bytes: Some(view.memory_bytes),
        cpu_ms: Some(milliseconds(view.cpu)),
        escaped: view.escaped,
        scope: (view.scope != "session").then(|| view.scope.to_owned()),
    }
}

/// A line that a server wrote to stderr. JSON carries its control characters escaped; whoever shows it escapes it.
pub(crate) fn log_line(line: &LogLine) -> results::LogLine {
    results::LogLine {
        server: names::server(&line.server),
        at: timestamp(line.at),
        text: String::from_utf8_lossy(&line.bytes).into_owned(),
        dropped: line.dropped,
    }
}
