//! Finding the program and opening its directory. Each step may hang on a dead mount, so this runs on a disposable thread.
use crate::{Cwd, LaunchError, LaunchErrorKind};
use rustix::fs::{Access, AtFlags, CWD, FileType, Mode, OFlags, accessat, openat, statat};
use rustix::io::Errno;
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

/// Where programs are looked for if the environment has no `PATH`.
const DEFAULT_PATH: &[u8] = b"/usr/local/bin:/usr/bin:/bin";

/// What to find.
#[derive(Debug)]
pub(crate) struct Wanted {
    pub(crate) program: CString,
    /// The value of `PATH` in the program's environment.
    pub(crate) path: Option<Vec<u8>>,
    pub(crate) cwd: Cwd,
}

impl Wanted {
    /// How an error names it before anything is opened.
    pub(crate) fn describe(&self) -> String {
        let program = shown(&self.program);
        match &self.cwd {
            Cwd::Path(path) => format!("{program} (in {})", path.display()),
            Cwd::Fd(_) | Cwd::Inherit => program,
        }
    }
}

/// What was found.
#[derive(Debug)]
pub(crate) struct Resolved {
    /// The path to execute, relative to `cwd` if it is relative.
    pub(crate) program: CString,
    /// None: the daemon's own.
    pub(crate) cwd: Option<OwnedFd>,
    /// How errors name the directory.
    pub(crate) cwd_name: String,
    /// How the file begins.
    pub(crate) head: Head,
}

/// What the first bytes of a program say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Head {
    /// It names this interpreter (`#!`).
    Interpreter(String),
    /// It has a zero byte: no text, so that a shell is no help if the kernel does not know the format.
    Binary,
    /// Text, or it can't be read.
    Other,
}

/// The `PATH` of an environment.
pub(crate) fn search_path(env: &[CString]) -> Option<Vec<u8>> {
    env.iter().find_map(|entry| entry.as_bytes().strip_prefix(b"PATH=")).map(<[u8]>::to_vec)
}

/// Text for an error message.
pub(crate) fn shown(text: &CStr) -> String {
    text.to_string_lossy().into_owned()
}

pub(crate) fn error(kind: LaunchErrorKind, message: impl Into<String>) -> LaunchError {
    LaunchError { kind, message: message.into() }
}

/// Finds and opens what is wanted.
pub(crate) fn resolve(wanted: Wanted) -> Result<Resolved, LaunchError> {
    let (cwd, cwd_name) = directory(wanted.cwd)?;
    let base = cwd.as_ref().map_or(CWD, |fd| fd.as_fd());
    let program = find(base, &wanted.program, wanted.path.as_deref())?;
    let head = read_head(base, &program).unwrap_or(Head::Other);
    Ok(Resolved { program, cwd, cwd_name, head })
}

fn directory(cwd: Cwd) -> Result<(Option<OwnedFd>, String), LaunchError> {
    match cwd {
        Cwd::Inherit => Ok((None, "the daemon's own directory".to_owned())),
        Cwd::Fd(fd) => {
            let name = std::fs::read_link(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&fd)))
                .map_or_else(
                    |_| "the directory that was passed".to_owned(),
                    |path| path.display().to_string(),
                );
            match rustix::fs::fstat(&fd) {
                Ok(stat) if FileType::from_raw_mode(stat.st_mode).is_dir() => Ok((Some(fd), name)),
                Ok(_) => Err(error(LaunchErrorKind::Directory, format!("{name}: not a directory"))),
                Err(e) => Err(directory_error(&name, e)),
            }
        }
        Cwd::Path(path) => {
            let name = path.display().to_string();
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let fd = openat(CWD, &path, flags, Mode::empty()).map_err(|e| directory_error(&name, e))?;
            Ok((Some(fd), name))
        }
    }
}

/// The text for a directory that can't be entered.
pub(crate) fn directory_error(name: &str, errno: Errno) -> LaunchError {
    let (kind, text) = match errno {
        Errno::NOENT => (LaunchErrorKind::Directory, "no such directory".to_owned()),
        Errno::NOTDIR => (LaunchErrorKind::Directory, "not a directory".to_owned()),
        Errno::ACCESS | Errno::PERM => {
            (LaunchErrorKind::Directory, "no permission to enter the directory".to_owned())
        }
        Errno::MFILE | Errno::NFILE | Errno::NOMEM => (LaunchErrorKind::Resources, errno.to_string()),
        _ => (LaunchErrorKind::Directory, format!("can't enter the directory: {errno}")),
    };
    error(kind, format!("{name}: {text}"))
}

