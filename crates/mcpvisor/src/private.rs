//! A private daemon: this program once more, on one end of a socket pair. It ends, its sessions first, when the other
//! end is closed.
use crate::cli::Globals;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};

/// A daemon that was started, and the connection to it.
#[derive(Debug)]
pub(crate) struct Private {
    /// Its one control connection.
    pub(crate) stream: UnixStream,
    child: Child,
}

impl Private {
    /// Starts a daemon, with the containment that the caller names, and does not wait for it: what is sent to it
    /// waits in the socket.
    ///
    /// It puts itself into the background, and points its standard streams at /dev/null once it has started. Until
    /// then what goes wrong is told on this program's stderr.
    ///
    /// # Errors
    /// Where the program can't be executed or the socket pair can't be made.
    #[expect(clippy::disallowed_methods, reason = "the one program that the client starts: itself")]
    pub(crate) fn spawn(globals: &Globals) -> io::Result<Self> {
        let (stream, theirs) = UnixStream::pair()?;
        // This very program, even where its file was replaced or removed since it was started.
        let mut command = Command::new("/proc/self/exe");
        command.arg0("mcpvisor").args(["daemon", "--private"]);
        if let Some(containment) = &globals.containment {
            command.args(["--containment", containment]);
        }
        let child = command.stdin(Stdio::from(OwnedFd::from(theirs))).stdout(Stdio::null()).spawn()?;
        Ok(Self { stream, child })
    }

    /// Takes note of the end of the process that put the daemon into the background, if it has ended. Never waits.
    pub(crate) fn reap(&mut self) -> Option<ExitStatus> {
        // Where SIGCHLD is ignored there is nothing to reap, and the error says so.
        self.child.try_wait().ok().flatten()
    }
}

/// Starts a private daemon and gives back the connection to it.
///
/// # Errors
/// As [`Private::spawn`]; and where the daemon ended while it started, having told why on stderr.
pub(crate) fn start(globals: &Globals) -> io::Result<UnixStream> {
    let mut private = Private::spawn(globals)?;
    match private.child.wait() {
        Ok(status) if !status.success() => {
            Err(io::Error::other(format!("the private daemon did not start: {status}")))
        }
        // Where SIGCHLD is ignored the child's end can't be told: the connection will.
        Ok(_) | Err(_) => Ok(private.stream),
    }
}
