//! Every misbehaving server through `mcpvisor run`, on both containments: the bytes are those of a direct start, the status is
//! right, and nothing remains.
use crate::support::{assert_closed, case, on_both};
use mcpvisor_testkit::{
    Containment, Daemon, SOON, Scene, Setup, Signal, Stdio, handshake, procfs, shell_status,
};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// How the bytes of both ways are compared.
#[derive(Debug, Clone, Copy)]
enum Compare {
    /// Byte for byte.
    Exactly,
    /// As lines in any order, where the server itself writes from two threads.
    Lines,
    /// Whole, but for what must differ between two processes.
    Probe,
}

/// One row: a server, and what is said to it.
struct Row {
    case: &'static str,
    env: &'static [(&'static str, &'static str)],
    talk: fn(&mut Stdio),
    compare: Compare,
    /// The status of `run`.
    status: i32,
    /// Its answers have ids of another type than their requests.
    mends_ids: bool,
    /// What differs in a relay.
    relayed: Relayed,
}

/// How a relay differs from a direct start.
#[derive(Debug, Clone, Copy)]
struct Relayed {
    /// What is said to the server there, where it is something else.
    talk: Option<fn(&mut Stdio)>,
    /// How many calls have an error of the relay's as their answer.
    errors: usize,
    /// What the status of `run --relay` may be, where it is another.
    statuses: Option<&'static [i32]>,
    /// The server ends before its client does.
    server_first: bool,
    /// It may end even before `attach` gives it its client, and is started again then.
    before_its_client: bool,
}

/// Through what the server is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Run,
    Relay,
    Attach,
    /// The daemon speaks to it, and `attach KEY/SERVER` to the daemon.
    Shared,
}

impl Row {
    const fn new(case: &'static str) -> Self {
        Self {
            case,
            env: &[],
            talk: usual,
            compare: Compare::Exactly,
            status: 0,
            mends_ids: false,
            relayed: Relayed {
                talk: None,
                errors: 0,
                statuses: None,
                server_first: false,
                before_its_client: false,
            },
        }
    }
    const fn env(self, env: &'static [(&'static str, &'static str)]) -> Self {
        Self { env, ..self }
    }
    const fn talk(self, talk: fn(&mut Stdio)) -> Self {
        Self { talk, ..self }
    }
    const fn compare(self, compare: Compare) -> Self {
        Self { compare, ..self }
    }
    /// It ends by itself, before its client does.
    const fn status(self, status: i32) -> Self {
        Self { status, relayed: Relayed { server_first: true, ..self.relayed }, ..self }
    }
    const fn relay_answers(self, errors: usize) -> Self {
        Self { relayed: Relayed { errors, ..self.relayed }, ..self }
    }
    const fn relay_talk(self, talk: fn(&mut Stdio)) -> Self {
        Self { relayed: Relayed { talk: Some(talk), ..self.relayed }, ..self }
    }
    /// A relay takes something for the end of the server that is none to a direct client.
    const fn relay_statuses(self, statuses: &'static [i32]) -> Self {
        Self { relayed: Relayed { statuses: Some(statuses), server_first: true, ..self.relayed }, ..self }
    }
    const fn mends_ids(self) -> Self {
        Self { mends_ids: true, ..self }
    }
    const fn before_its_client(self) -> Self {
        Self { relayed: Relayed { before_its_client: true, ..self.relayed }, ..self }
    }
}

/// The handshake, the tools, one call.
fn usual(server: &mut Stdio) {
    server.initialize();
    list(server);
    call(server, &json!({"text": "hällo"}));
}

fn list(server: &mut Stdio) {
    let id = server.request("tools/list", json!({}));
    assert!(server.answer(id, SOON).is_some(), "tools/list is answered");
}

fn call(server: &mut Stdio, arguments: &Value) {
    let answer = server.call_tool("echo", arguments);
    assert!(answer.get("result").is_some(), "{answer}");
}

/// `initialize` is never answered.
fn unanswered(server: &mut Stdio) {
    server.request("initialize", handshake());
    mcpvisor_testkit::eventually("the line on stderr", SOON, || {
        server.stderr_text().contains("still loading")
    });
}

/// The same of a server whose stderr is not the client's: `attach` has none.
fn asks_in_vain(server: &mut Stdio) {
    server.request("initialize", handshake());
}

/// It ends before anything is said.
fn nothing(server: &mut Stdio) {
    ends_itself(server);
}

/// Its end is seen before its input is closed: otherwise it would be a race which of the two came first.
fn ends_itself(server: &mut Stdio) {
    assert!(server.output_ends(SOON), "its output ends");
    server.wait(SOON);
}

