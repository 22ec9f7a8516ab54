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
pub(crate) struct Caught {
    end: StdStream,
    hang_up: StdStream,
}

impl Caught {
    /// From now on the signals no longer end the process. Before anybody can know that there is a daemon: what comes during
    /// its start is heeded once it is up.
    pub(crate) fn register() -> io::Result<Self> {
        Ok(Self { end: pipe(&[SIGTERM, SIGINT])?, hang_up: pipe(&[SIGHUP])? })
    }

    /// Needs a runtime.
    pub(crate) fn into_signals(self) -> io::Result<Signals> {
        Ok(Signals { end: UnixStream::from_std(self.end)?, hang_up: UnixStream::from_std(self.hang_up)? })
    }
}

/// The same, in a runtime.
#[derive(Debug)]
pub(crate) struct Signals {
    end: UnixStream,
    hang_up: UnixStream,
}

impl Signals {
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

fn pipe(signals: &[i32]) -> io::Result<StdStream> {
    let (reader, writer) = StdStream::pair()?;
    for signal in signals {
        signal_hook::low_level::pipe::register(*signal, OwnedFd::from(writer.try_clone()?))?;
    }
    reader.set_nonblocking(true)?;
    Ok(reader)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test]
    async fn each_signal_is_told_once() {
        let caught = Caught::register().unwrap();
        // One that came before there was a runtime is told like the others.
        signal_hook::low_level::raise(SIGTERM).unwrap();
        let signals = caught.into_signals().unwrap();
        assert_eq!(signals.next().await.unwrap(), Signal::End);
        for (number, expected) in [(SIGTERM, Signal::End), (SIGINT, Signal::End), (SIGHUP, Signal::HangUp)] {
            signal_hook::low_level::raise(number).unwrap();
            let told = tokio::time::timeout(Duration::from_secs(5), signals.next()).await.unwrap().unwrap();
            assert_eq!(told, expected);
        }
        assert!(tokio::time::timeout(Duration::from_millis(20), signals.next()).await.is_err());
    }
}
