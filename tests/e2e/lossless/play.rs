//! Rounds of messages, through a relay and through an endpoint in front of a shared server.
use crate::real::LONG;
use mcpvisor_testkit::{Daemon, Scene, Setup, Stdio, workspace_root};
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;

pub(crate) const MODERN: &str = "2026-07-28";

/// What the client says, and what the server says to that. `@ID@` and `@TOKEN@` are the request's id and progress token, `@SID@` and
/// `@STOKEN@` those of a request of the server.
#[derive(Debug, Default, Clone)]
pub(crate) struct Round {
    /// Notifications of the client.
    pub(crate) before: Vec<String>,
    /// Its request.
    pub(crate) request: String,
    /// The lines of the server; the last is the answer.
    pub(crate) said: Vec<String>,
    /// The client's answers to the requests among them.
    pub(crate) replies: Vec<String>,
}

/// Ids as JSON knows them: no two are the same, some look so.
fn id(n: usize) -> String {
    match n % 8 {
        0 => format!("{n}"),
        1 => format!("\"{}\"", n - 1),
        2 => format!("-{n}"),
        3 => format!("{}.0", n - 3),
        4 => format!("{n}e0"),
        5 => format!("\"\\u0041\\/{n}\""),
        6 => format!("123456789012345678901234567890{n}"),
        _ => format!("\"\\ud83d\\ude00 \u{e9} {n}\""),
    }
}

/// Servers count for themselves, and know no better than to call their requests as ours are called.
fn server_id(n: usize) -> String {
    match n % 4 {
        0 => format!("{n}"),
        1 => format!("\"mcpvisor-{n}\""),
        2 => format!("{n}.50"),
        _ => format!("\"\\u006dcpvisor-{n}\""),
    }
}

fn filled(template: &str, parts: &[(&str, &str)]) -> String {
    parts.iter().fold(template.to_owned(), |text, (name, value)| text.replace(name, value))
}

/// The id of a message, as its text.
#[track_caller]
fn id_of(line: &str) -> String {
    let members: BTreeMap<String, Box<RawValue>> =
        serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    members.get("id").unwrap_or_else(|| panic!("no id: {line}")).get().to_owned()
}

/// A mirror behind mcpvisor, and its client.
struct Mirror {
    server: Stdio,
    at: usize,
    sent: String,
}

impl Mirror {
    fn send(&mut self, line: &str) {
        self.server.write(format!("{line}\n").as_bytes());
        self.sent.push_str(line);
        self.sent.push('\n');
    }

    #[track_caller]
    fn next(&mut self, why: &str) -> String {
        let at = self.at;
        let line = self.server.wait_for(LONG, |bytes| {
            let end = bytes[at..].iter().position(|byte| *byte == b'\n')?;
            Some(bytes[at..at + end].to_vec())
        });
        let line = line.unwrap_or_else(|| panic!("nothing comes ({why}): {}", self.server.stderr_text()));
        self.at += line.len() + 1;
        String::from_utf8(line).expect("what is said is UTF-8")
    }

    fn handshake(&mut self, protocol: &str) {
        if protocol == MODERN {
            self.send(
                r#"{"jsonrpc":"2.0","id":"h","method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}"#,
            );
            self.next("server/discover");
            return;
        }
        let capabilities =
            r#"{"roots":{"listChanged":true},"sampling":{"tools":{}},"elicitation":{"form":{},"url":{}}}"#;
        self.send(&format!(
            r#"{{"jsonrpc":"2.0","id":"h","method":"initialize","params":{{"protocolVersion":"{protocol}","capabilities":{capabilities},"clientInfo":{{"name":"c","version":"1"}}}}}}"#
        ));
        self.next("initialize");
        self.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
    }
}

/// Plays the rounds through `run --relay`: both sides get each other's bytes.
pub(crate) fn through_relay(scene: &Arc<Scene>, protocol: &str, rounds: &[Round]) {
    let (mut mirror, daemon) = start(scene, protocol, rounds, false);
    mirror.handshake(protocol);
    for (n, round) in rounds.iter().enumerate() {
        let (id, token) = (id(n), id(n + 1));
        round.before.iter().for_each(|line| mirror.send(line));
        mirror.send(&filled(&round.request, &[("@ID@", &id), ("@TOKEN@", &token)]));
        let mut replies = round.replies.iter();
        for template in &round.said {
            let line = mirror.next(&round.request);
            if template.contains("@SID@") {
                let reply = replies.next().expect("each request of the server has its answer");
                mirror.send(&filled(reply, &[("@SID@", &id_of(&line))]));
            }
        }
    }
    mirror.server.close_stdin();
    mirror.server.wait(LONG);
    assert_same(&read(scene, "read"), &mirror.sent, "from the client");
    let heard = String::from_utf8(mirror.server.bytes()).expect("what is said is UTF-8");
    assert_same(&heard, &read(scene, "said"), "from the server");
    daemon.finish();
}

