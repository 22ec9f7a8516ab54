//! What clients that share a server must know of each other.
use super::{Ended, Endpoint, Kind, result_line};

impl<P> Endpoint<P> {
    /// Whether the client is subscribed to a resource, or asks to be.
    #[must_use]
    pub fn wants(&self, uri: &str) -> bool {
        let asks =
            || self.calls.values().any(|call| matches!(&call.kind, Kind::Subscribe(asked) if asked == uri));
        self.subscriptions.contains_key(uri) || asks()
    }

    /// The end of a subscription that others still have at the server: it is the client's alone. `None` of a call that was cancelled.
    pub fn unsubscribed(&mut self, call: super::CallKey) -> Option<Ended<P>> {
        if let Kind::Unsubscribe(uri) = self.calls.get(&call)?.kind.clone() {
            self.subscriptions.remove(&uri);
        }
        self.answer_with(call, |id| result_line(id, "{}"))
    }
}
