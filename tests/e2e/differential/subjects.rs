//! The real servers, and what each is asked.
use super::talk::Turn::{self, Ask, Begin, Cancel, GiveUp, Hear, Pages, Tell};
use crate::real::{installed, npm, text};
use mcpvisor_testkit::{Scene, workspace_root};
use serde_json::{Value, json};
use std::fs;

/// One server, and the script.
#[derive(Debug)]
pub(crate) struct Subject {
    pub(crate) words: Vec<String>,
    pub(crate) env: Vec<(&'static str, String)>,
    pub(crate) modern: bool,
    /// It speaks both eras: where the daemon makes the handshake, it is to begin with the modern one.
    pub(crate) told_to_be: bool,
    /// The folder that the client's roots are.
    pub(crate) root: String,
    pub(crate) turns: Vec<Turn>,
    /// What differs between two direct conversations.
    pub(crate) masks: &'static [&'static str],
    /// The most bytes that these may hide.
    pub(crate) hidden_at_most: usize,
}

impl Subject {
    fn legacy(words: Vec<String>, own: Vec<Turn>) -> Self {
        let mut turns = vec![
            Ask(
                "initialize",
                json!({
                    "protocolVersion": "2025-11-25",
                    "capabilities": {
                        "roots": { "listChanged": true },
                        "sampling": { "tools": {} },
                        "elicitation": { "form": {}, "url": {} },
                    },
                    "clientInfo": { "name": "mcpvisor", "version": env!("CARGO_PKG_VERSION") },
                }),
            ),
            Tell("notifications/initialized", json!({})),
        ];
        turns.extend(own);
        turns.extend(common());
        Self {
            words,
            env: vec![],
            modern: false,
            told_to_be: false,
            root: "/tmp".to_owned(),
            turns,
            masks: &[],
            hidden_at_most: 0,
        }
    }
}

/// What every server can be asked, whether it has that or not.
fn common() -> Vec<Turn> {
    let argument = json!({ "name": "city", "value": "B" });
    vec![
        Pages("tools/list"),
        Pages("prompts/list"),
        Pages("resources/list"),
        Pages("resources/templates/list"),
        Ask("tools/call", json!({ "name": "no-such-tool", "arguments": {} })),
        Ask("prompts/get", json!({ "name": "no-such-prompt", "arguments": { "a": "b" } })),
        Ask("resources/read", json!({ "uri": "none://such" })),
        Ask(
            "completion/complete",
            json!({ "ref": { "type": "ref/prompt", "name": "none" }, "argument": argument }),
        ),
        Ask("logging/setLevel", json!({ "level": "warning" })),
        Ask("no/such/method", json!({ "big": 1 })),
        Ask("ping", json!({})),
    ]
}

fn call(tool: &str, arguments: Value) -> Turn {
    let mut params = json!({ "name": tool });
    params["arguments"] = arguments;
    Ask("tools/call", params)
}

/// A call that is to tell of its progress under this token.
fn followed(tool: &str, arguments: Value, token: Value) -> Turn {
    let mut params = json!({ "name": tool, "_meta": {} });
    params["arguments"] = arguments;
    params["_meta"]["progressToken"] = token;
    Ask("tools/call", params)
}

fn python(module: &str, more: &[&str]) -> Vec<String> {
    let mut words = vec![text(installed("venv/bin/python")), "-m".to_owned(), module.to_owned()];
    words.extend(more.iter().map(|word| (*word).to_owned()));
    words
}

pub(crate) fn everything(_: &Scene) -> Subject {
    let slow = |seconds: f64| json!({ "duration": seconds, "steps": 2 });
    let long = "trigger-long-running-operation";
    let own = vec![
        // It asks for the roots a moment later, and tells of them.
        Hear("roots/list"),
        Hear("notifications/message"),
        call("echo", json!({ "message": "caf\u{e9} \u{1f600} \"quoted\"\n\u{7f}" })),
        call("get-sum", json!({ "a": 0.1, "b": 1e21 })),
        call("get-sum", json!({ "a": "not a number" })),
        call("get-structured-content", json!({ "location": "Chicago" })),
        call("get-tiny-image", json!({})),
        call("get-resource-links", json!({ "count": 3 })),
        call("get-annotated-message", json!({ "messageType": "error", "includeImage": true })),
        call("get-roots-list", json!({})),
        call("trigger-sampling-request", json!({ "prompt": "2+2", "maxTokens": 7 })),
        call("trigger-elicitation-request", json!({})),
        followed(long, slow(0.2), json!("token \"1\"")),
        followed(long, slow(0.2), json!(9_007_199_254_740_991_u64)),
        Ask("prompts/get", json!({ "name": "args-prompt", "arguments": { "city": "Bern" } })),
        Ask("prompts/get", json!({ "name": "args-prompt", "arguments": {} })),
        Ask("resources/read", json!({ "uri": "demo://resource/static/document/features.md" })),
        Ask("resources/read", json!({ "uri": "demo://resource/dynamic/text/1" })),
        Ask("resources/subscribe", json!({ "uri": "demo://resource/dynamic/text/1" })),
        Ask("resources/unsubscribe", json!({ "uri": "demo://resource/dynamic/text/1" })),
        Ask(
            "completion/complete",
            json!({
                "ref": { "type": "ref/prompt", "name": "completable-prompt" },
                "argument": { "name": "name", "value": "" },
                "context": { "arguments": { "department": "Sales" } },
            }),
        ),
        // The answer of a call that is given up would have come before that of the longer one.
        GiveUp("tools/call", json!({ "name": long, "arguments": slow(0.4) })),
        call(long, slow(0.8)),
    ];
    let subject = Subject::legacy(npm("server-everything", false, &[]), own);
    Subject { masks: &["#:#:# AM", "#:#:# PM"], hidden_at_most: 11, ..subject }
}

