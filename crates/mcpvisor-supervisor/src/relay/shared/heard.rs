//! What a server says: answers to whoever waits, and what is for the attached client.
use super::{Later, Laters, Shared, State, Waiter};
use crate::relay::CallError;
use crate::relay::attached::Attached;
use mcpvisor_mcp::peer::Events;
use mcpvisor_mcp::{Answer, PeerEvent, outgoing};
use std::sync::Arc;

impl Shared {
    /// Carries out what follows from a line; what is for a client is given back.
    pub(in crate::relay) fn handle<'a>(&self, state: &mut State, events: Events<'a, Waiter>) -> Laters<'a> {
        let mut later = Laters::new();
        for event in events {
            match event {
                PeerEvent::Send(line) => {
                    state.outbox.push(line, None);
                }
                PeerEvent::Ready(negotiated) => {
                    state.ready(&negotiated);
                    self.handshake_over(Ok(negotiated));
                }
                PeerEvent::HandshakeFailed(error) => self.handshake_over(Err(error)),
                PeerEvent::Changed(kind) => state.changed(kind),
                PeerEvent::Told(told) => {
                    let (about, own) = state.whom(&told);
                    if !own {
                        later.push(Later::Told(told, about));
                    }
                }
                PeerEvent::Asked(asked) => later.push(Later::Asked(asked)),
                PeerEvent::Answered { token: Waiter::Client(client, call), answer } => {
                    later.push(Later::Answered(client, call, answer));
                }
                PeerEvent::Answered { token: Waiter::Own, .. } => {
                    state.own = None;
                    state.tells_changes = false;
                }
                PeerEvent::Answered { token: Waiter::Health, .. } => state.health = None,
                PeerEvent::Answered { token: Waiter::Caller(waiter, ..), answer } => {
                    let answer = match answer {
                        Answer::Line { outcome: Ok(result), .. } => Ok(result.to_owned()),
                        Answer::Line { outcome: Err(error), .. } => {
                            Err(CallError::ServerError(error.to_owned()))
                        }
                        Answer::TooLong(bytes) => {
                            Err(CallError::TooLong { bytes, cap: self.options.max_line })
                        }
                        // For a caller that is one whose rest is no JSON.
                        Answer::Unread { .. } => {
                            Err(CallError::BadAnswer("its answer is not valid JSON".to_owned()))
                        }
                    };
                    // One that gave up just now has cancelled, or is about to and finds nothing pending.
                    let _ = waiter.send(answer);
                }
            }
        }
        later
    }

    /// Tells the client what is for it; the line is queued, and `heard` is whose queue is to be flushed.
    pub(in crate::relay) fn tell_client(&self, later: Laters<'_>, heard: &mut Option<Arc<Attached>>) {
        let server = self.slot.server();
        for later in later {
            let client = match later {
                Later::Answered(client, call, answer) => {
                    client.answered(server, call, &answer);
                    Some(client)
                }
                Later::Told(told, Some((client, call))) => {
                    client.told(server, &told, Some(call));
                    Some(client)
                }
                Later::Told(told, None) => {
                    let clients = self.slot.clients();
                    let Some((last, others)) = clients.split_last() else { continue };
                    for client in others {
                        client.told(server, &told, None);
                        client.flush();
                    }
                    last.told(server, &told, None);
                    Some(Arc::clone(last))
                }
                Later::Asked(asked) => {
                    let client = self.slot.answerer();
                    let refusal = match &client {
                        Ok(client) => client.asked(server, &asked),
                        Err(why) => {
                            let text = format!("{why} {}", asked.method);
                            Some(outgoing::error(asked.raw_id, outgoing::METHOD_NOT_FOUND, &text))
                        }
                    };
                    if let Some(line) = refusal {
                        self.queue_line(line, None);
                    }
                    client.ok()
                }
            };
            match (client, &*heard) {
                (None, _) => {}
                (Some(client), Some(known)) if Arc::ptr_eq(&client, known) => {}
                (Some(client), _) => {
                    if let Some(before) = heard.replace(client) {
                        before.flush();
                    }
                }
            }
        }
    }
}
