//! From the server to the client.
use super::super::scratch;
use super::end::{End, Read};
use super::{ClientEnd, STALLED, Shared, lock};
use crate::gate::Permit;
use mcpvisor_mcp::relay::Ended;
use std::io;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::oneshot;
use tokio::time;

/// The most that is read once the server is gone: no pipe holds more, unless an escaped process goes on writing.
const LAST_BYTES: usize = 1 << 20;

/// What the client brings.
pub(super) struct Attached {
    pub(super) stdout: End,
    pub(super) greeting: Vec<u8>,
}

/// What the client has not taken yet, and the calls that are answered in it.
#[derive(Default)]
struct Rest {
    bytes: Vec<u8>,
    written: usize,
    answered: Vec<Permit>,
    since: Option<time::Instant>,
}

/// Runs until the server's output has ended and the client has all of it, or there is no client.
pub(super) async fn run(
    shared: Arc<Shared>,
    server: End,
    attached: oneshot::Receiver<Attached>,
    on_end: Box<dyn FnOnce() + Send>,
) {
    let delivered = shared.delivered.clone();
    match client_or_end(attached, server.hung_up()).await {
        Came::Client(attached) => pump(shared, server, attached, on_end).await,
        Came::OutputEnd => on_end(),
        Came::RelayEnd => {}
    }
    delivered.send_replace(true);
}

/// What came first, while there was no client.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Came<T> {
    Client(T),
    /// The server's output has ended, and no client can come any more.
    OutputEnd,
    RelayEnd,
}

/// A client that comes while the end is being seen is one all the same: it hears what the server has said, and what becomes of its calls.
pub(super) async fn client_or_end<T>(
    mut client: oneshot::Receiver<T>,
    hung_up: impl Future<Output = ()>,
) -> Came<T> {
    tokio::select! {
        biased;
        came = &mut client => came.map_or(Came::RelayEnd, Came::Client),
        () = hung_up => {
            client.close();
            client.try_recv().map_or(Came::OutputEnd, Came::Client)
        }
    }
}

async fn pump(shared: Arc<Shared>, server: End, attached: Attached, on_end: Box<dyn FnOnce() + Send>) {
    let mut pump = Pump {
        shared,
        server: Some(server),
        client: Some(attached.stdout),
        on_end: Some(on_end),
        rest: Rest { bytes: attached.greeting, ..Rest::default() },
        last: LAST_BYTES,
    };
    while !pump.rest.is_written() && pump.client.is_some() {
        pump.write().await;
        pump.drop_lost();
    }
    pump.rest.forget();
    // What the server wrote before there was a client has told its event already.
    pump.read_at_once();
    pump.run().await;
}

struct Pump {
    shared: Arc<Shared>,
    server: Option<End>,
    client: Option<End>,
    on_end: Option<Box<dyn FnOnce() + Send>>,
    rest: Rest,
    last: usize,
}

impl Pump {
    async fn run(mut self) {
        loop {
            let (ending, lost) = {
                let mut state = lock(&self.shared.state);
                if self.rest.is_written() && state.talk.has_for_client() {
                    self.rest.bytes = state.talk.take_for_client();
                    self.rest.written = 0;
                }
                (state.ending, state.client.as_ref().is_some_and(|client| client.lost))
            };
            if lost {
                self.client = None;
            }
            if self.client.is_none() {
                self.rest.forget();
            }
            if !self.rest.is_written() {
                self.write().await;
                continue;
            }
            self.rest.forget();
            if self.server.is_none() {
                break;
            }
            if ending {
                self.last_bytes();
                continue;
            }
            self.next().await;
        }
    }

    fn drop_lost(&mut self) {
        if lock(&self.shared.state).client.as_ref().is_some_and(|client| client.lost) {
            self.client = None;
        }
    }

    /// Waits for what the server says, or for anything else that there is to do.
    async fn next(&mut self) {
        let Self { shared, server: Some(server), client, rest, .. } = self else { return };
        let client = client.as_ref();
        let unheard = async {
            match client {
                Some(client) => client.unheard().await,
                None => std::future::pending().await,
            }
        };
        let read = tokio::select! {
            biased;
            () = shared.wake_down.notified() => return,
            read = server.readable(|server| shared.read_down(server, client, rest)) => read,
            () = unheard => {
                shared.client_ended(ClientEnd::Lost);
                return;
            }
        };
        if read == Read::Ended {
            self.server_ended();
        }
    }

