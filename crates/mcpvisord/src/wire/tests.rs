use super::*;
use crate::budget::Budget;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use std::io::{IoSlice, Write};
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream as StdStream;

fn pair() -> (StdStream, UnixStream) {
    let (ours, theirs) = StdStream::pair().unwrap();
    theirs.set_nonblocking(true).unwrap();
    (ours, UnixStream::from_std(theirs).unwrap())
}

fn send(stream: &StdStream, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(20))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(descriptors)));
    let sent = sendmsg(stream, &[IoSlice::new(bytes)], &mut control, SendFlags::empty()).unwrap();
    assert_eq!(sent, bytes.len());
}

fn wire(longest: usize) -> Wire {
    Wire::new(longest, Budget::new(0, 0).charge(0))
}

fn asks(line: &[u8]) -> bool {
    line.starts_with(b"fd")
}

async fn line(wire: &mut Wire, stream: &UnixStream) -> (String, usize, bool) {
    match wire.next(stream, asks).await.unwrap() {
        Received::Line(line) => {
            (String::from_utf8(line.bytes).unwrap(), line.descriptors.list.len(), line.descriptors.lost)
        }
        other => panic!("{other:?}"),
    }
}

/// A descriptor to send, and what tells that no copy of it is left.
fn watched() -> (std::io::PipeReader, std::io::PipeWriter) {
    std::io::pipe().unwrap()
}

