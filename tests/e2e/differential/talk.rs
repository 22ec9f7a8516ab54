//! A client that says a script, answers what the server asks meanwhile, and keeps every line that it hears.
use crate::real::LONG;
use mcpvisor_testkit::Stdio;
use serde_json::{Value, json};

/// What is said next. Where a request or a notification has parameters of its own, they are an object.
#[derive(Debug, Clone)]
pub(crate) enum Turn {
    /// A request, until its answer has come.
    Ask(&'static str, Value),
    /// All pages of a list.
    Pages(&'static str),
    /// A notification.
    Tell(&'static str, Value),
    /// Until the server has said this method, and that since the last [`Turn::Hear`] of it.
    Hear(&'static str),
    /// A request that goes on while the next ones are made.
    Begin(&'static str, Value),
    /// The request of the last [`Turn::Begin`] is given up.
    Cancel,
    /// A request that is given up at once.
    GiveUp(&'static str, Value),
}

/// The conversation.
#[derive(Debug)]
pub(crate) struct Talk {
    server: Stdio,
    modern: bool,
    /// The folder that is the client's root.
    root: String,
    at: usize,
    asked: u64,
    begun: Value,
    heard: Vec<String>,
    /// How far [`Turn::Hear`] has listened.
    listened: usize,
}

impl Talk {
    pub(crate) fn new(server: Stdio, modern: bool, root: &str) -> Self {
        Self {
            server,
            modern,
            root: root.to_owned(),
            at: 0,
            asked: 0,
            begun: Value::Null,
            heard: vec![],
            listened: 0,
        }
    }

    pub(crate) fn server(&mut self) -> &mut Stdio {
        &mut self.server
    }

    /// Says all of it, and returns the lines that came meanwhile.
    #[track_caller]
    pub(crate) fn play(&mut self, turns: &[Turn]) -> Vec<String> {
        for turn in turns {
            match turn {
                Turn::Ask(method, params) => drop(self.ask(method, params.clone())),
                Turn::Pages(method) => {
                    let mut params = json!({});
                    while let Some(cursor) = self.ask(method, params)["result"].get("nextCursor") {
                        params = json!({ "cursor": cursor });
                    }
                }
                Turn::Tell(method, params) => self.tell(method, params),
                Turn::Hear(method) => {
                    let is_it = |line: &String| {
                        let message: Value = serde_json::from_str(line).unwrap_or_default();
                        message["method"] == json!(method)
                    };
                    while !self.heard[self.listened..].iter().any(is_it) {
                        self.next(method);
                    }
                    let there = self.heard[self.listened..].iter().position(is_it).unwrap_or(0);
                    self.listened += there + 1;
                }
                Turn::Begin(method, params) => self.begun = self.begin(method, params.clone()),
                Turn::Cancel => self.cancel(&self.begun.clone()),
                Turn::GiveUp(method, params) => {
                    let id = self.begin(method, params.clone());
                    self.cancel(&id);
                }
            }
        }
        self.heard.clone()
    }

    #[track_caller]
    fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.begin(method, params);
        loop {
            let message = self.next(method);
            if message["id"] == id && message.get("method").is_none() {
                return message;
            }
        }
    }

    /// Ids of both types, some of which look like each other or have escapes.
    fn begin(&mut self, method: &str, mut params: Value) -> Value {
        let n = self.asked;
        self.asked += 1;
        let id = match n % 5 {
            0 => json!(n),
            1 => json!((n - 1).to_string()),
            2 => json!(format!("\"{n}\"\n\\ \u{e9}")),
            3 => json!(9_007_199_254_740_000_u64 + n),
            _ => json!(format!("mcpvisor-{n}")),
        };
        if self.modern {
            let capabilities = json!({ "elicitation": { "form": {} } });
            let meta = &mut params["_meta"];
            meta["io.modelcontextprotocol/protocolVersion"] = json!("2026-07-28");
            meta["io.modelcontextprotocol/clientInfo"] = json!({ "name": "differential", "version": "1" });
            meta["io.modelcontextprotocol/clientCapabilities"] = capabilities;
        }
        self.server.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        id
    }

    fn tell(&mut self, method: &str, params: &Value) {
        self.server.send(&json!({ "jsonrpc": "2.0", "method": method, "params": params }));
    }

    fn cancel(&mut self, id: &Value) {
        self.tell("notifications/cancelled", &json!({ "requestId": id, "reason": "never mind" }));
    }

    /// The next line, answered where it is a request.
    #[track_caller]
    fn next(&mut self, why: &str) -> Value {
        let at = self.at;
        let line = self.server.wait_for(LONG, |bytes| {
            let end = bytes[at..].iter().position(|byte| *byte == b'\n')?;
            Some(bytes[at..=at + end].to_vec())
        });
        let Some(line) = line else {
            panic!("nothing comes ({why})\n{}\n{}", self.heard.concat(), self.server.stderr_text())
        };
        self.at += line.len();
        let line = String::from_utf8(line).expect("MCP is UTF-8");
        let message: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        self.heard.push(line);
        let result = match message["method"].as_str() {
            Some("roots/list") => {
                json!({ "roots": [{ "uri": format!("file://{}", self.root), "name": "r\u{f6}\u{f6}t" }] })
            }
            Some("sampling/createMessage") => {
                let content = json!({ "type": "text", "text": "four" });
                json!({ "role": "assistant", "content": content, "model": "none", "stopReason": "endTurn" })
            }
            Some("elicitation/create") => {
                json!({ "action": "accept", "content": { "name": "Ada", "check": true, "number": 2.5 } })
            }
            _ => return message,
        };
        self.server.send(&json!({ "jsonrpc": "2.0", "id": message["id"], "result": result }));
        message
    }
}
