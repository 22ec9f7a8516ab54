//! The descriptors of a direct open: which is which, and that they are what they must be.
use super::{invalid, unsupported};
use crate::wire::Descriptors;
use mcpvisor_control::params::{Descriptor, SessionOpen};
use mcpvisor_control::{ErrorKind, ErrorObject};
use mcpvisor_supervisor::DirectStreams;
use rustix::fs::{FileType, Mode, OFlags, fstat, open as open_file};
use std::os::fd::{AsRawFd, OwnedFd};

/// The streams of a direct session, or of one that is relayed from its birth; None of any other. What is not used is closed.
pub(crate) fn streams(
    open: &SessionOpen,
    descriptors: Descriptors,
) -> Result<Option<DirectStreams>, ErrorObject> {
    let given = match (&open.direct, &open.relay) {
        (None, None) => return Ok(None),
        (Some(given), None) | (None, Some(given)) => given,
        (Some(_), Some(_)) => return Err(invalid("a session is direct or relayed, and not both")),
    };
    if open.servers.len() != 1 || open.profile.is_some() {
        return Err(invalid(
            "a direct or relayed session has exactly one server, a command of the client's own",
        ));
    }
    let [stdin, stdout, stderr, cwd] = sort(&given.descriptors, descriptors)?;
    let (stdin, stdout) = both(stdin, stdout)?;
    if let Some(cwd) = &cwd
        && kind(cwd)? != FileType::Directory
    {
        return Err(invalid("descriptors: `cwd` is not a directory"));
    }
    let stderr = stderr.map(|stderr| reopened(&stderr)).transpose()?;
    Ok(Some(DirectStreams::new(stdin, stdout, stderr, cwd)))
}

/// The streams of a client that is attached.
pub(crate) fn attached(
    names: &[Descriptor],
    descriptors: Descriptors,
) -> Result<(OwnedFd, OwnedFd), ErrorObject> {
    let [stdin, stdout, _, _] = sort(names, descriptors)?;
    both(stdin, stdout)
}

fn both(stdin: Option<OwnedFd>, stdout: Option<OwnedFd>) -> Result<(OwnedFd, OwnedFd), ErrorObject> {
    let (Some(stdin), Some(stdout)) = (stdin, stdout) else {
        return Err(invalid("descriptors: `stdin` and `stdout` must be among them"));
    };
    for (name, descriptor) in [("stdin", &stdin), ("stdout", &stdout)] {
        if !matches!(kind(descriptor)?, FileType::Fifo | FileType::Socket) {
            return Err(unsupported(format!(
                "descriptors: {name} is neither a pipe nor a socket, so its end can't be watched"
            )));
        }
    }
    Ok((stdin, stdout))
}

fn sort(names: &[Descriptor], descriptors: Descriptors) -> Result<[Option<OwnedFd>; 4], ErrorObject> {
    if descriptors.lost {
        return Err(ErrorObject::new(
            ErrorKind::Overloaded,
            "descriptors that were sent along are lost: the daemon has too many open files",
        )
        .with("help", "close some sessions, or raise the daemon's limit of open files"));
    }
    let (named, came) = (names.len(), descriptors.list.len());
    if named != came {
        return Err(invalid(format!("descriptors: {named} descriptors are named, and {came} came along")));
    }
    let mut sorted = [const { None }; 4];
    for (name, descriptor) in names.iter().zip(descriptors.list) {
        let place = match name {
            Descriptor::Stdin => 0,
            Descriptor::Stdout => 1,
            Descriptor::Stderr => 2,
            Descriptor::Cwd => 3,
        };
        if sorted[place].replace(descriptor).is_some() {
            return Err(invalid("descriptors: a descriptor is named twice"));
        }
    }
    Ok(sorted)
}

fn kind(descriptor: &OwnedFd) -> Result<FileType, ErrorObject> {
    let stat = fstat(descriptor)
        .map_err(|error| invalid(format!("descriptors: a descriptor can't be used: {error}")))?;
    Ok(FileType::from_raw_mode(stat.st_mode))
}

/// The same pipe, opened anew and non-blocking: whatever the client does to the flags of its own, a write of ours never waits, and
/// its flags are not touched (G39).
pub(super) fn reopened(stderr: &OwnedFd) -> Result<OwnedFd, ErrorObject> {
    if kind(stderr)? != FileType::Fifo {
        return Err(invalid("descriptors: `stderr` is not the write end of a pipe"));
    }
    let path = format!("/proc/self/fd/{}", stderr.as_raw_fd());
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    open_file(path, flags, Mode::empty())
        .map_err(|error| invalid(format!("descriptors: `stderr` can't be opened for writing: {error}")))
}
