//! Random conversations against a small model (G11, G42).
use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

#[derive(Debug, Clone)]
enum Step {
    /// The client asks: which id, what of, with a progress token.
    Ask(usize, usize, bool),
    Cancel(usize),
    /// The oldest or newest thing that a server was asked is answered.
    Answer {
        server: usize,
        newest: bool,
        error: bool,
    },
    Progress(usize),
    ServerAsks(usize, usize),
    ClientAnswers(usize),
    Tell(usize),
    Dies(usize),
    RunsAgain(usize),
    Errands,
    Close,
    Settle,
    SaidAll,
    Lost,
}

const IDS: [&str; 6] = ["1", "\"1\"", "1.0", "1e0", "\"a b\"", "-3"];
const ASKED: [&str; 6] = [
    r#""method":"tools/call","params":{"name":"x","_meta":{}}"#,
    r#""method":"tools/call","params":{"name":"b__both","_meta":{}}"#,
    r#""method":"tools/list","params":{"_meta":{}}"#,
    r#""method":"resources/read","params":{"uri":"file:///y","_meta":{}}"#,
    r#""method":"resources/subscribe","params":{"uri":"file:///x","_meta":{}}"#,
    r#""method":"ping","params":{"_meta":{}}"#,
];

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..IDS.len(), 0..ASKED.len(), any::<bool>()).prop_map(|(id, what, progress)| Step::Ask(id, what, progress)),
        3 => (0..IDS.len()).prop_map(Step::Cancel),
        8 => (0..2_usize, any::<bool>(), any::<bool>()).prop_map(|(server, newest, error)| Step::Answer { server, newest, error }),
        2 => (0..2_usize).prop_map(Step::Progress),
        2 => (0..2_usize, 0..IDS.len()).prop_map(|(server, id)| Step::ServerAsks(server, id)),
        2 => (0..4_usize).prop_map(Step::ClientAnswers),
        1 => (0..2_usize).prop_map(Step::Tell),
        2 => (0..2_usize).prop_map(Step::Dies),
        2 => (0..2_usize).prop_map(Step::RunsAgain),
        3 => Just(Step::Errands),
        1 => Just(Step::Close),
        1 => Just(Step::Settle),
        1 => Just(Step::SaidAll),
        1 => Just(Step::Lost),
    ]
}

/// What is expected of the endpoint, kept beside it.
struct Model {
    world: World,
    /// Ids that wait for an answer.
    open: BTreeSet<&'static str>,
    answered: usize,
    cancelled: usize,
    asked: usize,
    /// What servers wait for: the server, its id, the id that the client knows.
    theirs: Vec<(usize, &'static str, String)>,
    settled: bool,
    said_all: bool,
    lost: bool,
}

impl Model {
    fn new(slow: bool) -> Self {
        let mut servers: Vec<Server> = ["a", "b"]
            .iter()
            .map(|name| Server::new(name, EraChoice::Legacy, legacy("2025-11-25", &everything())))
            .collect();
        for (server, own) in servers.iter_mut().zip(["x", "y"]) {
            server.has(ListKind::Tools, &["both", own]);
            server.has(ListKind::Resources, &[&format!("file:///{own}")]);
        }
        let mut world = World::with(servers, Prefix::OnConflict).begun(&json!({"roots": {}, "sampling": {}}));
        world.slow = slow;
        Self {
            world,
            open: BTreeSet::new(),
            answered: 0,
            cancelled: 0,
            asked: 0,
            theirs: Vec::new(),
            settled: false,
            said_all: false,
            lost: false,
        }
    }

