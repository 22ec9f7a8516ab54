//! Why nothing runs, in words.
use crate::resolve::{Head, Resolved, directory_error, error, shown};
use crate::sys::Stage;
use crate::{LaunchError, LaunchErrorKind};
use rustix::io::Errno;
use std::io;

/// A step before the child's own.
pub(crate) fn spawn_error(what: &str, e: &io::Error) -> LaunchError {
    match e.raw_os_error() {
        Some(libc::EMFILE) => error(
            LaunchErrorKind::Resources,
            format!("{what}: the daemon has no file descriptor left (its RLIMIT_NOFILE can be raised)"),
        ),
        Some(libc::EAGAIN) => error(
            LaunchErrorKind::Resources,
            format!(
                "{what}: a limit on processes or cgroups is reached (RLIMIT_NPROC, pids.max or cgroup.max.*)"
            ),
        ),
        Some(libc::ENFILE | libc::ENOMEM | libc::ENOSPC) => {
            error(LaunchErrorKind::Resources, format!("{what}: {e}"))
        }
        _ => error(LaunchErrorKind::Other, format!("{what}: {e}")),
    }
}

/// A step of the child itself.
pub(crate) fn setup_error(stage: Stage, errno: i32, resolved: &Resolved) -> LaunchError {
    let program = shown(&resolved.program);
    let text = Errno::from_raw_os_error(errno);
    match stage {
        Stage::Exec => exec_error(errno, &program, &resolved.head),
        Stage::Directory => directory_error(&resolved.cwd_name, text),
        Stage::Limit => {
            error(LaunchErrorKind::Other, format!("{program}: can't set a resource limit: {text}"))
        }
        Stage::Identity if errno == libc::EAGAIN => {
            error(LaunchErrorKind::Resources, format!("{program}: the user's limit on processes is reached"))
        }
        Stage::Identity => error(
            LaunchErrorKind::Other,
            format!("{program}: can't become the user that it is to run as: {text}"),
        ),
        Stage::ParentDeath if errno == libc::ESRCH => {
            error(LaunchErrorKind::Other, format!("{program}: its parent ended during the start"))
        }
        Stage::Session | Stage::ParentDeath | Stage::NoNewPrivileges | Stage::Descriptors => {
            error(LaunchErrorKind::Other, format!("{program}: {stage:?}: {text}"))
        }
    }
}

fn exec_error(errno: i32, program: &str, head: &Head) -> LaunchError {
    use LaunchErrorKind::{NotExecutable, NotFound, Other, Resources};
    let text = Errno::from_raw_os_error(errno);
    let (kind, why) = match (errno, head) {
        (libc::ENOENT | libc::ENOTDIR, Head::Interpreter(interpreter)) => {
            (NotFound, format!("its interpreter {interpreter} is not there"))
        }
        (libc::ENOENT | libc::ENOTDIR, _) => {
            (NotFound, "it, or the loader that it needs, is not there".to_owned())
        }
        (libc::EACCES, Head::Interpreter(interpreter)) => {
            (NotExecutable, format!("it, or its interpreter {interpreter}, may not be executed"))
        }
        (libc::EACCES | libc::EPERM, _) => (NotExecutable, "no permission to execute it".to_owned()),
        (libc::ENOEXEC | libc::EINVAL | libc::ELIBBAD | libc::EISDIR, _) => {
            (NotExecutable, format!("not a program of this machine: {text}"))
        }
        (libc::ETXTBSY, _) => (NotExecutable, "it is open for writing".to_owned()),
        (libc::ELOOP, _) => (NotExecutable, text.to_string()),
        (libc::E2BIG, _) => (NotExecutable, "its arguments and environment are too long".to_owned()),
        (libc::ENOMEM | libc::EAGAIN | libc::EMFILE | libc::ENFILE, _) => (Resources, text.to_string()),
        _ => (Other, text.to_string()),
    };
    error(kind, format!("{program}: {why}"))
}
