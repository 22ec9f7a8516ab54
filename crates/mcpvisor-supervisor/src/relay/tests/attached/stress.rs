//! Everything at once, on many threads: servers die while clients flood, come and go (G11).
use super::*;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Numbers from a seed (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % most
    }
}

/// Runs it on a runtime of its own with four threads. A deadlock would stop timers as well, so the time is taken outside.
fn guarded<F: Future<Output = ()> + Send + 'static>(work: F) {
    let (done, is_done) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap();
        runtime.block_on(work);
        let _ = done.send(());
    });
    match is_done.recv_timeout(Duration::from_secs(120)) {
        Ok(()) => thread.join().unwrap(),
        Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => {
            std::panic::resume_unwind(thread.join().unwrap_err())
        }
        Err(std::sync::mpsc::RecvTimeoutError::Timeout) => panic!("a deadlock, or far too slow"),
    }
}

/// A server that lives for so many calls; it answers, tells of progress, asks for roots.
async fn serve(mut server: FakeServer, name: &'static str, mut lives: u64, seed: u64) {
    let mut random = Random(seed | 1);
    while lives > 0 {
        let mut line = String::new();
        match server.input.read_line(&mut line).await {
            Ok(1..) => {}
            _ => return,
        }
        let message: Value = serde_json::from_str(&line).unwrap();
        let mut out = Vec::new();
        match message["method"].as_str() {
            Some("tools/list") => {
                let tools = json!([{"name": "both"}, {"name": name}]);
                out.push(json!({"jsonrpc": "2.0", "id": message["id"], "result": {"tools": tools}}));
            }
            Some("tools/call") => {
                // The calls of others flood no client.
                let quiet = message["params"]["name"] == "quiet";
                lives -= u64::from(!quiet);
                if !quiet && random.below(4) == 0 {
                    out.push(json!({"jsonrpc": "2.0", "id": random.below(1 << 40), "method": "roots/list"}));
                }
                out.push(json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": message["id"], "progress": 1}}));
                out.push(json!({"jsonrpc": "2.0", "id": message["id"], "result": {"by": name}}));
                if !quiet && random.below(20) == 0 {
                    out.push(json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}));
                }
            }
            Some(_) if message.get("id").is_some() => {
                out.push(json!({"jsonrpc": "2.0", "id": message["id"], "result": {}}));
            }
            _ => {}
        }
        for message in out {
            if server.output.write_all(format!("{message}\n").as_bytes()).await.is_err() {
                return;
            }
        }
    }
}

/// Keeps a server of the session alive until it is told to stop, as its actor would.
async fn keep(record: Arc<SessionRecord>, index: usize, name: &'static str, stop: Arc<AtomicBool>) {
    let mut random = Random(0x9e37_79b9 + index as u64);
    while !stop.load(Ordering::SeqCst) {
        let server = start(&record, index).await;
        serve(server, name, 1 + random.below(60), random.0).await;
        end(&record, index);
    }
}

