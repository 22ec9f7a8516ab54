//! Where the daemon's socket is, and who serves it.
use rustix::net::sockopt::socket_peercred;
use std::ffi::OsString;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// The variable that names the socket.
pub const SOCKET_VARIABLE: &str = "MCPVISOR_SOCKET";

/// Below the runtime directory.
const BELOW: &str = "mcpvisor/control.sock";

/// What the lookup depends on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// `--socket PATH`.
    pub explicit: Option<PathBuf>,
    /// `MCPVISOR_SOCKET`.
    pub variable: Option<OsString>,
    /// `XDG_RUNTIME_DIR`.
    pub runtime_dir: Option<OsString>,
    /// The caller's effective uid.
    pub uid: u32,
}

impl Surroundings {
    /// Those of this process.
    #[must_use]
    pub fn of_process(explicit: Option<PathBuf>) -> Self {
        Self {
            explicit,
            variable: std::env::var_os(SOCKET_VARIABLE),
            runtime_dir: std::env::var_os("XDG_RUNTIME_DIR"),
            uid: rustix::process::geteuid().as_raw(),
        }
    }

    /// The one path that was named, by argument or variable. An empty variable is none.
    fn named(&self) -> Option<PathBuf> {
        let variable = || self.variable.as_ref().filter(|path| !path.is_empty()).map(PathBuf::from);
        self.explicit.clone().or_else(variable)
    }

    /// `XDG_RUNTIME_DIR`, which by its specification counts only where it is absolute.
    fn runtime_dir(&self) -> Option<&Path> {
        self.runtime_dir.as_ref().map(Path::new).filter(|path| path.is_absolute())
    }

    fn user_dir(&self) -> PathBuf {
        PathBuf::from(format!("/run/user/{}", self.uid))
    }

    /// The paths where a daemon may be, in the order in which they are tried. A named path is the only one.
    #[must_use]
    pub fn candidates(&self) -> Vec<PathBuf> {
        if let Some(named) = self.named() {
            return vec![named];
        }
        let mut paths: Vec<_> = self.runtime_dir().map(|dir| dir.join(BELOW)).into_iter().collect();
        for path in [self.user_dir().join(BELOW), Path::new("/run").join(BELOW)] {
            if !paths.contains(&path) {
                paths.push(path);
            }
        }
        paths
    }

    /// Where a daemon of this user listens. `is_dir` tells whether a directory is there. Root's daemon is the machine's
    /// where root has no runtime directory.
    #[must_use]
    pub fn listen_path(&self, is_dir: impl FnOnce(&Path) -> bool) -> PathBuf {
        if let Some(named) = self.named() {
            return named;
        }
        if let Some(dir) = self.runtime_dir() {
            return dir.join(BELOW);
        }
        let dir = self.user_dir();
        if self.uid != 0 || is_dir(&dir) { dir.join(BELOW) } else { Path::new("/run").join(BELOW) }
    }
}

/// Nothing answers.
#[derive(Debug, thiserror::Error)]
#[error("no daemon answers at {}", self.paths())]
pub struct NoDaemon {
    /// The paths that were tried, and what each said.
    pub tried: Vec<(PathBuf, io::Error)>,
}

impl NoDaemon {
    fn paths(&self) -> String {
        let one = |(path, error): &(PathBuf, io::Error)| format!("{path:?} ({})", reason(error));
        self.tried.iter().map(one).collect::<Vec<_>>().join(", ")
    }
}

fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "not there".to_owned(),
        io::ErrorKind::ConnectionRefused => "nobody listens".to_owned(),
        _ => error.to_string(),
    }
}

