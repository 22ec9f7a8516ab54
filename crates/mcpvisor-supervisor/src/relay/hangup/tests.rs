use super::*;
use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType, shutdown, socketpair};
use rustix::pipe::{PipeFlags, pipe_with};
use std::os::fd::AsFd;
use std::sync::Arc;

fn pair() -> (OwnedFd, OwnedFd) {
    pipe_with(PipeFlags::CLOEXEC).unwrap()
}

fn sockets() -> (OwnedFd, OwnedFd) {
    socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap()
}

fn copy(fd: impl AsFd) -> OwnedFd {
    rustix::io::fcntl_dupfd_cloexec(fd, 3).unwrap()
}

async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), future).await.expect("should have happened")
}

/// The watch has not fired, and the runtime has had every chance to see that it would.
async fn quiet(watch: &HangUp) {
    assert!(tokio::time::timeout(Duration::from_millis(30), watch.hung_up()).await.is_err());
}

#[tokio::test]
async fn a_pipes_hang_up_is_told_with_unread_data_inside() {
    let (server, client) = pair();
    let watch = HangUp::new(copy(&server)).unwrap();
    rustix::io::write(&client, b"request\n").unwrap();
    quiet(&watch).await;
    assert_eq!(watch.unread(), 8);
    drop(client);
    soon(watch.hung_up()).await;
    soon(watch.hung_up()).await;
    assert_eq!(watch.unread(), 8);
    let drained = tokio::spawn(async move {
        watch.drained().await;
        watch.unread()
    });
    let mut buffer = [0; 64];
    assert_eq!(rustix::io::read(&server, &mut buffer[..]).unwrap(), 8);
    assert_eq!(soon(drained).await.unwrap(), 0);
}

#[tokio::test]
async fn a_sockets_half_close_and_close_are_told() {
    for half in [true, false] {
        let (server, client) = sockets();
        let watch = HangUp::new(copy(&server)).unwrap();
        rustix::io::write(&client, b"request\n").unwrap();
        quiet(&watch).await;
        let client = if half {
            shutdown(&client, Shutdown::Write).unwrap();
            Some(client)
        } else {
            drop(client);
            None
        };
        soon(watch.hung_up()).await;
        assert_eq!(watch.unread(), 8);
        drop(client);
    }
}

#[tokio::test]
async fn a_hang_up_before_the_watch_is_told() {
    let (server, client) = pair();
    rustix::io::write(&client, b"x").unwrap();
    drop(client);
    let watch = HangUp::new(server).unwrap();
    soon(watch.hung_up()).await;
    assert_eq!(watch.unread(), 1);
}

/// The runtime is not woken by a message: the set of its own does not become ready.
#[tokio::test]
async fn messages_do_not_wake() {
    for (server, client) in [pair(), sockets()] {
        let watch = HangUp::new(copy(&server)).unwrap();
        let mut buffer = [0; 64];
        for _ in 0..200 {
            rustix::io::write(&client, b"message\n").unwrap();
            let ready = rustix::event::poll(
                &mut [rustix::event::PollFd::new(watch.watch.get_ref(), rustix::event::PollFlags::IN)],
                Some(&Timespec::default()),
            );
            assert_eq!(ready, Ok(0));
            assert_eq!(rustix::io::read(&server, &mut buffer[..]).unwrap(), 8);
        }
        drop(client);
        soon(watch.hung_up()).await;
    }
}

#[tokio::test]
async fn every_waiter_is_told() {
    let (server, client) = pair();
    let watch = Arc::new(HangUp::new(server).unwrap());
    let waiters: Vec<_> = (0..4)
        .map(|_| {
            let watch = watch.clone();
            tokio::spawn(async move { watch.hung_up().await })
        })
        .collect();
    tokio::task::yield_now().await;
    drop(client);
    for waiter in waiters {
        soon(waiter).await.unwrap();
    }
}

#[tokio::test]
async fn flags_are_not_touched_and_files_are_refused() {
    for (server, client) in [pair(), sockets()] {
        let before = rustix::fs::fcntl_getfl(&server).unwrap();
        let watch = HangUp::new(copy(&server)).unwrap();
        quiet(&watch).await;
        drop(watch);
        assert_eq!(rustix::fs::fcntl_getfl(&server).unwrap(), before);
        drop(client);
    }
    let file = std::fs::File::open("/proc/self/exe").unwrap();
    assert!(HangUp::new(file.into()).is_err());
}

/// Once the watch is dropped nobody holds the server's end, so that the client gets EPIPE.
#[tokio::test]
async fn dropping_the_watch_closes_the_copy() {
    let (server, client) = pair();
    let watch = HangUp::new(copy(&server)).unwrap();
    drop(server);
    assert_eq!(rustix::io::write(&client, b"x"), Ok(1));
    drop(watch);
    assert_eq!(rustix::io::write(&client, b"x"), Err(rustix::io::Errno::PIPE));
}
