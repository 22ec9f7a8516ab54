//! Sessions in every state and variant.
use super::parse::{Words, words};
use mcpvisor_lifecycle::registry::{CloseOptions, Urgency};
use mcpvisor_lifecycle::server::{Failure, ServerReport};
use mcpvisor_lifecycle::session::{
    CloseReason, Session, SessionConfig, SessionEffect, SessionEvent, SessionServer,
};
use mcpvisor_lifecycle::{Moment, Place, ServerName};
use std::time::Duration;

/// A session, with what its test knows of its servers.
#[derive(Clone)]
pub(crate) struct Variant {
    pub(crate) session: Session,
    pub(crate) now: Moment,
    /// In order of their start: name, and `starting ready restarting ending ended failed stopped quarantined killing`.
    pub(crate) servers: Vec<(&'static str, &'static str)>,
    /// Those whose actors are lost.
    pub(crate) lost: Vec<&'static str>,
    words: Words,
    /// A `WantClose` was told.
    pub(crate) wished: bool,
}

pub(crate) const EVENTS: [&str; 33] = [
    "Begin",
    "Close",
    "Close(now)",
    "Close(drain 0)",
    "Close(LeaseEnded)",
    "AwaitChildren",
    "ChildrenGone",
    "Urge(Drain)",
    "Urge(Hurry)",
    "Urge(Kill)",
    "RetryKill",
    "ClientGone",
    "Drained",
    "Timeout",
    "a:Ready",
    "a:Restarting",
    "a:Failed",
    "a:Ended",
    "a:Ending",
    "a:Stopped",
    "a:Quarantined",
    "a:Lost",
    "b:Ready",
    "b:Restarting",
    "b:Failed",
    "b:Ended",
    "b:Ending",
    "b:Stopped",
    "b:Quarantined",
    "b:Lost",
    "c:Ready",
    "c:Quarantined",
    "c:Lost",
];

fn close(reason: CloseReason, now: bool, drain: Option<Duration>) -> SessionEvent {
    SessionEvent::Close { reason, options: CloseOptions { drain, now } }
}

pub(crate) fn name(text: &str) -> ServerName {
    ServerName::new(text).expect("the names of the tables have the form of a server's")
}

/// `a` and `b` are opened with; `c` is nobody, or the first that is added.
fn place(text: &str) -> Place {
    Place(match text {
        "a" => 0,
        "b" => 1,
        _ => 2,
    })
}

fn letter(server: Place) -> &'static str {
    ["a", "b", "c", "d"][server.0 as usize]
}

fn event(text: &str) -> SessionEvent {
    let urge = |urgency| SessionEvent::Urge { urgency };
    if let Some((server, report)) = text.split_once(':') {
        let server = place(server);
        let report = match report {
            "Lost" => return SessionEvent::ServerLost { server },
            "Ready" => ServerReport::Ready,
            "Restarting" => ServerReport::Restarting,
            "Failed" => ServerReport::Failed(Failure::Exited),
            "Ended" => ServerReport::Ended,
            "Ending" => ServerReport::Ending,
            "Stopped" => ServerReport::Stopped,
            "Quarantined" => ServerReport::Quarantined,
            other => panic!("the session's table names a report {other}"),
        };
        return SessionEvent::Server { server, report };
    }
    match text {
        "Begin" => SessionEvent::Begin,
        "Close" => close(CloseReason::Requested, false, None),
        "Close(now)" => close(CloseReason::Requested, true, None),
        "Close(drain 0)" => close(CloseReason::Requested, false, Some(Duration::ZERO)),
        "Close(LeaseEnded)" => close(CloseReason::LeaseEnded, false, None),
        "AwaitChildren" => SessionEvent::AwaitChildren,
        "ChildrenGone" => SessionEvent::ChildrenGone,
        "Urge(Drain)" => urge(Urgency::Drain),
        "Urge(Hurry)" => urge(Urgency::Hurry),
        "Urge(Kill)" => urge(Urgency::Kill),
        "RetryKill" => SessionEvent::RetryKill,
        "ClientGone" => SessionEvent::ClientGone,
        "Drained" => SessionEvent::Drained,
        "Timeout" => SessionEvent::Timeout,
        other => panic!("the session's table names an event {other}"),
    }
}

