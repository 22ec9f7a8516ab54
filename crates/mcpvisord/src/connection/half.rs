//! A client that says no more, and still reads.
use std::io;
use std::os::fd::AsFd;
use tokio::io::Interest;
use tokio::net::UnixStream;

/// Resolves when the client reads no more either. At once where that can't be told.
pub(super) async fn hung_up(stream: &UnixStream) {
    // A registration of its own: what it forgets of the readiness, the writer still knows.
    let watched = stream.as_fd().try_clone_to_owned().and_then(|fd| UnixStream::from_std(fd.into()));
    let Ok(watched) = watched else { return };
    while let Ok(ready) = watched.ready(Interest::WRITABLE).await {
        if ready.is_write_closed() {
            return;
        }
        // That it can be written to is forgotten, so that only what comes next wakes this.
        let _ = watched.try_io(Interest::WRITABLE, || Err::<(), _>(io::ErrorKind::WouldBlock.into()));
    }
}

#[cfg(test)]
mod tests {
    use super::hung_up;
    use std::time::Duration;
    use tokio::io::AsyncWriteExt;
    use tokio::net::UnixStream;

    #[tokio::test]
    async fn half_an_end_is_no_end() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.shutdown().await.unwrap();
        let gone = tokio::spawn(async move { hung_up(&ours).await });
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(!gone.is_finished(), "it still reads");
        drop(theirs);
        tokio::time::timeout(Duration::from_secs(30), gone).await.unwrap().unwrap();
    }
}