/// It dies in a call; a torn frame comes first.
fn dies(server: &mut Stdio) {
    server.initialize();
    server.request("tools/call", json!({"name": "echo", "arguments": {"partial": true}}));
    ends_itself(server);
}

fn flood(server: &mut Stdio) {
    usual(server);
    let all = |bytes: &[u8]| (bytes.split(|b| *b == b'\n').count() > 5003).then_some(());
    assert!(server.wait_for(SOON * 3, all).is_some(), "all notifications come");
}

/// Answers the server's own requests.
fn serve(server: &mut Stdio) {
    server.initialize();
    let id = server.request("tools/call", json!({"name": "echo", "arguments": {}}));
    for asked in ["srv-ping", "srv-roots", "srv-sample", "srv-elicit"] {
        let there = |bytes: &[u8]| String::from_utf8_lossy(bytes).contains(asked).then_some(());
        assert!(server.wait_for(SOON, there).is_some(), "{asked} comes");
        server.send(&json!({"jsonrpc": "2.0", "id": asked, "result": {}}));
    }
    assert!(server.answer(id, SOON).is_some(), "the call is answered");
}

/// Cancels a call; the late answer comes all the same.
fn cancel(server: &mut Stdio) {
    server.initialize();
    let id = server.request("tools/call", json!({"name": "echo", "arguments": {"text": "late"}}));
    server.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}));
    assert!(server.answer(id, SOON).is_some(), "the late answer comes");
}

/// It closes its standard output after the first call.
fn closes_stdout(server: &mut Stdio) {
    server.initialize();
    call(server, &json!({"text": "last words"}));
    assert!(server.output_ends(SOON), "its output ends");
}

/// The same, and it is seen that the relay takes that for the server's end (G30).
fn closes_stdout_and_is_ended(server: &mut Stdio) {
    closes_stdout(server);
    // Started directly it lives on.
    let _ = server.process().wait_within(Duration::from_secs(3));
}

/// The first line is lost in noise, and with it the answer to `initialize` (G30).
fn glued(server: &mut Stdio) {
    server.request("initialize", handshake());
    list(server);
}

/// It stops itself after its first answer.
fn stops(server: &mut Stdio) {
    server.initialize();
    call(server, &json!({"text": "before the stop"}));
}

fn out_of_order(server: &mut Stdio) {
    server.initialize();
    let slow =
        server.request("tools/call", json!({"name": "echo", "arguments": {"text": "slow", "delay_ms": 400}}));
    call(server, &json!({"text": "fast", "delay_ms": 0}));
    assert!(server.answer(slow, SOON).is_some(), "the slow one is answered");
}

fn modern(server: &mut Stdio) {
    let refused = server.request("initialize", handshake());
    assert!(server.answer(refused, SOON).is_some(), "the refusal comes");
    let discover = server.request("server/discover", json!({}));
    assert!(server.answer(discover, SOON).is_some(), "the modern era answers");
    call(server, &json!({"text": "stateless"}));
}

fn probe(server: &mut Stdio) {
    server.initialize();
    assert!(server.call_tool("probe", &json!({})).get("result").is_some());
}

/// What a play leaves: bytes, and the status of the process that was started.
struct Heard {
    bytes: Vec<u8>,
    status: Option<i32>,
}

/// What the row says through a relay.
impl Row {
    fn with_env<'a>(
        &self,
        mut command: mcpvisor_testkit::Invocation<'a>,
    ) -> mcpvisor_testkit::Invocation<'a> {
        for (name, value) in self.env {
            command = command.env(name, value);
        }
        command
    }

    fn talk_of(&self, way: Way) -> fn(&mut Stdio) {
        if way == Way::Run { self.talk } else { self.relayed.talk.unwrap_or(self.talk) }
    }
}

/// Plays the row with the server as our own child, and ends whatever that leaves.
fn directly(scene: &Scene, row: &Row, talk: fn(&mut Stdio)) -> Heard {
    let mut command = scene.command("python3").arg(case(row.case));
    for (name, value) in row.env {
        command = command.env(name, value);
    }
    let mut server = Stdio::start(command);
    talk(&mut server);
    server.close_stdin();
    // Some never leave by themselves: that is their fault, and the reason for this project.
    let status = server.process().wait_within(Duration::from_millis(300)).map(shell_status);
    let bytes = server.bytes();
    server.process().signal(Signal::KILL);
    drop(server);
    scene.discard();
    Heard { bytes, status }
}

