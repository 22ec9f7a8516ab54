//! One play: the daemon is held at a gate, something is done, it is let go; and what came of it, in the words of the table.
use super::changes;
use super::stage::{KEY, Requester, Stage};
use super::table::{Action, Row};
use super::waiting;
use crate::support::{kind, main_pid, polite, used};
use mcpvisor_testkit::{Pending, Rpc, SOON, Signal, binary, eventually, send_signal, until};
use serde_json::{Value, json};
use std::time::Duration;

/// What is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    /// The opening of a session.
    Open,
    /// The closing of one that resists.
    Close,
    /// The end of the daemon, with a session open.
    Shutdown,
    /// The giving up of an open that would never have been answered.
    GiveUp,
    /// `mcpvisor run`, whose server gets its own streams.
    Direct,
    /// The adding of a server to a session that lives.
    Add,
    /// The giving up of an add that would never have been answered.
    GiveUpAdd,
    /// The removing of a server that resists.
    Remove,
    /// The restarting of one.
    Restart,
    /// The replacing of a server whose profile has changed, by a reload.
    Reload,
    /// A call that wakes a parked session.
    Wake,
    /// An open that waits for a slot, and gets it.
    Queued,
}

/// An answer that is waited for.
struct Awaited {
    pending: Option<Pending>,
    answer: Option<Result<Value, Value>>,
    /// It came while the gate was held.
    early: bool,
}

impl Awaited {
    fn new(pending: Pending) -> Self {
        Self { pending: Some(pending), answer: None, early: false }
    }

    /// Takes the answer if it comes within the budget.
    fn take(&mut self, budget: Duration) {
        if let Some(pending) = self.pending.take() {
            match pending.wait_within(budget) {
                Ok(answer) => self.answer = Some(answer),
                Err(pending) => self.pending = Some(pending),
            }
        }
    }

    fn take_early(&mut self, budget: Duration) {
        self.take(budget);
        self.early = self.answer.is_some();
    }

    #[track_caller]
    fn word(&mut self, ok: impl Fn(&Value) -> String) -> String {
        self.take(SOON);
        let word = match self.answer.as_ref().expect("an answer comes") {
            Ok(value) => ok(value),
            Err(error) if error["hung_up"] == true => "hung up".to_owned(),
            Err(error) => kind(error).to_owned(),
        };
        word + if self.early { "!" } else { "" }
    }
}

/// What an answer is called in the tables.
fn told(what: What, value: &Value) -> String {
    match what {
        What::Open | What::GiveUp | What::Direct | What::Queued => "opened".to_owned(),
        What::Close => outcome(value),
        What::Shutdown => "ended".to_owned(),
        What::Add | What::GiveUpAdd => "added".to_owned(),
        What::Remove => "removed".to_owned(),
        What::Restart => "restarted".to_owned(),
        What::Reload => "reloaded".to_owned(),
        What::Wake => "called".to_owned(),
    }
}

fn outcome(value: &Value) -> String {
    value["results"][0]["outcome"].as_str().unwrap_or("(no outcome)").to_owned()
}

