//! What kind of message a line is.
use mcpvisor_mcp::peer::PlainAnswer;
use mcpvisor_mcp::relay::scan::{Class, Kind, LONGEST_ID, Mark, Scanner};
use mcpvisor_mcp::text::printable;
use mcpvisor_mcp::{Id, Message};
use serde_json::Value;
use serde_json::value::RawValue;

/// The input is a line.
///
/// # Panics
/// Where a message is no JSON-RPC 2.0, or the reader that looks at the top level alone takes it for something else, whole or in pieces;
/// or where a control character would be shown.
pub fn run(input: &[u8]) {
    if input.contains(&b'\n') {
        return;
    }
    let shown = printable(input, 300);
    assert!(!shown.chars().any(char::is_control), "{shown:?}");
    let message = Message::parse(input);
    let scanned = scan(input);
    assert_eq!(scanned, scan_in_pieces(input), "cuts change nothing");
    if let Some(plain) = PlainAnswer::read(input)
        && let Message::Response { raw_id, .. } = &message
    {
        assert_eq!(raw_id.map(RawValue::get), Some(plain.raw_id), "a head is read as the whole is");
    }
    let (kind, raw_id) = match &message {
        Message::Request { raw_id, .. } => (Kind::Request, Some(*raw_id)),
        Message::Notification { .. } => (Kind::Notification, None),
        Message::Response { raw_id: Some(raw_id), .. } => (Kind::Response, Some(*raw_id)),
        Message::Response { raw_id: None, .. } | Message::Noise(_) => return,
    };
    if let Ok(value) = serde_json::from_slice::<Value>(input) {
        assert_eq!(value["jsonrpc"], "2.0");
    }
    if let Some(raw_id) = raw_id
        && let Some(id) = Id::from_json(raw_id.get())
    {
        assert_eq!(Id::from_json(&id.to_json()), Some(id), "an id survives");
    }
    let long = raw_id.is_some_and(|raw_id| raw_id.get().len() > LONGEST_ID);
    let (class, scanned_kind, id) = &scanned;
    assert_eq!(*class, Class::Message);
    assert_eq!(*scanned_kind, if long { Kind::Unfollowed } else { kind }, "both readers agree");
    if let (Some(raw_id), false) = (raw_id, long) {
        assert_eq!(id, raw_id.get().as_bytes(), "on the id, too");
    }
}

type Scanned = (Class, Kind, Vec<u8>);

fn told(scanner: &Scanner) -> Scanned {
    // The id of what is no request and no answer means nothing: it may have been cut off.
    let followed = matches!(scanner.kind(), Kind::Request | Kind::Response);
    (scanner.class(), scanner.kind(), if followed { scanner.id().to_vec() } else { Vec::new() })
}

fn scan(line: &[u8]) -> Scanned {
    let mut scanner = Scanner::default();
    let mut input = [line, b"\n"].concat();
    loop {
        let (used, mark) = scanner.feed(&input);
        assert!(used > 0, "it goes on");
        input.drain(..used);
        match mark {
            Some(Mark::LineEnd) => break,
            Some(Mark::Element) => {}
            None => panic!("a line ends at its LF"),
        }
    }
    assert!(input.is_empty());
    told(&scanner)
}

fn scan_in_pieces(line: &[u8]) -> Scanned {
    let mut scanner = Scanner::default();
    let mut known = None;
    for byte in line {
        let (used, mark) = scanner.feed(std::slice::from_ref(byte));
        assert!(used == 1 && mark != Some(Mark::LineEnd));
        known = known.or(scanner.known());
    }
    assert_eq!(scanner.feed(b"\n"), (1, Some(Mark::LineEnd)));
    assert!(known.is_none_or(|known| known == scanner.kind()), "what is certain stays so");
    told(&scanner)
}