/// Plays the row through the daemon.
fn through(scene: &Scene, daemon: &Daemon, row: &Row, way: Way) -> Heard {
    let socket = daemon.socket().to_string_lossy().into_owned();
    let mcpvisor = |words: &[&str]| scene.mcpvisor(&[&["--socket", &socket], words].concat());
    let command = match way {
        Way::Run => row.with_env(mcpvisor(&["run", "--key", "case", "--", "python3"]).arg(case(row.case))),
        Way::Relay => {
            row.with_env(mcpvisor(&["run", "--key", "case", "--relay", "--", "python3"]).arg(case(row.case)))
        }
        Way::Attach => {
            let open = mcpvisor(&["open", "case", "--mode", "exclusive", "--json", "--", "python3"]);
            row.with_env(open.arg(case(row.case))).output().ok();
            mcpvisor(&["attach", "case/main", "--exclusive"])
        }
        Way::Shared => {
            let open = mcpvisor(&["open", "case", "--json", "--", "python3"]);
            row.with_env(open.arg(case(row.case))).output().ok();
            mcpvisor(&["attach", "case/main"])
        }
    };
    let mut server = Stdio::start(command);
    (row.talk_of(way))(&mut server);
    server.close_stdin();
    let status = shell_status(server.wait(SOON));
    assert!(server.output_ends(SOON), "the output ends with the shim");
    Heard { bytes: server.bytes(), status: Some(status) }
}

/// What two processes can't have in common is taken out of a probe's answer.
fn comparable(bytes: &[u8]) -> Vec<Value> {
    let mut lines = Vec::new();
    for line in bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let mut message: Value = serde_json::from_slice(line).expect("a probe speaks JSON");
        let text = message["result"]["content"][0]["text"].as_str().map(str::to_owned);
        if let Some(mut told) = text.and_then(|text| serde_json::from_str::<Value>(&text).ok()) {
            for name in ["pid", "ppid", "pgid", "sid", "cgroup"] {
                told[name] = Value::Null;
            }
            if let Some(env) = told["env"].as_array_mut() {
                env.retain(|name| name != "MCPVISOR_SCOPE");
            }
            // Pipes have numbers; that they are pipes is what matters.
            // A direct child of the test also has what the test itself has inherited.
            if let Some(fds) = told["fds"].as_object_mut() {
                fds.retain(|number, _| ["0", "1", "2"].contains(&number.as_str()));
                for target in fds.values_mut() {
                    *target = json!(target.as_str().and_then(|target| target.split(':').next()));
                }
            }
            message["result"]["content"][0]["text"] = told;
        }
        lines.push(message);
    }
    lines
}

fn shown(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(3000)]).into_owned();
    format!("{} bytes: {text}", bytes.len())
}

/// What a relay makes of a direct start's bytes: the messages, as they are.
fn messages_of(bytes: &[u8]) -> Vec<u8> {
    let lines = bytes.split_inclusive(|byte| *byte == b'\n');
    let is_message = |line: &&[u8]| {
        let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
        line.starts_with(b"{")
    };
    lines.filter(is_message).collect::<Vec<_>>().concat()
}

/// Takes the relay's own answers off the end, and checks them: each to a call of its own, in the place of an answer (G11).
fn without_own_answers(row: &Row, bytes: &[u8]) -> Vec<u8> {
    let own = |line: &[u8]| line.len() < 1024 && memmem(line, b"\"from\":\"mcpvisor\"");
    let mut lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
    let mut ids = Vec::new();
    while let Some(line) = lines.pop_if(|line| own(line)) {
        let error: Value = serde_json::from_slice(line).expect("the relay speaks JSON");
        let code = error["error"]["code"].as_i64().expect("an error has a code");
        assert!(!(-32768..=-32000).contains(&code), "{error}");
        ids.push(error["id"].to_string());
    }
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), row.relayed.errors, "the relay's own answers: {}", shown(bytes));
    let mut rest = lines.concat();
    // A line that the server has cut off is ended before the relay says something.
    if row.relayed.errors > 0 && row.relayed.server_first {
        assert_eq!(rest.pop(), Some(b'\n'));
    }
    rest
}

/// What a shell says of an exit in a certificate.
fn own_status(exit: &Value) -> Option<i32> {
    match exit["signal"].as_str() {
        Some("KILL") => Some(137),
        Some("TERM") => Some(143),
        Some(other) => panic!("nobody sent SIG{other}"),
        None => exit["code"].as_i64().and_then(|code| i32::try_from(code).ok()),
    }
}

