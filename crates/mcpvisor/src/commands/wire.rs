//! The connection to the daemon, as commands use it.
use super::failure::Failure;
use crate::cli::Globals;
use crate::private;
use mcpvisor_control::blocking::{self, Connection};
use mcpvisor_control::socket::{self, Surroundings};
use mcpvisor_control::{Call, Id, Message};
use serde_json::value::RawValue;
use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

/// An answer, as it came and understood.
#[derive(Debug)]
pub(crate) struct Answer<T> {
    /// As it came: what `--json` prints.
    pub(crate) raw: Box<RawValue>,
    pub(crate) value: T,
}

/// See the module.
pub(crate) struct Wire {
    connection: Connection,
    /// When the command's own patience ends.
    deadline: Option<Instant>,
}

/// How much longer than the request's own deadline its answer is waited for: the daemon answers at its deadline.
const SLACK: Duration = Duration::from_secs(1);

impl Wire {
    /// Connects to the daemon that the options name, or starts a private one. `doing` is for the error.
    pub(crate) fn connect(doing: &str, globals: &Globals) -> Result<Self, Failure> {
        let stream = if globals.private {
            private::start(globals).map_err(|error| Failure::other("start a private daemon", error))?
        } else {
            let surroundings = Surroundings::of_process(globals.socket.clone());
            socket::connect(&surroundings).map_err(|error| Failure::no_daemon(doing, error))?.0
        };
        let mut connection = Connection::new(stream);
        let deadline = globals.timeout.map(|timeout| Instant::now() + timeout);
        connection.set_deadline(deadline.map(|at| at + SLACK));
        Ok(Self { connection, deadline })
    }

    /// What is left of `--timeout`, as requests carry it: several of one command have it together.
    pub(crate) fn deadline_ms(&self) -> Option<u64> {
        self.deadline.map(|at| millis(at.saturating_duration_since(Instant::now())))
    }

    /// Asks and waits for the answer.
    pub(crate) fn call<P: Call>(&mut self, doing: &str, params: &P) -> Result<Answer<P::Answer>, Failure> {
        let raw = self.connection.call_raw(params, &[]);
        let raw = raw.map_err(|error| Failure::of_connection(doing, error))?;
        let value =
            blocking::answer::<P>(Ok(raw.clone())).map_err(|error| Failure::of_connection(doing, error))?;
        Ok(Answer { raw, value })
    }

    /// Asks all at once; gives the answers in the order of the requests. Fails only where the connection does.
    pub(crate) fn call_all<P: Call>(
        &mut self,
        doing: &str,
        params: &[P],
    ) -> Result<Vec<Result<Box<RawValue>, Failure>>, Failure> {
        let mut places = HashMap::new();
        for (place, params) in params.iter().enumerate() {
            let id = self
                .connection
                .send(params, &[])
                .map_err(|error| Failure::of_connection(doing, error.into()))?;
            places.insert(id, place);
        }
        let mut answers: Vec<_> = params.iter().map(|_| None).collect();
        while !places.is_empty() {
            let message = self.wait_message(doing)?;
            if let Message::Response { id: Some(id), result } = message
                && let Some(place) = places.remove(&id)
            {
                answers[place] = Some(result.map_err(|error| Failure::refused(doing, error)));
            }
        }
        Ok(answers.into_iter().flatten().collect())
    }

    /// Asks; the answer is among what [`Self::wait_message`] gives.
    pub(crate) fn send<P: Call>(&mut self, doing: &str, params: &P) -> Result<Id, Failure> {
        self.connection.send(params, &[]).map_err(|error| Failure::of_connection(doing, error.into()))
    }

    /// The next message.
    pub(crate) fn wait_message(&mut self, doing: &str) -> Result<Message, Failure> {
        self.connection.wait_message().map_err(|error| Failure::of_connection(doing, error))
    }

    /// The next message; None where `other` is readable first.
    pub(crate) fn wait_message_or(
        &mut self,
        doing: &str,
        other: BorrowedFd<'_>,
    ) -> Result<Option<Message>, Failure> {
        self.connection.wait_message_or(other).map_err(|error| Failure::of_connection(doing, error))
    }

    /// Gives a request up, and waits for its answer, which tells that it is undone: no longer than this, and no longer than until
    /// `other` is readable.
    pub(crate) fn cancel(&mut self, doing: &str, id: &Id, patience: Duration, other: BorrowedFd<'_>) {
        if self.connection.cancel(id).is_err() {
            return;
        }
        self.connection.set_deadline(Some(Instant::now() + patience));
        while let Ok(Some(message)) = self.wait_message_or(doing, other) {
            if matches!(message, Message::Response { id: Some(of), .. } if of == *id) {
                return;
            }
        }
    }

    /// Waits until the daemon has ended the connection.
    pub(crate) fn wait_end(&mut self) {
        while self.connection.wait_message().is_ok() {}
    }

    /// From here on the answers come when they come.
    pub(crate) fn without_deadline(&mut self) {
        self.connection.set_deadline(None);
    }
}

/// `--timeout` as requests carry it.
pub(crate) fn deadline_ms(globals: &Globals) -> Option<u64> {
    globals.timeout.map(millis)
}

/// Whole milliseconds.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