/// Connects to the first daemon that accepts. Where nobody named a path, one that is served by another user than this one
/// or root is passed over: whoever could put a socket there would be given our commands and environment.
///
/// Blocks for no longer than a local connect does; a daemon whose backlog is full makes it wait.
pub fn connect(surroundings: &Surroundings) -> Result<(UnixStream, PathBuf), NoDaemon> {
    let named = surroundings.named().is_some();
    let mut tried = Vec::new();
    for path in surroundings.candidates() {
        match connect_to(&path, (!named).then_some(surroundings.uid)) {
            Ok(stream) => return Ok((stream, path)),
            Err(error) => tried.push((path, error)),
        }
    }
    Err(NoDaemon { tried })
}

fn connect_to(path: &Path, only: Option<u32>) -> io::Result<UnixStream> {
    let stream = UnixStream::connect(path)?;
    if let Some(uid) = only {
        let server = socket_peercred(&stream)?.uid.as_raw();
        if server != uid && server != 0 {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                format!("served by uid {server}, which is neither this user nor root"),
            ));
        }
    }
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    fn user() -> Surroundings {
        Surroundings { uid: 1000, ..Surroundings::default() }
    }

    #[test]
    fn a_named_path_is_the_only_one() {
        let named = Surroundings { variable: Some("/v".into()), runtime_dir: Some("/x".into()), ..user() };
        assert_eq!(named.candidates(), [Path::new("/v")]);
        let explicit = Surroundings { explicit: Some("/e".into()), ..named };
        assert_eq!(explicit.candidates(), [Path::new("/e")]);
        assert_eq!(explicit.listen_path(|_| true), Path::new("/e"));
    }

    #[test]
    fn the_last_two_are_found_without_variables() {
        let system =
            ["/run/user/1000/mcpvisor/control.sock", "/run/mcpvisor/control.sock"].map(PathBuf::from);
        for runtime_dir in [None, Some("".into()), Some("relative".into()), Some("/run/user/1000".into())] {
            let here = Surroundings { runtime_dir, variable: Some("".into()), ..user() };
            assert_eq!(here.candidates(), system);
        }
        let here = Surroundings { runtime_dir: Some("/x".into()), ..user() };
        assert_eq!(here.candidates()[0], Path::new("/x/mcpvisor/control.sock"));
        assert_eq!(here.candidates()[1..], system);
    }

    #[test]
    fn roots_daemon_is_the_machines_without_a_runtime_directory() {
        let root = Surroundings::default();
        assert_eq!(root.listen_path(|_| false), Path::new("/run/mcpvisor/control.sock"));
        assert_eq!(root.listen_path(|_| true), Path::new("/run/user/0/mcpvisor/control.sock"));
        assert_eq!(user().listen_path(|_| false), Path::new("/run/user/1000/mcpvisor/control.sock"));
    }

    #[test]
    fn a_path_that_refuses_gives_way_to_the_next() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(BELOW);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let here = Surroundings {
            runtime_dir: Some(dir.path().into()),
            // A uid that has no directory below /run/user.
            uid: rustix::process::geteuid().as_raw(),
            ..Surroundings::default()
        };
        drop(UnixListener::bind(&path).unwrap());
        let refused = connect_to(&path, None).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        std::fs::remove_file(&path).unwrap();
        let _listener = UnixListener::bind(&path).unwrap();
        assert_eq!(connect(&here).unwrap().1, path);
    }

    #[test]
    fn nobody_elses_daemon_is_spoken_to() {
        let me = rustix::process::geteuid().as_raw();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let _listener = UnixListener::bind(&path).unwrap();
        assert!(connect_to(&path, Some(me)).is_ok());
        // Root may serve everyone, so the check can be seen only from another uid's point of view when this is not root.
        assert_eq!(connect_to(&path, Some(me + 1)).is_err(), me != 0);
    }

    #[test]
    fn the_error_names_the_paths_and_what_they_said() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("none");
        let here = Surroundings { explicit: Some(path.clone()), ..Surroundings::default() };
        let text = connect(&here).unwrap_err().to_string();
        assert!(text.contains(path.to_str().unwrap()) && text.contains("not there"), "{text}");
    }
}
