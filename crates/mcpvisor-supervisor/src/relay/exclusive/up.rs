//! From the client to the server.
use super::super::scratch;
use super::end::{End, Read};
use super::{ClientEnd, PATIENCE, Shared, lock};
use mcpvisor_mcp::relay::Because;
use std::io;
use std::sync::Arc;
use std::time::Instant;
use tokio::time;

/// What the server has not taken yet: of a chunk that was read, or lines of our own.
#[derive(Default)]
struct Rest {
    bytes: Vec<u8>,
    written: usize,
}

impl Rest {
    fn is_empty(&self) -> bool {
        self.written == self.bytes.len()
    }

    fn left(&self) -> &[u8] {
        &self.bytes[self.written..]
    }

    fn set(&mut self, bytes: Vec<u8>) {
        (self.bytes, self.written) = (bytes, 0);
    }
}

/// Runs until the server's input is to be closed; drops it then.
pub(super) async fn run(shared: Arc<Shared>, client: End, one_socket: bool, first: Vec<u8>, server: End) {
    let mut client = Some(client);
    let mut rest = Rest::default();
    let mut first = Some(first).filter(|first| !first.is_empty());
    let mut give_up_at = None;
    loop {
        let (closing, full, lost) = {
            let mut state = lock(&shared.state);
            if rest.is_empty() && state.talk.has_for_server() {
                rest.set(state.talk.take_for_server());
                shared.frames.said_all(rest.left());
            }
            (state.closing, state.talk.is_full(), state.client.as_ref().is_none_or(|client| client.lost))
        };
        if closing {
            give_up_at.get_or_insert_with(|| time::Instant::now() + PATIENCE);
        }
        if lost {
            client = None;
        }
        if !rest.is_empty() {
            match server.write(rest.left()) {
                Ok(count) => rest.written += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let patience = async {
                        match give_up_at {
                            Some(at) => time::sleep_until(at).await,
                            None => std::future::pending().await,
                        }
                    };
                    tokio::select! {
                        () = server.writable() => {}
                        () = shared.wake_up.notified() => {}
                        () = patience => return,
                    }
                }
                Err(_) => {
                    rest.set(Vec::new());
                    shared.deaf();
                }
            }
            continue;
        }
        rest.set(Vec::new());
        if closing {
            return;
        }
        if let Some(mut bytes) = first.take() {
            shared.pass_up(&mut bytes, &server, &mut rest);
            continue;
        }
        let Some(end) = client.as_ref().filter(|_| !full) else {
            shared.wake_up.notified().await;
            continue;
        };
        let read = tokio::select! {
            biased;
            () = shared.wake_up.notified() => continue,
            read = end.readable(|end| shared.read_up(end, &server, &mut rest)) => read,
        };
        if read == Read::Ended {
            // Of one socket for both directions it can be told here whether the client still hears.
            let lost = one_socket && end.is_unheard();
            client = None;
            shared.client_ended(if lost { ClientEnd::Lost } else { ClientEnd::Said });
        }
    }
}

impl Shared {
    fn read_up(&self, client: &End, server: &End, rest: &mut Rest) -> Read {
        scratch::with(|buffer| {
            let got = client.read(buffer);
            let read = Read::of(&got, buffer.len());
            if let Ok(count @ 1..) = got {
                self.pass_up(&mut buffer[..count], server, rest);
            }
            read
        })
    }

    /// Lets a chunk pass; what the server does not take at once is the rest.
    fn pass_up(&self, buffer: &mut [u8], server: &End, rest: &mut Rest) {
        let passed = {
            let mut state = lock(&self.state);
            let deaf = state.deaf;
            // Once for all that was read: it came together.
            let now = Instant::now();
            let admit = || {
                if deaf {
                    return Err(Because::ServerExited);
                }
                self.gate.admit_at(now).map_err(|_| Because::Closing)
            };
            let passed = state.talk.from_client(buffer, admit, &mut self.frames.watch(now));
            self.told(&mut state);
            if state.talk.has_for_client() {
                self.wake_down.notify_one();
            }
            if deaf {
                return;
            }
            passed
        };
        let mut body = &buffer[..passed.len];
        if !passed.ahead.is_empty() {
            let mut all = passed.ahead;
            all.extend_from_slice(body);
            rest.set(all);
            return;
        }
        while !body.is_empty() {
            match server.write(body) {
                Ok(count) => body = &body[count..],
                // Whatever it is, the next attempt tells it again.
                Err(_) => {
                    rest.set(body.to_vec());
                    return;
                }
            }
        }
    }

    /// The server has closed its input: what it is asked from now on it will not answer.
    fn deaf(&self) {
        lock(&self.state).deaf = true;
    }
}