pub(crate) fn effect(effect: &SessionEffect) -> String {
    match effect {
        SessionEffect::StartServer { server } => format!("StartServer({})", letter(*server)),
        SessionEffect::StopServer { server, term_first: false } => format!("StopServer({})", letter(*server)),
        SessionEffect::StopServer { server, term_first: true } => {
            format!("StopServer({}, term first)", letter(*server))
        }
        SessionEffect::UrgeServer { server, urgency } => {
            format!("UrgeServer({}, {urgency:?})", letter(*server))
        }
        SessionEffect::RetryKillServer { server } => format!("RetryKillServer({})", letter(*server)),
        SessionEffect::ReapServer { server } => format!("ReapServer({})", letter(*server)),
        SessionEffect::WantClose { reason } => format!("WantClose({reason:?})"),
        SessionEffect::End { reason, .. } => format!("End({reason:?})"),
        SessionEffect::CreateServer { server, .. } => format!("CreateServer({})", letter(*server)),
        SessionEffect::PublishServer { server, replaces: None } => {
            format!("PublishServer({})", letter(*server))
        }
        SessionEffect::PublishServer { server, replaces: Some(old) } => {
            format!("PublishServer({} for {})", letter(*server), letter(*old))
        }
        SessionEffect::RetireServer { server } => format!("RetireServer({})", letter(*server)),
        SessionEffect::HoldServer { server } => format!("HoldServer({})", letter(*server)),
        SessionEffect::SettleServer { server } => format!("SettleServer({})", letter(*server)),
        SessionEffect::RestartServer { server } => format!("RestartServer({})", letter(*server)),
        SessionEffect::ForgetServer { server } => format!("ForgetServer({})", letter(*server)),
        SessionEffect::Reply { result, .. } => {
            let text = match result {
                Ok(changed) => format!("{changed:?}"),
                Err(refusal) => format!("{refusal:?}"),
            };
            format!("Reply({})", text.split(' ').next().unwrap_or_default())
        }
        SessionEffect::CloseGate
        | SessionEffect::SettleCalls
        | SessionEffect::LookAtActivity
        | SessionEffect::ClaimIdle
        | SessionEffect::ParkGate
        | SessionEffect::OpenGate
        | SessionEffect::RefuseWaiting
        | SessionEffect::ReportReady
        | SessionEffect::ReportQuarantined
        | SessionEffect::Changed(_) => format!("{effect:?}"),
    }
}