    /// Every line that the client hears: an answer is that of a call that waits, with its very id.
    fn hear(&mut self, lines: Vec<String>) {
        assert!(lines.is_empty() || !self.lost, "a lost client is told nothing: {lines:?}");
        for line in lines {
            let message = json(&line);
            if message.get("method").is_some() {
                if message["method"] == "notifications/cancelled" {
                    let known = message["params"]["requestId"].to_string();
                    let at = self.theirs.iter().position(|(_, _, theirs)| *theirs == known);
                    self.theirs.remove(at.expect("only what was asked is given up"));
                }
                continue;
            }
            #[derive(Deserialize)]
            struct Raw<'a> {
                #[serde(borrow)]
                id: &'a RawValue,
            }
            let raw: Raw<'_> = serde_json::from_str(&line).unwrap();
            assert!(self.open.remove(raw.id.get()), "{line} answers nothing that waits");
            self.answered += 1;
        }
    }

    fn play(&mut self, step: &Step) {
        match *step {
            Step::Ask(id, what, progress) => {
                if self.lost || self.said_all {
                    return;
                }
                let id = IDS[id];
                let token = if progress { format!("{{\"progressToken\":{id}}}") } else { "{}".to_owned() };
                let line = format!(r#"{{"jsonrpc":"2.0","id":{id},{}}}"#, ASKED[what].replace("{}", &token));
                let fresh = self.open.insert(id);
                self.asked += 1;
                let heard = self.world.client(&line);
                if !fresh {
                    // A second one with an id that waits: refused, and the first waits on; a ping is answered.
                    self.answered += 1;
                    assert_eq!(heard.len(), 1, "{heard:?}");
                    return;
                }
                self.hear(heard);
            }
            Step::Cancel(id) => {
                if self.lost || self.said_all {
                    return;
                }
                let id = IDS[id];
                self.cancelled += usize::from(self.open.remove(id));
                let heard = self.world.client(&format!(
                    r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#
                ));
                assert!(heard.is_empty(), "{heard:?}");
            }
            Step::Answer { server, newest, error } => {
                let mut asked: Vec<String> = self.asked_of(server);
                let Some(id) = (if newest { asked.pop() } else { asked.into_iter().next() }) else { return };
                let outcome =
                    if error { r#""error":{"code":-1,"message":"m"}"# } else { r#""result":{"n":1.50}"# };
                let heard = self.world.server(server, &format!(r#"{{"jsonrpc":"2.0","id":{id},{outcome}}}"#));
                self.forget(server, &id);
                self.hear(heard);
            }
            Step::Progress(server) => {
                let Some(id) = self.asked_of(server).pop() else { return };
                let heard = self.world.server(
                    server,
                    &format!(r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{id},"progress":1}}}}"#),
                );
                for line in &heard {
                    let known = json(line)["params"]["progressToken"].clone();
                    assert!(self.open.iter().any(|id| json(id) == known), "{line} is of no call that waits");
                }
                self.hear(heard);
            }
            Step::ServerAsks(server, id) => {
                if !self.runs(server)
                    || self.theirs.iter().any(|(at, known, _)| (*at, *known) == (server, IDS[id]))
                {
                    return;
                }
                let before = self.world.servers[server].wrote.len();
                let heard = self.world.server(
                    server,
                    &format!(r#"{{"jsonrpc":"2.0","id":{},"method":"roots/list"}}"#, IDS[id]),
                );
                match heard.first() {
                    Some(line) => self.theirs.push((server, IDS[id], json(line)["id"].to_string())),
                    None => {
                        assert!(self.lost || self.settled || self.said_all);
                        let wrote = &self.world.servers[server].wrote[before..];
                        assert!(only(wrote).contains(&format!("\"id\":{},\"error\"", IDS[id])), "{wrote:?}");
                    }
                }
                self.hear(heard);
            }
            Step::ClientAnswers(at) => {
                if self.lost || self.said_all || at >= self.theirs.len() {
                    return;
                }
                let (server, id, theirs) = self.theirs.remove(at);
                let before = self.world.servers[server].wrote.len();
                let heard = self.world.client(&format!(r#"{{"jsonrpc":"2.0","id":{theirs},"result":{{}}}}"#));
                assert!(heard.is_empty());
                let wrote = &self.world.servers[server].wrote[before..];
                assert_eq!(only(wrote), format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#));
            }
            Step::Tell(server) => {
                if self.runs(server) {
                    let heard =
                        self.world.server(server, r#"{"jsonrpc":"2.0","method":"notifications/message"}"#);
                    assert_eq!(heard.len(), usize::from(!self.lost));
                }
            }
            Step::Dies(server) => {
                if self.runs(server) {
                    let heard = self.world.server_dies(server);
                    self.world.servers[server].wrote.clear();
                    self.hear(heard);
                    assert!(self.theirs.iter().all(|(at, ..)| *at != server));
                }
            }
            Step::RunsAgain(server) => {
                if !self.runs(server) {
                    let heard = self.world.server_runs_again(server);
                    self.hear(heard);
                }
            }
            Step::Errands => {
                let heard = self.world.errands();
                self.hear(heard);
            }
            Step::Close => self.world.closed = true,
            Step::Settle => self.settle(),
            Step::SaidAll => {
                if !self.said_all && !self.lost {
                    self.said_all = true;
                    let heard = self.world.said_all();
                    self.theirs.clear();
                    self.hear(heard);
                }
            }
            Step::Lost => self.lose(),
        }
    }

    fn settle(&mut self) {
        self.world.closed = true;
        self.settled = true;
        let heard = self.world.settle();
        self.theirs.clear();
        self.hear(heard);
        for (call, _) in std::mem::take(&mut self.world.waiting) {
            let ended = self.world.endpoint.refused(call, Because::Settled);
            self.world.end(ended);
        }
        let heard = self.world.heard();
        self.hear(heard);
    }

    fn lose(&mut self) {
        if self.lost {
            return;
        }
        let count = self.world.lost();
        assert_eq!(count, self.open.len(), "each call that waits has a permit");
        self.cancelled += count;
        self.open.clear();
        self.theirs.clear();
        self.lost = true;
    }

    fn runs(&self, server: usize) -> bool {
        self.world.endpoint.faces()[server].negotiated.is_some()
    }

    /// The ids of what a server was asked and has not answered, in order; those that were cancelled among them.
    fn asked_of(&self, server: usize) -> Vec<String> {
        let is_request = |line: &String| {
            let message: Value = serde_json::from_str(line).ok()?;
            (message.get("method").is_some() && message.get("id").is_some())
                .then(|| message["id"].to_string())
        };
        self.world.servers[server].wrote.iter().filter_map(is_request).collect()
    }

    fn forget(&mut self, server: usize, id: &str) {
        self.world.servers[server].wrote.retain(|line| !line.contains(&format!("\"id\":{id},\"method\"")));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    /// Each request has exactly one answer, with its very id, or was given up by its client; permits are neither lost nor doubled;
    /// nothing is said to a client that is lost.
    #[test]
    fn g11_g42_random_conversations(steps in prop::collection::vec(step(), 0..60), slow in any::<bool>(), ends_lost in any::<bool>()) {
        let mut model = Model::new(slow);
        for step in &steps {
            model.play(step);
            let (admitted, finished, cancelled) = model.world.permits();
            prop_assert_eq!(admitted - finished - cancelled, model.world.endpoint.in_flight() as u64);
            prop_assert_eq!(model.world.endpoint.in_flight(), model.open.len());
        }
        if ends_lost {
            model.lose();
        } else {
            model.settle();
        }
        prop_assert!(model.open.is_empty(), "without an answer: {:?}", model.open);
        prop_assert_eq!(model.asked, model.answered + model.cancelled);
        let (admitted, finished, cancelled) = model.world.permits();
        prop_assert_eq!(admitted, finished + cancelled);
        let endpoint = &model.world.endpoint;
        prop_assert!(endpoint.calls.is_empty() && endpoint.ids.is_empty() && endpoint.asked.is_empty());
    }
}
