use super::*;
use serde_json::{Value, json};

struct Pair {
    peer: Peer<&'static str>,
}

fn value(line: &[u8]) -> Value {
    assert_eq!(line.last(), Some(&b'\n'));
    serde_json::from_slice(line).unwrap()
}

/// What happened, in words.
fn words(events: Events<'_, &'static str>) -> Vec<String> {
    let describe = |event| match event {
        PeerEvent::Send(line) => {
            let line = value(&line);
            let what = line["method"]
                .as_str()
                .map_or_else(|| format!("answer {} {}", line["id"], line["error"]["code"]), str::to_owned);
            format!("send {what}")
        }
        PeerEvent::Ready(negotiated) => {
            let tools = negotiated.offers.tools;
            format!("ready {} {} tools={tools}", negotiated.era.as_str(), negotiated.protocol)
        }
        PeerEvent::HandshakeFailed(error) => format!("failed: {error}"),
        PeerEvent::Answered { token, answer } => match answer {
            Answer::Line { outcome: Ok(raw), .. } => format!("{token} result {}", raw.get()),
            Answer::Line { outcome: Err(raw), .. } => format!("{token} error {}", raw.get()),
            Answer::TooLong(bytes) => format!("{token} too long {bytes}"),
            Answer::Unread { raw_id, .. } => format!("{token} unread {raw_id}"),
        },
        PeerEvent::Changed(kind) => format!("{kind:?} changed"),
        PeerEvent::Told(told) => match told.about {
            Some((number, _)) => format!("told {} about {number}", told.method),
            None => format!("told {}", told.method),
        },
        PeerEvent::Asked(asked) => format!("asked {} {}", asked.raw_id, asked.method),
    };
    events.into_iter().map(describe).collect()
}

impl Pair {
    fn begun() -> Self {
        let mut peer = Peer::default();
        let line = value(&peer.begin(EraChoice::Auto).unwrap());
        assert_eq!((line["id"].as_str(), line["method"].as_str()), (Some("mcpvisor-1"), Some("initialize")));
        assert!(peer.begin(EraChoice::Auto).is_none());
        Self { peer }
    }