/// Plays one gate and one action on a stage: what came of it, and the stage where its daemon still runs.
#[track_caller]
pub(crate) fn play(mut stage: Stage, what: What, row: &Row, action: Action) -> (String, Option<Stage>) {
    let gate = row.gate.as_str();
    let expected = row.expected(action).unwrap_or_default();
    let deaf = what == What::Shutdown && AFTER_READING.contains(&gate);
    let mut requester = prepare(&mut stage, what, gate, action);
    stage.gates.reached(gate);
    let mut waiter = (what == What::Close).then(|| {
        let target = json!({"key": KEY, "generation": stage.generation});
        Awaited::new(stage.other.send("session/wait", &target))
    });
    // The action, and the proof that the daemon has taken notice of it while it stands there, where it can.
    let taken = Evidence::before(&mut stage, action);
    let mut asked = act(&stage, &mut requester, action);
    let same_connection = matches!(action, Action::Cancel | Action::Kill) && OF_CONNECTION.contains(&gate);
    if !same_connection && !deaf {
        taken.wait(&mut stage);
    }
    let (mut held, mut process) = match requester {
        Requester::Test(connection, pending) => (Some((connection, Awaited::new(pending))), None),
        Requester::Process(process) => (None, Some(process)),
        Requester::Signal => (None, None),
    };
    // What must be answered at once is waited for; what must not be had its time to be.
    let mut words = expected.split(", ");
    for awaited in held.iter_mut().map(|(_, held)| held).chain(&mut asked) {
        let at_once = words.next().is_some_and(is_early);
        if !at_once && !deaf {
            stage.turns();
        }
        awaited.take_early(if at_once { SOON } else { Duration::ZERO });
    }
    let last = words.next().unwrap_or_default();
    let exits = last.starts_with("exit");
    let over = match is_early(last) {
        must if exits => has_ended(&mut stage, must),
        _ if is_blind(gate) => false,
        must if last.starts_with("undone") => {
            !gate.starts_with("session.") && changes::is_undone(&stage, must)
        }
        must => is_gone(&stage, must),
    };
    if let Some(waiter) = &mut waiter {
        waiter.take(Duration::ZERO);
        waiter.answer.iter().for_each(|answer| stage.assert_waited(answer));
    }
    stage.gates.release(gate);
    if action == Action::Kill && !deaf {
        taken.wait(&mut stage);
        stage.turns();
    }
    let mut came = Vec::new();
    let mut told_so = |word: String| {
        came.push(word);
        row.allows_so_far(action, &came)
    };
    // What is wrong already need not be played to its end.
    let mut right = true;
    if let Some((_, held)) = &mut held {
        right = told_so(held.word(|value| told(what, value)));
    }
    if let Some(asked) = asked.as_mut().filter(|_| right) {
        let asked_for = if action == Action::Shutdown { What::Shutdown } else { What::Close };
        right = told_so(asked.word(|value| told(asked_for, value)));
    }
    if !right {
        return (came.join(", "), None);
    }
    verify(&stage, what, held.as_ref().map(|(_, held)| held), asked.as_ref());
    drop(held);
    let waited = |stage: &Stage, waiter: Option<Awaited>| {
        if let Some(mut waiter) = waiter {
            waiter.take(SOON);
            stage.assert_waited(waiter.answer.as_ref().expect("a wait is answered"));
        }
    };
    // What has just left its gate may not have come so far yet.
    let ending = || is_ending(&stage).then_some(());
    if until(if exits { SOON } else { Duration::ZERO }, ending).is_some() {
        waited(&stage, waiter);
        came.push(format!("exit{}", if over && exits { "!" } else { "" }));
        stage.assert_ended();
        return (came.join(", "), None);
    }
    let left =
        if what.is_change() { changes::outcome(&stage, what).unwrap_or("gone") } else { leave(&stage) };
    waited(&stage, waiter);
    let early = over && !exits && matches!(left, "gone" | "undone");
    came.push(left.to_owned() + if early { "!" } else { "" });
    if what.is_change() {
        match left {
            "gone" => changes::assert_late(&stage),
            outcome => changes::assert_whole(&stage, outcome),
        }
        return (came.join(", "), Some(stage));
    }
    if what == What::Close && left == "gone" {
        stage.assert_closed_in_its_time();
    }
    if let Some(process) = process.as_mut().filter(|_| what == What::Direct) {
        let _ = process.wait(SOON);
    }
    stage.assert_free();
    (came.join(", "), Some(stage))
}

/// Whether the daemon has ended; where it must have, it is waited for.
fn has_ended(stage: &mut Stage, must: bool) -> bool {
    stage.daemon.process().wait_within(if must { SOON } else { Duration::ZERO }).is_some()
}

/// While the registry, a session or the reaper is held nobody can tell what is over.
fn is_blind(gate: &str) -> bool {
    gate.starts_with("registry.") || OF_REAPER.contains(&gate)
}

/// Whether no slot is taken any more although the gate is held; where none must be, that is waited for.
fn is_gone(stage: &Stage, must: bool) -> bool {
    let free = || (used(&stage.daemon) == 0).then_some(());
    until(if must { SOON } else { Duration::ZERO }, free).is_some()
}

/// Whether a word of the table says that something happens while the gate is held.
fn is_early(word: &str) -> bool {
    word.split(" or ").all(|word| word.ends_with('!'))
}

/// The daemon has ended, or is about to.
fn is_ending(stage: &Stage) -> bool {
    let connection = Rpc::connect(stage.daemon.socket());
    let status = connection.map(|connection| connection.call("daemon/status", &json!({})));
    !matches!(status, Ok(Ok(status)) if status["state"] != "draining")
}

