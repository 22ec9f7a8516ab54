//! Accepts connections until the daemon's work is done.
use crate::connection;
use crate::daemon::Daemon;
use crate::peer::Peer;
use mcpvisor_control::message::error_response;
use mcpvisor_control::{ErrorKind, ErrorObject};
use mcpvisor_failpoints::{self as failpoints, Gate};
use std::io;
use std::os::unix::net::UnixListener as StdListener;
use std::time::Duration;
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;

/// The most connections at once; more are told so and ended.
const MOST_CONNECTIONS: usize = 4096;
/// Before another try, where the table of open files is full.
const PAUSE: Duration = Duration::from_millis(50);
/// How long the end waits for connections, each of which waits for its client less long.
const FAREWELL: Duration = Duration::from_secs(2);

/// The runtime's listener of a non-blocking one.
pub(crate) fn listener(listener: StdListener) -> io::Result<UnixListener> {
    UnixListener::from_std(listener)
}

/// Serves until the shutdown is complete and its answers are given. The number of sessions that are quarantined.
pub(crate) async fn serve(daemon: Daemon, listener: UnixListener) -> usize {
    let mut connections = JoinSet::new();
    let left = loop {
        tokio::select! {
            biased;
            left = daemon.ended() => break left,
            Some(ended) = connections.join_next() => {
                daemon.stir();
                if let Err(error) = ended {
                    tracing::error!(%error, "a connection's task panicked");
                }
            }
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => take(&daemon, stream, &mut connections),
                Err(error) => {
                    tracing::warn!(%error, "a connection can't be accepted");
                    tokio::time::sleep(PAUSE).await;
                }
            },
        }
    };
    failpoints::pass(Gate::ShutdownFarewell).await;
    let farewell = async { while connections.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(FAREWELL, farewell).await;
    left
}

fn take(daemon: &Daemon, stream: UnixStream, connections: &mut JoinSet<()>) {
    let peer = match Peer::of(&stream) {
        Ok(peer) => peer,
        Err(error) => {
            tracing::warn!(%error, "it can't be told who connected");
            return;
        }
    };
    if connections.len() >= MOST_CONNECTIONS {
        let message = format!("{MOST_CONNECTIONS} connections are open");
        let line = error_response(None, &ErrorObject::new(ErrorKind::Overloaded, message));
        // A new socket takes a short line; one that does not is ended without.
        let _ = stream.try_write(&line);
        return;
    }
    connections.spawn(connection::serve(daemon.clone(), stream, peer));
}
