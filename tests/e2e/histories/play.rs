//! One history: clients that ask at random, side by side, and what they saw.
use super::judge::MOST_SESSIONS;
use super::log::{Asked, Event, Kind, Log, Told};
use super::outside::{self, Alive, Outside};
use crate::support::{open_params, polite};
use mcpvisor_testkit::{Daemon, Rpc, SOON, Scene, until};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Keys of one history.
const KEYS: usize = 3;
/// Clients of one history, and what each asks.
const CLIENTS: usize = 4;
const REQUESTS: u64 = 6;

/// xorshift64*: small, and the same everywhere.
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        // Neighbouring seeds begin alike.
        for _ in 0..4 {
            random.below(2);
        }
        random
    }

    /// Below `end`, which is not zero.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16) % end
    }

    pub(crate) fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        let index = self.below(u64::try_from(all.len()).expect("lists are short"));
        all[usize::try_from(index).expect("an index of a short list")]
    }
}

/// A small server for MCP in shell, which starts in a millisecond: `$1` is run at its start, `$2` after the handshake, `$3` at the
/// end of its input.
const SERVER: &str = r#"
answer() {
    id=${1#*'"id":'}
    printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "${id%%[,\}]*}" "$2"
}
eval "$1"
while read -r line; do
    case $line in
    *'"initialize"'*) answer "$line" '{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}' ;;
    *'"notifications/initialized"'*) eval "$2" ;;
    *'"tools/list"'*) answer "$line" '{"tools":[{"name":"echo","inputSchema":{"type":"object"}}]}' ;;
    *'"tools/call"'*) answer "$line" '{"content":[{"type":"text","text":"x"}]}' ;;
    esac
done
eval "$3"
"#;

/// The small server as a command.
pub(crate) fn shell_server(first: &str, then: &str, last: &str) -> Vec<String> {
    ["sh", "-c", SERVER, "server", first, then, last].map(str::to_owned).to_vec()
}

fn command(kind: Kind) -> Vec<String> {
    match kind {
        Kind::Cat => shell_server("", "", ""),
        Kind::Sleeper => shell_server("", "", "exec sleep 600"),
        Kind::Stubborn => shell_server("trap '' TERM HUP INT", "", "sleep 600; sleep 600"),
        Kind::Escaping => shell_server("setsid sleep 600 &", "", ""),
        Kind::Broken => shell_server("exit 3", "", ""),
        Kind::Failing => shell_server("", "exit 3", ""),
        Kind::Hanging => ["sleep", "600"].map(str::to_owned).to_vec(),
        Kind::Polite => polite(),
    }
}

/// The stage of one history.
pub(crate) struct Play<'a> {
    pub(crate) scene: &'a Scene,
    pub(crate) daemon: &'a Daemon,
    pub(crate) outside: &'a Outside,
    pub(crate) seed: u64,
    pub(crate) log: Log,
    clients: AtomicUsize,
    wrong: std::sync::Mutex<Vec<String>>,
}

/// A connection, and its number in the log.
struct Client {
    rpc: Rpc,
    number: usize,
}

impl<'a> Play<'a> {
    pub(crate) fn new(scene: &'a Scene, daemon: &'a Daemon, outside: &'a Outside, seed: u64) -> Self {
        let (log, clients, wrong) = (Log::new(), AtomicUsize::new(0), std::sync::Mutex::default());
        Self { scene, daemon, outside, seed, log, clients, wrong }
    }

    /// Plays it, closes everything, and returns what was wrong without any judge (a request that was not answered, a certificate that
    /// was not true, more live sessions than there may be), and the last generation.
    pub(crate) fn play(&self) -> (Vec<String>, u64) {
        std::thread::scope(|threads| {
            for number in 0..CLIENTS {
                threads.spawn(move || self.one_client(number));
            }
        });
        let last = self.close_all();
        (std::mem::take(&mut self.wrong.lock().expect("no client panics while it complains")), last)
    }

    fn complain(&self, what: String) {
        self.wrong.lock().expect("no client panics while it complains").push(what);
    }

    fn connect(&self) -> Client {
        Client { rpc: self.daemon.connect(), number: self.clients.fetch_add(1, Ordering::Relaxed) }
    }