/// Its files are made anew for each conversation.
pub(crate) fn filesystem(scene: &Scene) -> Subject {
    let dir = scene.path("files");
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir(&dir).expect("a folder in the scene's folder");
    fs::write(dir.join("a.txt"), "one\ntwo\n\u{fc}\n").expect("a file in a new folder");
    let path = |name: &str| dir.join(name).to_string_lossy().into_owned();
    let edits = json!([{ "oldText": "two", "newText": "2" }]);
    let own = vec![
        // It asks for the roots, and serves those from then on: the same folder as before.
        Hear("roots/list"),
        call("list_allowed_directories", json!({})),
        call("write_file", json!({ "path": path("b.txt"), "content": "tab\t\u{1f600}\r\n" })),
        call("read_text_file", json!({ "path": path("b.txt") })),
        call("edit_file", json!({ "path": path("a.txt"), "edits": edits })),
        call("read_multiple_files", json!({ "paths": [path("a.txt"), path("none")] })),
        call("list_directory", json!({ "path": path("") })),
        call("directory_tree", json!({ "path": path("") })),
        call("read_text_file", json!({ "path": "/etc/passwd" })),
        call("read_text_file", json!({ "path": 1 })),
    ];
    let root = dir.to_string_lossy().into_owned();
    Subject { root: root.clone(), ..Subject::legacy(npm("server-filesystem", false, &[&root]), own) }
}

/// Its memory is empty in each conversation.
pub(crate) fn memory(scene: &Scene) -> Subject {
    let file = scene.path("memory.jsonl");
    let _ = fs::remove_file(&file);
    let entity = json!({ "name": "Ada", "entityType": "person", "observations": ["writes \"programs\""] });
    let own = vec![
        call("create_entities", json!({ "entities": [entity] })),
        call(
            "create_relations",
            json!({ "relations": [{ "from": "Ada", "to": "Ada", "relationType": "is" }] }),
        ),
        call("add_observations", json!({ "observations": [{ "entityName": "Eve", "contents": ["none"] }] })),
        call("search_nodes", json!({ "query": "program" })),
        call("read_graph", json!({})),
        call("create_entities", json!({ "entities": 7 })),
    ];
    let subject = Subject::legacy(npm("server-memory", false, &[]), own);
    Subject { env: vec![("MEMORY_FILE_PATH", file.to_string_lossy().into_owned())], ..subject }
}

pub(crate) fn thinking(_: &Scene) -> Subject {
    let thought = |n: u32, next: bool| json!({ "thought": "hm", "nextThoughtNeeded": next, "thoughtNumber": n, "totalThoughts": 2 });
    let own = vec![
        call("sequentialthinking", thought(1, true)),
        call("sequentialthinking", thought(2, false)),
        call("sequentialthinking", json!({ "thought": "", "thoughtNumber": -1 })),
    ];
    Subject::legacy(npm("server-sequential-thinking", false, &[]), own)
}

pub(crate) fn time(_: &Scene) -> Subject {
    let subject = Subject::legacy(python("mcp_server_time", &[]), of_time());
    Subject { masks: &["#-#-#T#:#:#"], hidden_at_most: 120, ..subject }
}

/// The same server in the modern era.
pub(crate) fn time_modern(scene: &Scene) -> Subject {
    let mut turns = vec![Ask("server/discover", json!({}))];
    turns.extend(of_time());
    turns.extend(common());
    Subject { modern: true, told_to_be: true, turns, ..time(scene) }
}

fn of_time() -> Vec<Turn> {
    let convert = |at: &str| json!({ "source_timezone": "UTC", "time": at, "target_timezone": "Asia/Tokyo" });
    vec![
        call("get_current_time", json!({ "timezone": "UTC" })),
        call("convert_time", convert("16:30")),
        call("convert_time", convert("half past four")),
        call("get_current_time", json!({ "timezone": "No/Where" })),
        call("get_current_time", json!({})),
    ]
}