    /// Reads once without waiting for an event.
    fn read_at_once(&mut self) {
        let Some(server) = &self.server else { return };
        if self.shared.read_down(server, self.client.as_ref(), &mut self.rest) == Read::Ended {
            self.server_ended();
        }
    }

    /// The server is gone: reads on as long as there is something.
    fn last_bytes(&mut self) {
        let Some(server) = &self.server else { return };
        let read = self.shared.read_down(server, self.client.as_ref(), &mut self.rest);
        self.last = self.last.saturating_sub(64 << 10);
        // What is still read is told to nobody any more.
        self.on_end = None;
        if matches!(read, Read::Ended | Read::Nothing) || self.last == 0 {
            self.server_ended();
        }
    }

    fn server_ended(&mut self) {
        self.server = None;
        {
            let mut state = lock(&self.shared.state);
            state.server_first = state.client.as_ref().is_some_and(|client| !client.ended);
            state.talk.server_ended();
            // A call that comes now would be in flight for ever.
            state.deaf = true;
            self.shared.told(&mut state);
        }
        if let Some(on_end) = self.on_end.take() {
            on_end();
        }
    }

    /// Writes on what the client has not taken. One that takes nothing for too long is lost.
    async fn write(&mut self) {
        let Some(client) = &self.client else { return };
        match client.write(self.rest.left()) {
            Ok(count) => {
                self.rest.written += count;
                self.rest.since = None;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let since = *self.rest.since.get_or_insert_with(time::Instant::now);
                tokio::select! {
                    () = client.writable() => {}
                    () = self.shared.wake_down.notified() => {}
                    () = time::sleep_until(since + STALLED) => {
                        tracing::warn!("a client that does not read was cut");
                        self.shared.client_ended(ClientEnd::Lost);
                    }
                }
            }
            Err(_) => self.shared.client_ended(ClientEnd::Lost),
        }
    }
}

impl Rest {
    fn is_written(&self) -> bool {
        self.written == self.bytes.len()
    }

    fn left(&self) -> &[u8] {
        &self.bytes[self.written..]
    }

    /// All of it is written, or never will be.
    fn forget(&mut self) {
        for permit in self.answered.drain(..) {
            permit.finish();
        }
        (self.bytes, self.written, self.since) = (Vec::new(), 0, None);
    }
}

impl Shared {
    /// Reads once, and lets what was read pass; what the client does not take at once is the rest.
    fn read_down(&self, server: &End, client: Option<&End>, rest: &mut Rest) -> Read {
        scratch::with(|buffer| {
            let got = server.read(buffer);
            let read = Read::of(&got, buffer.len());
            if let Ok(count @ 1..) = got {
                self.pass_down(&mut buffer[..count], client, rest);
            }
            read
        })
    }

    fn pass_down(&self, buffer: &mut [u8], client: Option<&End>, rest: &mut Rest) {
        let passed = {
            let mut state = lock(&self.state);
            let passed = state.talk.from_server(buffer, &mut self.frames.watch(Instant::now()));
            for ended in state.talk.take_ended() {
                match ended {
                    Ended::Answered(permit) => rest.answered.push(permit),
                    Ended::Cancelled(permit) => permit.cancel(),
                    Ended::NoCall(permit) => permit.withdraw(),
                }
            }
            if state.talk.has_for_server() {
                self.wake_up.notify_one();
            }
            self.tell_if_quiet(&state);
            passed
        };
        let Some(client) = client else { return };
        let mut body = &buffer[..passed.len];
        if !passed.ahead.is_empty() {
            rest.bytes = passed.ahead;
            rest.bytes.extend_from_slice(body);
            return;
        }
        while !body.is_empty() {
            match client.write(body) {
                Ok(count) => body = &body[count..],
                // Whatever it is, the next attempt tells it again.
                Err(_) => {
                    rest.bytes = body.to_vec();
                    return;
                }
            }
        }
        self.gate.finish(&mut rest.answered);
    }
}
