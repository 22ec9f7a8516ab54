//! A connection without an asynchronous runtime, which can pass and receive descriptors. For the shim, and for whoever
//! asks one thing at a time.
use crate::call::Call;
use crate::error::ErrorObject;
use crate::line::LineBuffer;
use crate::message::{self, Id, Message};
use crate::method;
use crate::params::Cancelled;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, send, sendmsg,
};
use serde_json::value::RawValue;
use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Instant;

/// The most descriptors that one line carries.
pub const MAX_DESCRIPTORS: usize = 8;

/// Why a request got no answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The daemon refused it.
    #[error("{0}")]
    Refused(Box<ErrorObject>),
    /// The connection broke.
    #[error("the connection to the daemon broke: {0}")]
    Io(#[from] io::Error),
    /// The daemon ended the connection before its answer.
    #[error("the daemon ended the connection")]
    Disconnected,
    /// The answer is not what it should be.
    #[error("the daemon's answer can't be understood: {0}")]
    Malformed(String),
}

/// What a read found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Received {
    /// Bytes, and perhaps whole lines.
    Some,
    /// Nothing is there now (only of a read that does not wait).
    Nothing,
    /// The other side has ended the connection.
    End,
}

/// See the module.
#[derive(Debug)]
pub struct Connection {
    stream: UnixStream,
    lines: LineBuffer,
    descriptors: VecDeque<OwnedFd>,
    last_id: i64,
    deadline: Option<Instant>,
}

impl Connection {
    /// Over a connected stream in blocking mode.
    #[must_use]
    pub fn new(stream: UnixStream) -> Self {
        Self {
            stream,
            lines: LineBuffer::new(crate::DEFAULT_MAX_LINE),
            descriptors: VecDeque::new(),
            last_id: 0,
            deadline: None,
        }
    }

