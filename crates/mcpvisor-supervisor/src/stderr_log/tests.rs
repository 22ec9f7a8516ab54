use super::ring::{MAX_BYTES, MAX_LINE, MAX_LINES};
use super::*;
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use std::time::{Duration, Instant};

fn pipe() -> (OwnedFd, OwnedFd) {
    pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).unwrap()
}

/// The log and the server's end, which blocks as a server's does.
fn log() -> (StderrLog, std::fs::File) {
    log_with(None)
}

fn log_with(tee: Option<OwnedFd>) -> (StderrLog, std::fs::File) {
    let (ours, theirs) = pipe_with(PipeFlags::CLOEXEC).unwrap();
    let flags = rustix::fs::fcntl_getfl(&ours).unwrap();
    rustix::fs::fcntl_setfl(&ours, flags | rustix::fs::OFlags::NONBLOCK).unwrap();
    (StderrLog::start(ours, tee).unwrap(), theirs.into())
}

fn write(mut file: &std::fs::File, bytes: &[u8]) {
    std::io::Write::write_all(&mut file, bytes).unwrap();
}

async fn until(condition: impl Fn() -> bool) {
    let waiting = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), waiting).await.expect("should have happened by now");
}

fn texts(lines: &[StderrLine]) -> Vec<String> {
    lines.iter().map(|line| String::from_utf8_lossy(&line.bytes).into_owned()).collect()
}

#[tokio::test]
async fn lines_are_kept_and_the_tail_is_text() {
    let (log, server) = log();
    write(&server, b"one\r\n\x1b[31mtwo\x07\nnot \xff utf-8\n\nunfinished");
    log.drain();
    assert_eq!(log.tail(1000), "one\n\x1b[31mtwo\x07\nnot \u{fffd} utf-8\n\nunfinished");
    assert_eq!(texts(&log.lines(3)), ["not \u{fffd} utf-8", "", "unfinished"]);
    assert_eq!(log.lines(100)[0].bytes[..], b"one\r"[..], "as the server wrote it");
    assert!(log.lines(0).is_empty());
    log.close();
}

#[tokio::test]
async fn the_tail_is_bounded_and_cut_at_lines() {
    let (log, server) = log();
    write(&server, "first\nsecond\nthird é€\n".as_bytes());
    log.drain();
    assert_eq!(log.tail(18), "second\nthird é€");
    assert_eq!(log.tail(17), "second\nthird é€".split_once('\n').unwrap().1);
    assert_eq!(log.tail(4), "€", "a character is not cut");
    assert_eq!(log.tail(0), "");
    log.close();
}

/// A message that was written just before the exit is read though the runtime has not come to it.
#[tokio::test]
async fn draining_reads_what_is_there_without_waiting_for_the_end() {
    let (log, server) = log();
    for n in 0..100 {
        write(&server, format!("last words {n}\n").as_bytes());
        log.drain();
        assert_eq!(texts(&log.lines(1)), [format!("last words {n}")]);
    }
    drop(server);
    log.drain();
    log.close();
    log.drain();
    assert_eq!(texts(&log.lines(1)), ["last words 99"]);
}

/// Scenario F, 12: a flood is drained as fast as it comes, in bounded memory, and what was dropped is counted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_with_and_without_newlines() {
    const FLOOD: usize = 50 << 20;
    let (log, server) = log();
    let began = Instant::now();
    let writer = std::thread::spawn(move || {
        let long = vec![b'x'; 1 << 20];
        for _ in 0..FLOOD >> 20 {
            write(&server, &long);
        }
        write(&server, b"\n");
        let short = b"a line of the flood\n".repeat(50_000);
        for _ in 0..FLOOD / short.len() {
            write(&server, &short);
        }
        write(&server, b"the end\n");
    });
    until(|| writer.is_finished()).await;
    log.drain();
    let lines = log.lines(1000);
    assert_eq!(lines.len(), MAX_LINES);
    assert_eq!(texts(&lines[MAX_LINES - 1..]), ["the end"]);
    let pieces = (FLOOD / MAX_LINE) as u64;
    let shorts = (FLOOD / 1_000_000 * 50_000) as u64;
    let all = log.stats().dropped_lines + MAX_LINES as u64;
    assert!(all > shorts && all <= shorts + pieces + 2, "{all}");
    assert_eq!(lines[0].dropped, log.stats().dropped_lines);
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    log.close();
}