pub(crate) fn git(scene: &Scene) -> Subject {
    let dir = scene.path("repository");
    if !dir.exists() {
        fs::create_dir(&dir).expect("a folder in the scene's folder");
        fs::write(dir.join("a.txt"), "one\n").expect("a file in a new folder");
        let script = "git init -q -b main && git add a.txt && git commit -q -m 'The first \u{fc}' && echo two >>a.txt && git add a.txt && echo three >>a.txt";
        let mut command = scene.command("/bin/sh").args(["-c", script]).cwd(&dir);
        for (name, value) in identity() {
            command = command.env(name, value);
        }
        let output = command.output();
        assert_eq!(output.status, 0, "{}", output.stderr);
    }
    let at = dir.to_string_lossy().into_owned();
    let own = vec![
        call("git_status", json!({ "repo_path": at })),
        call("git_log", json!({ "repo_path": at, "max_count": 5 })),
        call("git_diff_unstaged", json!({ "repo_path": at })),
        call("git_diff_staged", json!({ "repo_path": at, "context_lines": 1 })),
        call("git_show", json!({ "repo_path": at, "revision": "main" })),
        call("git_show", json!({ "repo_path": at, "revision": "none" })),
        call("git_branch", json!({ "repo_path": at, "branch_type": "local" })),
        call("git_status", json!({ "repo_path": "/" })),
        call("git_log", json!({ "max_count": "many" })),
    ];
    Subject { env: identity(), ..Subject::legacy(python("mcp_server_git", &["--repository", &at]), own) }
}

/// Commits by nobody, at a moment that never changes.
fn identity() -> Vec<(&'static str, String)> {
    let mut all = vec![];
    for (name, value) in [
        ("GIT_CONFIG_GLOBAL", "/dev/null"),
        ("GIT_CONFIG_SYSTEM", "/dev/null"),
        ("GIT_AUTHOR_NAME", "Ada"),
        ("GIT_AUTHOR_EMAIL", "ada@example.org"),
        ("GIT_AUTHOR_DATE", "2026-01-02T03:04:05Z"),
        ("GIT_COMMITTER_NAME", "Ada"),
        ("GIT_COMMITTER_EMAIL", "ada@example.org"),
        ("GIT_COMMITTER_DATE", "2026-01-02T03:04:05Z"),
    ] {
        all.push((name, value.to_owned()));
    }
    all
}

pub(crate) fn modern_words() -> Vec<String> {
    let script = text(workspace_root().join("tests/real/modern_server.mjs"));
    vec!["node".to_owned(), script, text(installed("node_modules"))]
}

pub(crate) fn modern(_: &Scene) -> Subject {
    let answer = json!({ "who": { "action": "accept", "content": { "name": "Ada" } } });
    let wanted =
        json!({ "notifications": { "toolsListChanged": true, "resourceSubscriptions": ["test://readme"] } });
    let mut turns = vec![
        Ask("server/discover", json!({})),
        call("echo", json!({ "text": "caf\u{e9}" })),
        call("echo", json!({ "text": 1 })),
        call("greet", json!({})),
        Ask("tools/call", json!({ "name": "greet", "arguments": {}, "inputResponses": answer })),
        followed("slow", json!({ "ms": 100 }), json!("t")),
        call("fail", json!({})),
        Ask("prompts/get", json!({ "name": "hello", "arguments": { "name": "Ada" } })),
        Ask("resources/read", json!({ "uri": "test://readme" })),
        Begin("subscriptions/listen", wanted),
        Hear("notifications/subscriptions/acknowledged"),
        call("grow", json!({})),
        Hear("notifications/tools/list_changed"),
        Cancel,
        call("grow", json!({})),
        GiveUp("tools/call", json!({ "name": "slow", "arguments": { "ms": 400 } })),
        call("slow", json!({ "ms": 800 })),
    ];
    turns.extend(common());
    Subject {
        words: modern_words(),
        env: vec![],
        modern: true,
        told_to_be: false,
        root: "/tmp".to_owned(),
        turns,
        masks: &[],
        hidden_at_most: 0,
    }
}

/// Its lists alone: no browser is started.
pub(crate) fn playwright(_: &Scene) -> Subject {
    let cli = text(installed("node_modules/@playwright/mcp/cli.js"));
    Subject::legacy(vec!["node".to_owned(), cli, "--headless".to_owned(), "--isolated".to_owned()], vec![])
}

/// The same.
pub(crate) fn devtools(_: &Scene) -> Subject {
    let cli = text(installed("node_modules/chrome-devtools-mcp/build/src/bin/chrome-devtools-mcp.js"));
    let mut words = vec!["node".to_owned(), cli];
    words.extend(["--headless", "--isolated", "--no-usage-statistics"].map(str::to_owned));
    Subject::legacy(words, vec![])
}
