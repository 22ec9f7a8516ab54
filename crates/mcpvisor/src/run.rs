//! `mcpvisor run`: the command of a client's configuration, which starts a server through the daemon.
//!
//! No byte passes through this program where stdin and stdout are pipes or sockets: in direct mode the server is born with them, in
//! relay mode the daemon passes the messages on. What is left to
//! do is to hold the lease, to copy the server's stderr, and to leave with the server's status when the daemon says
//! that nothing of the server remains. All of it is one poll loop on one thread without an asynchronous runtime, so
//! that starting it costs little.
//!
//! The teardown never depends on this program. Whatever ends it closes the connection, and with it the session.
pub(crate) mod attach;
pub(crate) mod command_line;
pub(crate) mod context;
mod copy;
mod failure;
mod link;
mod request;
pub(crate) mod signals;
mod status;
mod streams;
mod watch;

use crate::cli::{Globals, RunArgs};
use context::Context;
use failure::Failure;
pub(crate) use failure::OWN as FAILED;
use link::Link;
use mcpvisor_control::blocking::answer;
use mcpvisor_control::params::{Goal, SessionOpen, SessionWait};
use mcpvisor_control::results::{Opened, Waited};
use mcpvisor_control::{Id, Message};
use rustix::io::Errno;
use signals::Signals;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::ExitCode;
use streams::Streams;
use watch::{Event, Watch};

/// Runs the command and leaves with its status; with 125, 126 or 127 where it could not be run.
#[expect(clippy::needless_pass_by_value, reason = "the arguments end here")]
pub(crate) fn main(args: RunArgs, globals: &Globals) -> ExitCode {
    match run(&args, globals) {
        Ok(status) => ExitCode::from(status),
        Err(failure) => {
            failure.tell();
            ExitCode::from(failure.status)
        }
    }
}

fn run(args: &RunArgs, globals: &Globals) -> Result<u8, Failure> {
    let context = Context::of_this_process().map_err(Failure::here("read /proc/self/status"))?;
    let cwd = request::directory(args)?;
    let streams = Streams::new().map_err(Failure::here("prepare the standard streams"))?;
    let relayed = args.relay || streams.are_bridged();
    let open = request::open(args, globals, &context, relayed)?;
    let mut link = Link::find(globals)?;
    let id = send_open(&mut link, &open, &streams, &cwd)?;
    // From here on a signal is answered with an orderly end. Before, its default does as well: the daemon sees the
    // connection go.
    let signals = Signals::catch(&context.ignored_signals).map_err(Failure::here("catch signals"))?;
    let mut shim = Shim { globals, watch: Watch::new(link, streams, signals), kill: None };
    match shim.opened(id, &open, &cwd)? {
        Step::Go(opened) => shim.stay(opened),
        Step::Leave(status) => Ok(status),
    }
}

fn send_open(link: &mut Link, open: &SessionOpen, streams: &Streams, cwd: &OwnedFd) -> Result<Id, Failure> {
    let [stdin, stdout, stderr] = streams.descriptors().expect("let go only after the open was answered");
    let descriptors: [BorrowedFd<'_>; 4] = [stdin, stdout, stderr, cwd.as_fd()];
    link.connection.send(open, &descriptors).map_err(Failure::here("ask the daemon to open the session"))
}

/// Whether the shim goes on.
enum Step<T> {
    Go(T),
    Leave(u8),
}

struct Shim<'a> {
    globals: &'a Globals,
    watch: Watch,
    /// Writing `1` to it kills what a daemon that died has left.
    kill: Option<OwnedFd>,
}