    fn ready() -> Self {
        let mut pair = Self::begun();
        let result = json!({"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}});
        let said = pair.hear(&json!({"jsonrpc":"2.0","id":"mcpvisor-1","result":result}));
        assert_eq!(said, ["send notifications/initialized", "ready legacy 2025-06-18 tools=true"]);
        pair
    }

    fn modern() -> Self {
        let mut pair = Self::begun();
        let said = pair.refuse(-32022, &json!({"supported":["2026-07-28"]}));
        assert_eq!(said, ["send server/discover"]);
        let result = json!({"supportedVersions":["2026-07-28","2099-01-01"],"capabilities":{"tools":{}}});
        let said = pair.hear(&json!({"jsonrpc":"2.0","id":"mcpvisor-2","result":result}));
        assert_eq!(said, ["ready modern 2026-07-28 tools=true"]);
        pair
    }

    fn refuse(&mut self, code: i64, data: &Value) -> Vec<String> {
        self.hear(&json!({"jsonrpc":"2.0","id":"mcpvisor-1","error":{"code":code,"message":"no\u{1b}","data":data}}))
    }

    fn hear(&mut self, message: &Value) -> Vec<String> {
        words(self.peer.handle_line(message.to_string().as_bytes()))
    }

    fn call(&mut self, token: &'static str) -> RequestNumber {
        self.peer.call_tool(token, "t", None).unwrap().number
    }
}

fn answer(number: u64, result: &str) -> Value {
    json!({"jsonrpc":"2.0","id":format!("mcpvisor-{number}"),"result":result})
}

#[test]
fn nothing_is_asked_before_the_handshake_is_done() {
    let mut pair = Pair::begun();
    assert!(matches!(pair.peer.call_tool("x", "t", None), Err(NotReady("x"))));
    assert!(matches!(pair.peer.list("x", ListKind::Tools, None), Err(NotReady("x"))));
    assert_eq!((pair.peer.in_flight(), pair.peer.negotiated().is_none()), (0, true));
}

#[test]
fn an_unknown_version_is_an_error_that_names_both() {
    let mut pair = Pair::begun();
    let said = pair.hear(&json!({"jsonrpc":"2.0","id":"mcpvisor-1","result":{"protocolVersion":"1999-01-01","capabilities":{}}}));
    assert!(said[0].contains("1999-01-01") && said[0].contains("2025-11-25"), "{said:?}");
}

#[test]
fn each_known_legacy_version_will_do() {
    for version in crate::version::LEGACY {
        let mut pair = Pair::begun();
        let said = pair.hear(&json!({"jsonrpc":"2.0","id":"mcpvisor-1","result":{"protocolVersion":version,"capabilities":{}}}));
        assert_eq!(said[1], format!("ready legacy {version} tools=false"));
    }
}

#[test]
fn a_refusal_is_told_with_code_message_and_data() {
    let mut pair = Pair::begun();
    let line = json!({"jsonrpc":"2.0","id":"mcpvisor-1","error":{"code":-32603,"message":"no key\u{1b}","data":{"k":1}}});
    let line = line.to_string();
    let events = pair.peer.handle_line(line.as_bytes());
    let [PeerEvent::HandshakeFailed(HandshakeError::Refused { code, message, data })] = &events[..] else {
        panic!("{events:?}")
    };
    assert_eq!(
        (*code, message.as_str(), data.as_ref().unwrap().get()),
        (-32603, "no key\\x1b", r#"{"k":1}"#)
    );
}

#[test]
fn an_invalid_answer_to_the_handshake_is_an_error() {
    for result in [json!(null), json!({}), json!({"protocolVersion":5}), json!([1])] {
        let said = Pair::begun().hear(&json!({"jsonrpc":"2.0","id":"mcpvisor-1","result":result}));
        assert!(said[0].starts_with("failed: the server's answer to the handshake is not valid"), "{said:?}");
    }
    let said = Pair::begun().hear(&json!({"jsonrpc":"2.0","id":"mcpvisor-1","error":"text"}));
    assert!(said[0].starts_with("failed: the server's answer to the handshake is not valid"), "{said:?}");
}

#[test]
fn a_modern_server_is_asked_with_meta_on_each_request() {
    let mut pair = Pair::modern();
    let arguments = RawValue::from_string(r#"{"a":1.0}"#.to_owned()).unwrap();
    let call = value(&pair.peer.call_tool("c", "t", Some(&arguments)).unwrap().line);
    let list = value(&pair.peer.list("l", ListKind::Tools, None).unwrap().line);
    for params in [&call["params"], &list["params"]] {
        let meta = &params["_meta"];
        assert_eq!(meta["io.modelcontextprotocol/protocolVersion"], "2026-07-28");
        assert_eq!(meta["io.modelcontextprotocol/clientInfo"]["name"], "mcpvisor");
        assert_eq!(meta["io.modelcontextprotocol/clientCapabilities"], json!({}));
    }
    assert_eq!(pair.hear(&answer(3, "r")), [r#"c result "r""#]);
}

#[test]
fn the_modern_probe_fails_with_the_first_refusal_or_with_both_versions() {
    let mut pair = Pair::begun();
    assert_eq!(pair.refuse(-32601, &json!(null)), ["send server/discover"]);
    let said =
        pair.hear(&json!({"jsonrpc":"2.0","id":"mcpvisor-2","error":{"code":-32601,"message":"second"}}));
    assert_eq!(said, ["failed: the server refused the handshake: no\\x1b (code -32601)"]);

    let said = Pair::begun().refuse(-32022, &json!({"supported":["2031-01-01"]}));
    assert!(said[0].contains("2031-01-01") && said[0].contains("2025-11-25"), "{said:?}");

    let mut pair = Pair::begun();
    pair.refuse(-32601, &json!(null));
    let said =
        pair.hear(&json!({"jsonrpc":"2.0","id":"mcpvisor-2","result":{"supportedVersions":["2031-01-01"]}}));
    assert!(said[0].contains("2031-01-01") && said[0].contains("2026-07-28"), "{said:?}");
}

#[test]
fn answers_are_matched_by_id_in_any_order() {
    let mut pair = Pair::ready();
    pair.call("a");
    pair.call("b");
    assert_eq!(pair.hear(&answer(3, "B")), [r#"b result "B""#]);
    let error = json!({"jsonrpc":"2.0","id":"mcpvisor-2","error":{"code":1,"message":"x"}});
    assert_eq!(pair.hear(&error), [r#"a error {"code":1,"message":"x"}"#]);
    assert_eq!(pair.peer.in_flight(), 0);
}

/// A server that confuses numbers and strings can't confuse ours with anything, and an id of another type is not ours.
#[test]
fn the_type_of_an_id_is_part_of_it() {
    let mut pair = Pair::ready();
    pair.call("a");
    for id in [
        json!(2),
        json!("2"),
        json!("mcpvisor-02"),
        json!("mcpvisor-+2"),
        json!("mcpvisor-99"),
        json!("MCPVISOR-2"),
    ] {
        assert!(pair.hear(&json!({"jsonrpc":"2.0","id":id,"result":1})).is_empty(), "{id}");
    }
    assert_eq!(pair.peer.counters().unmatched, 6);
    assert_eq!(pair.hear(&answer(2, "A")), [r#"a result "A""#]);
}

#[test]
fn an_error_without_an_id_is_that_of_the_only_request() {
    let parse_error = json!({"jsonrpc":"2.0","id":null,"error":{"code":-32700}});
    let mut pair = Pair::ready();
    pair.call("a");
    assert_eq!(pair.hear(&parse_error), [r#"a error {"code":-32700}"#]);
    assert!(pair.hear(&parse_error).is_empty());
    pair.call("b");
    let c = pair.call("c");
    assert!(pair.hear(&parse_error).is_empty(), "two could be meant");
    pair.peer.cancel(c, "").unwrap();
    assert!(pair.hear(&parse_error).is_empty(), "the cancelled one could be meant");
    assert_eq!(pair.peer.counters().unmatched, 3);
}

#[test]
fn late_answers_are_swallowed_counted_and_their_ids_not_used_again() {
    let mut pair = Pair::ready();
    let number = pair.call("a");
    let cancelled = pair.peer.cancel(number, "given up").unwrap();
    assert_eq!(cancelled.token, "a");
    let line = value(&cancelled.line);
    assert_eq!(line["method"], "notifications/cancelled");
    assert_eq!(line["params"], json!({"requestId":"mcpvisor-2","reason":"given up"}));
    assert!(pair.peer.cancel(number, "again").is_none());
    assert_eq!(pair.call("b").to_string(), "mcpvisor-3");
    assert!(pair.hear(&answer(2, "late")).is_empty());
    assert!(pair.hear(&answer(1, "again")).is_empty());
    assert_eq!((pair.peer.counters().late, pair.peer.in_flight()), (2, 1));
}

#[test]
fn settling_cancels_all_in_order_but_never_the_handshake() {
    let mut pair = Pair::begun();
    assert!(pair.peer.settle("closing").is_empty());
    let mut pair = Pair::ready();
    for token in ["a", "b", "c"] {
        pair.call(token);
    }
    let settled: Vec<_> = pair.peer.settle("closing").into_iter().map(|one| one.token).collect();
    assert_eq!((settled, pair.peer.in_flight()), (vec!["a", "b", "c"], 0));
    pair.call("d");
    assert_eq!(pair.peer.fail_all(), ["d"]);
}

#[test]
fn a_servers_ping_is_answered_with_its_own_id_and_other_requests_are_told() {
    let mut pair = Pair::ready();
    for (id, method, said) in [
        (json!(0), "ping", "send answer 0 null"),
        (json!("x"), "ping", "send answer \"x\" null"),
        (json!(1), "roots/list", "asked 1 roots/list"),
        (json!(2), "sampling/createMessage", "asked 2 sampling/createMessage"),
        (json!("mcpvisor-2"), "elicitation/create", "asked \"mcpvisor-2\" elicitation/create"),
    ] {
        assert_eq!(pair.hear(&json!({"jsonrpc":"2.0","id":id,"method":method})), [said]);
    }
    let long = json!({"jsonrpc":"2.0","id":"i".repeat(5000),"method":"ping"});
    assert!(pair.hear(&long).is_empty());
    assert_eq!((pair.peer.counters().server_requests, pair.peer.counters().violations), (5, 1));

    let mut modern = Pair::modern();
    assert!(modern.hear(&json!({"jsonrpc":"2.0","id":1,"method":"roots/list"})).is_empty());
    assert_eq!(modern.peer.counters().violations, 1);
}

#[test]
fn notifications_are_counted_and_changed_tools_told() {
    let mut pair = Pair::ready();
    assert_eq!(
        pair.hear(&json!({"jsonrpc":"2.0","method":"notifications/message","params":{}})),
        ["told notifications/message"]
    );
    assert_eq!(
        pair.hear(&json!({"jsonrpc":"2.0","method":"notifications/tools/list_changed"})),
        ["Tools changed", "told notifications/tools/list_changed"]
    );
    assert_eq!(pair.peer.counters().notifications, 2);
}

fn progress(token: &Value) -> Value {
    json!({"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":token,"progress":1}})
}

#[test]
fn progress_names_the_request_that_it_is_about() {
    let mut pair = Pair::ready();
    let number = pair.call("x");
    let id = number.to_string();
    let about = format!("told notifications/progress about {id}");
    assert_eq!(pair.hear(&progress(&json!(id))), [about]);
    // The type is part of the match, and one that is answered is nobody's.
    for token in [json!(2), json!("mcpvisor-99"), json!("mcpvisor-02")] {
        assert_eq!(pair.hear(&progress(&token)), ["told notifications/progress"], "{token}");
    }
    pair.hear(&json!({"jsonrpc":"2.0","id":id,"result":{}}));
    assert_eq!(pair.hear(&progress(&json!(id))), ["told notifications/progress"]);
}

#[test]
fn a_modern_notification_names_its_subscription() {
    let mut pair = Pair::modern();
    let number = pair.peer.request_with("x", "subscriptions/listen", &serde_json::Map::new()).unwrap().number;
    let told = |id: &Value| {
        json!({"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{
            "io.modelcontextprotocol/subscriptionId":id}}})
    };
    assert_eq!(
        pair.hear(&told(&json!(number.to_string()))),
        ["Tools changed".to_owned(), format!("told notifications/tools/list_changed about {number}")]
    );
    assert_eq!(
        pair.hear(&told(&json!("another"))),
        ["Tools changed", "told notifications/tools/list_changed"]
    );
}

#[test]
fn a_clients_request_is_passed_on_with_our_id_and_nothing_else_changed() {
    use std::borrow::Cow;
    let mut pair = Pair::ready();
    let line = br#"{"x":1.0,"id":7,"jsonrpc":"2.0","method":"tools/call","params":{"_meta":{"progressToken":"p","y":null},"name":"a__t"}}"#;
    let at = |part: &str| {
        let start = memchr::memmem::find(line, part.as_bytes()).unwrap();
        start..start + part.len()
    };
    let forward = Forward {
        line: Cow::Borrowed(line),
        method: Cow::Borrowed("tools/call"),
        id: at("7").start..at("7").end,
        progress: Some(at("\"p\"")),
        rename: Some((at("\"a__t\""), br#""t""#[..].into())),
    };
    let sent = pair.peer.forward("x", &forward).unwrap();
    assert_eq!(
        std::str::from_utf8(&sent.line).unwrap(),
        "{\"x\":1.0,\"id\":\"mcpvisor-2\",\"jsonrpc\":\"2.0\",\"method\":\"tools/call\",\"params\":{\"_meta\":{\"progressToken\":\"mcpvisor-2\",\"y\":null},\"name\":\"t\"}}\n"
    );
    assert_eq!(pair.peer.waiter(sent.number), Some(&"x"));
}

#[test]
fn the_configured_era_decides_how_the_handshake_begins() {
    let mut legacy: Peer<&str> = Peer::default();
    assert_eq!(value(&legacy.begin(EraChoice::Legacy).unwrap())["method"], "initialize");
    let refusal = br#"{"jsonrpc":"2.0","id":"mcpvisor-1","error":{"code":-32601,"message":"no"}}"#;
    assert!(words(legacy.handle_line(refusal))[0].starts_with("failed: "), "it is not asked the modern way");

    let mut modern: Peer<&str> = Peer::default();
    assert_eq!(value(&modern.begin(EraChoice::Modern).unwrap())["method"], "server/discover");
    assert!(
        words(modern.handle_line(refusal))[0].starts_with("failed: the server refused the handshake: no")
    );
}

/// One that is known to be modern is asked with `server/discover` first, and with `initialize` where that is refused. One that refuses
/// both may have locked on the wrong era.
#[test]
fn a_server_that_was_modern_is_asked_the_other_way_round() {
    let refusal = |id: u64| {
        format!(r#"{{"jsonrpc":"2.0","id":"mcpvisor-{id}","error":{{"code":-32601,"message":"no {id}"}}}}"#)
    };
    let modern = || {
        let mut peer: Peer<&str> = Peer::default();
        assert_eq!(value(&peer.begin(EraChoice::ModernFirst).unwrap())["method"], "server/discover");
        assert_eq!(peer.handshake_step(), Some("server/discover"));
        peer
    };
    let mut peer = modern();
    let result = r#"{"jsonrpc":"2.0","id":"mcpvisor-1","result":{"supportedVersions":["2026-07-28"],"capabilities":{}}}"#;
    assert_eq!(words(peer.handle_line(result.as_bytes())), ["ready modern 2026-07-28 tools=false"]);
    let mut peer = modern();
    assert_eq!(words(peer.handle_line(refusal(1).as_bytes())), ["send initialize"]);
    assert_eq!(peer.handshake_step(), Some("initialize"));
    let result =
        r#"{"jsonrpc":"2.0","id":"mcpvisor-2","result":{"protocolVersion":"2025-06-18","capabilities":{}}}"#;
    let said = words(peer.handle_line(result.as_bytes()));
    assert_eq!(said, ["send notifications/initialized", "ready legacy 2025-06-18 tools=false"]);
    let mut peer = modern();
    let _ = peer.handle_line(refusal(1).as_bytes());
    let line = refusal(2);
    let events = peer.handle_line(line.as_bytes());
    let [PeerEvent::HandshakeFailed(HandshakeError::Locked(why))] = &events[..] else { panic!("{events:?}") };
    assert!(why.to_string().contains("no 2"), "{why}");
    // The usual way round: of both refusals that of `initialize` is told.
    let mut pair = Pair::begun();
    assert_eq!(pair.refuse(-32601, &json!(null)), ["send server/discover"]);
    let line = refusal(2);
    let events = pair.peer.handle_line(line.as_bytes());
    let [PeerEvent::HandshakeFailed(HandshakeError::Locked(why))] = &events[..] else { panic!("{events:?}") };
    assert!(why.to_string().contains("refused the handshake: no\\x1b"), "{why}");
}

#[test]
fn noise_is_counted_and_shown_and_a_glued_message_preferred() {
    let mut pair = Pair::begun();
    for line in
        [&b"\x1b[1mbanner"[..], b"more", b"Starting... {\"jsonrpc\":\"2.0\",\"id\":1}", b"x {\"jsonrpc\":2}"]
    {
        assert!(pair.peer.handle_line(line).is_empty());
        if line == b"more" {
            assert_eq!(pair.peer.noise(), Some("\\x1b[1mbanner"));
        }
    }
    assert_eq!(pair.peer.counters().noise, 4);
    assert_eq!(pair.peer.noise(), Some("Starting... {\"jsonrpc\":\"2.0\",\"id\":1}"));
}

fn over(head: &str, tail: &str) -> TooLong {
    TooLong { bytes: 9_999, head: head.into(), tail: tail.into() }
}

#[test]
fn an_over_long_line_fails_its_request_alone() {
    let mut pair = Pair::ready();
    pair.call("a");
    pair.call("b");
    let said = words(
        pair.peer
            .handle_too_long(&over(r#"{"jsonrpc":"2.0","id":"mcpvisor-3","result":{"t":"x"#, "x\"}}"), 100),
    );
    assert_eq!(said, ["b too long 9999"]);
    assert!(words(pair.peer.handle_too_long(&over("xxxx", "xxxx"), 100)).is_empty(), "noise fails nothing");
    let said = words(
        pair.peer
            .handle_too_long(&over(r#"{"result":{"t":"x"#, r#"x"},"jsonrpc":"2.0","id":"mcpvisor-2"}"#), 100),
    );
    assert_eq!(said, ["a too long 9999"]);
    assert_eq!((pair.peer.counters().too_long, pair.peer.counters().noise), (3, 1));
}

#[test]
fn an_over_long_line_without_an_id_fails_the_only_request() {
    let nameless = over(r#"{"result":{"t":"x"#, "x");
    let mut pair = Pair::ready();
    pair.call("a");
    pair.call("b");
    assert!(pair.peer.handle_too_long(&nameless, 100).is_empty());
    pair.hear(&answer(3, "B"));
    assert_eq!(words(pair.peer.handle_too_long(&nameless, 100)), ["a too long 9999"]);
}

#[test]
fn an_over_long_request_or_handshake_is_answered() {
    let mut pair = Pair::begun();
    let request = over(r#"{"jsonrpc":"2.0","id":7,"method":"sampling/createMessage","params":{"x":"#, "}}");
    assert_eq!(words(pair.peer.handle_too_long(&request, 100)), ["send answer 7 -32600"]);
    let said = words(pair.peer.handle_too_long(&over(r#"{"id":"mcpvisor-1","result":{"x"#, "}}"), 100));
    assert!(said[0].contains("9999 bytes"), "{said:?}");
}

/// A flood of answers, notifications and noise leaves nothing behind (G43).
#[test]
fn memory_is_flat_under_floods() {
    let mut pair = Pair::ready();
    for round in 0..10_000u64 {
        let number = pair.call("x");
        if round % 2 == 0 {
            pair.peer.cancel(number, "");
        } else {
            pair.hear(&answer(round + 2, ""));
        }
        pair.peer.handle_line(b"noise");
    }
    assert_eq!(pair.peer.in_flight(), 0);
    assert!(pair.peer.pending.capacity() <= 64);
}

#[test]
fn an_answer_whose_head_alone_is_right_is_told_to_its_waiter() {
    let mut pair = Pair::ready();
    let number = pair.call("x");
    let line = format!("{{\"jsonrpc\":\"2.0\",\"id\":\"{number}\",\"result\":{{\"content\":[}}}}");
    assert_eq!(words(pair.peer.handle_line(line.as_bytes())), [format!("x unread \"{number}\"")]);
    assert_eq!((pair.peer.counters().noise, pair.peer.in_flight()), (1, 0));
    // Nobody waits for that number any more.
    assert!(pair.peer.handle_line(line.as_bytes()).is_empty());
}