#[tokio::test]
async fn the_ring_is_bounded_in_bytes_and_long_lines_are_split() {
    let (log, server) = log();
    let writer = std::thread::spawn(move || {
        for _ in 0..20 {
            write(&server, &vec![b'y'; MAX_LINE]);
            write(&server, b"\n");
        }
        write(&server, &[b'z'; MAX_LINE + 10]);
        write(&server, b"\nlast\n");
    });
    until(|| writer.is_finished()).await;
    log.drain();
    let lines = log.lines(1000);
    let sizes: Vec<usize> = lines.iter().rev().take(4).map(|line| line.bytes.len()).collect();
    assert_eq!(sizes, [4, 10, MAX_LINE, MAX_LINE]);
    assert!(lines.iter().map(|line| line.bytes.len()).sum::<usize>() <= MAX_BYTES);
    assert_eq!(log.stats().dropped_lines, 23 - lines.len() as u64);
    log.close();
}

#[tokio::test]
async fn a_follower_sees_everything_once_until_the_end() {
    let (log, server) = log();
    write(&server, b"one\ntwo\nthree\nhal");
    log.drain();
    let mut follower = log.follow(2);
    write(&server, b"f\nfour\n");
    log.drain();
    write(&server, b"torn");
    log.close();
    let mut seen = Vec::new();
    while let Some(line) = follower.next().await {
        assert_eq!(line.dropped, 0);
        seen.push(line);
    }
    assert_eq!(texts(&seen), ["two", "three", "half", "four", "torn"]);
    let mut late = log.follow(1);
    assert_eq!(texts(&[late.next().await.unwrap()]), ["torn"]);
    assert_eq!(late.next().await, None);
}

/// G39: a follower that does not read loses lines and is told how many; nobody waits for it.
#[tokio::test]
async fn a_slow_follower_is_told_what_it_lost() {
    let (log, server) = log();
    let mut follower = log.follow(0);
    let writer = std::thread::spawn(move || {
        for n in 0..5000 {
            write(&server, format!("{n}\n").as_bytes());
        }
        server
    });
    until(|| writer.is_finished()).await;
    log.drain();
    for next in 0..256 {
        let line = follower.next().await.unwrap();
        assert_eq!((texts(std::slice::from_ref(&line)), line.dropped), (vec![next.to_string()], 0));
    }
    write(&writer.join().unwrap(), b"after\n");
    log.drain();
    let line = follower.next().await.unwrap();
    assert_eq!((texts(std::slice::from_ref(&line)), line.dropped), (vec!["after".to_owned()], 5000 - 256));
    log.close();
}

/// G39: a flood goes to those who follow it at a pace, and what it leaves out is counted; the last words are told in any case.
#[tokio::test]
async fn a_flood_is_thinned_for_its_followers() {
    let mut ring = ring::Ring::default();
    let mut follower = ring.follow(0);
    let start = SystemTime::now();
    let (mut told, mut dropped) = (0, 0);
    for number in 0..5000 {
        // A fifth of a second for all of them.
        ring.push(format!("{number}\n").as_bytes(), start + Duration::from_micros(number * 40));
        if let Some(line) = next_at_once(&mut follower) {
            (told, dropped) = (told + 1, dropped + line.dropped);
        }
    }
    assert!((1000..=1300).contains(&told), "{told} lines of 5000 were told");
    ring.push(b"later\n", start + Duration::from_secs(9));
    let line = next_at_once(&mut follower).unwrap();
    assert_eq!((&line.bytes[..], told + 1 + dropped + line.dropped), (&b"later"[..], 5001));
    // The server dies of it.
    for number in 0..5000 {
        ring.push(format!("{number}\n").as_bytes(), start + Duration::from_secs(9));
        next_at_once(&mut follower);
    }
    ring.push(b"panic: out of memory", start + Duration::from_secs(9));
    ring.end(start + Duration::from_secs(9));
    let last = follower.next().await.unwrap();
    assert_eq!((&last.bytes[..], last.dropped), (&b"panic: out of memory"[..], 4001));
    assert_eq!(follower.next().await, None);
}