/// One client: so many requests, some of them cancelled; each has at most one answer, and those that were not cancelled exactly one.
async fn talk(world: &World, requests: u64, seed: u64, answered: &AtomicU64) {
    let mut random = Random(seed | 1);
    let (attached, client) = world.over_pipes();
    let FakeServer { mut input, mut output, .. } = client;
    let leaves_early = random.below(3) == 0;
    output.write_all(format!("{}\n", initialize(&json!({"roots": {}}))).as_bytes()).await.unwrap();
    let (ask, asked) = tokio::sync::mpsc::unbounded_channel::<String>();
    let write = async move {
        let mut asked = asked;
        while let Some(line) = asked.recv().await {
            if output.write_all(line.as_bytes()).await.is_err() {
                return;
            }
        }
    };
    let answer = ask.clone();
    let mut cancelled = Vec::new();
    for id in 1..=requests {
        let name = ["a", "b", "c", "both", "a__both", "nobody's"][random.below(6) as usize];
        let line = match random.below(12) {
            0 => json!({"jsonrpc": "2.0", "id": id, "method": "tools/list"}),
            1 => {
                json!({"jsonrpc": "2.0", "id": id, "method": "logging/setLevel", "params": {"level": "debug"}})
            }
            _ => {
                json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": name, "_meta": {"progressToken": id}}})
            }
        };
        let _ = ask.send(format!("{line}\n"));
        if random.below(10) == 0 {
            let which = 1 + random.below(id);
            cancelled.push(which);
            let line = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": which}});
            let _ = ask.send(format!("{line}\n"));
        }
    }
    drop(ask);
    let read = async move {
        let mut answers: HashMap<u64, u64> = HashMap::new();
        let mut answer = Some(answer);
        loop {
            let mut line = String::new();
            if input.read_line(&mut line).await.unwrap() == 0 {
                return answers;
            }
            let message: Value =
                serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
            if message["method"] == "roots/list" {
                if let Some(answer) = &answer {
                    let _ = answer.send(format!(
                        "{}\n",
                        json!({"jsonrpc": "2.0", "id": message["id"], "result": {"roots": []}})
                    ));
                }
            } else if message.get("method").is_none() && message["id"] != json!(0) {
                *answers.entry(message["id"].as_u64().unwrap()).or_default() += 1;
            }
            if !line.contains("\"id\":") {
                continue;
            }
            let missing = (1..=requests).any(|id| !answers.contains_key(&id) && !cancelled.contains(&id));
            if !missing || (leaves_early && answers.len() as u64 > requests / 2) {
                // Its stream ends: what is open is still answered.
                answer = None;
            }
        }
    };
    let (answers, ()) = tokio::join!(read, write);
    for (id, count) in &answers {
        assert_eq!(*count, 1, "answers to {id}");
    }
    answered.fetch_add(answers.len() as u64, Ordering::SeqCst);
    attached.ended().await;
    // Whoever has just queued an answer may still have its permit in hand; one that is lost never comes back.
    until(|| world.record.gate.in_flight() == 0).await;
}

#[test]
fn g11_servers_die_while_clients_flood() {
    guarded(async {
        let record = record(&["a", "b", "c"], Duration::from_secs(20));
        let stop = Arc::new(AtomicBool::new(false));
        let keepers: Vec<_> = ["a", "b", "c"]
            .into_iter()
            .enumerate()
            .map(|(index, name)| tokio::spawn(keep(Arc::clone(&record), index, name, Arc::clone(&stop))))
            .collect();
        // Calls of others go on beside.
        let (other, stopped) = (Arc::clone(&record), Arc::clone(&stop));
        let beside = tokio::spawn(async move {
            while !stopped.load(Ordering::SeqCst) {
                if let Some(connection) = other.servers()[1].connection() {
                    let _ = tokio::time::timeout(
                        Duration::from_secs(5),
                        connection.call_tool(OWN, "quiet", &mut None, None),
                    )
                    .await;
                }
                tokio::task::yield_now().await;
            }
        });
        let world = World { record: Arc::clone(&record), servers: Vec::new() };
        let answered = AtomicU64::new(0);
        for seed in 1..=30 {
            talk(&world, 400, seed * 77, &answered).await;
        }
        stop.store(true, Ordering::SeqCst);
        assert!(answered.load(Ordering::SeqCst) > 5000, "{answered:?}");
        // The servers that wait for a line end with their connections.
        for index in 0..3 {
            end(&record, index);
        }
        for keeper in keepers {
            keeper.abort();
        }
        beside.abort();
    });
}

/// A client comes while a server ends: each looks at what the other holds. With the record's lock held while the connection
/// ends, this stands still within seconds.
#[test]
fn clients_come_while_servers_end() {
    guarded(async {
        let record = record(&["a"], Duration::from_secs(20));
        let stop = Arc::new(AtomicBool::new(false));
        let (servers, stopped) = (Arc::clone(&record), Arc::clone(&stop));
        let ends = tokio::spawn(async move {
            while !stopped.load(Ordering::SeqCst) {
                let server = start(&servers, 0).await;
                end(&servers, 0);
                drop(server);
            }
        });
        let world = World { record, servers: Vec::new() };
        for _ in 0..500 {
            let (attached, client) = world.over_pipes();
            tokio::task::yield_now().await;
            drop(client);
            attached.ended().await;
        }
        stop.store(true, Ordering::SeqCst);
        ends.await.unwrap();
    });
}
