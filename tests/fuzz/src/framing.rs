//! Lines out of reads of any size.
use mcpvisor_mcp::framing::{HEAD, TAIL};
use mcpvisor_mcp::salvage::salvage;
use mcpvisor_mcp::{Frame, Framer, TooLong};

/// The first byte is the cap, the second the size of the reads, the rest is the stream.
///
/// # Panics
/// Where the lines depend on how the stream was cut, or are not the stream's, or more is held than the cap allows.
pub fn run(input: &[u8]) {
    let [cap, size, stream @ ..] = input else { return };
    let cap = usize::from(*cap);
    let whole = lines(cap, stream.len().max(1), stream);
    let cut = lines(cap, usize::from(*size) + 1, stream);
    assert_eq!(whole, cut, "cuts change nothing");
    let mut expected = expected(stream);
    let rest = expected.pop().unwrap_or_default();
    assert_eq!(whole.1, rest.len() as u64, "what is left at the end is dropped");
    let mut seen = whole.0.into_iter();
    for (index, line) in expected.into_iter().enumerate() {
        if line.len() > cap {
            let Some(Seen::TooLong(over)) = seen.next() else { panic!("no line over the cap is lost") };
            assert_eq!(over.bytes, line.len() as u64);
            assert_eq!(over.head, line[..line.len().min(HEAD)]);
            assert_eq!(over.tail, line[line.len().saturating_sub(TAIL)..]);
            continue;
        }
        let line = if index == 0 { line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line) } else { line };
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let Some(Seen::Line(seen)) = seen.next() else { panic!("no line is lost") };
        assert_eq!(seen, line);
    }
    assert_eq!(seen.next(), None, "no line is made up");
}

#[derive(Debug, PartialEq)]
enum Seen {
    Line(Vec<u8>),
    TooLong(TooLong),
}

/// What comes of the stream in reads of this size, and how much is left at its end.
fn lines(cap: usize, size: usize, stream: &[u8]) -> (Vec<Seen>, u64) {
    let mut framer = Framer::new(cap);
    let mut seen = Vec::new();
    for mut read in stream.chunks(size) {
        while let Some(frame) = framer.next_frame(&mut read) {
            seen.push(match frame {
                Frame::Line(line) => Seen::Line(line.to_vec()),
                Frame::TooLong(over) => {
                    let _ = salvage(&over);
                    Seen::TooLong(over)
                }
            });
        }
        assert!(framer.buffered() <= (2 * cap).max(64), "{} bytes are held", framer.buffered());
    }
    (seen, framer.finish())
}

fn expected(stream: &[u8]) -> Vec<&[u8]> {
    stream.split(|byte| *byte == b'\n').collect()
}