fn next_at_once(follower: &mut Follower) -> Option<StderrLine> {
    use std::task::{Context, Poll, Waker};
    let mut next = std::pin::pin!(tokio::task::coop::unconstrained(follower.next()));
    match next.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(line) => line,
        Poll::Pending => None,
    }
}

#[tokio::test]
async fn the_end_of_the_stream_ends_followers() {
    let (log, server) = log();
    let mut follower = log.follow(10);
    write(&server, b"bye\n");
    drop(server);
    let line = tokio::time::timeout(Duration::from_secs(30), follower.next()).await.unwrap();
    assert_eq!(texts(&[line.unwrap()]), ["bye"]);
    assert_eq!(tokio::time::timeout(Duration::from_secs(30), follower.next()).await.unwrap(), None);
    assert_eq!(log.tail(10), "bye");
}

#[tokio::test]
async fn the_copy_is_byte_for_byte_and_dropped_when_it_does_not_fit() {
    let (read, tee) = pipe();
    let flags = rustix::fs::fcntl_getfl(&tee).unwrap();
    let shared = tee.try_clone().unwrap();
    let (log, server) = log_with(Some(tee));
    write(&server, b"raw \x1b\xff bytes");
    log.drain();
    let mut buffer = vec![0; 1 << 20];
    let count = rustix::io::read(&read, &mut buffer).unwrap();
    assert_eq!(&buffer[..count], b"raw \x1b\xff bytes");
    // Nobody reads the copy: the server is not held up.
    let writer = std::thread::spawn(move || {
        write(&server, &vec![b'x'; 1 << 20]);
        server
    });
    until(|| writer.is_finished()).await;
    log.drain();
    let copied = rustix::io::read(&read, &mut buffer).unwrap() as u64;
    assert_eq!(copied + log.stats().uncopied_bytes, 1 << 20);
    assert!(log.stats().uncopied_bytes > 0);
    assert_eq!(rustix::fs::fcntl_getfl(&shared).unwrap(), flags, "flags are not ours to change");
    // The client is gone: the log goes on.
    drop(read);
    write(&writer.join().unwrap(), b"more\n");
    log.drain();
    assert!(log.tail(100).ends_with("more"));
    log.close();
    drop(shared);
}

/// A copy that would block is not written to, whether it was so from the start or became so.
#[tokio::test]
async fn a_copy_that_would_block_is_not_used() {
    let (read, blocking) = pipe_with(PipeFlags::CLOEXEC).unwrap();
    let (log, server) = log_with(Some(blocking));
    write(&server, b"12345");
    log.drain();
    assert_eq!(log.stats().uncopied_bytes, 5);
    assert_eq!(rustix::io::ioctl_fionread(&read), Ok(0));
    log.close();

    let (read, tee) = pipe();
    let clients = tee.try_clone().unwrap();
    let (log, server) = log_with(Some(tee));
    write(&server, b"12345");
    log.drain();
    rustix::fs::fcntl_setfl(&clients, rustix::fs::OFlags::empty()).unwrap();
    write(&server, b"678");
    log.drain();
    assert_eq!((rustix::io::ioctl_fionread(&read), log.stats().uncopied_bytes), (Ok(5), 3));
    log.close();
}

#[tokio::test]
async fn closing_frees_the_pipe_though_an_escapee_holds_it() {
    let (log, server) = log();
    log.close();
    // The task that was told to end holds it until it has its turn.
    until(|| rustix::io::write(&server, b"x") == Err(Errno::PIPE)).await;
    log.close();
}
