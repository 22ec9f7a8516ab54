//! Servers in every state and variant.
use super::parse::Words;
use mcpvisor_lifecycle::Moment;
use mcpvisor_lifecycle::registry::Urgency;
use mcpvisor_lifecycle::server::{Health, Mode, Restart, Server, ServerConfig, ServerEffect, ServerEvent};
use std::sync::LazyLock;
use std::time::Duration;

/// A server with the words that hold of it.
#[derive(Clone)]
pub(crate) struct Variant {
    pub(crate) server: Server,
    pub(crate) now: Moment,
    pub(crate) holds: Words,
}

/// The names that the tables use.
pub(crate) const EVENTS: [&str; 28] = [
    "Start",
    "Stop",
    "Stop(term first)",
    "Urge(Drain)",
    "Urge(Hurry)",
    "Urge(Kill)",
    "Restart",
    "RetryKill",
    "Launched",
    "LaunchFailed",
    "OtherEra",
    "HandshakeDone",
    "HandshakeFailed",
    "MainExited(0)",
    "MainExited(1)",
    "MainExited(0, hung up)",
    "MainExited(1, hung up)",
    "OutputEnded",
    "ClientCame",
    "GivenUp",
    "InputEnded",
    "ClientGone",
    "Looked(silent)",
    "Looked(heard)",
    "Looked(busy)",
    "ScopeEmpty",
    "CommandEnded",
    "Timeout",
];

pub(crate) fn event(server: &Server, name: &str) -> ServerEvent {
    let incarnation = server.incarnation().unwrap_or(mcpvisor_lifecycle::Incarnation(1));
    match name {
        "Start" => ServerEvent::Start,
        "Stop" => ServerEvent::Stop { term_first: false },
        "Stop(term first)" => ServerEvent::Stop { term_first: true },
        "Urge(Drain)" => ServerEvent::Urge { urgency: Urgency::Drain },
        "Urge(Hurry)" => ServerEvent::Urge { urgency: Urgency::Hurry },
        "Urge(Kill)" => ServerEvent::Urge { urgency: Urgency::Kill },
        "Restart" => ServerEvent::Restart,
        "RetryKill" => ServerEvent::RetryKill,
        "Launched" => ServerEvent::Launched { incarnation },
        "LaunchFailed" => ServerEvent::LaunchFailed { incarnation },
        "OtherEra" => ServerEvent::OtherEra { incarnation },
        "HandshakeDone" => ServerEvent::HandshakeDone { incarnation },
        "HandshakeFailed" => ServerEvent::HandshakeFailed { incarnation },
        "MainExited(0)" => ServerEvent::MainExited { incarnation, normal: true, hung_up: false },
        "MainExited(1)" => ServerEvent::MainExited { incarnation, normal: false, hung_up: false },
        "MainExited(0, hung up)" => ServerEvent::MainExited { incarnation, normal: true, hung_up: true },
        "MainExited(1, hung up)" => ServerEvent::MainExited { incarnation, normal: false, hung_up: true },
        "OutputEnded" => ServerEvent::OutputEnded { incarnation },
        "ClientCame" => ServerEvent::ClientCame { incarnation },
        "GivenUp" => ServerEvent::GivenUp { incarnation },
        "InputEnded" => ServerEvent::InputEnded { incarnation },
        "ClientGone" => ServerEvent::ClientGone,
        "Looked(silent)" => ServerEvent::Looked { incarnation, heard: false, busy: false },
        "Looked(heard)" => ServerEvent::Looked { incarnation, heard: true, busy: false },
        "Looked(busy)" => ServerEvent::Looked { incarnation, heard: false, busy: true },
        "ScopeEmpty" => ServerEvent::ScopeEmpty { incarnation },
        "CommandEnded" => ServerEvent::CommandEnded { incarnation },
        "Timeout" => ServerEvent::Timeout,
        other => panic!("the server's table names an event {other}"),
    }
}

