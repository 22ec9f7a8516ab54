//! Real clients with `mcpvisor run -- …` as their command, and real servers behind it: however the client ends, nothing
//! remains. `cargo xtask test` installs them, pinned, into `target/real`. `clients` has more of them, on every way.
use crate::support::{assert_closed, on_both};
use mcpvisor_testkit::{
    Daemon, Leak, SOON, Scene, Setup, Signal, Stdio, binary, scene_within, shell_status, target_dir,
    workspace_root,
};
use serde_json::Value;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Real programs start slowly, slower still where many tests run at once.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// A file of the installed packages.
pub(crate) fn installed(path: &str) -> PathBuf {
    let root = std::env::var_os("MCPVISOR_REAL_DIR").map_or_else(|| target_dir().join("real"), PathBuf::from);
    let file = root.join(path);
    assert!(
        file.exists(),
        "{} is missing: `cargo xtask real` installs the real servers and clients",
        file.display()
    );
    file
}

pub(crate) fn text(path: PathBuf) -> String {
    path.into_os_string().into_string().expect("paths of the target folder are text")
}

/// A real client, as its command up to the server's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Client {
    Python,
    PythonLegacy,
    PythonAuto,
    FastMcp,
    TypeScript1,
    TypeScript2,
    TypeScript2Auto,
    Rust,
    RustDiscover,
    RustAuto,
}

impl Client {
    pub(crate) fn words(self) -> Vec<String> {
        let script = |name: &str| text(workspace_root().join("tests/real").join(name));
        let python = |name: &str| vec![text(installed("venv/bin/python")), script(name)];
        let node = |name: &str| vec!["node".to_owned(), script(name), text(installed("node_modules"))];
        match self {
            Self::Python | Self::PythonLegacy | Self::PythonAuto => python("py_client.py"),
            Self::FastMcp => python("fastmcp_client.py"),
            Self::TypeScript1 => node("ts1_client.mjs"),
            Self::TypeScript2 | Self::TypeScript2Auto => node("ts2_client.mjs"),
            Self::Rust | Self::RustDiscover | Self::RustAuto => {
                vec![text(installed("rmcp-client/debug/rmcp-client"))]
            }
        }
    }

    /// How it is told to negotiate, where that is not its usual way.
    pub(crate) fn mode(self) -> Option<&'static str> {
        match self {
            Self::PythonLegacy => Some("legacy"),
            Self::PythonAuto | Self::TypeScript2Auto | Self::RustAuto => Some("auto"),
            Self::RustDiscover => Some("discover"),
            _ => None,
        }
    }
}

/// A real server, with a call that it answers.
#[derive(Debug)]
struct Server {
    words: Vec<String>,
    tool: &'static str,
    arguments: &'static str,
    answer: &'static str,
    /// It asks for the client's roots; unanswered, it stays whatever becomes of its input.
    asks_for_roots: bool,
}

/// A server of npm, by `node` or by `npx`, which is a launcher that passes no signal on.
pub(crate) fn npm(package: &str, by_npx: bool, more: &[&str]) -> Vec<String> {
    let name = format!("@modelcontextprotocol/{package}");
    let mut words = if by_npx {
        vec!["npx".to_owned(), "-y".to_owned(), name]
    } else {
        vec!["node".to_owned(), text(installed(&format!("node_modules/{name}/dist/index.js")))]
    };
    words.extend(more.iter().map(|word| (*word).to_owned()));
    words
}

/// With roots declared, as our clients do, and not told, it ignores the end of its input.
fn everything(by_npx: bool) -> Server {
    let words = npm("server-everything", by_npx, &[]);
    Server {
        words,
        tool: "echo",
        arguments: r#"{"message":"hello"}"#,
        answer: "Echo: hello",
        asks_for_roots: true,
    }
}

fn others() -> Vec<Server> {
    let time = vec![text(installed("venv/bin/python")), "-m".to_owned(), "mcp_server_time".to_owned()];
    let mut all = vec![Server {
        words: time,
        tool: "get_current_time",
        arguments: r#"{"timezone":"UTC"}"#,
        answer: "UTC",
        asks_for_roots: false,
    }];
    for by_npx in [false, true] {
        let files = npm("server-filesystem", by_npx, &["/tmp"]);
        all.push(Server {
            words: files,
            tool: "list_allowed_directories",
            arguments: "{}",
            answer: "/tmp",
            asks_for_roots: false,
        });
        let memory = npm("server-memory", by_npx, &[]);
        all.push(Server {
            words: memory,
            tool: "read_graph",
            arguments: "{}",
            answer: "entities",
            asks_for_roots: false,
        });
    }
    all
}

/// How the client's life ends.
#[derive(Debug, Clone, Copy)]
enum End {
    Closed,
    Signalled(Signal),
}

/// Lets a client talk to a server (`before` is what stands before the server's command) and ends it.
#[track_caller]
fn talk(scene: &Scene, client: Client, before: &[String], server: &Server, end: End) {
    let way = if matches!(end, End::Closed) { "close" } else { "stay" };
    let mut words = client.words();
    let program = words.remove(0);
    let command = scene
        .command(program)
        .args(words)
        .args([way, server.tool, server.arguments])
        .args(before)
        .args(&server.words)
        // Where npx finds the packages.
        .cwd(installed("package.json").parent().expect("a file lies in a folder"));
    let command = if server.asks_for_roots { command.env("REAL_AWAIT_ROOTS", "1") } else { command };
    let mut running = Stdio::start(command);
    let ready = running.wait_for(LONG, |bytes| {
        let text = String::from_utf8_lossy(bytes);
        let mut told = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        told.find(|told| told["ready"] == true)
    });
    let ready = ready.unwrap_or_else(|| {
        panic!(
            "{client:?} is not ready\n{}\n{}",
            String::from_utf8_lossy(&running.bytes()),
            running.stderr_text()
        )
    });
    assert!(ready["text"].as_str().is_some_and(|text| text.contains(server.answer)), "{ready}");
    match end {
        End::Closed => {
            let status = running.process().wait_within(LONG).map(shell_status);
            assert_eq!(status, Some(0), "{client:?}: {}", running.stderr_text());
        }
        End::Signalled(signal) => {
            running.process().signal(signal);
            assert!(running.process().wait_within(LONG).is_some(), "{client:?} does not end by {signal:?}");
        }
    }
}

