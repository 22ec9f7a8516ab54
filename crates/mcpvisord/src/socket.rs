//! The listening socket: where it is, whose folder it may lie in, and that one daemon at a time serves it.
//!
//! A lock on a file next to the socket says who serves it. Whoever holds the lock may replace a socket file that a daemon left that was
//! killed; nobody else touches it. The lock file is removed at the end while the lock is still held, so whoever
//! gets the lock looks again whether the file is still the one at the path.
use mcpvisor_control::socket::Surroundings;
use rustix::fs::{FileType, FlockOperation, Mode, OFlags, Stat, flock, fstat, lstat, open};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};
use std::fs::{DirBuilder, File};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Connections that wait to be accepted; the kernel has a limit of its own below that.
const BACKLOG: i32 = 4096;

/// Why there is no socket. The text completes "failed to listen: ", with the mend after it.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct SocketError {
    message: String,
    pub(crate) help: Option<String>,
}

impl SocketError {
    fn new(message: impl Into<String>, help: impl Into<String>) -> Self {
        Self { message: message.into(), help: Some(help.into()) }
    }
    fn bare(message: impl Into<String>) -> Self {
        Self { message: message.into(), help: None }
    }
}

/// A socket that listens. Dropping it removes its file and its lock, if they are ours.
#[derive(Debug)]
pub(crate) struct Listening {
    listener: Option<UnixListener>,
    /// None of a socket that systemd made.
    file: Option<SocketFile>,
}

#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    /// Device and inode, to remove no other's.
    identity: (u64, u64),
    /// Let go after the file is removed.
    _lock: Lock,
}

impl Listening {
    /// Takes the socket that systemd passed, or makes one. `mode` is its permission bits. To be called while nothing
    /// else creates files: the umask is changed for a moment.
    pub(crate) fn open(explicit: Option<PathBuf>, mode: u32) -> Result<Self, SocketError> {
        if let Some(listener) = passed()? {
            return Ok(Self { listener: Some(listener), file: None });
        }
        let path = Surroundings::of_process(explicit).listen_path(Path::is_dir);
        let path = std::path::absolute(&path)
            .map_err(|error| SocketError::bare(format!("{}: {error}", path.display())))?;
        Self::at(&path, mode)
    }

    /// Makes one at a path.
    fn at(path: &Path, mode: u32) -> Result<Self, SocketError> {
        let shown = path.display();
        let address = SocketAddrUnix::new(path).map_err(|_| {
            SocketError::new(
                format!("{shown} is too long for a socket's path"),
                "choose a path of at most 107 bytes with --socket",
            )
        })?;
        let folder = path
            .parent()
            .filter(|folder| *folder != path)
            .ok_or_else(|| SocketError::bare(format!("{shown} is not the path of a file")))?;
        folder_is_safe(folder, mode)?;
        let lock = own(path, &address)?;
        let listener =
            bound(&address, mode).map_err(|error| SocketError::bare(format!("{shown}: {error}")))?;
        let identity = match lstat(path) {
            Ok(stat) => identity(&stat),
            Err(error) => return Err(SocketError::bare(format!("{shown}: {error}"))),
        };
        let file = SocketFile { path: path.to_owned(), identity, _lock: lock };
        Ok(Self { listener: Some(listener), file: Some(file) })
    }

    /// The listener, once; non-blocking.
    pub(crate) fn take(&mut self) -> UnixListener {
        self.listener.take().expect("the listener is taken once, by the daemon's start")
    }

    /// Where the daemons of this socket note what they would leave: the folder `SOCKET.sessions`. None of a socket without a path.
    pub(crate) fn state(&self) -> Option<PathBuf> {
        let passed = || Some(self.listener.as_ref()?.local_addr().ok()?.as_pathname()?.to_owned());
        let path = self.file.as_ref().map(|file| file.path.clone()).or_else(passed)?;
        let mut state = path.is_absolute().then(|| path.into_os_string())?;
        state.push(".sessions");
        Some(PathBuf::from(state))
    }

