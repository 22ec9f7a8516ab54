//! Ids followed in a conversation that passes through.
use crate::script;
use mcpvisor_mcp::relay::{Because, Conversation, Ended, HELD, OWN, Passed};

/// A line that begins with `>` is said by the client, one with `<` by the server; `]` and `[` are the same without the line's end. `g` closes
/// the gate, `s` settles, `e` ends the client's side, `d` the server's, `x` loses the client.
///
/// # Panics
/// Where what passes is not what came, or depends on how it was cut; where a permit is lost, doubled or made up; or where more is held
/// than is allowed.
pub fn run(input: &[u8]) {
    let whole = play(input, usize::MAX, MANY);
    let cut = play(input, 1, MANY);
    assert_eq!(whole.to_server, cut.to_server, "cuts change nothing on the way to the server");
    assert_eq!(whole.to_client, cut.to_client, "nor to the client");
    assert_eq!(whole.in_flight, cut.in_flight, "nor what is in flight");
    // Where there is little room, a line that came in pieces may have passed before it was seen to be one call too many.
    for size in [usize::MAX, 3] {
        let outcome = play(input, size, FEW);
        assert!(outcome.in_flight <= FEW + IN_BATCH, "calls are bounded, but for those of the last batch");
    }
}

#[derive(Default)]
struct Outcome {
    /// What passed, without lines of our own.
    to_server: Vec<u8>,
    to_client: Vec<u8>,
    in_flight: usize,
    admitted: u32,
}

/// So many calls may be in flight that no input comes to it, or so few that many do.
const MANY: usize = 1 << 20;
const FEW: usize = 4;
/// The most messages of a batch that are followed.
const IN_BATCH: usize = 1024;

fn play(input: &[u8], size: usize, most: usize) -> Outcome {
    let mut talk = Conversation::<u32>::new(most);
    let mut outcome = Outcome::default();
    let (mut from_client, mut from_server) = (Vec::new(), Vec::new());
    let mut open = true;
    let mut held: Vec<u32> = Vec::new();
    for (what, text) in script(input) {
        let text = if matches!(what, b'>' | b'<') { [text, b"\n"].concat() } else { text.to_vec() };
        match what {
            b'>' | b']' => {
                from_client.extend_from_slice(&text);
                for piece in text.chunks(size.min(text.len().max(1))) {
                    let mut piece = piece.to_vec();
                    let passed = talk.from_client(
                        &mut piece,
                        || {
                            if !open {
                                return Err(Because::Closing);
                            }
                            outcome.admitted += 1;
                            held.push(outcome.admitted);
                            Ok(outcome.admitted)
                        },
                        &mut (),
                    );
                    keep(&mut outcome.to_server, &passed, &piece);
                    own(&mut talk, &mut held);
                }
            }
            b'<' | b'[' => {
                from_server.extend_from_slice(&text);
                for piece in text.chunks(size.min(text.len().max(1))) {
                    let mut piece = piece.to_vec();
                    let passed = talk.from_server(&mut piece, &mut ());
                    keep(&mut outcome.to_client, &passed, &piece);
                    own(&mut talk, &mut held);
                }
            }
            b'g' => open = false,
            b's' => {
                open = false;
                talk.settle(Because::Settled);
            }
            b'e' => talk.client_ended(),
            b'd' => {
                talk.server_ended();
                assert_eq!(talk.in_flight(), 0);
                own(&mut talk, &mut held);
                break;
            }
            b'x' => talk.client_lost(),
            _ => {}
        }
        own(&mut talk, &mut held);
    }
    outcome.in_flight = talk.in_flight();
    assert_passes(&from_client, &outcome.to_server);
    assert_passes(&from_server, &outcome.to_client);
    talk.client_lost();
    talk.server_ended();
    own(&mut talk, &mut held);
    assert_eq!(talk.in_flight(), 0);
    assert_eq!(held, [0_u32; 0], "each permit is given back");
    outcome
}

fn keep(stream: &mut Vec<u8>, passed: &Passed, piece: &[u8]) {
    assert!(passed.len <= piece.len() && passed.ahead.len() <= HELD);
    stream.extend_from_slice(&passed.ahead);
    stream.extend_from_slice(&piece[..passed.len]);
}

/// Takes what the conversation has to say itself, and the calls that have ended.
fn own(talk: &mut Conversation<u32>, held: &mut Vec<u32>) {
    for lines in [talk.take_for_client(), talk.take_for_server()] {
        assert!(lines.len() <= 4 * OWN, "{} bytes of our own", lines.len());
        assert!(lines.is_empty() || lines.ends_with(b"\n"));
    }
    for ended in talk.take_ended() {
        let (Ended::Answered(permit) | Ended::Cancelled(permit) | Ended::NoCall(permit)) = ended;
        let at = held.iter().position(|one| *one == permit).expect("a permit ends once");
        held.swap_remove(at);
    }
}

/// What passed is whole lines of what came, in their order, and perhaps the beginning of one more.
fn assert_passes(came: &[u8], passed: &[u8]) {
    let mut came = came.split_inclusive(|byte| *byte == b'\n');
    for line in passed.split_inclusive(|byte| *byte == b'\n') {
        let found = came.any(|known| known == line || !line.ends_with(b"\n") && known.starts_with(line));
        assert!(found, "{:?} did not come", String::from_utf8_lossy(line));
    }
}