pub(crate) fn effect(effect: &ServerEffect) -> String {
    match effect {
        ServerEffect::Report(report) => format!("Report({report:?})"),
        other => {
            let text = format!("{other:?}");
            text.split(' ').next().unwrap_or_default().to_owned()
        }
    }
}

impl Variant {
    /// Gives it an event, at the moment at which the driver would.
    pub(crate) fn step(&self, name: &str) -> (Self, Vec<String>) {
        let mut next = self.clone();
        if name == "Timeout" {
            next.now = self.server.next_timeout().unwrap_or(self.now);
        } else {
            next.now = next.now.after(Duration::from_millis(1));
        }
        let effects = next.server.step(next.now, event(&self.server, name));
        (next, effects.iter().map(effect).collect())
    }

    fn then(&self, names: &[&str]) -> Self {
        names.iter().fold(self.clone(), |variant, name| variant.step(name).0)
    }

    fn with(mut self, words: &[&str]) -> Self {
        self.holds.extend(words.iter().map(|word| (*word).to_owned()));
        self
    }

    fn without(mut self, words: &[&str]) -> Self {
        self.holds.retain(|word| !words.contains(&word.as_str()));
        self
    }
}

pub(crate) fn config(mode: Mode, restart: Restart, restart_intensity: u32) -> ServerConfig {
    ServerConfig {
        mode,
        start: Duration::from_secs(30),
        stdin_grace: Duration::from_secs(2),
        term_grace: Duration::from_secs(3),
        stop_command: None,
        kill_wait: Duration::from_secs(5),
        restart,
        restart_intensity,
        restart_period: Duration::from_secs(600),
        backoff: Duration::from_millis(200),
        longest_backoff: Duration::from_secs(10),
        health: None,
        seed: 7,
    }
}

/// The budget of the stop command, where there is one.
pub(crate) const COMMAND: Duration = Duration::from_secs(4);

/// Every state in every variant.
pub(crate) fn variants() -> &'static [Variant] {
    static ALL: LazyLock<Vec<Variant>> = LazyLock::new(all);
    &ALL
}

fn all() -> Vec<Variant> {
    let mut all = Vec::new();
    for (mode, mode_word) in
        [(Mode::Shared, "shared"), (Mode::Exclusive, "exclusive"), (Mode::Direct, "direct")]
    {
        for restart in [Restart::Permanent, Restart::Transient, Restart::Temporary, Restart::Followed] {
            for intensity in 0..=2 {
                let again = match restart {
                    _ if mode == Mode::Direct => "never again",
                    Restart::Permanent => "always",
                    Restart::Transient => "unless normal",
                    Restart::Temporary => "never again",
                    Restart::Followed => "followed",
                };
                let client = if mode == Mode::Direct { "direct" } else { "not direct" };
                for (stop_command, word) in [(None, "no command"), (Some(COMMAND), "a command")] {
                    let server =
                        Server::new(ServerConfig { stop_command, ..config(mode, restart, intensity) });
                    let idle = Variant { server, now: Moment(1_000), holds: Words::new() };
                    lives(&idle.with(&[mode_word, client, again, "this era", word]), intensity, &mut all);
                }
                if mode == Mode::Shared {
                    let mut watched = config(mode, restart, intensity);
                    watched.health = Some(HEALTH);
                    let idle =
                        Variant { server: Server::new(watched), now: Moment(1_000), holds: Words::new() };
                    let idle = idle.with(&[mode_word, client, again, "this era", "no command"]);
                    healths(&idle, intensity, &mut all);
                }
            }
        }
    }
    all
}

/// Two questions without a sign of life are the end.
const HEALTH: Health =
    Health { interval: Duration::from_secs(60), timeout: Duration::from_secs(5), misses: 2 };