fn find(base: BorrowedFd<'_>, program: &CStr, path: Option<&[u8]>) -> Result<CString, LaunchError> {
    let name = program.to_bytes();
    if name.is_empty() {
        return Err(error(LaunchErrorKind::NotFound, "the program's name is empty"));
    }
    if name.contains(&b'/') {
        return match look_at(base, program) {
            Look::Good => Ok(program.to_owned()),
            Look::Missing => {
                Err(error(LaunchErrorKind::NotFound, format!("{}: no such program", shown(program))))
            }
            Look::Unfit(why) => {
                Err(error(LaunchErrorKind::NotExecutable, format!("{}: {why}", shown(program))))
            }
            Look::Failed(e) => Err(error(LaunchErrorKind::Resources, format!("{}: {e}", shown(program)))),
        };
    }
    let path = path.unwrap_or(DEFAULT_PATH);
    let mut unfit = None;
    for folder in path.split(|b| *b == b':') {
        let folder = if folder.is_empty() { b"." } else { folder };
        let candidate = CString::new([folder, b"/", name].concat())
            .expect("neither an environment's entry nor a program's name has a zero byte");
        match look_at(base, &candidate) {
            Look::Good => return Ok(candidate),
            Look::Missing => {}
            Look::Unfit(why) => {
                unfit.get_or_insert_with(|| format!("{}: {why}", shown(&candidate)));
            }
            Look::Failed(e) => {
                return Err(error(LaunchErrorKind::Resources, format!("{}: {e}", shown(&candidate))));
            }
        }
    }
    // As execvp(3): what is there but can't be executed is told before what is not there.
    Err(match unfit {
        Some(message) => error(LaunchErrorKind::NotExecutable, message),
        None => error(
            LaunchErrorKind::NotFound,
            format!("{}: no such program in PATH ({})", shown(program), String::from_utf8_lossy(path)),
        ),
    })
}

enum Look {
    Good,
    Missing,
    Unfit(String),
    /// The machine has run out of something.
    Failed(Errno),
}

fn look_at(base: BorrowedFd<'_>, path: &CStr) -> Look {
    let stat = match statat(base, path, AtFlags::empty()) {
        Ok(stat) => stat,
        Err(e @ (Errno::MFILE | Errno::NFILE | Errno::NOMEM)) => return Look::Failed(e),
        Err(Errno::ACCESS) => return Look::Unfit("no permission to reach it".to_owned()),
        Err(e @ Errno::LOOP) => return Look::Unfit(e.to_string()),
        Err(_) => return Look::Missing,
    };
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => {}
        FileType::Directory => return Look::Unfit("is a directory, not a program".to_owned()),
        _ => return Look::Unfit("is not a regular file".to_owned()),
    }
    match accessat(base, path, Access::EXEC_OK, AtFlags::EACCESS) {
        Ok(()) => Look::Good,
        Err(Errno::ACCESS | Errno::PERM) => {
            Look::Unfit("no permission to execute it (chmod +x gives it)".to_owned())
        }
        // A kernel without the flag: exec itself will tell.
        Err(_) => Look::Good,
    }
}

/// Reads the beginning of the file: it tells the interpreter, and hangs here and not in exec if the file's mount is dead.
fn read_head(base: BorrowedFd<'_>, program: &CStr) -> Option<Head> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = openat(base, program, flags, Mode::empty()).ok()?;
    let mut head = [0_u8; 256];
    let length = rustix::io::read(&file, &mut head[..]).ok()?;
    let head = head.get(..length)?;
    let Some(line) = head.strip_prefix(b"#!") else {
        return Some(if head.contains(&0) { Head::Binary } else { Head::Other });
    };
    let line = line.split(|b| *b == b'\n').next()?;
    let word = line.trim_ascii().split(|b| *b == b' ' || *b == b'\t').next()?;
    Some(Head::Interpreter(String::from_utf8_lossy(word).into_owned()))
}

#[cfg(test)]
mod tests;