fn memmem(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

fn play(scene: &Arc<Scene>, containment: Containment, row: &Row, way: Way) {
    let mut direct = directly(scene, row, row.talk_of(way));
    let daemon = Daemon::start(scene, &Setup::on(containment).quick());
    let mut run = through(scene, &daemon, row, way);
    if way != Way::Run {
        direct.bytes = messages_of(&direct.bytes);
        run.bytes = without_own_answers(row, &run.bytes);
    }
    let (ours, theirs) = (&run.bytes, &direct.bytes);
    let same = match row.compare {
        Compare::Exactly => ours == theirs,
        Compare::Lines => {
            let sorted = |bytes: &[u8]| {
                let mut lines: Vec<Vec<u8>> =
                    bytes.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
                lines.sort();
                lines
            };
            sorted(ours) == sorted(theirs)
        }
        Compare::Probe => comparable(ours) == comparable(theirs),
    };
    assert!(same, "other bytes than directly\n--- direct\n{}\n--- run\n{}", shown(theirs), shown(ours));
    let usual = [if way == Way::Attach { i32::from(row.relayed.server_first) } else { row.status }];
    let statuses = row.relayed.statuses.filter(|_| way == Way::Relay).unwrap_or(&usual);
    let told = run.status.is_some_and(|status| statuses.contains(&status));
    assert!(
        told,
        "the status is {:?} and not one of {statuses:?} (directly: {:?})",
        run.status, direct.status
    );
    if way != Way::Attach {
        // The shim left after the teardown: now, at once, nothing of it may be there.
        for (role, pid) in scene.noted() {
            assert!(!procfs::exists(pid), "{role} {pid} outlives run");
        }
    }
    let waited = daemon.cli(&["wait", "case", "--timeout", "20s"]).ok();
    let certificate = &waited["certificate"];
    assert_closed(certificate, containment);
    if way == Way::Relay && row.relayed.server_first {
        assert_eq!(run.status, own_status(&certificate["servers"][0]["exit"]), "{certificate:#}");
    }
    let noted = scene.noted();
    for (role, pid) in &noted {
        assert!(!procfs::exists(*pid), "{role} {pid} outlives its session");
    }
    // A certificate is that of the last start.
    let restarted = way == Way::Attach && row.relayed.before_its_client;
    for (_, pid) in if restarted { &noted[noted.len() - 1..] } else { &noted } {
        crate::support::record(certificate, *pid);
    }
    daemon.finish();
}

/// The messages of a conversation, but for the answer to the handshake, whose revision and words are the daemon's, and for the server's
/// log, which begins before there is a client. Answers that carry another type of id than the request are mended where that is expected.
fn after_the_handshake(bytes: &[u8], mend: bool) -> Vec<Vec<u8>> {
    let bytes = messages_of(bytes);
    let mut messages = Vec::new();
    for line in bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let mut message: Value = serde_json::from_slice(line).expect("what begins with a brace is JSON");
        if mend && let Some(id) = message["id"].as_str().and_then(|id| id.parse::<u64>().ok()) {
            message["id"] = json!(id);
        }
        if message["jsonrpc"] == "2.0"
            && message["id"] != json!(1)
            && message["method"] != "notifications/message"
        {
            messages.push(if mend { message.to_string().into_bytes() } else { line.to_vec() });
        }
    }
    messages
}

/// Plays a row with a server that is the daemon's, and outlives the client.
fn play_shared(scene: &Arc<Scene>, containment: Containment, row: &Row) {
    let direct = directly(scene, row, row.talk);
    let daemon = Daemon::start(scene, &Setup::on(containment).quick());
    let shared = through(scene, &daemon, row, Way::Shared);
    let ours = after_the_handshake(&shared.bytes, row.mends_ids);
    let theirs = after_the_handshake(&direct.bytes, row.mends_ids);
    assert!(
        ours == theirs && !ours.is_empty(),
        "other messages than directly\n--- direct\n{}\n--- shared\n{}",
        shown(&theirs.join(&b"\n"[..])),
        shown(&ours.join(&b"\n"[..]))
    );
    assert_eq!(shared.status, Some(0));
    let certificate = crate::support::close(&daemon, "case");
    assert_closed(&certificate, containment);
    for (role, pid) in scene.noted() {
        assert!(!procfs::exists(pid), "{role} {pid} outlives its session");
        crate::support::record(&certificate, pid);
    }
    daemon.finish();
}

/// The same through `attach` to a shared server (G42): what is said after the handshake is what a direct start says. Those that do not come
/// through a handshake, or that end in their conversation, are in `cases_open` and in `shared`.
mod shared {
    use super::*;