    fn one_client(&self, number: usize) {
        let lane = u64::try_from(CLIENTS + number).expect("few clients");
        let mut random = Random::new(self.seed.wrapping_mul(64) + lane);
        let mut client = self.connect();
        let mut last = None;
        for _ in 0..REQUESTS {
            // Not to be right, but to be at different moments.
            std::thread::sleep(Duration::from_micros(random.pick(&[0, 0, 500, 3000, 12_000])));
            let asked = some_request(&mut random, last);
            let patience = patience(&mut random, asked);
            let pause = Duration::from_micros(random.pick(&[0, 300, 2000, 10_000, 30_000]));
            if random.one_in(18) {
                self.send(&client, asked, patience);
                std::thread::sleep(pause);
                self.log.note(Event::Vanish { client: client.number });
                drop(client);
                client = self.connect();
                continue;
            }
            let hopeless =
                matches!(asked, Asked::Open { kind: Kind::Hanging, wait: true, .. }) && patience.is_none();
            let cancel = (hopeless || random.one_in(7)).then_some(pause);
            let told = self.ask(&client, asked, patience, cancel);
            if let Some(Told::Opened { generation, .. }) = told {
                last = Some(generation);
            }
        }
        // A connection's end is a client's: leases end with it.
        self.log.note(Event::Vanish { client: client.number });
    }

    fn send(
        &self,
        client: &Client,
        asked: Asked,
        patience: Option<Duration>,
    ) -> (u64, mcpvisor_testkit::Pending) {
        let (method, mut params) = self.params(asked);
        if let Some(patience) = patience {
            params["deadline_ms"] = json!(u64::try_from(patience.as_millis()).expect("short"));
        }
        let request = self.log.ask(client.number, asked, patience);
        (request, client.rpc.send(method, &params))
    }

    fn ask(
        &self,
        client: &Client,
        asked: Asked,
        patience: Option<Duration>,
        cancel: Option<Duration>,
    ) -> Option<Told> {
        let (request, mut pending) = self.send(client, asked, patience);
        if let Some(pause) = cancel {
            pending = match pending.wait_within(pause) {
                Ok(answer) => return Some(self.hear(request, asked, &answer)),
                Err(pending) => pending,
            };
            self.log.note(Event::Cancel { request });
            client.rpc.cancel(&pending);
        }
        match pending.wait_within(SOON) {
            Ok(answer) => Some(self.hear(request, asked, &answer)),
            Err(_) => {
                self.complain(format!("request {request} ({asked:?}) was never answered"));
                None
            }
        }
    }

    /// Writes an answer down, and looks whether it was true at this moment.
    fn hear(&self, request: u64, asked: Asked, answer: &Result<Value, Value>) -> Told {
        let told = Told::by_daemon(asked, answer);
        self.log.note(Event::Tell { request, told: told.clone() });
        let alive = self.outside.alive();
        let says = || format!("request {request} ({asked:?}) was told {told:?}");
        let ended = match (&told, asked) {
            (Told::Done { generation }, Asked::WaitReady { .. }) => {
                let _ = generation;
                None
            }
            (Told::Done { generation }, _) => Some(*generation),
            _ => told.ended(),
        };
        if let Some(left) = ended.and_then(|generation| alive.get(&generation)) {
            self.complain(format!("{} while {left:?} lives", says()));
        }
        if let Told::Opened { generation, .. } = told {
            let key = self.key(asked).unwrap_or_default();
            let older = alive.range(..generation).find(|(_, processes)| {
                processes.iter().any(|(_, named)| named.as_deref() == Some(key.as_str()))
            });
            if let Some((older, processes)) = older {
                self.complain(format!("{} while generation {older} has {processes:?}", says()));
            }
        }
        self.count(&alive);
        told
    }

    fn count(&self, before: &Alive) {
        if before.len() > MOST_SESSIONS {
            let both = outside::in_both(before, &self.outside.alive());
            if both.len() > MOST_SESSIONS {
                self.complain(format!("generations {both:?} live at the same time, and {MOST_SESSIONS} may"));
            }
        }
    }