impl Shim<'_> {
    /// Waits for the answer to the open. A daemon that may not run commands for us gives way to a private one.
    fn opened(&mut self, mut id: Id, open: &SessionOpen, cwd: &OwnedFd) -> Result<Step<Opened>, Failure> {
        loop {
            let result = match self.answer_to(&id)? {
                Step::Leave(status) => return Ok(Step::Leave(status)),
                Step::Go(None) => return Err(self.watch.link.lost_while_opening()),
                Step::Go(Some(result)) => result,
            };
            match result {
                Ok(raw) => {
                    let opened =
                        answer::<SessionOpen>(Ok(raw)).map_err(|error| Failure::own(error.to_string()))?;
                    return Ok(Step::Go(opened));
                }
                Err(error) if self.watch.link.gives_way(error.kind()) => {
                    self.watch.link = Link::private(self.globals)?;
                    id = send_open(&mut self.watch.link, open, &self.watch.streams, cwd)?;
                }
                Err(error) => {
                    // What a server that failed at once has said is with us already.
                    let failure = Failure::refused("start the server", &error);
                    self.watch.deliver();
                    return match status::of_failed_start(&error) {
                        Some(status) => Ok(Step::Leave(status)),
                        None => Err(failure),
                    };
                }
            }
        }
    }

    /// Holds the lease until nothing of the session is left.
    fn stay(&mut self, opened: Opened) -> Result<u8, Failure> {
        if opened.kill_descriptor {
            self.kill = self.watch.link.connection.take_descriptor();
        }
        self.watch.link.reap();
        self.watch.streams.let_go().map_err(Failure::here("let go of stdin and stdout"))?;
        let wait = SessionWait {
            key: opened.session.key,
            generation: Some(opened.session.generation),
            user: self.globals.user,
            goal: Goal::Closed,
            deadline_ms: None,
        };
        // A daemon that is gone is told by the next read.
        let Ok(id) = self.watch.link.connection.send(&wait, &[]) else { return self.daemon_died() };
        let result = match self.answer_to(&id)? {
            Step::Leave(status) => return Ok(status),
            Step::Go(None) => return self.daemon_died(),
            Step::Go(Some(result)) => result,
        };
        let waited: Waited = match result {
            Ok(raw) => answer::<SessionWait>(Ok(raw)).map_err(|error| Failure::own(error.to_string()))?,
            Err(error) => {
                self.watch.deliver();
                return Err(Failure::refused("learn of the server's end", &error));
            }
        };
        if let Some(signal) = self.watch.deliver() {
            return Ok(status::of_signal(signal));
        }
        status::of_certificate(waited.certificate.as_ref())
    }

    /// The answer to a request; none where the daemon is gone. Leaves on a signal.
    fn answer_to(&mut self, id: &Id) -> Result<Step<Option<Answer>>, Failure> {
        loop {
            match self.watch.next().map_err(Failure::here("wait for the daemon"))? {
                Event::Signal(signal) => return Ok(Step::Leave(status::of_signal(signal))),
                Event::Disconnected => return Ok(Step::Go(None)),
                Event::Message(Message::Response { id: Some(of), result }) if of == *id => {
                    return Ok(Step::Go(Some(result)));
                }
                // The daemon could not even read the request's id.
                Event::Message(Message::Response { id: None, result: Err(error) }) => {
                    return Ok(Step::Go(Some(Err(error))));
                }
                Event::Message(_) => {}
            }
        }
    }

    /// The daemon has ended without a report. It has a guardian that kills what it leaves; this is the second net.
    fn daemon_died(&mut self) -> Result<u8, Failure> {
        let message = match self.kill.take() {
            // It fails where the scope is gone already, which is what it is for.
            Some(kill) => match rustix::io::write(&kill, b"1") {
                Ok(_) | Err(Errno::NODEV | Errno::NOENT) => "the daemon died; the server was killed",
                Err(_) => "the daemon died, and the server could not be killed from here",
            },
            None => "the daemon died before it could tell of the server's end",
        };
        self.watch.deliver();
        Err(Failure::own(message))
    }
}

type Answer = Result<Box<serde_json::value::RawValue>, mcpvisor_control::ErrorObject>;
