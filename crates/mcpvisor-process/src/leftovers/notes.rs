//! What a daemon writes down for its successor, in a folder of its own below the state folder, which is that of one socket:
//!
//! | file | what it is | written | removed |
//! | --- | --- | --- | --- |
//! | `INSTANCE/lock` | locked by the daemon while it lives | at the start | with the folder |
//! | `INSTANCE/cgroup` | the path of its cgroup, where it has one | at the start | with the folder |
//! | `INSTANCE/s-SESSION` | one session's note | before the session's first process is born | when nothing of it is left |
//!
//! The folder goes with its last note: at the daemon's end, or when its successor has found nothing left. Nothing in it is ever
//! changed in place: a file is made under another name and renamed, so that a daemon that is killed leaves it whole or not at all.
//! Nothing is synced, since processes don't survive the machine either.
//!
//! The lock is one of fcntl(2), not of flock(2): the kernel lets it go when the daemon is dead, whoever else still has a copy of its
//! descriptors. A server that is just being born has, until it closes them; a successor that started in that moment would take
//! the daemon to be alive, and would not look again.
use crate::InstanceId;
use rustix::fs::{
    AtFlags, FlockOperation, Mode, OFlags, fcntl_lock, fstat, open, openat, renameat, statat, unlinkat,
};
use rustix::io::Errno;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

const LOCK: &str = "lock";
const CGROUP: &str = "cgroup";
/// What the names of notes begin with …
const NOTE: &str = "s-";
/// … and those of files that are not whole yet.
const UNFINISHED: &str = "new-";
/// A longer file is no note of ours.
const LONGEST_NOTE: u64 = 1 << 20;

/// This daemon's folder.
#[derive(Debug)]
pub(crate) struct Notes {
    dir: OwnedFd,
    path: PathBuf,
    /// Never opened a second time: closing any descriptor of it would let the lock go.
    _lock: File,
}

impl Notes {
    /// Makes and locks the folder of this instance.
    pub(crate) fn make(state: &Path, instance: &InstanceId, cgroup: Option<&Path>) -> io::Result<Self> {
        make_folder(state)?;
        let path = state.join(&*instance.0);
        let notes = Self::make_locked(&path)?;
        if let Some(cgroup) = cgroup {
            notes.write_file(CGROUP, cgroup.as_os_str().as_bytes())?;
        }
        Ok(notes)
    }