/// Brings the daemon to where the gate is next.
fn prepare(stage: &mut Stage, what: What, gate: &str, action: Action) -> Requester {
    let process = action == Action::Kill || gate == "connection.ended";
    let client = binary("mcpvisor").to_string_lossy().into_owned();
    match what {
        What::Open => {
            stage.gates.hold(gate);
            stage.ask("session/open", &stage.open_params(KEY, &polite()), process)
        }
        What::Close => {
            let stubborn = [client, "demo-server".to_owned(), "stubborn".to_owned()];
            let opened = stage.other.call("session/open", &stage.open_params(KEY, &stubborn));
            let mut opened = opened.expect("a session opens");
            (stage.main, stage.generation) = (main_pid(&opened), opened["generation"].take());
            stage.gates.hold(gate);
            stage.ask("session/close", &json!({"key": KEY}), process)
        }
        What::Shutdown => {
            let opened = stage.other.call("session/open", &stage.open_params(KEY, &polite()));
            opened.expect("a session opens");
            stage.gates.hold(gate);
            if gate == "shutdown.signalled" {
                send_signal(stage.daemon.pid(), Signal::TERM);
                return Requester::Signal;
            }
            stage.ask("daemon/shutdown", &json!({"wait": true}), process)
        }
        What::Direct => {
            stage.gates.hold(gate);
            let words: Vec<String> =
                ["run", "--key", KEY, "--"].map(str::to_owned).into_iter().chain(polite()).collect();
            let shim = stage.scene.command(&client).arg("--socket").arg(stage.daemon.socket()).args(words);
            Requester::Process(shim.spawn())
        }
        What::GiveUpAdd => {
            let mut requester = changes::prepare(stage, what, gate, process);
            requester.suffer(if process { Action::Kill } else { Action::Cancel });
            requester
        }
        What::Add | What::Remove | What::Restart | What::Reload => {
            changes::prepare(stage, what, gate, process)
        }
        What::Wake => waiting::wake(stage, gate, process),
        What::Queued => waiting::queue(stage, gate, process),
        What::GiveUp => {
            let mute = ["sh", "-c", "exec sleep 300"].map(str::to_owned);
            let mut requester = stage.ask("session/open", &stage.open_params(KEY, &mute), process);
            let other = &stage.other;
            eventually("a server that is starting", SOON, || {
                let list = other.call("session/list", &json!({})).expect("a list is always given");
                list["sessions"][0]["servers"][0]["pid"].is_number()
            });
            stage.gates.hold(gate);
            requester.suffer(if process { Action::Kill } else { Action::Cancel });
            requester
        }
    }
}

fn act(stage: &Stage, requester: &mut Requester, action: Action) -> Option<Awaited> {
    match action {
        Action::Cancel | Action::Kill => {
            requester.suffer(action);
            None
        }
        Action::Close => Some(Awaited::new(stage.close(KEY))),
        Action::Shutdown => {
            Some(Awaited::new(stage.other.send("daemon/shutdown", &json!({"wait": true, "now": true}))))
        }
    }
}

/// How often the gates were passed by which an action comes into the daemon.
struct Evidence {
    gate: &'static str,
    before: u64,
}

impl Evidence {
    fn before(stage: &mut Stage, action: Action) -> Self {
        let gate = match action {
            Action::Cancel => "request.read",
            Action::Close => "close.dispatched",
            Action::Shutdown => "shutdown.dispatched",
            Action::Kill => "connection.ended",
        };
        Self { gate, before: stage.gates.count(gate).expect("a daemon that is held counts") }
    }

    /// Waits until the action is in the daemon, or the daemon has ended.
    #[track_caller]
    fn wait(&self, stage: &mut Stage) {
        let Stage { gates, daemon, .. } = stage;
        eventually(&format!("one more arrival at {}", self.gate), SOON, || {
            daemon.process().has_ended() || gates.count(self.gate).is_none_or(|count| count > self.before)
        });
    }
}

/// Gates that hold the connection itself: what comes over it is read afterwards.
const OF_CONNECTION: [&str; 3] = ["connection.accepted", "request.read", "connection.ended"];

/// Gates that hold the reaper's thread, which a status asks for the processes.
const OF_REAPER: [&str; 8] = [
    "launch.ordered",
    "launch.announced",
    "reaper.stdin",
    "reaper.term",
    "reaper.kill",
    "reaper.exit",
    "reaper.empty",
    "reaper.release",
];

/// Gates at which the daemon reads no request any more.
const AFTER_READING: [&str; 6] = [
    "shutdown.farewell",
    "connection.farewell",
    "shutdown.runtime",
    "reaper.end",
    "shutdown.exit",
    "answer.write",
];

/// What must hold of the answers whatever the table says.
#[track_caller]
fn verify(stage: &Stage, what: What, held: Option<&Awaited>, asked: Option<&Awaited>) {
    let closed = |awaited: Option<&Awaited>| {
        let answer = awaited?.answer.as_ref()?.as_ref().ok()?;
        (answer["results"][0]["outcome"] == "closed").then(|| answer.clone())
    };
    let (first, second) = (if what == What::Close { closed(held) } else { None }, closed(asked));
    for answer in [&first, &second].into_iter().flatten() {
        stage.closed(Ok(answer.clone()));
    }
    if let (Some(first), Some(second)) = (&first, &second) {
        assert_eq!(first["results"][0]["generation"], second["results"][0]["generation"]);
        assert_eq!(
            first["results"][0]["servers"], second["results"][0]["servers"],
            "one end, two certificates"
        );
    }
    if let Some(Ok(answer)) = asked.and_then(|asked| asked.answer.as_ref())
        && answer.get("quarantined").is_some()
    {
        assert_eq!(answer["quarantined"], 0);
    }
}

/// Whether a session is left in the end, and closes it where one is.
#[track_caller]
fn leave(stage: &Stage) -> &'static str {
    // One that is on its way to its end goes there by itself; one that is left is ready, and so is its requester's.
    let mut left = Vec::new();
    eventually("the end of what was begun", SOON, || {
        left = stage.sessions();
        left.iter().all(|session| session["state"] == "ready")
    });
    if left.is_empty() {
        return "gone";
    }
    stage.closed(stage.close(KEY).wait(SOON));
    "stays"
}