/// A server whose health is looked after, with all that can be known of it.
fn healths(idle: &Variant, intensity: u32, all: &mut Vec<Variant>) {
    let left = if intensity > 0 { "restart left" } else { "limit reached" };
    let running = idle.then(&["Start", "Launched", "HandshakeDone"]).with(&["ready before", left, "watched"]);
    let asked = running.then(&["Timeout"]);
    let last = asked.then(&["Timeout"]);
    for (variant, word) in
        [(&running, "not asked"), (&asked, "asked before"), (&last, "asked for the last time")]
    {
        let variant = variant.clone().with(&[word]);
        all.push(variant.then(&["Looked(heard)"]).with(&["alive"]));
        all.push(variant.then(&["Looked(busy)"]).with(&["alive"]));
        all.push(variant.then(&["Looked(busy)", "Looked(silent)"]).with(&["silent"]));
        all.push(variant.with(&["silent"]));
    }
    rungs(&last.then(&["Timeout"]).with(&["unplanned", "sick", "abnormal", "answered"]), all);
    // Life begins anew with any sign of it.
    let again = last.then(&["Looked(heard)", "Timeout", "Timeout"]);
    all.push(again.with(&["asked before", "silent"]));
}

/// The first launch and, where there is one, the second.
fn lives(idle: &Variant, intensity: u32, all: &mut Vec<Variant>) {
    all.push(idle.clone());
    all.push(idle.then(&["Stop"]));
    let left = |left: bool| if left { "restart left" } else { "limit reached" };
    let first = idle.then(&["Start"]).with(&["never ready", left(intensity > 0)]);
    launching(&first, all);
    let running = first.then(&["Launched", "HandshakeDone"]);
    let backoff = running.then(&["MainExited(1)", "ScopeEmpty", "CommandEnded"]);
    if backoff.server.fine_state() == "backoff" {
        let backoff = backoff
            .without(&["never ready", "restart left", "limit reached"])
            .with(&["ready before", left(intensity > 1)]);
        launching(&backoff.then(&["Timeout"]), all);
        all.push(backoff);
    }
}