    /// Sends a request; its answer is read with [`Self::next_message`]. The descriptors travel with the line's first
    /// byte, in their order; at most [`MAX_DESCRIPTORS`].
    pub fn send<P: Call>(&mut self, params: &P, descriptors: &[BorrowedFd<'_>]) -> io::Result<Id> {
        self.last_id += 1;
        let id = Id::Number(self.last_id);
        let line = message::request(&id, P::METHOD.as_str(), params)?;
        send_line(&self.stream, &line, descriptors)?;
        Ok(id)
    }

    /// Until when reads wait; after it they fail with [`io::ErrorKind::TimedOut`]. None: without end.
    pub fn set_deadline(&mut self, deadline: Option<Instant>) {
        self.deadline = deadline;
    }

    /// Sends a request and waits for its answer. Notifications and answers to other requests that come first are dropped.
    pub fn call<P: Call>(&mut self, params: &P, descriptors: &[BorrowedFd<'_>]) -> Result<P::Answer, Error> {
        answer::<P>(Ok(self.call_raw(params, descriptors)?))
    }

    /// As [`Self::call`], and gives the answer as it came.
    pub fn call_raw<P: Call>(
        &mut self,
        params: &P,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<Box<RawValue>, Error> {
        let id = self.send(params, descriptors)?;
        loop {
            match self.wait_message()? {
                Message::Response { id: Some(of), result } if of == id => {
                    return result.map_err(|error| Error::Refused(Box::new(error)));
                }
                Message::Response { id: None, result: Err(error) } => {
                    return Err(Error::Refused(Box::new(error)));
                }
                _ => {}
            }
        }
    }

    /// The next message; waits for it.
    pub fn wait_message(&mut self) -> Result<Message, Error> {
        loop {
            match self.next_message()? {
                Some(message) => return Ok(message),
                None if self.receive(true)? == Received::End => return Err(Error::Disconnected),
                None => {}
            }
        }
    }

    /// The next message; waits for it, but no longer than until `other` is readable: None then.
    pub fn wait_message_or(&mut self, other: BorrowedFd<'_>) -> Result<Option<Message>, Error> {
        loop {
            if let Some(message) = self.next_message()? {
                return Ok(Some(message));
            }
            let mut ready =
                [PollFd::new(&self.stream, PollFlags::IN), PollFd::from_borrowed_fd(other, PollFlags::IN)];
            poll_until(&mut ready, self.deadline)?;
            let [ours, others] = ready.map(|descriptor| !descriptor.revents().is_empty());
            if others {
                return Ok(None);
            }
            if ours && self.receive(false)? == Received::End {
                return Err(Error::Disconnected);
            }
        }
    }

    /// Says that the answer of a request is not wanted any more; what has become of it is answered all the same.
    pub fn cancel(&mut self, id: &Id) -> io::Result<()> {
        let line = message::notification(method::CANCELLED, Cancelled { request_id: id.clone() })?;
        send_line(&self.stream, &line, &[])
    }

    fn wait_readable(&self) -> io::Result<()> {
        match self.deadline {
            None => Ok(()),
            deadline => poll_until(&mut [PollFd::new(&self.stream, PollFlags::IN)], deadline),
        }
    }

    /// Reads once: waits for something, or takes what is there.
    pub fn receive(&mut self, wait: bool) -> io::Result<Received> {
        if wait {
            self.wait_readable()?;
        }
        let mut bytes = [0; 16 << 10];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut flags = RecvFlags::CMSG_CLOEXEC;
        flags.set(RecvFlags::DONTWAIT, !wait);
        let got = loop {
            match recvmsg(&self.stream, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags) {
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if !wait => return Ok(Received::Nothing),
                Err(Errno::CONNRESET) => return Ok(Received::End),
                other => break other?,
            }
        };
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                self.descriptors.extend(descriptors);
            }
        }
        if got.flags.contains(ReturnFlags::CTRUNC) {
            // The kernel drops descriptors silently when the table is full.
            return Err(io::Error::other("descriptors were lost: too many are open"));
        }
        if got.bytes == 0 {
            return Ok(Received::End);
        }
        self.lines.push(&bytes[..got.bytes]);
        Ok(Received::Some)
    }

    /// The next message of what was received; None: more must be received first.
    pub fn next_message(&mut self) -> Result<Option<Message>, Error> {
        let Some(line) = self.lines.next_line() else { return Ok(None) };
        let line = line.map_err(|error| Error::Malformed(error.to_string()))?;
        Message::parse(&line).map(Some).map_err(|error| Error::Malformed(error.to_string()))
    }

    /// The oldest descriptor that was received and not taken.
    pub fn take_descriptor(&mut self) -> Option<OwnedFd> {
        self.descriptors.pop_front()
    }

    /// The stream, for poll(2).
    #[must_use]
    pub fn stream(&self) -> &UnixStream {
        &self.stream
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// Waits until one of them is ready.
fn poll_until(descriptors: &mut [PollFd<'_>], deadline: Option<Instant>) -> io::Result<()> {
    loop {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let timeout = left.map(Timespec::try_from).transpose().map_err(io::Error::other)?;
        match poll(descriptors, timeout.as_ref()) {
            Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
            Err(Errno::INTR) => {}
            other => return Ok(other.map(drop)?),
        }
    }
}

/// Understands an answer.
pub fn answer<P: Call>(result: Result<Box<RawValue>, ErrorObject>) -> Result<P::Answer, Error> {
    let raw = result.map_err(|error| Error::Refused(Box::new(error)))?;
    serde_json::from_str(raw.get()).map_err(|error| Error::Malformed(error.to_string()))
}

/// Writes a line, newline included, with descriptors on its first byte. Waits until all is written; never raises SIGPIPE.
pub fn send_line(stream: &UnixStream, line: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "more descriptors than a line can carry"));
    }
    let mut sent = 0;
    while sent < line.len() {
        // A descriptor is sent once: with the first byte.
        let result = if sent == 0 {
            sendmsg(stream, &[IoSlice::new(line)], &mut control, SendFlags::NOSIGNAL)
        } else {
            send(stream, &line[sent..], SendFlags::NOSIGNAL)
        };
        match result {
            Err(Errno::INTR) => {}
            other => sent += other?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params;
    use std::io::{Read, Write};

    #[test]
    fn descriptors_travel_with_their_line() {
        let (client, server) = UnixStream::pair().unwrap();
        let (mut client, mut server) = (Connection::new(client), Connection::new(server));
        let (mut read, write) = std::io::pipe().unwrap();
        client.send(&params::Status {}, &[]).unwrap();
        // More than a socket's buffer holds, so that the line is sent in pieces.
        let open = params::SessionOpen { profile: Some("x".repeat(1 << 20)), ..Default::default() };
        let sender = std::thread::spawn(move || {
            client.send(&open, &[write.as_fd()]).unwrap();
            client
        });
        let mut methods = Vec::new();
        while methods.len() < 2 {
            match server.next_message().unwrap() {
                Some(Message::Request { method, .. }) => methods.push(method),
                Some(other) => panic!("{other:?}"),
                None => assert_eq!(server.receive(true).unwrap(), Received::Some),
            }
        }
        assert_eq!(methods, ["daemon/status", "session/open"]);
        let mut got = std::fs::File::from(server.take_descriptor().unwrap());
        assert!(server.take_descriptor().is_none());
        let client = sender.join().unwrap();
        got.write_all(b"through").unwrap();
        drop(got);
        let mut text = String::new();
        read.read_to_string(&mut text).unwrap();
        assert_eq!(text, "through");
        assert_eq!(server.receive(false).unwrap(), Received::Nothing);
        drop(client);
        assert_eq!(server.receive(true).unwrap(), Received::End);
    }

    #[test]
    fn a_call_is_answered_or_refused_or_cut() {
        let (client, server) = UnixStream::pair().unwrap();
        let mut client = Connection::new(client);
        let id = |number| Id::Number(number);
        send_line(&server, &message::notification("log", ()).unwrap(), &[]).unwrap();
        send_line(
            &server,
            &message::response(&id(1), serde_json::json!({"state":"draining","new":1})).unwrap(),
            &[],
        )
        .unwrap();
        assert!(client.call(&params::Drain {}, &[]).is_ok());
        let error = ErrorObject::new(crate::ErrorKind::Draining, "no");
        send_line(&server, &message::error_response(Some(&id(2)), &error), &[]).unwrap();
        assert!(matches!(client.call(&params::Drain {}, &[]), Err(Error::Refused(got)) if *got == error));
        send_line(&server, b"not json\n", &[]).unwrap();
        assert!(matches!(client.call(&params::Drain {}, &[]), Err(Error::Malformed(_))));
        client.set_deadline(Some(Instant::now()));
        let late = client.call(&params::Drain {}, &[]);
        assert!(matches!(late, Err(Error::Io(error)) if error.kind() == io::ErrorKind::TimedOut));
        client.set_deadline(None);
        server.shutdown(std::net::Shutdown::Write).unwrap();
        assert!(matches!(client.call(&params::Drain {}, &[]), Err(Error::Disconnected)));
    }

    #[test]
    fn a_wait_ends_with_a_message_or_with_what_else_is_waited_for() {
        let (client, server) = UnixStream::pair().unwrap();
        let (mut client, mut server) = (Connection::new(client), Connection::new(server));
        let (other, mut told) = std::io::pipe().unwrap();
        let id = client.send(&params::Status {}, &[]).unwrap();
        client.set_deadline(Some(Instant::now()));
        let late = client.wait_message_or(other.as_fd());
        assert!(matches!(late, Err(Error::Io(error)) if error.kind() == io::ErrorKind::TimedOut));
        client.set_deadline(None);
        send_line(server.stream(), &message::notification("log", ()).unwrap(), &[]).unwrap();
        assert!(matches!(client.wait_message_or(other.as_fd()), Ok(Some(Message::Notification { .. }))));
        told.write_all(b"!").unwrap();
        assert!(matches!(client.wait_message_or(other.as_fd()), Ok(None)));
        client.cancel(&id).unwrap();
        drop(server.wait_message().unwrap());
        let Ok(Message::Notification { method, params: Some(params) }) = server.wait_message() else {
            panic!()
        };
        assert_eq!((method.as_str(), params.get()), ("notifications/cancelled", "{\"requestId\":1}"));
        let (quiet, _hold) = std::io::pipe().unwrap();
        drop(server);
        assert!(matches!(client.wait_message_or(quiet.as_fd()), Err(Error::Disconnected)));
    }
}
