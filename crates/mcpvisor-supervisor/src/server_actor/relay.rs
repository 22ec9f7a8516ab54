//! An exclusive server's relay.
use super::{Driver, ServerMsg};
use crate::relay::exclusive::{Client, End, OnLeave, Relay, Terms};
use crate::session_actor::SessionMsg;
use mcpvisor_lifecycle::Incarnation;
use ractor::ActorRef;
use std::io;
use std::os::fd::OwnedFd;

impl Driver {
    /// Starts the relay, with the client that came with the open, or until one is attached. The end of the first is the end of its
    /// session, of the other that of its server.
    pub(super) fn relay(
        &mut self,
        myself: &ActorRef<ServerMsg>,
        incarnation: Incarnation,
        stdin: OwnedFd,
        stdout: OwnedFd,
        on_end: Box<dyn FnOnce() + Send>,
    ) -> io::Result<()> {
        let streams = self.arguments.direct.as_mut().and_then(|streams| streams.take_relayed());
        let client = streams.map(|(stdin, stdout)| Client::new(stdin, stdout)).transpose()?;
        let on_leave = if client.is_some() {
            let session = self.arguments.parent.clone();
            OnLeave::Session(Box::new(move || {
                let _ = session.send_message(SessionMsg::ClientLeft);
            }))
        } else {
            let server = myself.clone();
            let tell = move || {
                let _ = server.send_message(ServerMsg::InputEnded(incarnation));
            };
            OnLeave::Server(self.arguments.session.drain, Box::new(tell))
        };
        let record = &self.arguments.record;
        let terms = Terms {
            gate: self.arguments.session.gate.clone(),
            most_calls: record.spec.max_in_flight,
            frames: record.frames.clone(),
        };
        let relay = Relay::start(stdin, stdout, terms, client, on_leave, on_end)?;
        record.live().relay = Some(relay);
        Ok(())
    }

    /// Nothing is left of an exclusive server: whether it had its client, and from now on none can come.
    pub(super) fn had_client(&self, incarnation: Incarnation) -> bool {
        if self.machine.incarnation() != Some(incarnation) {
            return false;
        }
        let relay = self.arguments.record.live().relay.clone();
        relay.is_some_and(|relay| {
            relay.end();
            relay.has_had_client()
        })
    }
}

impl Client {
    /// Over a stream for each direction.
    ///
    /// # Errors
    /// See [`End::reading`].
    pub(crate) fn new(stdin: OwnedFd, stdout: OwnedFd) -> io::Result<Self> {
        Ok(Self {
            stdin: End::reading(stdin)?,
            stdout: End::writing(stdout)?,
            one_socket: false,
            first: Vec::new(),
            greeting: Vec::new(),
        })
    }

    /// Over one socket, of which `first` was read already, and which hears `greeting` before the server.
    ///
    /// # Errors
    /// See [`End::reading`].
    pub(crate) fn over_socket(socket: OwnedFd, first: Vec<u8>, greeting: Vec<u8>) -> io::Result<Self> {
        let end = End::both_ways(socket)?;
        Ok(Self { stdin: end.clone(), stdout: end, one_socket: true, first, greeting })
    }
}