/// A launch, and all that can come of it.
fn launching(launching: &Variant, all: &mut Vec<Variant>) {
    for (kept, word) in [
        (vec![], "nothing kept"),
        (vec!["MainExited(1)"], "exit kept"),
        (vec!["OutputEnded"], "output's end kept"),
        (vec!["InputEnded"], "input's end kept"),
        (vec!["ClientGone"], "client's end kept"),
        (vec!["MainExited(1)", "ScopeEmpty"], "all kept"),
        (vec!["MainExited(1, hung up)"], "both ends kept"),
        (vec!["InputEnded", "MainExited(1)"], "both ends kept"),
        (vec!["ClientGone", "MainExited(1)"], "both ends kept"),
        (vec!["MainExited(1, hung up)", "ScopeEmpty"], "all and client's end kept"),
        (vec!["ClientGone", "MainExited(1)", "ScopeEmpty"], "all and client's end kept"),
    ] {
        let direct = launching.holds.contains("direct");
        let of_direct = !matches!(word, "nothing kept" | "exit kept" | "output's end kept" | "all kept");
        // A direct server's output is not ours to read.
        let of_all = matches!(word, "nothing kept" | "exit kept" | "all kept");
        if of_all || of_direct == direct {
            all.push(launching.then(&kept).with(&[word]));
        }
    }
    for (event, intent) in [("Stop", "to stop"), ("Timeout", "unplanned"), ("Restart", "to restart")] {
        if event == "Restart" && launching.holds.contains("direct") {
            continue;
        }
        let aborting = launching.then(&[event]).with(&[intent, "unanswered"]);
        let empty = aborting.then(&["ScopeEmpty"]).with(&["empty"]);
        let aborting = aborting.with(&["not empty"]);
        all.extend([aborting.then(&["Timeout"]), empty.then(&["Timeout"])]);
        let killed = aborting.then(&["Launched"]).without(&["unanswered", "not empty"]).with(&["answered"]);
        let killed = killed.with(&["start timeout", "abnormal"]);
        if killed.server.fine_state() == "command" {
            commands(&killed.with(&["runs", "not empty"]), all);
            let empty = empty.then(&["Launched"]).without(&["unanswered"]).with(&["answered", "runs"]);
            commands(&empty.with(&["start timeout", "abnormal"]), all);
        } else {
            rungs(&killed.with(&["done"]), all);
        }
        let stopped_late = launching.then(&["Timeout", "Stop"]).with(&["to stop", "unanswered", "not empty"]);
        all.extend([aborting, empty, stopped_late]);
    }
    let mut running = launching.then(&["Launched"]);
    if running.server.fine_state() == "handshaking" {
        // What a stop command changes of an end it changes of this one too.
        if running.holds.contains("no command") {
            eras(&running, all);
        }
        all.push(running.clone());
        ladders(&running, all);
        for (event, cause) in [("HandshakeFailed", "handshake failed"), ("Timeout", "start timeout")] {
            rungs(&running.then(&[event]).with(&["unplanned", cause, "abnormal", "answered"]), all);
        }
        running = running.then(&["HandshakeDone"]);
    }
    let running = running.without(&["never ready"]).with(&["ready before"]);
    all.push(running.clone());
    let fresh = if running.holds.contains("a command") { "unrun" } else { "done" };
    ladders(&running, all);
    if running.holds.contains("exclusive") {
        let came = running
            .then(&["ClientCame"])
            .without(&["always", "unless normal", "followed"])
            .with(&["never again"]);
        all.push(came.clone());
        ladders(&came, all);
        let stdin = came.then(&["InputEnded"]).with(&["by client", "answered"]);
        all.push(stdin.clone().with(&[fresh]));
        rungs(&stdin.then(&["Timeout"]), all);
    }
    if running.holds.contains("followed") {
        let given_up = running.then(&["GivenUp"]).without(&["followed"]).with(&["never again"]);
        all.push(given_up.clone());
        ladders(&given_up, all);
    }
    if running.holds.contains("direct") {
        let client = ["by client", "answered"];
        let stdin = running.then(&["InputEnded"]).with(&client);
        let term = running.then(&["ClientGone"]).with(&client);
        all.push(stdin.clone().with(&[fresh]));
        for (from, to) in [(&stdin, "Timeout"), (&stdin, "MainExited(0)"), (&stdin, "Stop(term first)")] {
            let ladder = from.then(&[to]);
            let stopped = to == "Stop(term first)";
            rungs(&if stopped { ladder.without(&["by client"]).with(&["to stop"]) } else { ladder }, all);
        }
        all.push(stdin.then(&["Stop"]).without(&["by client"]).with(&["to stop", fresh]));
        rungs(&term, all);
        rungs(&running.then(&["MainExited(1, hung up)"]).with(&client), all);
    }
}

/// A handshake for which another era may do, and what comes of it.
fn eras(handshaking: &Variant, all: &mut Vec<Variant>) {
    let other =
        handshaking.then(&["OtherEra"]).without(&["this era"]).with(&["another era may do", "in time"]);
    all.push(other.clone());
    let ladder = ["unplanned", "answered", "abnormal", "done"];
    for (event, cause) in [("HandshakeFailed", "handshake failed"), ("MainExited(1)", "exited")] {
        let ended = other.then(&[event]).with(&ladder).with(&[cause]);
        let next = ended.then(&["Timeout"]);
        for rung in [ended.clone(), next.clone(), next.then(&["Timeout"])] {
            let mut late = rung.clone().without(&["in time"]).with(&["too late"]);
            late.now = late.now.after(Duration::from_secs(30));
            all.extend([rung, late]);
        }
        let stopped = other.then(&[event, "Stop"]).with(&["to stop", "answered"]);
        rungs(&stopped, all);
    }
    all.push(other.then(&["OutputEnded"]).with(&["unplanned", "answered", "done"]));
    // The time of the start is up: there is none left for another one.
    let slow = other.then(&["Timeout"]).without(&["another era may do", "in time"]).with(&["this era"]);
    rungs(&slow.with(&ladder).with(&["start timeout"]), all);
    // It is asked once more, and no more.
    let again = other.then(&["HandshakeFailed", "ScopeEmpty", "Launched", "OtherEra"]);
    let again = again.without(&["another era may do", "in time"]).with(&["this era"]);
    all.push(again.clone());
    rungs(&again.then(&["HandshakeFailed"]).with(&ladder).with(&["handshake failed"]), all);
}

