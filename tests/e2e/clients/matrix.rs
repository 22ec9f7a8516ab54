//! Who is there, and who understands whom.
use crate::differential::subjects::modern_words;
use crate::real::{Client, installed, npm, text};
use mcpvisor_testkit::{Invocation, Scene};
use serde_json::json;

/// How a client reaches a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Run,
    Relay,
    Exclusive,
    Shared,
}

pub(crate) const WAYS: [Way; 4] = [Way::Run, Way::Relay, Way::Exclusive, Way::Shared];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Program {
    /// A script of ours with an SDK.
    Sdk(Client),
    /// A program as it comes: it makes one call, and ends.
    McpCli,
}

pub(crate) const CLIENTS: [Program; 10] = [
    Program::Sdk(Client::PythonLegacy),
    Program::Sdk(Client::PythonAuto),
    Program::Sdk(Client::FastMcp),
    Program::Sdk(Client::TypeScript1),
    Program::Sdk(Client::TypeScript2),
    Program::Sdk(Client::TypeScript2Auto),
    Program::Sdk(Client::Rust),
    Program::Sdk(Client::RustDiscover),
    Program::Sdk(Client::RustAuto),
    Program::McpCli,
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Server {
    Everything,
    Filesystem,
    Memory,
    Thinking,
    Time,
    Git,
    Modern,
}

pub(crate) const SERVERS: [Server; 7] = [
    Server::Everything,
    Server::Filesystem,
    Server::Memory,
    Server::Thinking,
    Server::Time,
    Server::Git,
    Server::Modern,
];

/// A call, and what its answer has in it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call {
    pub(crate) tool: &'static str,
    pub(crate) arguments: &'static str,
    pub(crate) answer: &'static str,
}

const fn call(tool: &'static str, arguments: &'static str, answer: &'static str) -> Call {
    Call { tool, arguments, answer }
}

/// Which eras one speaks.
#[derive(Debug, Clone, Copy)]
struct Speaks {
    legacy: bool,
    modern: bool,
}

const LEGACY: Speaks = Speaks { legacy: true, modern: false };
const MODERN: Speaks = Speaks { legacy: false, modern: true };
const BOTH: Speaks = Speaks { legacy: true, modern: true };

/// Whether client and server have a revision in common on this way.
pub(crate) fn agree(client: Program, server: &Server, way: Way) -> bool {
    // An exclusive server has one client in its life, and this one's first is a probe.
    if client.starts_twice() && way == Way::Exclusive {
        return false;
    }
    let (client, server) = (client.speaks(), server.speaks(way));
    (client.legacy && server.legacy) || (client.modern && server.modern)
}

impl Program {
    pub(crate) fn index(self) -> usize {
        CLIENTS.iter().position(|client| *client == self).expect("all clients are listed")
    }

    fn speaks(self) -> Speaks {
        match self {
            Self::Sdk(Client::PythonAuto | Client::FastMcp | Client::TypeScript2Auto | Client::RustAuto) => {
                BOTH
            }
            Self::Sdk(Client::RustDiscover) => MODERN,
            _ => LEGACY,
        }
    }

    /// Whether it answers what a tool asks it, in the modern way.
    fn is_asked(self) -> bool {
        matches!(self, Self::Sdk(Client::PythonAuto | Client::FastMcp | Client::TypeScript2Auto))
    }

    /// Whether its command is started once to probe, and once more to talk.
    pub(crate) fn starts_twice(self) -> bool {
        self == Self::Sdk(Client::TypeScript2Auto)
    }

    /// Whether it says that it calls now.
    pub(crate) fn tells(self) -> bool {
        self != Self::McpCli
    }

    /// A server that it speaks to, with a call that takes long.
    pub(crate) fn slow_server(self) -> &'static Server {
        if self.speaks().legacy { &Server::Everything } else { &Server::Modern }
    }

    /// The client, to make this call of the server with this command.
    pub(crate) fn call<'a>(
        self,
        scene: &'a Scene,
        end: &str,
        call: Call,
        command: &[String],
    ) -> Invocation<'a> {
        let Self::Sdk(client) = self else {
            let config = scene.path("mcp.json");
            let server = json!({ "command": command[0], "args": command[1..] });
            std::fs::write(&config, json!({ "mcpServers": { "real": server } }).to_string())
                .expect("a file in the scene's folder");
            // It keeps a configuration of its own at home.
            return scene
                .command("node")
                .arg(installed("node_modules/@wong2/mcp-cli/src/cli.js"))
                .arg("--config")
                .arg(config)
                .args(["call-tool", &format!("real:{}", call.tool), "--args", call.arguments])
                .env("HOME", scene.dir());
        };
        let mut words = client.words();
        let program = words.remove(0);
        let invocation =
            scene.command(program).args(words).args([end, call.tool, call.arguments]).args(command);
        match client.mode() {
            Some(mode) => invocation.env("REAL_MODE", mode),
            None => invocation,
        }
    }
}

impl Server {
    pub(crate) fn words(self) -> Vec<String> {
        let python =
            |module: &str| vec![text(installed("venv/bin/python")), "-m".to_owned(), module.to_owned()];
        match self {
            Self::Everything => npm("server-everything", false, &[]),
            Self::Filesystem => npm("server-filesystem", false, &["/tmp"]),
            Self::Memory => npm("server-memory", false, &[]),
            Self::Thinking => npm("server-sequential-thinking", false, &[]),
            Self::Time => python("mcp_server_time"),
            Self::Git => python("mcp_server_git"),
            Self::Modern => modern_words(),
        }
    }

    fn speaks(self, way: Way) -> Speaks {
        match self {
            // The daemon begins with `initialize`, and such a server keeps to the era of what it sees first.
            Self::Time | Self::Git if way == Way::Shared => LEGACY,
            Self::Time | Self::Git => BOTH,
            Self::Modern => MODERN,
            _ => LEGACY,
        }
    }

    /// What this client calls.
    pub(crate) fn call(self, client: Program) -> Call {
        if self == Self::Modern && client.is_asked() {
            return call("greet", "{}", "Hello, Ada");
        }
        self.plain()
    }

    /// A call that asks nothing back.
    pub(crate) fn plain(self) -> Call {
        let thought = r#"{"thought":"hm","nextThoughtNeeded":false,"thoughtNumber":1,"totalThoughts":1}"#;
        match self {
            Self::Everything => call("echo", r#"{"message":"hello"}"#, "Echo: hello"),
            Self::Filesystem => call("list_allowed_directories", "{}", "/tmp"),
            Self::Memory => call("read_graph", "{}", "entities"),
            Self::Thinking => call("sequentialthinking", thought, "thoughtHistoryLength"),
            Self::Time => call("get_current_time", r#"{"timezone":"UTC"}"#, "day_of_week"),
            // No repository: the answer is the tool's own error.
            Self::Git => call("git_status", r#"{"repo_path":"/nowhere"}"#, "/nowhere"),
            Self::Modern => call("echo", r#"{"text":"hello"}"#, "Echo: hello"),
        }
    }

    /// A call that takes longer than any test.
    pub(crate) fn slow(self) -> Call {
        match self {
            Self::Modern => call("slow", r#"{"ms":600000}"#, "slept"),
            _ => call("trigger-long-running-operation", r#"{"duration":600,"steps":2}"#, "completed"),
        }
    }
}