    fn make_locked(path: &Path) -> io::Result<Self> {
        // Whoever looks for dead daemons in this moment may take the folder for one's that died while it made it, and remove it.
        const TRIES: usize = 100;
        for _ in 0..TRIES {
            make_folder(path)?;
            let made = open_folder(path).and_then(|dir| {
                let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
                let lock = File::from(openat(&dir, LOCK, flags, Mode::RUSR | Mode::WUSR)?);
                match fcntl_lock(&lock, FlockOperation::NonBlockingLockExclusive) {
                    Ok(()) => {}
                    Err(Errno::AGAIN | Errno::ACCESS) => return Ok(None),
                    Err(error) => return Err(error.into()),
                }
                let named = fs::metadata(path.join(LOCK))?;
                let is_named = lock.metadata()?.ino() == named.ino();
                Ok(is_named.then(|| Self { dir, path: path.to_owned(), _lock: lock }))
            });
            match made {
                Ok(Some(notes)) => return Ok(notes),
                Ok(None) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::new(io::ErrorKind::TimedOut, "somebody else removes or locks it again and again"))
    }

    /// Notes a session, unless it is noted already.
    pub(crate) fn write(&self, session: &str, note: &str) -> io::Result<()> {
        let name = format!("{NOTE}{session}");
        match statat(&self.dir, name.as_str(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Ok(()),
            Err(Errno::NOENT) => self.write_file(&name, note.as_bytes()),
            Err(error) => Err(error.into()),
        }
    }

    fn write_file(&self, name: &str, content: &[u8]) -> io::Result<()> {
        // Two servers of a session may be launched at the same time, on two threads.
        let unfinished = format!("{UNFINISHED}{name}-{}", rustix::thread::gettid().as_raw_nonzero());
        let flags = OFlags::CREATE | OFlags::TRUNC | OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let written = openat(&self.dir, unfinished.as_str(), flags, Mode::RUSR | Mode::WUSR)
            .map_err(io::Error::from)
            .and_then(|file| File::from(file).write_all(content))
            .and_then(|()| Ok(renameat(&self.dir, unfinished.as_str(), &self.dir, name)?));
        if written.is_err() {
            let _ = unlinkat(&self.dir, unfinished.as_str(), AtFlags::empty());
        }
        written
    }

    /// Nothing of the session is left.
    pub(crate) fn remove(&self, session: &str) -> io::Result<()> {
        match unlinkat(&self.dir, format!("{NOTE}{session}"), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// The daemon ends: its folder goes, unless sessions are noted that could not be ended.
    pub(crate) fn close(&self) -> io::Result<()> {
        remove_folder(&self.path)
    }
}

/// A dead daemon's folder, and its lock, so that one successor at a time deals with it.
#[derive(Debug)]
pub(crate) struct Former {
    path: PathBuf,
    _lock: Option<File>,
    pub(crate) instance: InstanceId,
    /// The folder of its cgroup; None: it had keepers.
    pub(crate) cgroup: Option<PathBuf>,
    /// Its sessions by name; None: the note can't be read.
    pub(crate) sessions: Vec<(String, Option<String>)>,
}

impl Former {
    pub(crate) fn remove(&self, session: &str) {
        if let Err(error) = fs::remove_file(self.path.join(format!("{NOTE}{session}")))
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(%error, session, "the note of a former daemon's session can't be removed");
        }
    }

    /// Nothing of it is left.
    pub(crate) fn close(&self) {
        if let Err(error) = remove_folder(&self.path) {
            let path = self.path.display();
            tracing::warn!(%error, %path, "a former daemon's folder can't be removed");
        }
    }
}

/// The dead daemons that have left a folder.
pub(crate) fn former(state: &Path) -> Vec<Former> {
    let Ok(entries) = fs::read_dir(state) else { return Vec::new() };
    let paths = entries.flatten().map(|entry| entry.path());
    paths.filter_map(|path| read(&path)).collect()
}

/// The folders of the cgroups that these daemons had.
pub(crate) fn cgroups(former: &[Former]) -> Vec<&Path> {
    former.iter().filter_map(|former| former.cgroup.as_deref()).collect()
}

/// None: it lives, it is no daemon's folder, or there is nothing in it to know of.
fn read(path: &Path) -> Option<Former> {
    let instance = path.file_name()?.to_str().filter(|name| is_instance(name))?;
    let dir = open_folder(path).ok()?;
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let lock = match openat(&dir, LOCK, flags, Mode::empty()) {
        Ok(lock) => {
            let lock = File::from(lock);
            fcntl_lock(&lock, FlockOperation::NonBlockingLockExclusive).ok()?;
            Some(lock)
        }
        // Its maker has died right after it has made it, or will make it again.
        Err(Errno::NOENT) => None,
        Err(_) => return None,
    };
    let mut sessions = Vec::new();
    for entry in fs::read_dir(path).ok()?.flatten() {
        let name = entry.file_name();
        if let Some(session) =
            name.to_str().and_then(|name| name.strip_prefix(NOTE)).filter(|s| is_session(s))
        {
            let note = contents(&dir, &name).and_then(|bytes| {
                String::from_utf8(bytes).map_err(|_| io::Error::from(io::ErrorKind::InvalidData))
            });
            if let Err(error) = &note {
                tracing::error!(%error, session, "the note of a former daemon's session can't be read");
            }
            sessions.push((session.to_owned(), note.ok()));
        }
    }
    let cgroup = contents(&dir, CGROUP.as_ref()).ok().map(|path| PathBuf::from(OsString::from_vec(path)));
    Some(Former {
        path: path.to_owned(),
        _lock: lock,
        instance: InstanceId(instance.into()),
        cgroup,
        sessions,
    })
}

fn contents(dir: &OwnedFd, name: &std::ffi::OsStr) -> io::Result<Vec<u8>> {
    let file =
        File::from(openat(dir, name, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW, Mode::empty())?);
    let mut bytes = Vec::new();
    file.take(LONGEST_NOTE).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// What an instance may be called: nothing that could lead elsewhere.
fn is_instance(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

/// The form of a session's name: digits and hyphens.
pub(super) fn is_session(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-')
}

/// Makes a folder that nobody else can look into: keys are their owners' own affair.
fn make_folder(path: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => open_folder(path).map(drop),
    }
}

/// Opens a folder that is ours.
fn open_folder(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let dir = open(path, flags, Mode::empty())?;
    if fstat(&dir)?.st_uid != rustix::process::geteuid().as_raw() {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "it belongs to somebody else"));
    }
    Ok(dir)
}

/// Removes a folder without notes, and the state folder with the last one.
fn remove_folder(path: &Path) -> io::Result<()> {
    let entries = || fs::read_dir(path).map(|entries| entries.flatten().map(|entry| entry.file_name()));
    let is_note = |name: &OsString| name.as_bytes().starts_with(NOTE.as_bytes());
    let names: Vec<OsString> = match entries() {
        Ok(names) => names.collect(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if names.iter().any(is_note) {
        return Ok(());
    }
    // The lock last: without it the folder is nobody's.
    for name in names.iter().filter(|name| *name != LOCK).chain(names.iter().filter(|name| *name == LOCK)) {
        fs::remove_file(path.join(name))?;
    }
    fs::remove_dir(path)?;
    if let Some(state) = path.parent() {
        // There may be others'.
        let _ = fs::remove_dir(state);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
