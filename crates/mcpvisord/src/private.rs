//! A private daemon: it serves the one connection that it was started with, in the background, and ends with it, sessions first.
use crate::args::Args;
use crate::config::{Config, Containment};
use crate::peer::Peer;
use crate::signals::Caught;
use crate::start::{OnHangUp, Parts, Role, StartError, heed, runtime, supervise};
use crate::{connection, limits};
use mcpvisor_lifecycle::registry::Urgency;
use rustix::fs::{Mode, OFlags, open};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdStream;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UnixStream;

/// How long the end waits for work that hangs in the kernel.
const PATIENCE: Duration = Duration::from_millis(200);

/// Serves standard input. What goes wrong before it has started is told on stderr, which is then let go.
pub(crate) fn main(prefix: &[&str], args: &Args) -> ExitCode {
    match run(prefix, args) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::from(8),
        Err(error) => {
            error.tell();
            ExitCode::FAILURE
        }
    }
}

fn run(prefix: &[&str], args: &Args) -> Result<usize, StartError> {
    let stream = connection_of_stdin().map_err(|error| {
        StartError::new("take the connection on standard input (--private is for `mcpvisor run`)", error)
    })?;
    // From here on this is another process, in a session of its own: whoever waits for the first one can go on.
    mcpvisor_process::detach().map_err(|error| StartError::new("go into the background", error))?;
    let null = open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
        .map_err(|error| StartError::new("open /dev/null", error))?;
    let let_go = |error| StartError::new("let go of the standard streams", error);
    rustix::stdio::dup2_stdin(&null).map_err(let_go)?;
    rustix::stdio::dup2_stdout(&null).map_err(let_go)?;
    let caught = Caught::register().map_err(|error| StartError::new("receive signals", error))?;
    limits::raise();
    let parts = Parts::start(prefix, args.containment.unwrap_or(Containment::Auto), Role::Private)?;
    let runtime = runtime()?;
    let rights = parts.rights(Vec::new(), true);
    let containment = parts.containment.clone();
    let left = runtime.block_on(async {
        let signals = caught.into_signals().map_err(|error| StartError::new("receive signals", error))?;
        let (daemon, _watcher) = supervise(containment, Arc::new(Config::default()), rights, None).await?;
        let stream =
            UnixStream::from_std(stream).map_err(|error| StartError::new("use the connection", error))?;
        let peer = Peer::of(&stream).map_err(|error| StartError::new("tell who is connected", error))?;
        rustix::stdio::dup2_stderr(&null).map_err(let_go)?;
        let serve = async {
            connection::serve(daemon.clone(), stream, peer).await;
            // Nobody is left to ask for anything.
            daemon.shut_down(Urgency::Drain);
            daemon.ended().await
        };
        tokio::select! {
            left = serve => Ok(left),
            never = heed(&daemon, &signals, OnHangUp::End) => match never {},
        }
    });
    runtime.shutdown_timeout(PATIENCE);
    parts.threads.end();
    left
}

/// A copy of standard input, which must be a connected Unix stream.
fn connection_of_stdin() -> io::Result<StdStream> {
    let copy: OwnedFd = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
    rustix::net::getpeername(&copy)?;
    if rustix::net::sockopt::socket_type(&copy)? != rustix::net::SocketType::STREAM
        || rustix::net::sockopt::socket_domain(&copy)? != rustix::net::AddressFamily::UNIX
    {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a Unix stream socket"));
    }
    let stream = StdStream::from(copy);
    stream.set_nonblocking(true)?;
    Ok(stream)
}
