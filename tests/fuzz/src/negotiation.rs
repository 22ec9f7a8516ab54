//! The handshake with a server that says anything.
use crate::script;
use mcpvisor_mcp::peer::{Answer, Peer, PeerEvent, Sent};
use mcpvisor_mcp::{EraChoice, Frame, Framer, ListKind, Message, Pages};

/// The longest line, so that over-long ones come too.
const CAP: usize = 512;

/// The first byte says how the handshake begins. A line that begins with `<` is said by the server; `l` asks for a page, `c` gives the
/// oldest request up.
///
/// # Panics
/// Where the handshake ends twice, a request has two answers or an answer to none, or a line that is to be written is none.
pub fn run(input: &[u8]) {
    let Some((first, rest)) = input.split_first() else { return };
    let era = match first % 3 {
        0 => EraChoice::Auto,
        1 => EraChoice::Legacy,
        _ => EraChoice::Modern,
    };
    let mut peer = Peer::<usize>::default();
    let mut asked: Vec<(usize, mcpvisor_mcp::RequestNumber)> = Vec::new();
    let mut next = 0;
    let mut over = false;
    line(&peer.begin(era).expect("it begins once"));
    assert!(peer.begin(era).is_none());
    for (what, text) in script(rest) {
        match what {
            b'l' => {
                next += 1;
                if let Ok(Sent { number, line: text }) = peer.list(next, ListKind::Tools, None) {
                    line(&text);
                    asked.push((next, number));
                }
            }
            b'c' if !asked.is_empty() => {
                let (token, number) = asked.remove(0);
                let cancelled = peer.cancel(number, "given up").expect("it is pending");
                assert_eq!(cancelled.token, token);
                line(&cancelled.line);
            }
            _ => {
                let text = [text, b"\n"].concat();
                let mut input = &text[..];
                let mut framer = Framer::new(CAP);
                match framer.next_frame(&mut input) {
                    Some(Frame::Line(said)) => {
                        let message = Message::parse(said);
                        let events = peer.handle_message(&message, said);
                        for event in events {
                            heard(event, &mut asked, &mut over);
                        }
                    }
                    Some(Frame::TooLong(long)) => {
                        for event in peer.handle_too_long(&long, CAP) {
                            heard(event, &mut asked, &mut over);
                        }
                    }
                    None => {}
                }
            }
        }
        assert_eq!(peer.in_flight(), asked.len());
        assert!(peer.noise().is_none_or(|noise| !noise.chars().any(char::is_control)));
        assert!(peer.negotiated().is_none() || over);
    }
    assert_eq!(peer.fail_all().len(), asked.len());
}

fn heard(
    event: PeerEvent<'_, usize>,
    asked: &mut Vec<(usize, mcpvisor_mcp::RequestNumber)>,
    over: &mut bool,
) {
    match event {
        PeerEvent::Send(text) => line(&text),
        PeerEvent::Ready(_) | PeerEvent::HandshakeFailed(_) => {
            assert!(!std::mem::replace(over, true), "a handshake ends once");
        }
        PeerEvent::Answered { token, answer } => {
            let at = asked
                .iter()
                .position(|(waits, _)| *waits == token)
                .expect("it is the answer of one that waits");
            asked.remove(at);
            if let Answer::Line { outcome: Ok(result), .. } = answer {
                let mut pages = Pages::new(ListKind::Tools);
                if pages.add(result).is_ok() {
                    let _ = pages.finish();
                }
            }
        }
        PeerEvent::Changed(_) | PeerEvent::Told(_) | PeerEvent::Asked(_) => {}
    }
}

/// What is written is one line of JSON.
fn line(text: &[u8]) {
    let Some((b'\n', text)) = text.split_last() else { panic!("a line has an end") };
    assert!(!text.contains(&b'\n'), "a line has one end");
    assert!(
        serde_json::from_slice::<Box<serde_json::value::RawValue>>(text).is_ok(),
        "{}",
        String::from_utf8_lossy(text)
    );
}
