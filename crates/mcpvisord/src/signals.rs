//! Signals that ask for the end, as a stream.
use signal_hook::consts::signal::{SIGHUP, SIGINT, SIGTERM};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdStream;
use tokio::net::UnixStream;

/// One of the signals that the daemon knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signal {
    /// SIGTERM or SIGINT.
    End,
    /// SIGHUP.
    HangUp,
}

/// Signals since the registration; none is lost, but for more at once than a pipe holds.
#[derive(Debug)]
pub(crate) struct Signals {
    end: UnixStream,
    hang_up: UnixStream,
}

impl Signals {
    /// From now on the signals no longer end the process. Needs a runtime.
    pub(crate) fn register() -> io::Result<Self> {
        Ok(Self { end: pipe(&[SIGTERM, SIGINT])?, hang_up: pipe(&[SIGHUP])? })
    }

    /// The next one. Cancel-safe.
    pub(crate) async fn next(&self) -> io::Result<Signal> {
        loop {
            tokio::select! {
                biased;
                ready = self.end.readable() => ready?,
                ready = self.hang_up.readable() => ready?,
            }
            for (stream, signal) in [(&self.end, Signal::End), (&self.hang_up, Signal::HangUp)] {
                match stream.try_read(&mut [0; 1]) {
                    Ok(1) => return Ok(signal),
                    Ok(_) => return Err(io::ErrorKind::UnexpectedEof.into()),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(error) => return Err(error),
                }
            }
        }
    }
}

fn pipe(signals: &[i32]) -> io::Result<UnixStream> {
    let (reader, writer) = StdStream::pair()?;
    for signal in signals {
        signal_hook::low_level::pipe::register(*signal, OwnedFd::from(writer.try_clone()?))?;
    }
    reader.set_nonblocking(true)?;
    UnixStream::from_std(reader)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test]
    async fn each_signal_is_told_once() {
        let signals = Signals::register().unwrap();
        for (number, expected) in [(SIGTERM, Signal::End), (SIGINT, Signal::End), (SIGHUP, Signal::HangUp)] {
            signal_hook::low_level::raise(number).unwrap();
            let told = tokio::time::timeout(Duration::from_secs(5), signals.next()).await.unwrap().unwrap();
            assert_eq!(told, expected);
        }
        assert!(tokio::time::timeout(Duration::from_millis(20), signals.next()).await.is_err());
    }
}
