use super::*;

fn head<'a>(kind: Kind, method: &'a str, id: &'a str) -> Head<'a> {
    Head { class: Class::Message, kind, method: method.as_bytes(), id: id.as_bytes(), bytes: 10 }
}

fn scanned(log: &FrameLog, way: Way, head: &Head<'_>) {
    log.watch(Instant::now()).line(way, head);
}

#[test]
fn an_answer_is_told_with_what_it_answers_and_how_long_that_took() {
    let log = FrameLog::default();
    scanned(&log, Way::Up, &head(Kind::Request, "tools/call", "1"));
    // The server's own ids collide with the client's.
    scanned(&log, Way::Down, &head(Kind::Request, "roots/list", "1"));
    scanned(&log, Way::Up, &head(Kind::Response, "", "1"));
    scanned(&log, Way::Down, &head(Kind::Notification, "notifications/progress", ""));
    log.watch(Instant::now() + Duration::from_millis(3)).line(Way::Down, &head(Kind::Response, "", "1"));
    scanned(&log, Way::Down, &head(Kind::Response, "", "1"));
    scanned(&log, Way::Down, &Head { class: Class::Blank, ..head(Kind::Other, "", "") });
    let frames = log.last(MOST);
    let told: Vec<_> =
        frames.iter().map(|frame| (frame.to_server, frame.kind, frame.method.as_deref())).collect();
    assert_eq!(
        told,
        [
            (true, FrameKind::Request, Some("tools/call")),
            (false, FrameKind::Request, Some("roots/list")),
            (true, FrameKind::Response, Some("roots/list")),
            (false, FrameKind::Notification, Some("notifications/progress")),
            (false, FrameKind::Response, Some("tools/call")),
            (false, FrameKind::Response, None),
        ]
    );
    assert!(frames[4].latency.unwrap() >= Duration::from_millis(3));
    assert_eq!(
        (frames[5].latency, frames[5].id.as_deref()),
        (None, Some("1")),
        "a second answer answers nothing"
    );
    assert!(frames[0].at <= frames[4].at && frames[5].at <= SystemTime::now());
    assert_eq!(log.last(2).len(), 2);
}

#[test]
fn the_last_are_kept_in_their_order_within_the_bound() {
    let log = FrameLog::default();
    let long = "m".repeat(1000);
    for number in 0..1000 {
        scanned(&log, Way::Up, &head(Kind::Request, &long, &number.to_string()));
    }
    let frames = log.last(usize::MAX);
    let ids: Vec<_> = frames.iter().map(|frame| frame.id.clone().unwrap()).collect();
    let wanted: Vec<_> = (1000 - MOST..1000).map(|number| number.to_string()).collect();
    assert_eq!(ids, wanted);
    assert_eq!(frames[0].method.as_ref().unwrap().len(), METHOD);
    // What answers a frame that is gone is told without it.
    scanned(&log, Way::Down, &head(Kind::Response, "", "0"));
    assert_eq!(log.last(1)[0].latency, None);
    scanned(&log, Way::Down, &head(Kind::Response, "", "999"));
    assert!(log.last(1)[0].latency.is_some());
    let ring = log.ring();
    assert_eq!((ring.rows.entries.capacity(), ring.rows.asked.capacity()), (MOST, MOST));
    drop(ring);
    log.clear();
    assert_eq!((log.last(MOST).len(), log.ring().rows.entries.capacity()), (0, 0));
}

#[test]
fn lines_of_ours_are_read_for_what_they_are() {
    let log = FrameLog::default();
    let mut peer = mcpvisor_mcp::Peer::<()>::default();
    let line = peer.begin(mcpvisor_mcp::EraChoice::Legacy).unwrap();
    log.said(&line);
    log.said(br#"{"result":{"roots":["x"]},"jsonrpc":"2.0","id":7}"#);
    log.said_all(
        b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\"}\n\n{\"id\":1,\"error\":{}}\n",
    );
    let told: Vec<_> = log.last(MOST).into_iter().map(|frame| (frame.kind, frame.method, frame.id)).collect();
    let text = |text: &str| Some(text.to_owned());
    assert_eq!(
        told,
        [
            (FrameKind::Request, text("initialize"), text("\"mcpvisor-1\"")),
            (FrameKind::Response, None, text("7")),
            (FrameKind::Notification, text("notifications/cancelled"), None),
            (FrameKind::Response, None, text("1")),
        ]
    );
}

#[test]
fn a_request_of_ours_is_noted_by_its_number() {
    let log = FrameLog::default();
    let mut peer = mcpvisor_mcp::Peer::<()>::default();
    let mut lines = vec![peer.begin(mcpvisor_mcp::EraChoice::Legacy).unwrap()];
    let answer = br#"{"jsonrpc":"2.0","id":"mcpvisor-1","result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"f","version":"1"}}}"#;
    let message = Message::parse(answer);
    peer.handle_message(&message, answer);
    let arguments = serde_json::value::to_raw_value(&"x".repeat(100_000)).unwrap();
    let sent = peer.call_tool((), "t", Some(&arguments)).unwrap();
    let size = sent.line.len() as u64;
    log.asked("tools/call", sent.number, sent.line.len());
    log.said(&lines.remove(0));
    let frames = log.last(MOST);
    assert_eq!((frames[0].method.as_deref(), frames[0].bytes), (Some("tools/call"), size));
    assert_eq!(frames[0].id.as_deref(), Some("\"mcpvisor-2\""));
    assert_eq!(frames[1].method.as_deref(), Some("initialize"), "what came before does not run into it");
    log.heard(Instant::now(), &Message::parse(br#"{"jsonrpc":"2.0","id":"mcpvisor-2","result":{}}"#), 5);
    assert_eq!(log.last(1)[0].method.as_deref(), Some("tools/call"));
    assert!(log.last(1)[0].latency.is_some());
}

#[test]
fn no_character_is_cut_in_two() {
    let log = FrameLog::default();
    scanned(&log, Way::Up, &head(Kind::Notification, &format!("{}é", "m".repeat(63)), ""));
    assert_eq!(log.last(1)[0].method.as_deref(), Some("m".repeat(63).as_str()));
}