    macro_rules! shared_rows {
        ($($name:ident = $row:expr;)*) => {
            on_both! { $($name = |scene, containment| play_shared(scene, containment, &$row);)* }
        };
    }

    shared_rows! {
        ignores_eof = Row::new("01-ignore-eof");
        ignores_sigterm = Row::new("02-ignore-sigterm");
        double_fork = Row::new("03-double-fork-daemon");
        behind_a_shell = Row::new("04-sh-wrapper");
        banner = Row::new("05-stdout-banner");
        crlf_and_bom = Row::new("06-crlf-bom");
        huge_line = Row::new("07-huge-line");
        slow_start = Row::new("09-init-slow").env(&[("BUG_DELAY", "0.5")]);
        stderr_flood = Row::new("12-stderr-flood").env(&[("BUG_BYTES", "20000000")]);
        ids_of_another_type = Row::new("14-string-id").mends_ids();
        tiny_writes = Row::new("20-tiny-writes");
        several_in_one_write = Row::new("21-two-in-one-write");
        list_changed = Row::new("23-list-changed");
        stops_itself = Row::new("24-sigstop").talk(stops);
        saves_at_its_end = Row::new("30-slow-exit").env(&[("BUG_DELAY", "0.2")]);
        grows = Row::new("32-mem-grow").env(&[("BUG_MB", "4")]);
        answers_out_of_order = Row::new("34-out-of-order").talk(out_of_order);
        modern_only = Row::new("36-modern-only").talk(modern);
    }
}

macro_rules! rows {
    ($($name:ident = $row:expr;)*) => {
        on_both! { $($name = |scene, containment| play(scene, containment, &$row, Way::Run);)* }

        /// The same through `run --relay` (G42).
        mod relay {
            use super::*;
            on_both! { $($name = |scene, containment| play(scene, containment, &$row, Way::Relay);)* }
        }

        /// The same through `attach --exclusive` (G42).
        mod attach {
            use super::*;
            on_both! { $($name = |scene, containment| play(scene, containment, &$row, Way::Attach);)* }
        }
    };
}

rows! {
    ignores_eof = Row::new("01-ignore-eof");
    ignores_sigterm = Row::new("02-ignore-sigterm");
    double_fork = Row::new("03-double-fork-daemon");
    behind_a_shell = Row::new("04-sh-wrapper");
    banner = Row::new("05-stdout-banner");
    glued_banner = Row::new("05-stdout-banner").env(&[("BUG_GLUE", "1")]).relay_talk(glued).relay_answers(1);
    crlf_and_bom = Row::new("06-crlf-bom");
    huge_line = Row::new("07-huge-line");
    never_answers = Row::new("08-init-never").talk(unanswered).relay_talk(asks_in_vain).relay_answers(1);
    slow_start = Row::new("09-init-slow").env(&[("BUG_DELAY", "0.5")]);
    exits_at_once = Row::new("10-exit-at-once").talk(nothing).status(3).before_its_client();
    dies_in_a_call = Row::new("11-dies-mid-call").talk(dies).status(137).relay_answers(1);
    stderr_flood = Row::new("12-stderr-flood").env(&[("BUG_BYTES", "20000000")]);
    notification_flood = Row::new("13-notify-flood").env(&[("BUG_COUNT", "5000")]).talk(flood).compare(Compare::Lines);
    ids_of_another_type = Row::new("14-string-id").relay_answers(3);
    requests_of_its_own = Row::new("15-server-requests").talk(serve);
    ignores_cancel = Row::new("16-ignore-cancel").env(&[("BUG_DELAY", "0.3")]).talk(cancel);
    // Its stdin is closed and it gets SIGTERM at the same time: its own status says which it heeded first.
    closes_its_stdout = Row::new("18-close-stdout").talk(closes_stdout).relay_talk(closes_stdout_and_is_ended).relay_statuses(&[0, 143]);
    tiny_writes = Row::new("20-tiny-writes");
    several_in_one_write = Row::new("21-two-in-one-write");
    list_changed = Row::new("23-list-changed");
    stops_itself = Row::new("24-sigstop").talk(stops);
    odd_protocol = Row::new("28-odd-protocol");
    probed = Row::new("29-probe").talk(probe).compare(Compare::Probe);
    saves_at_its_end = Row::new("30-slow-exit").env(&[("BUG_DELAY", "0.2")]);
    grows = Row::new("32-mem-grow").env(&[("BUG_MB", "4")]);
    answers_out_of_order = Row::new("34-out-of-order").talk(out_of_order);
    modern_only = Row::new("36-modern-only").talk(modern);
}