    /// Until the daemon counts none: an open whose requester is gone may come late. Then one more session, whose generation is
    /// the last.
    fn close_all(&self) -> u64 {
        let client = self.connect();
        let ask = |asked| self.ask(&client, asked, None, None);
        let close = |key| ask(Asked::Close { key, generation: None, now: true, wait: true });
        let at_rest = until(SOON, || {
            (0..KEYS).for_each(|key| drop(close(key)));
            (ask(Asked::Status) == Some(Told::Counts([0; 4]))).then_some(())
        });
        if at_rest.is_none() {
            self.complain("the daemon is never at rest".to_owned());
        }
        let (kind, key) = (Kind::Cat, 0);
        let open =
            Asked::Open { key, kind, tenant: false, wait: true, join: true, park: true, leased: false };
        let told = ask(open);
        close(key);
        let Some(Told::Opened { generation, .. }) = told else {
            self.complain(format!("a daemon at rest opens nothing: {told:?}"));
            return 0;
        };
        generation
    }

    fn key(&self, asked: Asked) -> Option<String> {
        asked.key().map(|key| format!("h{}-{key}", self.seed))
    }

    fn params(&self, asked: Asked) -> (&'static str, Value) {
        let key = self.key(asked).unwrap_or_default();
        let (method, mut params, generation) = match asked {
            Asked::Open { kind, tenant, wait, join, park, leased, .. } => {
                let mut params = open_params(self.scene, &key, &command(kind), &[(outside::KEY, &key)]);
                params["servers"][0]["restart"] = json!("temporary");
                params["wait"] = json!(wait);
                params["if_open"] = json!(if join { "join" } else { "fail" });
                params["if_closing"] = json!(if park { "wait" } else { "fail" });
                params["lease"] = json!(if leased { "connection" } else { "none" });
                if tenant {
                    params["tenant"] = json!("t");
                }
                ("session/open", params, None)
            }
            Asked::Close { generation, now, wait, .. } => {
                ("session/close", json!({"key": key, "now": now, "wait": wait}), generation)
            }
            Asked::WaitClosed { generation, .. } => ("session/wait", json!({"key": key}), generation),
            Asked::WaitReady { .. } => ("session/wait", json!({"key": key, "for": "ready"}), None),
            Asked::Kill { generation, .. } => ("session/kill", json!({"key": key}), generation),
            Asked::Show { generation, .. } => ("session/show", json!({"key": key}), generation),
            Asked::Call { .. } => {
                ("tool/call", json!({"key": key, "tool": "echo", "arguments": {"message": "x"}}), None)
            }
            Asked::Status => ("daemon/status", json!({}), None),
        };
        if let Some(generation) = generation {
            params["generation"] = json!(generation);
        }
        (method, params)
    }
}

fn some_request(random: &mut Random, last: Option<u64>) -> Asked {
    let key = usize::try_from(random.below(KEYS as u64)).expect("few keys");
    // Sometimes by a generation: the last that this client was given, mostly of another key or over.
    let generation = last.filter(|_| random.one_in(4));
    match random.below(20) {
        0..=8 => Asked::Open {
            key,
            kind: random.pick(&[
                Kind::Cat,
                Kind::Cat,
                Kind::Sleeper,
                Kind::Stubborn,
                Kind::Escaping,
                Kind::Broken,
                Kind::Failing,
                Kind::Hanging,
                Kind::Polite,
            ]),
            tenant: random.one_in(4),
            wait: !random.one_in(4),
            join: !random.one_in(4),
            park: !random.one_in(4),
            leased: random.one_in(6),
        },
        9..=13 => Asked::Close { key, generation, now: random.one_in(3), wait: !random.one_in(5) },
        14 => Asked::WaitClosed { key, generation },
        15 => Asked::WaitReady { key },
        16 => Asked::Kill { key, generation },
        17 => Asked::Show { key, generation },
        18 => Asked::Call { key },
        _ => Asked::Status,
    }
}

/// Every request that nobody else may end has an end to its patience.
fn patience(random: &mut Random, asked: Asked) -> Option<Duration> {
    let short = Some(Duration::from_millis(random.pick(&[0, 5, 20, 60])));
    match asked {
        Asked::WaitClosed { .. } | Asked::WaitReady { .. } => short,
        Asked::Call { .. } => Some(Duration::from_millis(500)),
        Asked::Open { .. } | Asked::Close { .. } if random.one_in(6) => short,
        _ => None,
    }
}
