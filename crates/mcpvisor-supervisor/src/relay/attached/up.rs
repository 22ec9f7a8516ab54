//! What the client says.
use super::super::exclusive::{End, Read};
use super::super::scratch;
use super::{Attached, Left, Slot};
use mcpvisor_mcp::relay::Because;
use mcpvisor_mcp::{Frame, Framer};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a client may take to hear the last lines of a session that has ended.
const FAREWELL: Duration = Duration::from_secs(5);

/// Where the client's words come from.
pub(super) struct Source {
    pub(super) stdin: End,
    /// What it hears goes the same way.
    pub(super) one_socket: bool,
    /// What was read already.
    pub(super) first: Vec<u8>,
}

/// Runs until the client or the session is gone, and leaves nothing of the client behind.
pub(super) async fn run(client: Arc<Attached>, slot: Slot, source: Source, most_line: usize) {
    let drain = client.record.drain;
    let mut left = client.left.subscribe();
    let talk = async {
        let lost = listen(&client, source, most_line).await;
        if lost {
            client.advance(Left::Lost);
            return;
        }
        client.said_all();
        client.advance(Left::Said);
        // What it asked is still answered, as long as a drain may take.
        let quiet = async {
            while client.endpoint().in_flight() > 0 {
                client.quiet.notified().await;
            }
        };
        // Boxed, as all is here that is not of the long time in which a client talks: its task is small then.
        if Box::pin(tokio::time::timeout(drain, quiet)).await.is_err() {
            client.give_up();
        }
        client.advance(Left::Over);
        std::future::pending::<()>().await;
    };
    let write = client.out.write();
    tokio::pin!(write);
    let end = client.out.end();
    let unheard = async {
        match &end {
            Some(end) => end.unheard().await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = talk => {}
        () = &mut write => {}
        () = client.out.broken() => {}
        // Whoever hears nothing is lost, though it may still talk.
        () = unheard => client.advance(Left::Lost),
        _ = left.wait_for(|left| *left >= Left::Over) => {}
    }
    if *client.left.borrow() < Left::Lost {
        tokio::select! {
            _ = Box::pin(tokio::time::timeout(FAREWELL, client.out.written())) => {}
            () = &mut write => {}
            _ = left.wait_for(|left| *left >= Left::Lost) => {}
        }
    }
    drop(end);
    if client.out.was_cut() {
        // Not the client has ended this.
        client.client_first.get_or_init(|| false);
    }
    let (todo, permits) = client.endpoint().client_lost();
    // A call that nobody waits for any more counts as cancelled.
    drop(permits);
    let mut touched = Vec::new();
    client.carry_out(todo, &mut touched);
    client.flush_servers(&mut touched);
    client.out.close();
    slot.leave(&client);
    client.advance(Left::Gone);
}

/// Reads until the client's stream ends: whether it is lost, and hears nothing any more.
async fn listen(client: &Arc<Attached>, source: Source, most_line: usize) -> bool {
    let Source { stdin, one_socket, first } = source;
    let mut framer = Framer::new(most_line);
    client.hear(&mut framer, &first, most_line);
    drop(first);
    loop {
        client.out.room().await;
        let read = stdin
            .readable(|end| {
                scratch::with(|buffer| {
                    let got = end.read(buffer);
                    if let Ok(count @ 1..) = got {
                        client.hear(&mut framer, &buffer[..count], most_line);
                    }
                    Read::of(&got, buffer.len())
                })
            })
            .await;
        if read == Read::Ended {
            return one_socket && stdin.is_unheard();
        }
        tokio::task::coop::consume_budget().await;
    }
}

impl Attached {
    /// The time of the drain is over: what is not answered by now is answered here.
    fn give_up(self: &Arc<Self>) {
        let (todo, ended) = self.endpoint().give_up(Because::Settled);
        let mut touched = Vec::new();
        self.carry_out(todo, &mut touched);
        ended.into_iter().for_each(|ended| self.cancelled(Some(ended)));
        self.flush_servers(&mut touched);
        self.flush();
    }

    /// A chunk of what the client says.
    fn hear(self: &Arc<Self>, framer: &mut Framer, mut input: &[u8], most_line: usize) {
        // One look at the clock for what came together.
        let (mut touched, now) = (Vec::new(), Instant::now());
        while let Some(frame) = framer.next_frame(&mut input) {
            let todo = match frame {
                Frame::Line(line) => self
                    .endpoint()
                    .client_line(line, || self.record.gate.admit_at(now).map_err(|_| Because::Closing)),
                Frame::TooLong(over) => self.endpoint().client_too_long(&over, most_line),
            };
            self.carry_out(todo, &mut touched);
        }
        self.flush_servers(&mut touched);
        self.flush();
    }
}
