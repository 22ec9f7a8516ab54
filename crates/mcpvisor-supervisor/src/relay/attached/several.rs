//! Several clients of one server: the sessions that share it. Each has an endpoint of its own, so ids, progress and cancellation are kept
//! apart there; here is what they have in common at the server.
use super::super::Connection;
use super::super::shared::lock;
use super::{Attached, Slot};
use mcpvisor_mcp::endpoint::CallKey;
use mcpvisor_mcp::peer::Forward;
use mcpvisor_mcp::peer::turns::Caller;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

pub(crate) type Clients = Arc<[Arc<Attached>]>;

/// Callers that are clients of a host: far above any process.
const FIRST_CALLER: u64 = 1 << 32;

/// Where the clients of a session are.
#[derive(Default)]
pub(crate) struct Place {
    clients: Mutex<Clients>,
    callers: AtomicU64,
    /// Held while one of them subscribes or unsubscribes, so that the server hears of both in the order in which it was looked who else wants it.
    subscribing: Mutex<()>,
}

impl Place {
    pub(super) fn lock(&self) -> MutexGuard<'_, Clients> {
        lock(&self.clients)
    }

    pub(super) fn next_caller(&self) -> Caller {
        Caller(FIRST_CALLER + self.callers.fetch_add(1, Ordering::Relaxed))
    }
}

impl Slot {
    /// The same for a session of which each session that uses its server is a client.
    pub(crate) fn for_many(self, many: bool) -> Self {
        Self { many, ..self }
    }

    /// Those that are attached: one at most, unless the session is a host.
    pub(crate) fn clients(&self) -> Clients {
        Arc::clone(&self.place.lock())
    }

    /// The client, of a session that has one at most.
    pub(crate) fn client(&self) -> Option<Arc<Attached>> {
        self.place.lock().first().cloned()
    }

    /// Whom a request of the server is for, which names nobody: the only client, or the only one that waits for the server just now.
    pub(in crate::relay) fn answerer(&self) -> Result<Arc<Attached>, &'static str> {
        let clients = self.clients();
        match &*clients {
            [] => return Err("no client is attached that could answer"),
            [only] => return Ok(Arc::clone(only)),
            _ => {}
        }
        let mut waiting = clients.iter().filter(|client| client.endpoint().in_flight() > 0);
        match (waiting.next(), waiting.next()) {
            (Some(only), None) => Ok(Arc::clone(only)),
            _ => Err("several sessions share the server, and it can't be told which of them is to answer"),
        }
    }
}

impl Attached {
    pub(in crate::relay) fn caller(&self) -> Caller {
        self.caller
    }

    /// Passes a subscription on, or its end. The end of one that other clients have stays here.
    pub(super) fn subscribe(
        self: &Arc<Self>,
        call: CallKey,
        face: usize,
        forward: Forward<'_>,
        touched: &mut Vec<Connection>,
    ) {
        let place = self.place.upgrade();
        let _one_at_a_time = place.as_ref().map(|place| lock(&place.subscribing));
        let others = forward.method == "resources/unsubscribe"
            && uri_of(&forward).is_some_and(|uri| self.others_are_subscribed(&uri));
        if others {
            let ended = self.endpoint().unsubscribed(call);
            self.finish(ended);
        } else {
            self.pass_on(call, face, forward, touched);
            // Written before another one looks.
            self.flush_servers(touched);
        }
    }

    /// Whether another client is subscribed to what these parameters of `resources/unsubscribe` name.
    pub(super) fn others_want(&self, params: &serde_json::Map<String, serde_json::Value>) -> bool {
        params.get("uri").and_then(|uri| uri.as_str()).is_some_and(|uri| self.others_are_subscribed(uri))
    }

    fn others_are_subscribed(&self, uri: &str) -> bool {
        let Some(place) = self.place.upgrade() else { return false };
        let clients = Arc::clone(&place.lock());
        clients.iter().any(|other| !std::ptr::eq(&**other, self) && other.endpoint().wants(uri))
    }
}

pub(super) fn is_subscription(forward: &Forward<'_>) -> bool {
    matches!(&*forward.method, "resources/subscribe" | "resources/unsubscribe")
}

fn uri_of(forward: &Forward<'_>) -> Option<String> {
    #[derive(Deserialize)]
    struct Request {
        params: Params,
    }
    #[derive(Deserialize)]
    struct Params {
        uri: String,
    }
    serde_json::from_slice::<Request>(&forward.line).ok().map(|request| request.params.uri)
}

/// The kind of an error that the daemon says in a server's place.
pub(in crate::relay) fn own_kind(error: &RawValue) -> Option<String> {
    #[derive(Deserialize)]
    struct Error {
        data: Data,
    }
    #[derive(Deserialize)]
    struct Data {
        from: String,
        kind: String,
    }
    let Error { data } = serde_json::from_str(error.get()).ok()?;
    (data.from == "mcpvisor").then_some(data.kind)
}
