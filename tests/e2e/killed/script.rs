//! What clients do while the daemon is killed, and what they hold against it.
use crate::histories::outside::Outside;
use crate::histories::play::shell_server;
use crate::support::{open_params, polite};
use mcpvisor_testkit::{Daemon, Held, Rpc, SOON, Scene};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// The handles of all processes that were seen of a generation; by their daemon, too, since the next one counts anew or goes on.
#[derive(Debug, Default)]
pub(super) struct Hold {
    seen: Mutex<BTreeMap<u64, Vec<Held>>>,
}

impl Hold {
    /// Takes hold of everything that lives.
    fn look(&self, outside: &Outside) {
        let alive = outside.alive();
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        for (generation, processes) in alive {
            let held = seen.entry(generation).or_default();
            for (id, _) in processes {
                if held.iter().all(|known| known.id != id) {
                    held.extend(Held::take(id.pid).filter(|taken| taken.id == id));
                }
            }
        }
    }

    /// The processes of a generation that live at this moment.
    fn living(&self, generation: u64) -> Vec<u32> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let held = seen.get(&generation).into_iter().flatten();
        held.filter(|held| held.lives()).map(|held| held.id.pid).collect()
    }

    /// All processes that were ever seen and live at this moment.
    pub(super) fn all_living(&self) -> Vec<u32> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.values().flatten().filter(|held| held.lives()).map(|held| held.id.pid).collect()
    }

    pub(super) fn count(&self) -> usize {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).values().map(Vec::len).sum()
    }
}

/// One client that works on the daemon until it hangs up.
pub(super) struct Client<'a> {
    pub(super) scene: &'a Scene,
    pub(super) rpc: Rpc,
    pub(super) outside: &'a Outside,
    pub(super) hold: &'a Hold,
    /// Sessions that are open.
    pub(super) open: u64,
    /// Certificates that said closed.
    pub(super) closed: u64,
}

/// Why the script does not go on.
#[derive(Debug)]
pub(super) enum Stop {
    /// The daemon is gone.
    HungUp,
    /// It refused something. Nobody else uses these keys, so one of its children was killed in its place.
    Refused(Value),
}

type Step<T> = Result<T, Stop>;

impl Client<'_> {
    fn call(&self, method: &str, params: &Value) -> Step<Value> {
        match self.rpc.send(method, params).wait(SOON) {
            Ok(answer) => Ok(answer),
            Err(error) if error["hung_up"] == true => Err(Stop::HungUp),
            Err(error) => Err(Stop::Refused(error)),
        }
    }

    pub(super) fn open(&mut self, key: &str, servers: &Value) -> Step<u64> {
        let mut params = open_params(self.scene, key, &[], &[]);
        params["servers"] = servers.clone();
        let session = self.call("session/open", &params)?;
        self.open += 1;
        self.hold.look(self.outside);
        Ok(session["generation"].as_u64().expect("a session has a generation"))
    }

    pub(super) fn echo(&self, key: &str) -> Step<()> {
        let call = json!({"key": key, "server": "main", "tool": "echo", "arguments": {"message": "x"}});
        let result = self.call("tool/call", &call)?;
        assert_eq!(result["content"][0]["text"], "x", "{result:#}");
        Ok(())
    }

    /// What says closed is true at that moment, or the daemon has lied.
    pub(super) fn close(&mut self, key: &str) -> Step<()> {
        self.hold.look(self.outside);
        let mut answer = self.call("session/close", &json!({"key": key}))?;
        let certificate = answer["results"][0].take();
        if certificate["outcome"] == "closed" {
            let generation = certificate["generation"].as_u64().expect("a certificate has a generation");
            let living = self.hold.living(generation);
            assert!(living.is_empty(), "closed was said while {living:?} live: {certificate:#}");
            self.closed += 1;
            self.open -= 1;
        } else {
            // A child that was killed while it was traced is nobody's to reap until its tracer has looked.
            return Err(Stop::Refused(certificate));
        }
        Ok(())
    }

    /// Open, call, close, reopen, with a second session beside it.
    pub(super) fn whole(&mut self) -> Step<()> {
        self.open("a", &both())?;
        self.echo("a")?;
        self.open("b", &quiet())?;
        self.close("a")?;
        self.open("a", &both())?;
        self.echo("a")?;
        self.close("b")?;
        self.close("a")
    }

    /// The same over and over, on keys of its own, until the daemon is gone.
    pub(super) fn over_and_over(&mut self, number: usize) {
        let key = format!("load-{number}");
        let servers = if number == 0 { both() } else { wild() };
        let mut round = || -> Step<()> {
            self.open(&key, &servers)?;
            self.close(&key)
        };
        let stopped = loop {
            if let Err(stop) = round() {
                break stop;
            }
        };
        assert!(matches!(stopped, Stop::HungUp), "{stopped:?}");
    }
}

fn server(name: &str, command: &[String]) -> Value {
    json!({"name": name, "command": command})
}

/// It leaves a child in a session of its own, and ends at SIGKILL alone.
fn wild_server() -> Value {
    server("wild", &shell_server("setsid sleep 600 & trap '' TERM HUP INT", "", "sleep 600; sleep 600"))
}

/// A polite server, and a wild one.
pub(super) fn both() -> Value {
    json!([server("main", &polite()), wild_server()])
}

pub(super) fn wild() -> Value {
    json!([wild_server()])
}

pub(super) fn quiet() -> Value {
    json!([server("quiet", &shell_server("", "", ""))])
}

/// The next daemon serves the same keys.
pub(super) fn serves_again(scene: &Scene, daemon: &Daemon, outside: &Outside, keys: &[&str]) {
    let hold = Hold::default();
    let mut client = Client { scene, rpc: daemon.connect(), outside, hold: &hold, open: 0, closed: 0 };
    for key in keys {
        client.open(key, &both()).expect("the next daemon lives");
        client.echo(key).expect("the next daemon lives");
        client.close(key).expect("the next daemon lives");
    }
    assert_eq!(
        client.closed,
        u64::try_from(keys.len()).expect("few keys"),
        "every key was served and closed"
    );
}
