//! What daemon and keeper say to each other: JSON in frames over a socket pair, each after its length as four bytes
//! (little-endian). Daemon and keeper are the same program, so there are no versions.
use crate::{Exit, Rung};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, send, sendmsg, socketpair,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::ffi::CString;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

/// A string of the kernel's, which need not be UTF-8: each byte is written as the character of that number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Text(CString);

impl From<CString> for Text {
    fn from(text: CString) -> Self {
        Self(text)
    }
}
impl From<Text> for CString {
    fn from(text: Text) -> Self {
        text.0
    }
}
impl Serialize for Text {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&self.0.as_bytes().iter().map(|b| char::from(*b)).collect::<String>())
    }
}
impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        let bytes = text.chars().map(u8::try_from).collect::<Result<Vec<u8>, _>>();
        let bytes = bytes.map_err(serde::de::Error::custom)?;
        CString::new(bytes).map(Self).map_err(serde::de::Error::custom)
    }
}

/// The server to start. Its stdin, stdout and stderr, and its directory if there is one, come as descriptors with the frame.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Launch {
    pub(crate) program: Text,
    pub(crate) args: Vec<Text>,
    pub(crate) env: Vec<Text>,
    /// No text: never to be given to a shell.
    pub(crate) is_binary: bool,
    pub(crate) has_cwd: bool,
    pub(crate) umask: Option<u32>,
    /// Resource, soft, hard.
    pub(crate) limits: Vec<(u32, u64, u64)>,
    pub(crate) nice: Option<i32>,
    pub(crate) ignored_signals: Vec<i32>,
    /// Uid, gid, groups.
    pub(crate) credentials: Option<(u32, u32, Vec<u32>)>,
    pub(crate) no_new_privs: bool,
}

/// From the daemon.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ToKeeper {
    /// The first, and only once.
    Launch(Box<Launch>),
    /// A stop has begun; answered by `Seen`.
    StdinClosed,
    /// SIGTERM to all; answered by `Seen`.
    Terminate,
    /// Kill all, again and again until none is left; answered by `Seen`.
    Kill,
}

/// A process, as a keeper sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SeenProcess {
    pub(crate) pid: u32,
    pub(crate) command: String,
    pub(crate) pgid: u32,
}

/// From the keeper.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum FromKeeper {
    Started {
        pid: u32,
    },
    /// The child failed at a stage with an errno; nothing is left of it, and the keeper ends.
    Failed {
        stage: u32,
        errno: i32,
    },
    /// No child could be made.
    NotBorn {
        errno: i32,
    },
    /// All that live now.
    Seen {
        processes: Vec<SeenProcess>,
    },
    Reaped {
        process: SeenProcess,
        exit: ToldExit,
        rung: ToldRung,
        main: bool,
        cpu_micros: u64,
    },
    /// No child is left. The keeper ends.
    Empty,
}

/// An exit, as it is told.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) enum ToldExit {
    Code(i32),
    Signal(i32),
}
impl From<Exit> for ToldExit {
    fn from(exit: Exit) -> Self {
        match exit {
            Exit::Code(code) => Self::Code(code),
            Exit::Signal(signal) => Self::Signal(signal),
        }
    }
}
impl From<ToldExit> for Exit {
    fn from(exit: ToldExit) -> Self {
        match exit {
            ToldExit::Code(code) => Self::Code(code),
            ToldExit::Signal(signal) => Self::Signal(signal),
        }
    }
}

/// A rung, as it is told.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) enum ToldRung {
    Itself,
    Stdin,
    Sigterm,
    Sigkill,
}
impl From<Rung> for ToldRung {
    fn from(rung: Rung) -> Self {
        match rung {
            Rung::Itself => Self::Itself,
            Rung::Stdin => Self::Stdin,
            Rung::Sigterm => Self::Sigterm,
            Rung::Sigkill => Self::Sigkill,
        }
    }
}
impl From<ToldRung> for Rung {
    fn from(rung: ToldRung) -> Self {
        match rung {
            ToldRung::Itself => Self::Itself,
            ToldRung::Stdin => Self::Stdin,
            ToldRung::Sigterm => Self::Sigterm,
            ToldRung::Sigkill => Self::Sigkill,
        }
    }
}

/// One end of the socket pair.
#[derive(Debug)]
pub(crate) struct Connection {
    socket: OwnedFd,
    inbox: Vec<u8>,
    /// Descriptors that came with the bytes; those of a frame are taken with it.
    descriptors: Vec<OwnedFd>,
}