/// `mcpvisor … run --`, with this daemon or a private one.
fn run_before(daemon: Option<&Daemon>) -> Vec<String> {
    let client = text(binary("mcpvisor"));
    let place = match daemon {
        Some(daemon) => vec!["--socket".to_owned(), daemon.socket().to_string_lossy().into_owned()],
        None => vec!["--private".to_owned()],
    };
    [vec![client], place, vec!["run".to_owned(), "--".to_owned()]].concat()
}

/// One client against the server that ignores the end of its input, by node and by npx, with and without a daemon.
fn everything_ends(client: Client, end: End) {
    scene_within(Duration::from_secs(300), move |scene| {
        let daemon = Daemon::start(scene, &Setup::new());
        for by_npx in [false, true] {
            let server = everything(by_npx);
            talk(scene, client, &run_before(Some(&daemon)), &server, end);
            daemon.assert_at_rest();
        }
        daemon.finish();
        for by_npx in [false, true] {
            talk(scene, client, &run_before(None), &everything(by_npx), end);
            let leaks = scene.leaks(SOON);
            assert!(leaks.is_empty(), "{}", Leak::describe(&leaks));
        }
    });
}

macro_rules! clients {
    ($($name:ident = $client:expr;)*) => {
        $(
            mod $name {
                use super::*;

                #[test]
                fn closes() {
                    everything_ends($client, End::Closed);
                }

                #[test]
                fn is_terminated() {
                    everything_ends($client, End::Signalled(Signal::TERM));
                }

                #[test]
                fn is_killed() {
                    everything_ends($client, End::Signalled(Signal::KILL));
                }
            }
        )*
    };
}

clients! {
    python_sdk = Client::Python;
    typescript_sdk_1 = Client::TypeScript1;
    typescript_sdk_2 = Client::TypeScript2;
    rust_sdk = Client::Rust;
}

/// The other servers, behind `run`.
#[test]
fn other_servers_through_run() {
    scene_within(Duration::from_secs(300), |scene| {
        let daemon = Daemon::start(scene, &Setup::new());
        let ends = [End::Closed, End::Signalled(Signal::KILL)];
        for (server, client) in
            others().iter().zip([Client::Python, Client::TypeScript1, Client::TypeScript2].iter().cycle())
        {
            for end in ends {
                talk(scene, *client, &run_before(Some(&daemon)), server, end);
                daemon.assert_at_rest();
            }
        }
        daemon.finish();
    });
}

on_both! {
    /// All of them through `open`, `call` and `close`.
    real_servers_through_open = |scene, containment| {
        let setup = Setup::on(containment).config("[timeouts]\nstart = \"60s\"\nstdin_grace = \"500ms\"");
        let daemon = Daemon::start(scene, &setup);
        let mut servers = others();
        servers.extend([everything(false), everything(true)]);
        for (n, server) in servers.iter().enumerate() {
            let key = format!("real-{n}");
            open_there(scene, &daemon, &key, server);
            let result = daemon.cli(&["call", &key, server.tool, server.arguments]).ok();
            assert!(result["content"][0]["text"].as_str().is_some_and(|text| text.contains(server.answer)), "{result:#}");
            let tools = daemon.cli(&["tools", &key]).ok();
            assert!(tools["tools"].as_array().is_some_and(|tools| tools.len() >= 2), "{tools:#}");
        }
        let all = daemon.cli(&["close", "--all"]).ok();
        let results = all["results"].as_array().expect("results");
        assert_eq!(results.len(), servers.len());
        results.iter().for_each(|result| assert_closed(result, containment));
        daemon.finish();
    };
}

/// Opens a session in the folder in which npx finds the packages.
#[track_caller]
fn open_there(scene: &Arc<Scene>, daemon: &Daemon, key: &str, server: &Server) {
    let folder = installed("package.json").parent().expect("a file lies in a folder").to_owned();
    let command = daemon.command(scene, &["open", key, "--"]).args(&server.words).cwd(folder);
    let session = command.output_within(LONG).ok();
    assert_eq!(session["state"], "ready", "{session:#}");
}

/// The test of the test: without mcpvisor these clients leave the server behind when they are ended, and the oracle sees it.
fn leaves_orphans(client: Client) {
    scene_within(Duration::from_secs(180), move |scene| {
        for by_npx in [false, true] {
            for signal in [Signal::KILL, Signal::TERM] {
                talk(scene, client, &[], &everything(by_npx), End::Signalled(signal));
                let left = Leak::describe(&scene.leaks(Duration::from_secs(2)));
                assert!(left.contains("server-everything"), "no orphan was left by {signal:?}: {left}");
                scene.discard();
            }
        }
    });
}

#[test]
fn control_the_python_sdk_leaves_orphans() {
    leaves_orphans(Client::Python);
}

#[test]
fn control_the_typescript_sdk_leaves_orphans() {
    leaves_orphans(Client::TypeScript1);
}
