use super::*;
use proptest::prelude::*;

/// Owned frames, for comparing.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Seen {
    Line(Vec<u8>),
    TooLong(TooLong),
}

fn feed(framer: &mut Framer, mut input: &[u8], seen: &mut Vec<Seen>) {
    while let Some(frame) = framer.next_frame(&mut input) {
        seen.push(match frame {
            Frame::Line(line) => Seen::Line(line.to_vec()),
            Frame::TooLong(over) => Seen::TooLong(over),
        });
    }
    assert!(input.is_empty());
}

fn whole(cap: usize, input: &[u8]) -> (Vec<Seen>, u64) {
    let (mut framer, mut seen) = (Framer::new(cap), Vec::new());
    feed(&mut framer, input, &mut seen);
    (seen, framer.finish())
}

fn line(text: &str) -> Seen {
    Seen::Line(text.as_bytes().to_vec())
}

#[test]
fn lines_end_with_lf_or_crlf_and_empty_ones_are_skipped() {
    let (seen, torn) = whole(100, b"one\r\n\n \t\r\ntwo\n\r\nthree\r\r\nfour");
    assert_eq!(seen, [line("one"), line("two"), line("three\r")]);
    assert_eq!(torn, 4);
}

#[test]
fn one_byte_order_mark_at_the_start_is_dropped_and_no_other() {
    let (seen, _) = whole(100, b"\xef\xbb\xbf\xef\xbb\xbfa\n\xef\xbb\xbfb\n");
    assert_eq!(seen, [line("\u{feff}a"), line("\u{feff}b")]);
    let (seen, _) = whole(100, b"\xef\xbb\xbf\r\n\xef\xbb\xbfb\n");
    assert_eq!(seen, [line("\u{feff}b")]);
}

#[test]
fn an_over_long_line_is_told_once_its_end_is_seen_and_the_stream_goes_on() {
    let mut input = vec![b'x'; 10_000];
    input.extend_from_slice(b"end\nnext\n");
    let (seen, torn) = whole(9_000, &input);
    let [Seen::TooLong(over), next] = &seen[..] else { panic!("{seen:?}") };
    assert_eq!((over.bytes, over.head.len(), over.tail.len()), (10_003, HEAD, TAIL));
    assert!(over.tail.ends_with(b"xend"));
    assert_eq!((next, torn), (&line("next"), 0));
}

#[test]
fn a_line_of_exactly_the_cap_passes() {
    assert_eq!(whole(4, b"four\n").0, [line("four")]);
    assert!(matches!(whole(4, b"five!\n").0[..], [Seen::TooLong(_)]));
}

#[test]
fn an_endless_line_is_not_buffered() {
    let mut framer = Framer::new(10_000);
    let mut seen = Vec::new();
    for _ in 0..10_000 {
        feed(&mut framer, &[b'x'; 1000], &mut seen);
        assert!(framer.buffered() <= 20_000);
    }
    assert!(seen.is_empty());
    assert_eq!(framer.finish(), 10_000_000);
}

#[test]
fn the_buffer_shrinks_after_a_big_line() {
    let mut framer = Framer::new(1 << 20);
    let mut seen = Vec::new();
    feed(&mut framer, &[b'x'; 1 << 19], &mut seen);
    assert!(framer.buffered() >= 1 << 19);
    feed(&mut framer, b"\n", &mut seen);
    assert_eq!((seen.len(), framer.buffered()), (1, 0));
}

#[test]
fn a_whole_line_of_one_read_is_not_copied() {
    let mut framer = Framer::new(100);
    feed(&mut framer, b"one\ntwo\n", &mut Vec::new());
    assert_eq!(framer.buffered(), 0);
}

fn stream() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        Just(b"\n".to_vec()),
        Just(b"\r\n".to_vec()),
        Just(b"\xef\xbb\xbf".to_vec()),
        Just(b" ".to_vec()),
        "[a-z\u{e9}\u{20ac}]{0,12}".prop_map(String::into_bytes),
        proptest::collection::vec(any::<u8>(), 0..30),
        Just(vec![b'z'; 700]),
    ];
    proptest::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

proptest! {
    /// However a stream is cut into reads, it gives the same lines.
    #[test]
    fn splitting_changes_nothing(input in stream(), cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..12)) {
        for cap in [8, 600, 5000] {
            let expected = whole(cap, &input);
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(input.len() + 1)).collect();
            cuts.sort_unstable();
            let (mut framer, mut seen, mut from) = (Framer::new(cap), Vec::new(), 0);
            for cut in cuts.into_iter().chain([input.len()]) {
                feed(&mut framer, &input[from..cut], &mut seen);
                from = cut;
            }
            prop_assert_eq!(&(seen, framer.finish()), &expected);

            let (mut framer, mut seen) = (Framer::new(cap), Vec::new());
            for byte in input.chunks(1) {
                feed(&mut framer, byte, &mut seen);
            }
            prop_assert_eq!(&(seen, framer.finish()), &expected);
        }
    }

    /// Every byte is in a line, in a separator or torn off: nothing is lost or made up.
    #[test]
    fn lines_are_those_of_a_plain_split(input in stream()) {
        let cap = 5000;
        let text = input.strip_prefix(BOM).unwrap_or(&input);
        let mut pieces: Vec<&[u8]> = text.split(|&byte| byte == b'\n').collect();
        pieces.pop();
        let expected: Vec<Seen> = pieces.into_iter()
            .filter(|piece| piece.len() <= cap)
            .map(|piece| piece.strip_suffix(b"\r").unwrap_or(piece))
            .filter(|piece| !piece.iter().all(u8::is_ascii_whitespace))
            .map(|piece| Seen::Line(piece.to_vec())).collect();
        let seen: Vec<Seen> = whole(cap, &input).0.into_iter().filter(|seen| matches!(seen, Seen::Line(_))).collect();
        prop_assert_eq!(seen, expected);
    }
}