/// A frame longer than this is a fault of the other side: arguments and environment take a few megabytes at most.
const LONGEST: usize = 64 << 20;

impl Connection {
    /// A connection, and the keeper's end of it.
    pub(crate) fn pair() -> io::Result<(Self, OwnedFd)> {
        let (near, far) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        Ok((Self::new(near), far))
    }

    pub(crate) fn new(socket: OwnedFd) -> Self {
        Self { socket, inbox: Vec::new(), descriptors: Vec::new() }
    }

    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        std::os::fd::AsFd::as_fd(&self.socket)
    }

    pub(crate) fn set_nonblocking(&self) -> io::Result<()> {
        Ok(rustix::io::ioctl_fionbio(&self.socket, true)?)
    }

    /// Sends a frame, and descriptors with its first byte. Blocks if the socket does.
    pub(crate) fn send(&self, message: &impl Serialize, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let body = serde_json::to_vec(message)?;
        let length = u32::try_from(body.len()).map_err(io::Error::other)?;
        let frame = [&length.to_le_bytes()[..], &body].concat();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(descriptors));
        }
        // No SIGPIPE for a process that has not ignored it.
        let mut sent =
            retry(|| sendmsg(&self.socket, &[IoSlice::new(&frame)], &mut control, SendFlags::NOSIGNAL))?;
        while let Some(rest) = frame.get(sent..).filter(|rest| !rest.is_empty()) {
            sent += retry(|| send(&self.socket, rest, SendFlags::NOSIGNAL))?;
        }
        Ok(())
    }

    /// Reads what is there (waits for the first byte if the socket blocks). False: the other side is gone.
    pub(crate) fn fill(&mut self) -> io::Result<bool> {
        let mut buffer = [0_u8; 16 * 1024];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received = loop {
            let mut parts = [IoSliceMut::new(&mut buffer)];
            match recvmsg(&self.socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::CONNRESET) => return Ok(false),
                other => break other?,
            }
        };
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                self.descriptors.extend(descriptors);
            }
        }
        if received.flags.contains(ReturnFlags::CTRUNC) {
            return Err(io::Error::from_raw_os_error(libc::EMFILE));
        }
        self.inbox.extend_from_slice(buffer.get(..received.bytes).unwrap_or_default());
        Ok(received.bytes != 0)
    }

    /// The next whole frame of what was read.
    pub(crate) fn next<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        let Some((length, rest)) = self.inbox.split_first_chunk::<4>() else { return Ok(None) };
        let length = u32::from_le_bytes(*length) as usize;
        if length > LONGEST {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a frame is too long"));
        }
        let Some(body) = rest.get(..length) else { return Ok(None) };
        let message = serde_json::from_slice(body)?;
        self.inbox.drain(..4 + length);
        Ok(Some(message))
    }

    /// The descriptors that have come.
    pub(crate) fn take_descriptors(&mut self) -> Vec<OwnedFd> {
        std::mem::take(&mut self.descriptors)
    }
}

fn retry<T>(mut action: impl FnMut() -> rustix::io::Result<T>) -> io::Result<T> {
    loop {
        match action() {
            Err(rustix::io::Errno::INTR) => {}
            other => return Ok(other?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd as _;

    #[test]
    fn a_long_frame_arrives_with_its_descriptors_and_every_byte() {
        let (near, far) = Connection::pair().unwrap();
        let mut far = Connection::new(far);
        let every: Vec<u8> = (1..=255).collect();
        let words: Vec<Text> = (0..2000).map(|_| CString::new(every.clone()).unwrap().into()).collect();
        let sender = std::thread::spawn(move || {
            let null = std::fs::File::open("/dev/null").unwrap();
            near.send(&words, &[null.as_fd(), null.as_fd()]).unwrap();
            near.send(&ToKeeper::Kill, &[]).unwrap();
        });
        let mut next = || loop {
            if let Some(message) = far.next::<serde_json::Value>().unwrap() {
                return message;
            }
            assert!(far.fill().unwrap());
        };
        let words: Vec<Text> = serde_json::from_value(next()).unwrap();
        assert_eq!(words.len(), 2000);
        assert!(words.iter().all(|word| word.0.as_bytes() == every));
        assert_eq!(next(), "Kill");
        assert_eq!(far.take_descriptors().len(), 2);
        assert!(!far.fill().unwrap());
        sender.join().unwrap();
    }
}