/// Plays the rounds through `attach`: of each message everything passes but ids and progress tokens, and these come back.
pub(crate) fn through_attach(scene: &Arc<Scene>, protocol: &str, rounds: &[Round]) {
    let (mut mirror, daemon) = start(scene, protocol, rounds, true);
    mirror.handshake(protocol);
    let mut asked = 0;
    for (n, round) in rounds.iter().enumerate() {
        let (id, token) = (id(n), id(n + 1));
        round.before.iter().for_each(|line| mirror.send(line));
        mirror.send(&filled(&round.request, &[("@ID@", &id), ("@TOKEN@", &token)]));
        let mut replies = round.replies.iter();
        for template in &round.said {
            let line = mirror.next(&round.request);
            let mut parts = vec![("@ID@", id.as_str()), ("@TOKEN@", &token)];
            let server_id = if template.contains("@SID@") { id_of(&line) } else { String::new() };
            parts.extend([("@SID@", server_id.as_str()), ("@STOKEN@", &server_id)]);
            assert_eq!(line, filled(template, &parts), "from the server");
            if !server_id.is_empty() {
                let reply = replies.next().expect("each request of the server has its answer");
                mirror.send(&filled(reply, &[("@SID@", &server_id)]));
            }
        }
    }
    mirror.server.close_stdin();
    mirror.server.wait(LONG);
    daemon.cli(&["close", "mirror"]).ok();
    daemon.assert_at_rest();
    let all = read(scene, "read");
    // The handshake of the daemon's own, and what the client's leads to: its roots are others now, or its own server/discover.
    let mut lines = all.lines().skip(3);
    let mut next = |why: &str| lines.next().unwrap_or_else(|| panic!("the server did not hear {why}"));
    for (n, round) in rounds.iter().enumerate() {
        for line in &round.before {
            assert_eq!(next(line), line, "from the client");
        }
        let line = next(&round.request);
        let ours = id_of(line);
        assert_eq!(line, filled(&round.request, &[("@ID@", &ours), ("@TOKEN@", &ours)]), "request {n}");
        for reply in &round.replies {
            assert_eq!(next(reply), filled(reply, &[("@SID@", &server_id(asked))]), "from the client");
            asked += 1;
        }
    }
    assert_eq!(lines.next(), None, "and nothing else");
    daemon.finish();
}

/// Sends the requests and notifications as one array, as 2025-03-26 allows: the server gets them one by one, and the client one array
/// of the answers.
pub(crate) fn as_batches(scene: &Arc<Scene>, rounds: &[Round]) {
    let (mut mirror, daemon) = start(scene, "2025-03-26", rounds, true);
    mirror.handshake("2025-03-26");
    for (n, pair) in rounds.chunks(2).enumerate() {
        let requests: Vec<(String, &Round)> =
            pair.iter().enumerate().map(|(i, round)| (id(2 * n + i), round)).collect();
        let mut messages = vec![];
        for (id, round) in &requests {
            messages.extend(round.before.iter().cloned());
            messages.push(filled(&round.request, &[("@ID@", id)]));
        }
        mirror.send(&format!("[ {}]", messages.join(" ,\t")));
        let line = mirror.next("a batch");
        let answers: Vec<Box<RawValue>> =
            serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        let mut answers: Vec<&str> = answers.iter().map(|answer| answer.get()).collect();
        let mut wanted: Vec<String> =
            requests.iter().map(|(id, round)| filled(&round.said[0], &[("@ID@", id)])).collect();
        answers.sort_unstable();
        wanted.sort_unstable();
        assert_eq!(answers, wanted, "from the server");
    }
    mirror.server.close_stdin();
    mirror.server.wait(LONG);
    daemon.cli(&["close", "mirror"]).ok();
    let all = read(scene, "read");
    let mut lines = all.lines().skip(3);
    for round in rounds {
        for line in &round.before {
            assert_eq!(lines.next(), Some(line.as_str()), "from the client");
        }
        let line = lines.next().expect("each request has reached the server");
        assert_eq!(line, filled(&round.request, &[("@ID@", &id_of(line))]), "from the client");
    }
    assert_eq!(lines.next(), None, "and nothing else");
    daemon.finish();
}

fn start(scene: &Arc<Scene>, protocol: &str, rounds: &[Round], shared: bool) -> (Mirror, Daemon) {
    let mut script = String::new();
    let mut asked = 0;
    for line in rounds.iter().flat_map(|round| round.said.iter().map(String::as_str).chain(["."])) {
        let id = server_id(asked);
        asked += usize::from(line.contains("@SID@"));
        script += &filled(line, &[("@SID@", &id), ("@STOKEN@", "\"tok\\u0065n\"")]);
        script.push('\n');
    }
    fs::write(scene.path("script"), script).expect("a file in the scene's folder");
    let mirror = workspace_root().join("tests/e2e/lossless/mirror.py");
    let mut words = vec!["python3".to_owned(), mirror.to_string_lossy().into_owned(), protocol.to_owned()];
    words.extend(["script", "read", "said"].map(|name| scene.path(name).to_string_lossy().into_owned()));
    let daemon = Daemon::start(scene, &Setup::new().quick());
    let socket = daemon.socket().to_string_lossy().into_owned();
    let command = if shared {
        daemon.command(scene, &["open", "mirror", "--"]).args(&words).output_within(LONG).ok();
        scene.mcpvisor(&["--socket", &socket, "attach", "mirror"])
    } else {
        scene.mcpvisor(&["--socket", &socket, "run", "--relay", "--"]).args(&words)
    };
    (Mirror { server: Stdio::start(command), at: 0, sent: String::new() }, daemon)
}

fn read(scene: &Scene, name: &str) -> String {
    fs::read_to_string(scene.path(name)).expect("the mirror writes what it hears and says")
}

/// Line by line, so that a difference can be read.
#[track_caller]
fn assert_same(heard: &str, said: &str, from: &str) {
    for (line, wanted) in heard.lines().zip(said.lines()) {
        assert_eq!(line, wanted, "{from}");
    }
    assert!(heard == said, "{from}: {} bytes of {}", heard.len(), said.len());
}