    /// For people.
    pub(crate) fn describe(&self) -> String {
        match &self.file {
            Some(file) => file.path.display().to_string(),
            None => "the socket that the service manager passed".to_owned(),
        }
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if lstat(&self.path).is_ok_and(|stat| identity(&stat) == self.identity) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn identity(stat: &Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

/// The socket of LISTEN_FDS.
fn passed() -> Result<Option<UnixListener>, SocketError> {
    let mut passed = listenfd::ListenFd::from_env();
    match passed.len() {
        0 => Ok(None),
        1 => {
            let help = "the socket unit needs ListenStream=/PATH and nothing else";
            let bad =
                |error| SocketError::new(format!("the socket that was passed can't be used: {error}"), help);
            let listener = passed.take_unix_listener(0).map_err(bad)?;
            let listener = listener.ok_or_else(|| bad(std::io::Error::from(std::io::ErrorKind::NotFound)))?;
            listener.set_nonblocking(true).map_err(bad)?;
            Ok(Some(listener))
        }
        count => Err(SocketError::new(
            format!("{count} sockets were passed, and the daemon serves one"),
            "name one ListenStream= in the socket unit",
        )),
    }
}

/// Makes the folder where it is missing, and refuses one in which others could put a socket of their own.
fn folder_is_safe(folder: &Path, socket_mode: u32) -> Result<(), SocketError> {
    let shown = folder.display();
    // A socket for everybody needs a folder that everybody can enter.
    let mode = if socket_mode & 0o066 == 0 { 0o700 } else { 0o755 };
    match DirBuilder::new().mode(mode).create(folder) {
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let above = folder.parent().unwrap_or(folder).display();
            return Err(SocketError::new(
                format!("the folder {shown} can't be made: {above} is not there"),
                format!("make {above}, or name another path with --socket or XDG_RUNTIME_DIR"),
            ));
        }
        Err(error) => {
            return Err(SocketError::new(
                format!("the folder {shown} can't be made: {error}"),
                "name another path with --socket or XDG_RUNTIME_DIR",
            ));
        }
    }
    let opened = open(folder, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    let stat = opened.and_then(fstat).map_err(|error| match error {
        Errno::NOTDIR => {
            SocketError::new(format!("{shown} is not a folder"), "name another path with --socket")
        }
        error => SocketError::bare(format!("{shown}: {error}")),
    })?;
    let me = rustix::process::geteuid().as_raw();
    if stat.st_uid != me && stat.st_uid != 0 {
        return Err(SocketError::new(
            format!("the folder {shown} belongs to uid {}, who could replace the socket", stat.st_uid),
            "name a path in a folder of your own with --socket",
        ));
    }
    if stat.st_mode & 0o022 != 0 {
        return Err(SocketError::new(
            format!(
                "others can write to the folder {shown} (mode {:04o}), and could replace the socket",
                stat.st_mode & 0o7777
            ),
            format!("chmod go-w {shown}, or name a path in a folder of your own with --socket"),
        ));
    }
    Ok(())
}

/// How long the children of a killed daemon may take to let go of its lock and its socket.
const LETTING_GO: Duration = Duration::from_secs(2);

/// Takes the lock and removes what a daemon left that was killed. A child that it was starting holds copies of its lock and
/// its listener until that executes its program, and can do so for a moment after the daemon's death: that is waited for.
fn own(path: &Path, address: &SocketAddrUnix) -> Result<Lock, SocketError> {
    let patience = if holder_is_gone(path) { LETTING_GO } else { Duration::ZERO };
    let begin = Instant::now();
    loop {
        let owned = Lock::take(path).and_then(|lock| clear(path, address).map(|()| lock));
        if owned.is_ok() || begin.elapsed() >= patience {
            return owned;
        }
        pause();
    }
}

#[expect(clippy::disallowed_methods, reason = "nothing runs yet that could be stopped")]
fn pause() {
    std::thread::sleep(Duration::from_millis(5));
}

/// Whether the lock names a daemon, and that has ended; one that was not reaped yet has no executable either.
fn holder_is_gone(socket: &Path) -> bool {
    let named =
        std::fs::read_to_string(lock_of(socket)).ok().and_then(|text| text.trim().parse::<u32>().ok());
    named.is_some_and(|pid| {
        let exe = std::fs::read_link(format!("/proc/{pid}/exe"));
        exe.is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound)
    })
}

/// Removes what a daemon left that was killed; the lock is held.
fn clear(path: &Path, address: &SocketAddrUnix) -> Result<(), SocketError> {
    let shown = path.display();
    let stat = match lstat(path) {
        Ok(stat) => stat,
        Err(Errno::NOENT) => return Ok(()),
        Err(error) => return Err(SocketError::bare(format!("{shown}: {error}"))),
    };
    if FileType::from_raw_mode(stat.st_mode) != FileType::Socket {
        return Err(SocketError::new(
            format!("{shown} is there already and is not a socket"),
            "remove it, or name another path with --socket",
        ));
    }
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
        .map_err(|error| SocketError::bare(error.to_string()))?;
    match connect(&socket, address) {
        Err(Errno::CONNREFUSED) => std::fs::remove_file(path).map_err(|error| {
            SocketError::bare(format!("the stale socket {shown} can't be removed: {error}"))
        }),
        // A full backlog is somebody's who listens.
        Ok(()) | Err(Errno::AGAIN | Errno::INPROGRESS) => Err(SocketError::new(
            format!("another program already serves {shown}"),
            "end it, or name another path with --socket",
        )),
        Err(error) => Err(SocketError::bare(format!("{shown} is there already: {error}"))),
    }
}

fn bound(address: &SocketAddrUnix, mode: u32) -> rustix::io::Result<UnixListener> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket: OwnedFd = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    // The file is born with its permissions: there is no moment at which others could connect.
    let umask = rustix::process::umask(Mode::from_bits_truncate(!mode & 0o777));
    let result = bind(&socket, address);
    rustix::process::umask(umask);
    result?;
    listen(&socket, BACKLOG)?;
    Ok(UnixListener::from(socket))
}

fn lock_of(socket: &Path) -> PathBuf {
    let mut path = socket.as_os_str().to_owned();
    path.push(".lock");
    PathBuf::from(path)
}

/// Held as long as the file is open, and removed before it is closed.
#[derive(Debug)]
struct Lock {
    path: PathBuf,
    file: File,
}

impl Lock {
    fn take(socket: &Path) -> Result<Self, SocketError> {
        let path = lock_of(socket);
        let shown = path.display();
        let wrong = |error: Errno| SocketError::bare(format!("the lock {shown}: {error}"));
        loop {
            let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
            let mut file = File::from(open(&path, flags, Mode::RUSR | Mode::WUSR).map_err(wrong)?);
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(Errno::INTR) => continue,
                Err(Errno::WOULDBLOCK) => return Err(served(socket, &mut file)),
                Err(error) => return Err(wrong(error)),
            }
            let held = fstat(&file).map_err(wrong)?;
            if lstat(&path).is_ok_and(|stat| identity(&stat) == identity(&held)) {
                // For people and for the message above; nothing depends on it.
                let _ = file.set_len(0);
                let _ = writeln!(file, "{}", std::process::id());
                return Ok(Self { path, file });
            }
            // Its former holder has removed the file meanwhile.
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let held = fstat(&self.file);
        let named = lstat(&self.path);
        if let (Ok(held), Ok(named)) = (held, named)
            && identity(&held) == identity(&named)
        {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn served(socket: &Path, lock: &mut File) -> SocketError {
    let mut pid = String::new();
    let _ = lock.take(32).read_to_string(&mut pid);
    let who = match pid.trim().parse::<u32>() {
        Ok(pid) => format!("another daemon (pid {pid})"),
        Err(_) => "another daemon".to_owned(),
    };
    SocketError::new(
        format!("{who} already serves {}", socket.display()),
        "use it, end it with `mcpvisor shutdown`, or name another path with --socket",
    )
}

#[cfg(test)]
mod tests;