fn all_closed(reader: &std::io::PipeReader) -> bool {
    rustix::io::ioctl_fionbio(reader, true).unwrap();
    match rustix::io::read(reader, &mut [0; 1]) {
        Ok(0) => true,
        Err(Errno::AGAIN) => false,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn lines_come_whole_however_they_are_cut() {
    let (mut ours, theirs) = pair();
    let mut wire = wire(100);
    ours.write_all(b"one\ntwo\n\nthr").unwrap();
    assert_eq!(line(&mut wire, &theirs).await.0, "one");
    assert_eq!(line(&mut wire, &theirs).await.0, "two");
    assert_eq!(line(&mut wire, &theirs).await.0, "");
    ours.write_all(b"ee\nrest").unwrap();
    assert_eq!(line(&mut wire, &theirs).await.0, "three");
    drop(ours);
    assert!(matches!(wire.next(&theirs, asks).await.unwrap(), Received::End));
}

#[tokio::test]
async fn a_line_over_the_cap_is_told_once_and_passed_over() {
    let (mut ours, theirs) = pair();
    let mut wire = wire(10);
    ours.write_all(b"0123456789\n01234567890\nnext\n").unwrap();
    assert_eq!(line(&mut wire, &theirs).await.0, "0123456789");
    assert!(matches!(wire.next(&theirs, asks).await.unwrap(), Received::TooLong));
    assert_eq!(line(&mut wire, &theirs).await.0, "next");
    let writer = std::thread::spawn(move || {
        ours.write_all(&vec![b'x'; 1 << 20]).unwrap();
        ours.write_all(b"\nlast\n").unwrap();
        ours
    });
    assert!(matches!(wire.next(&theirs, asks).await.unwrap(), Received::TooLong));
    assert_eq!(line(&mut wire, &theirs).await.0, "last");
    assert!(wire.buffer.capacity() <= 4 * READ, "the cap bounds the memory");
    drop(writer.join().unwrap());
}

#[tokio::test]
async fn descriptors_belong_to_the_line_that_they_came_with() {
    let (ours, theirs) = pair();
    let mut wire = wire(100);
    let file = std::fs::File::open("/dev/null").unwrap();
    // All in one read: the first line asks for none, the second has two, the third asks for what is not there.
    (&ours).write_all(b"plain\n").unwrap();
    send(&ours, b"fd a\n", &[file.as_fd(), file.as_fd()]);
    (&ours).write_all(b"fd b\n").unwrap();
    assert_eq!(line(&mut wire, &theirs).await, ("plain".into(), 0, false));
    assert_eq!(line(&mut wire, &theirs).await, ("fd a".into(), 2, false));
    assert_eq!(line(&mut wire, &theirs).await, ("fd b".into(), 0, false));
}

#[tokio::test]
async fn descriptors_that_nobody_asks_for_are_closed() {
    let (ours, theirs) = pair();
    let mut wire = wire(100);
    let (reader, writer) = watched();
    send(&ours, b"plain\n", &[writer.as_fd()]);
    drop(writer);
    assert!(!all_closed(&reader));
    assert_eq!(line(&mut wire, &theirs).await, ("plain".into(), 0, false));
    assert!(all_closed(&reader));
    (&ours).write_all(b"fd later\n").unwrap();
    assert_eq!(line(&mut wire, &theirs).await, ("fd later".into(), 0, false));
}

#[tokio::test]
async fn too_many_descriptors_are_told_to_be_lost() {
    let (ours, theirs) = pair();
    let mut wire = wire(1000);
    let (reader, writer) = watched();
    send(&ours, b"fd many\n", &[writer.as_fd(); 12]);
    let (text, _, lost) = line(&mut wire, &theirs).await;
    assert_eq!((text.as_str(), lost), ("fd many", true));
    // A line that never ends can't hold more than a few.
    for _ in 0..50 {
        send(&ours, b"x", &[writer.as_fd(); 2]);
        let next = wire.next(&theirs, asks);
        assert!(tokio::time::timeout(std::time::Duration::from_millis(1), next).await.is_err());
        let held: usize = wire.batches.iter().map(|batch| batch.descriptors.list.len()).sum();
        assert!(held <= MOST_DESCRIPTORS);
    }
    drop((wire, writer));
    assert!(all_closed(&reader));
}

/// Sends bytes without a newline and reads until the wire has taken them all: whether it said that there is no room.
async fn send_all(wire: &mut Wire, stream: &UnixStream, ours: &mut StdStream, count: usize) -> Option<Full> {
    let taken = |wire: &Wire| wire.position + (wire.buffer.len() - wire.start) as u64;
    let (mut refused, mut sent) = (None, taken(wire));
    for part in vec![b'x'; count].chunks(READ) {
        ours.write_all(part).unwrap();
        sent += part.len() as u64;
        let start = std::time::Instant::now();
        while taken(wire) < sent {
            assert!(start.elapsed().as_secs() < 10, "{} of {sent} bytes are taken", taken(wire));
            let pause = std::time::Duration::from_millis(1);
            match tokio::time::timeout(pause, wire.next(stream, asks)).await {
                Err(_) => {}
                Ok(Ok(Received::NoRoom(full))) => assert_eq!(refused.replace(full), None, "it is told once"),
                Ok(other) => panic!("{other:?}"),
            }
        }
    }
    refused
}

/// G43: what is beyond the allowance is paid for as long as it is held, by the line and then by whoever has it.
#[tokio::test]
async fn g43_a_long_line_is_paid_for_until_it_is_dropped() {
    const LONG: usize = ALLOWANCE + (600 << 10);
    let budget = Budget::new(1 << 20, 1 << 20);
    let (mut ours, theirs) = pair();
    let mut wire = Wire::new(1 << 20, budget.charge(1));
    assert_eq!(send_all(&mut wire, &theirs, &mut ours, ALLOWANCE).await, None);
    assert_eq!(budget.total(), 0, "the allowance is free");
    assert_eq!(send_all(&mut wire, &theirs, &mut ours, LONG - ALLOWANCE).await, None);
    let paid = budget.total();
    assert!(LONG <= wire.buffer.capacity() && wire.buffer.capacity() <= paid + FREE, "{paid}");
    ours.write_all(b"\nnext\n").unwrap();
    let Received::Line(long) = wire.next(&theirs, asks).await.unwrap() else { panic!("it is a line") };
    assert_eq!(long.bytes.len(), LONG);
    assert_eq!(line(&mut wire, &theirs).await.0, "next");
    assert!(budget.total() >= LONG - FREE, "whoever has the line pays for it");
    drop(long);
    assert_eq!(budget.total(), 0);
    assert_eq!(send_all(&mut wire, &theirs, &mut ours, 300 << 10).await, None);
    assert!(budget.total() > 0);
    drop(wire);
    assert_eq!(budget.total(), 0);
}

/// G39, G43: where others hold all, a long line is refused and dropped as it comes, and the stream goes on; a line within the
/// allowance always finds room.
#[tokio::test]
async fn g43_a_line_without_room_is_dropped_and_a_short_one_always_has_room() {
    let budget = Budget::new(300 << 10, 250 << 10);
    let (mut theirs_first, first) = pair();
    let mut hoard = Wire::new(1 << 20, budget.charge(1));
    assert_eq!(send_all(&mut hoard, &first, &mut theirs_first, 300 << 10).await, None);
    for (uid, reason) in [(1, Full::User), (2, Full::Total)] {
        let (mut ours, theirs) = pair();
        let mut wire = Wire::new(1 << 20, budget.charge(uid));
        let before = budget.total();
        assert_eq!(send_all(&mut wire, &theirs, &mut ours, 500 << 10).await, Some(reason));
        assert!(wire.buffer.capacity() <= FREE && budget.total() == before, "what was dropped is not held");
        ours.write_all(b"\n").unwrap();
        let short = "z".repeat(ALLOWANCE);
        for _ in 0..3 {
            ours.write_all(short.as_bytes()).unwrap();
            ours.write_all(b"\n").unwrap();
            assert_eq!(line(&mut wire, &theirs).await.0, short);
        }
    }
}