/// The ladders that begin in a state with a process.
fn ladders(from: &Variant, all: &mut Vec<Variant>) {
    let fresh = if from.holds.contains("a command") { "unrun" } else { "done" };
    let stop = from.then(&["Stop"]).with(&["to stop", "answered"]);
    all.push(stop.clone().with(&[fresh]));
    rungs(&stop.then(&["Stop(term first)"]), all);
    if from.holds.contains("not direct") {
        let restart = from.then(&["Restart"]).with(&["to restart", "answered"]);
        all.push(restart.clone().with(&[fresh]));
        rungs(&restart.then(&["Timeout"]), all);
        rungs(&restart.then(&["MainExited(0)"]), all);
        rungs(&restart.then(&["Stop(term first)"]).without(&["to restart"]).with(&["to stop"]), all);
    }
    let exits = [("MainExited(0)", vec!["exited 0"]), ("MainExited(1)", vec!["exited", "abnormal"])];
    let settling = from.then(&["OutputEnded"]).with(&["unplanned", "answered"]);
    all.push(settling.clone().with(&[fresh]));
    rungs(&settling.then(&["Timeout"]).with(&["output ended", "abnormal"]), all);
    rungs(&settling.then(&["Stop(term first)"]).without(&["unplanned"]).with(&["to stop"]), all);
    for (exit, cause) in exits {
        let unplanned = from.then(&[exit]).with(&["unplanned", "answered"]).with(&cause);
        rungs(&unplanned, all);
        rungs(&settling.then(&[exit]).with(&cause), all);
        rungs(&unplanned.then(&["Stop"]).without(&["unplanned"]).with(&["to stop"]), all);
    }
}

/// A ladder from the rung where it is (SIGTERM or the kill) to the last, and what comes of it.
fn rungs(from: &Variant, all: &mut Vec<Variant>) {
    if from.holds.contains("a command") && !from.holds.contains("done") {
        let from = from.clone().with(&["unrun"]);
        all.push(from.clone());
        let runs = from.without(&["unrun"]).with(&["runs", "unkilled"]);
        commands(&runs.then(&["Timeout"]).with(&["not empty"]), all);
        commands(&runs.then(&["ScopeEmpty"]).with(&["empty"]), all);
        return;
    }
    let from = from.clone().with(&["done"]);
    // What is started again is another launch, of which other words hold.
    if !from.holds.contains("to restart") {
        all.push(from.then(&["ScopeEmpty"]));
    }
    let next = from.then(&["Timeout"]);
    all.push(next.then(&["Timeout"]));
    all.push(next);
    all.push(from);
}

/// A ladder whose stop command runs, to the last rung, and what comes of it.
fn commands(from: &Variant, all: &mut Vec<Variant>) {
    all.push(from.clone());
    let ended = from.then(&["CommandEnded"]).without(&["runs"]).with(&["done"]);
    if from.holds.contains("empty") {
        if !from.holds.contains("to restart") {
            all.push(ended);
        }
    } else {
        rungs(&ended.without(&["not empty"]), all);
        all.push(from.then(&["ScopeEmpty"]).without(&["not empty"]).with(&["empty"]));
    }
    let kill = from.then(&["Timeout"]);
    for rung in [kill.clone(), kill.then(&["Timeout"])] {
        all.push(rung.clone());
        if from.holds.contains("not empty") {
            all.push(rung.then(&["ScopeEmpty"]).without(&["not empty"]).with(&["empty"]));
            all.push(rung.then(&["CommandEnded"]).without(&["runs", "not empty"]).with(&["done"]));
        }
    }
}