impl Variant {
    fn new(direct: bool, servers: &[(&'static str, bool)]) -> Self {
        Self::with_significant(direct, servers, "")
    }

    fn with_significant(direct: bool, servers: &[(&'static str, bool)], significant: &str) -> Self {
        let config = SessionConfig {
            servers: servers
                .iter()
                .map(|(text, required)| SessionServer {
                    name: name(text),
                    required: *required,
                    significant: *text == significant,
                })
                .collect(),
            drain: Duration::from_secs(5),
            direct,
        };
        let mode = if direct { "direct" } else { "relay" };
        let some = if servers.is_empty() { "no servers" } else { "some servers" };
        let required = servers.iter().any(|(_, required)| *required);
        let required = if required { "a required" } else { "none required" };
        Self {
            session: Session::new(config),
            now: Moment(1_000),
            servers: servers.iter().map(|(name, _)| (*name, "unstarted")).collect(),
            lost: Vec::new(),
            words: words(&[mode, some, required, "unhurried", "content", "in turn"]),
            wished: false,
        }
        .with(if significant == "b" { "b significant" } else { "b insignificant" })
    }

    pub(crate) fn status(&self, server: &str) -> Option<&'static str> {
        self.servers.iter().find(|(name, _)| *name == server).map(|(_, status)| *status)
    }

    fn is_gone(status: &str) -> bool {
        matches!(status, "unstarted" | "ended" | "failed" | "stopped")
    }

    pub(crate) fn tellable(&self) -> Vec<&'static str> {
        let left = self.servers.iter().filter(|(_, status)| !Self::is_gone(status));
        left.map(|(name, _)| *name).filter(|name| !self.lost.contains(name)).collect()
    }

    /// Everything that holds of it.
    pub(crate) fn holds(&self) -> Words {
        let mut holds = self.words.clone();
        let mut add = |text: String| holds.insert(text);
        for server in ["a", "b"] {
            let status = self.status(server).unwrap_or("unstarted");
            let gone = Self::is_gone(status);
            add(format!("{server} {status}"));
            add(format!("{server} {}", if gone { "gone" } else { "left" }));
            if gone || status == "quarantined" {
                add(format!("{server} settled"));
            }
            if self.tellable().contains(&server) {
                add(format!("{server} tellable"));
            }
        }
        let all_gone = self.servers.iter().all(|(_, status)| Self::is_gone(status));
        let settled =
            self.servers.iter().all(|(_, status)| Self::is_gone(status) || *status == "quarantined");
        add(if all_gone { "all gone" } else { "some left" }.to_owned());
        add(if settled { "all settled" } else { "some unsettled" }.to_owned());
        holds
    }

    pub(crate) fn step(&self, text: &str) -> (Self, Vec<SessionEffect>) {
        let mut next = self.clone();
        next.now = match (text, self.session.next_timeout()) {
            ("Timeout", Some(until)) => until,
            _ => self.now.after(Duration::from_millis(1)),
        };
        let effects = next.session.step(next.now, event(text));
        next.wished |= effects.iter().any(|effect| matches!(effect, SessionEffect::WantClose { .. }));
        (next, effects)
    }

    fn with(mut self, word: &str) -> Self {
        self.words.insert(word.to_owned());
        self
    }

    /// Takes events, and keeps account of what they mean for the servers.
    fn then(&self, events: &[&'static str]) -> Self {
        let mut at = self.clone();
        for text in events {
            at = at.step(text).0;
            at.account(text);
        }
        at
    }

    fn account(&mut self, text: &'static str) {
        match text {
            "Begin" => self.servers.iter_mut().for_each(|(_, status)| *status = "starting"),
            "Close(now)" | "Urge(Hurry)" | "Urge(Kill)" => {
                self.words.remove("unhurried");
                if text == "Urge(Kill)" {
                    self.words.remove("in turn");
                    self.words.insert("to kill".to_owned());
                }
            }
            "AwaitChildren" => {
                self.words.remove("relay");
                self.words.remove("direct");
                self.words.insert("parent".to_owned());
            }
            "RetryKill" => self
                .servers
                .iter_mut()
                .filter(|(_, status)| *status == "quarantined")
                .for_each(|(_, status)| *status = "killing"),
            _ => {}
        }
        let Some((server, report)) = text.split_once(':') else { return };
        let status = match report {
            "Ready" => "ready",
            "Restarting" => "restarting",
            "Failed" => "failed",
            "Ended" => "ended",
            "Ending" => "ending",
            "Stopped" => "stopped",
            "Quarantined" => "quarantined",
            _ => "killing",
        };
        if report == "Lost" {
            self.lost.push(server);
        }
        if let Some(entry) = self.servers.iter_mut().find(|(name, _)| *name == server) {
            entry.1 = status;
        }
        if status == "failed" && server == "a" || self.wished {
            self.words.remove("content");
        }
    }
}

/// Every state in every variant.
pub(crate) fn variants() -> Vec<Variant> {
    let none = Variant::new(false, &[]);
    let pair = Variant::new(false, &[("a", true), ("b", false)]);
    let free = Variant::new(false, &[("a", false), ("b", false)]);
    let direct = Variant::new(true, &[("a", true)]);
    let significant = Variant::with_significant(false, &[("a", true), ("b", false)], "b");
    let mut all = vec![none.clone(), pair.clone(), free.clone(), direct.clone()];
    all.extend([none.then(&["Begin"]), none.then(&["Begin", "Close"])]);
    before_close(&pair.then(&["Begin"]), &mut all);
    before_close(&significant.then(&["Begin"]), &mut all);
    for ways in [vec![], vec!["b:Ready"], vec!["b:Failed"]] {
        let starting = free.then(&["Begin"]).then(&ways);
        all.push(starting.clone());
        all.push(starting.then(&["a:Ready"]));
        all.push(starting.then(&["a:Failed"]));
    }
    all.push(free.then(&["Begin", "a:Ready", "b:Ready", "b:Ended"]));
    all.push(free.then(&["Begin", "a:Failed", "b:Failed"]));
    direct_variants(&direct.then(&["Begin"]), &mut all);
    let live = pair.then(&["Begin", "a:Ready", "b:Ready"]);
    for ways in [vec![], vec!["b:Failed"], vec!["a:Failed", "b:Failed"], vec!["b:Lost"], vec!["b:Restarting"]]
    {
        all.push(live.then(&ways).then(&["Close"]));
    }
    for way in ["Close(drain 0)", "Close(now)"] {
        stopping(&live.then(&[way]), &mut all);
    }
    all.push(live.then(&["Close(drain 0)", "a:Stopped", "b:Stopped"]));
    all.push(live.then(&["a:Failed", "b:Failed", "Close(now)"]));
    parents(&pair.then(&["Begin", "AwaitChildren"]), &mut all);
    all
}

/// Sessions that await those below them.
fn parents(starting: &Variant, all: &mut Vec<Variant>) {
    let live = starting.then(&["a:Ready", "b:Ready"]);
    all.extend([starting.clone(), live.clone(), starting.then(&["Close"])]);
    for ways in [vec![], vec!["a:Failed", "b:Failed"], vec!["b:Lost"]] {
        let holding = live.then(&ways).then(&["Close"]);
        let held = holding.then(&["Drained"]);
        all.push(held.then(&["Urge(Kill)"]));
        all.extend([live.then(&ways).then(&["Close(now)"]), holding, held]);
    }
}

fn before_close(starting: &Variant, all: &mut Vec<Variant>) {
    for ways in [
        vec![],
        vec!["b:Ready"],
        vec!["b:Failed"],
        vec!["b:Lost"],
        vec!["a:Failed"],
        vec!["a:Ended"],
        vec!["a:Failed", "b:Failed"],
        vec!["a:Quarantined", "b:Failed"],
        vec!["a:Lost"],
    ] {
        all.push(starting.then(&ways));
    }
    for ways in [
        vec![],
        vec!["b:Ready"],
        vec!["b:Failed"],
        vec!["b:Ready", "a:Restarting"],
        vec!["b:Ready", "a:Failed"],
        vec!["b:Ready", "b:Lost"],
        vec!["b:Failed", "a:Failed"],
        vec!["b:Failed", "a:Quarantined"],
    ] {
        all.push(starting.then(&["a:Ready"]).then(&ways));
    }
}

fn direct_variants(starting: &Variant, all: &mut Vec<Variant>) {
    let live = starting.then(&["a:Ready"]);
    let ended = live.then(&["a:Ending"]).with("stream ended");
    let gone = ended.then(&["ClientGone"]).without_word("stream ended").with("client gone");
    let polite = ended.then(&["Close(LeaseEnded)"]).with("polite");
    all.extend([starting.clone(), live.clone(), ended, gone]);
    all.extend([polite, live.then(&["Close"]), starting.then(&["Close"])]);
    all.push(live.then(&["Close", "a:Stopped"]));
}

fn stopping(stopping: &Variant, all: &mut Vec<Variant>) {
    for ways in [
        vec![],
        vec!["a:Stopped"],
        vec!["b:Failed"],
        vec!["a:Quarantined"],
        vec!["b:Quarantined"],
        vec!["a:Lost"],
        vec!["a:Quarantined", "a:Lost"],
        vec!["a:Quarantined", "b:Lost"],
        // Quarantined.
        vec!["a:Quarantined", "b:Stopped"],
        vec!["a:Stopped", "b:Quarantined"],
        vec!["a:Quarantined", "b:Quarantined"],
        vec!["a:Quarantined", "b:Quarantined", "RetryKill"],
        vec!["a:Quarantined", "b:Quarantined", "RetryKill", "a:Quarantined"],
        vec!["a:Quarantined", "b:Quarantined", "RetryKill", "b:Quarantined"],
        vec!["a:Quarantined", "b:Quarantined", "RetryKill", "b:Stopped"],
        vec!["a:Quarantined", "b:Stopped", "RetryKill"],
        vec!["a:Lost", "a:Quarantined", "b:Stopped"],
        vec!["a:Lost", "a:Quarantined", "b:Quarantined"],
    ] {
        all.push(stopping.then(&ways));
    }
}

impl Variant {
    fn without_word(mut self, word: &str) -> Self {
        self.words.remove(word);
        self
    }
}
